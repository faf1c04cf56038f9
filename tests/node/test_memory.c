/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns of memory, and what the check of the memory finds of words that do not hold what was written. */
#include "support/test.h"

/* Between the check and its patterns: memory that is broken. */
#define tm_memory_fill fill_well
#include "../../src/apps/node/memory_words.c"
#undef tm_memory_fill
#include "apps/node/checks.h"
#include "one_check.h"
#include "support/folder.h"

typedef enum { WELL, ONE_BIT, ALIAS } damage;
static damage broken;
static char   counters[512]; /* file of corrected errors; "": none */

void tm_memory_fill(uint64_t *words, size_t n, int pattern, uint64_t seed);
void tm_memory_fill(uint64_t *words, size_t n, int pattern, uint64_t seed)
{
    fill_well(words, n, pattern, seed);
    if (counters[0]) test_put("", counters, "7\n"); /* while memory is written the controller corrects 4 errors */
    if (broken == ONE_BIT) words[12345] |= UINT64_C(1) << 17;
    if (broken == ALIAS) words[77] = words[4096 + 77]; /* two addresses, one word */
}

TEST(every_damage_is_seen)
{
    enum { N = 1000 };
    static uint64_t words[N];
    for (int pattern = 0; pattern < TM_MEMORY_PATTERNS; pattern++) {
        size_t first = N;
        fill_well(words, N, pattern, 5);
        assert_int_equal(tm_memory_check(words, N, pattern, 5, &first), 0);
        for (size_t i = 0; i < N; i += 37) {
            words[i] ^= UINT64_C(1) << i % 64;
            assert_int_equal(tm_memory_check(words, N, pattern, 5, &first), 1);
            assert_int_equal(first, i);
            words[i] ^= UINT64_C(1) << i % 64;
        }
    }
}

/* The check of a node whose memory has this damage. */
static void certify(damage d, const char *devices, tm_node_outcome *memory)
{
    broken = d;
    run_one_check(
        &(tm_node_options){
            .only = "memory", .minutes = 0.001, .seed = 3, .devices = devices, .folder = ".", .sysroot = "" },
        memory);
}

static bool found(const tm_node_outcome *o, const char *place, const char *words)
{
    for (size_t i = 0; i < o->n_findings; i++)
        if (strstr(o->findings[i].place, place) && strstr(o->findings[i].text, words)) return true;
    return false;
}

/* Of the host, and of a device with memory of its own, whose queue does nothing before somebody waits. */
FULL_TEST(two_addresses_of_one_word_are_found)
{
    tm_node_outcome o;
    certify(WELL, "late", &o);
    assert_int_equal(o.verdict, TM_NODE_PASS);
    assert_int_equal(o.n_findings, 0);
    assert_non_null(strstr(o.reach, " MiB of late"));
    assert_true(o.n_figures > 1 && o.figures[0].value > 0);
    assert_string_equal(o.figures[o.n_figures - 1].name, "device memory copied");
    assert_string_equal(o.figures[o.n_figures - 1].place, "late");
    tm_node_outcome_fini(&o);
    certify(ALIAS, "late", &o);
    assert_int_equal(o.verdict, TM_NODE_FAIL);
    assert_true(found(&o, "", "a word reads 0x") && found(&o, "late", "the first at byte 616"));
    tm_node_outcome_fini(&o);
}

/* A made-up host with 400 MiB that two ranks share, and a memory controller. */
TEST(a_host_that_ranks_share)
{
    const tm_node_options options = { .seed = 3, .devices = "cpu", .sysroot = test_folder() };
    const tm_node_task    task = { .options = &options, .seconds = 0.5, .ranks = 2, .on_host = 2, .first = true };
    tm_node_outcome       o = { 0 };
    tm_error              err = { 0 };
    char                  path[512];
    snprintf(path, sizeof path, "%s/proc/meminfo", test_folder());
    test_put("", path, "MemTotal: 1024000 kB\nMemAvailable: 409600 kB\n");
    snprintf(counters, sizeof counters, "%s/sys/devices/system/edac/mc/mc0/ce_count", test_folder());
    test_put("", counters, "3\n");
    broken = WELL;
    assert_int_equal(node_check_memory(&task, &o, &err), TM_OK);
    assert_int_equal(o.n_findings, 1);
    assert_string_equal(o.findings[0].place, "memory controllers");
    assert_non_null(strstr(o.findings[0].text, "4 corrected errors"));
    /* Nine tenths of a half are 180 MiB: two blocks at most. */
    assert_true(strstr(o.reach, "in 128.00 MiB of 1000.00 MiB") || strstr(o.reach, "in 64.00 MiB of 1000.00 MiB"));
    tm_node_outcome_fini(&o);
    counters[0] = '\0';
    test_folder_remove();
}

TESTS_ALONE
