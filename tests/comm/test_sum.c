/* SPDX-License-Identifier: Apache-2.0 */
/* Sums, largest and smallest over ranks: alone, of every format and many lengths, past the caches, and of NaN. */
#include "support/test.h"
#include "base/cpu.h"
#include "calls.h"

#include <math.h>

enum { MOST_RANKS = 5, MOST = 3000, GUARD = 16 };

/* --- reductions ------------------------------------------------------------------------------- */

TEST(each_length)
{
    static const size_t         counts[] = { 0, 1, 15, 16, 17, 1023, 1024, 1025, 2048, 2049, MOST };
    static const tm_comm_format formats[] = { TM_COMM_INT64, TM_COMM_FLOAT64, TM_COMM_FLOAT32, TM_COMM_BFLOAT16 };
    static const int            all[] = { 0, 1, 2, 3, 4 };
    char                       *in[MOST_RANKS], *out = malloc((MOST + GUARD) * 8), want[8];
    for (int r = 0; r < MOST_RANKS; r++) in[r] = malloc(MOST * 8);
    for (int f = 0; f < 4; f++) {
        size_t bytes = format_bytes(formats[f]);
        for (int r = 0; r < MOST_RANKS; r++)
            for (size_t i = 0; i < MOST; i++) put_value(formats[f], 7, r, i, in[r] + i * bytes);
        for (int n = 1; n <= MOST_RANKS; n++)
            for (int op = TM_COMM_SUM; op <= TM_COMM_MIN; op++)
                for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
                    memset(out, 0x5a, (MOST + GUARD) * 8);
                    tm_comm_reduce((tm_comm_op)op, formats[f], (const void *const *)in, n, out, counts[k]);
                    for (size_t i = 0; i < counts[k]; i++) {
                        put_reduced((tm_comm_op)op, formats[f], 7, all, n, i, want);
                        if (memcmp(out + i * bytes, want, bytes) != 0)
                            fail_msg("format %d, op %d, %d ranks, element %zu of %zu", f, op, n, i, counts[k]);
                    }
                    for (size_t i = counts[k] * bytes; i < (counts[k] + GUARD) * bytes; i++)
                        assert_int_equal(out[i], 0x5a);
                }
    }
    for (int r = 0; r < MOST_RANKS; r++) free(in[r]);
    free(out);
}

/* A NaN in any place is the result; the others beside it are not touched. */
TEST(not_a_number)
{
    for (int op = TM_COMM_SUM; op <= TM_COMM_MIN; op++)
        for (int at = 0; at < 3; at++) {
            float       x[3][4] = { { 1, 2, 3, 4 }, { 5, 6, 7, 8 }, { 9, 10, 11, 12 } }, y[4];
            double      dx[3][4], dy[4];
            uint16_t    hx[3][4], hy[4];
            const void *in[3], *din[3], *hin[3];
            x[at][2] = (float)NAN;
            for (int r = 0; r < 3; r++) {
                for (int i = 0; i < 4; i++) dx[r][i] = (double)x[r][i], memcpy(&hx[r][i], (char *)&x[r][i] + 2, 2);
                in[r] = x[r], din[r] = dx[r], hin[r] = hx[r];
            }
            hx[at][2] = 0x7f81; /* one whose payload would be lost */
            tm_comm_reduce((tm_comm_op)op, TM_COMM_FLOAT32, in, 3, y, 4);
            tm_comm_reduce((tm_comm_op)op, TM_COMM_FLOAT64, din, 3, dy, 4);
            tm_comm_reduce((tm_comm_op)op, TM_COMM_BFLOAT16, hin, 3, hy, 4);
            for (int i = 0; i < 4; i++) {
                float want = op == TM_COMM_SUM   ? (float)(15 + 3 * i)
                             : op == TM_COMM_MAX ? (float)(9 + i)
                                                 : (float)(1 + i);
                if (i == 2) {
                    assert_true(isnan(y[i]) && isnan(dy[i]) && isnan(widened(hy[i])));
                    assert_int_equal(hy[i] & 0x40, 0x40);
                } else {
                    assert_true(y[i] == want && dy[i] == (double)want && widened(hy[i]) == want);
                }
            }
        }
}

/* --- past the caches --------------------------------------------------------------------------- */

TEST(past_the_caches)
{
    enum { N = 96 };
    float       *in[4], *out[3];
    const float *sent[4];
    float        want;
    for (int r = 0; r < 4; r++) {
        in[r] = aligned_alloc(64, (N + 16) * sizeof(float));
        sent[r] = in[r];
        for (size_t i = 0; i < N + 16; i++) put_value(TM_COMM_FLOAT32, 3, r, i, &in[r][i]);
    }
    for (int o = 0; o < 3; o++) out[o] = aligned_alloc(64, (N + 16) * sizeof(float));
    bool done = tm_comm_add_past(sent, 1, out, 1, 16);
#if defined(__x86_64__)
    assert_true(done == tm_cpu_has_avx2());
#endif
    for (int n = 1; n <= 4 && done; n++)
        for (int n_out = 1; n_out <= 3; n_out++)
            for (size_t count = 0; count <= N; count += 16) {
                for (int o = 0; o < 3; o++) memset(out[o], 0, (N + 16) * sizeof(float));
                assert_true(tm_comm_add_past(sent, n, out, n_out, count));
                for (size_t i = 0; i < N + 16; i++) {
                    put_reduced(TM_COMM_SUM, TM_COMM_FLOAT32, 3, (const int[]){ 0, 1, 2, 3 }, n, i, &want);
                    for (int o = 0; o < 3; o++)
                        if (out[o][i] != (o < n_out && i < count ? want : 0))
                            fail_msg("%d ranks, output %d of %d, element %zu of %zu", n, o, n_out, i, count);
                }
            }
    /* Parts of lines, and lines that do not begin at one, are left to others. */
    memset(out[0], 0, N * sizeof(float));
    for (size_t count = 1; count < 48; count++)
        if (count % 16) assert_false(tm_comm_add_past(sent, 2, out, 1, count));
    for (int o = 0; o < 3; o++) {
        float *shifted[3] = { out[0], out[1], out[2] };
        shifted[o] += 8;
        assert_false(tm_comm_add_past(sent, 2, shifted, 3, 16));
    }
    for (int i = 0; i < N; i++) assert_true(out[0][i] == 0);
    for (int r = 0; r < 4; r++) free(in[r]);
    for (int o = 0; o < 3; o++) free(out[o]);
}

/* Of 16 MiB on, and one line less. */
typedef struct {
    size_t count;
    bool   in_place;
} large;

static void sum_large(tm_comm *world, void *context)
{
    const large *l = context;
    size_t       rank = (size_t)tm_comm_rank(world), size = (size_t)tm_comm_size(world);
    void        *memory;
    CHECK_OK(tm_comm_alloc(world, 2 * l->count * sizeof(float), &memory, err));
    float *send = memory, *receive = l->in_place ? send : send + l->count;
    for (size_t i = 0; i < l->count; i++) send[i] = (float)((i % 251) * (rank + 1) + (rank == 0 ? i % 7 : 0));
    tm_collective call = collective_of(TM_COMM_ALL_REDUCE, TM_COMM_FLOAT32, send, receive, l->count, "large", 1);
    CHECK_OK(tm_comm_run(world, &call, err));
    for (size_t i = 0; i < l->count; i++) CHECK(receive[i] == (float)((i % 251) * (size * (size + 1) / 2) + i % 7));
    if (!l->in_place) {
        call.kind = TM_COMM_REDUCE_SCATTER;
        call.count = l->count / size;
        CHECK_OK(tm_comm_run(world, &call, err));
        for (size_t k = 0; k < call.count; k++) {
            size_t i = rank * call.count + k;
            CHECK(receive[k] == (float)((i % 251) * (size * (size + 1) / 2) + i % 7));
        }
    }
    tm_comm_free(world, memory);
}

TEST(large_sums)
{
    for (int i = 0; i < 3; i++) {
        large l = { (4 << 20) - (i == 1 ? 16 : 0), i == 2 };
        run_world(2, NULL, 30, false, sum_large, &l);
    }
}

/* --- words --------------------------------------------------------------------------------------- */
