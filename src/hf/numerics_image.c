/* SPDX-License-Identifier: Apache-2.0 */
/* hf/numerics_image.c - the inputs of an image model from a safetensors file. */
#include "hf/convert.h"
#include "hf/numerics.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_SIDE = 4096 };

static tm_status find(const tm_safetensors *set, const char *path, const char *name, int rank,
                      const tm_stored_tensor **out, tm_error *err)
{
    static const char *const ranks[] = { "one value", "(n)", "(rows, n)", "(rows, columns, n)" };
    const tm_stored_tensor  *t = *out = tm_safetensors_find(set, name);
    if (!t)
        return tm_fail(err, TM_FORMAT,
                       "'%.300s' has no tensor '%s'; wanted noisy and velocity (rows, columns, channels), time, text "
                       "(tokens, n), pooled (n) and, for a model with guidance, guidance",
                       path, name);
    int64_t elements = 1;
    for (int i = 0; i < t->rank; i++) elements *= t->n[i];
    char shape[192];
    if (rank == 0 ? elements != 1 : t->rank != rank)
        return tm_fail(err, TM_FORMAT, "'%.300s': '%s' has the shape %s, wanted %s", path, name,
                       tm_stored_shape_text(shape, t), ranks[rank]);
    if (t->dtype == TM_DTYPE_COUNT || !tm_dtype_floating(t->dtype))
        return tm_fail(err, TM_FORMAT, "'%.300s': '%s' holds %s, wanted a floating format", path, name, t->dtype_name);
    return TM_OK;
}

static tm_status wrong(const char *path, const char *name, int64_t found, int64_t wanted, tm_error *err)
{
    return tm_fail(err, TM_FORMAT, "'%.300s': the last axis of '%s' is %lld, the model needs %lld", path, name,
                   (long long)found, (long long)wanted);
}

static float *values_of(const tm_stored_tensor *t, int64_t n)
{
    float *values = tm_alloc((size_t)n * sizeof *values);
    tm_stored_convert(t, 0, 1, n, TM_F32, values, 0);
    return values;
}

static tm_status read_all(const tm_safetensors *set, const char *path, tm_model_shape *shape, tm_numerics_image *out,
                          tm_error *err)
{
    const tm_stored_tensor *noisy, *velocity, *time, *text, *pooled, *guidance;
    tm_flux_shape          *x = &shape->flux;
    TM_TRY(find(set, path, "noisy", 3, &noisy, err));
    TM_TRY(find(set, path, "velocity", 3, &velocity, err));
    TM_TRY(find(set, path, "time", 0, &time, err));
    TM_TRY(find(set, path, "text", 2, &text, err));
    TM_TRY(find(set, path, "pooled", 1, &pooled, err));
    if (x->guidance) TM_TRY(find(set, path, "guidance", 0, &guidance, err));
    if (noisy->n[0] < 1 || noisy->n[1] < 1 || text->n[0] < 1 || noisy->n[0] > MAX_SIDE || noisy->n[1] > MAX_SIDE ||
        text->n[0] > 1 << 20)
        return tm_fail(err, TM_FORMAT, "'%.300s': 'noisy' or 'text' has no tokens, or too many", path);
    if (memcmp(noisy->n, velocity->n, 3 * sizeof noisy->n[0]) != 0)
        return tm_fail(err, TM_FORMAT, "'%.300s': 'noisy' and 'velocity' have different shapes", path);
    if (noisy->n[2] != x->channels) return wrong(path, "noisy", noisy->n[2], x->channels, err);
    if (text->n[1] != x->text_dim) return wrong(path, "text", text->n[1], x->text_dim, err);
    if (pooled->n[0] != x->vector_dim) return wrong(path, "pooled", pooled->n[0], x->vector_dim, err);
    x->rows = noisy->n[0];
    x->columns = noisy->n[1];
    x->text_len = text->n[0];
    if (x->guidance) x->guidance_scale = tm_stored_value(guidance, 0);
    out->elements = x->rows * x->columns * x->channels;
    out->field[0] = values_of(noisy, out->elements);
    out->field[1] = values_of(velocity, out->elements);
    out->field[2] = values_of(time, 1);
    out->field[3] = values_of(text, x->text_len * x->text_dim);
    out->field[4] = values_of(pooled, x->vector_dim);
    return TM_OK;
}

tm_status tm_numerics_image_read(const char *path, tm_model_shape *shape, tm_numerics_image *out, tm_error *err)
{
    tm_safetensors *set;
    *out = (tm_numerics_image){ 0 };
    TM_TRY(tm_safetensors_open(path, &set, err));
    tm_status st = read_all(set, path, shape, out, err);
    tm_safetensors_close(set);
    return st;
}

void tm_numerics_image_fini(tm_numerics_image *image)
{
    for (int f = 0; f < TM_NUMERICS_FIELDS; f++) free(image->field[f]);
    *image = (tm_numerics_image){ 0 };
}

void tm_numerics_image_fields(const tm_model_shape *shape, tm_step_options *step)
{
    static const char *const names[] = { "noisy", "velocity", "time", "text", "pooled" };
    const tm_flux_shape     *x = &shape->flux;
    const tm_shape           shapes[] = { tm_shape_2(x->rows * x->columns, x->channels),
                                          tm_shape_2(x->rows * x->columns, x->channels), tm_shape_2(1, 1),
                                          tm_shape_2(x->text_len, x->text_dim), tm_shape_2(1, x->vector_dim) };
    for (int f = 0; f < TM_NUMERICS_FIELDS; f++)
        step->fields[f] = (tm_field){ .name = names[f], .dtype = TM_F32, .shape = shapes[f] };
    step->n_fields = TM_NUMERICS_FIELDS;
    step->seq = tm_model_length(shape);
    step->sample = false;
}
