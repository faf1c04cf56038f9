/* SPDX-License-Identifier: Apache-2.0 */
/* Indexed data sets: every type of token; the order of samples, to the published vectors. */
#include "data/indexed.h"
#include "data/order.h"
#include "base/text.h"

#include "support/test.h"

/* --- files -------------------------------------------------------------------------------------------------------- */

static size_t put(uint8_t *out, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) out[i] = (uint8_t)(value >> 8 * i);
    return (size_t)bytes;
}

/* An index of two sequences of 2 and 1 tokens. */
static size_t small_index(uint8_t *idx, int code, int token_bytes, bool modes)
{
    size_t n = 9;
    memcpy(idx, "MMIDIDX\0", 9);
    n += put(idx + n, 1, 8);
    n += put(idx + n, (uint64_t)code, 1);
    n += put(idx + n, 2, 8);
    n += put(idx + n, 3, 8);
    n += put(idx + n, 2, 4);
    n += put(idx + n, 1, 4);
    n += put(idx + n, 0, 8);
    n += put(idx + n, 2 * (uint64_t)token_bytes, 8);
    for (uint64_t d = 0; d < 3; d++) n += put(idx + n, d, 8);
    if (modes) n += put(idx + n, 0, 2);
    return n;
}

TEST(every_type_of_token_is_read)
{
    double   wide[] = { 7, 65000, -3 };
    float    narrow[] = { 7, 65000, -3 };
    int16_t  shorts[] = { 7, -300, 32767 };
    int64_t  longs[] = { 7, -3, 1LL << 40 };
    uint16_t unsigned_shorts[] = { 7, 65535, 0 };
    const struct {
        int         code, bytes;
        const void *data;
        const char *name;
        int64_t     wanted[3]; /* beyond 32 bits: refused */
    } cases[] = { { 1, 1, "\x07\xff\x00", "uint8", { 7, 255, 0 } },
                  { 2, 1, "\x07\xff\x80", "int8", { 7, -1, -128 } },
                  { 3, 2, shorts, "int16", { 7, -300, 32767 } },
                  { 4, 4, "\x07\0\0\0\xff\xff\xff\xff\0\0\0\x80", "int32", { 7, -1, INT32_MIN } },
                  { 5, 8, longs, "int64", { 7, -3, 1LL << 40 } },
                  { 6, 8, wide, "float64", { 7, 65000, -3 } },
                  { 7, 4, narrow, "float32", { 7, 65000, -3 } },
                  { 7, 8, wide, "float64", { 7, 65000, -3 } },
                  { 8, 2, unsigned_shorts, "uint16", { 7, 65535, 0 } } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint8_t    idx[128];
        tm_indexed set;
        tm_error   err = { 0 };
        size_t     n = small_index(idx, cases[i].code, cases[i].bytes, i % 2);
        if (tm_indexed_parse("x.idx", idx, (int64_t)n, "x.bin", cases[i].data, 3 * cases[i].bytes, &set, &err) != TM_OK)
            fail_msg("%s", err.text);
        assert_string_equal(tm_indexed_type(&set), cases[i].name);
        assert_int_equal(set.modes, i % 2);
        for (int t = 0; t < 3; t++) {
            int32_t id = 0;
            bool    fits = cases[i].wanted[t] >= INT32_MIN && cases[i].wanted[t] <= INT32_MAX;
            assert_int_equal(tm_indexed_token(&set, t, &id), fits);
            if (fits) assert_int_equal(id, cases[i].wanted[t]);
        }
    }
    double     odd[] = { 0.5, (double)NAN, 1e30 };
    uint8_t    idx[128];
    tm_indexed set;
    tm_error   err = { 0 };
    int32_t    id;
    size_t     n = small_index(idx, 6, 8, false);
    assert_int_equal(tm_indexed_parse("x", idx, (int64_t)n, "y", (uint8_t *)odd, 24, &set, &err), TM_OK);
    for (int t = 0; t < 3; t++) assert_false(tm_indexed_token(&set, t, &id));
}

/* --- the order of samples --- */

TEST(the_generator_gives_the_published_numbers)
{
    const uint32_t wanted[] = { 822569775, 2137449171, 2671936806, 3512589365, 1880026316 };
    const uint32_t shuffled[] = { 7, 2, 9, 1, 0, 8, 4, 5, 6, 3 };
    tm_mt19937     generator;
    uint32_t       items[10];
    tm_mt19937_seed(&generator, 1234);
    for (int i = 0; i < 5; i++) assert_int_equal(tm_mt19937_next(&generator), wanted[i]);
    tm_mt19937_seed(&generator, 5489); /* the 10,000th number of the authors' default seed */
    for (int i = 0; i < 9999; i++) tm_mt19937_next(&generator);
    assert_int_equal(tm_mt19937_next(&generator), 4123659995);
    tm_mt19937_seed(&generator, 1234);
    for (uint32_t i = 0; i < 10; i++) items[i] = i;
    tm_mt19937_shuffle(&generator, items, 10);
    assert_memory_equal(items, shuffled, sizeof items);
}

/* The batch-32 run of the 8-billion benchmark: 1,200,000 steps over part 6 of C4. */
TEST(the_benchmark_needs_684_million_documents)
{
    tm_order_plan plan;
    char          text[32];
    assert_ok(tm_order_plan_make(45608611, 20994193570, 8192, 38400000, &plan, err));
    assert_int_equal(plan.epochs, 15);
    assert_false(plan.separate);
    assert_int_equal(plan.samples, 38441516);
    assert_int_equal(plan.document_bytes, 684129165LL * 4);
    assert_int_equal(tm_order_plan_bytes(&plan), 684129165LL * 4 + 38441517LL * 8 + 38441516LL * 4);
    assert_string_equal(tm_format_bytes(text, (double)tm_order_plan_bytes(&plan)), "2.98 GiB");
}

/* Every token but the first of the shuffled documents is a target exactly once. */
static void covers(const int32_t *lengths_of, int64_t documents, int64_t tokens, int64_t seq, int64_t wanted)
{
    tm_order_plan plan;
    tm_order      order;
    assert_ok(tm_order_plan_make(documents, tokens, seq, wanted, &plan, err));
    assert_true(plan.samples >= wanted && plan.epochs * tokens >= wanted * seq + 1);
    assert_true(plan.epochs == 1 || (plan.epochs - 1) * tokens < wanted * seq + 1);
    assert_ok(tm_order_build(&plan, (const uint8_t *)lengths_of, 7, &order, err));
    int64_t at = 0, begin = 0; /* of the document, of the sample, in tokens */
    for (int64_t k = 0, d = 0; k <= plan.samples; k++, begin += seq) {
        for (; d < (int64_t)order.samples[k].position; d++) at += lengths_of[order.documents[d]];
        assert_int_equal(at + order.samples[k].offset, begin);
        assert_true(k == 0 || order.samples[k].offset < lengths_of[order.documents[d]]);
    }
    tm_order_free(&order);
}

/* Whatever the lengths; documents without tokens do no harm. */
TEST(samples_cover_the_documents)
{
    const int32_t odd[] = { 3, 0, 11, 1, 1, 0, 2, 9 };
    for (int64_t seq = 1; seq < 27; seq++)
        for (int64_t wanted = 1; wanted < 90; wanted += 7) covers(odd, 8, 27, seq, wanted);
}

TESTS_IN_ORDER
