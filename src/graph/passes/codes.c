/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/passes/codes.h"

#include "op/attrs.h"
#include "op/quantize.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of a tensor that `quantize` makes: its node, and how many read it. */
typedef struct {
    const tm_node *node;
    int            readers;
} made;

/* Half open; all of a side where a product has one part. */
typedef struct {
    int64_t begin, end;
} range;

/* A product c = a b^T of codes, as one product for each part that has scales of its own. */
typedef struct {
    const tm_node          *node, *from[2]; /* the product of values, and what quantizes its factors */
    const tm_quantize_attr *attr[2];
    int64_t                 rows, columns, depth;
    int                     kind[2];    /* tm_codes_kind of their scales */
    int                     parts, cut; /* cut: 0: rows of c, 1: its columns, 2: the depth; of one part -1 */
    bool                    grouped;    /* of experts: one product, whatever parts there are */
    int                     split;      /* of experts: the factor whose parts these are; of one part -1 */
} product;

typedef struct {
    tm_graph         *graph;
    const tm_chooser *chooser;
    made             *made; /* (tensors) */
    tm_codes         *out;  /* NULL: nobody counts */
    bool              any;  /* the device has products of codes, or says why not */
} pass;

/* --- what is counted ------------------------------------------------------------------------------------------------
 */

static void count_reason(const pass *p, tm_reasons *of, const char *why, size_t n)
{
    for (int i = 0; i < of->n; i++)
        if (strncmp(of->of[i].why, why, n) == 0 && of->of[i].why[n] == '\0') {
            of->of[i].products++;
            return;
        }
    if (of->n == TM_MAX_REASONS) return;
    of->of[of->n].why = tm_arena_format(p->graph->arena, "%.*s", (int)n, why);
    of->of[of->n++].products = 1;
}

static void count_emulated(const pass *p, const char *why, size_t n)
{
    if (!p->out || !p->any) return;
    p->out->emulated++;
    count_reason(p, &p->out->no_codes, why, n);
}

/* Of "scaled_mm/library: why\nscaled_mm/matrix: why\n", from the best kernel on, what the best one says. NULL: nothing.
 */
static const char *first_reason(const tm_text *refusals)
{
    const char *why = refusals->data ? strstr(refusals->data, ": ") : NULL;
    return why ? why + 2 : NULL;
}

/* What the last one says, which takes most, unless it knows nothing of such codes. */
static const char *last_reason(const tm_text *refusals)
{
    static const char lacks[] = "own kernels have no ";
    const char       *line = refusals->data, *end = line ? strchr(line, '\n') : NULL;
    for (; end && end[1] != '\0'; end = strchr(line, '\n')) line = end + 1;
    const char *why = end ? strstr(line, ": ") : NULL;
    return !why || strncmp(why + 2, lacks, sizeof lacks - 1) == 0 ? first_reason(refusals) : why + 2;
}

static void count_taken(const pass *p, bool own, const tm_text *refusals)
{
    const char *why = first_reason(refusals);
    if (!why) why = "no library multiplies codes of experts";
    if (!p->out) return;
    p->out->products++;
    p->out->own += own;
    if (own) count_reason(p, &p->out->no_library, why, strcspn(why, "\n"));
}

/* --- what is asked for ----------------------------------------------------------------------------------------------
 */

/* NULL: no kernel takes it; a reference, which has no launch, is none. */
static const tm_kernel *kernel_of(const pass *p, tm_call *call, tm_text *refusals)
{
    call->threads = p->chooser->threads;
    call->device = p->chooser->context;
    const tm_kernel *kernel = p->chooser->choose(p->chooser->context, call, refusals);
    return kernel && kernel->launch ? kernel : NULL;
}

static tm_call empty_call(const tm_op *op)
{
    tm_call call = { .op = op };
    for (int i = 0; i < TM_MAX_IN; i++) call.in[i].shape.rank = -1;
    for (int k = 0; k < TM_MAX_OUT; k++) call.out[k].shape.rank = -1;
    return call;
}

/* Kinds of scales that go together: of lines and their blocks, of squares. */
static const uint8_t kinds[][2] = { { TM_CODES_PLAIN, TM_CODES_PLAIN },
                                    { TM_CODES_RUNS, TM_CODES_SQUARES },
                                    { TM_CODES_TILES, TM_CODES_TILES },
                                    { TM_CODES_ROWS, TM_CODES_ROWS } };

static bool has_lines(const product *f, int side)
{
    return f->attr[side]->recipe[0].scaled == TM_SCALED_LINE;
}

/* The attributes of a side that gives codes. */
static tm_quantize_attr coded_attr(const product *f, int side)
{
    tm_quantize_attr attr = *f->attr[side];
    attr.codes = (uint8_t)f->kind[side];
    return attr;
}

/* Of one part, or of a whole side. */
static tm_view scales_view(const product *f, int side, int64_t lines, int64_t depth)
{
    int     kind = f->kind[side];
    int64_t plain = has_lines(f, side) ? lines : 1;
    return (tm_view){ .dtype = (tm_dtype)tm_codes_scale_of(kind).dtype,
                      .shape = tm_shape_1(kind == TM_CODES_PLAIN ? plain : tm_codes_scales(kind, lines, depth)) };
}

static tm_dtype format_of(const product *f, int side)
{
    return (tm_dtype)f->attr[side]->recipe[0].format;
}

/* Part `part` of side `cut`; of the others everything. */
static range range_of(const product *f, int cut, int part)
{
    const int64_t           whole[] = { f->rows, f->columns, f->depth };
    const tm_quantize_attr *attr = f->attr[f->cut == 1];
    if (cut != f->cut) return (range){ 0, whole[cut] };
    return (range){ part > 0 ? attr->end[part - 1] : 0, attr->end[part] };
}

static int64_t length_of(range r)
{
    return r.end - r.begin;
}

/* The call of part `part`, without data. */
static tm_call call_of(const pass *p, const product *f, int part, tm_scaled_attr *attr)
{
    const tm_graph *graph = p->graph;
    tm_call         values, call = empty_call(&tm_op_scaled_mm);
    int64_t         rows = length_of(range_of(f, 0, part)), columns = length_of(range_of(f, 1, part));
    int64_t         depth = length_of(range_of(f, 2, part)), lines[] = { rows, columns };
    tm_node_call(graph, f->node, &values);
    call.attr = attr;
    for (int s = 0; s < 2; s++) {
        attr->scales[s] = (uint8_t)f->kind[s];
        call.in[s] = (tm_view){ .dtype = format_of(f, s), .shape = tm_shape_2(lines[s], depth) };
        if (depth != f->depth) call.in[s].ld = f->depth;
        call.in[2 + s] = scales_view(f, s, lines[s], depth);
    }
    if (f->node->op == TM_OP_linear)
        for (int k = 2; k < 4; k++) call.in[k + 2] = values.in[k];
    if (tm_view_present(&call.in[4])) call.in[4].shape = tm_shape_1(columns);
    call.out[0] = values.out[0];
    call.out[0].shape = tm_shape_2(rows, columns);
    if (columns != f->columns) call.out[0].ld = tm_view_ld(&values.out[0]);
    call.accumulate = (f->node->accumulate & 1U) || (f->cut == 2 && part > 0);
    return call;
}

/* The call that makes the codes of a side. */
static tm_call codes_call(const pass *p, const product *f, int side, tm_quantize_attr *attr)
{
    tm_call call;
    tm_node_call(p->graph, f->from[side], &call);
    *attr = coded_attr(f, side);
    call.attr = attr;
    call.out[0] = (tm_view){ .dtype = format_of(f, side),
                             .shape = tm_quantize_codes(attr, call.in[0].shape, tm_quantize_experts(&call)) };
    call.out[TM_QUANTIZE_SCALES] =
        (tm_view){ .dtype = (tm_dtype)tm_codes_scale_of(attr->codes).dtype,
                   .shape = tm_shape_1(tm_quantize_scales(attr, call.in[0].shape, tm_quantize_experts(&call))) };
    return call;
}

/* Of experts. */
static tm_grouped_scaled_attr grouped_attr(const product *f, const tm_call *values)
{
    const tm_grouped_attr *of = values->attr;
    tm_shape               out = values->out[0].shape;
    tm_grouped_scaled_attr attr = { .even = of ? of->even : values->in[0].shape.n[0],
                                    .lines = { has_lines(f, 0), has_lines(f, 1) },
                                    .cut = TM_CUT_COLUMNS,
                                    .n_parts = 1,
                                    .end = { (int32_t)out.n[out.rank - 1] },
                                    .scales = { (uint8_t)f->kind[0], (uint8_t)f->kind[1] } };
    if (f->split < 0) return attr;
    attr.cut = f->cut;
    attr.n_parts = f->attr[f->split]->n_parts;
    memcpy(attr.end, f->attr[f->split]->end, sizeof attr.end);
    return attr;
}

static tm_call grouped_call(const pass *p, const product *f, tm_grouped_scaled_attr *attr)
{
    bool    weights = f->node->op == TM_OP_grouped_linear_wgrad;
    tm_call values, call = empty_call(weights ? &tm_op_grouped_scaled_wgrad : &tm_op_grouped_scaled_mm);
    tm_node_call(p->graph, f->node, &values);
    *attr = grouped_attr(f, &values);
    call.attr = attr;
    for (int s = 0; s < 2; s++) {
        tm_quantize_attr of;
        tm_call          codes = codes_call(p, f, s, &of);
        call.in[s] = codes.out[0], call.in[2 + s] = codes.out[TM_QUANTIZE_SCALES];
    }
    call.in[4] = values.in[2];
    for (int k = 3; k < 5 && f->node->op == TM_OP_grouped_linear; k++) call.in[k + 2] = values.in[k];
    call.out[0] = values.out[0];
    call.accumulate = f->node->accumulate & 1U;
    return call;
}

/* --- which products -------------------------------------------------------------------------------------------------
 */

/* Do lines of both factors run along what the product sums over, as codes lie? */
static bool lines_fit(const product *f)
{
    switch (f->node->op) {
    case TM_OP_linear:
    case TM_OP_grouped_linear:
        return !f->attr[0]->down && !f->attr[1]->down;
    case TM_OP_linear_dgrad:
    case TM_OP_grouped_linear_dgrad:
        return !f->attr[0]->down && f->attr[1]->down;
    case TM_OP_linear_wgrad:
    case TM_OP_grouped_linear_wgrad:
        return f->attr[0]->down && f->attr[1]->down;
    default:
        return false;
    }
}

/* Do scales of all parts lie as those of one matrix? So they do where each line has its own, and so has the other side.
 */
static bool is_whole(const product *f, int side)
{
    const tm_quantize_attr *attr = f->attr[side];
    tm_quantize_attr        coded = coded_attr(f, side);
    if (attr->n_parts == 1) return true;
    if (f->kind[side] != TM_CODES_PLAIN) return tm_quantize_whole(&coded);
    return attr->down == attr->cut_columns && has_lines(f, side) && (f->grouped || has_lines(f, !side));
}

/* Parts of a factor are lines of it, or what its lines run through. */
static const char *find_parts(product *f)
{
    f->parts = 1, f->cut = f->split = -1;
    for (int s = 0; s < 2; s++) {
        const tm_quantize_attr *attr = f->attr[s];
        if (is_whole(f, s)) continue;
        int cut = attr->down != attr->cut_columns ? 2 : s;
        if (f->parts > 1 && (cut != f->cut || cut != 2)) return "both factors are parts";
        f->parts = attr->n_parts, f->cut = cut, f->split = s;
        for (int i = 0; i < f->parts && !f->grouped; i++)
            if (attr->end[i] % 16 != 0) return "parts of a fused weight that are no multiples of 16";
    }
    if (f->cut == 2 && (f->attr[0]->n_parts != f->attr[1]->n_parts ||
                        memcmp(f->attr[0]->end, f->attr[1]->end, (size_t)f->parts * sizeof f->attr[0]->end[0]) != 0))
        return "parts of one factor are not those of the other one";
    if (f->grouped) f->parts = 1;
    return f->parts > 1 && f->node->op == TM_OP_linear && f->node->in[3] != TM_NONE
               ? "a residual is added to a whole product only"
               : NULL;
}

/* Of experts: scales of blocks lie as those of one matrix. */
static const char *grouped_kind(const product *f, int side)
{
    tm_quantize_attr coded = coded_attr(f, side);
    if (coded.codes == TM_CODES_TILES) return "codes of experts have no scales in tiles";
    return coded.codes > TM_CODES_PLAIN && !tm_quantize_whole(&coded) ? "parts of experts that end within a block"
                                                                      : NULL;
}

/* The kinds of scales number k; NULL: the factors can be codes with them. */
static const char *take_kinds(product *f, int k)
{
    const char *why = NULL;
    for (int s = 0; s < 2; s++) f->kind[s] = kinds[k][f->attr[s]->recipe[0].scaled == TM_SCALED_SQUARE];
    for (int s = 0; s < 2 && !why; s++) why = tm_quantize_no_codes(f->attr[s], f->kind[s]);
    for (int s = 0; s < 2 && !why && f->grouped; s++) why = grouped_kind(f, s);
    return why ? why : find_parts(f);
}

/* Whether the node multiplies two quantized factors that nobody else reads; *why: why they stay values. */
static bool find_product(const pass *p, const tm_node *node, product *f, const char **why)
{
    bool grouped = node->op == TM_OP_grouped_linear || node->op == TM_OP_grouped_linear_dgrad ||
                   node->op == TM_OP_grouped_linear_wgrad;
    bool plain = node->op == TM_OP_linear || node->op == TM_OP_linear_dgrad || node->op == TM_OP_linear_wgrad;
    int  quantized = 0;
    *f = (product){ .node = node, .grouped = grouped };
    *why = NULL;
    if (!grouped && !plain) return false;
    for (int s = 0; s < 2; s++) {
        f->from[s] = p->made[node->in[s]].node;
        f->attr[s] = f->from[s] ? f->from[s]->attr : NULL;
        quantized += f->from[s] != NULL;
    }
    if (quantized == 0) return false;
    for (int s = 0; s < 2 && !*why; s++) {
        if (quantized < 2) *why = "only one of the factors is quantized";
        if (!*why && p->made[node->in[s]].readers != 1) *why = "somebody else reads a factor";
    }
    if (*why) return true;
    tm_shape a = tm_graph_at(p->graph, node->in[0])->shape, b = tm_graph_at(p->graph, node->in[1])->shape;
    f->rows = a.n[f->attr[0]->down], f->depth = a.n[!f->attr[0]->down];
    f->columns = b.n[b.rank - 2 + f->attr[1]->down];
    if (!lines_fit(f)) *why = "lines of a factor run the other way";
    if (!*why && plain && tm_graph_at(p->graph, node->out[0])->offset % 16 != 0)
        *why = "the product begins between 16 columns";
    return true;
}

/* *own: of its parts one is an own kernel's. */
static bool is_product_taken(const pass *p, const product *f, bool *own, tm_text *refusals)
{
    *own = false;
    for (int part = 0; part < f->parts; part++) {
        tm_scaled_attr         attr;
        tm_grouped_scaled_attr of_experts;
        tm_call                call = f->grouped ? grouped_call(p, f, &of_experts) : call_of(p, f, part, &attr);
        const tm_kernel       *kernel = kernel_of(p, &call, refusals);
        if (!kernel) return false;
        *own |= !kernel->library;
    }
    for (int s = 0; s < 2; s++) {
        tm_quantize_attr attr;
        tm_call          call = codes_call(p, f, s, &attr);
        if (!kernel_of(p, &call, refusals)) return false;
    }
    return true;
}

/* Finds the first kinds of scales that the recipe and the device have. *why: what the recipe is refused for with all
 * kinds, of those that are its own the last one; else the refusals of the device tell. */
static bool can_be_codes(const pass *p, product *f, bool *own, tm_text *refusals, const char **why)
{
    const char *unfit = NULL;
    for (int k = 0; k < (int)(sizeof kinds / sizeof kinds[0]); k++) {
        const char *no = take_kinds(f, k);
        if (!no && is_product_taken(p, f, own, refusals)) return true;
        bool own_kinds = !tm_quantize_no_codes(f->attr[0], f->kind[0]) && !tm_quantize_no_codes(f->attr[1], f->kind[1]);
        if (no && (!unfit || own_kinds)) unfit = no;
    }
    *why = refusals->length > 0 ? NULL : unfit;
    return false;
}

/* --- rewriting ------------------------------------------------------------------------------------------------------
 */

static void append(tm_segment *segment, const tm_node *node)
{
    segment->nodes = tm_grow(segment->nodes, &segment->capacity, segment->n_nodes, sizeof *segment->nodes);
    segment->nodes[segment->n_nodes++] = *node;
}

/* Of one side: what holds its codes and its scales. */
typedef struct {
    tm_tensor_id codes, scales;
} coded;

/* A node that quantizes gives codes from here on. */
static coded give_codes(const pass *p, const product *f, int side, tm_node *quantize)
{
    tm_graph         *graph = p->graph;
    tm_quantize_attr *attr = tm_arena_take(graph->arena, sizeof *attr);
    tm_call           call = codes_call(p, f, side, attr);
    tm_tensor         of = *tm_graph_at(graph, f->node->in[side]);
    char              name[240];
    coded             c;
    snprintf(name, sizeof name, "%.200s.codes", of.name);
    c.codes = tm_graph_tensor_as(graph, name, of.role, call.out[0].shape, call.out[0].dtype);
    snprintf(name, sizeof name, "%.200s.scales", of.name);
    c.scales = tm_graph_tensor_as(graph, name, TM_ROLE_STATISTIC, call.out[TM_QUANTIZE_SCALES].shape,
                                  call.out[TM_QUANTIZE_SCALES].dtype);
    tm_graph_at(graph, c.codes)->layer = tm_graph_at(graph, c.scales)->layer = of.layer;
    quantize->attr = attr;
    quantize->out[0] = c.codes;
    quantize->out[TM_QUANTIZE_SCALES] = c.scales;
    return c;
}

static tm_tensor_id run_of(tm_graph *graph, tm_tensor_id of, int64_t first, tm_shape shape)
{
    char      name[200];
    tm_tensor whole = *tm_graph_at(graph, of);
    if (tm_shape_equal(shape, whole.shape)) return of;
    snprintf(name, sizeof name, "%.180s.%lld", whole.name, (long long)first);
    return tm_graph_run(graph, name, of, first, shape);
}

/* Rows `lines` and columns `k` of a matrix: all of the one or of the other. */
static tm_tensor_id part_of(tm_graph *graph, tm_tensor_id of, range lines, range k)
{
    char      name[200];
    tm_tensor whole = *tm_graph_at(graph, of);
    if (length_of(k) == whole.shape.n[1])
        return run_of(graph, of, lines.begin * whole.shape.n[1], tm_shape_2(length_of(lines), length_of(k)));
    snprintf(name, sizeof name, "%.180s.%lld", whole.name, (long long)k.begin);
    return tm_graph_view(graph, name, of, k.begin, length_of(k));
}

/* Of a part: its own run of them, or all of a side that has one matrix. */
static tm_tensor_id scales_of(const pass *p, const product *f, int side, const coded *c, int part)
{
    int64_t          lines = side ? f->columns : f->rows;
    tm_quantize_attr attr = coded_attr(f, side);
    bool             own = f->cut == 2 || f->cut == side;
    if (f->parts == 1 || (f->kind[side] != TM_CODES_PLAIN && !own)) return c->scales;
    if (f->kind[side] != TM_CODES_PLAIN) {
        tm_shape x = tm_graph_at(p->graph, f->from[side]->in[0])->shape;
        int64_t  first = tm_quantize_first_scale(&attr, x, part);
        return run_of(p->graph, c->scales, first, tm_shape_1(tm_quantize_first_scale(&attr, x, part + 1) - first));
    }
    if (has_lines(f, side)) return run_of(p->graph, c->scales, part * lines, tm_shape_1(lines));
    return run_of(p->graph, c->scales, own ? part : 0, tm_shape_1(1)); /* the other one has one scale for all parts */
}

static void emit_part(const pass *p, const product *f, const coded c[2], int part, tm_segment *segment)
{
    tm_graph       *graph = p->graph;
    tm_node         node = *f->node;
    range           side[] = { range_of(f, 0, part), range_of(f, 1, part) }, k = range_of(f, 2, part);
    tm_scaled_attr *attr = tm_arena_take(graph->arena, sizeof *attr);
    node.op = TM_OP_scaled_mm;
    node.attr = attr;
    node.attr_bytes = sizeof *attr;
    node.rounded = 0;
    for (int i = 0; i < TM_MAX_IN; i++) node.in[i] = TM_NONE;
    for (int s = 0; s < 2; s++) {
        attr->scales[s] = (uint8_t)f->kind[s];
        node.in[s] = part_of(graph, c[s].codes, side[s], k);
        node.in[2 + s] = scales_of(p, f, s, &c[s], part);
    }
    if (f->node->op == TM_OP_linear && f->node->in[2] != TM_NONE)
        node.in[4] = run_of(graph, f->node->in[2], side[1].begin, tm_shape_1(length_of(side[1])));
    if (f->node->op == TM_OP_linear) node.in[5] = f->node->in[3];
    if (f->cut == 0 || f->cut == 1) node.out[0] = part_of(graph, f->node->out[0], side[0], side[1]);
    if (f->cut == 2 && part > 0) node.accumulate |= 1U;
    append(segment, &node);
}

static void emit_grouped(const pass *p, const product *f, const coded c[2], tm_segment *segment)
{
    tm_grouped_scaled_attr *attr = tm_arena_take(p->graph->arena, sizeof *attr);
    tm_call                 call = grouped_call(p, f, attr);
    tm_node                 node = *f->node;
    node.op = tm_op_id_of(call.op);
    node.attr = attr;
    node.attr_bytes = sizeof *attr;
    node.rounded = 0;
    for (int i = 0; i < TM_MAX_IN; i++) node.in[i] = TM_NONE;
    for (int s = 0; s < 2; s++) node.in[s] = c[s].codes, node.in[2 + s] = c[s].scales;
    node.in[4] = f->node->in[2];
    for (int k = 3; k < 5 && f->node->op == TM_OP_grouped_linear; k++) node.in[k + 2] = f->node->in[k];
    append(segment, &node);
}

/* Who is quantized, and who reads it. */
static void list_made(pass *p)
{
    const tm_segment *segment = p->graph->segment;
    for (size_t x = 0; x < segment->n_nodes; x++) {
        const tm_node *node = &segment->nodes[x];
        if (node->op == TM_OP_quantize) p->made[node->out[0]].node = node;
        for (int i = 0; i < TM_MAX_IN; i++)
            if (node->in[i] != TM_NONE) p->made[tm_graph_base(p->graph, node->in[i])].readers++;
    }
}

/* Has the device anything to say about products of codes? */
static bool ask_device(const pass *p)
{
    tm_call call = empty_call(&tm_op_scaled_mm);
    tm_text refusals = { 0 };
    for (int s = 0; s < 2; s++) call.in[s] = (tm_view){ .dtype = TM_E4M3, .shape = tm_shape_2(16, 16) };
    for (int s = 2; s < 4; s++) call.in[s] = (tm_view){ .dtype = TM_F32, .shape = tm_shape_1(1) };
    call.out[0] = (tm_view){ .dtype = TM_F32, .shape = tm_shape_2(16, 16) };
    bool any = kernel_of(p, &call, &refusals) || refusals.length > 0;
    tm_text_fini(&refusals);
    return any;
}

/* The codes of each quantizing node that has a product of codes; then those products. */
static void rewrite(pass *p, const product *taken, size_t n)
{
    tm_segment *segment = p->graph->segment, source = *segment;
    coded(*codes)[2] = tm_alloc((n + 1) * sizeof *codes);
    size_t next = 0;
    segment->nodes = NULL;
    segment->n_nodes = segment->capacity = 0;
    for (size_t x = 0; x < source.n_nodes; x++) {
        tm_node node = source.nodes[x];
        for (size_t i = next; i < n && node.op == TM_OP_quantize; i++)
            for (int s = 0; s < 2; s++)
                if (taken[i].from[s] == &source.nodes[x]) codes[i][s] = give_codes(p, &taken[i], s, &node);
        if (next < n && taken[next].node == &source.nodes[x]) {
            if (taken[next].grouped) emit_grouped(p, &taken[next], codes[next], segment);
            for (int part = 0; part < taken[next].parts && !taken[next].grouped; part++)
                emit_part(p, &taken[next], codes[next], part, segment);
            next++;
        } else
            append(segment, &node);
    }
    free(codes);
    free(source.nodes);
}

void tm_codes_pass(tm_graph *graph, const tm_chooser *chooser, tm_codes *out)
{
    const tm_segment *segment = graph->segment;
    pass              p = { .graph = graph, .chooser = chooser, .out = out };
    product          *taken = tm_alloc((segment->n_nodes + 1) * sizeof *taken);
    size_t            n = 0;
    p.any = ask_device(&p);
    p.made = tm_alloc(graph->n_tensors * sizeof *p.made);
    list_made(&p);
    for (size_t x = 0; x < segment->n_nodes && p.any; x++) {
        product     f;
        const char *why;
        bool        own;
        tm_text     refusals = { 0 };
        if (!find_product(&p, &segment->nodes[x], &f, &why)) continue;
        if (!why && can_be_codes(&p, &f, &own, &refusals, &why))
            count_taken(&p, own, &refusals), taken[n++] = f;
        else if (why || (why = last_reason(&refusals)))
            count_emulated(&p, why, strcspn(why, "\n"));
        tm_text_fini(&refusals);
    }
    if (n > 0) rewrite(&p, taken, n);
    free(p.made);
    free(taken);
}
