/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in for cuDNN: graphs, executed one operation after the other. Every tensor is rounded to its format, also a
 * virtual one; sums are float64, rounded to float32.
 */
#include "cudnn.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ILLEGAL_ADDRESS = 700 };

size_t dnn_bytes_of_format(int format)
{
    return format == F32 || format == I32 ? 4 : format == BF16 ? 2 : format == BOOLEAN ? 1 : 0;
}

int64_t dnn_count(const descriptor *t)
{
    return t->n[0] * t->n[1] * t->n[2] * t->n[3];
}

size_t dnn_bytes(const descriptor *t)
{
    int64_t last = 0;
    for (int d = 0; d < DIMS; d++) last += (t->n[d] - 1) * t->stride[d];
    return (size_t)(last + 1) * dnn_bytes_of_format(t->format);
}

int dnn_number(const descriptor *graph, int64_t uid)
{
    for (int i = 0; i < graph->n_tensors; i++)
        if (graph->tensors[i]->uid == uid) return i;
    return -1;
}

/* --- elements -------------------------------------------------------------------------------------------------------
 */

static float rounded(double value, int format)
{
    float    single = (float)value;
    uint32_t bits;
    if (format == BOOLEAN) return single != 0 ? 1.0F : 0.0F;
    if (format == I32) return truncf(single);
    if (format == F32 || isnan(single)) return single;
    memcpy(&bits, &single, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000U;
    memcpy(&single, &bits, sizeof bits);
    return single;
}

static float load(const char *from, int format)
{
    float    single;
    int32_t  whole;
    uint16_t half;
    uint32_t bits;
    if (format == BOOLEAN) return *from != 0 ? 1.0F : 0.0F;
    if (format == I32) {
        memcpy(&whole, from, sizeof whole);
        return (float)whole;
    }
    if (format == BF16) {
        memcpy(&half, from, sizeof half);
        bits = (uint32_t)half << 16;
        memcpy(&single, &bits, sizeof single);
        return single;
    }
    memcpy(&single, from, sizeof single);
    return single;
}

static void store(char *to, int format, double value)
{
    float    single = rounded(value, format);
    int32_t  whole = format == I32 ? (int32_t)single : 0;
    uint32_t bits;
    uint16_t half;
    memcpy(&bits, &single, sizeof bits);
    half = (uint16_t)(bits >> 16);
    if (format == BOOLEAN)
        *to = single != 0;
    else if (format == I32)
        memcpy(to, &whole, sizeof whole);
    else if (format == BF16)
        memcpy(to, &half, sizeof half);
    else
        memcpy(to, &single, sizeof single);
}

/* False: that was the last one. */
static bool next(const int64_t n[DIMS], int64_t i[DIMS])
{
    for (int d = DIMS - 1; d >= 0; d--) {
        if (++i[d] < n[d]) return true;
        i[d] = 0;
    }
    return false;
}

/* Where the element is in memory, in bytes. */
static size_t offset(const descriptor *t, const int64_t i[DIMS])
{
    int64_t at = 0;
    for (int d = 0; d < DIMS; d++) at += i[d] * t->stride[d];
    return (size_t)at * dnn_bytes_of_format(t->format);
}

/* The element of t that goes with element i of a tensor of extents `of`: a dimension that has fewer of them has one for
 * some neighbors. */
static int64_t at(const descriptor *t, const int64_t of[DIMS], const int64_t i[DIMS])
{
    int64_t place = 0;
    for (int d = 0; d < DIMS; d++) place = place * t->n[d] + i[d] * t->n[d] / of[d];
    return place;
}

/* --- operations -----------------------------------------------------------------------------------------------------
 */

/* Values of all tensors, dense, the last dimension fastest. */
typedef struct {
    const descriptor *graph;
    float            *of[MOST_TENSORS];
} values;

static float *of(const values *v, const descriptor *t)
{
    return t ? v->of[dnn_number(v->graph, t->uid)] : NULL;
}

static double applied(int function, double x, double b, double t)
{
    switch (function) {
#define FUNCTION(name, number, told, tensors, value)                                                                   \
    case name:                                                                                                         \
        return value;
#include "cudnn.def"
    default:
        return x;
    }
}

static void pointwise(const values *v, const descriptor *o)
{
    const float *x = of(v, o->x), *b = of(v, o->b), *t = of(v, o->t);
    float       *y = of(v, o->y);
    int64_t      i[DIMS] = { 0 };
    do {
        double left = o->function == INDEX ? (double)i[o->axis] : (double)x[at(o->x, o->y->n, i)];
        double value = applied(o->function, left, b ? (double)b[at(o->b, o->y->n, i)] : 0,
                               t ? (double)t[at(o->t, o->y->n, i)] : 0);
        y[at(o->y, o->y->n, i)] = rounded((double)rounded(value, F32), o->y->format);
    } while (next(o->y->n, i));
}

static void matmul(const values *v, const descriptor *o)
{
    const float  *a = of(v, o->x), *b = of(v, o->b);
    float        *c = of(v, o->y);
    const int64_t depth = o->x->n[3], columns = o->b->n[3], *n = o->y->n;
    int64_t       i[DIMS] = { 0 };
    do {
        const int64_t heads_a = i[0] * o->x->n[0] / n[0] * o->x->n[1] + i[1] * o->x->n[1] / n[1];
        const int64_t heads_b = i[0] * o->b->n[0] / n[0] * o->b->n[1] + i[1] * o->b->n[1] / n[1];
        double        sum = 0;
        for (int64_t k = 0; k < depth; k++)
            sum += (double)a[(heads_a * o->x->n[2] + i[2]) * depth + k] *
                   (double)b[(heads_b * depth + k) * columns + i[3]];
        c[at(o->y, n, i)] = rounded((double)rounded(sum, F32), o->y->format);
    } while (next(n, i));
}

static void reduce(const values *v, const descriptor *o)
{
    const float *x = of(v, o->x);
    float       *y = of(v, o->y);
    int64_t      i[DIMS] = { 0 }, n = dnn_count(o->y);
    double      *sums = malloc((size_t)n * sizeof *sums);
    if (!sums) abort();
    for (int64_t e = 0; e < n; e++) sums[e] = o->function == SUM_OF ? 0 : -HUGE_VAL;
    do {
        double *sum = &sums[at(o->y, o->x->n, i)], value = (double)x[at(o->x, o->x->n, i)];
        *sum = applied(o->function == SUM_OF ? ADD : MAX, *sum, value, 0);
    } while (next(o->x->n, i));
    for (int64_t e = 0; e < n; e++) y[e] = rounded((double)rounded(sums[e], F32), o->y->format);
    free(sums);
}

static void reshape(const values *v, const descriptor *o)
{
    const float *x = of(v, o->x);
    float       *y = of(v, o->y);
    int64_t      i[DIMS] = { 0 };
    do {
        int64_t j[DIMS];
        for (int d = 0; d < DIMS; d++) j[d] = o->turn[d] < 0 ? 0 : i[o->turn[d]];
        y[at(o->y, o->y->n, i)] = rounded((double)x[at(o->x, o->x->n, j)], o->y->format);
    } while (next(o->y->n, i));
}

/* --- a graph --------------------------------------------------------------------------------------------------------
 */

static void read_tensor(const descriptor *t, const char *from, float *to)
{
    int64_t i[DIMS] = { 0 };
    do *to++ = load(from + offset(t, i), t->format);
    while (next(t->n, i));
}

static void write_tensor(const descriptor *t, const float *from, char *to)
{
    int64_t i[DIMS] = { 0 };
    do store(to + offset(t, i), t->format, (double)*from++);
    while (next(t->n, i));
}

/* Memory of every tensor; NULL in real: virtual, or a number of the host. False: something was given back. */
static bool find(const dnn_task *task, char **real)
{
    for (int i = 0; i < task->graph->n_tensors; i++) {
        const descriptor *t = task->graph->tensors[i];
        real[i] = NULL;
        if (t->inner || t->by_value) continue;
        real[i] = task->real(task->at[i], dnn_bytes(t));
        if (!real[i]) return false;
    }
    return true;
}

/* Results are spoilt before anything is read: none may lie where an operand lies. */
void dnn_run(void *with)
{
    const dnn_task   *task = with;
    const descriptor *g = task->graph;
    char             *real[MOST_TENSORS];
    char             *room = task->workspace_bytes ? task->real(task->workspace, task->workspace_bytes) : NULL;
    values            v = { .graph = g };
    if (!find(task, real) || (task->workspace_bytes && !room)) {
        fprintf(stderr, "stand-in: a cuDNN graph whose memory was given back\n");
        task->broken(ILLEGAL_ADDRESS);
        return;
    }
    for (int i = 0; i < g->n_tensors; i++) {
        size_t  n = (size_t)dnn_count(g->tensors[i]);
        int64_t e[DIMS] = { 0 };
        v.of[i] = malloc(n * sizeof(float));
        if (!v.of[i]) abort();
        memset(v.of[i], 0xff, n * sizeof(float));
        if (!g->made[i] || !real[i]) continue;
        do memset(real[i] + offset(g->tensors[i], e), 0xff, dnn_bytes_of_format(g->tensors[i]->format));
        while (next(g->tensors[i]->n, e));
    }
    if (room) memset(room, 0xff, task->workspace_bytes);
    for (int i = 0; i < g->n_tensors; i++) {
        if (g->tensors[i]->by_value) *v.of[i] = task->value[i];
        if (real[i] && !g->made[i]) read_tensor(g->tensors[i], real[i], v.of[i]);
    }
    for (int i = 0; i < g->n_operations; i++) {
        const descriptor *o = g->operations[i];
        (o->kind == OF_POINTWISE   ? pointwise
         : o->kind == OF_MATMUL    ? matmul
         : o->kind == OF_REDUCTION ? reduce
                                   : reshape)(&v, o);
    }
    for (int i = 0; i < g->n_tensors; i++) {
        if (real[i] && g->made[i]) write_tensor(g->tensors[i], v.of[i], real[i]);
        free(v.of[i]);
    }
}
