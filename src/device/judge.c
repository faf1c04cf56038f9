/* SPDX-License-Identifier: Apache-2.0 */
#include "device/judge.h"

#include "base/arena.h"
#include "base/random.h"
#include "graph/value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 20240701, PROBES = 6 };
static const double unit = TM_JUDGE_UNIT;
static const double tiny = 1e-30;    /* below: zero to training; kernels flush it and clamp exponents */
static const double noise = 0x1p-44; /* of the reference, as a part of the largest value of an output */
static const double slow = 3e7;      /* FLOPs of an example on which the plain build is left out, and fewer probes */

bool tm_judge_has(const tm_judge *j, int k)
{
    return tm_view_present(&j->call.out[k]) && j->op->out_role[k] != TM_ROLE_LOGITS;
}

/* Whole numbers are right or wrong. */
static bool exact(const tm_judge *j, int k)
{
    return j->op->out_role[k] == TM_ROLE_INDEX;
}

static double rounded(double value, bool to_bf16)
{
    return to_bf16 ? (double)tm_bf16_value(tm_bf16_round((float)value)) : (double)(float)value;
}

/* Saturated, tiny and exactly representable arguments among the random ones. */
static double special(int64_t i)
{
    /* e^88.78125 and e^88.9375 are beyond float32, but by less than a rounding of the argument */
    static const double specials[] = { 0.,      -0.,      100., -100., 30.,  -30.,      9.9375,  -9.9375,
                                       0x1p-20, -0x1p-20, 1.,   -1.,   -88., -88.78125, -88.9375 };
    return specials[i % (int64_t)(sizeof specials / sizeof specials[0])];
}

static double *zeros(int64_t n)
{
    return tm_alloc((size_t)(n + 1) * sizeof(double));
}

/* The reference on inputs that have moved by up to 2 units: results in call->out. */
static void probe(const tm_judge *j, int number, tm_call *call)
{
    *call = j->call;
    for (int k = 0; k < j->op->n_in; k++) {
        if (!tm_view_present(&call->in[k]) || call->in[k].dtype != TM_F64) continue;
        int64_t       n = tm_shape_elements(call->in[k].shape);
        const double *from = j->call.in[k].data;
        double       *to = call->in[k].data = zeros(n);
        for (int64_t i = 0; i < n; i++)
            to[i] = from[i] *
                    (1 + unit * (4 * tm_random_uniform(SEED + 1, (uint64_t)(k * PROBES + number), (uint64_t)i) - 2));
    }
    for (int k = 0; k < j->op->n_out; k++)
        if (tm_view_present(&call->out[k])) call->out[k].data = zeros(tm_shape_elements(call->out[k].shape));
    j->op->reference(call);
    for (int k = 0; k < j->op->n_in; k++)
        if (call->in[k].data != j->call.in[k].data) free(call->in[k].data);
}

void tm_judge_open(tm_judge *j, const tm_op *op, const tm_example *example, int number, bool to_bf16)
{
    bool elementwise = strcmp(op->group, "elementwise") == 0 && number % 2;
    *j = (tm_judge){ .op = op, .example = example, .number = number };
    tm_call_make(&j->call, op, example, SEED);
    for (int k = 0; k < op->n_in; k++) {
        double *x = j->call.in[k].data;
        if (!tm_view_present(&j->call.in[k]) || j->call.in[k].dtype != TM_F64) continue;
        int64_t n = tm_shape_elements(j->call.in[k].shape);
        j->values += (double)n;
        for (int64_t i = 0; i < n && example->role[k] != TM_ROLE_SCALAR; i++) {
            if (elementwise && example->role[k] == TM_ROLE_ACTIVATION && i % 5 == 2) x[i] = special(i / 5);
            x[i] = rounded(x[i], to_bf16);
        }
    }
    op->reference(&j->call);
    tm_call moved[PROBES];
    int     probes = op->cost(&j->call).flops > slow ? 2 : PROBES; /* there only sums of many terms are long */
#pragma omp parallel for schedule(dynamic, 1)
    for (int p = 0; p < probes; p++) probe(j, p, &moved[p]);
    for (int k = 0; k < op->n_out; k++) {
        if (!tm_judge_has(j, k)) continue;
        int64_t       n = tm_shape_elements(j->call.out[k].shape);
        const double *value = j->call.out[k].data;
        j->spread[k] = zeros(n), j->old[k] = zeros(n);
        for (int64_t i = 0; i < n && !exact(j, k); i++) {
            for (int p = 0; p < probes; p++)
                j->spread[k][i] = fmax(j->spread[k][i], fabs(((const double *)moved[p].out[k].data)[i] - value[i]));
            j->spread[k][i] += unit * fabs(value[i]);
            j->largest[k] = fmax(j->largest[k], fabs(value[i]));
            j->old[k][i] = rounded(3 * tm_random_normal(SEED + 2, (uint64_t)k, (uint64_t)i), true);
        }
        j->rounding[k] = op->rounding ? op->rounding(&j->call, k) : (tm_rounding){ .terms = 1, .stores = 1 };
        bool sum = op->out_role[k] == TM_ROLE_SCALAR && op != &tm_op_clip && op != &tm_op_compare;
        if (sum || op->out_role[k] == TM_ROLE_GRADIENT) j->adds |= 1u << k;
    }
    for (int p = 0; p < probes; p++)
        for (int k = 0; k < op->n_out; k++) free(moved[p].out[k].data);
}

void tm_judge_close(tm_judge *j)
{
    for (int k = 0; k < TM_MAX_OUT; k++) free(j->spread[k]), free(j->old[k]);
    tm_call_free(&j->call);
}

/* The value wanted at element i of output k, and how far from it a kernel may be. */
double tm_judge_bound(const tm_judge *j, int k, int64_t i, bool adds, tm_dtype dtype, double *wanted)
{
    if (exact(j, k)) {
        *wanted = (double)((const int32_t *)j->call.out[k].data)[i];
        return 0;
    }
    if (dtype == TM_U8) { /* a code of what was computed: its neighbour where that lies between the two */
        *wanted = ((const double *)j->call.out[k].data)[i];
        return 1;
    }
    double value = ((const double *)j->call.out[k].data)[i], spread = j->spread[k][i], terms = j->rounding[k].terms;
    double store = dtype == TM_BF16 ? 0x1p-8 : dtype == TM_F32 ? unit : 0x1p-53;
    if (adds) value += j->old[k][i], spread += fabs(j->old[k][i]) * unit;
    double error = terms > 0 ? 4 * (terms + 4) * spread : 4 * (j->values + 4) * spread * 0x1p-29;
    double size = fabs(value) + error;
    if (j->rounding[k].stores > 1) size += 4 * spread / unit; /* sums on the way may be larger than the last */
    *wanted = value;
    return error + j->rounding[k].stores * store * size + tiny + noise * j->largest[k];
}
