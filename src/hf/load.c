/* SPDX-License-Identifier: Apache-2.0 */
/* hf/load.c - from the files of a folder into parameters. Everything is checked before the first value is written. */
#include "base/cpu.h"
#include "base/progress.h"
#include "graph/cut.h"
#include "hf/convert.h"
#include "hf/folder.h"
#include "hf/layout.h"
#include "hf/merge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFER = 4 << 20 };

/* --- check -------------------------------------------------------------------------------------------------------- */

tm_status tm_hf_check_shape(const tm_hf_entry *entry, const tm_stored_tensor *stored, tm_error *err)
{
    bool same = entry->rank == stored->rank;
    for (int i = 0; same && i < entry->rank; i++) same = entry->n[i] == stored->n[i];
    if (!same) {
        char             found[192], wanted[192];
        tm_stored_tensor like = { .rank = entry->rank };
        memcpy(like.n, entry->n, sizeof entry->n);
        return tm_fail(err, TM_FORMAT, "'%s': tensor '%s' has the shape %s, the model needs %s", stored->file,
                       stored->name, tm_stored_shape_text(found, stored), tm_stored_shape_text(wanted, &like));
    }
    if (stored->dtype == TM_DTYPE_COUNT || !tm_dtype_floating(stored->dtype))
        return tm_fail(err, TM_UNSUPPORTED, "'%s': tensor '%s' holds %s, which is not a format of weights",
                       stored->file, stored->name, stored->dtype_name);
    return TM_OK;
}

static bool ignored(const tm_hf_form *form, const char *name)
{
    static const char *const frequencies[] = { "model.layers.{l}.self_attn.rotary_emb.inv_freq",
                                               "model.rotary_emb.inv_freq" }; /* config.json says them */
    int64_t                  numbers[2];
    for (size_t i = 0; i < sizeof frequencies / sizeof frequencies[0]; i++)
        if (tm_hf_matches(frequencies[i], name, numbers)) return true;
    size_t n = form->prefix ? strlen(form->prefix) : 0;
    for (const char *const *pattern = form->ignored; pattern && *pattern; pattern++)
        if (tm_hf_matches(*pattern, name, numbers) ||
            (n && strncmp(name, form->prefix, n) == 0 && tm_hf_matches(*pattern, name + n, numbers)))
            return true;
    return false;
}

/* A tied head that is in the files all the same is the table's copy. */
static tm_status check_tied(const tm_hf_form *form, const tm_safetensors *weights, const tm_stored_tensor *head,
                            bool *is, tm_error *err)
{
    *is = form->tied_head && strcmp(head->name, form->tied_head) == 0;
    if (!*is) return TM_OK;
    const tm_stored_tensor *table = tm_hf_find(weights, form, form->tied_to);
    if (table && table->dtype == head->dtype && table->bytes == head->bytes &&
        (head->bytes == 0 || memcmp(table->data, head->data, head->bytes) == 0))
        return TM_OK;
    return tm_fail(
        err, TM_FORMAT,
        "'%s' holds '%s', which differs from '%s', though tie_word_embeddings says that they are one; set it "
        "to false in config.json, or remove the tensor",
        head->file, head->name, form->tied_to);
}

static void note_format(tm_hf_report *report, const char *name)
{
    size_t at = strlen(report->formats), n = strlen(name);
    for (const char *p = report->formats; (p = strstr(p, name)); p += n)
        if ((p == report->formats || p[-1] == ' ') && (p[n] == ',' || !p[n])) return;
    snprintf(report->formats + at, sizeof report->formats - at, "%s%s", at ? ", " : "", name);
}

static int by_address(const void *a, const void *b)
{
    const tm_stored_tensor *x = *(const tm_stored_tensor *const *)a, *y = *(const tm_stored_tensor *const *)b;
    return x < y ? -1 : x > y;
}

/* The table of a tied model may be in the files under the head's name only. */
static const tm_stored_tensor *find(const tm_hf_memory *memory, const char *name, const tm_safetensors *weights)
{
    const tm_hf_form       *form = memory->form;
    const tm_stored_tensor *found = tm_hf_find(weights, form, name);
    if (found || !memory->shape->tied || !form->tied_to || strcmp(name, form->tied_to) != 0) return found;
    return tm_safetensors_find(weights, form->tied_head);
}

/* found[i]: the tensor of entries[i]. */
static tm_status find_all(const tm_hf_memory *memory, const tm_hf_layout *layout, const tm_safetensors *weights,
                          const tm_stored_tensor **found, tm_hf_report *report, tm_name_list *missing, tm_error *err)
{
    for (size_t i = 0; i < layout->n; i++) {
        found[i] = find(memory, layout->entries[i].name, weights);
        if (!found[i]) {
            tm_name_list_add(missing, layout->entries[i].name);
            continue;
        }
        TM_TRY(tm_hf_check_shape(&layout->entries[i], found[i], err));
        report->tensors++;
        report->elements += layout->entries[i].elements;
        report->bytes += (int64_t)found[i]->bytes;
        note_format(report, found[i]->dtype_name);
    }
    return TM_OK;
}

/* What the files hold beside `used` (sorted by address). */
static tm_status find_rest(const tm_hf_memory *memory, const tm_safetensors *weights,
                           const tm_stored_tensor *const *used, size_t n_used, tm_hf_report *report,
                           tm_name_list *unexpected, tm_error *err)
{
    size_t                  n;
    const tm_stored_tensor *all = tm_safetensors_list(weights, &n);
    for (size_t i = 0; i < n; i++) {
        const tm_stored_tensor *t = &all[i];
        bool                    tied = false;
        if (n_used && bsearch(&t, used, n_used, sizeof *used, by_address)) continue;
        if (memory->shape->tied) TM_TRY(check_tied(memory->form, weights, t, &tied, err));
        if (tied || ignored(memory->form, t->name))
            report->ignored++;
        else
            tm_name_list_add(unexpected, t->name);
    }
    return TM_OK;
}

tm_status tm_hf_check(const tm_hf_memory *memory, const tm_hf_layout *layout, const tm_safetensors *weights,
                      const tm_stored_tensor **found, tm_hf_report *report, tm_error *err)
{
    tm_name_list missing = { 0 }, unexpected = { 0 };
    size_t       n = 0;
    *report = (tm_hf_report){ 0 };
    tm_status                st = find_all(memory, layout, weights, found, report, &missing, err);
    const tm_stored_tensor **used = tm_alloc((layout->n + 1) * sizeof *used);
    for (size_t i = 0; i < layout->n; i++)
        if (found[i]) used[n++] = found[i];
    qsort(used, n, sizeof *used, by_address);
    if (st == TM_OK) st = find_rest(memory, weights, used, n, report, &unexpected, err);
    if (st == TM_OK && missing.n + unexpected.n > 0)
        st = tm_fail(err, TM_FORMAT, "the weights do not fit the model: %zu missing%s%s%s, %zu unexpected%s%s%s",
                     missing.n, missing.n ? " (" : "", missing.n ? missing.text.data : "", missing.n ? ")" : "",
                     unexpected.n, unexpected.n ? " (" : "", unexpected.n ? unexpected.text.data : "",
                     unexpected.n ? ")" : "");
    tm_text_fini(&missing.text);
    tm_text_fini(&unexpected.text);
    free(used);
    return st;
}

/* --- convert ------------------------------------------------------------------------------------------------------ */

typedef struct {
    const tm_stored_tensor *stored;
    const tm_hf_slice      *slice;
    tm_dtype                to;
} conversion;

/* Row r of the slice to element `at` of `out`. */
static void convert_row(const conversion *c, int64_t r, void *out, int64_t at)
{
    const tm_hf_slice *s = c->slice;
    tm_stored_convert(c->stored, s->start + tm_hf_row(s, r) * s->row_step + s->column * s->column_step, s->column_step,
                      s->columns, c->to, out, at);
}

static tm_status load_slice(const tm_hf_memory *memory, const conversion *c, int threads, void *buffer, tm_error *err)
{
    const tm_hf_slice *s = c->slice;
    int64_t            bits = tm_dtype_bits(c->to), fit = (int64_t)BUFFER * 8 / (bits * s->columns);
    if (fit < 1)
        return tm_fail(err, TM_UNSUPPORTED, "a row of '%s' has %lld elements, more than fit a buffer of %d bytes",
                       s->piece, (long long)s->columns, BUFFER);
    if (fit > 2) fit = fit / 2 * 2; /* whole bytes of 4-bit elements */
    for (int64_t row = 0; row < s->rows; row += fit) {
        int64_t n = s->rows - row < fit ? s->rows - row : fit, from = (s->first + row * s->columns) * bits;
        TM_ASSERT(from % 8 == 0);
#pragma omp parallel for schedule(static) num_threads(bits < 8 ? 1 : threads)
        for (int64_t r = 0; r < n; r++) convert_row(c, row + r, buffer, r * s->columns);
        TM_TRY(memory->write(memory, s->parameter, (size_t)from / 8, buffer, (size_t)((n * s->columns * bits + 7) / 8),
                             err));
    }
    return TM_OK;
}

/* --- formats of blocks: whole parameters -------------------------------------------------------------------------- */

typedef struct {
    const tm_hf_memory *memory;
    conversion         *slices; /* of the parameter, in the order of its elements */
    size_t              n;
    int64_t             begin; /* of the run that is quantized */
    tm_dtype            dtype;
    int                 threads;
    char               *keep; /* where the bytes are kept, of a whole one that is not here */
} blocked_run;

/* Elements [first, first + n) of the run; rows of a file need not lie as ours do. */
static void blocked_values(void *context, int64_t first, int64_t n, float *out)
{
    const blocked_run *run = context;
    int64_t            begin = run->begin + first, end = begin + n;
    for (size_t i = 0; i < run->n; i++) {
        const tm_hf_slice *s = run->slices[i].slice;
        int64_t            from = s->first > begin ? s->first : begin, to = s->first + s->rows * s->columns;
        if (to > end) to = end;
        if (from >= to) continue;
        int64_t row = (from - s->first) / s->columns, last = (to - 1 - s->first) / s->columns;
#pragma omp parallel for schedule(static) num_threads(run->threads)
        for (int64_t r = row; r <= last; r++) {
            int64_t at = s->first + r * s->columns, a = at > from ? at : from;
            int64_t b = at + s->columns < to ? at + s->columns : to;
            tm_stored_convert(run->slices[i].stored,
                              s->start + tm_hf_row(s, r) * s->row_step + (s->column + a - at) * s->column_step,
                              s->column_step, b - a, TM_F32, out, a - begin);
        }
    }
}

static tm_status blocked_write(void *context, size_t offset, const void *bytes, size_t n, tm_error *err)
{
    const blocked_run *run = context;
    return run->memory->write(run->memory, run->slices[0].slice->parameter,
                              tm_blocked_bytes(run->dtype, run->begin) + offset, bytes, n, err);
}

static tm_status blocked_keep(void *context, size_t offset, const void *bytes, size_t n, tm_error *err)
{
    const blocked_run *run = context;
    (void)err;
    memcpy(run->keep + tm_blocked_bytes(run->dtype, run->begin) + offset, bytes, n);
    return TM_OK;
}

/* Quantizes a whole tensor, parameter `id` of the graph that the layout is of, into the parameter or into `keep`. */
static tm_status quantize(blocked_run *run, const tm_tensor *tensor, const tm_hf_layout *layout,
                          const tm_stored_tensor *const *found, tm_tensor_id id, tm_error *err)
{
    size_t    capacity = 0;
    tm_status st = TM_OK;
    for (size_t i = 0; i < layout->n; i++)
        for (size_t k = 0; k < layout->entries[i].n_slices; k++) {
            const tm_hf_slice *slice = &layout->entries[i].slices[k];
            if (slice->parameter != id) continue;
            run->slices = tm_grow(run->slices, &capacity, run->n, sizeof *run->slices);
            run->slices[run->n++] = (conversion){ found[i], slice, TM_F32 };
        }
    for (int64_t all = tm_shape_elements(tensor->shape); st == TM_OK && run->n > 0 && run->begin < all;) {
        int64_t   end = tm_nf4_run_end(tensor, run->begin);
        tm_nf4_io io = { blocked_values, run->keep ? blocked_keep : blocked_write, run, run->threads };
        st = tm_blocked_store(run->dtype, &io, end - run->begin, err);
        run->begin = end;
    }
    free(run->slices);
    return st;
}

/* Of a parameter that is cut: the whole is quantized, and of that the blocks are taken that are here. */
static tm_status load_cut_blocked(const tm_hf_memory *memory, const tm_graph *graph, const tm_hf_layout *layout,
                                  const tm_stored_tensor *const *found, tm_tensor_id id, int threads, tm_error *err)
{
    const tm_tensor *here = tm_graph_at(memory->graph, id), *whole = NULL;
    tm_tensor_id     of = 0;
    for (; !whole && (size_t)of < graph->n_tensors; of++)
        if (strcmp(graph->tensors[of].name, here->name) == 0) whole = &graph->tensors[of];
    TM_ASSERT(whole);
    blocked_run run = { .memory = memory, .dtype = tm_cut_blocked_whole(here->dtype), .threads = threads };
    size_t      bytes = tm_tensor_bytes(here->shape, here->dtype);
    run.keep = tm_alloc(tm_tensor_bytes(whole->shape, run.dtype));
    char     *out = tm_alloc(bytes);
    tm_status st = quantize(&run, whole, layout, found, of - 1, err);
    if (st == TM_OK) tm_cut_take_blocks(here, run.dtype, run.keep, out);
    for (size_t done = 0; done < bytes && st == TM_OK; done += BUFFER)
        st = memory->write(memory, id, done, out + done, bytes - done < BUFFER ? bytes - done : BUFFER, err);
    free(out);
    free(run.keep);
    return st;
}

/* Do the files say anything of it? Those of adapters do not. */
static bool is_in(const tm_hf_layout *layout, tm_tensor_id id)
{
    bool any = false;
    for (size_t i = 0; i < layout->n && !any; i++)
        for (size_t k = 0; k < layout->entries[i].n_slices; k++)
            any = any || layout->entries[i].slices[k].parameter == id;
    return any;
}

/* `graph`, `whole`: the whole model and its layout; made when they are first needed. */
static tm_status load_blocked(const tm_hf_memory *memory, const tm_hf_layout *layout,
                              const tm_stored_tensor *const *found, tm_tensor_id id, int threads, tm_graph **graph,
                              tm_hf_layout **whole, tm_error *err)
{
    const tm_tensor *tensor = tm_graph_at(memory->graph, id);
    blocked_run      run = { .memory = memory, .dtype = tensor->dtype, .threads = threads };
    tm_model         model;
    if (!tensor->cut || tm_cut_between_pieces(tensor)) return quantize(&run, tensor, layout, found, id, err);
    if (!*graph) {
        *graph = tm_graph_create(memory->graph->precision);
        tm_model_declare(*graph, memory->shape, 1, NULL, &model);
        TM_TRY(tm_hf_layout_create(*graph, memory->shape, memory->form, whole, err));
    }
    return load_cut_blocked(memory, *graph, *whole, found, id, threads, err);
}

/* All slices of an entry, from its tensor, or from that with an adapter added. */
static tm_status load_entry(const tm_hf_memory *memory, const tm_hf_entry *entry, const tm_stored_tensor *stored,
                            int threads, void *buffer, tm_error *err)
{
    const tm_stored_tensor *adapter[TM_HF_PARTS] = { NULL };
    tm_stored_tensor        merged = *stored;
    float                  *values = NULL;
    tm_status               st = TM_OK;
    if (memory->adapter) TM_TRY(tm_hf_merge_finds(memory->adapter, memory->form, entry, adapter, err));
    if (adapter[0]) {
        values = tm_alloc((size_t)entry->elements * sizeof *values);
        tm_hf_merge(memory->adapter, memory->form, entry, stored, adapter, threads, values);
        merged.dtype = TM_F32;
        merged.data = (const uint8_t *)values;
        merged.bytes = (size_t)entry->elements * sizeof *values;
    }
    for (size_t k = 0; k < entry->n_slices && st == TM_OK; k++) {
        const tm_hf_slice *slice = &entry->slices[k];
        conversion         c = { &merged, slice, tm_graph_at(memory->graph, slice->parameter)->dtype };
        if (!tm_dtype_blocked(c.to)) st = load_slice(memory, &c, threads, buffer, err);
    }
    free(values);
    return st;
}

/* Bytes of an entry here, of parameters in formats of blocks or of the others. */
static int64_t bytes_here(const tm_graph *graph, const tm_hf_entry *entry, bool blocked)
{
    int64_t bytes = 0;
    for (size_t k = 0; k < entry->n_slices; k++) {
        const tm_hf_slice *s = &entry->slices[k];
        tm_dtype           dtype = tm_graph_at(graph, s->parameter)->dtype;
        if (tm_dtype_blocked(dtype) == blocked) bytes += s->rows * s->columns * tm_dtype_bits(dtype) / 8;
    }
    return bytes;
}

tm_status tm_hf_fill(const tm_hf_memory *memory, const tm_hf_layout *layout, const tm_stored_tensor *const *found,
                     int threads, tm_error *err)
{
    void     *buffer = tm_alloc(BUFFER);
    tm_status st = TM_OK;
    int64_t   all = 0;
    for (size_t i = 0; i < layout->n; i++)
        for (int blocked = 0; blocked < 2; blocked++) all += bytes_here(memory->graph, &layout->entries[i], blocked);
    tm_progress progress = tm_progress_begin("reading weights", all);
    for (size_t i = 0; i < layout->n && st == TM_OK; i++) {
        st = load_entry(memory, &layout->entries[i], found[i], threads, buffer, err);
        tm_progress_add(&progress, bytes_here(memory->graph, &layout->entries[i], false));
    }
    free(buffer);
    tm_graph     *graph = NULL;
    tm_hf_layout *whole = NULL;
    for (size_t id = 0; id < memory->graph->n_tensors && st == TM_OK; id++) {
        const tm_tensor *tensor = &memory->graph->tensors[id];
        if (tm_dtype_blocked(tensor->dtype) && is_in(layout, (tm_tensor_id)id))
            st = load_blocked(memory, layout, found, (tm_tensor_id)id, threads, &graph, &whole, err);
        if (tm_dtype_blocked(tensor->dtype))
            tm_progress_add(&progress, tm_shape_elements(tensor->shape) * tm_dtype_bits(tensor->dtype) / 8);
    }
    tm_hf_layout_destroy(whole);
    tm_graph_destroy(graph);
    return st;
}

static tm_status read_adapted(void *context, tm_tensor_id id, size_t offset, void *to, size_t bytes, tm_error *err)
{
    const tm_hf_memory *memory = context;
    return memory->read(memory, id, offset, to, bytes, err);
}

static tm_status write_adapted(void *context, tm_tensor_id id, size_t offset, const void *from, size_t bytes,
                               tm_error *err)
{
    const tm_hf_memory *memory = context;
    return memory->write(memory, id, offset, from, bytes, err);
}

static tm_status sum_adapted(void *context, unsigned axes, double *values, size_t n, tm_error *err)
{
    const tm_hf_memory *memory = context;
    return memory->sum(memory, axes, values, n, err);
}

/* Adapters stand beside other weights than before: DoRA begins with their lengths. */
static tm_status measure_adapted(const tm_hf_memory *memory, tm_error *err)
{
    tm_hf_memory       own = *memory;
    tm_adapters_memory adapted = { read_adapted, write_adapted, sum_adapted, &own };
    return tm_adapters_measure(memory->graph, &adapted, err);
}

tm_status tm_hf_load(const tm_hf_memory *memory, const tm_safetensors *weights, int threads, tm_hf_report *report,
                     tm_error *err)
{
    tm_hf_layout *layout;
    TM_TRY(tm_hf_part_layout_create(memory->graph, memory->shape, memory->form, &layout, err));
    const tm_stored_tensor **found = tm_alloc((layout->n + 1) * sizeof *found);
    tm_status                st = tm_hf_check(memory, layout, weights, found, report, err);
    if (st == TM_OK) st = tm_safetensors_check(weights, err);
    if (st == TM_OK) st = tm_hf_fill(memory, layout, found, threads > 0 ? threads : tm_cpu_threads_allowed(), err);
    if (st == TM_OK) st = measure_adapted(memory, err);
    free(found);
    tm_hf_layout_destroy(layout);
    return st;
}
