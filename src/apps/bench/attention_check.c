/* SPDX-License-Identifier: Apache-2.0 */
/* apps/bench/attention_check.c - rows of attention in float64, and how far float32 may be from them.
 *
 * A float32 sum of n products differs from the exact one by at most growth(n) sum |a b| (below; the same bound as for
 * matrix products). An exponential is wrong by the error of its argument and 4 u, u = 2^-24. Every product passes on
 * the relative errors of its factors. With bfloat16 weights and their gradients are rounded before they are multiplied,
 * and results once more, each by at most 2^-8 of its size (8 bits of significand, to nearest).
 */
#include "apps/bench/attention_check.h"

#include "base/arena.h"
#include "base/random.h"
#include "graph/value.h"

#include <math.h>
#include <stdlib.h>

enum { SAMPLES = 12 };
static const double u = 0x1p-24;

typedef struct {
    const tm_attention_tensors *t;
    tm_attention_check         *out;
    int64_t                     T, H, J, D, W;       /* W: columns of qkv */
    double                      over_d, over_t;      /* growth(D), growth(T) */
    double                     *q, *g, *row, *bound; /* (D) */
    double                     *p, *pe;              /* (T): weights of a row, their relative errors */
} checker;

/* gamma_n = n u / (1 - n u) always holds (Higham 2002, section 3.1); exp(8 sqrt(n) u + n u^2) - 1 with a probability
 * that no run sees fail (Higham & Mary 2019, theorem 2.4). */
static double growth(int64_t n)
{
    double k = (double)n, certain = k * u / (1 - k * u), likely = exp(8 * sqrt(k) * u + k * u * u) - 1;
    return certain < likely ? certain : likely;
}

/* The relative error of a weight that is multiplied. */
static double rounding(const checker *c)
{
    return c->t->dtype == TM_BF16 ? 0x1p-8 : 0;
}

static double at(const checker *c, const void *data, int64_t i)
{
    return tm_value_get(data, c->t->dtype, i);
}

static double lse_at(const checker *c, int64_t b, int64_t h, int64_t i)
{
    return tm_value_get(c->t->lse, c->t->lse_dtype, (b * c->H + h) * c->T + i);
}

static void judge(checker *c, const char *what, double found, double wanted, double bound)
{
    if (c->t->dtype == TM_BF16 && what[0] != 'l') bound += 0x1p-8 * (fabs(wanted) + bound);
    bound += u * fabs(wanted) + 0x1p-100;
    double share = fabs(found - wanted) / bound;
    if (!isfinite(share)) share = (double)INFINITY;
    if (share <= c->out->worst) return;
    c->out->worst = share;
    c->out->what = what;
    c->out->found = found, c->out->wanted = wanted, c->out->bound = bound;
}

/* First element of query i of head h, and of key or value i of its group, in qkv. */
static int64_t query_at(const checker *c, int64_t b, int64_t h, int64_t i)
{
    return (b * c->T + i) * c->W + h * c->D;
}
static int64_t key_at(const checker *c, int64_t b, int64_t j, int64_t i)
{
    return (b * c->T + i) * c->W + (c->H + j) * c->D;
}
static int64_t value_at(const checker *c, int64_t b, int64_t j, int64_t i)
{
    return key_at(c, b, j, i) + c->J * c->D;
}

static int64_t first_key(const checker *c, int64_t i)
{
    int64_t window = c->t->attr.window;
    return window > 0 && i >= window ? i - window + 1 : 0;
}
static int64_t end_of_keys(const checker *c, int64_t i)
{
    return c->t->attr.causal ? i + 1 : c->T;
}

/* sum x[d] data[first + d], and the sum of sizes. */
static double dot(const checker *c, const double *x, const void *data, int64_t first, double *size)
{
    double sum = 0;
    *size = 0;
    for (int64_t d = 0; d < c->D; d++) {
        double term = x[d] * at(c, data, first + d);
        sum += term;
        *size += fabs(term);
    }
    return sum;
}

/* The score of a query (in x) and a key, and how far float32 may be from it. */
static double score(const checker *c, const double *x, int64_t key, double *error)
{
    double size, s = c->t->attr.scale * dot(c, x, c->t->qkv, key, &size);
    *error = c->t->attr.scale * (c->over_d + 2 * u) * size;
    return s;
}

static void load(const checker *c, const void *data, int64_t first, double *x)
{
    for (int64_t d = 0; d < c->D; d++) x[d] = at(c, data, first + d);
}

/* o and lse of one query. */
static void check_query(checker *c, int64_t b, int64_t h, int64_t i)
{
    int64_t j = h / (c->H / c->J), from = first_key(c, i), to = end_of_keys(c, i);
    double  most = -HUGE_VAL, sum = 0, mean_error = 0;
    load(c, c->t->qkv, query_at(c, b, h, i), c->q);
    for (int64_t k = from; k < to; k++) {
        c->p[k] = score(c, c->q, key_at(c, b, j, k), &c->pe[k]);
        most = fmax(most, c->p[k]);
    }
    for (int64_t k = from; k < to; k++) sum += exp(c->p[k] - most);
    double lse = most + log(sum);
    for (int64_t d = 0; d < c->D; d++) c->row[d] = c->bound[d] = c->g[d] = 0;
    for (int64_t k = from; k < to; k++) { /* rounding of the argument, and exp itself */
        c->pe[k] += u * (fabs(c->p[k]) + fabs(most) + fabs(lse) + 4);
        c->p[k] = exp(c->p[k] - lse);
        mean_error += c->p[k] * c->pe[k];
    }
    for (int64_t k = from; k < to; k++)
        for (int64_t d = 0; d < c->D; d++) {
            double v = at(c, c->t->qkv, value_at(c, b, j, k) + d);
            c->row[d] += c->p[k] * v;
            c->bound[d] += c->p[k] * (c->pe[k] + mean_error + rounding(c)) * fabs(v);
            c->g[d] += c->p[k] * fabs(v);
        }
    for (int64_t d = 0; d < c->D; d++)
        judge(c, "o", at(c, c->t->o, ((b * c->T + i) * c->H + h) * c->D + d), c->row[d],
              c->bound[d] + (2 * c->over_t + 4 * u) * c->g[d]);
    judge(c, "lse", lse_at(c, b, h, i), lse, mean_error + c->over_t + 4 * u * (1 + fabs(lse)));
}

/* What a query (in q, its gradient in g) and a key share: p and ds with their errors. */
typedef struct {
    double p, p_error, ds, ds_error;
} pair;

static pair pair_of(const checker *c, int64_t b, int64_t h, int64_t i, int64_t k, double delta, double delta_error)
{
    int64_t j = h / (c->H / c->J);
    double  error, size, lse = lse_at(c, b, h, i), s = score(c, c->q, key_at(c, b, j, k), &error);
    double  dp = dot(c, c->g, c->t->qkv, value_at(c, b, j, k), &size), scale = c->t->attr.scale;
    pair    r = { .p = exp(s - lse) };
    double  relative = error + u * (fabs(s) + fabs(lse) + 6);
    r.p_error = r.p * (relative + rounding(c));
    r.ds = scale * r.p * (dp - delta);
    r.ds_error =
        fabs(r.ds) * (relative + 4 * u + rounding(c)) + scale * r.p * ((c->over_d + 2 * u) * size + delta_error);
    return r;
}

/* Row sum of d_o o of one query, which is loaded into q and g. */
static double load_query(const checker *c, int64_t b, int64_t h, int64_t i, double *error)
{
    double  size;
    int64_t o = ((b * c->T + i) * c->H + h) * c->D;
    load(c, c->t->qkv, query_at(c, b, h, i), c->q);
    load(c, c->t->d_o, o, c->g);
    double delta = dot(c, c->g, c->t->o, o, &size);
    *error = (c->over_d + 2 * u) * size;
    return delta;
}

static void check_query_gradient(checker *c, int64_t b, int64_t h, int64_t i)
{
    int64_t j = h / (c->H / c->J);
    double  delta_error, delta = load_query(c, b, h, i, &delta_error);
    for (int64_t d = 0; d < c->D; d++) c->row[d] = c->bound[d] = 0;
    for (int64_t k = first_key(c, i); k < end_of_keys(c, i); k++) {
        pair r = pair_of(c, b, h, i, k, delta, delta_error);
        for (int64_t d = 0; d < c->D; d++) {
            double key = at(c, c->t->qkv, key_at(c, b, j, k) + d);
            c->row[d] += r.ds * key;
            c->bound[d] += r.ds_error * fabs(key) + c->over_t * fabs(r.ds * key);
        }
    }
    for (int64_t d = 0; d < c->D; d++)
        judge(c, "dq", at(c, c->t->dqkv, query_at(c, b, h, i) + d), c->row[d], c->bound[d]);
}

/* dk and dv of key k of group j: all queries that see it, of all heads of the group. */
static void check_key_gradient(checker *c, int64_t b, int64_t j, int64_t k)
{
    int64_t group = c->H / c->J;
    double *dk = tm_alloc((size_t)(4 * c->D) * sizeof *dk), *dv = dk + c->D, *dk_bound = dv + c->D;
    double *dv_bound = dk_bound + c->D, over = growth(c->T * group);
    for (int64_t d = 0; d < 4 * c->D; d++) dk[d] = 0;
    for (int64_t h = j * group; h < (j + 1) * group; h++)
        for (int64_t i = c->t->attr.causal ? k : 0; i < c->T && first_key(c, i) <= k; i++) {
            double delta_error, delta = load_query(c, b, h, i, &delta_error);
            pair   r = pair_of(c, b, h, i, k, delta, delta_error);
            for (int64_t d = 0; d < c->D; d++) {
                dk[d] += r.ds * c->q[d];
                dk_bound[d] += r.ds_error * fabs(c->q[d]) + over * fabs(r.ds * c->q[d]);
                dv[d] += r.p * c->g[d];
                dv_bound[d] += r.p_error * fabs(c->g[d]) + over * fabs(r.p * c->g[d]);
            }
        }
    for (int64_t d = 0; d < c->D; d++) {
        judge(c, "dk", at(c, c->t->dqkv, key_at(c, b, j, k) + d), dk[d], dk_bound[d]);
        judge(c, "dv", at(c, c->t->dqkv, value_at(c, b, j, k) + d), dv[d], dv_bound[d]);
    }
    free(dk);
}

/* First, last, then random ones. */
static int64_t pick(uint64_t seed, const char *stream, int64_t sample, int64_t n)
{
    if (sample == 0) return 0;
    if (sample == 1) return n - 1;
    return (int64_t)tm_random_below(seed, tm_random_stream(stream), (uint64_t)sample, (uint64_t)n);
}

void tm_attention_verify(const tm_attention_tensors *t, uint64_t seed, tm_attention_check *out)
{
    const tm_attention_attr *a = &t->attr;
    checker                  c = { .t = t, .out = out, .T = a->seq_q, .H = a->heads, .J = a->kv_heads, .D = a->dim_qk };
    c.W = (c.H + 2 * c.J) * c.D;
    c.over_d = growth(c.D);
    c.over_t = growth(c.T);
    c.q = tm_alloc((size_t)(4 * c.D + 2 * c.T) * sizeof(double));
    c.g = c.q + c.D, c.row = c.g + c.D, c.bound = c.row + c.D, c.p = c.bound + c.D, c.pe = c.p + c.T;
    *out = (tm_attention_check){ .what = "o", .rows = SAMPLES };
    for (int64_t s = 0; s < SAMPLES; s++) {
        int64_t b = pick(seed, "attention.check.batch", s, t->batch), h = pick(seed, "attention.check.head", s, c.H);
        int64_t i = pick(seed, "attention.check.row", s, c.T);
        check_query(&c, b, h, i);
        check_query_gradient(&c, b, h, i);
        check_key_gradient(&c, b, h / (c.H / c.J), i);
    }
    out->correct = out->worst <= 1;
    free(c.q);
}
