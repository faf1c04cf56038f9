/* SPDX-License-Identifier: Apache-2.0 */
#include "train/adapters.h"

#include "base/text.h"
#include "graph/cut.h"
#include "model/hf.h"
#include "train/adapter_parts.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TARGETS = 32 };
static const char all_linear[] = "all-linear";

/* --- reading ------------------------------------------------------------------------------------------------------ */

static bool is(const tm_config *config, const char *key, const char *value)
{
    const char *text = tm_config_text(config, key);
    return text && strcmp(text, value) == 0;
}

tm_status tm_adapters_read(const tm_config *config, uint64_t seed, tm_adapters *out, tm_error *err)
{
    const char *targets = tm_config_text(config, "lora.targets");
    *out = (tm_adapters){ .rank = tm_config_i64(config, "lora.rank"), .base = TM_DTYPE_COUNT, .seed = seed };
    if (out->rank == 0) return TM_OK;
    out->alpha = tm_config_text(config, "lora.alpha") ? tm_config_f64(config, "lora.alpha") : (double)out->rank;
    out->dropout = tm_config_f64(config, "lora.dropout");
    out->rslora = tm_config_bool(config, "lora.rslora");
    out->dora = tm_config_bool(config, "lora.dora");
    out->gaussian = is(config, "lora.init", "gaussian");
    out->xavier = is(config, "lora.init", "xavier");
    out->place = tm_config_place(config, tm_config_is_set(config, "lora.targets") ? "lora.targets" : "lora.rank");
    if (is(config, "lora.base_format", "float32")) out->base = TM_F32;
    if (is(config, "lora.base_format", "bfloat16")) out->base = TM_BF16;
    if (is(config, "lora.base_format", "nf4")) out->base = TM_NF4_BLOCKS;
    if (is(config, "lora.base_format", "float8_e4m3")) out->base = TM_E4M3_BLOCKS;
    if (!targets || !*targets) targets = all_linear;
    if (strlen(targets) >= sizeof out->targets)
        return tm_fail(err, TM_INVALID, "lora.targets (%s) has %zu characters, at most %zu are read; use patterns",
                       out->place, strlen(targets), sizeof out->targets - 1);
    snprintf(out->targets, sizeof out->targets, "%s", targets);
    return TM_OK;
}

double tm_adapters_scale(const tm_adapters *adapters)
{
    double rank = (double)adapters->rank;
    return adapters->alpha / (adapters->rslora ? sqrt(rank) : rank);
}

/* --- names -------------------------------------------------------------------------------------------------------- */

/* What other programs call a module that has another name here. */
static const char *const aliases[][2] = { { "output_proj", "o_proj" },
                                          { "linear_qkv", "wqkv" },
                                          { "linear_proj", "wo" },
                                          { "linear_fc1", "w13" },
                                          { "linear_fc2", "w2" } };

typedef struct {
    tm_graph             *graph;
    const tm_model       *model;
    const tm_model_shape *shape;
    const tm_adapters    *adapters;
    char                  text[TM_MAX_TARGETS_TEXT];
    const char           *target[MAX_TARGETS];
    bool                  used[MAX_TARGETS];
    int                   n;
    bool                  all;
    tm_text               nearest; /* to a target that nothing is called */
    int                   distance;
} declarer;

static tm_status split_targets(declarer *d, tm_error *err)
{
    char *rest = d->text;
    snprintf(d->text, sizeof d->text, "%s", d->adapters->targets);
    for (char *target; (target = strsep(&rest, ", |"));) {
        if (!*target) continue;
        if (strcmp(target, all_linear) == 0) {
            d->all = true;
            continue;
        }
        if (d->n == MAX_TARGETS)
            return tm_fail(err, TM_INVALID, "lora.targets (%s) has more than %d names; use patterns",
                           d->adapters->place, MAX_TARGETS);
        for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++)
            if (strcmp(target, aliases[i][0]) == 0) target = strcpy(target, aliases[i][1]);
        d->target[d->n++] = target;
    }
    return TM_OK;
}

/* Without ".weight". */
static void cut_weight(tm_text *name)
{
    static const char suffix[] = ".weight";
    size_t            n = sizeof suffix - 1;
    if (name->length > n && strcmp(name->data + name->length - n, suffix) == 0) name->data[name->length -= n] = '\0';
}

/* The last part of a name, or all of it, is a target. */
static bool is_target(declarer *d, const char *module)
{
    bool any = false;
    for (int i = 0; i < d->n; i++) {
        char pattern[TM_MAX_TARGETS_TEXT + 4];
        snprintf(pattern, sizeof pattern, "*.%s", d->target[i]);
        if (fnmatch(d->target[i], module, 0) == 0 || fnmatch(pattern, module, 0) == 0) any = d->used[i] = true;
        const char *last = strrchr(module, '.');
        int         distance = tm_edit_distance(d->target[i], last ? last + 1 : module);
        if (!d->used[i] && distance < d->distance) {
            d->distance = distance;
            d->nearest.length = 0;
            tm_text_add(&d->nearest, last ? last + 1 : module);
        }
    }
    return any;
}

/* A piece by our name or theirs. */
static bool is_target_piece(declarer *d, const char *piece)
{
    tm_text ours = { 0 }, theirs = { 0 };
    tm_text_add(&ours, piece);
    cut_weight(&ours);
    bool any = is_target(d, ours.data);
    if (tm_hf_name_of(d->shape, piece, &theirs)) {
        cut_weight(&theirs);
        any = is_target(d, theirs.data) || any;
    }
    tm_text_fini(&ours);
    tm_text_fini(&theirs);
    return any;
}

/* Do both have one name in files, as query, key and value of GPT-2? */
static bool same_module(const declarer *d, const char *a, const char *b)
{
    tm_text x = { 0 }, y = { 0 };
    bool    same = tm_hf_name_of(d->shape, a, &x) && tm_hf_name_of(d->shape, b, &y) && strcmp(x.data, y.data) == 0;
    tm_text_fini(&x);
    tm_text_fini(&y);
    return same;
}

/* --- declaring ---------------------------------------------------------------------------------------------------- */

/* A matrix that a block multiplies with: no router, no norm of heads, no expert. */
static bool is_matrix(const tm_tensor *tensor, int rank)
{
    size_t            n = strlen(tensor->name);
    static const char suffix[] = ".weight";
    bool              weight = n >= sizeof suffix && strcmp(tensor->name + n + 1 - sizeof suffix, suffix) == 0;
    return tensor->role == TM_ROLE_PARAMETER && tensor->base == TM_NONE && tensor->adapts == TM_NONE &&
           tensor->shape.rank == rank && tensor->layer >= 0 && !tensor->as_stored && weight &&
           !strstr(tensor->name, "norm");
}

typedef struct {
    char    name[160]; /* of the module, without ".weight" */
    int64_t row, rows; /* of the matrix */
} adapted;

/* The adapted modules of a matrix, in the order of its rows; the first `at most` of them. */
static int find_modules(declarer *d, const tm_tensor *of, adapted *out, int most)
{
    int     n = 0;
    tm_text whole = { 0 };
    tm_text_add(&whole, of->name);
    cut_weight(&whole);
    if (is_target(d, whole.data) && of->n_pieces > 1) {
        out[n] = (adapted){ .rows = of->shape.n[0] };
        snprintf(out[n++].name, sizeof out->name, "%s", whole.data);
    }
    tm_text_fini(&whole);
    if (n) return n;
    for (int p = 0; p < of->n_pieces; p++) {
        const tm_piece *piece = &of->pieces[p];
        if (!is_target_piece(d, piece->name) && !d->all) continue;
        bool joined = n > 0 && p > 0 && out[n - 1].row + out[n - 1].rows == piece->row &&
                      same_module(d, of->pieces[p - 1].name, piece->name);
        if (joined) {
            out[n - 1].rows += piece->rows;
            continue;
        }
        if (n == most) return most + 1;
        size_t length = strlen(piece->name);
        out[n] = (adapted){ .row = piece->row, .rows = piece->rows };
        snprintf(out[n++].name, sizeof out->name, "%.*s", (int)(length > 7 ? length - 7 : length), piece->name);
    }
    return n;
}

/* The first values of rows of a; b begins with zeros. */
static void set_initial(const declarer *d, tm_piece *piece, int64_t width)
{
    piece->std = 1 / sqrt((double)width) / sqrt(3);
    if (d->adapters->gaussian) piece->std = 1 / (double)d->adapters->rank;
    if (d->adapters->xavier) piece->std = sqrt(2 / (double)(width + d->adapters->rank));
    piece->uniform = !d->adapters->gaussian && !d->adapters->xavier;
}

/* Rows of a for each module one behind the other, and rows of b. */
static tm_tensor_id declare_part(declarer *d, tm_tensor_id of, const adapted *modules, int n, bool is_a)
{
    const tm_tensor matrix = *tm_graph_at(d->graph, of);
    int64_t         rank = d->adapters->rank, rows = 0, whole = 0;
    tm_piece       *pieces = tm_arena_take(d->graph->arena, (size_t)(matrix.n_pieces + n) * sizeof *pieces);
    char            names[TM_MAX_ADAPTED][192], name[192];
    int             made = 0;
    for (int i = 0; i < n; i++) {
        snprintf(names[i], sizeof names[i], "%.160s.lora_%c.weight", modules[i].name, is_a ? 'A' : 'B');
        tm_piece like = { .name = names[i], .row = rows, .rows = rank, .begin = rows };
        rows += is_a ? rank : modules[i].rows;
        if (!is_a) {
            made += adapter_pieces_of_b(&matrix, modules[i].row, modules[i].rows, like, &whole, pieces + made);
            continue;
        }
        set_initial(d, &like, adapter_inputs(&matrix));
        whole += rank;
        pieces[made++] = like;
    }
    size_t length = strlen(matrix.name);
    snprintf(name, sizeof name, "%.*s.lora_%c.weight", (int)(length > 7 ? length - 7 : length), matrix.name,
             is_a ? 'A' : 'B');
    tm_tensor_id id = tm_graph_parameter(d->graph, n == 1 ? names[0] : name,
                                         tm_shape_2(rows, is_a ? matrix.shape.n[1] : rank), pieces, made);
    tm_graph_at(d->graph, id)->layer = matrix.layer;
    tm_graph_at(d->graph, id)->adapts = of;
    adapter_make_part(d->graph, id, of, whole, is_a);
    return id;
}

/* The length of each adapted row; 1 until it is measured. */
static tm_tensor_id declare_lengths(declarer *d, tm_tensor_id of, const adapted *modules, int n)
{
    const tm_tensor matrix = *tm_graph_at(d->graph, of);
    tm_piece        pieces[TM_MAX_ADAPTED];
    char            names[TM_MAX_ADAPTED][192], name[192];
    int64_t         rows = 0;
    for (int i = 0; i < n; i++) {
        snprintf(names[i], sizeof names[i], "%.160s.lora_magnitude_vector", modules[i].name);
        pieces[i] = (tm_piece){ .name = names[i], .row = rows, .rows = modules[i].rows, .mean = 1 };
        rows += modules[i].rows;
    }
    size_t length = strlen(matrix.name);
    snprintf(name, sizeof name, "%.*s.lora_magnitude_vector", (int)(length > 7 ? length - 7 : length), matrix.name);
    tm_tensor_id id = tm_graph_parameter(d->graph, n == 1 ? names[0] : name, tm_shape_1(rows), pieces, n);
    tm_graph_at(d->graph, id)->layer = matrix.layer;
    tm_graph_at(d->graph, id)->adapts = of;
    return id;
}

/* Elements that are left out go by the place in whole rows of whole sequences. */
static tm_dropout_attr dropout_of(const declarer *d, tm_tensor_id of)
{
    tm_dropout_attr attr = { .rate = d->adapters->dropout, .seed = d->adapters->seed, .stream = (uint64_t)of };
    adapter_place_dropout(d->model, tm_graph_at(d->graph, of), &attr);
    return attr;
}

static void declare_adapter(declarer *d, tm_tensor_id of, const adapted *modules, int n)
{
    tm_adapter *adapter = tm_arena_take(d->graph->arena, sizeof *adapter);
    *adapter = (tm_adapter){ .a = declare_part(d, of, modules, n, true),
                             .b = declare_part(d, of, modules, n, false),
                             .m = d->adapters->dora ? declare_lengths(d, of, modules, n) : TM_NONE };
    adapter->attr =
        (tm_low_rank_attr){ .scale = tm_adapters_scale(d->adapters), .rank = d->adapters->rank, .parts = n };
    for (int i = 0; i < n; i++) {
        adapter->attr.part[i].column = modules[i].row;
        adapter->attr.part[i].rows = modules[i].rows;
    }
    adapter->dropout = dropout_of(d, of);
    tm_graph_at(d->graph, of)->adapter = adapter;
}

static tm_status adapt_tensor(declarer *d, tm_tensor_id id, tm_error *err)
{
    adapted         modules[TM_MAX_ADAPTED];
    const tm_tensor of = *tm_graph_at(d->graph, id);
    int             n = find_modules(d, &of, modules, TM_MAX_ADAPTED);
    if (n > TM_MAX_ADAPTED)
        return tm_fail(err, TM_UNSUPPORTED, "'%s' has more than %d modules with an adapter each; name the matrix",
                       of.name, TM_MAX_ADAPTED);
    int64_t least = adapter_inputs(&of);
    for (int i = 0; i < n; i++) {
        int64_t rows = adapter_outputs(&of, modules[i].row, modules[i].rows);
        if (rows < least) least = rows;
    }
    if (n > 0 && d->adapters->rank > least)
        return tm_fail(err, TM_INVALID, "lora.rank is %lld, but '%s' has %lld rows or columns; lower it",
                       (long long)d->adapters->rank, modules[0].name, (long long)least);
    if (n > 0) declare_adapter(d, id, modules, n);
    return TM_OK;
}

/* Is the output layer named in full? Patterns are for the blocks. */
static bool names_head(declarer *d)
{
    static const char *const names[] = { "lm_head", "output", "output_layer" };
    bool                     any = false;
    for (int i = 0; i < d->n; i++)
        for (size_t k = 0; k < sizeof names / sizeof names[0]; k++)
            if (strcmp(d->target[i], names[k]) == 0) any = d->used[i] = true;
    return any;
}

static tm_status adapt_head(declarer *d, const tm_model *model, tm_error *err)
{
    bool all = d->all;
    if (model->head == TM_NONE || !names_head(d)) return TM_OK;
    if (model->head == model->embedding)
        return tm_fail(err, TM_UNSUPPORTED,
                       "lora.targets (%s) names the output layer, which is the table of embeddings of this model, too "
                       "(tied): beside one of them an adapter would untie them; leave it out",
                       d->adapters->place);
    if (tm_divided(model->parallel.tensor))
        return tm_fail(err, TM_UNSUPPORTED,
                       "lora.targets (%s) names the output layer, which ranks divide "
                       "(parallelism.tensor_parallel_degree %d): an adapter of it is not built then; leave it out",
                       d->adapters->place, model->parallel.tensor.ranks);
    if (d->adapters->dora)
        return tm_fail(
            err, TM_UNSUPPORTED,
            "lora.targets (%s) names the output layer, and lora.dora is true: DoRA of the output layer is not "
            "built; leave it out, or set lora.dora to false",
            d->adapters->place);
    d->all = true; /* its one piece, whatever it is called */
    tm_status st = adapt_tensor(d, model->head, err);
    d->all = all;
    return st;
}

/* What PEFT calls the two matrices that a mixture keeps of all its experts, and we. */
static const char *const experts[][2] = { { "experts.gate_up_proj", ".moe.experts.w13.weight" },
                                          { "experts.down_proj", ".moe.experts.w2.weight" } };

/* "mlp.experts.down_proj": the number of the matrix, or -1. */
static int experts_of(const char *target)
{
    size_t n = strlen(target);
    for (int k = 0; k < 2; k++) {
        size_t length = strlen(experts[k][0]);
        if (n >= length && strcmp(target + n - length, experts[k][0]) == 0 &&
            (n == length || target[n - length - 1] == '.'))
            return k;
    }
    return -1;
}

/* An a and a b for each expert, one behind the other. */
static void declare_experts(declarer *d, tm_tensor_id of)
{
    const tm_tensor matrix = *tm_graph_at(d->graph, of);
    int64_t         rank = d->adapters->rank, outputs = matrix.shape.n[1];
    tm_adapter     *adapter = tm_arena_take(d->graph->arena, sizeof *adapter);
    char            name[192];
    *adapter = (tm_adapter){ .m = TM_NONE };
    adapter->attr = (tm_low_rank_attr){ .scale = tm_adapters_scale(d->adapters), .rank = rank, .parts = 1 };
    adapter->attr.part[0].rows = outputs;
    for (int is_b = 0; is_b < 2; is_b++) {
        size_t length = strlen(matrix.name) - 7;
        snprintf(name, sizeof name, "%.*s.lora_%c.weight", (int)length, matrix.name, is_b ? 'B' : 'A');
        tm_piece piece = { .name = name };
        if (!is_b) set_initial(d, &piece, adapter_inputs(&matrix));
        tm_tensor_id id = adapter_declare_of_experts(d->graph, of, piece, rank, !is_b);
        tm_graph_at(d->graph, id)->layer = matrix.layer;
        tm_graph_at(d->graph, id)->adapts = of;
        *(is_b ? &adapter->b : &adapter->a) = id;
    }
    tm_graph_at(d->graph, of)->adapter = adapter;
}

/* What adapters of experts cannot be. */
static tm_status check_experts(const declarer *d, const tm_tensor *matrix, tm_error *err)
{
    const char *not_built = d->shape->family == TM_FAMILY_GPT_OSS ? "of experts of gpt-oss, whose gates are interleaved"
                            : d->adapters->dora                   ? "of experts with lora.dora"
                            : d->adapters->dropout > 0            ? "of experts with lora.dropout"
                                                                  : NULL;
    tm_shape    whole = matrix->cut ? matrix->cut->whole : matrix->shape;
    int64_t     least = whole.n[1] < whole.n[2] ? whole.n[1] : whole.n[2];
    if (not_built)
        return tm_fail(err, TM_UNSUPPORTED, "lora.targets (%s) names '%s': adapters %s are not built; leave it out",
                       d->adapters->place, matrix->name, not_built);
    if (d->adapters->rank > least)
        return tm_fail(err, TM_INVALID, "lora.rank is %lld, but an expert of '%s' has %lld rows or columns; lower it",
                       (long long)d->adapters->rank, matrix->name, (long long)least);
    return TM_OK;
}

/* Experts are adapted where the matrices of all of them are named; other names of theirs are not passed over in
 * silence. */
static tm_status adapt_experts(declarer *d, tm_tensor_id id, tm_error *err)
{
    const tm_tensor tensor = *tm_graph_at(d->graph, id);
    size_t          n = strlen(tensor.name);
    bool            named = false;
    if (!is_matrix(&tensor, 3) || d->n == 0) return TM_OK;
    for (int i = 0; i < d->n; i++) {
        int         k = experts_of(d->target[i]);
        const char *end = k < 0 ? "" : experts[k][1];
        if (k >= 0 && n > strlen(end) && strcmp(tensor.name + n - strlen(end), end) == 0) named = d->used[i] = true;
    }
    if (named) {
        TM_TRY(check_experts(d, &tensor, err));
        declare_experts(d, id);
        return TM_OK;
    }
    for (int p = 0; p < tensor.n_pieces && p < 8; p++)
        if (is_target_piece(d, tensor.pieces[p].name))
            return tm_fail(err, TM_UNSUPPORTED,
                           "lora.targets (%s) names '%s', which is of one expert: adapters are built of all experts' "
                           "matrices, experts.gate_up_proj and experts.down_proj; give these, or names of other "
                           "modules, or all-linear, which leaves experts out",
                           d->adapters->place, tensor.pieces[p].name);
    return TM_OK;
}

static tm_status freeze(const tm_adapters *adapters, tm_tensor *tensor, tm_error *err)
{
    tensor->trained = false;
    if (adapters->base == TM_DTYPE_COUNT || tensor->as_stored) return TM_OK;
    bool matrix = is_matrix(tensor, 2) || is_matrix(tensor, 3);
    tensor->dtype = tm_dtype_blocked(adapters->base) && !matrix ? TM_BF16 : adapters->base;
    if (!tm_dtype_blocked(tensor->dtype)) return TM_OK;
    tensor->dtype = tm_cut_blocked(tensor, adapters->base);
    if (tensor->dtype != TM_DTYPE_COUNT) return TM_OK;
    return tm_fail(err, TM_UNSUPPORTED,
                   "lora.base_format %s: of '%s' a rank has a part that ends within a block of %d weights (of divided "
                   "experts: within a group of %d); set lora.base_format to bfloat16, or take other degrees",
                   adapters->base == TM_NF4_BLOCKS ? "nf4" : "float8_e4m3", tensor->name, TM_NF4_BLOCK, TM_NF4_GROUP);
}

tm_status tm_adapters_declare(tm_graph *graph, const tm_model *model, const tm_adapters *adapters, tm_error *err)
{
    declarer  d = { .graph = graph, .model = model, .shape = model->shape, .adapters = adapters, .distance = 1 << 20 };
    size_t    n = graph->n_tensors;
    tm_status st = TM_OK;
    if (adapters->rank == 0) return TM_OK;
    st = split_targets(&d, err);
    for (size_t i = 0; i < n && st == TM_OK; i++) {
        if (graph->tensors[i].role != TM_ROLE_PARAMETER) continue;
        st = freeze(adapters, &graph->tensors[i], err);
        if (st == TM_OK) st = adapt_experts(&d, (tm_tensor_id)i, err);
        if (st == TM_OK && is_matrix(&graph->tensors[i], 2)) st = adapt_tensor(&d, (tm_tensor_id)i, err);
    }
    if (st == TM_OK) st = adapt_head(&d, model, err);
    for (int i = 0; i < d.n && st == TM_OK; i++)
        if (!d.used[i])
            st = tm_fail(err, TM_INVALID,
                         "lora.targets (%s): no linear layer is called '%s'; the nearest name is '%s' "
                         "(`trainmark explain` lists all parameters)",
                         adapters->place, d.target[i], d.nearest.data ? d.nearest.data : "none");
    tm_text_fini(&d.nearest);
    return st;
}

tm_adapters_facts tm_adapters_describe(const tm_graph *graph)
{
    tm_adapters_facts facts = { 0 };
    for (size_t i = 0; i < graph->n_tensors; i++) {
        const tm_tensor *tensor = &graph->tensors[i];
        if (tensor->role != TM_ROLE_PARAMETER || tensor->base != TM_NONE) continue;
        int64_t elements = tm_shape_elements(tensor->shape);
        if (tensor->adapter) facts.modules += tensor->adapter->attr.parts;
        if (tensor->trained)
            facts.trained += elements;
        else
            facts.frozen += elements, facts.frozen_bytes += tm_tensor_bytes(tensor->shape, tensor->dtype);
    }
    return facts;
}
