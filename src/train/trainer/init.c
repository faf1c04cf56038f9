/* SPDX-License-Identifier: Apache-2.0 */
#include "train/trainer/init.h"

#include "base/arena.h"
#include "base/progress.h"
#include "base/random.h"
#include "graph/cut.h"
#include "graph/value.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK = 4096 /* elements of a task */, BUFFER = 4 << 20 };

/* Values on their way: made in a buffer and copied from there; when the buffer is full everything is waited for. */
typedef struct {
    tm_device *device;
    tm_address to; /* of the tensor */
    tm_dtype   dtype;
    char      *buffer; /* BUFFER bytes */
    size_t     used;
    uint64_t   seed;
    int        threads;
    int64_t    begin, end; /* elements of the tensor that are here; `to` is where the first of them lies */

    tm_progress progress;
} filler;

static int64_t most_elements(const filler *f)
{
    return (int64_t)BUFFER * 8 / tm_dtype_bits(f->dtype) / BLOCK * BLOCK;
}

/* Room for `n` elements. */
static tm_status take(filler *f, int64_t n, void **out, tm_error *err)
{
    size_t bytes = (tm_tensor_bytes(tm_shape_1(n), f->dtype) + 63) / 64 * 64;
    if (f->used + bytes > BUFFER) {
        TM_TRY(tm_device_wait(f->device, err)); /* before the buffer is written again */
        f->used = 0;
    }
    *out = f->buffer + f->used;
    f->used += bytes;
    return TM_OK;
}

/* Elements [first, first + n) of the tensor. */
static tm_status send(const filler *f, int64_t first, int64_t n, const void *values, tm_error *err)
{
    int64_t from = first > f->begin ? first : f->begin, to = first + n < f->end ? first + n : f->end;
    int64_t bits = (from - f->begin) * tm_dtype_bits(f->dtype), skipped = (from - first) * tm_dtype_bits(f->dtype);
    TM_ASSERT(bits % 8 == 0 && skipped % 8 == 0);
    if (from >= to) return TM_OK;
    return tm_device_write(f->device, tm_address_add(f->to, (size_t)bits / 8), (const char *)values + skipped / 8,
                           tm_tensor_bytes(tm_shape_1(to - from), f->dtype), err);
}

/* Numbers of a piece: of each row all, or, of a parameter that is cut, the columns that are here, as in the whole. */
static tm_random_rows numbers_of(const filler *f, const tm_tensor *tensor, const tm_piece *piece)
{
    tm_random_rows rows = { .seed = f->seed,
                            .stream = tm_random_stream(piece->name),
                            .mean = piece->mean,
                            .std = piece->std,
                            .cut = piece->cut,
                            .uniform = piece->uniform,
                            .columns = tm_piece_row(tensor->shape) };
    rows.ld = tensor->cut ? tm_piece_row(tensor->cut->whole) : rows.columns;
    if (tensor->cut) rows.first = piece->first * rows.ld + tensor->cut->column;
    return rows;
}

static tm_status fill_piece(const filler *f, const tm_tensor *tensor, const tm_piece *piece, tm_error *err)
{
    tm_random_rows rows = numbers_of(f, tensor, piece);
    int64_t        begin = piece->row * rows.columns, end = begin + piece->rows * rows.columns;
    int64_t        from = begin > f->begin ? begin : f->begin, to = end < f->end ? end : f->end;
    if (from >= to) return TM_OK;
    size_t skipped = tm_tensor_bytes(tm_shape_1(from - f->begin), f->dtype);
    return tm_device_draw(f->device, tm_address_add(f->to, skipped), f->dtype, &rows, from - begin, to - from, err);
}

static tm_status fill_constant(filler *f, const tm_tensor *tensor, tm_error *err)
{
    int64_t all = tm_shape_elements(tensor->shape), most = most_elements(f);
    for (int64_t from = 0; from < all; from += most) {
        int64_t n = all - from < most ? all - from : most;
        void   *values;
        TM_TRY(take(f, n, &values, err));
        for (int64_t k = 0; k < n; k++) tm_value_set(values, f->dtype, k, tensor->fill(tensor->fill_context, from + k));
        TM_TRY(send(f, from, n, values, err));
    }
    return TM_OK;
}

/* --- formats of blocks: made as float32, then quantized ----------------------------------------------------------- */

typedef struct {
    filler          *filler;
    const tm_tensor *tensor;
    int64_t          begin; /* of the run that is quantized, in the tensor */
    size_t           at;    /* its first byte */
    char            *keep;  /* where the bytes of the tensor are kept, of a whole one that is not here */
} blocked_run;

static void blocked_values(void *context, int64_t first, int64_t n, float *out)
{
    const blocked_run *run = context;
    int64_t            row = tm_piece_row(run->tensor->shape), begin = run->begin + first, end = begin + n;
    for (int p = 0; p < run->tensor->n_pieces; p++) {
        const tm_piece *piece = &run->tensor->pieces[p];
        int64_t         from = piece->row * row, to = from + piece->rows * row;
        int64_t         a = from > begin ? from : begin, b = to < end ? to : end;
        tm_random_rows  rows = numbers_of(run->filler, run->tensor, piece);
#pragma omp parallel for schedule(static) num_threads(run->filler->threads)
        for (int64_t k = a; k < b; k += BLOCK)
            tm_random_make(&rows, k - from, b - k < BLOCK ? b - k : BLOCK, out + (k - begin));
    }
}

static tm_status blocked_write(void *context, size_t offset, const void *bytes, size_t n, tm_error *err)
{
    const blocked_run *run = context;
    const filler      *f = run->filler;
    /* of the tensor: those that are here, and of these the ones that came */
    size_t begin = tm_blocked_bytes(f->dtype, f->begin), end = tm_blocked_bytes(f->dtype, f->end);
    size_t first = run->at + offset, from = first > begin ? first : begin, to = first + n < end ? first + n : end;
    if (from >= to) return TM_OK;
    TM_TRY(tm_device_write(f->device, tm_address_add(f->to, from - begin), (const char *)bytes + (from - first),
                           to - from, err));
    return tm_device_wait(f->device, err);
}

static tm_status fill_blocked(filler *f, const tm_tensor *tensor, tm_error *err)
{
    int64_t all = tm_shape_elements(tensor->shape);
    for (int64_t begin = 0; begin < all;) {
        int64_t     end = tm_nf4_run_end(tensor, begin);
        blocked_run run = { f, tensor, begin, tm_blocked_bytes(tensor->dtype, begin), NULL };
        tm_nf4_io   io = { blocked_values, blocked_write, &run, f->threads };
        if (begin < f->end && end > f->begin) TM_TRY(tm_blocked_store(tensor->dtype, &io, end - begin, err));
        begin = end;
    }
    return TM_OK;
}

static tm_status blocked_keep(void *context, size_t offset, const void *bytes, size_t n, tm_error *err)
{
    const blocked_run *run = context;
    (void)err;
    memcpy(run->keep + run->at + offset, bytes, n);
    return TM_OK;
}

/* Of a parameter that is cut: the whole is quantized, and of that the blocks are taken that are here. */
static tm_status fill_cut_blocked(filler *f, const tm_tensor *tensor, tm_error *err)
{
    tm_arena *arena = tm_arena_create();
    tm_tensor whole = tm_cut_whole(arena, tensor);
    size_t    first = tm_blocked_bytes(tensor->dtype, f->begin), end = tm_blocked_bytes(tensor->dtype, f->end);
    char     *all = tm_alloc(tm_tensor_bytes(whole.shape, whole.dtype));
    char     *here = tm_alloc(tm_tensor_bytes(tensor->shape, tensor->dtype));
    tm_status st = TM_OK;
    for (int64_t begin = 0, n = tm_shape_elements(whole.shape); begin < n && st == TM_OK;) {
        int64_t     to = tm_nf4_run_end(&whole, begin);
        blocked_run run = { f, &whole, begin, tm_blocked_bytes(whole.dtype, begin), all };
        tm_nf4_io   io = { blocked_values, blocked_keep, &run, f->threads };
        st = tm_blocked_store(whole.dtype, &io, to - begin, err);
        begin = to;
    }
    if (st == TM_OK) tm_cut_take_blocks(tensor, whole.dtype, all, here);
    if (st == TM_OK) st = tm_device_write(f->device, f->to, here + first, end - first, err);
    if (st == TM_OK) st = tm_device_wait(f->device, err);
    free(here);
    free(all);
    tm_arena_destroy(arena);
    return st;
}

static tm_status fill_tensor(filler *f, const tm_tensor *tensor, tm_error *err)
{
    f->dtype = tensor->dtype;
    if (tm_dtype_blocked(tensor->dtype) && tensor->cut && !tm_cut_between_pieces(tensor))
        return fill_cut_blocked(f, tensor, err);
    if (tm_dtype_blocked(tensor->dtype)) return fill_blocked(f, tensor, err);
    if (tensor->role == TM_ROLE_CONSTANT) return fill_constant(f, tensor, err);
    for (int p = 0; p < tensor->n_pieces; p++) TM_TRY(fill_piece(f, tensor, &tensor->pieces[p], err));
    return TM_OK;
}

/* Where a tensor lies, or this rank's part of it; false: nothing of it is here. */
static bool find_place(const tm_plan *plan, const tm_arenas *memory, tm_tensor_id id, filler *f)
{
    const tm_tensor *tensor = tm_graph_at(plan->graph, id);
    const tm_shared *shared = tensor->shared;
    f->begin = 0;
    f->end = tm_shape_elements(tensor->shape);
    if (!tm_graph_elsewhere(tensor)) {
        f->to = tm_plan_address(plan, memory, id);
        return true;
    }
    int64_t own = shared->rank * shared->share - shared->first; /* the share's first element, counted in the tensor */
    size_t  skipped = own < 0 ? tm_tensor_bytes(tm_shape_1(-own), tensor->dtype) : 0;
    if (own > 0) f->begin = own;
    if (own + shared->share < f->end) f->end = own + shared->share;
    f->to = tm_address_add(tm_plan_address(plan, memory, shared->flat), skipped);
    return f->begin < f->end;
}

/* Has the tensor values of its own, in a fill of constants alone or of parameters, too? */
static bool is_filled(const tm_graph *graph, const tm_tensor *tensor, bool parameters)
{
    if (tensor->role != TM_ROLE_CONSTANT && !(parameters && tensor->role == TM_ROLE_PARAMETER)) return false;
    return tensor->base == TM_NONE || tm_graph_at(graph, tensor->base)->role == TM_ROLE_UNIT;
}

static tm_status fill_roles(const tm_plan *plan, tm_device *device, const tm_arenas *memory, uint64_t seed, int threads,
                            bool parameters, tm_error *err)
{
    const tm_graph *graph = plan->graph;
    filler          f = { .device = device, .buffer = tm_alloc(BUFFER), .seed = seed, .threads = threads };
    tm_status       st = TM_OK;
    int64_t         all = 0;
    for (size_t i = 0; i < graph->n_tensors; i++)
        if (is_filled(graph, &graph->tensors[i], parameters) && find_place(plan, memory, (tm_tensor_id)i, &f))
            all += (int64_t)tm_tensor_bytes(tm_shape_1(f.end - f.begin), graph->tensors[i].dtype);
    f.progress = tm_progress_begin("initial values", all);
    for (size_t i = 0; i < graph->n_tensors && st == TM_OK; i++) {
        if (!is_filled(graph, &graph->tensors[i], parameters) || !find_place(plan, memory, (tm_tensor_id)i, &f))
            continue;
        st = fill_tensor(&f, &graph->tensors[i], err);
        tm_progress_add(&f.progress, (int64_t)tm_tensor_bytes(tm_shape_1(f.end - f.begin), graph->tensors[i].dtype));
    }
    if (st == TM_OK) st = tm_device_wait(device, err);
    free(f.buffer);
    return st;
}

tm_status tm_init_fill(const tm_plan *plan, tm_device *device, const tm_arenas *memory, uint64_t seed, int threads,
                       tm_error *err)
{
    return fill_roles(plan, device, memory, seed, threads, true, err);
}

tm_status tm_init_constants(const tm_plan *plan, tm_device *device, const tm_arenas *memory, int threads, tm_error *err)
{
    return fill_roles(plan, device, memory, 0, threads, false, err);
}
