/* SPDX-License-Identifier: Apache-2.0 */
/* graph/passes/offload.c - see passes.h.
 *
 * A copy stands in the list where its buffers are taken or given back, not where it may start: fetches one user or
 * block ahead of the first use, stores of activations one block behind the last. The plan derives from the memory when
 * they really may start.
 */
#include "graph/passes/passes.h"

#include "op/attrs.h"

#include <stdio.h>
#include <stdlib.h>

enum { SMALLEST_BYTES = 4096 }; /* what is smaller stays on the device */

/* A node that goes in front of node `at` of the segment. */
typedef struct {
    size_t  at;
    tm_node node;
} insertion;

typedef struct {
    tm_graph         *graph;
    const tm_offload *policy;
    tm_segment       *segment;
    insertion        *insertions;
    size_t            n_insertions, capacity;
} pass;

static void insert(pass *p, size_t at, tm_op_id op, tm_tensor_id x, tm_tensor_id y, const tm_node *beside)
{
    tm_copy_attr *attr = tm_arena_take(p->graph->arena, sizeof *attr);
    attr->space = p->policy->space;
    tm_node node = { .op = op,
                     .attr = attr,
                     .attr_bytes = sizeof *attr,
                     .phase = beside->phase,
                     .layer = beside->layer,
                     .module = beside->module,
                     .stream = tm_op_get(op)->stream };
    for (int i = 0; i < TM_MAX_IN; i++) node.in[i] = TM_NONE;
    for (int k = 0; k < TM_MAX_OUT; k++) node.out[k] = TM_NONE;
    node.in[0] = x;
    node.out[0] = y;
    p->insertions = tm_grow(p->insertions, &p->capacity, p->n_insertions, sizeof *p->insertions);
    p->insertions[p->n_insertions++] = (insertion){ at, node };
}

/* A tensor of the same shape and format, in another role or space. */
static tm_tensor_id twin_of(tm_graph *graph, tm_tensor_id id, const char *suffix, tm_role role, tm_space space)
{
    char      name[200];
    tm_tensor was = *tm_graph_at(graph, id);
    snprintf(name, sizeof name, "%.180s.%s", was.name, suffix);
    tm_tensor_id twin = tm_graph_tensor_as(graph, name, role, was.shape, was.dtype);
    tm_graph_at(graph, twin)->layer = was.layer;
    tm_graph_at(graph, twin)->space = space;
    return twin;
}

/* The merged list: of one place, what was inserted first stands first. */
static void merge(pass *p)
{
    size_t     n = p->segment->n_nodes;
    size_t    *count = tm_alloc((n + 2) * sizeof *count);
    insertion *sorted = tm_alloc((p->n_insertions + 1) * sizeof *sorted);
    tm_node   *nodes = tm_alloc((n + p->n_insertions) * sizeof *nodes);
    for (size_t i = 0; i < p->n_insertions; i++) count[p->insertions[i].at + 1]++;
    for (size_t at = 1; at <= n; at++) count[at] += count[at - 1];
    for (size_t i = 0; i < p->n_insertions; i++) sorted[count[p->insertions[i].at]++] = p->insertions[i];
    size_t k = 0, made = 0;
    for (size_t x = 0; x <= n; x++) {
        while (k < p->n_insertions && sorted[k].at == x) nodes[made++] = sorted[k++].node;
        if (x < n) nodes[made++] = p->segment->nodes[x];
    }
    free(count);
    free(sorted);
    free(p->segment->nodes);
    p->segment->nodes = nodes;
    p->segment->n_nodes = p->segment->capacity = made;
}

/* --- optimizer ---------------------------------------------------------------------------------------------------- */

static bool is_moment(const tm_graph *graph, tm_tensor_id id)
{
    return id != TM_NONE && tm_graph_at(graph, id)->role == TM_ROLE_MOMENT;
}

static void stage_moment(pass *p, size_t user, size_t fetch_at, tm_tensor_id moment)
{
    tm_node     *node = &p->segment->nodes[user];
    tm_tensor_id staged = twin_of(p->graph, moment, "staged", TM_ROLE_STAGED, TM_SPACE_DEVICE);
    bool         written = false;
    tm_graph_at(p->graph, moment)->space = p->policy->space;
    insert(p, fetch_at, TM_OP_fetch, moment, staged, node);
    for (int i = 0; i < TM_MAX_IN; i++)
        if (node->in[i] == moment) node->in[i] = staged;
    for (int k = 0; k < TM_MAX_OUT; k++) {
        if (node->out[k] != moment) continue;
        node->out[k] = staged;
        written = true;
    }
    if (written) insert(p, user + 1, TM_OP_store, staged, moment, node);
}

/* Around each node that uses moments: fetched in front of the user before it, stored right behind it. So two users'
 * moments are on the device at a time. */
static void offload_moments(pass *p)
{
    size_t before = SIZE_MAX, n = p->segment->n_nodes;
    for (size_t x = 0; x < n; x++) {
        const tm_node *node = &p->segment->nodes[x];
        bool           uses = false;
        size_t         fetch_at = before == SIZE_MAX ? x : before;
        for (int i = 0; i < TM_MAX_IN; i++) {
            if (!is_moment(p->graph, node->in[i])) continue;
            uses = true;
            stage_moment(p, x, fetch_at, node->in[i]);
        }
        for (int k = 0; k < TM_MAX_OUT; k++) TM_ASSERT(!is_moment(p->graph, node->out[k])); /* all were inputs */
        if (uses) before = x;
    }
}

/* --- activations -------------------------------------------------------------------------------------------------- */

enum { NEVER = -1 };

typedef struct {
    int32_t      last_forward, first_backward; /* nodes that use it; NEVER */
    bool         made_forward;
    tm_tensor_id fetched; /* what backward nodes read instead, of views too; TM_NONE: itself */
} use;

static void note_uses(pass *p, use *uses)
{
    for (size_t x = 0; x < p->segment->n_nodes; x++) {
        const tm_node *node = &p->segment->nodes[x];
        bool           forward = node->phase == TM_PHASE_FORWARD;
        for (int i = 0; i < TM_MAX_IN + TM_MAX_OUT; i++) {
            tm_tensor_id id = i < TM_MAX_IN ? node->in[i] : node->out[i - TM_MAX_IN];
            if (id == TM_NONE) continue;
            use *u = &uses[tm_graph_base(p->graph, id)];
            if (forward) u->last_forward = (int32_t)x;
            if (forward && i >= TM_MAX_IN) u->made_forward = true;
            if (!forward && u->first_backward == NEVER) u->first_backward = (int32_t)x;
        }
    }
}

/* What backward nodes read for `id`, which is offloaded or a view of what is. */
static tm_tensor_id fetched_for(pass *p, use *uses, tm_tensor_id id)
{
    tm_tensor view = *tm_graph_at(p->graph, id);
    if (view.base == TM_NONE || uses[id].fetched != TM_NONE) return uses[id].fetched;
    uses[id].fetched = twin_of(p->graph, id, "fetched", view.role, TM_SPACE_DEVICE);
    tm_tensor *twin = tm_graph_at(p->graph, uses[id].fetched);
    twin->base = uses[view.base].fetched;
    twin->offset = view.offset;
    twin->ld = view.ld;
    return uses[id].fetched;
}

static bool worth_it(const tm_tensor *tensor, const use *u)
{
    return tensor->role == TM_ROLE_ACTIVATION && tensor->base == TM_NONE && u->made_forward &&
           u->first_backward != NEVER && tm_tensor_bytes(tensor->shape, tensor->dtype) >= SMALLEST_BYTES;
}

/* Blocks are runs of nodes of one layer and phase. block[x]: of node x; begin[b]: its first node, begin[blocks] = n. */
static size_t find_blocks(const tm_segment *segment, size_t *block, size_t *begin)
{
    size_t blocks = 0;
    for (size_t x = 0; x < segment->n_nodes; x++) {
        const tm_node *node = &segment->nodes[x], *last = node - 1;
        if (x == 0 || node->layer != last->layer || node->phase != last->phase) begin[blocks++] = x;
        block[x] = blocks - 1;
    }
    begin[blocks] = segment->n_nodes;
    return blocks;
}

/* Saved activations: away at the end of the block after their last forward use, back at the beginning of the block
 * before their first backward use; what has no time in between stays. Between programs there is time for all of them,
 * also for what would be copied on the other side of the border: whoever parts the segment goes by the phases. */
static void offload_activations(pass *p)
{
    size_t  n = p->segment->n_nodes, n_tensors = p->graph->n_tensors;
    size_t *block = tm_alloc((n + 1) * sizeof *block), *begin = tm_alloc((n + 1) * sizeof *begin);
    use    *uses = tm_alloc((n_tensors + 1) * sizeof *uses);
    size_t  blocks = find_blocks(p->segment, block, begin);
    for (size_t i = 0; i < n_tensors; i++) uses[i] = (use){ NEVER, NEVER, false, TM_NONE };
    note_uses(p, uses);
    for (size_t i = 0; i < n_tensors; i++) {
        tm_tensor_id id = (tm_tensor_id)i;
        if (!worth_it(tm_graph_at(p->graph, id), &uses[i])) continue;
        size_t last = block[uses[i].last_forward], first = block[uses[i].first_backward];
        size_t away = begin[last + 2 < blocks ? last + 2 : blocks], back = begin[first > 0 ? first - 1 : 0];
        if (back <= away && !p->policy->apart) continue;
        tm_tensor_id kept = twin_of(p->graph, id, "kept", TM_ROLE_ACTIVATION, p->policy->space);
        uses[i].fetched = twin_of(p->graph, id, "fetched", TM_ROLE_ACTIVATION, TM_SPACE_DEVICE);
        insert(p, away, TM_OP_store, id, kept, &p->segment->nodes[uses[i].last_forward]);
        insert(p, back, TM_OP_fetch, kept, uses[i].fetched, &p->segment->nodes[uses[i].first_backward]);
    }
    for (size_t x = 0; x < n; x++) {
        tm_node *node = &p->segment->nodes[x];
        for (int i = 0; node->phase != TM_PHASE_FORWARD && i < TM_MAX_IN; i++)
            if (node->in[i] != TM_NONE && (size_t)node->in[i] < n_tensors &&
                uses[tm_graph_base(p->graph, node->in[i])].fetched != TM_NONE)
                node->in[i] = fetched_for(p, uses, node->in[i]);
    }
    free(block);
    free(begin);
    free(uses);
}

void tm_offload_pass(tm_graph *graph, const tm_offload *policy)
{
    pass p = { .graph = graph, .policy = policy, .segment = graph->segment };
    if (policy->optimizer) offload_moments(&p);
    if (policy->activations) offload_activations(&p);
    if (p.n_insertions > 0) merge(&p);
    free(p.insertions);
}
