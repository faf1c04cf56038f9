/* SPDX-License-Identifier: Apache-2.0 */
/* tests/device/kernel_test.h - runs a kernel of every instruction set this CPU has with 1 to 4 threads, on guarded
 * memory with outputs full of NaN, and compares the bits: for what test_kernels.c, which judges the values of all
 * kernels, does not see. */
#ifndef TM_TESTS_DEVICE_KERNEL_TEST_H
#define TM_TESTS_DEVICE_KERNEL_TEST_H

#include "support/test.h"

#include "base/random.h"
#include "device/cpu/simd/kernels.h"
#include "graph/value.h"
#include "op/attrs.h"

#define KT static __attribute__((unused))
#define COUNT(array) ((int)(sizeof(array) / sizeof(array)[0]))

enum { GUARD = 64, GUARD_BYTE = 0xa5, MAX_THREADS = 4 };

typedef struct {
    const char      *isa;
    const tm_kernel *kernels;
} isa_table;

#if defined(__x86_64__)
#define ISA_TABLES(family)                                                                                             \
    {                                                                                                                  \
        { "base", tm_cpu_##family##_base }, { "avx2", tm_cpu_##family##_avx2 },                                        \
        {                                                                                                              \
            "avx512", tm_cpu_##family##_avx512                                                                         \
        }                                                                                                              \
    }
#else
#define ISA_TABLES(family)                                                                                             \
    {                                                                                                                  \
        {                                                                                                              \
            "base", tm_cpu_##family##_base                                                                             \
        }                                                                                                              \
    }
#endif
KT bool isa_available(const char *isa)
{
    return !strcmp(isa, "base") || tm_cpu_kernel_tables(isa);
}

/* ---- memory with guards ---- */

typedef struct {
    tm_dtype       dtype;
    tm_shape       shape;
    bool           present;
    size_t         bytes;
    unsigned char *base;    /* guard, data, guard */
    unsigned char *initial; /* what the data is before every run */
} tensor;

KT void *guarded_new(size_t bytes)
{
    unsigned char *base = malloc(bytes + 2 * GUARD);
    assert_non_null(base);
    memset(base, GUARD_BYTE, bytes + 2 * GUARD);
    memset(base + GUARD, 0xff, bytes); /* NaN in every floating-point format */
    return base;
}
KT void guard_check(const unsigned char *base, size_t bytes, const char *what)
{
    for (int i = 0; i < GUARD; i++)
        if (base[i] != GUARD_BYTE || base[GUARD + bytes + (size_t)i] != GUARD_BYTE) fail_msg("%s: wrote outside", what);
}
KT void *tensor_data(const tensor *t)
{
    return t->present ? t->base + GUARD : NULL;
}

/* ---- jobs: one call of one kernel ---- */

typedef struct {
    tm_op_id op;
    tm_call  call; /* attr and accumulate are set by the test */
    tensor   in[TM_MAX_IN], out[TM_MAX_OUT];
    int      alias[TM_MAX_OUT]; /* input whose memory this output shares, or -1 */
} job;

KT job job_new(tm_op_id op, const void *attr)
{
    job j = { .op = op, .call.attr = attr };
    for (int k = 0; k < TM_MAX_OUT; k++) j.alias[k] = -1;
    return j;
}
KT void tensor_open(tensor *t, tm_dtype dtype, tm_shape shape)
{
    size_t bytes = tm_tensor_bytes(shape, dtype);
    *t = (tensor){ .dtype = dtype,
                   .shape = shape,
                   .present = true,
                   .bytes = bytes,
                   .base = guarded_new(bytes),
                   .initial = malloc(bytes + 1) };
    assert_non_null(t->initial);
    memset(t->initial, 0xff, bytes);
}
/* Random normal values, rounded to the format; int32: uniform in [0, scale). */
KT void tensor_fill(tensor *t, uint64_t stream, double offset, double scale)
{
    for (int64_t i = 0, n = tm_shape_elements(t->shape); i < n; i++)
        tm_value_set(t->initial, t->dtype, i,
                     t->dtype == TM_I32 ? (double)tm_random_below(7, stream, (uint64_t)i, (uint64_t)scale)
                                        : offset + scale * tm_random_normal(7, stream, (uint64_t)i));
}
KT tensor *job_in(job *j, int k, tm_dtype dtype, tm_shape shape, double offset, double scale)
{
    tensor_open(&j->in[k], dtype, shape);
    tensor_fill(&j->in[k], (uint64_t)(100 * (int)j->op + k), offset, scale);
    return &j->in[k];
}
KT tensor *job_out(job *j, int k, tm_dtype dtype, tm_shape shape)
{
    tensor_open(&j->out[k], dtype, shape);
    if (j->call.accumulate >> k & 1u) tensor_fill(&j->out[k], (uint64_t)(100 * (int)j->op + 50 + k), 0., 1.);
    return &j->out[k];
}
KT void job_free(job *j)
{
    for (int k = 0; k < TM_MAX_IN; k++) free(j->in[k].base), free(j->in[k].initial);
    for (int k = 0; k < TM_MAX_OUT; k++) free(j->out[k].base), free(j->out[k].initial);
}
KT double in_at(const job *j, int k, int64_t i) /* before the run */
{
    return tm_value_get(j->in[k].initial, j->in[k].dtype, i);
}
KT double old_at(const job *j, int k, int64_t i) /* what output k accumulates to; 0 if it does not */
{
    return j->call.accumulate >> k & 1u ? tm_value_get(j->out[k].initial, j->out[k].dtype, i) : 0.;
}
KT double out_at(const job *j, int k, int64_t i)
{
    return tm_value_get(j->call.out[k].data, j->out[k].dtype, i);
}

KT const tm_kernel *kernel_find(const tm_kernel *kernels, tm_op_id op)
{
    for (; kernels->name; kernels++)
        if (kernels->op == op) return kernels;
    fail_msg("no kernel for op %d", (int)op);
    return NULL;
}
KT tm_view job_view(const tensor *t)
{
    return (tm_view){ .dtype = t->dtype,
                      .shape = t->present ? t->shape : (tm_shape){ .rank = -1 },
                      .data = tensor_data(t) };
}
/* The first that takes the call. */
KT const tm_kernel *kernel_for(const tm_kernel *kernels, tm_op_id op, const tm_call *call)
{
    for (const tm_kernel *k = kernels; k->name; k++)
        if (k->op == op && !(k->refuse && k->refuse(call))) return k;
    fail_msg("no kernel takes this call of op %d", (int)op);
    return NULL;
}
/* Runs with a workspace of exactly the asked size, full of NaN. */
KT void call_run(const tm_kernel *kernel, tm_call *call, int threads)
{
    call->threads = threads;
    const char *why = kernel->refuse ? kernel->refuse(call) : NULL;
    if (why) fail_msg("%s refuses: %s", kernel->name, why);
    call->workspace_bytes = kernel->workspace ? kernel->workspace(call) : 0;
    unsigned char *base = guarded_new(call->workspace_bytes);
    call->workspace = base + GUARD;
    kernel->run(call);
    guard_check(base, call->workspace_bytes, kernel->name);
    free(base);
    call->workspace = NULL;
}
KT void job_reset(job *j)
{
    for (int k = 0; k < TM_MAX_IN; k++) {
        if (j->in[k].present) memcpy(tensor_data(&j->in[k]), j->in[k].initial, j->in[k].bytes);
        j->call.in[k] = job_view(&j->in[k]);
    }
    for (int k = 0; k < TM_MAX_OUT; k++) {
        if (j->out[k].present) memcpy(tensor_data(&j->out[k]), j->out[k].initial, j->out[k].bytes);
        j->call.out[k] = job_view(&j->out[k]);
        if (j->alias[k] >= 0) j->call.out[k].data = tensor_data(&j->in[j->alias[k]]);
    }
}
KT void job_run(job *j, const isa_table *table, int threads)
{
    job_reset(j);
    const tm_kernel *kernel = kernel_for(table->kernels, j->op, &j->call);
    call_run(kernel, &j->call, threads);
    for (int k = 0; k < TM_MAX_OUT; k++)
        if (j->out[k].present) guard_check(j->out[k].base, j->out[k].bytes, kernel->name);
    for (int k = 0; k < TM_MAX_IN; k++) {
        if (!j->in[k].present) continue;
        guard_check(j->in[k].base, j->in[k].bytes, kernel->name);
        bool shared = false;
        for (int o = 0; o < TM_MAX_OUT; o++) shared = shared || j->alias[o] == k;
        if (!shared && memcmp(tensor_data(&j->in[k]), j->in[k].initial, j->in[k].bytes) != 0)
            fail_msg("%s changed its input %d", kernel->name, k);
    }
}

/* ---- the checks of one job ---- */

typedef struct {
    unsigned char *data[TM_MAX_OUT];
} result_bits;

KT result_bits bits_save(const job *j)
{
    result_bits bits = { { NULL } };
    for (int k = 0; k < TM_MAX_OUT; k++) {
        if (!j->out[k].present) continue;
        bits.data[k] = malloc(j->out[k].bytes + 1);
        assert_non_null(bits.data[k]);
        memcpy(bits.data[k], j->call.out[k].data, j->out[k].bytes);
    }
    return bits;
}
KT void bits_free(result_bits *bits)
{
    for (int k = 0; k < TM_MAX_OUT; k++) free(bits->data[k]), bits->data[k] = NULL;
}
/* Of all outputs but scratch. */
KT void bits_compare(const job *j, const result_bits *bits, const char *isa, const char *what)
{
    for (int k = 0; k < TM_MAX_OUT; k++)
        if (j->out[k].present && tm_op_get(j->op)->out_role[k] != TM_ROLE_LOGITS &&
            memcmp(bits->data[k], j->call.out[k].data, j->out[k].bytes) != 0)
            fail_msg("op %d %s, output %d: other bits %s", (int)j->op, isa, k, what);
}

/* Every instruction set: values (judged by the test), bits for 1 to 4 threads; avx2 = avx512. Frees the job. */
KT void job_check(job *j, const isa_table *tables, int n_tables, void (*judge_values)(const job *, const char *isa))
{
    result_bits fused = { { NULL } };
    bool        have_fused = false;
    for (int t = 0; t < n_tables; t++) {
        if (!isa_available(tables[t].isa)) {
            print_message("# %s: this CPU does not have it, not checked\n", tables[t].isa);
            continue;
        }
        job_run(j, &tables[t], 1);
        judge_values(j, tables[t].isa);
        result_bits one = bits_save(j);
        for (int threads = 2; threads <= MAX_THREADS; threads++) {
            job_run(j, &tables[t], threads);
            bits_compare(j, &one, tables[t].isa, "with other threads");
        }
        if (strcmp(tables[t].isa, "base") != 0) {
            if (have_fused) bits_compare(j, &fused, tables[t].isa, "than avx2");
            bits_free(&fused);
            fused = bits_save(j);
            have_fused = true;
        }
        bits_free(&one);
    }
    bits_free(&fused);
    job_free(j);
}

/* Rows begin..end-1 of a view. */
KT tm_view view_rows(tm_view view, int64_t begin, int64_t end)
{
    int64_t columns = tm_shape_elements(view.shape) / view.shape.n[0];
    view.data = (char *)view.data + (size_t)(begin * columns) * tm_dtype_bytes(view.dtype);
    view.shape.n[0] = end - begin;
    return view;
}
/* Rows 0..at-1, then the rest added to it, must give the bits of the whole; `by_row` and `out_by_row`: which operands
 * are cut, `gradients`: outputs that accumulate. */
KT void job_check_split(job *j, const isa_table *tables, int n_tables, int64_t at, unsigned by_row, unsigned out_by_row,
                        unsigned gradients)
{
    for (int t = 0; t < n_tables; t++) {
        if (!isa_available(tables[t].isa)) continue;
        job_run(j, &tables[t], 2);
        const tm_kernel *kernel = kernel_for(tables[t].kernels, j->op, &j->call);
        result_bits      whole = bits_save(j);
        job_reset(j);
        for (int half = 0; half < 2; half++) {
            tm_call part = j->call;
            for (int k = 0; k < TM_MAX_IN; k++)
                if (by_row >> k & 1u)
                    part.in[k] = view_rows(part.in[k], half ? at : 0, half ? j->in[k].shape.n[0] : at);
            for (int k = 0; k < TM_MAX_OUT; k++)
                if (out_by_row >> k & 1u)
                    part.out[k] = view_rows(part.out[k], half ? at : 0, half ? j->out[k].shape.n[0] : at);
            if (half) part.accumulate |= gradients;
            call_run(kernel, &part, 2);
        }
        bits_compare(j, &whole, tables[t].isa, "when split");
        bits_free(&whole);
    }
    job_free(j);
}

#endif
