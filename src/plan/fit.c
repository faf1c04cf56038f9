/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/fit.h"

#include "base/arena.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double DEVIATION = 0.08, BEND = 0.12, STEP = 1e-3;
enum { ROUNDS = 20, TRIES = 6, N = TM_PARAMETER_COUNT };

typedef struct {
    const tm_published_row **row; /* (n) */
    size_t                   n;
    double                   x[N];        /* logarithms of the parameters */
    double                  *e, *changed; /* (n) residuals at x, and beside it */
    double                  *slopes;      /* (n, N) */
} fit;

static bool counts(const tm_published_row *row, const char *without)
{
    return !row->refused && row->kind == TM_ROW_SPEED && !(without && strcmp(row->source, without) == 0);
}

static tm_parameters parameters(const double *x)
{
    tm_parameters p;
    for (int i = 0; i < N; i++) p.of[i] = exp(x[i]);
    return p;
}

static void residuals(const fit *f, const double *x, double *e)
{
    tm_parameters p = parameters(x);
    for (size_t i = 0; i < f->n; i++) e[i] = log(tm_row_predict(f->row[i], &p) / f->row[i]->published);
}

static double prior_error(int i, double x)
{
    const tm_parameter_row *row = &tm_parameter_rows()[i];
    return row->doubt > 0 ? (x - log(row->prior)) / row->doubt : 0;
}

static double cost(const fit *f, const double *x, const double *e)
{
    double sum = 0;
    for (size_t i = 0; i < f->n; i++) {
        double a = fabs(e[i]);
        sum += (a < BEND ? 0.5 * a * a : BEND * (a - 0.5 * BEND)) / (DEVIATION * DEVIATION);
    }
    for (int i = 0; i < N; i++) sum += 0.5 * prior_error(i, x[i]) * prior_error(i, x[i]);
    return sum;
}

/* Solves a x = b for a symmetric positive matrix, by Cholesky's factors; a is overwritten. */
static void solve(double a[N][N], const double *b, double *x)
{
    for (int j = 0; j < N; j++) {
        for (int k = 0; k < j; k++)
            for (int i = j; i < N; i++) a[i][j] -= a[i][k] * a[j][k];
        double root = sqrt(a[j][j]);
        for (int i = j; i < N; i++) a[i][j] /= root;
    }
    for (int i = 0; i < N; i++) {
        x[i] = b[i];
        for (int k = 0; k < i; k++) x[i] -= a[i][k] * x[k];
        x[i] /= a[i][i];
    }
    for (int i = N - 1; i >= 0; i--) {
        for (int k = i + 1; k < N; k++) x[i] -= a[k][i] * x[k];
        x[i] /= a[i][i];
    }
}

static void differentiate(fit *f)
{
    for (int k = 0; k < N; k++) {
        double x[N];
        memcpy(x, f->x, sizeof x);
        x[k] += STEP;
        if (tm_parameter_rows()[k].doubt > 0) residuals(f, x, f->changed);
        for (size_t i = 0; i < f->n; i++)
            f->slopes[i * N + (size_t)k] = tm_parameter_rows()[k].doubt > 0 ? (f->changed[i] - f->e[i]) / STEP : 0;
    }
}

/* The normal equations with robust weights, and the priors. */
static void normal(const fit *f, double a[N][N], double *b)
{
    memset(a, 0, sizeof(double[N][N]));
    memset(b, 0, N * sizeof *b);
    for (size_t i = 0; i < f->n; i++) {
        const double *s = f->slopes + i * N;
        double        w = fmin(1, BEND / fmax(fabs(f->e[i]), 1e-12)) / (DEVIATION * DEVIATION);
        for (int k = 0; k < N; k++) {
            b[k] -= w * s[k] * f->e[i];
            for (int l = 0; l < N; l++) a[k][l] += w * s[k] * s[l];
        }
    }
    for (int k = 0; k < N; k++) {
        double doubt = tm_parameter_rows()[k].doubt;
        a[k][k] += doubt > 0 ? 1 / (doubt * doubt) : 1;
        if (doubt > 0) b[k] -= prior_error(k, f->x[k]) / doubt;
    }
}

/* One step downhill; false: there is none worth it. */
static bool descend(fit *f, double *damping, double *best)
{
    double a[N][N], damped[N][N];
    double b[N], dx[N], x[N], before = *best;
    differentiate(f);
    normal(f, a, b);
    for (int t = 0; t < TRIES; t++) {
        memcpy(damped, a, sizeof a);
        for (int k = 0; k < N; k++) damped[k][k] *= 1 + *damping;
        solve(damped, b, dx);
        for (int k = 0; k < N; k++) x[k] = f->x[k] + fmax(-0.5, fmin(0.5, dx[k]));
        residuals(f, x, f->changed);
        double now = cost(f, x, f->changed);
        if (now < *best) {
            memcpy(f->x, x, sizeof x);
            memcpy(f->e, f->changed, f->n * sizeof *f->e);
            *best = now;
            *damping *= 0.3;
            return before - now > 1e-4 * before;
        }
        *damping *= 5;
    }
    return false;
}

tm_parameters tm_fit(const tm_published_rows *rows, const char *without, const tm_parameters *start)
{
    tm_arena *arena = tm_arena_create();
    fit       f = { .row = tm_arena_take(arena, (rows->n + 1) * sizeof *f.row) };
    for (size_t i = 0; i < rows->n; i++)
        if (counts(&rows->row[i], without)) f.row[f.n++] = &rows->row[i];
    f.e = tm_arena_take(arena, (f.n + 1) * sizeof *f.e);
    f.changed = tm_arena_take(arena, (f.n + 1) * sizeof *f.changed);
    f.slopes = tm_arena_take(arena, (f.n + 1) * N * sizeof *f.slopes);
    for (int i = 0; i < N; i++) f.x[i] = log(start->of[i]);
    residuals(&f, f.x, f.e);
    double damping = 1e-2, best = cost(&f, f.x, f.e);
    for (int i = 0; i < ROUNDS && descend(&f, &damping, &best); i++) continue;
    tm_parameters p = parameters(f.x);
    tm_arena_destroy(arena);
    return p;
}

void tm_fit_without_each(const tm_published_rows *rows, const tm_parameters *start, double *errors)
{
    for (size_t i = 0; i < rows->n; i++) errors[i] = (double)NAN;
    for (size_t i = 0; i < rows->n; i++) {
        const tm_published_row *row = &rows->row[i];
        if (!counts(row, NULL) || !isnan(errors[i])) continue;
        tm_parameters p = tm_fit(rows, row->source, start);
        for (size_t k = i; k < rows->n; k++)
            if (counts(&rows->row[k], NULL) && strcmp(rows->row[k].source, row->source) == 0)
                errors[k] = log(tm_row_predict(&rows->row[k], &p) / rows->row[k].published);
    }
}
