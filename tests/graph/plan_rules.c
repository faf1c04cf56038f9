/* SPDX-License-Identifier: Apache-2.0 */
/* What passes leave behind: nothing is read before it is there, no node works for nobody, phases follow each other,
 * gradients are sums, weights come when they are asked for. */
#include "plan_rules.h"

#include "graph/graph.h"

#include "support/test.h"

/* Is there without this segment, or is for others than this segment. */
static bool outlives(const tm_graph *graph, tm_tensor_id id)
{
    const tm_tensor *t = tm_graph_at(graph, id);
    return tm_role_persistent(t->role) || t->role == TM_ROLE_INPUT || t->role == TM_ROLE_SCALAR || graph->slots > 0 ||
           t->space != TM_SPACE_DEVICE;
}

/* Backwards: who is read behind a node. A node works for those, or for what outlives the segment. */
static void check_needed(const char *words, const tm_graph *graph, const tm_segment *segment)
{
    bool *read = calloc(graph->n_tensors, sizeof *read);
    for (size_t x = segment->n_nodes; x-- > 0;) {
        const tm_node *n = &segment->nodes[x];
        bool           needed = n->stream == TM_ON_COMMUNICATION; /* others need it, or it is cut up */
        for (int k = 0; k < TM_MAX_OUT; k++)
            if (n->out[k] != TM_NONE)
                needed =
                    needed || read[tm_graph_base(graph, n->out[k])] || outlives(graph, tm_graph_base(graph, n->out[k]));
        if (!needed)
            fail_msg("%s, %s: nobody needs node %zu, %s of %s", words, segment->name, x, tm_op_get(n->op)->name,
                     n->module);
        for (int i = 0; i < TM_MAX_IN; i++)
            if (n->in[i] != TM_NONE) read[tm_graph_base(graph, n->in[i])] = true;
    }
    free(read);
}

/* What is read is there, sums go on, phases follow each other. */
static void check_order(const char *words, const tm_graph *graph, const tm_segment *segment)
{
    bool    *written = calloc(graph->n_tensors, sizeof *written);
    tm_phase phase = TM_PHASE_FORWARD;
    for (size_t x = 0; x < segment->n_nodes; x++) {
        const tm_node *n = &segment->nodes[x];
        for (int i = 0; i < TM_MAX_IN; i++) {
            tm_tensor_id id = n->in[i] == TM_NONE ? TM_NONE : tm_graph_base(graph, n->in[i]);
            if (id != TM_NONE && !written[id] && !outlives(graph, id))
                fail_msg("%s, %s: node %zu, %s of %s, reads %s, which is not there", words, segment->name, x,
                         tm_op_get(n->op)->name, n->module, tm_graph_at(graph, id)->name);
        }
        for (int k = 0; k < TM_MAX_OUT; k++) {
            if (n->out[k] == TM_NONE) continue;
            const tm_tensor *t = tm_graph_at(graph, n->out[k]);
            bool             adds = n->accumulate >> k & 1;
            for (int i = 0; i < TM_MAX_IN; i++) adds = adds || n->in[i] == n->out[k];
            if (t->role == TM_ROLE_GRADIENT && t->base == TM_NONE && written[n->out[k]] && !adds)
                fail_msg("%s, %s: node %zu, %s of %s, forgets the sum in %s", words, segment->name, x,
                         tm_op_get(n->op)->name, n->module, t->name);
            written[tm_graph_base(graph, n->out[k])] = true;
        }
        if (n->stream != TM_ON_COMPUTE || n->recomputed || n->op == TM_OP_cast) continue; /* early, or again */
        if (n->phase < phase && strcmp(segment->name, "microscope") != 0)
            fail_msg("%s, %s: node %zu, %s of %s, is late", words, segment->name, x, tm_op_get(n->op)->name, n->module);
        phase = n->phase;
    }
    free(written);
}

/* A copy of a weight in another format lives in one layer and phase, and is the layer's that the weight is of. */
static void check_copies(const char *words, const tm_graph *graph, const tm_segment *segment)
{
    const tm_node **maker = calloc(graph->n_tensors, sizeof *maker);
    for (size_t x = 0; x < segment->n_nodes; x++) {
        const tm_node *n = &segment->nodes[x];
        for (int i = 0; i < TM_MAX_IN; i++) {
            const tm_node *cast = n->in[i] == TM_NONE ? NULL : maker[tm_graph_base(graph, n->in[i])];
            if (cast && (cast->layer != n->layer || cast->phase != n->phase))
                fail_msg("%s, %s: a copy for %s outlives its layer", words, segment->name, cast->module);
        }
        if (n->op != TM_OP_cast || tm_graph_at(graph, n->out[0])->role != TM_ROLE_WEIGHT_COPY) continue;
        assert_int_equal(tm_graph_at(graph, n->out[0])->layer, tm_graph_at(graph, n->in[0])->layer);
        maker[n->out[0]] = n;
    }
    free(maker);
}

/* A node of a step's gradients writes an element for the first time, or adds to what the step has put there. */
static void check_sum(const char *words, const tm_graph *graph, const tm_segment *segment, const tm_node *node, int k,
                      bool **written)
{
    const tm_tensor   *to = tm_graph_at(graph, node->out[k]);
    const tm_tensor_id base = tm_graph_base(graph, node->out[k]);
    const int64_t      rows = to->ld ? to->shape.n[0] : 1, columns = tm_shape_elements(to->shape) / rows;
    bool               adds = node->accumulate >> k & 1;
    if (tm_graph_at(graph, base)->role != TM_ROLE_GRADIENT) return;
    if (!written[base]) written[base] = calloc((size_t)tm_shape_elements(tm_graph_at(graph, base)->shape), 1);
    for (int i = 0; i < TM_MAX_IN; i++) adds = adds || node->in[i] == node->out[k];
    for (int64_t r = 0; r < rows; r++) {
        const int64_t from = (to->base == TM_NONE ? 0 : to->offset) + r * to->ld;
        bool         *at = written[base] + from, *wrong = memchr(at, !adds, (size_t)columns);
        if (wrong)
            fail_msg("%s, %s: %s of %s %s element %d of %s", words, segment->name, tm_op_get(node->op)->name,
                     node->module, adds ? "adds to what another step left in" : "forgets the sum in",
                     (int)(wrong - written[base]), tm_graph_at(graph, base)->name);
        memset(at, true, (size_t)columns);
    }
}

static const tm_segment *segment_of(const tm_graph *graph, const tm_program *program)
{
    for (size_t s = 0; s < graph->n_segments; s++)
        if (strcmp(graph->segments[s]->name, program->name) == 0) return graph->segments[s];
    fail_msg("nobody wrote program %s", program->name);
    return NULL;
}

/* The programs of a step in their order: gradients are those of its micro-batches, all of them and no others. */
static void check_sums(const char *words, const tm_step *step)
{
    const tm_graph *graph = step->graph;
    bool          **written = calloc(graph->n_tensors, sizeof *written);
    for (size_t w = 0; w < step->training.n; w++)
        for (int64_t m = 0; m < step->training.work[w].count; m++) {
            const tm_segment *segment = segment_of(graph, step->training.work[w].program);
            for (size_t x = 0; x < segment->n_nodes; x++)
                for (int k = 0; k < TM_MAX_OUT; k++) {
                    const tm_node *node = &segment->nodes[x];
                    if (node->out[k] == TM_NONE || node->phase == TM_PHASE_UPDATE) continue;
                    check_sum(words, graph, segment, node, k, written);
                }
        }
    for (size_t i = 0; i < graph->n_tensors; i++) {
        const tm_tensor *t = &graph->tensors[i];
        if (t->role == TM_ROLE_GRADIENT && t->base == TM_NONE && !t->shared && !written[i])
            fail_msg("%s: nothing is in %s", words, t->name);
        free(written[i]);
    }
    free(written);
}

/* No two rows of products are of the same, and what is compared has one shape. */
static void check_rows(const tm_step *step)
{
    const tm_quantized  *q = &step->quantized;
    const tm_microscope *m = &step->microscope;
    for (size_t i = 0; i < q->n_rows; i++)
        for (size_t k = 0; k < i; k++)
            if (q->rows[i].factor == q->rows[k].factor && strcmp(q->rows[i].name, q->rows[k].name) == 0)
                fail_msg("two rows of %s", q->rows[i].name);
    for (size_t i = 0; i < m->n_rows; i++) {
        const tm_tensor *own = tm_graph_at(step->graph, m->rows[i].own);
        const tm_tensor *other = tm_graph_at(step->graph, m->rows[i].reference);
        assert_true(own != other && tm_shape_equal(own->shape, other->shape));
    }
}

/* --- weights that ranks share ------------------------------------------------------------------------------------- */

enum { MOST_GATHERS = 200 };
typedef struct {
    size_t       at, first, last; /* nodes: the gather, its first and its last reader */
    int          turn;
    const char  *unit, *layer; /* names */
    tm_tensor_id whole;
} gathered;

/* Of "weights of layer 1", and of "weights of experts of layer 1". */
static const char *layer_of(const char *unit)
{
    const char *experts = strstr(unit, "experts of ");
    return experts ? experts + 11 : unit + 11;
}

static size_t find_gathers(const tm_graph *graph, const tm_segment *segment, gathered list[MOST_GATHERS])
{
    size_t n = 0;
    for (size_t x = 0; x < segment->n_nodes; x++) {
        const tm_node *node = &segment->nodes[x];
        if (node->op == TM_OP_all_gather && strncmp(node->module, "weights of ", 11) == 0) {
            assert_true(n < MOST_GATHERS);
            list[n++] =
                (gathered){ x, 0, 0, 0, node->module, layer_of(node->module), tm_graph_base(graph, node->out[0]) };
        }
        for (size_t g = 0; g < n; g++)
            for (int i = 0; i < TM_MAX_IN && node->op != TM_OP_all_gather; i++)
                if (node->in[i] != TM_NONE && tm_graph_base(graph, node->in[i]) == list[g].whole) {
                    if (!list[g].first) list[g].first = x;
                    list[g].last = x;
                }
    }
    return n;
}

static int by_first_reader(const void *a, const void *b)
{
    const gathered *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

/* Weights come as many turns ahead as were asked for; they are let go before another layer's are read, or come once. */
static void check_gathers(const char *words, const tm_step *step, const tm_segment *segment)
{
    static gathered  list[MOST_GATHERS];
    const tm_layout *layout = &step->options.layout;
    size_t           n = find_gathers(step->graph, segment, list);
    qsort(list, n, sizeof *list, by_first_reader);
    for (size_t g = 1; g < n; g++) list[g].turn = list[g - 1].turn + (strcmp(list[g].layer, list[g - 1].layer) != 0);
    for (size_t g = 0; g < n; g++) {
        int ahead = 0, wanted = list[g].turn < layout->prefetch ? list[g].turn : layout->prefetch;
        for (size_t k = 0; k < g; k++) {
            const bool begins = k == 0 || list[k].turn != list[k - 1].turn;
            ahead += begins && list[k].turn < list[g].turn && list[k].first > list[g].at;
            if (layout->reshard && list[k].last > list[g].first && strcmp(list[k].layer, list[g].layer) != 0)
                fail_msg("%s, %s: weights of %s stay beside those of %s", words, segment->name, list[k].layer,
                         list[g].layer);
            if (!layout->reshard && strcmp(list[k].unit, list[g].unit) == 0)
                fail_msg("%s, %s: weights of %s come twice", words, segment->name, list[g].layer);
        }
        if (ahead != wanted)
            fail_msg("%s, %s: weights of %s come %d turns ahead, wanted %d", words, segment->name, list[g].layer, ahead,
                     wanted);
    }
}

void rules_of_step(const char *words, const tm_step *step)
{
    for (size_t s = 0; s < step->graph->n_segments; s++) {
        check_order(words, step->graph, step->graph->segments[s]);
        check_needed(words, step->graph, step->graph->segments[s]);
        check_copies(words, step->graph, step->graph->segments[s]);
        check_gathers(words, step, step->graph->segments[s]);
    }
    if (step->options.layout.parts <= 1) check_sums(words, step);
    check_rows(step);
}
