/* SPDX-License-Identifier: Apache-2.0 */
#include "train/certify/formulas.h"

#include "base/arena.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Half a unit of the last place of float32, in which updates are computed; the least normal number: what is smaller may
 * be taken for nothing. */
static const double e = 0x1p-24, least = 0x1p-126;

static tm_reckoned clipped(const tm_terms *t, tm_reckoned g)
{
    double value = t->clip * g.value;
    return (tm_reckoned){ value, fabs(value) * (2 * e + t->clip_slack) + t->clip * g.slack };
}

/* --- element by element ------------------------------------------------------------------------------------------- */

/* m = beta1 m + (1 - beta1) g, v = beta2 v + (1 - beta2) g^2, both divided by 1 - beta^t;
 * w = w - rate (m / (sqrt(v) + eps) + decay w) */
void tm_reckon_adamw(const tm_terms *t, double weight, tm_reckoned gradient, double m, double v,
                     tm_reckoned out[TM_RECKONED])
{
    const tm_hyper *h = t->hyper;
    tm_reckoned     g = clipped(t, gradient), *first = &out[1], *second = &out[2];
    double          unbiased1 = 1 - pow(h->beta1, (double)t->step), unbiased2 = 1 - pow(h->beta2, (double)t->step);
    first->value = h->beta1 * m + (1 - h->beta1) * g.value;
    first->slack = 4 * e * (fabs(m) + fabs(g.value)) + (1 - h->beta1) * g.slack + least;
    second->value = h->beta2 * v + (1 - h->beta2) * g.value * g.value;
    second->slack = 6 * e * second->value + (1 - h->beta2) * (2 * fabs(g.value) + g.slack) * g.slack + least;
    double root = sqrt(second->value / unbiased2), under = root + h->eps;
    double low = sqrt(fmax(second->value - second->slack, 0) / unbiased2) + h->eps;
    double high = sqrt((second->value + second->slack) / unbiased2) + h->eps;
    double move = t->rate * first->value / unbiased1 / under, kept = weight - t->rate * t->decay * weight;
    double off = t->rate / unbiased1 *
                 (first->slack / low + fabs(first->value) * fmax(1 / low - 1 / under, 1 / under - 1 / high));
    out[0].value = kept - move;
    out[0].slack = off + 8 * e * fabs(move) + 4 * e * fabs(weight) + e * fabs(out[0].value);
}

/* b = momentum b + (g + decay w); w = w - rate (nesterov ? g + decay w + momentum b : b) */
void tm_reckon_sgd(const tm_terms *t, double weight, tm_reckoned gradient, double buffer, tm_reckoned out[TM_RECKONED])
{
    const tm_hyper *h = t->hyper;
    tm_reckoned     g = clipped(t, gradient), *b = &out[1];
    double          full = g.value + t->decay * weight, sizes = fabs(g.value) + fabs(t->decay * weight);
    b->value = h->momentum * buffer + full;
    b->slack = 4 * e * (sizes + fabs(h->momentum * buffer)) + g.slack + least;
    double along = h->nesterov ? full + h->momentum * b->value : b->value;
    double off = h->nesterov ? (1 + h->momentum) * b->slack + 4 * e * sizes : b->slack;
    out[0].value = weight - t->rate * along;
    out[0].slack = t->rate * (off + 4 * e * fabs(along)) + 2 * e * fabs(weight) + e * fabs(out[0].value);
    out[2] = (tm_reckoned){ 0 };
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* bitsandbytes' create_dynamic_map: 0, 1 and, of seven exponents 10^-6 .. 1, the middles of equal cells of [0.1, 1], of
 * both signs or of twice as many cells. */
void tm_reckon_map(bool is_signed, double map[256])
{
    int n = 0;
    for (int i = 0; i < 7; i++) {
        int    cells = is_signed ? 1 << i : 1 << (i + 1);
        double tens = pow(10, i - 6);
        for (int k = 0; k < cells; k++) {
            double middle = tens * (0.1 + 0.9 * (k + 0.5) / cells);
            map[n++] = middle;
            if (is_signed) map[n++] = -middle;
        }
    }
    map[n++] = 0;
    map[n++] = 1;
    qsort(map, (size_t)n, sizeof *map, ascending);
}

/* --- whole tensors ------------------------------------------------------------------------------------------------ */

static double mean_square(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    return sum / (double)n;
}

/* r = r + share (mean of squares of a row - r), columns likewise; v = r c / mean of r; of a vector v itself.
 * u = g / sqrt(max(v, eps1^2)); w = w - rate decay w - max(eps2, rms(w)) min(rate, 1 / sqrt(t)) u / max(1, rms(u) / d)
 */
void tm_reckon_adafactor(const tm_terms *t, double eps1, int64_t rows, int64_t columns, const double *weights,
                         const tm_reckoned *gradients, double *row, double *column, tm_reckoned *out)
{
    const tm_hyper *h = t->hyper;
    const bool      matrix = rows > 0;
    const int64_t   high = matrix ? rows : 1, n = high * columns;
    double          share = pow((double)t->step, h->beta2_decay), mean = 1, squares = 0;
    double          relative = fmin(t->rate, 1 / sqrt((double)t->step));
    double         *sums = tm_alloc((size_t)(high + columns) * sizeof *sums);
    for (int64_t i = 0; i < n; i++) {
        double g = t->clip * gradients[i].value;
        sums[i / columns] += g * g, sums[high + i % columns] += g * g;
    }
    for (int64_t j = 0; j < columns; j++) column[j] += share * (sums[high + j] / (double)high - column[j]);
    for (int64_t i = 0; i < rows; i++) row[i] += share * (sums[i] / (double)columns - row[i]);
    if (matrix) mean = 0;
    for (int64_t i = 0; i < rows; i++) mean += row[i] / (double)rows;
    for (int64_t i = 0; i < n; i++) {
        double v = matrix ? row[i / columns] * column[i % columns] / fmax(mean, eps1) : column[i];
        out[i].value = t->clip * gradients[i].value / sqrt(fmax(v, eps1 * eps1));
        out[i].slack = t->clip * gradients[i].slack / sqrt(fmax(v, eps1 * eps1));
        squares += out[i].value * out[i].value;
    }
    double step = fmax(h->eps2, sqrt(mean_square(weights, n))) * relative /
                  fmax(1, sqrt(squares / (double)n) / h->clip_threshold);
    for (int64_t i = 0; i < n; i++) {
        double move = step * out[i].value, w = weights[i];
        out[i].slack = 2 * step * out[i].slack + fabs(move) * (0x1p-15 + 2 * t->clip_slack) + 4 * e * fabs(w);
        out[i].value = w - t->rate * t->decay * w - move;
    }
    free(sums);
}

static const double simple[3] = { 3.4445, -4.7750, 2.0315 }; /* Jordan et al. 2024 */
static const double quintic[5][3] = { { 4.0848, -6.8946, 2.9270 },
                                      { 3.9505, -6.3029, 2.6377 },
                                      { 3.7418, -5.5913, 2.3037 },
                                      { 2.8769, -3.1427, 1.2046 },
                                      { 2.8366, -3.0525, 1.2012 } }; /* Megatron-LM's */

/* x (r, c) becomes a x + b (x x') x + c (x x')^2 x. */
static void iterate(double *x, int64_t r, int64_t c, const double abc[3])
{
    double *gram = tm_alloc((size_t)(2 * r * r + r * c) * sizeof *gram), *mixed = gram + r * r, *y = mixed + r * r;
    for (int64_t i = 0; i < r; i++)
        for (int64_t j = 0; j <= i; j++) {
            double sum = 0;
            for (int64_t k = 0; k < c; k++) sum += x[i * c + k] * x[j * c + k];
            gram[i * r + j] = gram[j * r + i] = sum;
        }
    for (int64_t i = 0; i < r; i++)
        for (int64_t j = 0; j < r; j++) {
            double sum = 0;
            for (int64_t k = 0; k < r; k++) sum += gram[i * r + k] * gram[j * r + k];
            mixed[i * r + j] = abc[1] * gram[i * r + j] + abc[2] * sum;
        }
    for (int64_t i = 0; i < r; i++) {
        for (int64_t k = 0; k < c; k++) y[i * c + k] = abc[0] * x[i * c + k];
        for (int64_t j = 0; j < r; j++)
            for (int64_t k = 0; k < c; k++) y[i * c + k] += mixed[i * r + j] * x[j * c + k];
    }
    memcpy(x, y, (size_t)(r * c) * sizeof *x);
    free(gram);
}

double tm_reckon_muon_factor(const tm_hyper *h, double rows, double columns)
{
    switch (h->scale) {
    case TM_MUON_MATCH_RMS:
        return 0.2 * sqrt(fmax(rows, columns));
    case TM_MUON_SPECTRAL:
        return sqrt(fmax(rows, columns));
    case TM_MUON_UNIT_RMS:
        return sqrt(rows / columns);
    case TM_MUON_ORIGINAL:
    case TM_MUON_SHAPE:
        return sqrt(fmax(1, rows / columns));
    case TM_MUON_SCALE_COUNT:
        break;
    }
    return (double)NAN;
}

void tm_reckon_muon(const tm_terms *t, int64_t rows, int64_t columns, const double *weights,
                    const tm_reckoned *gradients, double *buffer, tm_reckoned *out)
{
    const tm_hyper *h = t->hyper;
    const bool      megatron = h->definition == TM_DEFINED_MEGATRON, high = rows > columns;
    const int64_t   n = rows * columns, r = high ? columns : rows, c = high ? rows : columns;
    double         *x = tm_alloc((size_t)n * sizeof *x),
           factor = t->rate * tm_reckon_muon_factor(h, (double)rows, (double)columns);
    for (int64_t i = 0; i < n; i++) {
        double g = t->clip * gradients[i].value;
        buffer[i] = h->momentum * buffer[i] + (1 - h->momentum) * g;
        x[high ? i % columns * c + i / columns : i] =
            h->nesterov ? (1 - h->momentum) * g + h->momentum * buffer[i] : buffer[i];
    }
    double norm = fmax(sqrt(mean_square(x, n) * (double)n), megatron ? 1e-15 : 1e-7);
    for (int64_t i = 0; i < n; i++) x[i] /= norm;
    for (int k = 0; k < 5; k++) iterate(x, r, c, megatron ? quintic[k] : simple);
    double size = sqrt(mean_square(x, n));
    for (int64_t i = 0; i < n; i++) {
        double move = factor * x[high ? i % columns * c + i / columns : i], w = weights[i];
        out[i].value = w - t->rate * t->decay * w - move;
        out[i].slack = fabs(factor) * size * TM_MUON_SLACK + 4 * e * fabs(w);
    }
    free(x);
}
