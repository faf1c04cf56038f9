/* SPDX-License-Identifier: Apache-2.0 */
/* graph/waits.c - see waits.h.
 *
 * The list is walked in its order with a tree over the addresses of all spaces: for each stream it tells the last
 * instruction that read, and the last that wrote, any byte of a range. Instructions are noted in ascending order, so
 * the latest is the largest and nothing is ever taken back. A wait is left out where another one, or an earlier one of
 * the same stream, already stands for it.
 */
#include "graph/waits.h"

#include <stdlib.h>
#include <string.h>

enum { READ, WRITE, KINDS };

/* The last instruction of a stream that used all of the addresses of a node of the tree, and any of them; -1: none. */
typedef struct {
    int32_t all[TM_STREAMS][KINDS], any[TM_STREAMS][KINDS];
} tree_node;

typedef struct {
    size_t from, to; /* addresses */
} range;

/* Leaves of the tree. */
typedef struct {
    uint32_t from, to;
    bool     used; /* by the program */
} leaf_range;

typedef struct {
    const tm_plan *plan;
    leaf_range    *of;     /* (tensors) of those that the program uses: many are used several times */
    leaf_range    *work;   /* (instructions) of their workspaces */
    size_t        *bounds; /* sorted: leaf k of the tree is [bounds[k], bounds[k + 1]) */
    size_t         n_bounds, n_leaves;
    tree_node     *tree;
    size_t         begin[TM_SPACE_COUNT]; /* of each space, in one row of addresses */
} finder;

static range range_of(const finder *f, tm_tensor_id id)
{
    tm_place         place = tm_plan_place(f->plan, id);
    size_t           from = f->begin[tm_graph_at(f->plan->graph, id)->space] + place.offset;
    const tm_tensor *tensor = tm_graph_at(f->plan->graph, id);
    if (tensor->ld) /* rows apart: the gaps count as used, up to the end of the last row */
        place.bytes = (size_t)((tensor->shape.n[0] - 1) * tensor->ld + tensor->shape.n[1]) *
                      (size_t)tm_dtype_bits(tensor->dtype) / 8;
    return (range){ from, from + place.bytes };
}

static range workspace_of(const finder *f, const tm_instruction *i)
{
    size_t from = f->begin[TM_SPACE_DEVICE] + i->workspace_offset;
    return (range){ from, from + i->call.workspace_bytes };
}

static int ascending(const void *a, const void *b)
{
    const size_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

static void add_bounds(finder *f, range r)
{
    f->bounds[f->n_bounds++] = r.from;
    f->bounds[f->n_bounds++] = r.to;
}

static void add_tensor(finder *f, tm_tensor_id id)
{
    if (id == TM_NONE || f->of[id].used) return;
    f->of[id].used = true;
    add_bounds(f, range_of(f, id));
}

static uint32_t leaf_at(const finder *f, size_t address)
{
    const size_t *found = bsearch(&address, f->bounds, f->n_bounds, sizeof *f->bounds, ascending);
    TM_ASSERT(found);
    return (uint32_t)(found - f->bounds);
}

static leaf_range leaves_of(const finder *f, range r)
{
    return (leaf_range){ leaf_at(f, r.from), leaf_at(f, r.to), true };
}

static void plant(finder *f, const tm_program *program)
{
    size_t tensors = f->plan->graph->n_tensors;
    f->of = tm_alloc((tensors + 1) * sizeof *f->of);
    f->work = tm_alloc((program->count + 1) * sizeof *f->work);
    f->bounds = tm_alloc(2 * (tensors + program->count + 1) * sizeof *f->bounds);
    for (size_t x = 0; x < program->count; x++) {
        const tm_instruction *i = &program->instructions[x];
        for (int k = 0; k < TM_MAX_IN; k++) add_tensor(f, i->node->in[k]);
        for (int k = 0; k < TM_MAX_OUT; k++) add_tensor(f, i->node->out[k]);
        if (i->call.workspace_bytes) add_bounds(f, workspace_of(f, i));
    }
    qsort(f->bounds, f->n_bounds, sizeof *f->bounds, ascending);
    size_t n = 0;
    for (size_t i = 0; i < f->n_bounds; i++)
        if (n == 0 || f->bounds[n - 1] != f->bounds[i]) f->bounds[n++] = f->bounds[i];
    f->n_bounds = n;
    f->n_leaves = 1;
    while (f->n_leaves < n) f->n_leaves *= 2;
    f->tree = tm_alloc(2 * f->n_leaves * sizeof *f->tree);
    memset(f->tree, 0xff, 2 * f->n_leaves * sizeof *f->tree); /* -1 everywhere */
    for (size_t id = 0; id < tensors; id++)
        if (f->of[id].used) f->of[id] = leaves_of(f, range_of(f, (tm_tensor_id)id));
    for (size_t x = 0; x < program->count; x++)
        if (program->instructions[x].call.workspace_bytes)
            f->work[x] = leaves_of(f, workspace_of(f, &program->instructions[x]));
}

/* Node `at` stands for the leaves [first, first + leaves). */
static void note(finder *f, size_t at, size_t first, size_t leaves, size_t from, size_t to, int stream, int kind,
                 int32_t x)
{
    if (to <= first || first + leaves <= from) return;
    f->tree[at].any[stream][kind] = x;
    if (from <= first && first + leaves <= to) {
        f->tree[at].all[stream][kind] = x;
        return;
    }
    note(f, 2 * at, first, leaves / 2, from, to, stream, kind, x);
    note(f, 2 * at + 1, first + leaves / 2, leaves / 2, from, to, stream, kind, x);
}

static void take_later(int32_t *need, int32_t x)
{
    if (x > *need) *need = x;
}

/* Into need[]: the last use of the range by each stream; reads only where `written`. */
static void look(const finder *f, size_t at, size_t first, size_t leaves, size_t from, size_t to, bool written,
                 int32_t need[TM_STREAMS])
{
    if (to <= first || first + leaves <= from) return;
    bool             inside = from <= first && first + leaves <= to;
    const tree_node *node = &f->tree[at];
    for (int s = 0; s < TM_STREAMS; s++) {
        take_later(&need[s], inside ? node->any[s][WRITE] : node->all[s][WRITE]);
        if (written) take_later(&need[s], inside ? node->any[s][READ] : node->all[s][READ]);
    }
    if (inside) return;
    look(f, 2 * at, first, leaves / 2, from, to, written, need);
    look(f, 2 * at + 1, first + leaves / 2, leaves / 2, from, to, written, need);
}

/* All that instruction x uses, and whether it is written. Returns their number. */
static int uses_of(const finder *f, const tm_instruction *i, size_t x, leaf_range uses[TM_MAX_IN + TM_MAX_OUT + 1],
                   bool written[TM_MAX_IN + TM_MAX_OUT + 1])
{
    int n = 0;
    for (int k = 0; k < TM_MAX_IN; k++)
        if (i->node->in[k] != TM_NONE) uses[n] = f->of[i->node->in[k]], written[n++] = false;
    for (int k = 0; k < TM_MAX_OUT; k++)
        if (i->node->out[k] != TM_NONE) uses[n] = f->of[i->node->out[k]], written[n++] = true;
    if (i->call.workspace_bytes) uses[n] = f->work[x], written[n++] = true;
    return n;
}

/* done[y][s]: the last instruction of stream s that is known to be done before y starts; of its own stream, y. */
typedef int32_t clock_row[TM_STREAMS];

static void set_waits(tm_instruction *i, int32_t x, const int32_t *need, clock_row *done, const clock_row last)
{
    memcpy(done[x], last, sizeof done[x]);
    for (int s = 0; s < TM_STREAMS; s++) {
        bool known = s == (int)i->stream || need[s] <= last[s];
        for (int t = 0; t < TM_STREAMS && !known; t++)
            known = t != s && t != (int)i->stream && need[t] >= 0 && done[need[t]][s] >= need[s];
        if (!known) i->waits[s] = need[s];
    }
    for (int s = 0; s < TM_STREAMS; s++) {
        if (i->waits[s] < 0) continue;
        for (int t = 0; t < TM_STREAMS; t++) take_later(&done[x][t], done[i->waits[s]][t]);
    }
    done[x][i->stream] = x;
}

static void walk(finder *f, tm_program *program)
{
    clock_row *done = tm_alloc((program->count + 1) * sizeof *done), last[TM_STREAMS];
    memset(last, 0xff, sizeof last); /* the row of the last instruction of each stream; -1: there was none */
    for (size_t x = 0; x < program->count; x++) {
        tm_instruction *i = &program->instructions[x];
        leaf_range      uses[TM_MAX_IN + TM_MAX_OUT + 1];
        bool            written[TM_MAX_IN + TM_MAX_OUT + 1];
        int32_t         need[TM_STREAMS] = { -1, -1, -1 };
        int             n = uses_of(f, i, x, uses, written);
        for (int u = 0; u < n; u++) look(f, 1, 0, f->n_leaves, uses[u].from, uses[u].to, written[u], need);
        set_waits(i, (int32_t)x, need, done, last[i->stream]);
        memcpy(last[i->stream], done[x], sizeof done[x]);
        for (int u = 0; u < n; u++)
            note(f, 1, 0, f->n_leaves, uses[u].from, uses[u].to, (int)i->stream, written[u] ? WRITE : READ, (int32_t)x);
    }
    free(done);
}

void tm_waits_find(const tm_plan *plan, tm_program *program)
{
    for (size_t x = 0; x < program->count; x++) {
        for (int s = 0; s < TM_STREAMS; s++) program->instructions[x].waits[s] = -1;
        program->streams |= 1U << program->instructions[x].stream;
    }
    if ((program->streams & (program->streams - 1)) == 0) return; /* one alone has its order */
    finder f = { .plan = plan };
    for (int s = 1; s < TM_SPACE_COUNT; s++) {
        size_t end = 0; /* of the space before */
        for (size_t i = 0; i < plan->graph->n_tensors; i++)
            if ((int)plan->graph->tensors[i].space == s - 1 && plan->places[i].offset + plan->places[i].bytes > end)
                end = plan->places[i].offset + plan->places[i].bytes;
        for (size_t x = 0; s == 1 && x < program->count; x++) {
            const tm_instruction *i = &program->instructions[x];
            if (i->workspace_offset + i->call.workspace_bytes > end)
                end = i->workspace_offset + i->call.workspace_bytes;
        }
        f.begin[s] = f.begin[s - 1] + end;
    }
    plant(&f, program);
    walk(&f, program);
    for (size_t x = 0; x < program->count; x++)
        for (int s = 0; s < TM_STREAMS; s++) {
            int32_t before = program->instructions[x].waits[s];
            if (before >= 0) program->instructions[before].awaited = true;
        }
    free(f.tree);
    free(f.bounds);
    free(f.of);
    free(f.work);
}
