/* SPDX-License-Identifier: Apache-2.0 */
/* encoder/weights.c - from the files of a folder into parameters. Everything is checked before the first value is
 * written: nothing missing, nothing left over, shapes and formats. */
#include "base/file.h"
#include "base/hub.h"
#include "base/text.h"
#include "data/safetensors.h"
#include "encoder/kind.h"
#include "graph/value.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFER = 1 << 20 /* elements */ };

/* --- files -------------------------------------------------------------------------------------------------------- */

static tm_status open_files(const char *folder, tm_safetensors **out, tm_error *err)
{
    static const char *const names[] = { "model.safetensors", "model.safetensors.index.json",
                                         "diffusion_pytorch_model.safetensors",
                                         "diffusion_pytorch_model.safetensors.index.json" };
    static const char *const pickled[] = { "pytorch_model.bin", "pytorch_model.bin.index.json",
                                           "diffusion_pytorch_model.bin" };
    tm_text                  path = { 0 };
    tm_status                st = tm_hub_check_weights(folder, err);
    bool                     found = false;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !found && st == TM_OK; i++) {
        path.length = 0;
        tm_text_printf(&path, "%s/%s", folder, names[i]);
        found = tm_file_exists(path.data);
        if (found) st = tm_safetensors_open(path.data, out, err);
    }
    for (size_t i = 0; i < sizeof pickled / sizeof pickled[0] && !found && st == TM_OK; i++) {
        path.length = 0;
        tm_text_printf(&path, "%s/%s", folder, pickled[i]);
        if (tm_file_exists(path.data))
            st = tm_fail(err, TM_UNSUPPORTED,
                         "'%s' holds its weights as '%s', a pickle, which is not read; write model.safetensors "
                         "(save_pretrained(..., safe_serialization=True))",
                         folder, pickled[i]);
    }
    if (!found && st == TM_OK)
        st = tm_fail(err, TM_INVALID,
                     "'%s' has no weights: neither %s nor %s, nor an index of either; download the whole folder",
                     folder, names[0], names[2]);
    tm_text_fini(&path);
    return st;
}

/* --- check -------------------------------------------------------------------------------------------------------- */

static const tm_stored_tensor *find_one(const tm_safetensors *files, const tm_frozen_row *row, const char *name)
{
    char                    full[320];
    const tm_stored_tensor *found = tm_safetensors_find(files, name);
    if (found || !row->prefix) return found;
    snprintf(full, sizeof full, "%s%s", row->prefix, name);
    return tm_safetensors_find(files, full);
}

static const tm_stored_tensor *find(const tm_safetensors *files, const tm_frozen_row *row, const char *name)
{
    const tm_stored_tensor *found = find_one(files, row, name);
    for (const char *const(*alias)[2] = row->aliases; alias && (*alias)[0] && !found; alias++)
        if (strcmp((*alias)[0], name) == 0) found = find_one(files, row, (*alias)[1]);
    return found;
}

static bool like(const char *pattern, const char *name)
{
    size_t n = strlen(pattern);
    return pattern[n - 1] == '*' ? strncmp(pattern, name, n - 1) == 0 : strcmp(pattern, name) == 0;
}

/* Names that a file may hold and nothing computes with; other names of what was found count, too. */
static bool ignored(const tm_frozen_row *row, const char *name)
{
    size_t n = row->prefix ? strlen(row->prefix) : 0;
    if (n && strncmp(row->prefix, name, n) == 0) name += n;
    for (const char *const *pattern = row->ignored; pattern && *pattern; pattern++)
        if (like(*pattern, name)) return true;
    for (const char *const(*alias)[2] = row->aliases; alias && (*alias)[0]; alias++)
        if (strcmp((*alias)[0], name) == 0 || strcmp((*alias)[1], name) == 0) return true;
    return false;
}

static tm_status check_shape(const tm_frozen_weight *w, const tm_stored_tensor *stored, tm_error *err)
{
    bool same = w->rank == stored->rank;
    for (int i = 0; same && i < w->rank; i++) same = w->n[i] == stored->n[i];
    if (!same) {
        char             found[192], wanted[192];
        tm_stored_tensor as = { .rank = w->rank };
        memcpy(as.n, w->n, sizeof w->n);
        return tm_fail(err, TM_FORMAT,
                       "'%s': tensor '%s' has the shape %s, config.json means %s; take both from one "
                       "download",
                       stored->file, stored->name, tm_stored_shape_text(found, stored),
                       tm_stored_shape_text(wanted, &as));
    }
    if (stored->dtype == TM_DTYPE_COUNT || !tm_dtype_floating(stored->dtype) || tm_dtype_bits(stored->dtype) < 16)
        return tm_fail(err, TM_UNSUPPORTED,
                       "'%s': tensor '%s' holds %s, which is not read here; save the encoder in float32, float16 or "
                       "bfloat16",
                       stored->file, stored->name, stored->dtype_name);
    return TM_OK;
}

static int by_address(const void *a, const void *b)
{
    const tm_stored_tensor *x = *(const tm_stored_tensor *const *)a, *y = *(const tm_stored_tensor *const *)b;
    return x < y ? -1 : x > y;
}

/* found[i]: the tensor of weight i. */
static tm_status check(const tm_frozen_row *row, const char *folder, const tm_frozen_program *p,
                       const tm_safetensors *files, const tm_stored_tensor **found, tm_error *err)
{
    tm_name_list            missing = { 0 }, rest = { 0 };
    tm_status               st = TM_OK;
    size_t                  n, used = 0;
    const tm_stored_tensor *all = tm_safetensors_list(files, &n), **sorted = tm_alloc((p->n_weights + 1) * sizeof *all);
    for (size_t i = 0; i < p->n_weights && st == TM_OK; i++) {
        found[i] = find(files, row, p->weights[i].name);
        if (!found[i]) tm_name_list_add(&missing, p->weights[i].name);
        if (found[i]) st = check_shape(&p->weights[i], sorted[used++] = found[i], err);
    }
    qsort(sorted, used, sizeof *sorted, by_address);
    for (size_t i = 0; i < n && st == TM_OK; i++) {
        const tm_stored_tensor *t = &all[i];
        if (used && bsearch(&t, sorted, used, sizeof *sorted, by_address)) continue;
        if (!ignored(row, t->name)) tm_name_list_add(&rest, t->name);
    }
    if (st == TM_OK && missing.n + rest.n > 0)
        st =
            tm_fail(err, TM_FORMAT,
                    "'%s': the weights are not those of its config.json: %zu missing%s%s%s, %zu unexpected%s%s%s; take "
                    "both from one download",
                    folder, missing.n, missing.n ? " (" : "", missing.n ? missing.text.data : "", missing.n ? ")" : "",
                    rest.n, rest.n ? " (" : "", rest.n ? rest.text.data : "", rest.n ? ")" : "");
    tm_text_fini(&missing.text);
    tm_text_fini(&rest.text);
    free(sorted);
    return st;
}

/* --- values ------------------------------------------------------------------------------------------------------- */

static double stored_value(const tm_stored_tensor *t, int64_t i)
{
    uint64_t element;
    size_t   bytes = tm_dtype_bytes(t->dtype);
    memcpy(&element, t->data + (size_t)i * bytes, bytes);
    return tm_value_get(&element, t->dtype, 0);
}

/* What the files of large encoders are stored in, and computed in: one element after the other would take minutes. */
static void widen(const uint8_t *from, float *to, int64_t n, int threads)
{
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t k = 0; k < n; k++) {
        uint16_t bits;
        memcpy(&bits, from + 2 * k, sizeof bits);
        to[k] = tm_bf16_value(bits);
    }
}

static void narrow(const uint8_t *from, uint16_t *to, int64_t n, int threads)
{
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t k = 0; k < n; k++) {
        float value;
        memcpy(&value, from + 4 * k, sizeof value);
        to[k] = tm_bf16_round(value);
    }
}

/* out[k] = element first + k of the weight. */
static void convert(const tm_frozen_weight *w, const tm_stored_tensor *t, int64_t first, int64_t n, tm_dtype to,
                    void *out, int threads)
{
    if (!w->from && t->dtype == to) {
        memcpy(out, t->data + (size_t)first * tm_dtype_bytes(to), (size_t)n * tm_dtype_bytes(to));
        return;
    }
    if (!w->from && t->dtype == TM_BF16 && to == TM_F32) {
        widen(t->data + 2 * first, out, n, threads);
        return;
    }
    if (!w->from && t->dtype == TM_F32 && to == TM_BF16) {
        narrow(t->data + 4 * first, out, n, threads);
        return;
    }
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t k = 0; k < n; k++)
        tm_value_set(out, to, k, stored_value(t, w->from ? w->from(w, first + k) : first + k));
}

static tm_status fill(const tm_forward *target, const tm_frozen_weight *w, const tm_stored_tensor *t, void *buffer,
                      tm_error *err)
{
    tm_dtype to = tm_graph_at(target->plan->graph, w->parameter)->dtype;
    size_t   bytes = tm_dtype_bytes(to);
    int64_t  all = 1;
    for (int i = 0; i < w->rank; i++) all *= w->n[i];
    for (int64_t first = 0; first < all; first += BUFFER) {
        int64_t n = all - first < BUFFER ? all - first : BUFFER;
        convert(w, t, first, n, to, buffer, target->threads);
        TM_TRY(
            tm_forward_write(target, w->parameter, (size_t)(w->first + first) * bytes, buffer, (size_t)n * bytes, err));
    }
    return TM_OK;
}

struct tm_frozen_files {
    tm_safetensors          *set;
    const tm_stored_tensor **found; /* of weight i */
};

tm_status tm_frozen_files_open(const char *folder, const tm_frozen_row *row, const tm_frozen_program *p,
                               tm_frozen_files **out, tm_error *err)
{
    tm_frozen_files *files = tm_alloc(sizeof *files);
    *files = (tm_frozen_files){ .found = tm_alloc((p->n_weights + 1) * sizeof *files->found) };
    *out = files;
    TM_TRY(open_files(folder, &files->set, err));
    TM_TRY(check(row, folder, p, files->set, files->found, err));
    return tm_safetensors_check(files->set, err);
}

void tm_frozen_files_close(tm_frozen_files *files)
{
    if (!files) return;
    tm_safetensors_close(files->set);
    free(files->found);
    free(files);
}

tm_status tm_frozen_load(const tm_forward *target, const tm_frozen_files *files, const tm_frozen_program *p,
                         tm_error *err)
{
    void     *buffer = tm_alloc(BUFFER * sizeof(double));
    tm_status st = TM_OK;
    for (size_t i = 0; i < p->n_weights && st == TM_OK; i++)
        st = fill(target, &p->weights[i], files->found[i], buffer, err);
    free(buffer);
    return st;
}
