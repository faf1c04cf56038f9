/* SPDX-License-Identifier: Apache-2.0 */
/* train/generate/euler.h - a trained model of images draws some: from noise at time 1 along the velocity that it
 * predicts, to time 0.
 *
 *   x(s_i+1) = x(s_i) + (s_i+1 - s_i) v(x, s_i),   s_0 = 1 > s_1 > ... > s_n = 0       (Euler; Liu et al. 2022, sec. 2)
 */
#ifndef TM_TRAIN_GENERATE_EULER_H
#define TM_TRAIN_GENERATE_EULER_H

#include "device/forward.h"
#include "train/trainer/trainer.h"

/* Which times a drawing goes through: s = a u / (1 + (a - 1) u), u from 1 to 1/n in n even steps, then 0. */
typedef struct {
    bool   by_size; /* a = exp(m), m on a line through (tokens, shift) of base and most; else a = shift */
    double shift, base_shift, most_shift;
    double base_tokens, most_tokens;
} tm_euler_times;

/* Those of FLUX.1-dev's scheduler, and of one that shifts nothing. */
extern const tm_euler_times tm_euler_times_dev, tm_euler_times_even;

/* The factor a, for an image of so many tokens. */
double tm_euler_shift(const tm_euler_times *rule, int64_t tokens);
/* times (steps + 1), for an image of so many tokens. */
void tm_euler_times_of(const tm_euler_times *rule, int64_t tokens, int64_t steps, double *times);

/* What an image is drawn for. text (text_len, text_dim), pooled (vector_dim). */
typedef struct {
    const float *text, *pooled;
} tm_euler_prompt;

/* Who predicts: v (n) at x (n) and a time. */
typedef struct {
    void   *context;
    int64_t n; /* tokens x channels */
    tm_status (*predict)(void *context, const tm_euler_prompt *prompt, const float *x, float time, float *v,
                         tm_error *err);
} tm_euler_velocity;

typedef struct {
    const tm_euler_prompt *prompt, *negative; /* negative: NULL: none */
    double                 scale; /* v = v_negative + scale (v - v_negative), classifier-free guidance; read with
                                   * `negative` */
    const double *times;          /* (steps + 1) */
    int64_t       steps;
    bool (*stop)(void); /* asked between steps; NULL: never */
} tm_euler_drawing;

/* x (n): noise, becomes the image's latents. TM_INTERRUPTED: `stop` said so; what `predict` fails with. */
TM_MUST_USE tm_status tm_euler_draw(const tm_euler_velocity *velocity, const tm_euler_drawing *drawing, float *x,
                                    tm_error *err);

/* Normal noise (n): a function of the seed. */
void tm_euler_noise(uint64_t seed, int64_t n, float *x);

/* That of a trainer whose step was made with `sample`. */
tm_euler_velocity tm_euler_of_trainer(tm_trainer *trainer);

/* --- without a trainer: a program that predicts, on a device that runs nothing else ----------------------------------
 */

typedef struct tm_euler tm_euler;

/* For one image at a time. Parameters are held in the compute format of `precision`; their values are for the caller to
 * write. TM_NOMEM; TM_UNSUPPORTED: the device lacks a kernel. */
TM_MUST_USE tm_status tm_euler_open(tm_device *device, const tm_model_shape *shape, const tm_precision *precision,
                                    tm_euler **out, tm_error *err);
void                  tm_euler_close(tm_euler *euler); /* NULL is fine */

tm_euler_velocity tm_euler_of(tm_euler *euler);
/* The program and its parameters, closed by tm_euler_close. */
tm_forward *tm_euler_forward(tm_euler *euler);

#endif
