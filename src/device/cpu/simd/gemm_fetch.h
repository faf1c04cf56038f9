/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/gemm_fetch.h - memory that is packed next, brought near while the innermost tile computes: a line for
 * each of its steps over k. Without it, products whose weights are read once (few rows; experts) wait for every part of
 * them: at 48 rows of an expert as long as they compute.
 */
#ifndef TM_DEVICE_CPU_GEMM_FETCH_H
#define TM_DEVICE_CPU_GEMM_FETCH_H

#include "device/cpu/simd/common.h"

enum { LINE = 64 };

/* Runs of lines. */
typedef struct {
    const char *at;
    int64_t     line, lines; /* left of this run, of every run */
    int64_t     runs;        /* that come after this one */
    int64_t     step, jump;  /* bytes from one line to the next, from behind a run to the next */
} fetch;

/* What asks for nothing: one line, near already. */
TM_INLINE fetch fetch_nothing(const void *near)
{
    return (fetch){ .at = near, .line = INT64_MAX };
}

/* `rows` runs of `bytes`, one every `stride` bytes. */
TM_INLINE fetch fetch_rows(const void *from, int64_t rows, int64_t bytes, int64_t stride)
{
    int64_t lines = tm_ceil_div(bytes + LINE - 1, LINE); /* they may begin inside of a line */
    if (rows < 1 || bytes < 1) return fetch_nothing(from);
    return (fetch){ from, lines, lines, rows - 1, LINE, stride - lines * LINE };
}

/* Lines that are left to ask for. */
TM_INLINE int64_t fetch_lines(const fetch *f)
{
    return f->step ? f->line + f->runs * f->lines : 0;
}

TM_INLINE void fetch_line(fetch *f)
{
    __builtin_prefetch(f->at, 0, 2);
    f->at += f->step;
    if (--f->line) return;
    if (f->runs-- > 0) {
        f->line = f->lines;
        f->at += f->jump;
    } else {
        f->line = INT64_MAX, f->step = 0;
    }
}

#endif
