/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of values share: calls made by hand, and numbers compared with them. */
#ifndef TEST_OP_VALUES_H
#define TEST_OP_VALUES_H

#include "../support/execute.h"
#include "base/random.h"
#include "op/attrs.h"
#include "op/describe.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SEED = 20240609 };
static const tm_shape scalar = { .rank = 0 };

static inline void expect(const double *have, const double *want, int n)
{
    for (int i = 0; i < n; i++)
        if (!(fabs(have[i] - want[i]) <= 1e-14 * (1 + fabs(want[i]))))
            fail_msg("value %d is %.17g, wanted %.17g", i, have[i], want[i]);
}
#define EXPECT(have, ...) expect(have, (const double[]){ __VA_ARGS__ }, (int)(sizeof(have) / sizeof((have)[0])))

/* A call whose views the test then sets. */
static inline tm_call call_of(const tm_op *op, const void *attr)
{
    tm_call call = { .op = op, .attr = attr, .threads = 1 };
    for (int k = 0; k < TM_MAX_IN; k++) call.in[k] = tm_view_absent();
    for (int k = 0; k < TM_MAX_OUT; k++) call.out[k] = tm_view_absent();
    return call;
}

static inline tm_view scalars_with(double values[TM_SCALAR_COUNT], tm_scalar which, double value)
{
    values[which] = value;
    return tm_view_f64(tm_shape_1(TM_SCALAR_COUNT), values);
}

static inline double normal(uint64_t stream, int64_t i)
{
    return tm_random_normal(SEED, stream, (uint64_t)i);
}

#endif
