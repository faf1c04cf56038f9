/* SPDX-License-Identifier: Apache-2.0 */
#include "train/adapter/adapters.h"

#include "base/arena.h"
#include "base/random.h"
#include "base/text.h"
#include "graph/cut.h"
#include "train/adapter/names.h"
#include "train/adapter/shards.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- which modules ------------------------------------------------------------------------------------------------ */

typedef struct {
    tm_graph             *graph;
    const tm_model       *model;
    const tm_model_shape *shape;
    const tm_adapters    *adapters;
    adapter_list          targets, excluded;
    bool                  all;         /* linear layers of blocks */
    bool                  any;         /* the regular expression was a name */
    bool                 *used_module; /* of adapters->modules, ranks, alphas */
    bool                 *used_rank, *used_alpha;
} declarer;

/* Of those that a folder names; NULL: it is none. */
static const tm_adapted_module *given_module(declarer *d, const adapter_names *names)
{
    const tm_adapters *a = d->adapters;
    for (size_t i = 0; i < a->n_modules; i++) {
        if (!adapter_same_name(a->modules[i].name, names->theirs.data)) continue;
        d->used_module[i] = true;
        return &a->modules[i];
    }
    return NULL;
}

static bool is_target(declarer *d, const adapter_names *names)
{
    const char *pattern = d->adapters->pattern;
    if (d->adapters->modules) return given_module(d, names) != NULL;
    if (pattern && (tm_pattern_matches(pattern, names->ours.data) || tm_pattern_matches(pattern, names->theirs.data)))
        return d->any = true;
    bool ours = adapter_listed(&d->targets, names->ours.data);
    return adapter_listed(&d->targets, names->theirs.data) || ours;
}

static bool is_excluded(declarer *d, const adapter_names *names)
{
    bool ours = adapter_listed(&d->excluded, names->ours.data);
    return adapter_listed(&d->excluded, names->theirs.data) || ours;
}

/* A piece by our name or theirs. */
static bool is_target_piece(declarer *d, const char *piece)
{
    adapter_names names = adapter_names_of(d->shape, piece);
    bool          any = is_target(d, &names);
    adapter_names_fini(&names);
    return any;
}

/* What a module has of its own, else `otherwise`. */
static double value_of(const tm_pattern_value *all, size_t n, bool *used, const adapter_names *names, double otherwise)
{
    for (size_t i = 0; i < n; i++) {
        if (!tm_pattern_ends(all[i].pattern, names->theirs.data) && !tm_pattern_ends(all[i].pattern, names->ours.data))
            continue;
        used[i] = true;
        return all[i].value;
    }
    return otherwise;
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
    int64_t rank;
    double  scale;
    bool    declared;
} adapted;

static adapted adapted_rows(declarer *d, const adapter_names *names, int64_t row, int64_t rows)
{
    const tm_adapters       *a = d->adapters;
    const tm_adapted_module *given = a->modules ? given_module(d, names) : NULL;
    adapted                  out = { .row = row, .rows = rows };
    double                   alpha = given ? given->alpha : 0;
    out.rank = given ? given->rank : 0;
    if (!given) {
        out.rank = (int64_t)value_of(a->ranks, a->n_ranks, d->used_rank, names, (double)a->rank);
        alpha = value_of(a->alphas, a->n_alphas, d->used_alpha, names, a->alpha);
    }
    out.scale = tm_adapters_scale_of(a, out.rank, alpha);
    snprintf(out.name, sizeof out.name, "%s", names->ours.data);
    return out;
}

/* The adapted modules of a matrix, in the order of its rows; the first `at most` of them. */
static int find_modules(declarer *d, const tm_tensor *of, adapted *out, int most)
{
    int           n = 0;
    adapter_names whole = adapter_names_of(d->shape, of->name);
    if (of->n_pieces > 1 && is_target(d, &whole) && !is_excluded(d, &whole))
        out[n++] = adapted_rows(d, &whole, 0, of->shape.n[0]);
    adapter_names_fini(&whole);
    if (n) return n;
    for (int p = 0; p < of->n_pieces; p++) {
        const tm_piece *piece = &of->pieces[p];
        adapter_names   names = adapter_names_of(d->shape, piece->name);
        bool            wanted = (is_target(d, &names) || d->all) && !is_excluded(d, &names);
        bool            joined = wanted && n > 0 && out[n - 1].row + out[n - 1].rows == piece->row &&
                      adapter_same_module(d->shape, of->pieces[p - 1].name, piece->name);
        if (joined)
            out[n - 1].rows += piece->rows;
        else if (wanted && n < most)
            out[n++] = adapted_rows(d, &names, piece->row, piece->rows);
        else if (wanted)
            n = most + 1, p = of->n_pieces;
        adapter_names_fini(&names);
    }
    return n;
}

/* The first values of rows of a; b begins with zeros. */
static void set_initial(const declarer *d, tm_piece *piece, int64_t width, int64_t rank)
{
    piece->std = 1 / sqrt((double)width) / sqrt(3);
    if (d->adapters->gaussian) piece->std = 1 / (double)rank;
    if (d->adapters->xavier) piece->std = sqrt(2 / (double)(width + rank));
    piece->uniform = !d->adapters->gaussian && !d->adapters->xavier;
}

/* "layers.0.attention.wqkv.lora_A.weight" of the first adapter of a matrix, "...wqkv.2.lora_A.weight" of the second */
static void name_part(const tm_tensor *matrix, int number, const char *what, char *name, size_t size)
{
    size_t length = strlen(matrix->name);
    char   which[16] = "";
    if (number > 1) snprintf(which, sizeof which, ".%d", number);
    snprintf(name, size, "%.*s%s.%s", (int)(length > 7 ? length - 7 : length), matrix->name, which, what);
}

/* Rows of a for each module one behind the other, and rows of b. */
static tm_tensor_id declare_part(declarer *d, tm_tensor_id of, const adapted *modules, int n, int number, bool is_a)
{
    const tm_tensor matrix = *tm_graph_at(d->graph, of);
    int64_t         rank = modules[0].rank, rows = 0, whole = 0;
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
        set_initial(d, &like, adapter_inputs(&matrix), rank);
        whole += rank;
        pieces[made++] = like;
    }
    name_part(&matrix, number, is_a ? "lora_A.weight" : "lora_B.weight", name, sizeof name);
    tm_tensor_id id = tm_graph_parameter(d->graph, n == 1 ? names[0] : name,
                                         tm_shape_2(rows, is_a ? matrix.shape.n[1] : rank), pieces, made);
    tm_graph_at(d->graph, id)->layer = matrix.layer;
    tm_graph_at(d->graph, id)->adapts = of;
    adapter_make_part(d->graph, id, of, whole, is_a);
    return id;
}

/* The length of each adapted row; 1 until it is measured. */
static tm_tensor_id declare_lengths(declarer *d, tm_tensor_id of, const adapted *modules, int n, int number)
{
    const tm_tensor matrix = *tm_graph_at(d->graph, of);
    tm_piece       *pieces = tm_arena_take(d->graph->arena, (size_t)(matrix.n_pieces + n) * sizeof *pieces);
    char            names[TM_MAX_ADAPTED][192], name[192];
    int64_t         rows = 0, whole = 0;
    int             made = 0;
    for (int i = 0; i < n; i++) {
        snprintf(names[i], sizeof names[i], "%.160s.lora_magnitude_vector", modules[i].name);
        tm_piece like = { .name = names[i], .row = rows, .begin = rows, .mean = 1 };
        made += adapter_pieces_of_b(&matrix, modules[i].row, modules[i].rows, like, &whole, pieces + made);
        rows += modules[i].rows;
    }
    name_part(&matrix, number, "lora_magnitude_vector", name, sizeof name);
    tm_tensor_id id = tm_graph_parameter(d->graph, n == 1 ? names[0] : name, tm_shape_1(rows), pieces, made);
    tm_graph_at(d->graph, id)->layer = matrix.layer;
    tm_graph_at(d->graph, id)->adapts = of;
    adapter_make_part(d->graph, id, of, whole, false);
    return id;
}

/* Elements that are left out go by the name of the matrix and the place in whole rows of whole sequences. */
static tm_dropout_attr dropout_of(const declarer *d, tm_tensor_id of)
{
    const tm_tensor *matrix = tm_graph_at(d->graph, of);
    tm_dropout_attr  attr = { .rate = d->adapters->dropout,
                              .seed = d->adapters->seed,
                              .stream = tm_random_stream(matrix->name) };
    adapter_place_dropout(d->model, matrix, &attr);
    return attr;
}

static tm_adapter *declare_adapter(declarer *d, tm_tensor_id of, const adapted *modules, int n, int number)
{
    tm_adapter       *adapter = tm_arena_take(d->graph->arena, sizeof *adapter);
    const tm_adapter *rest = adapter_of_rest(d->graph, of);
    *adapter = (tm_adapter){ .a = declare_part(d, of, modules, n, number, true), .b = TM_NONE, .m = TM_NONE };
    adapter->b = rest ? rest->b : declare_part(d, of, modules, n, number, false);
    if (d->adapters->dora) adapter->m = rest ? rest->m : declare_lengths(d, of, modules, n, number);
    adapter->attr = (tm_low_rank_attr){ .scale = modules[0].scale, .rank = modules[0].rank, .parts = n };
    for (int i = 0; i < n; i++) {
        adapter->attr.part[i].column = modules[i].row;
        adapter->attr.part[i].rows = modules[i].rows;
    }
    adapter->dropout = dropout_of(d, of);
    return adapter;
}

static bool same_value(double a, double b)
{
    return !(a < b) && !(a > b);
}

/* One adapter of all modules that have the same rank and scale, then the next. */
static void declare_adapters(declarer *d, tm_tensor_id of, adapted *modules, int n)
{
    tm_adapter *last = NULL;
    for (int first = 0, number = 1; first < n; first++) {
        adapted same[TM_MAX_ADAPTED];
        int     k = 0;
        if (modules[first].declared) continue;
        for (int i = first; i < n; i++) {
            if (modules[i].rank != modules[first].rank || !same_value(modules[i].scale, modules[first].scale)) continue;
            modules[i].declared = true;
            same[k++] = modules[i];
        }
        tm_adapter *adapter = declare_adapter(d, of, same, k, number++);
        if (last) last->next = adapter;
        if (!last) tm_graph_at(d->graph, of)->adapter = adapter;
        last = adapter;
    }
}

static tm_status adapt_tensor(declarer *d, tm_tensor_id id, tm_error *err)
{
    adapted         modules[TM_MAX_ADAPTED];
    const tm_tensor of = *tm_graph_at(d->graph, id);
    int             n = find_modules(d, &of, modules, TM_MAX_ADAPTED);
    if (n > TM_MAX_ADAPTED)
        return tm_fail(err, TM_UNSUPPORTED, "'%s' has more than %d modules with an adapter each; name the matrix",
                       of.name, TM_MAX_ADAPTED);
    declare_adapters(d, id, modules, n);
    return TM_OK;
}

/* Is the output layer named in full? Patterns are for the blocks. */
static bool names_head(declarer *d)
{
    static const char *const names[] = { "lm_head", "output", "output_layer" };
    adapter_list            *list = &d->targets;
    bool                     any = false;
    if (d->adapters->modules) return is_target_piece(d, tm_graph_at(d->graph, d->model->head)->pieces[0].name);
    for (int i = 0; i < list->n; i++)
        for (size_t k = 0; k < sizeof names / sizeof names[0]; k++)
            if (strcmp(list->name[i], names[k]) == 0) any = list->used[i] = true;
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
    int64_t         rank = d->adapters->rank;
    tm_adapter     *adapter = tm_arena_take(d->graph->arena, sizeof *adapter);
    char            name[192];
    *adapter = (tm_adapter){ .m = TM_NONE };
    adapter->attr = (tm_low_rank_attr){ .scale = tm_adapters_scale(d->adapters), .rank = rank, .parts = 1 };
    for (int is_b = 0; is_b < 2; is_b++) {
        size_t length = strlen(matrix.name) - 7;
        snprintf(name, sizeof name, "%.*s.lora_%c.weight", (int)length, matrix.name, is_b ? 'B' : 'A');
        tm_piece piece = { .name = name };
        if (!is_b) set_initial(d, &piece, adapter_inputs(&matrix), rank);
        tm_tensor_id id = adapter_declare_of_experts(d->graph, of, piece, rank, !is_b, d->adapters->shared);
        tm_graph_at(d->graph, id)->layer = matrix.layer;
        tm_graph_at(d->graph, id)->adapts = of;
        *(is_b ? &adapter->b : &adapter->a) = id;
    }
    tm_graph_at(d->graph, of)->adapter = adapter;
}

/* Does a rank have some rows or columns of an expert's matrix? */
static bool cut_within(const tm_tensor *matrix)
{
    return matrix->cut &&
           (matrix->cut->whole.n[1] != matrix->shape.n[1] || matrix->cut->whole.n[2] != matrix->shape.n[2]);
}

/* What adapters of experts cannot be. */
static tm_status check_experts(const declarer *d, const tm_tensor *matrix, tm_error *err)
{
    const char *not_built = d->shape->family == TM_FAMILY_GPT_OSS ? "of experts of gpt-oss, whose gates are interleaved"
                            : d->adapters->dora                   ? "of experts with lora.dora"
                            : d->adapters->dropout > 0            ? "of experts with lora.dropout"
                            : d->adapters->n_layers > 0           ? "of experts with lora.layers"
                            : d->adapters->shared && cut_within(matrix)
                                ? "that experts share (lora.experts) beside ranks that divide their matrices"
                            : tm_adapters_vary(d->adapters) ? "of experts with lora.rank_pattern or lora.alpha_pattern"
                                                            : NULL;
    if (not_built)
        return tm_fail(err, TM_UNSUPPORTED, "lora.targets (%s) names '%s': adapters %s are not supported; leave it out",
                       d->adapters->place, matrix->name, not_built);
    return TM_OK;
}

/* Experts are adapted where the matrices of all of them are named; other names of theirs are not passed over in
 * silence. */
static tm_status adapt_experts(declarer *d, tm_tensor_id id, tm_error *err)
{
    const tm_tensor tensor = *tm_graph_at(d->graph, id);
    size_t          n = strlen(tensor.name);
    bool            named = false;
    adapter_list   *list = &d->targets;
    if (!is_matrix(&tensor, 3) || (list->n == 0 && !d->adapters->pattern)) return TM_OK;
    for (int i = 0; i < list->n; i++) {
        int         k = experts_of(list->name[i]);
        const char *end = k < 0 ? "" : experts[k][1];
        if (k >= 0 && n > strlen(end) && strcmp(tensor.name + n - strlen(end), end) == 0) named = list->used[i] = true;
    }
    bool by_name = d->adapters->by_matrix || d->adapters->no_experts;
    if (by_name && !d->adapters->modules && is_target_piece(d, tensor.name)) named |= d->adapters->by_matrix;
    if (named) {
        TM_TRY(check_experts(d, &tensor, err));
        declare_experts(d, id);
        return TM_OK;
    }
    for (int p = 0; p < tensor.n_pieces && p < 8 && !d->adapters->by_matrix && !d->adapters->no_experts; p++)
        if (is_target_piece(d, tensor.pieces[p].name))
            return tm_fail(err, TM_UNSUPPORTED,
                           "%s (%s) names '%s', which is of one expert: adapters are built of all experts' matrices, "
                           "experts.gate_up_proj and experts.down_proj; give these, or names of other "
                           "modules, or all-linear, which leaves experts out, or lora.experts",
                           d->adapters->pattern ? "lora.target_pattern" : "lora.targets", d->adapters->place,
                           tensor.pieces[p].name);
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

bool tm_adapters_may_adapt(const tm_tensor *tensor)
{
    return is_matrix(tensor, 2);
}

static bool has_adapters(const tm_adapters *adapters, int layer)
{
    bool any = adapters->n_layers == 0;
    for (size_t i = 0; i < adapters->n_layers; i++)
        any = any || (adapters->layers[i][0] <= layer && layer <= adapters->layers[i][1]);
    return any;
}

static tm_status check_layers(const declarer *d, tm_error *err)
{
    const tm_adapters *a = d->adapters;
    int64_t            blocks = tm_model_blocks(d->shape);
    for (size_t i = 0; i < a->n_layers; i++)
        if (a->layers[i][1] >= blocks)
            return tm_fail(err, TM_INVALID, "lora.layers names block %lld, the model has the blocks 0 to %lld",
                           (long long)a->layers[i][1], (long long)blocks - 1);
    return TM_OK;
}

static tm_status check_names(const declarer *d, const adapter_list *list, const char *what, tm_error *err)
{
    for (int i = 0; i < list->n; i++)
        if (!list->used[i])
            return tm_fail(err, TM_INVALID,
                           "%s (%s): no %s is called '%s'; the nearest name is '%s' "
                           "(`trainmark explain` lists all parameters)",
                           list->key, d->adapters->place, what, list->name[i],
                           list->nearest.data ? list->nearest.data : "none");
    return TM_OK;
}

/* Without an adapter nothing is trained. */
static tm_status check_any(const declarer *d, tm_error *err)
{
    const tm_adapters *a = d->adapters;
    if (tm_adapters_describe(d->graph).modules > 0) return TM_OK;
    return tm_fail(err, TM_INVALID,
                   "of the modules that %s %.200s (%s) names none is left%s%.200s%s%s, so nothing would be trained; "
                   "name others, or leave out fewer",
                   a->pattern ? "lora.target_pattern" : "lora.targets", a->pattern ? a->pattern : a->targets, a->place,
                   a->exclude ? " by lora.exclude " : "", a->exclude ? a->exclude : "",
                   a->exclude && a->n_layers ? " and" : "", a->n_layers ? " by lora.layers" : "");
}

/* Everything that is named is there. */
static tm_status check_used(const declarer *d, tm_error *err)
{
    const tm_adapters *a = d->adapters;
    for (size_t i = 0; i < a->n_modules; i++)
        if (!d->used_module[i])
            return tm_fail(
                err, TM_FORMAT,
                "'%s' holds an adapter of '%s', and the model has no such linear layer in a block; other layers "
                "have none while they are trained, `trainmark merge` adds them",
                a->place, a->modules[i].name);
    TM_TRY(check_names(d, &d->targets, a->n_layers ? "linear layer of lora.layers" : "linear layer", err));
    TM_TRY(check_names(d, &d->excluded, "module with an adapter", err));
    if (a->pattern && !d->any)
        return tm_fail(err, TM_INVALID,
                       "lora.target_pattern (%s): no linear layer of %s is called as '%s' says; it must be all of a "
                       "name, as model.layers.0.self_attn.q_proj (`trainmark explain` lists all parameters)",
                       a->place, a->n_layers ? "lora.layers" : "a block", a->pattern);
    TM_TRY(check_any(d, err));
    for (size_t i = 0; !a->modules && i < a->n_ranks + a->n_alphas; i++) {
        bool rank = i < a->n_ranks;
        if (rank ? d->used_rank[i] : d->used_alpha[i - a->n_ranks]) continue;
        return tm_fail(err, TM_INVALID,
                       "%s: no module with an adapter has a name that ends with '%s', or all of them fit a pattern in "
                       "front of it; remove it",
                       rank ? "lora.rank_pattern" : "lora.alpha_pattern",
                       rank ? a->ranks[i].pattern : a->alphas[i - a->n_ranks].pattern);
    }
    return TM_OK;
}

static tm_status declare_all(declarer *d, tm_error *err)
{
    const tm_adapters *a = d->adapters;
    tm_graph          *graph = d->graph;
    size_t             n = graph->n_tensors;
    TM_TRY(adapter_list_read(&d->targets, "lora.targets", a->targets, a->place, err));
    TM_TRY(adapter_list_read(&d->excluded, "lora.exclude", a->exclude, a->place, err));
    TM_TRY(check_layers(d, err));
    if (d->excluded.all)
        return tm_fail(err, TM_INVALID, "lora.exclude (%s): all-linear is all modules; give names or patterns of some",
                       a->place);
    d->all = d->targets.all;
    for (size_t i = 0; i < n; i++) {
        if (graph->tensors[i].role != TM_ROLE_PARAMETER) continue;
        TM_TRY(freeze(a, &graph->tensors[i], err));
        TM_TRY(adapt_experts(d, (tm_tensor_id)i, err));
        if (is_matrix(&graph->tensors[i], 2) && has_adapters(a, graph->tensors[i].layer))
            TM_TRY(adapt_tensor(d, (tm_tensor_id)i, err));
    }
    return adapt_head(d, d->model, err);
}

/* Of a graph that has all of the model (`whole` NULL), or of some stages of it. */
static tm_status declare_in(tm_graph *graph, const tm_model *model, const tm_adapters *adapters, const tm_graph *whole,
                            tm_error *err)
{
    size_t   n = adapters->n_modules + adapters->n_ranks + adapters->n_alphas + 1;
    declarer d = { .graph = graph, .model = model, .shape = model->shape, .adapters = adapters };
    d.used_module = tm_alloc(n * sizeof *d.used_module);
    d.used_rank = d.used_module + adapters->n_modules;
    d.used_alpha = d.used_rank + adapters->n_ranks;
    tm_status st = declare_all(&d, err);
    if (st == TM_OK && !whole) st = check_used(&d, err);
    tm_text_fini(&d.targets.nearest);
    tm_text_fini(&d.excluded.nearest);
    free(d.used_module);
    return st;
}

/* Names, and the numbers that go by the order of matrices, are those of the whole model, of which this rank may have
 * some stages, or two parameters where there is one. */
tm_status tm_adapters_declare(tm_graph *graph, const tm_model *model, const tm_adapters *adapters, tm_error *err)
{
    if (adapters->rank == 0) return TM_OK;
    bool parted = tm_model_images(model->shape) && tm_divided(model->parallel.tensor);
    if (model->parallel.chunks == 0 && !parted) return declare_in(graph, model, adapters, NULL, err);
    tm_graph *whole = tm_graph_create(graph->precision);
    tm_model  all;
    tm_model_declare(whole, model->shape, model->seq, NULL, &all);
    tm_status st = declare_in(whole, &all, adapters, NULL, err);
    if (st == TM_OK) st = declare_in(graph, model, adapters, whole, err);
    tm_graph_destroy(whole);
    return st;
}

tm_adapters_facts tm_adapters_describe(const tm_graph *graph)
{
    tm_adapters_facts facts = { 0 };
    for (size_t i = 0; i < graph->n_tensors; i++) {
        const tm_tensor *tensor = &graph->tensors[i];
        if (tensor->role != TM_ROLE_PARAMETER || tensor->base != TM_NONE) continue;
        int64_t elements = tm_shape_elements(tensor->shape);
        for (const tm_adapter *adapter = tensor->adapter; adapter; adapter = adapter->next) {
            int64_t rank = adapter->attr.rank;
            if (tm_graph_at(graph, adapter->b)->adapts == (tm_tensor_id)i) facts.modules += adapter->attr.parts;
            if (facts.least == 0 || rank < facts.least) facts.least = rank;
            if (rank > facts.most) facts.most = rank;
        }
        if (tensor->trained)
            facts.trained += elements;
        else
            facts.frozen += elements, facts.frozen_bytes += tm_tensor_bytes(tensor->shape, tensor->dtype);
    }
    return facts;
}
