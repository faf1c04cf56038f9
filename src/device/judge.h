/* SPDX-License-Identifier: Apache-2.0 */
/* device/judge.h - what a kernel must compute on an example of its op, and how far off it may be.
 *
 * A value y that moves by S when every input moves by about one unit u of float32, at random, cannot be computed in
 * float32 to much better than S + u |y|. A chain of n roundings passes on at most n such errors, and a function of few
 * operations that is good to 4 units counts as 4 terms; so |error| <= 4 (n + 4) (S + u |y|), n = terms of op->rounding,
 * plus the rounding to the format of the output. S comes from the reference itself, on inputs moved several times. */
#ifndef TM_DEVICE_JUDGE_H
#define TM_DEVICE_JUDGE_H

#include "op/op.h"

#define TM_JUDGE_UNIT 0x1p-24 /* of float32 */

typedef struct {
    const tm_op      *op;
    const tm_example *example;
    int               number; /* of the example; odd: with special values */
    tm_call           call;   /* float64: inputs, and what the reference makes of them */
    double           *spread[TM_MAX_OUT], *old[TM_MAX_OUT], largest[TM_MAX_OUT]; /* S; what outputs may be added to */
    tm_rounding       rounding[TM_MAX_OUT];
    double            values; /* of all inputs */
    unsigned          adds;   /* outputs that can be added to */
} tm_judge;

/* Computes the reference and its spread. to_bf16: inputs are numbers of bfloat16. `example` must outlive the judge. */
void tm_judge_open(tm_judge *judge, const tm_op *op, const tm_example *example, int number, bool to_bf16);
void tm_judge_close(tm_judge *judge);

/* Is output k there, and more than scratch? */
bool tm_judge_has(const tm_judge *judge, int k);
/* The value wanted at element i of output k in a format, and how far from it a kernel may be. adds: to `old`. */
double tm_judge_bound(const tm_judge *judge, int k, int64_t i, bool adds, tm_dtype dtype, double *wanted);

#endif
