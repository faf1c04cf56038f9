/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/join.c - join, split and sequence_order: runs of memory, copied; time_embedding. */
#include "device/cpu/simd/elementwise.h"
#include "device/cpu/simd/kernels.h"
#include "graph/value.h"
#include "op/attrs.h"

#include <math.h>

/* Bytes of a run of part k of the whole. */
static TM_PLANNED size_t run_bytes(const tm_view *whole, const tm_join_attr *attr, int k)
{
    int64_t run = (k == 0 ? attr->first : attr->second) * (attr->samples ? whole->shape.n[1] : 1);
    return (size_t)run * tm_dtype_bytes(whole->dtype);
}
static TM_PLANNED int64_t runs_in(const tm_view *whole, const tm_join_attr *attr)
{
    return attr->samples ? attr->samples : whole->shape.n[0];
}

static void join_runs(const tm_call *call, int64_t begin, int64_t end)
{
    const tm_view *whole = &call->out[0];
    size_t         bytes[2] = { run_bytes(whole, call->attr, 0), run_bytes(whole, call->attr, 1) };
    for (int64_t r = begin; r < end; r++) {
        char *to = (char *)whole->data + (size_t)r * (bytes[0] + bytes[1]);
        for (int k = 0; k < 2; to += bytes[k], k++) {
            const char *from = call->in[k].data;
            if (from)
                memcpy(to, from + (size_t)r * bytes[k], bytes[k]);
            else
                memset(to, 0, bytes[k]); /* zeros in every format */
        }
    }
}
static void join_run(const tm_call *call)
{
    tm_parallel(call, join_runs, runs_in(&call->out[0], call->attr), 1, tm_view_elements(&call->out[0]));
}
static TM_PLANNED const char *join_refuse(const tm_call *call)
{
    const char *why = tm_refuse_format(&call->out[0]);
    for (int k = 0; k < 2 && !why; k++) why = tm_refuse_mixed(&call->out[0], &call->in[k]);
    return why;
}

static void split_runs(const tm_call *call, int64_t begin, int64_t end)
{
    const tm_view *whole = &call->in[0];
    size_t         bytes[2] = { run_bytes(whole, call->attr, 0), run_bytes(whole, call->attr, 1) };
    for (int64_t r = begin; r < end; r++) {
        const char *from = (const char *)whole->data + (size_t)r * (bytes[0] + bytes[1]);
        for (int k = 0; k < 2; from += bytes[k], k++)
            memcpy((char *)call->out[k].data + (size_t)r * bytes[k], from, bytes[k]);
    }
}
static void split_run(const tm_call *call)
{
    tm_parallel(call, split_runs, runs_in(&call->in[0], call->attr), 1, tm_view_elements(&call->in[0]));
}
static TM_PLANNED const char *split_refuse(const tm_call *call)
{
    const char *why = tm_refuse_format(&call->in[0]);
    for (int k = 0; k < 2 && !why; k++) why = tm_refuse_mixed(&call->in[0], &call->out[k]);
    return why;
}

/* Chunks [begin, end) of y. */
static void order_chunks(const tm_call *call, int64_t begin, int64_t end)
{
    const tm_sequence_attr *attr = call->attr;
    int64_t                 R = attr->ranks, B = attr->samples, n = attr->chunks * R;
    size_t bytes = (size_t)(tm_view_elements(&call->in[0]) / (n * B)) * tm_dtype_bytes(call->in[0].dtype);
    for (int64_t at = begin; at < end; at++) {
        int64_t k = at % n, by_rank = ((k < R ? k : 2 * R - 1 - k) * attr->chunks + (k >= R)) * B + at / n;
        int64_t from = attr->inverse ? at : by_rank, to = attr->inverse ? by_rank : at;
        memcpy((char *)call->out[0].data + (size_t)to * bytes, (const char *)call->in[0].data + (size_t)from * bytes,
               bytes);
    }
}
static void order_run(const tm_call *call)
{
    const tm_sequence_attr *attr = call->attr;
    tm_parallel(call, order_chunks, attr->chunks * attr->ranks * attr->samples, 1, tm_view_elements(&call->in[0]));
}
static TM_PLANNED const char *order_refuse(const tm_call *call)
{
    const char *why = tm_refuse_format(&call->in[0]);
    return why ? why : tm_refuse_mixed(&call->in[0], &call->out[0]);
}

/* A few hundred values a sample: the C library's functions, in float64. */
static void time_embedding_run(const tm_call *call)
{
    const tm_time_attr *attr = call->attr;
    int64_t             half = attr->dim / 2;
    for (int64_t b = 0; b < call->in[0].shape.n[0]; b++) {
        double t = tm_value_get(call->in[0].data, call->in[0].dtype, b);
        for (int64_t i = 0; i < half; i++) {
            double angle = 1000 * t * pow(10000, -(double)i / (double)half);
            tm_value_set(call->out[0].data, call->out[0].dtype, b * attr->dim + i, cos(angle));
            tm_value_set(call->out[0].data, call->out[0].dtype, b * attr->dim + half + i, sin(angle));
        }
    }
}
static TM_PLANNED const char *time_embedding_refuse(const tm_call *call)
{
    const char *why = tm_refuse_format(&call->in[0]);
    return why ? why : tm_refuse_format(&call->out[0]);
}

const tm_kernel TM_K(tm_cpu_join)[] = {
    TM_KERNEL(join, "join/", join_refuse, NULL, join_run),
    TM_KERNEL(split, "split/", split_refuse, NULL, split_run),
    TM_KERNEL(sequence_order, "sequence_order/", order_refuse, NULL, order_run),
    TM_KERNEL(time_embedding, "time_embedding/", time_embedding_refuse, NULL, time_embedding_run),
    { .name = NULL },
};
