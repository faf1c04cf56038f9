/* SPDX-License-Identifier: Apache-2.0 */
/* data/flow.h - what rectified flow adds to an encoded image: a time, noise, and texts that are left out. Private to
 * this room; every source of images fills its rows with it.
 *
 *   noisy = (1 - time) x0 + time noise,  velocity = noise - x0,  noise normal         (Liu et al. 2022, eq. 1)
 */
#ifndef TM_DATA_FLOW_H
#define TM_DATA_FLOW_H

#include "data/source.h"

enum { TM_FLOW_EVALUATION_TIMES = 8 };

/* The fields of a sample: noisy, velocity (tokens, channels), time (1, 1), text (text_len, text_dim), pooled (1,
 * vector_dim); float32. */
int tm_flow_fields(const tm_source_options *options, tm_field out[TM_MAX_FIELDS]);

/* TM_INVALID: the model is none of images. */
TM_MUST_USE tm_status tm_flow_check(const tm_source_options *options, tm_error *err);

/* The time of a sample: random, by the options, or by the protocol where they say nothing; of the validation split
 * sample i has time i mod 8 of eight, which no option changes. */
double tm_flow_time(const tm_source_options *options, tm_split split, int64_t index);
/* Of the eight times, i in 0 .. 7. */
double tm_flow_evaluation_time(tm_flow_protocol protocol, int i);
/* The mean of f(time) over the times that training draws; `context` is handed to f. */
double tm_flow_mean(const tm_flow_options *flow, double (*f)(double time, const void *context), const void *context);

/* The share of training samples whose texts are left out. */
double tm_flow_dropout(const tm_source_options *options);
/* Which texts of a training sample are left out; of the validation split none. */
void tm_flow_dropped(const tm_source_options *options, tm_split split, int64_t index, bool *text, bool *pooled);

/* Makes noisy, velocity and time of the encoded image x0 (tokens, channels), which lies in `velocity`. */
void tm_flow_mix(const tm_source_options *options, tm_split split, int64_t index, float *noisy, float *velocity,
                 float *time);

/* Which of the n stored samples of a split `index` is: of training each once an epoch, every epoch in an order of its
 * own. */
int64_t tm_flow_order(const tm_source_options *options, tm_split split, int64_t index, int64_t n);

/* Draws the latents of one use of a sample from the encoder's normal distribution, mean and logvar (channels / 4,
 * 2 rows, 2 columns), and packs them into x0 (tokens, channels): scale (mean + exp(logvar / 2) e - shift). */
void tm_flow_draw(const tm_source_options *options, tm_split split, int64_t index, const float *mean,
                  const float *logvar, double scale, double shift, float *x0);

#endif
