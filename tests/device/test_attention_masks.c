/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU's attention kernels on every example of the op and on packed documents: against the op's reference in double,
 * with operands whose rows lie apart and whose gaps hold NaN, with NaN in all rows that a document does not see, and
 * against themselves where bits must agree: threads, AVX2, AVX-512 and its instruction for bfloat16.
 *
 * Tolerances: a product of n terms is wrong by at most 6 sqrt(n) u sum|a b|, an exponential by the error of its
 * argument and 4 u; sizes are the largest that occur in the call. */
#include "support/test.h"
#include "kernel_test.h"

#include "op/describe.h"

enum { GAP = 3 };
static const isa_table tables[] = ISA_TABLES(attention);

/* Those that take bfloat16: with the instruction for it last, where there is one. Returns their number. */
static int narrow_tables(isa_table *out)
{
    int n = 0;
    for (int t = 0; t < COUNT(tables); t++)
        if (isa_available(tables[t].isa)) out[n++] = tables[t];
#if defined(__x86_64__)
    if (tm_cpu_kernel_tables("avx512_bf16")) out[n++] = (isa_table){ "avx512_bf16", tm_cpu_attention_avx512_bf16 };
#endif
    return n;
}

/* A call with its operands in double, and in what the kernels get: float32 or bfloat16, rows apart by their columns +
 * gap. */
typedef struct {
    const tm_op *op;
    tm_call      call; /* what the reference gets */
    tm_dtype     dtype;
    int64_t      gap;
    void        *data[TM_MAX_IN + TM_MAX_OUT]; /* what the kernel gets: inputs, outputs */
    size_t       bytes[TM_MAX_IN + TM_MAX_OUT];
} setup;

static tm_view *view_of(tm_call *call, int k)
{
    return k < TM_MAX_IN ? &call->in[k] : &call->out[k - TM_MAX_IN];
}
static bool is_strided(const setup *s, int k)
{
    unsigned mask = k < TM_MAX_IN ? s->op->strided_in >> k : s->op->strided_out >> (k - TM_MAX_IN);
    return s->gap > 0 && (mask & 1u);
}
static tm_dtype stored(const setup *s, const tm_view *view)
{
    bool lse = view->shape.rank == 3, sinks = view->shape.rank == 1 && view->dtype == TM_F64;
    return view->dtype == TM_I32 ? TM_I32 : lse || sinks ? TM_F32 : s->dtype;
}
static int64_t columns_of(const tm_view *view)
{
    return view->shape.n[view->shape.rank - 1];
}

/* The kernel's call: fresh copies of the inputs, outputs full of 0xff (NaN). */
static tm_call kernel_call(setup *s)
{
    tm_call call = s->call;
    for (int k = 0; k < TM_MAX_IN + TM_MAX_OUT; k++) {
        tm_view *wide = view_of(&s->call, k), *view = view_of(&call, k);
        if (!tm_view_present(wide)) continue;
        view->dtype = stored(s, wide);
        int64_t columns = columns_of(wide), ld = columns + (is_strided(s, k) ? s->gap : 0);
        int64_t count = tm_shape_elements(wide->shape), rows = count / columns;
        view->ld = is_strided(s, k) ? ld : 0;
        s->bytes[k] = (size_t)(rows * ld) * tm_dtype_bytes(view->dtype);
        free(s->data[k]);
        s->data[k] = malloc(s->bytes[k]);
        assert_non_null(s->data[k]);
        memset(s->data[k], 0xff, s->bytes[k]);
        view->data = s->data[k];
        for (int64_t i = 0; k < TM_MAX_IN && i < count; i++) {
            if (wide->dtype == TM_I32)
                ((int32_t *)view->data)[i] = ((int32_t *)wide->data)[i];
            else
                tm_value_set(view->data, view->dtype, i / columns * ld + i % columns, ((double *)wide->data)[i]);
        }
    }
    return call;
}
static double got(const tm_view *view, int64_t i)
{
    int64_t columns = columns_of(view);
    return tm_value_get(view->data, view->dtype, i / columns * tm_view_ld(view) + i % columns);
}
static void gaps_are_untouched(const tm_call *call, const char *isa)
{
    for (int k = 0; k < TM_MAX_OUT; k++) {
        const tm_view *view = &call->out[k];
        if (!tm_view_present(view) || !view->ld) continue;
        size_t size = tm_dtype_bytes(view->dtype);
        for (int64_t r = 0; r < view->shape.n[0]; r++)
            for (size_t i = (size_t)columns_of(view) * size; i < (size_t)view->ld * size; i++)
                if (((unsigned char *)view->data)[(size_t)(r * view->ld) * size + i] != 0xff)
                    fail_msg("%s: output %d, row %lld: wrote between its rows", isa, k, (long long)r);
    }
}

static tm_view wide_view(tm_dtype dtype, tm_shape shape)
{
    tm_view view = { .dtype = dtype, .shape = shape };
    view.data = calloc((size_t)tm_shape_elements(shape), sizeof(double));
    assert_non_null(view.data);
    return view;
}
/* Numbers that bfloat16 holds, too: both formats get the same. */
static void fill_view(tm_view *view, uint64_t stream, double offset, double scale)
{
    for (int64_t i = 0; i < tm_shape_elements(view->shape); i++)
        ((double *)view->data)[i] =
            (double)tm_bf16_value(tm_bf16_round((float)(offset + scale * tm_random_normal(3, stream, (uint64_t)i))));
}

/* A case: attributes, first keys or NULL, sinks or not. */
typedef struct {
    tm_attention_attr attr;
    int64_t           batch;
    const int32_t    *first_key;
    bool              sinks;
} mask_case;

static setup setup_of(const tm_op *op, const mask_case *c)
{
    setup                    s = { .op = op, .dtype = TM_F32, .call = { .op = op, .attr = &c->attr } };
    const tm_attention_attr *a = &c->attr;
    bool                     back = op == &tm_op_attention_grad;
    int64_t  queries = c->batch * a->seq_q, keys = c->batch * a->seq_k, q = back ? 1 : 0, extra = back ? 6 : 3;
    tm_shape own[] = { tm_shape_2(queries, a->heads * a->dim_qk), tm_shape_2(keys, a->kv_heads * a->dim_qk),
                       tm_shape_2(keys, a->kv_heads * a->dim_v) };
    tm_shape o = tm_shape_2(queries, a->heads * a->dim_v), lse = tm_shape_3(c->batch, a->heads, a->seq_q);
    for (int k = 0; k < TM_MAX_IN; k++) s.call.in[k].shape.rank = -1;
    for (int k = 0; k < TM_MAX_OUT; k++) s.call.out[k].shape.rank = -1;
    for (int k = 0; k < 3; k++) {
        s.call.in[q + k] = wide_view(TM_F64, own[k]);
        fill_view(&s.call.in[q + k], (uint64_t)k, 0, 1);
        if (back) s.call.out[k] = wide_view(TM_F64, own[k]);
    }
    if (c->first_key) {
        s.call.in[extra] = wide_view(TM_I32, tm_shape_1(queries));
        memcpy(s.call.in[extra].data, c->first_key, (size_t)queries * sizeof(int32_t));
    }
    if (c->sinks) {
        s.call.in[extra + 1] = wide_view(TM_F64, tm_shape_1(a->heads));
        fill_view(&s.call.in[extra + 1], 3, 1, 1);
        if (back) s.call.out[3] = wide_view(TM_F64, tm_shape_1(a->heads));
    }
    if (back) {
        s.call.in[0] = wide_view(TM_F64, o), s.call.in[4] = wide_view(TM_F64, o);
        s.call.in[5] = wide_view(TM_F64, lse);
        fill_view(&s.call.in[0], 4, 0, 1);
    } else {
        s.call.out[0] = wide_view(TM_F64, o), s.call.out[1] = wide_view(TM_F64, lse);
    }
    return s;
}
static void setup_free(setup *s)
{
    for (int k = 0; k < TM_MAX_IN + TM_MAX_OUT; k++) {
        if (tm_view_present(view_of(&s->call, k))) free(view_of(&s->call, k)->data);
        free(s->data[k]);
    }
}

/* ---- tolerances ---- */

static double most_in(const tm_view *view)
{
    double most = 0;
    for (int64_t i = 0; i < tm_shape_elements(view->shape); i++) most = fmax(most, fabs(((double *)view->data)[i]));
    return most;
}
/* Largest sum |a b| of a head of a and one of b, any rows of all: heads are `dim` wide. */
static double most_dot(const tm_view *a, const tm_view *b, int64_t dim)
{
    double         most = 0, norm[2] = { 0, 0 };
    const tm_view *both[] = { a, b };
    for (int x = 0; x < 2; x++)
        for (int64_t i = 0; i < tm_shape_elements(both[x]->shape); i += dim) {
            double sum = 0;
            for (int64_t d = 0; d < dim; d++) sum += pow(((double *)both[x]->data)[i + d], 2);
            norm[x] = fmax(norm[x], sum);
        }
    most = sqrt(norm[0] * norm[1]);
    return most;
}

typedef struct {
    double o, lse, gradient[4]; /* dq, dk, dv, dsinks */
} bounds;

static bounds bounds_of(const mask_case *c, setup *forward, setup *backward)
{
    const tm_attention_attr *a = &c->attr;
    const double             u = 0x1p-24;
    const tm_view           *q = forward->call.in, *d_o = &backward->call.in[0];
    double n = (double)(a->seq_q * (a->heads / a->kv_heads)), long_sum = 6 * sqrt(fmax(n, (double)a->seq_k)) * u;
    double scores = a->scale * most_dot(&q[0], &q[1], a->dim_qk), dims = 6 * sqrt((double)a->dim_qk) * u;
    double e = dims * scores + 8 * u * (scores + log((double)a->seq_k) + 3), dv = 6 * sqrt((double)a->dim_v) * u;
    double products = most_dot(d_o, &q[2], a->dim_v) + most_dot(d_o, &backward->call.in[4], a->dim_v);
    double ds = a->scale * products * (2 * e + 3 * long_sum + dv + 8 * u);
    bounds b = { .o = (2 * e + 2 * long_sum + 8 * u) * most_in(&q[2]), .lse = e + 2 * long_sum + 16 * u };
    b.gradient[0] = ds * most_in(&q[1]);
    b.gradient[1] = n * ds * most_in(&q[0]) / sqrt(n); /* errors of the queries are as good as independent */
    b.gradient[2] = sqrt(n) * (e + long_sum) * most_in(d_o);
    b.gradient[3] = sqrt((double)(c->batch * a->seq_q)) * (e + long_sum + dv + 8 * u) * products;
    return b;
}

/* ---- one case ---- */

static void compare(const char *isa, int number, const char *what, const tm_view *have, const tm_view *want,
                    double bound)
{
    if (!tm_view_present(want)) return;
    for (int64_t i = 0; i < tm_shape_elements(want->shape); i++) {
        double x = got(have, i), y = ((double *)want->data)[i], allowed = bound + 0x1p-23 * fabs(y);
        if (isinf(y) ? x != y : !(fabs(x - y) <= allowed))
            fail_msg("%s, case %d, %s[%lld] is %.9g, wanted %.9g within %.3g", isa, number, what, (long long)i, x, y,
                     allowed);
    }
}

static void run_kernel(const isa_table *table, tm_call *call, int threads)
{
    call_run(kernel_find(table->kernels, tm_op_id_of(call->op)), call, threads);
    gaps_are_untouched(call, table->isa);
}

/* The bits of the outputs, to be freed. */
static unsigned char *bits_of(const setup *s, size_t *bytes)
{
    *bytes = 0;
    for (int k = TM_MAX_IN; k < TM_MAX_IN + TM_MAX_OUT; k++) *bytes += s->bytes[k];
    unsigned char *bits = malloc(*bytes + 1), *at = bits;
    assert_non_null(bits);
    for (int k = TM_MAX_IN; k < TM_MAX_IN + TM_MAX_OUT; k++)
        if (s->bytes[k]) memcpy(at, s->data[k], s->bytes[k]), at += s->bytes[k];
    return bits;
}

/* Other threads and, among avx2 and avx512, other instruction sets: the same bits. Dense rows: as with gaps. */
static void check_bits(setup *s, int number)
{
    unsigned char *first = NULL;
    size_t         bytes = 0;
    for (int t = 0; t < COUNT(tables); t++) {
        if (!isa_available(tables[t].isa) || (!strcmp(tables[t].isa, "base") && COUNT(tables) > 1)) continue;
        for (int threads = 1; threads <= 4; threads *= 2) {
            tm_call call = kernel_call(s);
            run_kernel(&tables[t], &call, threads);
            unsigned char *bits = bits_of(s, &bytes);
            if (first && memcmp(first, bits, bytes) != 0)
                fail_msg("%s, case %d: other bits with %d threads of %s", s->op->name, number, threads, tables[t].isa);
            free(first);
            first = bits;
        }
    }
    free(first);
}

/* bfloat16 of the same values: the same bits with any threads and, but for the plain build, any instruction set, and
 * the float32 result but for the rounding of the weights and of the result. */
static void check_narrow(setup *s, int number)
{
    enum { MOST = COUNT(tables) + 1 };
    isa_table      all[MOST];
    int            n = narrow_tables(all);
    size_t         bytes = 0;
    unsigned char *first = NULL;
    setup          narrow = { .op = s->op, .call = s->call, .dtype = TM_BF16, .gap = s->gap };
    tm_call        wide = kernel_call(s), call;
    run_kernel(&all[0], &wide, 2);
    for (int i = 0; i < 2 * n; i++) {
        const isa_table *table = &all[i / 2];
        call = kernel_call(&narrow);
        run_kernel(table, &call, i % 2 ? 4 : 1);
        for (int k = 0; k < TM_MAX_OUT; k++) {
            int64_t count = tm_view_present(&call.out[k]) ? tm_shape_elements(call.out[k].shape) : 0;
            double  largest = 0;
            for (int64_t e = 0; e < count; e++)
                largest = fmax(largest, isfinite(got(&wide.out[k], e)) ? fabs(got(&wide.out[k], e)) : 0);
            for (int64_t e = 0; e < count; e++) {
                double want = got(&wide.out[k], e), x = got(&call.out[k], e);
                double allowed = 1e-5 * (1 + largest) + (call.out[k].dtype == TM_BF16 ? 0x1p-7 * largest : 0);
                if (isinf(want) ? x != want : !(fabs(x - want) <= allowed))
                    fail_msg("%s %s, case %d: output %d[%lld] is %.9g, %.9g of float32", s->op->name, table->isa,
                             number, k, (long long)e, x, want);
            }
        }
        unsigned char *bits = bits_of(&narrow, &bytes);
        bool           plain = !strcmp(table->isa, "base");
        if (first && !plain && memcmp(first, bits, bytes) != 0)
            fail_msg("%s, case %d: other bits of bfloat16 with %s", s->op->name, number, table->isa);
        if (plain && n > 1)
            free(bits);
        else
            free(first), first = bits;
    }
    free(first);
    for (int k = 0; k < TM_MAX_IN + TM_MAX_OUT; k++) free(narrow.data[k]);
}

static void check_case(const mask_case *c, int number)
{
    static const char *const names[] = { "dq", "dk", "dv", "dsinks" };
    setup                    f = setup_of(&tm_op_attention, c), b = setup_of(&tm_op_attention_grad, c);
    f.gap = b.gap = GAP;
    f.op->reference(&f.call);
    for (int k = 0; k < 2; k++) { /* o as both formats hold it */
        tm_view *to = &b.call.in[4 + k], *from = &f.call.out[k];
        for (int64_t i = 0; i < tm_shape_elements(to->shape); i++) {
            float x = (float)((double *)from->data)[i];
            ((double *)to->data)[i] = (double)(k ? x : tm_bf16_value(tm_bf16_round(x)));
        }
    }
    b.op->reference(&b.call);
    bounds bound = bounds_of(c, &f, &b);
    for (int t = 0; t < COUNT(tables); t++) {
        if (!isa_available(tables[t].isa)) continue;
        tm_call call = kernel_call(&f);
        run_kernel(&tables[t], &call, 2);
        compare(tables[t].isa, number, "o", &call.out[0], &f.call.out[0], bound.o);
        compare(tables[t].isa, number, "lse", &call.out[1], &f.call.out[1], bound.lse);
        for (int threads = 1; threads <= 4; threads += 3) { /* over the scores once, and twice */
            tm_call back = kernel_call(&b);
            run_kernel(&tables[t], &back, threads);
            for (int k = 0; k < 4; k++)
                compare(tables[t].isa, number, names[k], &back.out[k], &b.call.out[k], bound.gradient[k]);
        }
    }
    check_narrow(&f, number);
    check_narrow(&b, number);
    check_bits(&f, number);
    check_bits(&b, number);
    f.gap = b.gap = 0;
    check_bits(&f, number);
    setup_free(&f);
    setup_free(&b);
}

FULL_TEST(every_example_of_the_op)
{
    tm_example example;
    int        number = 0;
    for (; tm_op_attention.example(number, &example); number++) {
        mask_case c = { .sinks = example.in[4].rank >= 0 };
        memcpy(&c.attr, example.attr, sizeof c.attr);
        c.batch = example.in[0].n[0] / c.attr.seq_q;
        int32_t *first = NULL;
        if (example.in[3].rank >= 0) {
            first = malloc((size_t)example.in[3].n[0] * sizeof *first);
            assert_non_null(first);
            for (int64_t i = 0; i < example.in[3].n[0]; i++) first[i] = (int32_t)tm_example_value(&example, 3, i, 5);
        }
        c.first_key = first;
        check_case(&c, number);
        free(first);
    }
    assert_true(number >= 17);
}

/* ---- documents ---- */

/* First keys of `batch` rows of `seq` positions; documents of the given lengths, the last one to the end. */
static int32_t *documents(int64_t batch, int64_t seq, const int64_t *lengths, int n)
{
    int32_t *first = malloc((size_t)(batch * seq) * sizeof *first);
    assert_non_null(first);
    for (int64_t b = 0; b < batch; b++) {
        int64_t begin = 0;
        for (int64_t i = 0, k = b; i < seq; i++) {
            if (n > 0 && i - begin == lengths[k % n]) begin = i, k++;
            first[b * seq + i] = (int32_t)begin;
        }
    }
    return first;
}

static const struct {
    int64_t batch, T, H, J, dim_qk, dim_v, window;
    int64_t lengths[6];
    int     n;
    bool    sinks;
} packed[] = {
    { 1, 97, 2, 1, 16, 16, 0, { 32, 33, 1, 7 }, 4, false },
    { 2, 200, 4, 2, 24, 8, 0, { 5, 64, 9, 40, 3 }, 5, true },
    { 1, 700, 1, 1, 64, 64, 0, { 512, 100 }, 2, false },
    { 1, 1300, 2, 2, 64, 64, 100, { 300, 40, 700 }, 3, true },
    { 1, 900, 2, 1, 192, 128, 0, { 130, 257, 400 }, 3, false },
    { 1, 70, 2, 2, 8, 40, 0, { 1, 2 }, 2, false }, /* documents shorter than a step of eight */
    { 1, 600, 1, 1, 128, 256, 33, { 3, 500, 11 }, 3, false },
};

FULL_TEST(documents_with_windows_and_sinks)
{
    for (int i = 0; i < COUNT(packed); i++) {
        int32_t  *first = documents(packed[i].batch, packed[i].T, packed[i].lengths, packed[i].n);
        mask_case c = { .batch = packed[i].batch, .first_key = first, .sinks = packed[i].sinks };
        c.attr = (tm_attention_attr){ .seq_q = packed[i].T,
                                      .seq_k = packed[i].T,
                                      .heads = packed[i].H,
                                      .kv_heads = packed[i].J,
                                      .dim_qk = packed[i].dim_qk,
                                      .dim_v = packed[i].dim_v,
                                      .scale = 1 / sqrt((double)packed[i].dim_qk),
                                      .causal = 1,
                                      .window = packed[i].window };
        check_case(&c, 100 + i);
        free(first);
    }
}

/* Queries before the first key, between documents, with and without sinks: o is 0, lse says so, gradients are 0. */
TEST(queries_that_see_nothing)
{
    for (int sinks = 0; sinks < 2; sinks++) {
        int32_t *first = documents(1, 80, (int64_t[]){ 20 }, 1);
        for (int i = 30; i < 75; i++) first[i] = 79; /* beyond what they see: alone in their block, and beside others */
        mask_case c = { .batch = 1, .first_key = first, .sinks = sinks };
        c.attr = (tm_attention_attr){ .seq_q = 80,
                                      .seq_k = 100,
                                      .q_offset = -40,
                                      .heads = 2,
                                      .kv_heads = 1,
                                      .dim_qk = 16,
                                      .dim_v = 16,
                                      .scale = 0.25,
                                      .causal = 1 };
        check_case(&c, 200 + sinks);
        c.first_key = NULL;
        check_case(&c, 202 + sinks);
        free(first);
    }
}

/* Keys and values of another document, and those that nobody sees, hold NaN: the rest has the same bits. */
FULL_TEST(what_is_hidden_may_be_anything)
{
    isa_table all[COUNT(tables) + 1];
    int       n_tables = narrow_tables(all);
    for (int t = 0; t < 2 * n_tables; t++)
        for (int i = 0; i < COUNT(packed) && (t % 2 || strcmp(all[t / 2].isa, "avx512_bf16") != 0); i++) {
            int64_t   T = packed[i].T, extra = 40, poisoned = -1;
            int32_t  *first = documents(1, T, packed[i].lengths, packed[i].n);
            mask_case c = { .batch = 1, .first_key = first, .sinks = packed[i].sinks };
            c.attr = (tm_attention_attr){ .seq_q = T,
                                          .seq_k = T + extra,
                                          .heads = packed[i].H,
                                          .kv_heads = packed[i].J,
                                          .dim_qk = packed[i].dim_qk,
                                          .dim_v = packed[i].dim_v,
                                          .scale = 0.2,
                                          .causal = 1 };
            for (int64_t r = T - 1; r >= 0 && poisoned < 0; r--)
                if (first[r] != first[T - 1]) poisoned = first[r]; /* the document before the last */
            assert_true(poisoned >= 0);
            setup s[2][2] = { { setup_of(&tm_op_attention, &c), setup_of(&tm_op_attention, &c) },
                              { setup_of(&tm_op_attention_grad, &c), setup_of(&tm_op_attention_grad, &c) } };
            for (int back = 0; back < 2; back++) {
                tm_call call[2];
                for (int bad = 0; bad < 2; bad++) {
                    for (int k = 1; bad && k < 3; k++) /* k and v */
                        for (int64_t r = 0; r < T + extra; r++) {
                            double *row = tm_view_row(&s[back][1].call.in[back + k], r);
                            bool    hidden = r >= T || first[r] == poisoned;
                            for (int64_t d = 0; hidden && d < columns_of(&s[back][1].call.in[back + k]); d++)
                                row[d] = (double)NAN;
                        }
                    s[back][bad].dtype = t % 2 ? TM_BF16 : TM_F32;
                    call[bad] = kernel_call(&s[back][bad]);
                    run_kernel(&all[t / 2], &call[bad], 2);
                }
                for (int k = 0; k < (back ? 3 : 1); k++)
                    for (int64_t r = 0; r < T; r++)
                        for (int64_t d = 0; d < columns_of(&call[0].out[k]) && first[r] != poisoned; d++) {
                            int64_t e = r * columns_of(&call[0].out[k]) + d;
                            if (memcmp(&(double){ got(&call[0].out[k], e) }, &(double){ got(&call[1].out[k], e) }, 8))
                                fail_msg("%s %s, case %d: output %d, row %lld saw what is hidden from it",
                                         s[back][0].op->name, all[t / 2].isa, i, k, (long long)r);
                        }
            }
            for (int x = 0; x < 4; x++) setup_free(&s[x / 2][x % 2]);
            free(first);
        }
}

/* A window said as first keys gives the same bits as the attribute. */
TEST(a_window_can_be_said_as_first_keys)
{
    enum { T = 700, W = 90 };
    int32_t first[T];
    for (int i = 0; i < T; i++) first[i] = i >= W ? i - W + 1 : 0;
    mask_case c[2] = { { .batch = 1 }, { .batch = 1, .first_key = first } };
    for (int i = 0; i < 2; i++)
        c[i].attr = (tm_attention_attr){ .seq_q = T,
                                         .seq_k = T,
                                         .heads = 2,
                                         .kv_heads = 1,
                                         .dim_qk = 32,
                                         .dim_v = 32,
                                         .scale = 0.2,
                                         .causal = 1,
                                         .window = i ? 0 : W };
    setup s[2] = { setup_of(&tm_op_attention, &c[0]), setup_of(&tm_op_attention, &c[1]) };
    for (int t = 0; t < COUNT(tables); t++) {
        if (!isa_available(tables[t].isa)) continue;
        size_t         bytes;
        unsigned char *bits[2];
        for (int i = 0; i < 2; i++) {
            tm_call call = kernel_call(&s[i]);
            run_kernel(&tables[t], &call, 3);
            bits[i] = bits_of(&s[i], &bytes);
        }
        assert_memory_equal(bits[0], bits[1], bytes);
        free(bits[0]), free(bits[1]);
    }
    setup_free(&s[0]), setup_free(&s[1]);
}
