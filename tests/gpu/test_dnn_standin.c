/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in for cuDNN (tests/standins/cudnn.c), by calls of its own: causal attention of grouped heads in columns of
 * one matrix is what a plain loop says, also in a graph that is played again. */
#include "gpu/dnn_raw.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

TEST_FIXTURE(dnn_raw_begin, dnn_raw_end)

static float of_bf16(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float    value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint16_t to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

/* Row i of a head, in float64: with the statistics at the end. */
static void plain(const trial *t, int64_t b, int64_t h, int64_t i, double *out)
{
    const shape    *s = t->s;
    const int64_t   most = s->queries > s->keys ? s->queries : s->keys, ld = dnn_raw_row(s), j = h / (s->H / s->J);
    const uint16_t *of = t->qkv + b * most * ld, *q = of + i * ld + h * s->D;
    double          sum = 0;
    for (int64_t d = 0; d < s->D; d++) out[d] = 0;
    for (int64_t key = 0; key < s->keys && key <= i; key++) {
        const uint16_t *k = of + key * ld + (s->H + j) * s->D, *v = k + s->J * s->D;
        double          score = 0;
        for (int64_t d = 0; d < s->D; d++) score += (double)of_bf16(q[d]) * (double)of_bf16(k[d]);
        double e = exp(score * (double)t->scale);
        sum += e;
        for (int64_t d = 0; d < s->D; d++) out[d] += e * (double)of_bf16(v[d]);
    }
    for (int64_t d = 0; d < s->D; d++) out[d] /= sum;
    out[s->D] = log(sum);
}

/* Probabilities and results have 8 bits. */
static void compare(const trial *t, double more)
{
    const shape *s = t->s;
    tm_error     err = { 0 };
    uint16_t    *o = malloc(t->bytes_o);
    float       *st = malloc(t->bytes_st);
    double       wanted[129];
    assert_true(o && st);
    dnn_raw_must(tm_gpu_read(dnn_raw.gpu, o, t->o, t->bytes_o, &err), &err);
    dnn_raw_must(tm_gpu_read(dnn_raw.gpu, st, t->st, t->bytes_st, &err), &err);
    for (int64_t b = 0; b < s->B; b++)
        for (int64_t h = 0; h < s->H; h++)
            for (int64_t i = 0; i < s->queries; i++) {
                bool last_row = b == s->B - 1 && h == s->H - 1 && i == s->queries - 1;
                plain(t, b, h, i, wanted);
                for (int64_t d = 0; d < s->D; d++) {
                    double got = (double)of_bf16(o[((b * s->queries + i) * s->H + h) * s->D + d]);
                    if (last_row && d == s->D - 1) wanted[d] += more;
                    if (!(fabs(got - wanted[d]) < 0.016)) fail_msg("%g, not %g", got, wanted[d]);
                }
                double got = (double)st[(b * s->H + h) * s->queries + i];
                if (!(fabs(got - wanted[s->D]) < 1e-5 * (1 + fabs(wanted[s->D]))))
                    fail_msg("statistics: %g, not %g", got, wanted[s->D]);
            }
    free(o);
    free(st);
}

static const shape shapes[] = { { 2, 33, 33, 4, 2, 8 },
                                { 1, 17, 17, 3, 3, 16 },
                                { 1, 5, 40, 2, 1, 24 },
                                { 3, 1, 1, 1, 1, 8 },
                                { 1, 40, 9, 6, 2, 128 } };

TEST(attention_is_that_of_a_plain_loop)
{
    tm_error err = { 0 };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        trial t;
        int   before = dnn_raw.executed();
        dnn_raw_open_trial(&t, &shapes[i]);
        if (i == 0) t.scale = 20; /* the largest score of a row may be far below 0 */
        dnn_raw_good(dnn_raw.execute(dnn_raw.handle, t.plan, dnn_raw_pack_of(&t, t.o, t.ws)));
        dnn_raw_must(tm_gpu_stream_wait(dnn_raw.gpu, dnn_raw.stream, &err), &err);
        assert_int_equal(dnn_raw.executed(), before + 1);
        compare(&t, 0);
        dnn_raw_close_trial(&t);
        while (dnn_raw.n_all > 0) dnn_raw_good(dnn_raw.drop(dnn_raw.all[--dnn_raw.n_all]));
    }
}

TEST(a_graph_that_is_played_again_attends_again)
{
    trial    t;
    tm_error err = { 0 };
    void    *graph;
    dnn_raw_open_trial(&t, &shapes[0]);
    dnn_raw_must(tm_gpu_capture_begin(dnn_raw.gpu, dnn_raw.stream, &err), &err);
    dnn_raw_good(dnn_raw.execute(dnn_raw.handle, t.plan, dnn_raw_pack_of(&t, t.o, t.ws)));
    dnn_raw_must(tm_gpu_capture_end(dnn_raw.gpu, dnn_raw.stream, &graph, &err), &err);
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < t.bytes / 2; i++) t.qkv[i] ^= (uint16_t)(round << 15);
        dnn_raw_must(tm_gpu_write(dnn_raw.gpu, t.at, t.qkv, t.bytes, &err), &err);
        dnn_raw_must(tm_gpu_graph_play(dnn_raw.gpu, graph, dnn_raw.stream, &err), &err);
        dnn_raw_must(tm_gpu_stream_wait(dnn_raw.gpu, dnn_raw.stream, &err), &err);
        compare(&t, 0);
    }
    tm_gpu_graph_close(dnn_raw.gpu, graph);
    dnn_raw_close_trial(&t);
}

/* What a kernel may have written before it reads is spoilt. */
TEST(results_do_not_lie_where_operands_do)
{
    trial    t;
    uint16_t first;
    tm_error err = { 0 };
    dnn_raw_open_trial(&t, &shapes[1]);
    dnn_raw_good(dnn_raw.execute(dnn_raw.handle, t.plan, dnn_raw_pack_of(&t, t.at, t.ws)));
    dnn_raw_must(tm_gpu_stream_wait(dnn_raw.gpu, dnn_raw.stream, &err), &err);
    dnn_raw_must(tm_gpu_read(dnn_raw.gpu, &first, t.at, sizeof first, &err), &err);
    assert_true(isnan(of_bf16(first)));
    dnn_raw_close_trial(&t);
}

/* --- what the environment asks for ------------------------------------------------------------------ */

TEST(it_is_as_wrong_as_the_environment_says)
{
    trial    t;
    tm_error err = { 0 };
    dnn_raw_open_trial(&t, &shapes[1]);
    setenv("STANDIN_DNN_WRONG", "4", 1);
    dnn_raw_good(dnn_raw.execute(dnn_raw.handle, t.plan, dnn_raw_pack_of(&t, t.o, t.ws)));
    dnn_raw_must(tm_gpu_stream_wait(dnn_raw.gpu, dnn_raw.stream, &err), &err);
    compare(&t, 4);
    unsetenv("STANDIN_DNN_WRONG");
    dnn_raw_close_trial(&t);
}

TEST(it_refuses_what_the_library_refuses)
{
    static const shape wide = { 1, 4, 4, 1, 1, 264 }, odd = { 1, 4, 4, 1, 1, 12 };
    void              *plan;
    assert_int_equal(dnn_raw_compose(&wide, &plan), 0);
    assert_int_equal(dnn_raw_compose(&odd, &plan), 0);
    setenv("STANDIN_DNN_REFUSES", "forward", 1);
    assert_int_equal(dnn_raw_compose(&shapes[1], &plan), 0);
    setenv("STANDIN_DNN_REFUSES", "backward", 1);
    while (dnn_raw.n_all > 0) dnn_raw_good(dnn_raw.drop(dnn_raw.all[--dnn_raw.n_all]));
    assert_int_equal(dnn_raw_compose(&shapes[1], &plan), 1);
    assert_int_equal(dnn_raw.version(), 91900);
    setenv("STANDIN_DNN_VERSION", "90800", 1);
    assert_int_equal(dnn_raw.version(), 90800);
    setenv("STANDIN_DNN_FAIL", "cudnnSetStream@2=4000", 1);
    assert_int_equal(dnn_raw.set_stream(dnn_raw.handle, dnn_raw.stream), 0);
    assert_int_equal(dnn_raw.set_stream(dnn_raw.handle, dnn_raw.stream), 4000);
}

/* --- products of transposed scores, summed over heads --------------------------------------------------------------
 */

/* (q q^T)^T q, of whole numbers; two heads of queries make one. */
TEST(transposed_scores_are_multiplied_and_summed)
{
    enum { H = 2, N = 3, D = 8 };
    layout l = { { 1, H, N, D }, { H * N * D, N * D, D, 1 } }, t = { { 1, H, D, N }, { H * N * D, N * D, 1, D } };
    layout s = { { 1, H, N, N }, { H * N * N, N * N, N, 1 } }, turned = { { 1, H, N, N }, { H * N * N, N * N, 1, N } };
    layout folded = { { 1, 1, N, D }, { N * D, N * D, D, 1 } };
    void  *q = dnn_raw_tensor(1, BF16, l, false), *x = dnn_raw_tensor(3, F32, s, true),
         *y = dnn_raw_tensor(4, BF16, turned, true);
    void *z = dnn_raw_tensor(5, F32, l, true), *view = dnn_raw_make(OF_RESHAPE), *qt = dnn_raw_tensor(7, BF16, t, true),
         *plan, *memory;
    void    *turn = dnn_raw_make(OF_RESHAPE), *pack = dnn_raw_make(PACK);
    uint16_t of[H * N * D], got[N * D];
    tm_error err = { 0 };
    dnn_raw.n_operations = 0;
    dnn_raw_set_descriptor(turn, 2200, q);
    dnn_raw_set_descriptor(turn, 2201, qt);
    dnn_raw_add(turn);
    dnn_raw_add(dnn_raw_matmul(q, qt, x));
    dnn_raw_set_descriptor(view, 2200, x);
    dnn_raw_set_descriptor(view, 2201, y);
    dnn_raw_add(view);
    dnn_raw_add(dnn_raw_matmul(y, q, z));
    dnn_raw_reduce(0, z, dnn_raw_tensor(6, BF16, folded, false));
    assert_int_equal(dnn_raw_plan_of(dnn_raw.operations, dnn_raw.n_operations, &plan), 1);
    dnn_raw_must(tm_gpu_alloc(dnn_raw.gpu, 4096, &memory, &err), &err);
    for (int i = 0; i < H * N * D; i++) of[i] = to_bf16((float)(i * 5 % 7 % 3 - 1));
    dnn_raw_must(tm_gpu_write(dnn_raw.gpu, memory, of, sizeof of, &err), &err);
    const int64_t     uids[] = { 6, 1 };
    char             *to = (char *)memory + 1024, *ws = to + 1024;
    const void *const at[] = { to, memory };
    dnn_raw_set(pack, 1000, T_I64, 2, uids);
    dnn_raw_set(pack, 1001, T_ADDRESS, 2, at);
    dnn_raw_set(pack, 1003, T_ADDRESS, 1, &ws);
    dnn_raw_good(dnn_raw.finish(pack));
    dnn_raw_good(dnn_raw.execute(dnn_raw.handle, plan, pack));
    dnn_raw_must(tm_gpu_stream_wait(dnn_raw.gpu, dnn_raw.stream, &err), &err);
    dnn_raw_must(tm_gpu_read(dnn_raw.gpu, got, to, sizeof got, &err), &err);
    for (int k = 0; k < N; k++)
        for (int d = 0; d < D; d++) {
            double wanted = 0;
            for (int h = 0; h < H; h++)
                for (int i = 0; i < N; i++)
                    for (int e = 0; e < D; e++)
                        wanted += (double)(of_bf16(of[(h * N + i) * D + e]) * of_bf16(of[(h * N + k) * D + e]) *
                                           of_bf16(of[(h * N + i) * D + d]));
            assert_float_equal(of_bf16(got[k * D + d]), wanted, 0);
        }
    tm_gpu_free(dnn_raw.gpu, memory);
}
