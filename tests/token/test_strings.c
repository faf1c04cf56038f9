/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of a tokenizer, as large as the largest vocabularies and larger: what was put is found, and nothing else.
 */
#include "base/arena.h"
#include "token/strings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

enum { TEXTS = 300000, BYTES = 24 };

static char (*texts)[BYTES];
static size_t lengths[TEXTS];

/* Of 1 to 23 bytes, each a different one; some are the beginning of others, some hold zeros. */
static int make_texts(void **state)
{
    (void)state;
    texts = tm_alloc(TEXTS * sizeof *texts);
    for (int i = 0; i < TEXTS; i++) {
        int n = snprintf(texts[i], BYTES, "%x", i);
        if (i % 3 == 1) texts[i][n++] = '\0';
        if (i % 3 == 2) memset(texts[i] + n, 'z', (size_t)(BYTES - 1 - n)), n = BYTES - 1;
        lengths[i] = (size_t)n;
    }
    return 0;
}

static int free_texts(void **state)
{
    (void)state;
    free(texts);
    return 0;
}

TEST(texts_of_large_vocabularies)
{
    tm_strings t = { 0 };
    assert_int_equal(tm_strings_get(&t, "x", 1), -1);
    for (int i = 0, next = 0; i < TEXTS; i++) {
        assert_int_equal(tm_strings_put(&t, texts[i], lengths[i], 3 * i), -1);
        if (i != next && i != next + 1 && i != TEXTS - 1) continue;
        /* As the table is now: all that are in it, and the next ones, which are not. */
        for (int k = 0; k <= i; k++) assert_int_equal(tm_strings_get(&t, texts[k], lengths[k]), 3 * k);
        for (int k = i + 1; k < i + 1000 && k < TEXTS; k++)
            assert_int_equal(tm_strings_get(&t, texts[k], lengths[k]), -1);
        if (i == next + 1) next = 2 * next + 511; /* when half of the places are used */
    }
    assert_int_equal(tm_strings_get(&t, "0", 2), -1); /* a zero behind it is another text */
    assert_int_equal(tm_strings_get(&t, "", 0), -1);
    assert_int_equal(tm_strings_put(&t, "", 0, 8), -1);
    assert_int_equal(tm_strings_get(&t, "", 0), 8);
    assert_int_equal(tm_strings_put(&t, texts[7], lengths[7], 5), 21); /* another id; the old one is told */
    assert_int_equal(tm_strings_get(&t, texts[7], lengths[7]), 5);
    assert_int_equal(t.count, TEXTS + 1);
    tm_strings_fini(&t);
    assert_true(t.size == 0 && t.count == 0 && tm_strings_get(&t, texts[7], lengths[7]) == -1);
}

TEST(pairs_of_large_vocabularies)
{
    enum { PAIRS = 200000 };
    tm_pairs t;
    tm_pairs_init(&t);
    assert_null(tm_pairs_get(&t, 0, 0));
    for (int i = 0; i < PAIRS; i++) {
        tm_pairs_put(&t, i / 7, i % 7 * 1000003, (uint32_t)i, i + 5);
        const tm_pair *last = tm_pairs_get(&t, i / 7, i % 7 * 1000003);
        assert_true(last && last->rank == (uint32_t)i && last->id == i + 5);
        assert_null(tm_pairs_get(&t, i % 7 * 1000003, i / 7 + 8)); /* nor the other way round */
    }
    for (int i = 0; i < PAIRS; i++) {
        const tm_pair *pair = tm_pairs_get(&t, i / 7, i % 7 * 1000003);
        assert_true(pair && pair->rank == (uint32_t)i && pair->id == i + 5);
    }
    assert_int_equal(t.count, PAIRS);
    tm_pairs_put(&t, 0, 0, 9, 11);
    const tm_pair *pair = tm_pairs_get(&t, 0, 0);
    assert_true(pair && pair->rank == 9 && pair->id == 11);
    assert_int_equal(t.count, PAIRS);
    tm_pairs_fini(&t);
}

TEST_FIXTURE(make_texts, free_texts)
