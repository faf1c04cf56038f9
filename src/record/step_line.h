/* SPDX-License-Identifier: Apache-2.0 */
/* record/step_line.h - private to the room: the lines that log parsers read, as text. The formats and what parsers
 * demand of them are in docs/step-line.md. Each function appends one line with its line feed. */
#ifndef TM_RECORD_STEP_LINE_H
#define TM_RECORD_STEP_LINE_H

#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    int64_t step, steps;
    double  loss, grad_norm, learning_rate;
    int64_t used_bytes, limit_bytes;     /* limit 0 = unknown */
    double  tokens_per_second;           /* since the last line, one device */
    double  tokens_per_second_average;   /* since the third step */
    double  flops_per_token, peak_flops; /* 0 = unknown */
    double  step_seconds, step_seconds_average;
    int64_t sequences; /* global batch */
    int64_t nan_steps;
    char    date[32]; /* local time, "2026-01-31 12:00:00" */
    int64_t samples;  /* sequences trained on so far, in every process of the run */
} line_figures;

void line_torchtitan(tm_text *out, const line_figures *figures, bool colour);
void line_megatron(tm_text *out, const line_figures *figures);
void line_validation(tm_text *out, const line_figures *figures, bool colour);
void line_peak(tm_text *out, double peak_flops);
/* "performance: 14164.2 tokens_per_second" */
void line_performance(tm_text *out, double value, const char *metric);

#endif
