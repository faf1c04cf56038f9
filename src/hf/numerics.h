/* SPDX-License-Identifier: Apache-2.0 */
/* hf/numerics.h - what a model computes for given tokens, by the names of its files: to compare implementations. */
#ifndef TM_HF_NUMERICS_H
#define TM_HF_NUMERICS_H

#include "base/json.h"
#include "hf/folder.h"

typedef struct {
    const char *name; /* of the tensor in the files */
    double      norm; /* L2, of the gradient of the mean loss */
} tm_hf_gradient;

typedef struct {
    double          loss; /* mean over the targets, nats; of an image over its elements */
    double          gradient_norm;
    int64_t         parameters, tokens; /* tokens: targets; of an image 0 */
    tm_hf_gradient *gradients;          /* in the order of the model */
    size_t          n_gradients;
    double         *first, *last; /* (vocab) logits of the first and the last input */
    int64_t         vocab;
    tm_arena       *arena; /* of the names */
} tm_numerics;

/* The inputs of an image model: noisy, velocity, time, text, pooled. */
enum { TM_NUMERICS_FIELDS = 5 };
typedef struct {
    float  *field[TM_NUMERICS_FIELDS];
    int64_t elements; /* of the image */
} tm_numerics_image;

/* Reads a safetensors file with noisy and velocity (rows, columns, channels), time, text (tokens, text_dim), pooled
 * (vector_dim) and, for a model with guidance, guidance; gives the shape its rows, columns, text tokens and guidance.
 * TM_FORMAT, TM_INVALID. The caller frees *out with tm_numerics_image_fini, also after a failure. */
TM_MUST_USE tm_status tm_numerics_image_read(const char *path, tm_model_shape *shape, tm_numerics_image *out,
                                             tm_error *err);
void                  tm_numerics_image_fini(tm_numerics_image *image);
/* What an image changes in the options of tm_numerics_step. */
void tm_numerics_image_fields(const tm_model_shape *shape, tm_step_options *step);

/* The options of the step that tm_numerics_read wants: one sequence of `seq` tokens, nothing kept for an optimizer. */
tm_step_options tm_numerics_step(const tm_model_shape *shape, const tm_precision *precision, int64_t seq);

/* Forward and backward of ids[0 .. seq - 1] against ids[1 .. seq]; the weights stay as they are. `weights`: names are
 * as they are there; NULL: as they would be written. The caller frees *out with tm_numerics_fini, also after a failure.
 */
TM_MUST_USE tm_status tm_numerics_read(tm_trainer *trainer, const tm_hf_form *form, const tm_safetensors *weights,
                                       const int32_t *ids, tm_numerics *out, tm_error *err);
/* The same of an image. */
TM_MUST_USE tm_status tm_numerics_read_image(tm_trainer *trainer, const tm_hf_form *form, const tm_safetensors *weights,
                                             const tm_numerics_image *image, tm_numerics *out, tm_error *err);
void                  tm_numerics_fini(tm_numerics *numerics);

/* What they run on, to run more on it; fields point into the arguments. */
tm_micro_batch tm_numerics_batch(const int32_t *ids, int64_t seq);
tm_micro_batch tm_numerics_image_batch(const tm_numerics_image *image);

/* As members of a JSON object that is open: loss, parameters, tokens, gradient_norm, gradients {name: norm},
 * first_logits, last_logits; of an image without tokens and logits. */
void tm_numerics_json(const tm_numerics *numerics, tm_json *json);

#endif
