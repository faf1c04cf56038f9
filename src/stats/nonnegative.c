/* SPDX-License-Identifier: Apache-2.0 */
#include "stats/nonnegative.h"

#include "base/status.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { MOST = TM_NONNEGATIVE_TERMS };

typedef struct {
    double products[MOST][MOST], sides[MOST], values; /* of scaled terms */
    int    terms;
} sums;

/* Solves for the terms of `set` by elimination with pivots; false: they depend on each other. */
static bool solve(const sums *s, unsigned set, double out[MOST])
{
    double a[MOST][MOST + 1];
    int    which[MOST], n = 0;
    for (int t = 0; t < s->terms; t++)
        if (set & 1U << t) which[n++] = t;
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < n; k++) a[i][k] = s->products[which[i]][which[k]];
        a[i][n] = s->sides[which[i]];
    }
    for (int i = 0; i < n; i++) {
        int pivot = i;
        for (int r = i + 1; r < n; r++)
            if (fabs(a[r][i]) > fabs(a[pivot][i])) pivot = r;
        if (!(fabs(a[pivot][i]) > 1e-12)) return false;
        for (int k = 0; k <= n; k++) {
            double other = a[i][k];
            a[i][k] = a[pivot][k];
            a[pivot][k] = other;
        }
        for (int r = 0; r < n; r++) {
            double factor = r == i ? 0 : a[r][i] / a[i][i];
            for (int k = i; k <= n; k++) a[r][k] -= factor * a[i][k];
        }
    }
    memset(out, 0, MOST * sizeof *out);
    for (int i = 0; i < n; i++) out[which[i]] = a[i][n] / a[i][i];
    return true;
}

static double error_of(const sums *s, const double x[MOST])
{
    double error = s->values;
    for (int t = 0; t < s->terms; t++) {
        error -= 2 * x[t] * s->sides[t];
        for (int u = 0; u < s->terms; u++) error += x[t] * x[u] * s->products[t][u];
    }
    return error;
}

void tm_stats_nonnegative(const double *rows, const double *values, const double *weights, int64_t n, int terms,
                          double *out)
{
    sums   s = { .terms = terms };
    double scale[MOST] = { 0 }, best = (double)INFINITY, x[MOST];
    TM_ASSERT(terms >= 1 && terms <= MOST);
    for (int64_t i = 0; i < n; i++)
        for (int t = 0; t < terms; t++) scale[t] += weights[i] * rows[i * terms + t] * rows[i * terms + t];
    for (int t = 0; t < terms; t++) scale[t] = scale[t] > 0 ? 1 / sqrt(scale[t]) : 0;
    for (int64_t i = 0; i < n; i++) {
        s.values += weights[i] * values[i] * values[i];
        for (int t = 0; t < terms; t++) {
            double left = weights[i] * rows[i * terms + t] * scale[t];
            s.sides[t] += left * values[i];
            for (int u = 0; u < terms; u++) s.products[t][u] += left * rows[i * terms + u] * scale[u];
        }
    }
    memset(out, 0, (size_t)terms * sizeof *out);
    for (unsigned set = 1; set < 1U << terms; set++) {
        bool possible = solve(&s, set, x);
        for (int t = 0; t < terms && possible; t++) possible = x[t] >= 0;
        if (!possible || !(error_of(&s, x) < best)) continue;
        best = error_of(&s, x);
        for (int t = 0; t < terms; t++) out[t] = x[t] * scale[t];
    }
}
