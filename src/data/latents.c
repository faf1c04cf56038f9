/* SPDX-License-Identifier: Apache-2.0 */
/* data/latents.c - images and texts that were encoded before: a folder of safetensors files (docs/flux.md).
 *
 * Every file holds some samples, along the first axis of its tensors:
 *   latents (n, tokens, channels), packed; or mean and logvar (n, C, 2 rows, 2 columns) of the encoder's normal
 *       distribution, 4 C = channels: then each use of a sample draws its latents anew,
 *       latent = scale (mean + exp(logvar / 2) e - shift), token (row, column) = (channel, y, x) of its 2 x 2;
 *       scale and shift are the metadata scaling_factor and shift_factor of the file, else FLUX.1's 0.3611 and 0.1159
 *   text (n, text_len, text_dim), pooled (n, vector_dim); or under MLPerf's names t5_encodings, clip_encodings
 * empty.safetensors holds text and pooled of the empty text, with or without an axis of 1: what texts that are left out
 * are replaced by.
 */
#include "base/arena.h"
#include "base/file_list.h"
#include "data/flow.h"
#include "base/map.h"
#include "data/safetensors.h"
#include "data/source_kind.h"
#include "graph/value.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A file, and the tensors of its samples. */
typedef struct {
    tm_safetensors         *set;
    const tm_stored_tensor *latents, *mean, *logvar, *text, *pooled;
    double                  scale, shift;
    int64_t                 first, samples; /* number of its first sample; how many */
    uint64_t                file;           /* tm_stored_file */
    json_t                 *captions;       /* an array of as many texts; NULL: not known */
} shard;

typedef struct {
    shard  *shards;
    size_t  n, capacity;
    int64_t samples;
} shards;

typedef struct {
    shards          splits[2]; /* by tm_split */
    tm_safetensors *empty;
    float          *empty_text, *empty_pooled; /* NULL: no text is left out */
    const char     *encoded, *encoded_file;    /* how the files were made, and the first that says so */
} cache;

/* --- files ---------------------------------------------------------------------------------------------------------
 */

static bool readable(tm_dtype dtype)
{
    return dtype == TM_F32 || dtype == TM_BF16 || dtype == TM_F16 || dtype == TM_F64;
}

static tm_status wrong_shape(const tm_stored_tensor *t, const char *wanted, tm_error *err)
{
    char shape[192];
    return tm_fail(err, TM_INVALID, "'%s': tensor '%s' is %s %s, the model needs %s", t->file, t->name, t->dtype_name,
                   tm_stored_shape_text(shape, t), wanted);
}

/* Has the tensor the axes n[1] .. n[rank - 1] behind that of the samples? */
static tm_status check_tensor(const tm_stored_tensor *t, int64_t samples, int rank, const int64_t *n, tm_error *err)
{
    char wanted[128];
    bool fits = readable(t->dtype) && t->rank == rank && t->n[0] == samples;
    int  used = snprintf(wanted, sizeof wanted, "[%lld", (long long)samples);
    for (int i = 1; i < rank; i++) {
        fits = fits && t->n[i] == n[i];
        used += snprintf(wanted + used, sizeof wanted - (size_t)used, ", %lld", (long long)n[i]);
    }
    snprintf(wanted + used, sizeof wanted - (size_t)used, "] of floating-point numbers");
    return fits ? TM_OK : wrong_shape(t, wanted, err);
}

static const tm_stored_tensor *find_either(const tm_safetensors *set, const char *name, const char *other)
{
    const tm_stored_tensor *tensor = tm_safetensors_find(set, name);
    return tensor ? tensor : tm_safetensors_find(set, other);
}

static tm_status check_shard(const tm_source_options *o, const char *path, shard *s, tm_error *err)
{
    const tm_flow_options *f = &o->flow;
    s->latents = tm_safetensors_find(s->set, "latents");
    s->mean = tm_safetensors_find(s->set, "mean");
    s->logvar = tm_safetensors_find(s->set, "logvar");
    s->text = find_either(s->set, "text", "t5_encodings");
    s->pooled = find_either(s->set, "pooled", "clip_encodings");
    const tm_stored_tensor *image = s->latents ? s->latents : s->mean;
    if (!image || (!s->latents && !s->logvar) || !s->text || !s->pooled)
        return tm_fail(err, TM_INVALID,
                       "'%s' lacks %s; a file of data.source latents holds latents, or mean and logvar, and text and "
                       "pooled",
                       path,
                       !s->text     ? "text"
                       : !s->pooled ? "pooled"
                       : !image     ? "latents"
                                    : "logvar");
    s->samples = image->rank > 0 ? image->n[0] : 0;
    if (s->samples < 1) return wrong_shape(image, "at least one sample", err);
    if (s->latents)
        TM_TRY(check_tensor(image, s->samples, 3, (int64_t[]){ 0, f->tokens, f->channels }, err));
    else
        for (int k = 0; k < 2; k++) {
            int64_t n[] = { 0, f->channels / 4, 2 * f->rows, 2 * (f->tokens / f->rows) };
            TM_TRY(check_tensor(k ? s->logvar : s->mean, s->samples, 4, n, err));
        }
    TM_TRY(check_tensor(s->text, s->samples, 3, (int64_t[]){ 0, f->text_len, f->text_dim }, err));
    return check_tensor(s->pooled, s->samples, 2, (int64_t[]){ 0, f->vector_dim }, err);
}

/* A number of the file's metadata; `otherwise` where there is none. */
static tm_status read_factor(const tm_safetensors *set, const char *path, const char *key, double otherwise,
                             double *out, tm_error *err)
{
    const char *text = tm_safetensors_metadata(set, key);
    char       *end;
    *out = otherwise;
    if (!text) return TM_OK;
    *out = strtod(text, &end);
    if (end != text && !*end && isfinite(*out)) return TM_OK;
    return tm_fail(err, TM_FORMAT, "'%s': the metadata '%s' is '%.60s', wanted a number", path, key, text);
}

/* Files of different encoders or rules are no set. */
static tm_status check_encoded(cache *c, const tm_safetensors *set, const char *path, tm_error *err)
{
    const char *encoded = tm_safetensors_metadata(set, "encoded");
    if (!c->encoded_file) {
        c->encoded = encoded;
        c->encoded_file = path;
    }
    if (!encoded == !c->encoded && (!encoded || strcmp(encoded, c->encoded) == 0)) return TM_OK;
    return tm_fail(err, TM_INVALID,
                   "'%.300s' and '%.300s' were encoded in different ways: '%.300s' and '%.300s'; encode all pictures "
                   "with the same encoders and rules",
                   c->encoded_file, path, c->encoded ? c->encoded : "unknown", encoded ? encoded : "unknown");
}

/* The metadata `captions`: a JSON list with a text for each sample. */
static tm_status read_captions(shard *s, const char *path, tm_error *err)
{
    const char  *text = tm_safetensors_metadata(s->set, "captions");
    json_error_t problem;
    size_t       k;
    json_t      *one;
    if (!text) return TM_OK;
    s->captions = json_loads(text, 0, &problem);
    bool fits = json_is_array(s->captions) && json_array_size(s->captions) == (size_t)s->samples;
    json_array_foreach(s->captions, k, one) fits = fits && json_is_string(one);
    if (fits) return TM_OK;
    return tm_fail(err, TM_FORMAT, "'%s': the metadata 'captions' is no JSON list of %lld texts", path,
                   (long long)s->samples);
}

static bool ends_in(const char *path, const char *end)
{
    size_t n = strlen(path), m = strlen(end);
    return n >= m && strcmp(path + n - m, end) == 0;
}

static tm_status open_folder(tm_source *source, const char *folder, shards *out, tm_error *err)
{
    tm_file_list files = { 0 };
    tm_status    st = tm_file_list_read(folder, &files, err);
    for (size_t i = 0; i < files.count && st == TM_OK; i++) {
        const char *path = files.paths[i];
        if (!ends_in(path, ".safetensors") || strcmp(tm_file_name(path), "empty.safetensors") == 0) continue;
        out->shards = tm_grow(out->shards, &out->capacity, out->n, sizeof *out->shards);
        shard *s = &out->shards[out->n++];
        *s = (shard){ .first = out->samples, .file = tm_stored_file(path) };
        st = tm_safetensors_open(path, &s->set, err);
        if (st == TM_OK) st = check_shard(&source->options, path, s, err);
        if (st == TM_OK) st = check_encoded(source->state, s->set, s->latents ? s->latents->file : s->mean->file, err);
        if (st == TM_OK) st = read_captions(s, path, err);
        if (st == TM_OK) st = read_factor(s->set, path, "scaling_factor", 0.3611, &s->scale, err);
        if (st == TM_OK) st = read_factor(s->set, path, "shift_factor", 0.1159, &s->shift, err);
        if (st != TM_OK) break;
        out->samples += s->samples;
        size_t                  n;
        const tm_stored_tensor *tensors = tm_safetensors_list(s->set, &n);
        for (size_t k = 0; k < n; k++)
            source->facts.content = tm_fingerprint(source->facts.content, tensors[k].data, (int64_t)tensors[k].bytes);
    }
    tm_file_list_free(&files);
    if (st == TM_OK && out->samples == 0)
        st = tm_fail(err, TM_INVALID, "'%s' has no *.safetensors file with samples", folder);
    return st;
}

/* --- values --------------------------------------------------------------------------------------------------------
 */

/* Elements [from, from + n) of a tensor; it may lie at any address. */
static void read_values(const tm_stored_tensor *t, int64_t from, int64_t n, float *out)
{
    size_t bytes = tm_dtype_bytes(t->dtype);
    for (int64_t i = 0; i < n; i++) {
        char value[8];
        memcpy(value, t->data + (size_t)(from + i) * bytes, bytes);
        out[i] = (float)tm_value_get(value, t->dtype, 0);
    }
}

/* Appends the folder `name` of a folder that has it, else the folder itself; was it there? */
static bool part_of(const char *folder, const char *name, tm_text *out)
{
    tm_text_printf(out, "%s/%s", folder, name);
    bool there = tm_is_folder(out->data);
    if (!there) out->length = 0;
    if (!there) tm_text_printf(out, "%s", folder);
    return there;
}

static tm_status read_empty(const tm_source_options *o, cache *c, tm_error *err)
{
    tm_text path = { 0 };
    part_of(o->path, "train", &path);
    tm_text_printf(&path, "/empty.safetensors");
    tm_status st = tm_safetensors_open(path.data, &c->empty, err);
    for (int k = 0; k < 2 && st == TM_OK; k++) {
        const tm_stored_tensor *t =
            k ? find_either(c->empty, "pooled", "clip_encodings") : find_either(c->empty, "text", "t5_encodings");
        int64_t wanted = k ? o->flow.vector_dim : o->flow.text_len * o->flow.text_dim, elements = 1;
        for (int i = 0; t && i < t->rank; i++) elements *= t->n[i];
        if (!t)
            st = tm_fail(err, TM_INVALID, "'%s' lacks %s of the empty text", path.data, k ? "pooled" : "text");
        else if (elements != wanted || !readable(t->dtype))
            st = wrong_shape(t, "that of a sample", err);
        if (st != TM_OK) break;
        float **out = k ? &c->empty_pooled : &c->empty_text;
        *out = tm_alloc((size_t)wanted * sizeof **out);
        read_values(t, 0, wanted, *out);
    }
    tm_text_fini(&path);
    return st;
}

static const shard *shard_of(const shards *of, int64_t sample)
{
    size_t low = 0, high = of->n;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (of->shards[middle].first <= sample)
            low = middle;
        else
            high = middle;
    }
    return &of->shards[low];
}

static void read_latents(const tm_source *source, tm_split split, int64_t index, const shard *s, int64_t row,
                         float *out)
{
    const tm_source_options *o = &source->options;
    int64_t                  elements = o->flow.tokens * o->flow.channels;
    if (s->latents) {
        read_values(s->latents, row * elements, elements, out);
        return;
    }
    float *moments = tm_alloc((size_t)(2 * elements) * sizeof *moments);
    read_values(s->mean, row * elements, elements, moments);
    read_values(s->logvar, row * elements, elements, moments + elements);
    tm_flow_draw(o, split, index, moments, moments + elements, s->scale, s->shift, out);
    free(moments);
}

static int64_t sample_at(const tm_source *source, tm_split split, int64_t index)
{
    return tm_flow_order(&source->options, split, index, ((const cache *)source->state)->splits[split].samples);
}

static void latents_places(const tm_source *source, tm_split split, int64_t index, tm_stored_places *out)
{
    const shards *of = &((const cache *)source->state)->splits[split];
    for (size_t i = 0; i < of->n && index == TM_WHOLE_SPLIT; i++)
        tm_stored_add(out, (tm_stored_place){ .file = of->shards[i].file, .count = of->shards[i].samples, .width = 1 });
    if (index == TM_WHOLE_SPLIT) return;
    const int64_t sample = sample_at(source, split, index);
    const shard  *s = shard_of(of, sample);
    tm_stored_add(out, (tm_stored_place){ .file = s->file, .at = sample - s->first, .count = 1, .width = 1 });
}

static tm_status latents_row(const tm_source *source, tm_split split, int64_t index, int32_t *scratch,
                             void *const *fields, int64_t *weight, tm_error *err)
{
    const tm_source_options *o = &source->options;
    const cache             *c = source->state;
    int64_t                  sample = sample_at(source, split, index);
    const shard             *s = shard_of(&c->splits[split], sample);
    int64_t                  row = sample - s->first, text = o->flow.text_len * o->flow.text_dim;
    bool                     no_text, no_pooled;
    (void)scratch;
    TM_TRY(tm_safetensors_check(s->set, err));
    tm_flow_dropped(o, split, index, &no_text, &no_pooled);
    read_latents(source, split, index, s, row, fields[1]);
    tm_flow_mix(o, split, index, fields[0], fields[1], fields[2]);
    if (no_text)
        memcpy(fields[3], c->empty_text, (size_t)text * sizeof(float));
    else
        read_values(s->text, row * text, text, fields[3]);
    if (no_pooled)
        memcpy(fields[4], c->empty_pooled, (size_t)o->flow.vector_dim * sizeof(float));
    else
        read_values(s->pooled, row * o->flow.vector_dim, o->flow.vector_dim, fields[4]);
    *weight = o->flow.tokens * o->flow.channels;
    return TM_OK;
}

static const char *latents_caption(const tm_source *source, tm_split split, int64_t index)
{
    int64_t      sample = sample_at(source, split, index);
    const shard *s = shard_of(&((const cache *)source->state)->splits[split], sample);
    return json_string_value(json_array_get(s->captions, (size_t)(sample - s->first)));
}

/* --- opening -------------------------------------------------------------------------------------------------------
 */

static void latents_close(tm_source *source)
{
    cache *c = source->state;
    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; i < c->splits[k].n; i++) {
            tm_safetensors_close(c->splits[k].shards[i].set);
            json_decref(c->splits[k].shards[i].captions);
        }
        free(c->splits[k].shards);
    }
    tm_safetensors_close(c->empty);
    free(c->empty_text);
    free(c->empty_pooled);
    free(c);
}

/* The loss of a model that always says zero: 1 + the mean square of the latents, of 64 held-out samples at most. */
static double loss_of_zero(const tm_source *source)
{
    const tm_source_options *o = &source->options;
    const cache             *c = source->state;
    int64_t                  elements = o->flow.tokens * o->flow.channels, n = c->splits[TM_SPLIT_VALIDATION].samples;
    float                   *x0 = tm_alloc((size_t)elements * sizeof *x0);
    double                   sum = 0;
    if (n > 64) n = 64;
    for (int64_t i = 0; i < n; i++) {
        const shard *s = shard_of(&c->splits[TM_SPLIT_VALIDATION], i);
        read_latents(source, TM_SPLIT_VALIDATION, i, s, i - s->first, x0);
        for (int64_t k = 0; k < elements; k++) sum += (double)x0[k] * (double)x0[k];
    }
    free(x0);
    return n > 0 ? 1 + sum / (double)(n * elements) : (double)NAN;
}

static tm_status latents_open(tm_source *source, tm_error *err)
{
    const tm_source_options *o = &source->options;
    TM_TRY(tm_flow_check(o, err));
    if (!o->path || !*o->path)
        return tm_fail(err, TM_INVALID, "data.source latents needs a directory of safetensors files; set data.path");
    cache    *c = source->state = tm_alloc(sizeof *c);
    tm_text   train = { 0 }, held_out = { 0 };
    bool      both = part_of(o->path, "train", &train) && part_of(o->path, "validation", &held_out);
    tm_status st = open_folder(source, train.data, &c->splits[TM_SPLIT_TRAIN], err);
    if (o->validation_path && *o->validation_path) {
        held_out.length = 0;
        part_of(o->validation_path, "validation", &held_out);
        both = true;
    }
    if (st == TM_OK && both) st = open_folder(source, held_out.data, &c->splits[TM_SPLIT_VALIDATION], err);
    tm_text_fini(&train);
    tm_text_fini(&held_out);
    if (st == TM_OK && tm_flow_dropout(o) > 0) st = read_empty(o, c, err);
    if (st != TM_OK) {
        latents_close(source);
        return st;
    }
    source->facts.train_samples = c->splits[TM_SPLIT_TRAIN].samples;
    source->facts.validation_samples = c->splits[TM_SPLIT_VALIDATION].samples;
    source->facts.unigram_entropy = loss_of_zero(source);
    return TM_OK;
}

static tm_status latents_outline(const tm_source_options *o, tm_text *out, tm_error *err)
{
    tm_source source = { .kind = &tm_source_latents, .options = *o };
    TM_TRY(latents_open(&source, err));
    tm_text_printf(out, "'%s': %lld samples, %lld held out\n", o->path, (long long)source.facts.train_samples,
                   (long long)source.facts.validation_samples);
    latents_close(&source);
    return TM_OK;
}

const tm_source_kind tm_source_latents = {
    .traits = { .name = "latents",
                .gate = TM_GATE_HELD_OUT,
                .needs_path = true,
                .takes_validation_path = true,
                .images = true,
                .encoders = "before" },
    .open = latents_open,
    .close = latents_close,
    .fields = tm_flow_fields,
    .row = latents_row,
    .unit = sample_at,
    .places = latents_places,
    .caption = latents_caption,
    .outline = latents_outline,
};
