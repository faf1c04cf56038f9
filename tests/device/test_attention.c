/* SPDX-License-Identifier: Apache-2.0 */
/* What test_kernels.c does not see of the CPU's attention: packed documents, and NaN in all that a query must not see;
 * queries that see nothing; large scores; windows said in two ways; the same bits with any threads at sizes that the
 * examples of the op do not reach. Rows of operands lie apart, and gaps hold NaN.
 *
 * Values are those of the op's reference, up to a part of the largest of the output. */
#include "support/test.h"
#include "kernel_test.h"

enum { GAP = 3, OPERANDS = TM_MAX_IN + TM_MAX_OUT };
static const isa_table all_tables[] = ISA_TABLES(attention);

/* With the instruction for bfloat16 last, where there is one. Returns their number. */
static int list_tables(isa_table out[COUNT(all_tables) + 1])
{
    int n = 0;
    for (int t = 0; t < COUNT(all_tables); t++)
        if (isa_available(all_tables[t].isa)) out[n++] = all_tables[t];
#if defined(__x86_64__)
    if (tm_cpu_kernel_tables("avx512_bf16")) out[n++] = (isa_table){ "avx512_bf16", tm_cpu_attention_avx512_bf16 };
#endif
    return n;
}

/* --- a case, its operands in float64 ------------------------------------------------------------------------------ */

typedef struct {
    tm_attention_attr attr;
    int64_t           batch;
    const int32_t    *first_key; /* or NULL */
    bool              sinks;
    double            scores;    /* deviation of queries and keys; 0: 1 */
    bool              bits_only; /* nobody asks the reference, which is slow */
} mask_case;

static tm_attention_attr attr_of(int64_t seq_q, int64_t seq_k, int64_t heads, int64_t kv_heads, int64_t dim,
                                 int64_t dim_v)
{
    return (tm_attention_attr){ .seq_q = seq_q,
                                .seq_k = seq_k,
                                .heads = heads,
                                .kv_heads = kv_heads,
                                .dim_qk = dim,
                                .dim_v = dim_v,
                                .scale = 1 / sqrt((double)dim),
                                .causal = 1 };
}

static tm_view *view_of(tm_call *call, int k)
{
    return k < TM_MAX_IN ? &call->in[k] : &call->out[k - TM_MAX_IN];
}

/* Numbers that bfloat16 holds, too: both formats get the same. */
static tm_view wide_view(tm_shape shape, uint64_t stream, double offset, double scale)
{
    tm_view view = { .dtype = TM_F64, .shape = shape };
    double *values = calloc((size_t)tm_shape_elements(shape), sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; scale > 0 && i < tm_shape_elements(shape); i++)
        values[i] =
            (double)tm_bf16_value(tm_bf16_round((float)(offset + scale * tm_random_normal(3, stream, (uint64_t)i))));
    view.data = values;
    return view;
}

/* forward: that call, already computed, for the gradient's; NULL: the forward call. */
static tm_call call_of(const mask_case *c, const tm_call *forward)
{
    const tm_attention_attr *a = &c->attr;
    tm_call                  call = { .op = forward ? &tm_op_attention_grad : &tm_op_attention, .attr = a };
    int64_t                  queries = c->batch * a->seq_q, keys = c->batch * a->seq_k;
    int                      q = forward ? 1 : 0, extra = forward ? 6 : 3;
    const tm_shape own[] = { tm_shape_2(queries, a->heads * a->dim_qk), tm_shape_2(keys, a->kv_heads * a->dim_qk),
                             tm_shape_2(keys, a->kv_heads * a->dim_v) };
    const tm_shape o = tm_shape_2(queries, a->heads * a->dim_v), lse = tm_shape_3(c->batch, a->heads, a->seq_q);
    for (int k = 0; k < OPERANDS; k++) view_of(&call, k)->shape.rank = -1;
    for (int k = 0; k < 3; k++) {
        call.in[q + k] = wide_view(own[k], (uint64_t)k, 0, k < 2 && c->scores > 0 ? c->scores : 1);
        if (forward) call.out[k] = wide_view(own[k], 0, 0, 0);
    }
    if (c->first_key) {
        call.in[extra] =
            (tm_view){ .dtype = TM_I32, .shape = tm_shape_1(queries), .data = malloc((size_t)queries * 4) };
        assert_non_null(call.in[extra].data);
        memcpy(call.in[extra].data, c->first_key, (size_t)queries * 4);
    }
    if (c->sinks) call.in[extra + 1] = wide_view(tm_shape_1(a->heads), 3, 1, 1);
    if (c->sinks && forward) call.out[3] = wide_view(tm_shape_1(a->heads), 0, 0, 0);
    if (!forward) {
        call.out[0] = wide_view(o, 0, 0, 0), call.out[1] = wide_view(lse, 0, 0, 0);
    } else {
        call.in[0] = wide_view(o, 4, 0, 1), call.in[4] = wide_view(o, 0, 0, 0), call.in[5] = wide_view(lse, 0, 0, 0);
        for (int k = 0; k < 2; k++) /* as both formats hold them */
            for (int64_t i = 0; i < tm_shape_elements(call.in[4 + k].shape); i++) {
                float x = (float)((double *)forward->out[k].data)[i];
                ((double *)call.in[4 + k].data)[i] = (double)(k ? x : tm_bf16_value(tm_bf16_round(x)));
            }
    }
    if (!c->bits_only) call.op->reference(&call);
    return call;
}

static void free_call(tm_call *call)
{
    for (int k = 0; k < OPERANDS; k++)
        if (tm_view_present(view_of(call, k))) free(view_of(call, k)->data), view_of(call, k)->data = NULL;
}

/* --- what a kernel gets ------------------------------------------------------------------------------------------- */

static int64_t columns_of(const tm_view *view)
{
    return view->shape.n[view->shape.rank - 1];
}

/* Copies of the inputs in a format, outputs full of NaN, rows apart where the op allows it. */
static tm_call kernel_call(const tm_call *wide, tm_dtype dtype)
{
    tm_call call = *wide;
    for (int k = 0; k < OPERANDS; k++) {
        tm_view *view = view_of(&call, k);
        if (!tm_view_present(view)) continue;
        bool    input = k < TM_MAX_IN, statistic = view->shape.rank == 3 || view->shape.rank == 1;
        bool    apart = (input ? call.op->strided_in >> k : call.op->strided_out >> (k - TM_MAX_IN)) & 1U;
        int64_t columns = columns_of(view), count = tm_shape_elements(view->shape), ld = columns + (apart ? GAP : 0);
        const tm_view from = *view;
        view->dtype = from.dtype == TM_I32 ? TM_I32 : statistic ? TM_F32 : dtype;
        view->ld = apart ? ld : 0;
        size_t bytes = (size_t)(count / columns * ld) * tm_dtype_bytes(view->dtype);
        view->data = malloc(bytes);
        assert_non_null(view->data);
        memset(view->data, 0xff, bytes);
        for (int64_t i = 0; input && i < count; i++)
            tm_value_set(view->data, view->dtype, i / columns * ld + i % columns,
                         tm_value_get(from.data, from.dtype, i));
    }
    return call;
}

static double got(const tm_view *view, int64_t i)
{
    int64_t columns = columns_of(view);
    return tm_value_get(view->data, view->dtype, i / columns * tm_view_ld(view) + i % columns);
}

static tm_call run(const isa_table *table, const tm_call *wide, tm_dtype dtype, int threads)
{
    tm_call call = kernel_call(wide, dtype);
    call_run(kernel_find(table->kernels, tm_op_id_of(call.op)), &call, threads);
    for (int k = 0; k < TM_MAX_OUT; k++) {
        const tm_view *view = &call.out[k];
        size_t         size = tm_dtype_bytes(view->dtype);
        for (int64_t r = 0; tm_view_present(view) && view->ld && r < view->shape.n[0]; r++)
            for (size_t i = (size_t)columns_of(view) * size; i < (size_t)view->ld * size; i++)
                if (((unsigned char *)view->data)[(size_t)(r * view->ld) * size + i] != 0xff)
                    fail_msg("%s: output %d: wrote between its rows", table->isa, k);
    }
    return call;
}

/* All outputs, as far as `counts` says of their rows; NULL: all. wide: what the reference has made. */
static void compare(const char *isa, int number, const tm_call *have, const tm_call *wide, const bool *counts,
                    double part)
{
    for (int k = 0; k < TM_MAX_OUT; k++) {
        const tm_view *want = &wide->out[k];
        double         largest = 0;
        if (!tm_view_present(want)) continue;
        if (counts && want->shape.rank != 2) continue;
        double allowed = have->out[k].dtype == TM_BF16 ? fmax(part, 0x1p-6) : part;
        for (int64_t i = 0; i < tm_shape_elements(want->shape); i++)
            if (isfinite(((double *)want->data)[i])) largest = fmax(largest, fabs(((double *)want->data)[i]));
        for (int64_t i = 0; i < tm_shape_elements(want->shape); i++) {
            double x = got(&have->out[k], i), y = ((double *)want->data)[i];
            if (counts && !counts[i / columns_of(want)]) continue;
            if (isinf(y) ? x != y : !(fabs(x - y) <= allowed * (largest + 1)))
                fail_msg("%s of %s, case %d, output %d[%lld] is %.9g, wanted %.9g", wide->op->name, isa, number, k,
                         (long long)i, x, y);
        }
    }
}

static void same_bits(const char *what, int number, const tm_call *a, const tm_call *b)
{
    for (int k = 0; k < TM_MAX_OUT; k++)
        for (int64_t i = 0; tm_view_present(&a->out[k]) && i < tm_shape_elements(a->out[k].shape); i++)
            if (memcmp(&(double){ got(&a->out[k], i) }, &(double){ got(&b->out[k], i) }, sizeof(double)) != 0)
                fail_msg("%s of %s, case %d, output %d[%lld]: other bits", a->op->name, what, number, k, (long long)i);
}

/* Values of both formats and kernels, going over the scores once and twice (other threads). */
static void check_values(const mask_case *c, int number, double part)
{
    isa_table tables[COUNT(all_tables) + 1];
    tm_call   forward = call_of(c, NULL), back = call_of(c, &forward);
    for (int t = 0, n = list_tables(tables); t < n; t++)
        for (int k = 0; k < 4; k++) {
            tm_dtype dtype = k % 2 ? TM_BF16 : TM_F32;
            if (dtype == TM_F32 && strcmp(tables[t].isa, "avx512_bf16") == 0) continue;
            const tm_call *wide = k < 2 ? &forward : &back;
            tm_call        one = run(&tables[t], wide, dtype, 1), four = run(&tables[t], wide, dtype, 4);
            compare(tables[t].isa, number, &one, wide, NULL, part);
            same_bits("four threads", number, &one, &four);
            free_call(&one), free_call(&four);
        }
    free_call(&forward), free_call(&back);
}

/* --- documents ---------------------------------------------------------------------------------------------------- */

/* First keys of `seq` positions; documents of the given lengths, in turns. */
static void documents(int32_t *first, int64_t seq, const int64_t *lengths, int n)
{
    int64_t begin = 0;
    for (int64_t i = 0, k = 0; i < seq; i++) {
        if (n > 0 && i - begin == lengths[k % n]) begin = i, k++;
        first[i] = (int32_t)begin;
    }
}

enum { MOST = 1300, UNSEEN = 40 };
static const struct {
    int64_t T, H, J, dim_qk, dim_v, window;
    int64_t lengths[6];
    int     n;
    bool    sinks, full;
} packed[] = {
    { 97, 2, 1, 16, 16, 0, { 32, 33, 1, 7 }, 4, false, false },
    { 200, 4, 2, 24, 8, 0, { 5, 64, 9, 40, 3 }, 5, true, false },
    { 300, 1, 1, 64, 64, 0, { 212, 50 }, 2, false, false },
    { 290, 2, 2, 64, 64, 100, { 100, 40, 70 }, 3, true, false },
    { 70, 2, 2, 8, 40, 0, { 1, 2 }, 2, false, false },   /* documents shorter than a step of eight */
    { 300, 2, 1, 24, 24, 0, { 1000 }, 0, false, false }, /* one document: what comes later is hidden */
    { 1300, 2, 2, 64, 64, 100, { 300, 40, 700 }, 3, true, true },
    { 900, 2, 1, 192, 128, 0, { 130, 257, 400 }, 3, false, true },
    { 600, 1, 1, 128, 256, 33, { 3, 500, 11 }, 3, false, true },
};

/* Keys and values of a document, of the last 20 positions where there is only one, and those behind the sequence hold
 * NaN: all other rows are what they would be. */
static void check_hidden(const tm_call *wide, const isa_table *table, const int32_t *first, int number)
{
    const tm_attention_attr *a = wide->attr;
    int64_t                  T = a->seq_q, poisoned = -1;
    int                      back = wide->op == &tm_op_attention_grad;
    bool                     counts[MOST + UNSEEN], hidden[MOST + UNSEEN];
    for (int64_t r = T - 1; r >= 0 && poisoned < 0; r--)
        if (first[r] != first[T - 1]) poisoned = first[r]; /* the document before the last */
    for (int64_t r = 0; r < T + UNSEEN; r++) {
        hidden[r] = r >= T || (poisoned >= 0 ? first[r] == poisoned : r >= T - 20);
        counts[r] = !hidden[r];
    }
    for (int k = 0; k < 2; k++) {
        tm_call bad = *wide;
        for (int i = 1; i < 3; i++) { /* keys and values */
            tm_view *view = &bad.in[back + i];
            view->data = wide_view(view->shape, (uint64_t)i, 0, 1).data;
            for (int64_t e = 0; e < tm_shape_elements(view->shape); e++)
                if (hidden[e / columns_of(view)]) ((double *)view->data)[e] = (double)NAN;
        }
        tm_call clean = run(table, wide, k ? TM_BF16 : TM_F32, 2), call = run(table, &bad, k ? TM_BF16 : TM_F32, 2);
        compare(table->isa, number, &clean, wide, NULL, 2e-5);
        /* Gradients of keys sum over later queries, which see what is hidden where there is one document. */
        if (back && poisoned < 0) call.out[1].shape.rank = call.out[2].shape.rank = -1;
        for (int o = 0; o < TM_MAX_OUT; o++)
            for (int64_t i = 0; tm_view_present(&call.out[o]) && call.out[o].shape.rank == 2 &&
                                i < tm_shape_elements(call.out[o].shape);
                 i++)
                if (counts[i / columns_of(&call.out[o])] &&
                    memcmp(&(double){ got(&clean.out[o], i) }, &(double){ got(&call.out[o], i) }, sizeof(double)) != 0)
                    fail_msg("%s %s, case %d: output %d, row %lld saw what is hidden from it", wide->op->name,
                             table->isa, number, o, (long long)(i / columns_of(&call.out[o])));
        if (back && poisoned < 0) call.out[1].shape.rank = call.out[2].shape.rank = 2;
        for (int i = 1; i < 3; i++) free(bad.in[back + i].data);
        free_call(&clean), free_call(&call);
    }
}

static void check_documents(bool full)
{
    isa_table tables[COUNT(all_tables) + 1];
    int       n = list_tables(tables);
    for (int i = 0; i < COUNT(packed); i++) {
        int32_t   first[MOST];
        mask_case c = { .batch = 1, .first_key = first, .sinks = packed[i].sinks };
        if (packed[i].full != full) continue;
        documents(first, packed[i].T, packed[i].lengths, packed[i].n);
        c.attr =
            attr_of(packed[i].T, packed[i].T + UNSEEN, packed[i].H, packed[i].J, packed[i].dim_qk, packed[i].dim_v);
        c.attr.window = packed[i].window;
        tm_call forward = call_of(&c, NULL), back = call_of(&c, &forward);
        for (int t = 0; t < n; t++) {
            if (strcmp(tables[t].isa, "avx512_bf16") == 0) continue; /* the bits of avx512: below */
            check_hidden(&forward, &tables[t], first, i);
            check_hidden(&back, &tables[t], first, i);
        }
        free_call(&forward), free_call(&back);
    }
}

TEST(what_is_hidden_may_be_anything)
{
    check_documents(false);
}
FULL_TEST(in_long_documents_too)
{
    check_documents(true);
}

/* Queries before the first key, between documents, with and without sinks: o is 0, lse says so, gradients are 0. */
TEST(queries_that_see_nothing)
{
    for (int k = 0; k < 4; k++) {
        int32_t   first[80];
        mask_case c = { .batch = 1, .first_key = k < 2 ? first : NULL, .sinks = k % 2 };
        documents(first, 80, (int64_t[]){ 20 }, 1);
        for (int i = 30; i < 75; i++) first[i] = 79; /* beyond what they see: alone in their block, and beside others */
        c.attr = attr_of(80, 100, 2, 1, 16, 16);
        c.attr.q_offset = -40;
        check_values(&c, k, 2e-5);
    }
}

/* --- scores, windows, bits ---------------------------------------------------------------------------------------- */

/* Scores of thousands: exp of them overflows unless the maximum is taken off first, also from block to block. A score
 * of 5000 is known to 5000 x 2^-24 x a few: a weight to a part in a hundred. Some heads are wider than 256. */
TEST(large_scores)
{
    static const struct {
        int64_t T, heads, dim, window;
        bool    causal;
    } rows[] = { { 97, 2, 64, 0, true }, { 300, 1, 24, 0, true }, { 100, 1, 128, 0, false }, { 300, 2, 16, 90, true } };
    for (int i = 0; i < COUNT(rows); i++) {
        mask_case c = { .batch = 1, .scores = 25 };
        c.attr = attr_of(rows[i].T, rows[i].T, rows[i].heads, 1, rows[i].dim, rows[i].dim);
        c.attr.window = rows[i].window, c.attr.causal = rows[i].causal;
        check_values(&c, i, 0.02);
    }
}

/* Heads of an autoencoder: forward only; the gradient is refused. */
TEST(wide_heads)
{
    isa_table tables[COUNT(all_tables) + 1];
    mask_case c = { .batch = 2, .attr = attr_of(70, 70, 1, 1, 300, 300) };
    tm_call   forward = call_of(&c, NULL), back = call_of(&c, &forward);
    for (int t = 0, n = list_tables(tables); t < n && strcmp(tables[t].isa, "avx512_bf16") != 0; t++) {
        tm_call one = run(&tables[t], &forward, TM_F32, 1), three = run(&tables[t], &forward, TM_F32, 3);
        compare(tables[t].isa, 0, &one, &forward, NULL, 1e-5);
        same_bits("three threads", 0, &one, &three);
        free_call(&one), free_call(&three);
        tm_call asked = kernel_call(&back, TM_F32);
        assert_non_null(kernel_find(tables[t].kernels, TM_OP_attention_grad)->refuse(&asked));
        free_call(&asked);
    }
    free_call(&forward), free_call(&back);
}

/* 1 MB of scratch and above: any number of threads, of each format; AVX-512, and its instruction for bfloat16, as AVX2.
 */
TEST(long_sequences_have_the_same_bits)
{
    static const struct {
        int64_t batch, T, H, J, dim, window;
    } rows[] = { { 2, 300, 4, 2, 128, 0 }, { 1, 300, 4, 1, 256, 0 }, { 1, 601, 3, 1, 80, 300 } };
    isa_table tables[COUNT(all_tables) + 1];
    int       n = list_tables(tables);
    for (int i = 0; i < 2 * COUNT(rows); i++) {
        tm_dtype  dtype = i % 2 ? TM_BF16 : TM_F32;
        mask_case c = { .batch = rows[i / 2].batch, .bits_only = true };
        c.attr = attr_of(rows[i / 2].T, rows[i / 2].T, rows[i / 2].H, rows[i / 2].J, rows[i / 2].dim, rows[i / 2].dim);
        c.attr.window = rows[i / 2].window;
        tm_call forward = call_of(&c, NULL), back = call_of(&c, &forward);
        for (int k = 0; k < 2; k++) {
            const tm_call *wide = k ? &back : &forward;
            tm_call        one = { 0 };
            for (int t = 0; t < n; t++) {
                if (n > 1 && strcmp(tables[t].isa, "base") == 0) continue; /* slow, and of the same source */
                if (dtype == TM_F32 && strcmp(tables[t].isa, "avx512_bf16") == 0) continue;
                for (int threads = 1; threads <= 4; threads += 3) {
                    tm_call call = run(&tables[t], wide, dtype, threads);
                    if (one.op) same_bits(tables[t].isa, i, &one, &call);
                    if (one.op)
                        free_call(&call);
                    else
                        one = call;
                }
            }
            free_call(&one);
        }
        free_call(&forward), free_call(&back);
    }
}
