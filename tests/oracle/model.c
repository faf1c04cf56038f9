/* SPDX-License-Identifier: Apache-2.0 */
/* tests/oracle/model.c - the loss of a batch and its gradients, written out by hand. */
#include "oracle/oracle.h"

#include <stdlib.h>
#include <string.h>

double *oracle_take(oracle *o, size_t n)
{
    double *taken = o->pool + o->used;
    o->used += n;
    if (o->used > o->size) abort();
    memset(taken, 0, n * sizeof *taken);
    return taken;
}

/* --- products ----------------------------------------------------------------------------------------------------- */

/* y (n, m) += scale x (n, k) w^T, w (m, k) */
static void product(const double *x, const double *w, double *y, int n, int m, int k, double scale)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++) {
            double sum = 0;
            for (int c = 0; c < k; c++) sum += x[i * k + c] * w[j * k + c];
            y[i * m + j] += scale * sum;
        }
}

/* dx (n, k) += scale dy (n, m) w */
static void product_dx(const double *dy, const double *w, double *dx, int n, int m, int k, double scale)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++)
            for (int c = 0; c < k; c++) dx[i * k + c] += scale * dy[i * m + j] * w[j * k + c];
}

/* dw (m, k) += scale dy^T x */
static void product_dw(const double *dy, const double *x, double *dw, int n, int m, int k, double scale)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++)
            for (int c = 0; c < k; c++) dw[j * k + c] += scale * dy[i * m + j] * x[i * k + c];
}

/* The number of a format with `mantissa` bits, least normal exponent `least`, largest number `most` that is nearest to
 * x, ties to even; or, with a chance in [0, 1), one of the two around it. */
static double narrowed(double x, int mantissa, int least, double most, double chance)
{
    int    e;
    double size = fmin(fabs(x), most);
    (void)frexp(size, &e);
    double unit = ldexp(1, (e - 1 < least ? least : e - 1) - mantissa), units = size / unit, whole = floor(units);
    double rest = units - whole;
    if (chance >= 0 ? chance < rest : rest > 0.5 || (rest == 0.5 && fmod(whole, 2) == 1)) whole++;
    return copysign(whole * unit, x);
}

/* Columns [from, to) of rows [begin, end) of x (., columns) as a recipe leaves them: e4m3, or e5m2 of gradients.
 * `seed`: of rounding at random, 0: to nearest. */
static void quantize(oracle *o, oracle_factor *f, const double *x, double *y, int columns, int begin, int end, int from,
                     int to, bool gradient, uint64_t seed)
{
    double most = gradient ? 57344 : 448, largest = 0;
    for (int r = begin; r < end; r++)
        for (int c = from; c < to; c++) largest = fmax(largest, fabs((double)(float)x[r * columns + c]));
    if (o->training) f->now = fmax(f->now, largest);
    float    scale = o->delayed ? f->scale : largest > 0 ? (float)(most / largest) : 1;
    uint64_t pass = (uint64_t)o->step * (uint64_t)o->passes + (uint64_t)o->micro + 1;
    for (int r = begin; r < end; r++)
        for (int c = from; c < to; c++) {
            double chance =
                seed ? (double)(oracle_random(seed, pass, (uint64_t)(r * columns + c)) >> 40) * 0x1p-24 : -1;
            float  scaled = (float)x[r * columns + c] * scale;
            double q = gradient ? narrowed((double)scaled, 2, -14, most, chance)
                                : narrowed((double)scaled, 3, -6, most, chance);
            y[r * columns + c] = (double)((float)q / scale);
        }
}

static bool low_precision(const oracle *o, const oracle_linear *l)
{
    return (o->delayed || o->current) && l->parts > 0;
}

static const double *quantized_x(oracle *o, oracle_linear *l, const double *x, int n)
{
    if (!low_precision(o, l)) return x;
    double *y = oracle_take(o, (size_t)(n * l->w->columns));
    quantize(o, &l->x, x, y, l->w->columns, 0, n, 0, l->w->columns, false, 0);
    return y;
}

static const double *quantized_w(oracle *o, oracle_linear *l)
{
    if (!low_precision(o, l)) return l->w->w;
    double *y = oracle_take(o, (size_t)(l->w->rows * l->w->columns));
    for (int p = 0; p < l->parts; p++)
        quantize(o, &l->of_w[p], l->w->w, y, l->w->columns, p ? l->end[p - 1] : 0, l->end[p], 0, l->w->columns, false,
                 0);
    return y;
}

/* `factor`: "dy" of the product dx, "dy.dw" of dw. */
static const double *quantized_dy(oracle *o, oracle_linear *l, const double *dy, int n, const char *factor)
{
    char     name[80] = "";
    uint64_t seed = 0;
    if (!low_precision(o, l)) return dy;
    double *y = oracle_take(o, (size_t)(n * l->w->rows));
    strcat(strcat(strcat(name, l->first), "."), factor);
    if (o->stochastic) seed = oracle_random(o->seed, oracle_stream(name), 0);
    for (int p = 0; p < l->parts; p++)
        quantize(o, &l->dy[p], dy, y, l->w->rows, 0, n, p ? l->end[p - 1] : 0, l->end[p], true, seed);
    return y;
}

/* An adapter's inputs, some of them left out while training: by the number of an element among those of the
 * run. */
static const double *dropped(oracle *o, const oracle_linear *l, const double *x, int n)
{
    int columns = l->w->columns;
    if (!o->training || !(o->dropout > 0)) return x;
    double  *y = oracle_take(o, (size_t)(n * columns));
    uint64_t first = (uint64_t)(o->step * o->passes + o->micro) * (uint64_t)(n * columns);
    for (int i = 0; i < n * columns; i++) {
        uint64_t element = first + (uint64_t)i, bits = oracle_random(o->seed, oracle_stream(l->w->name), element / 2);
        double   uniform = (double)(element % 2 ? bits >> 32 : bits & 0xffffffff) * 0x1p-32;
        y[i] = uniform >= o->dropout ? x[i] / (1 - o->dropout) : 0;
    }
    return y;
}

static void linear(oracle *o, oracle_linear *l, const double *x, double *y, int n)
{
    int m = l->w->rows, k = l->w->columns, r = l->low_a ? l->low_a->rows : 0;
    product(quantized_x(o, l, x, n), quantized_w(o, l), y, n, m, k, 1);
    for (int i = 0; i < n * m && l->b; i++) y[i] += l->b->w[i % m];
    if (r == 0) return;
    double *u = oracle_take(o, (size_t)(n * r));
    product(dropped(o, l, x, n), l->low_a->w, u, n, r, k, 1);
    product(u, l->low_b->w, y, n, m, r, o->lora_scale);
}

static void linear_back(oracle *o, oracle_linear *l, const double *x, const double *dy, double *dx, int n)
{
    int m = l->w->rows, k = l->w->columns, r = l->low_a ? l->low_a->rows : 0;
    product_dx(quantized_dy(o, l, dy, n, "dy"), quantized_w(o, l), dx, n, m, k, 1);
    product_dw(quantized_dy(o, l, dy, n, "dy.dw"), quantized_x(o, l, x, n), l->w->g, n, m, k, 1);
    for (int i = 0; i < n * m && l->b; i++) l->b->g[i % m] += dy[i];
    if (r == 0) return;
    double       *u = oracle_take(o, (size_t)(n * r)), *du = oracle_take(o, (size_t)(n * r));
    double       *dropped_dx = oracle_take(o, (size_t)(n * k));
    const double *kept = dropped(o, l, x, n);
    product(kept, l->low_a->w, u, n, r, k, 1);
    product_dw(dy, u, l->low_b->g, n, m, r, o->lora_scale);
    product_dx(dy, l->low_b->w, du, n, m, r, o->lora_scale);
    product_dw(du, kept, l->low_a->g, n, r, k, 1);
    product_dx(du, l->low_a->w, dropped_dx, n, r, k, 1);
    const double *back = dropped(o, l, dropped_dx, n); /* the same elements */
    for (int i = 0; i < n * k; i++) dx[i] += back[i];
}

/* --- norms -------------------------------------------------------------------------------------------------------- */

/* The mean that is taken off, and 1 / the root of the mean square of the rest. */
static double spread(const oracle *o, const double *x, double *mean)
{
    double square = 0;
    *mean = 0;
    for (int c = 0; c < o->dim && o->gpt; c++) *mean += x[c] / o->dim;
    for (int c = 0; c < o->dim; c++) square += (x[c] - *mean) * (x[c] - *mean) / o->dim;
    return 1 / sqrt(square + o->norm_eps);
}

static void norm(const oracle *o, const oracle_parameter *w, const oracle_parameter *b, const double *x, double *y,
                 int n)
{
    for (int i = 0; i < n; i++, x += o->dim, y += o->dim) {
        double mean, inverse = spread(o, x, &mean);
        for (int c = 0; c < o->dim; c++) y[c] = (x[c] - mean) * inverse * w->w[c] + (b ? b->w[c] : 0);
    }
}

/* dx += */
static void norm_back(const oracle *o, oracle_parameter *w, oracle_parameter *b, const double *x, const double *dy,
                      double *dx, int n)
{
    for (int i = 0; i < n; i++, x += o->dim, dy += o->dim, dx += o->dim) {
        double mean, inverse = spread(o, x, &mean), along = 0, level = 0;
        for (int c = 0; c < o->dim; c++) {
            double unit = (x[c] - mean) * inverse;
            w->g[c] += dy[c] * unit;
            if (b) b->g[c] += dy[c];
            along += dy[c] * w->w[c] * unit / o->dim;
            if (o->gpt) level += dy[c] * w->w[c] / o->dim;
        }
        for (int c = 0; c < o->dim; c++) dx[c] += inverse * (dy[c] * w->w[c] - level - (x[c] - mean) * inverse * along);
    }
}

/* --- attention ---------------------------------------------------------------------------------------------------- */

/* Turns queries and keys by their positions; sign -1: back. */
static void rotate(const oracle *o, const oracle_batch *d, double *heads, int sign)
{
    int half = o->head / 2, row = (o->heads + 2 * o->kv_heads) * o->head;
    for (int i = 0; i < d->n; i++)
        for (int h = 0; h < o->heads + o->kv_heads; h++)
            for (int c = 0; c < half; c++) {
                double *a = heads + i * row + h * o->head + c, *b = a + half, was = *a;
                double  angle = sign * d->position[i] * pow(o->theta, -2. * c / o->head);
                *a = was * cos(angle) - *b * sin(angle);
                *b = was * sin(angle) + *b * cos(angle);
            }
}

typedef struct {
    int     row, first; /* elements of a row; first key that is seen */
    double *q, *k, *v, *shares;
} query;

/* Of head h of row i: its query, and keys and values of row 0. */
static query query_of(const oracle *o, const oracle_batch *d, double *heads, double *shares, int i, int h)
{
    int   group = h / (o->heads / o->kv_heads);
    query a = { .row = (o->heads + 2 * o->kv_heads) * o->head, .first = d->first[i] };
    a.q = heads + i * a.row + h * o->head;
    a.k = heads + (o->heads + group) * o->head;
    a.v = a.k + o->kv_heads * o->head;
    a.shares = shares + (i * o->heads + h) * d->n;
    if (o->window > 0 && i - o->window + 1 > a.first) a.first = i - o->window + 1;
    return a;
}

static double dot(const double *a, const double *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static void attend(const oracle *o, const oracle_batch *d, oracle_layer *l)
{
    for (int i = 0; i < d->n; i++)
        for (int h = 0; h < o->heads; h++) {
            query  a = query_of(o, d, l->heads, l->shares, i, h);
            double sum = 0, *out = l->mixed + (i * o->heads + h) * o->head;
            for (int j = a.first; j <= i; j++)
                sum += a.shares[j] = exp(dot(a.q, a.k + j * a.row, o->head) / sqrt(o->head));
            for (int j = a.first; j <= i; j++) {
                a.shares[j] /= sum;
                for (int c = 0; c < o->head; c++) out[c] += a.shares[j] * a.v[j * a.row + c];
            }
        }
}

static void attend_back(const oracle *o, const oracle_batch *d, oracle_layer *l, const double *dout, double *dheads)
{
    for (int i = 0; i < d->n; i++)
        for (int h = 0; h < o->heads; h++) {
            query         a = query_of(o, d, l->heads, l->shares, i, h), g = query_of(o, d, dheads, l->shares, i, h);
            const double *dy = dout + (i * o->heads + h) * o->head;
            double        mean = dot(dy, l->mixed + (i * o->heads + h) * o->head, o->head);
            for (int j = a.first; j <= i; j++) {
                double ds = a.shares[j] * (dot(dy, a.v + j * a.row, o->head) - mean) / sqrt(o->head);
                for (int c = 0; c < o->head; c++) {
                    g.v[j * a.row + c] += a.shares[j] * dy[c];
                    g.q[c] += ds * a.k[j * a.row + c];
                    g.k[j * a.row + c] += ds * a.q[c];
                }
            }
        }
}

/* --- feed-forward and experts ------------------------------------------------------------------------------------- */

/* silu(gate) up, or gelu; dy NULL: y of x, else dx of dy. */
static void activate(const oracle *o, const double *x, double *y, int n, const double *dy)
{
    for (int i = 0; i < n * o->ffn; i++) {
        int at = o->gpt ? i : i / o->ffn * 2 * o->ffn + i % o->ffn;
        if (o->gpt) {
            double a = x[i], root = sqrt(2 / acos(-1)), th = tanh(root * (a + 0.044715 * a * a * a));
            y[i] = 0.5 * a * (1 + th);
            if (dy) y[i] = dy[i] * (0.5 * (1 + th) + 0.5 * a * (1 - th * th) * root * (1 + 3 * 0.044715 * a * a));
        } else {
            double gate = x[at], up = x[at + o->ffn], s = 1 / (1 + exp(-gate));
            if (!dy) y[i] = gate * s * up;
            if (dy) y[at] = dy[i] * up * s * (1 + gate * (1 - s)), y[at + o->ffn] = dy[i] * gate * s;
        }
    }
}

static void route(const oracle *o, oracle_layer *l, int i)
{
    double *s = l->scores + i * o->experts, *w = l->weights + i * o->top_k, sum = 0, chosen = 0;
    int    *ids = l->chosen + i * o->top_k;
    product(l->normed2 + i * o->dim, l->router->w, s, 1, o->experts, o->dim, 1);
    for (int e = 0; e < o->experts; e++) sum += s[e] = o->sigmoid ? 1 / (1 + exp(-s[e])) : exp(s[e]);
    for (int e = 0; e < o->experts && !o->sigmoid; e++) s[e] /= sum;
    for (int j = 0; j < o->top_k; j++) {
        ids[j] = -1;
        for (int e = 0; e < o->experts; e++) {
            bool taken = false;
            for (int k = 0; k < j; k++) taken = taken || ids[k] == e;
            double offset = l->bias ? l->bias->w[e] - (ids[j] >= 0 ? l->bias->w[ids[j]] : 0) : 0;
            if (!taken && (ids[j] < 0 || s[e] + offset > s[ids[j]])) ids[j] = e;
        }
        chosen += s[ids[j]];
    }
    for (int j = 0; j < o->top_k; j++) w[j] = o->expert_scale * s[ids[j]] / (o->normalise ? chosen : 1);
}

/* E / (rows k) x the pairs of row i's sequence, or of the micro-batch, that go to expert e. */
static double load(const oracle *o, const oracle_batch *d, const oracle_layer *l, int i, int e)
{
    int rows = o->per_sequence ? o->seq : d->n, from = o->per_sequence ? i / o->seq * o->seq : 0, n = 0;
    for (int j = from * o->top_k; j < (from + rows) * o->top_k; j++) n += l->chosen[j] == e;
    return (double)(o->experts * n) / (rows * o->top_k);
}

static void experts(oracle *o, const oracle_batch *d, oracle_layer *l, double *y)
{
    int f = o->ffn, c = o->dim, k = o->top_k;
    for (int i = 0; i < d->n; i++) {
        route(o, l, i);
        for (int j = 0; j < k; j++) {
            int     e = l->chosen[i * k + j];
            double *up = l->gate_up + (i * k + j) * 2 * f, *h = l->inner + (i * k + j) * f;
            product(l->normed2 + i * c, l->expert_up->w + e * 2 * f * c, up, 1, 2 * f, c, 1);
            activate(o, up, h, 1, NULL);
            product(h, l->expert_down->w + e * c * f, y + i * c, 1, c, f, l->weights[i * k + j]);
            if (o->training) l->counts[e]++;
        }
    }
    for (int i = 0; i < d->n && o->training; i++)
        for (int e = 0; e < o->experts; e++)
            o->balanced += o->balance * load(o, d, l, i, e) * l->scores[i * o->experts + e];
}

static void experts_back(oracle *o, const oracle_batch *d, oracle_layer *l, const double *dy, double *db, double scale)
{
    int f = o->ffn, c = o->dim, k = o->top_k;
    for (int i = 0; i < d->n; i++) {
        const double *s = l->scores + i * o->experts, *b = l->normed2 + i * c;
        const int    *ids = l->chosen + i * k;
        double       *ds = oracle_take(o, (size_t)(2 * o->experts)), *dlogits = ds + o->experts, sum = 0, along = 0;
        for (int j = 0; j < k; j++) sum += s[ids[j]];
        double *dw = oracle_take(o, (size_t)k);
        for (int j = 0; j < k; j++) {
            double *out = oracle_take(o, (size_t)(c + 3 * f)), *dh = out + c, *dup = dh + f;
            double *w_up = l->expert_up->w + ids[j] * 2 * f * c, *w_down = l->expert_down->w + ids[j] * c * f;
            double *h = l->inner + (i * k + j) * f, *g_down = l->expert_down->g + ids[j] * c * f;
            product(h, w_down, out, 1, c, f, 1);
            dw[j] = dot(out, dy + i * c, c);
            product_dw(dy + i * c, h, g_down, 1, c, f, l->weights[i * k + j]);
            product_dx(dy + i * c, w_down, dh, 1, c, f, l->weights[i * k + j]);
            activate(o, l->gate_up + (i * k + j) * 2 * f, dup, 1, dh);
            product_dw(dup, b, l->expert_up->g + ids[j] * 2 * f * c, 1, 2 * f, c, 1);
            product_dx(dup, w_up, db + i * c, 1, 2 * f, c, 1);
            along += dw[j] * s[ids[j]];
        }
        for (int j = 0; j < k; j++) ds[ids[j]] = o->expert_scale * (o->normalise ? (dw[j] - along / sum) / sum : dw[j]);
        for (int e = 0; e < o->experts; e++) ds[e] += scale * o->balance * load(o, d, l, i, e);
        for (int e = 0; e < o->experts; e++)
            dlogits[e] = o->sigmoid ? ds[e] * s[e] * (1 - s[e]) : s[e] * (ds[e] - dot(ds, s, o->experts));
        product_dw(dlogits, b, l->router->g, 1, o->experts, c, 1);
        product_dx(dlogits, l->router->w, db + i * c, 1, o->experts, c, 1);
    }
}

/* --- the model ---------------------------------------------------------------------------------------------------- */

static double *block(oracle *o, const oracle_batch *d, oracle_layer *l, double *x)
{
    size_t n = (size_t)d->n, c = (size_t)o->dim, pairs = l->router ? n * (size_t)o->top_k : n;
    l->x = x;
    l->normed = oracle_take(o, n * c);
    l->heads = oracle_take(o, n * (size_t)l->qkv.w->rows);
    l->shares = oracle_take(o, n * n * (size_t)o->heads);
    l->mixed = oracle_take(o, n * (size_t)(o->heads * o->head));
    l->middle = oracle_take(o, n * c);
    l->normed2 = oracle_take(o, n * c);
    l->gate_up = oracle_take(o, pairs * 2 * (size_t)o->ffn);
    l->inner = oracle_take(o, pairs * (size_t)o->ffn);
    double *y = oracle_take(o, n * c);
    norm(o, l->norm[0], l->norm_b[0], x, l->normed, d->n);
    linear(o, &l->qkv, l->normed, l->heads, d->n);
    if (!o->gpt) rotate(o, d, l->heads, 1);
    attend(o, d, l);
    linear(o, &l->out, l->mixed, l->middle, d->n);
    for (size_t i = 0; i < n * c; i++) l->middle[i] += x[i];
    norm(o, l->norm[1], l->norm_b[1], l->middle, l->normed2, d->n);
    if (l->router) {
        l->scores = oracle_take(o, n * (size_t)o->experts);
        l->weights = oracle_take(o, pairs);
        l->chosen = (int *)(void *)oracle_take(o, pairs);
        experts(o, d, l, y);
    } else {
        linear(o, &l->up, l->normed2, l->gate_up, d->n);
        activate(o, l->gate_up, l->inner, d->n, NULL);
        linear(o, &l->down, l->inner, y, d->n);
    }
    for (size_t i = 0; i < n * c; i++) y[i] += l->middle[i];
    return y;
}

/* dx: of what came out, becomes that of what came in. */
static void block_back(oracle *o, const oracle_batch *d, oracle_layer *l, double *dx, double scale)
{
    size_t  n = (size_t)d->n, c = (size_t)o->dim, f = (size_t)o->ffn;
    double *db = oracle_take(o, n * c), *dh = oracle_take(o, n * f), *dup = oracle_take(o, n * 2 * f);
    double *da = oracle_take(o, n * c), *dmixed = oracle_take(o, n * (size_t)(o->heads * o->head));
    double *dheads = oracle_take(o, n * (size_t)l->qkv.w->rows);
    if (l->router) {
        experts_back(o, d, l, dx, db, scale);
    } else {
        linear_back(o, &l->down, l->inner, dx, dh, d->n);
        activate(o, l->gate_up, dup, d->n, dh);
        linear_back(o, &l->up, l->normed2, dup, db, d->n);
    }
    norm_back(o, l->norm[1], l->norm_b[1], l->middle, db, dx, d->n);
    linear_back(o, &l->out, l->mixed, dx, dmixed, d->n);
    attend_back(o, d, l, dmixed, dheads);
    if (!o->gpt) rotate(o, d, dheads, -1);
    linear_back(o, &l->qkv, l->normed, dheads, da, d->n);
    norm_back(o, l->norm[0], l->norm_b[0], l->x, da, dx, d->n);
}

double oracle_forward(oracle *o, const oracle_batch *d, bool training)
{
    double loss = 0;
    o->used = 0;
    o->training = training;
    double *x = oracle_take(o, (size_t)(d->n * o->dim));
    for (int i = 0; i < d->n * o->dim; i++) {
        int row = i / o->dim, c = i % o->dim;
        x[i] = o->embedding->w[d->tokens[row] * o->dim + c];
        if (o->gpt) x[i] += o->positions->w[d->position[row] * o->dim + c];
    }
    for (int k = 0; k < o->layers; k++) x = block(o, d, &o->layer[k], x);
    o->last = x;
    o->final = oracle_take(o, (size_t)(d->n * o->dim));
    o->logits = oracle_take(o, (size_t)(d->n * o->vocab));
    norm(o, o->norm, o->norm_b, x, o->final, d->n);
    product(o->final, o->output->w, o->logits, d->n, o->vocab, o->dim, 1);
    for (int i = 0; i < d->n; i++) {
        double sum = 0, *z = o->logits + i * o->vocab;
        for (int t = 0; t < o->vocab; t++) sum += exp(z[t]);
        if (d->targets[i] >= 0) loss += log(sum) - z[d->targets[i]];
    }
    return loss;
}

void oracle_backward(oracle *o, const oracle_batch *d, double scale)
{
    double *dfinal = oracle_take(o, (size_t)(d->n * o->dim)), *dx = oracle_take(o, (size_t)(d->n * o->dim));
    for (int i = 0; i < d->n; i++) {
        double sum = 0, *z = o->logits + i * o->vocab;
        for (int t = 0; t < o->vocab; t++) sum += z[t] = exp(z[t]);
        for (int t = 0; t < o->vocab; t++) z[t] = d->targets[i] < 0 ? 0 : scale * (z[t] / sum - (t == d->targets[i]));
    }
    product_dx(o->logits, o->output->w, dfinal, d->n, o->vocab, o->dim, 1);
    product_dw(o->logits, o->final, o->output->g, d->n, o->vocab, o->dim, 1);
    norm_back(o, o->norm, o->norm_b, o->last, dfinal, dx, d->n);
    for (int k = o->layers - 1; k >= 0; k--) block_back(o, d, &o->layer[k], dx, scale);
    for (int i = 0; i < d->n * o->dim; i++) {
        int row = i / o->dim, c = i % o->dim;
        o->embedding->g[d->tokens[row] * o->dim + c] += dx[i];
        if (o->gpt) o->positions->g[d->position[row] * o->dim + c] += dx[i];
    }
}
