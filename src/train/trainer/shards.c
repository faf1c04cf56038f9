/* SPDX-License-Identifier: Apache-2.0 */
#include "train/trainer/shards.h"

#include <stdlib.h>

typedef struct {
    const tm_step              *step;
    const tm_arenas            *memory;
    const tm_checkpoint_memory *copies;
    tm_checkpoint_tensor       *tensors;
    size_t                      n, capacity;
} list;

int64_t tm_held_run(const tm_shared *shared, int rank, int64_t first, int64_t n, int64_t *from, int64_t *at)
{
    int64_t begin = rank * shared->share - shared->first, end = begin + shared->share;
    *from = first > begin ? first : begin;
    *at = *from - begin;
    return (end < first + n ? end : first + n) - *from;
}

/* Bytes up to an element, which may lie in front of the first one. */
static int64_t bytes_to(int64_t element, tm_dtype dtype)
{
    int64_t bytes = (int64_t)tm_tensor_bytes(tm_shape_1(element < 0 ? -element : element), dtype);
    return element < 0 ? -bytes : bytes;
}

int64_t tm_held_bytes(const tm_shared *shared, tm_dtype dtype, int rank, int64_t first, int64_t n, int64_t *from,
                      int64_t *at)
{
    int64_t begin = bytes_to(rank * shared->share - shared->first, dtype);
    int64_t end = begin + bytes_to(shared->share, dtype);
    *from = first > begin ? first : begin;
    *at = *from - begin;
    return (end < first + n ? end : first + n) - *from;
}

bool tm_held_base(const tm_step *step, const tm_tensor *tensor)
{
    return tensor->role == TM_ROLE_PARAMETER && !tensor->trained && step->options.adapters.rank > 0;
}

/* The axes along which all ranks have the same of a tensor: those of its mesh that neither cut nor share it. */
static unsigned copies_of(const tm_tensor *tensor, unsigned shared)
{
    unsigned cut = tensor->cut ? tensor->cut->axes : 0;
    unsigned experts = 1U << TM_AXIS_EFSDP | 1U << TM_AXIS_EP, dense = TM_AXES_FSDP | 1U << TM_AXIS_TP;
    return ((cut & experts ? experts : dense) | 1U << TM_AXIS_REPLICATE) & ~cut & ~shared;
}

/* Elements of a tensor like `whole` as it is here, which lie in `in` from byte `offset` on. */
typedef struct {
    list            *to;
    const char      *name;
    const tm_tensor *whole;
    tm_dtype         dtype;
    int64_t          begin, count;
    tm_tensor_id     in;
    size_t           offset;
    unsigned         copies; /* the axes whose ranks all have them */
} held;

/* A row for elements [begin, begin + count) of them, as `part` of the tensor of `shape`. */
static void list_part(held *h, tm_shape shape, int64_t begin, int64_t count, tm_checkpoint_part part)
{
    list  *to = h->to;
    size_t bytes = tm_tensor_bytes(tm_shape_1(count), h->dtype);
    size_t at = h->offset + tm_tensor_bytes(tm_shape_1(begin - h->begin), h->dtype);
    TM_ASSERT(at + bytes <= tm_plan_place(to->step->plan, h->in).bytes);
    to->tensors = tm_grow(to->tensors, &to->capacity, to->n, sizeof *to->tensors);
    tm_checkpoint_tensor *row = &to->tensors[to->n++];
    *row = (tm_checkpoint_tensor){ .name = h->name,
                                   .dtype = (int)h->dtype,
                                   .rank = shape.rank,
                                   .memory = to->copies,
                                   .at = tm_address_add(tm_plan_address(to->step->plan, to->memory, h->in), at),
                                   .bytes = bytes,
                                   .part = part,
                                   .elsewhere =
                                       h->whole->twin || !tm_layout_first_copy(&to->step->options.layout, h->copies) };
    for (int k = 0; k < shape.rank; k++) row->n[k] = shape.n[k];
}

/* Of a tensor that is not cut: one run of its elements. */
static void list_run(held *h)
{
    size_t             whole_bytes = tm_tensor_bytes(h->whole->shape, h->dtype);
    tm_checkpoint_part part = { .whole_bytes = whole_bytes,
                                .row_bytes = whole_bytes,
                                .rows = 1,
                                .first_byte = tm_tensor_bytes(tm_shape_1(h->begin), h->dtype),
                                .row_part = tm_tensor_bytes(tm_shape_1(h->count), h->dtype) };
    if (h->count == tm_shape_elements(h->whole->shape)) part = (tm_checkpoint_part){ 0 };
    list_part(h, h->whole->shape, h->begin, h->count, part);
}

/* Elements [from, to) of a cut tensor, of which element `local` is the first one here of row `row` of the whole. Where
 * rows are whole, all of them are one run; else the rest of a row, whole rows of the part, and what is left. */
static void list_rows(held *h, int64_t from, int64_t to, int64_t local, int64_t row)
{
    const tm_cut *cut = h->whole->cut;
    size_t        size = tm_dtype_bytes(h->dtype), whole_bytes = tm_tensor_bytes(cut->whole, h->dtype);
    int64_t       columns = tm_piece_row(h->whole->shape), all = tm_piece_row(cut->whole);
    if (columns == all) {
        size_t             first = (size_t)(row * all + from - local) * size;
        tm_checkpoint_part part = { whole_bytes, whole_bytes, 0, 1, first, (size_t)(to - from) * size };
        list_part(h, cut->whole, from, to - from, part);
        return;
    }
    while (from < to) {
        int64_t            r = (from - local) / columns, c = (from - local) % columns;
        int64_t            rows = c == 0 && to - from >= columns ? (to - from) / columns : 1;
        int64_t            n = rows > 1 || to - from >= columns - c ? columns - c : to - from;
        tm_checkpoint_part part = {
            whole_bytes,     (size_t)all * size, (size_t)(row + r), (size_t)rows, (size_t)(cut->column + c) * size,
            (size_t)n * size
        };
        list_part(h, cut->whole, from, rows * n, part);
        from += rows * n;
    }
}

/* Runs of rows that follow one another in the whole, too, are one. */
static void list_cut(held *h)
{
    const tm_tensor *t = h->whole;
    int64_t          columns = tm_piece_row(t->shape);
    for (int p = 0, next; p < t->n_pieces; p = next) {
        int64_t rows = t->pieces[p].rows;
        for (next = p + 1; next < t->n_pieces && t->pieces[next].begin == t->pieces[p].begin + rows; next++)
            rows += t->pieces[next].rows;
        int64_t local = t->pieces[p].row * columns, end = local + rows * columns;
        int64_t from = h->begin > local ? h->begin : local, to = h->begin + h->count < end ? h->begin + h->count : end;
        if (from < to) list_rows(h, from, to, local, t->pieces[p].begin);
    }
}

/* Moments have the pieces of their parameter. */
static const tm_tensor *parameter_of(const tm_graph *graph, const tm_tensor *tensor)
{
    for (size_t i = 0; tensor->cut && tensor->role == TM_ROLE_MOMENT && i < graph->n_tensors; i++)
        if (graph->tensors[i].role == TM_ROLE_PARAMETER && graph->tensors[i].cut == tensor->cut)
            return &graph->tensors[i];
    return tensor;
}

static void list_tensor(list *to, tm_tensor_id id)
{
    const tm_graph  *graph = to->step->graph;
    const tm_tensor *tensor = &graph->tensors[id];
    const tm_shared *shared = tensor->shared;
    int64_t          all = tm_shape_elements(tensor->shape), begin = 0, at = 0;
    held h = { .to = to, .name = tensor->name, .whole = tensor, .dtype = tensor->dtype, .count = all, .in = id };
    if (!shared) {
        h.whole = parameter_of(graph, tensor);
        h.copies = copies_of(tensor, 0);
    } else if (shared->flat == TM_NONE) {
        h.whole = tm_graph_at(graph, shared->like);
        h.begin = shared->first;
        h.copies = copies_of(h.whole, shared->axes);
    } else {
        h.count = tm_held_run(shared, shared->rank, 0, all, &begin, &at);
        h.begin = begin;
        h.in = shared->flat;
        h.offset = tm_tensor_bytes(tm_shape_1(at), tensor->dtype);
        h.copies = copies_of(tensor, shared->axes);
        if (h.count <= 0) return;
    }
    if (h.whole->cut)
        list_cut(&h);
    else
        list_run(&h);
}

tm_checkpoint_tensor *tm_held_list(const tm_step *step, const tm_arenas *memory, const tm_checkpoint_memory *copies,
                                   size_t *n)
{
    list to = { .step = step, .memory = memory, .copies = copies };
    for (size_t i = 0; i < step->graph->n_tensors; i++) {
        const tm_tensor *tensor = &step->graph->tensors[i];
        if (tensor->role != TM_ROLE_PARAMETER && tensor->role != TM_ROLE_MOMENT && tensor->role != TM_ROLE_STATE)
            continue;
        if (tm_held_base(step, tensor)) continue; /* the model that the run began with: its hash is kept */
        list_tensor(&to, (tm_tensor_id)i);
    }
    *n = to.n;
    return to.tensors;
}
