/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/passes/quantize.h"

#include "base/random.h"
#include "graph/passes/quantize_split.h"
#include "graph/passes/quantize_tables.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Why a linear is left as it is. */
enum { BY_NAME, BY_LAYER, TOO_SMALL, BY_SIZE, REASONS };

typedef struct {
    tm_graph          *graph;
    const tm_quantize *policy;
    tm_quantized      *made;
    tm_tensor_id      *weight_of; /* (tensors) the parameter of which this is the gradient, or TM_NONE */
    bool               record, accumulate;
    tm_tensor_id       ticks;                            /* that random numbers and the switch go by */
    int                left[TM_QUANTIZE_KINDS][REASONS]; /* linears */
} pass;

/* --- which linears ------------------------------------------------------------------------------------------------ */

/* "layers.0.attention.wq" of "layers.0.attention.wq.weight". */
static const char *linear_name(const tm_graph *graph, const char *weight)
{
    size_t n = strlen(weight), tail = strlen(".weight");
    if (n <= tail || strcmp(weight + n - tail, ".weight") != 0) return weight;
    char *name = tm_arena_text(graph->arena, weight);
    name[n - tail] = '\0';
    return name;
}

static bool has_one_of(const char *name, const char *const *list, int n)
{
    for (int i = 0; i < n; i++)
        if (strstr(name, list[i])) return true;
    return false;
}

/* torchao's auto_filter_small_kn: too small to gain from float8 on its devices. */
static bool is_small(const tm_quantize_recipe *recipe, int64_t inputs, int64_t outputs)
{
    bool lines = recipe->factor[TM_FACTOR_X].scaled == TM_SCALED_LINE;
    if (lines) return outputs <= 2048 || inputs <= 1024 || (outputs <= 4096 && inputs <= 2048);
    return inputs <= 4096 && outputs <= 1024;
}

static bool named(const tm_quantize *policy, tm_quantize_kind kind, const char *name)
{
    if (has_one_of(name, policy->left_out, policy->n_left_out)) return false;
    if (kind == TM_QUANTIZE_LINEARS && policy->n_only > 0) return has_one_of(name, policy->only, policy->n_only);
    if (kind == TM_QUANTIZE_EXPERTS && policy->n_only_experts > 0)
        return has_one_of(name, policy->only_experts, policy->n_only_experts);
    return true;
}

static tm_quantize_kind kind_of(const tm_tensor *weight)
{
    return weight->shape.rank == 3 ? TM_QUANTIZE_EXPERTS : weight->head ? TM_QUANTIZE_HEAD : TM_QUANTIZE_LINEARS;
}

/* Could be quantized, if its recipe and its name say so: no router. */
static bool is_linear(const tm_tensor *weight)
{
    return weight->role == TM_ROLE_PARAMETER && weight->base == TM_NONE && weight->shape.rank >= 2 &&
           !weight->as_stored;
}

static bool is_left_layer(const tm_quantize *policy, int layer)
{
    return layer >= 0 && (layer < policy->first_layer || (policy->end_layer > 0 && layer >= policy->end_layer));
}

/* Does the recipe fit the sizes? Of experts, all of which are asked for, it must. */
static tm_status check_sizes(const tm_quantize_recipe *recipe, tm_quantize_kind kind, const char *name, int64_t inputs,
                             int64_t outputs, bool *fits, tm_error *err)
{
    *fits = recipe->multiple == 0 || (inputs % recipe->multiple == 0 && outputs % recipe->multiple == 0);
    if (!*fits && kind == TM_QUANTIZE_EXPERTS)
        return tm_fail(
            err, TM_UNSUPPORTED,
            "recipe %s needs inputs and outputs that are multiples of %lld, and '%s' has %lld and %lld; leave "
            "experts out (quantize.experts_recipe) or change the size of the model",
            recipe->name, (long long)recipe->multiple, name, (long long)inputs, (long long)outputs);
    return TM_OK;
}

/* Is the linear with this weight quantized? left: counts the linears in it that are not. */
static tm_status decide(const pass *p, tm_tensor_id id, bool *yes, int left[REASONS], tm_error *err)
{
    const tm_tensor          *weight = tm_graph_at(p->graph, id);
    const tm_quantize        *policy = p->policy;
    tm_quantize_kind          kind = kind_of(weight);
    const tm_quantize_recipe *recipe = tm_quantize_recipe_of(policy, kind, false);
    int                       first, here, taken = 0, n;
    (void)quantize_experts(weight, &first, &here);
    n = quantize_parts(weight) * here;
    *yes = false;
    if (!is_linear(weight) || !recipe) return TM_OK;
    if (is_left_layer(policy, weight->layer)) {
        left[BY_LAYER] += n;
        return TM_OK;
    }
    for (int i = 0; i < n; i++) {
        const tm_piece *piece = quantize_piece(weight, i);
        const char     *name = linear_name(p->graph, piece ? piece->name : weight->name);
        int64_t         outputs = quantize_outputs(weight, i), inputs = quantize_inputs(weight);
        bool            fits, small = policy->skip_small && is_small(recipe, inputs, outputs);
        int why = !named(policy, kind, name) ? BY_NAME : small && kind != TM_QUANTIZE_EXPERTS ? TOO_SMALL : BY_SIZE;
        if (why == BY_SIZE) {
            TM_TRY(check_sizes(recipe, kind, name, inputs, outputs, &fits, err));
            if (fits) {
                taken++;
                continue;
            }
        }
        left[why]++;
    }
    if (taken > 0 && taken < n)
        return tm_fail(
            err, TM_UNSUPPORTED,
            "'%s' is one product of %d linear layers, and only %d of them are to be quantized; name all of them in "
            "the filter, or none",
            weight->name, n, taken);
    if (quantize_parts(weight) > TM_QUANTIZE_PARTS)
        return tm_fail(err, TM_UNSUPPORTED, "'%s' is one product of %d linear layers; at most %d can be quantized",
                       weight->name, quantize_parts(weight), TM_QUANTIZE_PARTS);
    *yes = taken > 0;
    return TM_OK;
}

/* What multiplies: its factors, the weight that they belong to, and where the rows of each expert begin. */
typedef struct {
    tm_factor    factor[2];
    tm_tensor_id weight, offsets; /* offsets TM_NONE: no experts */
} product;

/* false: no product of a linear. */
static bool product_of(const pass *p, const tm_node *node, product *out)
{
    *out = (product){ { TM_FACTOR_X, TM_FACTOR_W }, node->in[1], TM_NONE };
    switch (node->op) {
    case TM_OP_grouped_linear:
    case TM_OP_grouped_linear_dgrad:
    case TM_OP_grouped_linear_wgrad:
        out->offsets = node->in[2];
        break;
    default:
        break;
    }
    switch (node->op) {
    case TM_OP_linear:
    case TM_OP_grouped_linear:
        return true;
    case TM_OP_linear_dgrad:
    case TM_OP_grouped_linear_dgrad:
        out->factor[0] = TM_FACTOR_DY, out->factor[1] = TM_FACTOR_W_DX;
        return true;
    case TM_OP_linear_wgrad:
    case TM_OP_grouped_linear_wgrad:
        out->factor[0] = TM_FACTOR_DY_DW, out->factor[1] = TM_FACTOR_X_DW;
        out->weight = p->weight_of[node->out[0]];
        return out->weight != TM_NONE;
    default:
        return false;
    }
}

/* --- one factor --------------------------------------------------------------------------------------------------- */

/* Recipe, lines and parts; `rows` of the table are given later. */
static tm_quantize_attr describe(const pass *p, tm_tensor_id weight_id, tm_factor factor, tm_shape shape)
{
    const tm_tensor   *weight = tm_graph_at(p->graph, weight_id);
    const tm_quantize *policy = p->policy;
    tm_quantize_kind   kind = kind_of(weight);
    tm_quantize_attr   attr;
    memset(&attr, 0, sizeof attr);
    for (int r = 0; r < 2; r++) attr.recipe[r] = tm_quantize_recipe_of(policy, kind, r > 0)->factor[factor];
    attr.switch_step = policy->switch_step;
    attr.down = factor == TM_FACTOR_W_DX || factor == TM_FACTOR_DY_DW || factor == TM_FACTOR_X_DW;
    attr.cut_columns = factor == TM_FACTOR_DY || factor == TM_FACTOR_DY_DW;
    quantize_describe_parts(policy, weight, factor, shape, &attr);
    return attr;
}

static bool does_something(const tm_quantize_attr *attr)
{
    return attr->recipe[0].scaled != TM_SCALED_NOT || attr->recipe[1].scaled != TM_SCALED_NOT;
}

/* Lines along the rows of experts may have any length. */
static tm_status check_fit(const pass *p, tm_tensor_id weight, tm_factor factor, const tm_quantize_attr *attr,
                           tm_shape shape, tm_error *err)
{
    const tm_tensor *of = tm_graph_at(p->graph, weight);
    tm_quantize_kind kind = kind_of(of);
    if (kind == TM_QUANTIZE_EXPERTS && (factor == TM_FACTOR_DY_DW || factor == TM_FACTOR_X_DW)) return TM_OK;
    for (int r = 0; r < (attr->switch_step < 0 ? 1 : 2); r++)
        TM_TRY(quantize_check_parts(p->policy, of, factor, shape, attr, r,
                                    tm_quantize_recipe_of(p->policy, kind, r > 0)->name, err));
    return TM_OK;
}

/* The first row of a factor in the tables, or -1. */
static int32_t find_row(const tm_quantized *made, tm_tensor_id weight, tm_factor factor)
{
    return (size_t)weight < made->n_first ? made->first[weight][factor] : -1;
}

static void add_row(tm_quantized *made, tm_quantized_row row)
{
    while (made->n_first <= (size_t)row.weight) {
        made->first = tm_grow(made->first, &made->first_capacity, made->n_first, sizeof *made->first);
        for (int f = 0; f < TM_FACTORS; f++) made->first[made->n_first][f] = -1;
        made->n_first++;
    }
    if (find_row(made, row.weight, row.factor) < 0) made->first[row.weight][row.factor] = (int32_t)made->n_rows;
    made->rows = tm_grow(made->rows, &made->rows_capacity, made->n_rows, sizeof *made->rows);
    made->rows[made->n_rows++] = row;
}

/* "layers.0.moe.experts.3.w13" of the weight of all experts "layers.0.moe.experts.w13.weight". */
static const char *expert_name(const tm_graph *graph, const tm_tensor *weight, int expert)
{
    const char *name = linear_name(graph, weight->name), *tail = strrchr(name, '.');
    TM_ASSERT(tail);
    return tm_arena_format(graph->arena, "%.*s.%d%s", (int)(tail - name), name, expert, tail);
}

/* The same layer of another expert: "layers.0.moe.experts.3.w1" of that of expert `own`. */
static const char *same_of(const tm_graph *graph, const char *name, int own, int expert)
{
    const char *word = tm_arena_format(graph->arena, ".%d.", own), *at = NULL;
    for (const char *next = strstr(name, word); next; next = strstr(next + 1, word)) at = next;
    TM_ASSERT(at);
    return tm_arena_format(graph->arena, "%.*s.%d.%s", (int)(at - name), name, expert, at + strlen(word));
}

/* Rows of one factor: of each expert, whichever rank has it, of each of `parts`. */
static void add_rows(const pass *p, tm_tensor_id weight_id, tm_factor factor, int parts)
{
    tm_quantized    *made = p->made;
    const tm_tensor *weight = tm_graph_at(p->graph, weight_id);
    int              first, here, experts = quantize_experts(weight, &first, &here);
    for (int i = 0; i < experts * parts; i++) {
        bool            whole = parts < quantize_parts(weight); /* a factor that its parts share */
        int             expert = i / parts, own = expert < first || expert >= first + here ? first : expert;
        const tm_piece *piece = quantize_piece(weight, (own - first) * parts + i % parts);
        const char     *name = linear_name(p->graph, whole || !piece ? weight->name : piece->name);
        if (whole && experts > 1)
            name = expert_name(p->graph, weight, expert);
        else if (own != expert)
            name = same_of(p->graph, name, own, expert);
        add_row(made, (tm_quantized_row){ weight_id, name, factor, kind_of(weight), own != expert });
    }
}

/* Is the word in the name of a linear of this kind? */
static bool names_linear(const pass *p, tm_quantize_kind kind, const char *word)
{
    const tm_segment *segment = p->graph->segment;
    for (size_t x = 0; x < segment->n_nodes; x++) {
        product of;
        if (!product_of(p, &segment->nodes[x], &of)) continue;
        const tm_tensor *weight = tm_graph_at(p->graph, of.weight);
        if (!is_linear(weight) || kind_of(weight) != kind) continue;
        bool found = weight->n_pieces == 0 && strstr(linear_name(p->graph, weight->name), word);
        for (int i = 0; i < weight->n_pieces; i++)
            found |= strstr(linear_name(p->graph, weight->pieces[i].name), word) != NULL;
        if (found) return true;
    }
    return false;
}

/* Whoever names experts wants them quantized: not a run without. */
static tm_status check_words(const pass *p, tm_error *err)
{
    const tm_quantize *policy = p->policy;
    if (policy->experts.name && !names_linear(p, TM_QUANTIZE_EXPERTS, ""))
        return tm_fail(err, TM_UNSUPPORTED, "recipe %s is for experts, and the model has none; leave it out",
                       policy->experts.name);
    if (policy->head.name && !names_linear(p, TM_QUANTIZE_HEAD, ""))
        return tm_fail(err, TM_UNSUPPORTED, "recipe %s is for the output head, and the model has none; leave it out",
                       policy->head.name);
    for (int i = 0; i < policy->n_only; i++)
        if (!names_linear(p, TM_QUANTIZE_LINEARS, policy->only[i]))
            return tm_fail(
                err, TM_UNSUPPORTED,
                "'%s' in quantize.fqns is in the name of no linear of a block; quantize.experts_recipe is for experts, "
                "quantize.output_recipe for the output head, and routers are not quantized; leave it out",
                policy->only[i]);
    for (int i = 0; i < policy->n_only_experts; i++)
        if (!names_linear(p, TM_QUANTIZE_EXPERTS, policy->only_experts[i]))
            return tm_fail(err, TM_UNSUPPORTED,
                           "'%s' in the fqns of quantize.grouped_mm is in the name of no expert; give 'experts' for "
                           "all",
                           policy->only_experts[i]);
    return TM_OK;
}

/* A run that bears a recipe's name quantizes by it, or is refused. */
static tm_status check_kind(const pass *p, tm_quantize_kind kind, tm_error *err)
{
    static const char *const  keys[] = { "quantize.recipe", "quantize.experts_recipe", "quantize.output_recipe" };
    static const char *const  whose[] = { "linear layer of a block", "expert", "output head" };
    static const char *const  why[] = { "by their names (quantize.filter_fqns, quantize.fqns)",
                                        "by their layers (first_last_layers_bf16)",
                                        "as too small (auto_filter_small_kn)",
                                        "with inputs or outputs that are no multiples of" };
    const tm_quantize_recipe *recipe = tm_quantize_recipe_of(p->policy, kind, false);
    tm_text                   text = { 0 };
    for (size_t i = 0; i < p->made->n_rows; i++)
        if (p->made->rows[i].kind == kind) return TM_OK;
    for (int i = 0; i < REASONS; i++)
        if (p->left[kind][i] > 0) tm_text_printf(&text, "%s%d %s", text.data ? ", " : "", p->left[kind][i], why[i]);
    if (p->left[kind][BY_SIZE] > 0) tm_text_printf(&text, " %lld", (long long)recipe->multiple);
    tm_status st = tm_fail(err, TM_UNSUPPORTED,
                           "recipe %s would quantize no %s of this model (%s%s); leave the recipe out (%s), or change "
                           "what it leaves",
                           recipe->name, whose[kind], text.data ? "it leaves " : "there is none",
                           text.data ? text.data : "", keys[kind]);
    tm_text_fini(&text);
    return st;
}

static tm_status check_rows(const pass *p, tm_error *err)
{
    for (int k = 0; k < TM_QUANTIZE_KINDS; k++)
        if (tm_quantize_recipe_of(p->policy, (tm_quantize_kind)k, false))
            TM_TRY(check_kind(p, (tm_quantize_kind)k, err));
    return TM_OK;
}

/* Rows of both factors of a product, unless they are there; the fit of each. */
static tm_status list_product(const pass *p, const tm_node *node, const product *of, tm_error *err)
{
    for (int i = 0; i < 2; i++) {
        tm_shape         shape = tm_graph_at(p->graph, node->in[i])->shape;
        tm_quantize_attr attr = describe(p, of->weight, of->factor[i], shape);
        if (!does_something(&attr)) continue;
        TM_TRY(check_fit(p, of->weight, of->factor[i], &attr, shape, err));
        if (find_row(p->made, of->weight, of->factor[i]) >= 0) continue;
        TM_ASSERT(p->made->record == TM_NONE && !p->made->all); /* training segments come first */
        add_rows(p, of->weight, of->factor[i], attr.n_parts);
    }
    return TM_OK;
}

/* Rows of all factors of this segment, in the order of their first use. */
static tm_status list_rows(pass *p, tm_error *err)
{
    const tm_segment *segment = p->graph->segment;
    bool              first = p->made->record == TM_NONE && !p->made->all;
    if (first) TM_TRY(check_words(p, err));
    for (size_t x = 0; x < segment->n_nodes; x++) {
        const tm_node *node = &segment->nodes[x];
        product        of;
        bool           yes;
        int            uncounted[REASONS] = { 0 };
        if (!product_of(p, node, &of)) continue;
        bool             counted = of.factor[0] == TM_FACTOR_X && !node->recomputed && first;
        tm_quantize_kind kind = kind_of(tm_graph_at(p->graph, of.weight));
        TM_TRY(decide(p, of.weight, &yes, counted ? p->left[kind] : uncounted, err));
        if (counted) *(yes ? &p->made->n_linears : &p->made->n_left) += 1;
        if (yes) TM_TRY(list_product(p, node, &of, err));
    }
    if (first) TM_TRY(check_rows(p, err));
    if (first) quantize_make_tables(p->graph, p->policy, p->made);
    return TM_OK;
}

/* --- rewriting ---------------------------------------------------------------------------------------------------- */

/* Do the codes times their scales fit into bfloat16? Powers of two change no digit of a code. */
static bool fits_bf16(const tm_quantize_attr *attr)
{
    for (int r = 0; r < (attr->switch_step < 0 ? 1 : 2); r++) {
        const tm_quantizer *z = &attr->recipe[r];
        if (z->scaled != TM_SCALED_NOT && (z->rule == TM_RULE_RATIO || z->rule == TM_RULE_TWO_LEVEL)) return false;
    }
    return true;
}

static tm_dtype format_of(const tm_graph *graph, const tm_quantize_attr *attr)
{
    tm_dtype compute = graph->precision->compute;
    return compute == TM_BF16 && !fits_bf16(attr) ? TM_F32 : compute;
}

static tm_tensor_id quantized(const pass *p, tm_tensor_id factor_id, const product *node, int i)
{
    tm_tensor_id     weight = node->weight;
    tm_factor        factor = node->factor[i];
    tm_graph        *graph = p->graph;
    tm_quantized    *made = p->made;
    tm_tensor        of = *tm_graph_at(graph, factor_id);
    tm_quantize_attr attr = describe(p, weight, factor, of.shape);
    if (!does_something(&attr)) return factor_id;
    char name[240];
    attr.row = find_row(made, weight, factor);
    TM_ASSERT(attr.row >= 0);
    int first, here;
    (void)quantize_experts(tm_graph_at(graph, weight), &first, &here);
    attr.row += first * attr.n_parts;
    snprintf(name, sizeof name, "%.200s.%s", made->rows[attr.row].name, tm_factor_name(factor));
    const char *largest = tm_arena_text(graph->arena, name);
    attr.seed = tm_random_u64(p->policy->seed, tm_random_stream(name), 0);
    snprintf(name, sizeof name, "%.200s.quantized", of.name);
    tm_tensor_id record = made->found == TM_NONE ? made->record : made->found;
    bool         adds = p->accumulate || made->all || made->found != TM_NONE;
    tm_role      role = quantize_of_weight(factor) ? TM_ROLE_WEIGHT_COPY : TM_ROLE_ACTIVATION;
    tm_tensor_id out[TM_MAX_OUT] = { tm_graph_tensor_as(graph, name, role, of.shape, format_of(graph, &attr)),
                                     p->record ? record : TM_NONE, TM_NONE };
    tm_tensor_id in[TM_MAX_IN] = { factor_id, p->ticks, made->scale,
                                   quantize_of_weight(factor) ? TM_NONE : node->offsets, TM_NONE };
    in[TM_QUANTIZE_LARGEST] =
        quantize_emit_largest(graph, p->policy, tm_graph_at(graph, weight), factor, &attr, in, largest);
    tm_graph_add(graph, TM_OP_quantize, &attr, sizeof attr, in, out, adds ? 1u << 1 : 0);
    return out[0];
}

static void append(tm_segment *segment, const tm_node *node)
{
    segment->nodes = tm_grow(segment->nodes, &segment->capacity, segment->n_nodes, sizeof *segment->nodes);
    segment->nodes[segment->n_nodes++] = *node;
}

/* The counters of this micro-batch: what is kept for its backward pass, which others go before. */
static tm_tensor_id count_apart(tm_graph *graph, const tm_quantized *made, const tm_quantize *policy)
{
    tm_tick_attr attr = { .passes = policy->passes_before };
    graph->module = "quantize";
    graph->layer = -1;
    tm_tensor_id own =
        tm_graph_tensor_as(graph, "quantize.pass", TM_ROLE_STATISTIC, tm_shape_1(TM_QUANTIZE_TICKS), TM_F64);
    tm_graph_add(graph, TM_OP_tick, &attr, sizeof attr, (tm_tensor_id[TM_MAX_IN]){ made->ticks, made->number },
                 (tm_tensor_id[TM_MAX_OUT]){ own }, 0);
    return own;
}

static void rewrite(pass *p)
{
    tm_graph   *graph = p->graph;
    tm_segment *segment = graph->segment, source = *segment;
    tm_phase    phase = graph->phase;
    int         layer = graph->layer;
    const char *module = graph->module;
    segment->nodes = NULL;
    segment->n_nodes = segment->capacity = 0;
    graph->phase = TM_PHASE_FORWARD;
    if (p->record && p->made->number != TM_NONE && p->ticks != TM_NONE)
        p->ticks = count_apart(graph, p->made, p->policy);
    else if (p->record)
        quantize_tick(graph, p->made, (tm_tick_attr){ .passes = 1 + (p->accumulate ? 0 : p->policy->passes_before) });
    for (size_t x = 0; x < source.n_nodes; x++) {
        tm_node node = source.nodes[x];
        product of;
        if (product_of(p, &node, &of)) {
            graph->phase = node.phase, graph->layer = node.layer, graph->module = node.module;
            bool known =
                find_row(p->made, of.weight, of.factor[0]) >= 0 || find_row(p->made, of.weight, of.factor[1]) >= 0;
            for (int i = 0; known && i < 2; i++) node.in[i] = quantized(p, node.in[i], &of, i);
        }
        append(segment, &node);
    }
    free(source.nodes);
    graph->phase = phase, graph->layer = layer, graph->module = module;
}

tm_status tm_quantize_pass(tm_graph *graph, const tm_quantize *policy, tm_quantized *made, bool training,
                           bool accumulate, tm_error *err)
{
    if (!policy->on) return TM_OK;
    pass   p = { .graph = graph, .policy = policy, .made = made, .record = training, .accumulate = accumulate };
    size_t n = graph->n_tensors;
    p.weight_of = tm_alloc(n * sizeof *p.weight_of);
    for (size_t i = 0; i < n; i++) p.weight_of[i] = TM_NONE;
    for (size_t i = 0; i < n; i++)
        if (graph->tensors[i].gradient != TM_NONE) p.weight_of[graph->tensors[i].gradient] = (tm_tensor_id)i;
    tm_status st = list_rows(&p, err);
    p.ticks = made->ticks;
    if (st == TM_OK && made->record != TM_NONE) rewrite(&p);
    free(p.weight_of);
    return st;
}

/* The parameter of that name and kind: a table that is looked up is no linear. */
static tm_tensor_id find_weight(const tm_graph *graph, const tm_tensor *wanted)
{
    for (size_t i = 0; i < graph->n_tensors; i++) {
        const tm_tensor *tensor = &graph->tensors[i];
        if (is_linear(tensor) && kind_of(tensor) == kind_of(wanted) && strcmp(tensor->name, wanted->name) == 0)
            return (tm_tensor_id)i;
    }
    return TM_NONE;
}

void tm_quantize_take(tm_graph *graph, const tm_quantize *policy, const tm_graph *whole, const tm_quantized *of,
                      tm_quantized *made)
{
    tm_tensor_id last = TM_NONE, here = TM_NONE; /* rows of a weight stand together */
    made->n_all = of->n_rows;
    made->all = tm_arena_take(graph->arena, (of->n_rows + 1) * sizeof *made->all);
    made->places = tm_arena_take(graph->arena, (of->n_rows + 1) * sizeof *made->places);
    for (size_t i = 0; i < of->n_rows; i++) {
        tm_quantized_row row = of->rows[i];
        if (row.weight != last) here = find_weight(graph, tm_graph_at(whole, row.weight));
        last = row.weight;
        row.weight = here;
        row.name = tm_arena_text(graph->arena, row.name);
        made->all[i] = row;
        if (here == TM_NONE) continue;
        made->places[made->n_rows] = i;
        add_row(made, row);
    }
    quantize_make_tables(graph, policy, made);
}
