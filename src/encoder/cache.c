/* SPDX-License-Identifier: Apache-2.0 */
#include "encoder/cache.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "data/safetensors.h"
#include "encoder/encoders.h"
#include "graph/value.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a file holds of its pictures, (n, ...) each. */
typedef struct {
    float  *mean, *logvar, *text, *pooled;
    int64_t n;
    tm_json captions, names; /* lists that are open */
    tm_text captions_text, names_text;
} shelf;

typedef struct {
    const tm_cache_options *o;
    tm_cache_report        *report;
    tm_encoders            *encoders;
    tm_encoders_facts       facts;
    tm_text                 encoded; /* the rules */
    float                  *pixels;
    tm_text                 bytes;        /* of a picture as it is stored */
    int64_t                 latent, text; /* elements of a picture's latents, of its text */
} work;

static void describe(work *w)
{
    const tm_cache_options *o = w->o;
    tm_text_printf(&w->encoded, "encoders %s, %lld x %lld pixels, %s, cropped from the middle, %lld text tokens, %s",
                   w->facts.model, (long long)o->width, (long long)o->height,
                   o->filter == TM_IMAGE_LANCZOS ? "lanczos" : "bilinear", (long long)o->text_len,
                   o->compute == TM_BF16 ? "bfloat16" : "float32");
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static void write_values(tm_safetensors_writer *writer, const float *values, int64_t n, tm_dtype dtype)
{
    enum { PIECE = 4096 };
    unsigned char stored[PIECE * 4];
    if (dtype == TM_F32) {
        tm_safetensors_write(writer, values, (size_t)n * sizeof *values);
        return;
    }
    for (int64_t from = 0; from < n; from += PIECE) {
        int64_t m = n - from < PIECE ? n - from : PIECE;
        for (int64_t i = 0; i < m; i++) tm_value_set(stored, dtype, i, (double)values[from + i]);
        tm_safetensors_write(writer, stored, (size_t)m * tm_dtype_bytes(dtype));
    }
}

static tm_status write_shelf(const work *w, const shelf *s, const char *path, const char *items, tm_error *err)
{
    const tm_encoders_facts *f = &w->facts;
    char                     scale[40], shift[40];
    snprintf(scale, sizeof scale, "%.17g", f->scaling_factor);
    snprintf(shift, sizeof shift, "%.17g", f->shift_factor);
    const tm_tensor_heading tensors[] = {
        { "mean", TM_F32, 4, { s->n, f->channels, f->rows, f->columns } },
        { "logvar", TM_F32, 4, { s->n, f->channels, f->rows, f->columns } },
        { "text", w->o->compute, 3, { s->n, w->o->text_len, f->text_dim } },
        { "pooled", TM_F32, 2, { s->n, f->vector_dim } },
    };
    const char *const      metadata[][2] = { { "encoded", w->encoded.data },
                                             { "items", items },
                                             { "scaling_factor", scale },
                                             { "shift_factor", shift },
                                             { "captions", s->captions_text.data },
                                             { "names", s->names_text.data },
                                             { NULL, NULL } };
    tm_safetensors_writer *writer;
    TM_TRY(tm_safetensors_create(path, tensors, 4, metadata, &writer, err));
    write_values(writer, s->mean, s->n * w->latent, TM_F32);
    write_values(writer, s->logvar, s->n * w->latent, TM_F32);
    write_values(writer, s->text, s->n * w->text, w->o->compute);
    write_values(writer, s->pooled, s->n * f->vector_dim, TM_F32);
    return tm_safetensors_finish(writer, err);
}

/* Was the file made by these rules of these pictures? One of others is an error. */
static tm_status look_for(const work *w, const char *path, const char *items, bool *there, tm_error *err)
{
    tm_safetensors *set;
    *there = tm_file_exists(path);
    if (!*there) return TM_OK;
    TM_TRY(tm_safetensors_open(path, &set, err));
    const char *encoded = tm_safetensors_metadata(set, "encoded"), *has = tm_safetensors_metadata(set, "items");
    tm_status   st = TM_OK;
    if (!encoded || strcmp(encoded, w->encoded.data) != 0)
        st =
            tm_fail(err, TM_INVALID,
                    "'%.300s' was encoded otherwise: '%.200s', now it would be '%.200s'; give another -o, or remove it",
                    path, encoded ? encoded : "not known", w->encoded.data);
    else if (!has || strcmp(has, items) != 0)
        st = tm_fail(err, TM_INVALID,
                     "'%.300s' holds other pictures or captions than '%.200s' has now; give another -o, or remove it",
                     path, w->o->pictures);
    tm_safetensors_close(set);
    return st;
}

/* --- pictures ----------------------------------------------------------------------------------------------------- */

static tm_status add_picture(work *w, tm_pictures *list, int64_t i, shelf *s, tm_error *err)
{
    const tm_image_fit fit = { .size = { (int)w->o->width, (int)w->o->height }, .filter = w->o->filter };
    tm_picture         picture = tm_pictures_at(list, i);
    tm_error           why = { 0 };
    int64_t            begin = tm_now_ns(), cut;
    tm_status          st = tm_pictures_values(list, i, &fit, &w->bytes, w->pixels, &why);
    w->report->read_seconds += (double)(tm_now_ns() - begin) * 1e-9;
    if (st != TM_OK && w->o->skip_broken) {
        w->report->broken++;
        if (w->o->broken) w->o->broken(picture.name, &why);
        return TM_OK;
    }
    if (st != TM_OK) return tm_fail(err, st, "%s; --skip-broken leaves such pictures out", why.text);
    begin = tm_now_ns();
    TM_TRY(tm_encoders_picture(w->encoders, w->pixels, s->mean + s->n * w->latent, s->logvar + s->n * w->latent, err));
    w->report->picture_seconds += (double)(tm_now_ns() - begin) * 1e-9;
    begin = tm_now_ns();
    TM_TRY(tm_encoders_text(w->encoders, picture.caption, s->text + s->n * w->text,
                            s->pooled + s->n * w->facts.vector_dim, &cut, err));
    w->report->text_seconds += (double)(tm_now_ns() - begin) * 1e-9;
    w->report->cut += cut > 0;
    w->report->pictures++;
    tm_json_string(&s->captions, NULL, picture.caption);
    tm_json_string(&s->names, NULL, picture.name);
    s->n++;
    return TM_OK;
}

static shelf open_shelf(const work *w, int64_t n)
{
    return (shelf){ .mean = tm_alloc((size_t)(n * w->latent) * sizeof(float)),
                    .logvar = tm_alloc((size_t)(n * w->latent) * sizeof(float)),
                    .text = tm_alloc((size_t)(n * w->text) * sizeof(float)),
                    .pooled = tm_alloc((size_t)(n * w->facts.vector_dim) * sizeof(float)) };
}

static void close_shelf(shelf *s)
{
    free(s->mean);
    free(s->logvar);
    free(s->text);
    free(s->pooled);
    tm_text_fini(&s->captions_text);
    tm_text_fini(&s->names_text);
}

/* One file: pictures first .. first + n - 1 of the list. */
static tm_status make_file(work *w, tm_pictures *list, int64_t first, int64_t n, const char *path, const char *items,
                           tm_error *err)
{
    shelf     s = open_shelf(w, n);
    tm_status st = TM_OK;
    s.captions = (tm_json){ .out = &s.captions_text };
    s.names = (tm_json){ .out = &s.names_text };
    tm_json_open(&s.captions, NULL, '[');
    tm_json_open(&s.names, NULL, '[');
    for (int64_t i = 0; i < n && st == TM_OK; i++) {
        if (w->o->stop && w->o->stop())
            st = tm_fail(err, TM_INTERRUPTED,
                         "interrupted; the same command goes on behind the files that are complete");
        else
            st = add_picture(w, list, first + i, &s, err);
    }
    tm_json_close(&s.captions, ']');
    tm_json_close(&s.names, ']');
    if (st == TM_OK && s.n > 0) st = write_shelf(w, &s, path, items, err);
    if (st == TM_OK && s.n > 0) w->report->files++;
    close_shelf(&s);
    return st;
}

static tm_status make_split(work *w, tm_pictures *list, const char *folder, tm_error *err)
{
    const tm_cache_options *o = w->o;
    const int64_t           count = tm_pictures_count(list), files = (count + o->per_file - 1) / o->per_file;
    tm_text                 path = { 0 };
    tm_status               st = tm_folder_make(folder, err);
    for (int64_t k = o->part; k < files && st == TM_OK; k += o->parts) {
        char    items[80];
        bool    there;
        int64_t first = k * o->per_file, n = count - first < o->per_file ? count - first : o->per_file;
        snprintf(items, sizeof items, "%016llx, %lld from %lld", (unsigned long long)tm_pictures_hash(list),
                 (long long)n, (long long)first);
        path.length = 0;
        tm_text_printf(&path, "%s/part-%05lld.safetensors", folder, (long long)k);
        st = look_for(w, path.data, items, &there, err);
        if (st == TM_OK && there) w->report->found++;
        if (st == TM_OK && !there) st = make_file(w, list, first, n, path.data, items, err);
    }
    tm_text_fini(&path);
    return st;
}

/* --- all ---------------------------------------------------------------------------------------------------------- */

static tm_status make_empty(work *w, const char *folder, tm_error *err)
{
    tm_text           path = { 0 };
    bool              there;
    shelf             s = open_shelf(w, 1);
    const char *const metadata[][2] = { { "encoded", w->encoded.data }, { "items", "the empty text" }, { NULL, NULL } };
    tm_tensor_heading tensors[] = { { "text", w->o->compute, 2, { w->o->text_len, w->facts.text_dim } },
                                    { "pooled", TM_F32, 1, { w->facts.vector_dim } } };
    tm_safetensors_writer *writer = NULL;
    tm_text_printf(&path, "%s/empty.safetensors", folder);
    tm_status st = look_for(w, path.data, "the empty text", &there, err);
    if (st == TM_OK && !there) {
        st = tm_encoders_text(w->encoders, "", s.text, s.pooled, NULL, err);
        if (st == TM_OK) st = tm_safetensors_create(path.data, tensors, 2, metadata, &writer, err);
        if (st == TM_OK) {
            write_values(writer, s.text, w->text, w->o->compute);
            write_values(writer, s.pooled, w->facts.vector_dim, TM_F32);
            st = tm_safetensors_finish(writer, err);
        }
    }
    close_shelf(&s);
    tm_text_fini(&path);
    return st;
}

static tm_status make_all(work *w, tm_pictures *lists[2], tm_error *err)
{
    static const char *const folders[] = { "train", "validation" };
    tm_text                  folder = { 0 };
    tm_status                st = TM_OK;
    for (int k = 0; k < 2 && st == TM_OK; k++) {
        if (tm_pictures_count(lists[k]) == 0) continue;
        folder.length = 0;
        tm_text_printf(&folder, "%s/%s", w->o->out, folders[k]);
        st = make_split(w, lists[k], folder.data, err);
        if (st == TM_OK && k == 0 && w->o->part == 0) st = make_empty(w, folder.data, err);
    }
    w->report->held_out = tm_pictures_count(lists[1]);
    tm_text_fini(&folder);
    return st;
}

static tm_status open_lists(const tm_cache_options *o, tm_pictures *lists[2], tm_error *err)
{
    for (int k = 0; k < 2; k++) {
        tm_picture_options list = o->list;
        list.split = k ? TM_SPLIT_VALIDATION : TM_SPLIT_TRAIN;
        TM_TRY(tm_pictures_open(o->pictures, &list, &lists[k], err));
    }
    return TM_OK;
}

tm_status tm_cache_make(tm_device *device, const tm_cache_options *o, tm_cache_report *report, tm_error *err)
{
    const tm_encoders_form form = {
        .height = o->height, .width = o->width, .text_len = o->text_len, .compute = o->compute
    };
    tm_pictures *lists[2] = { NULL, NULL };
    work         w = { .o = o, .report = report };
    *report = (tm_cache_report){ 0 };
    tm_status st = open_lists(o, lists, err);
    if (st == TM_OK) st = tm_encoders_open(device, o->model, &form, &w.encoders, err);
    if (st == TM_OK) {
        w.facts = *tm_encoders_describe(w.encoders);
        w.latent = w.facts.channels * w.facts.rows * w.facts.columns;
        w.text = o->text_len * w.facts.text_dim;
        w.pixels = tm_alloc((size_t)(3 * o->width * o->height) * sizeof *w.pixels);
        report->bytes = (int64_t)tm_encoders_bytes(w.encoders);
        describe(&w);
        st = make_all(&w, lists, err);
    }
    for (int k = 0; k < 2; k++) tm_pictures_close(lists[k]);
    tm_encoders_close(w.encoders);
    tm_text_fini(&w.encoded);
    tm_text_fini(&w.bytes);
    free(w.pixels);
    return st;
}
