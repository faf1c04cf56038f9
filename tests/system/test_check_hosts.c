/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts beside each other: worlds of threads on several hosts, one of which is slow, or different, or fails a check. */
#include "support/test.h"
#include "system/check_hosts.h"

#include "base/arena.h"
#include "base/clock.h"
#include "comm/world.h"
#include "record/table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* What a test changes of the cards, by rank; NULL: nothing. */
typedef struct {
    void (*change)(int rank, tm_hosts_card *card);
    const char     *failing; /* a check of the host of the last rank that fails; "WARN": that warns */
    tm_hosts_limits limits;
    int             fails;   /* hosts that do */
    const char     *says[4]; /* among the notes */
    const char     *verdict; /* in the message */
    double          threads; /* of the first host */
    int             n_notes; /* -1: any */
} scene;

/* Ranks of alike hosts: a few percent of noise, as between measurements. */
static tm_hosts_card usual(int rank)
{
    tm_hosts_card card;
    tm_hosts_card_clear(&card);
    snprintf(card.text[TM_HOSTS_PROGRAM], TM_HOSTS_TEXT, "00c0ffee");
    snprintf(card.text[TM_HOSTS_VERSION], TM_HOSTS_TEXT, "0.1.0");
    snprintf(card.text[TM_HOSTS_KERNELS], TM_HOSTS_TEXT, "avx512");
    card.value[TM_HOSTS_THREADS] = 8;
    card.value[TM_HOSTS_MEMORY] = 250 + 0.5 * (rank % 3);
    card.value[TM_HOSTS_CLOCK] = rank == 0 ? 0 : 3 - rank;
    card.value[TM_HOSTS_BANDWIDTH] = 100 + rank % 4;
    card.value[TM_HOSTS_PRODUCT] = 1000 - 9 * (rank % 5);
    card.value[TM_HOSTS_DISK] = 500 + 30 * (rank % 3);
    card.value[TM_HOSTS_LINK] = 10 + 0.2 * (rank % 3);
    return card;
}

static void add_check(tm_checks *checks, const char *id, tm_check_status status, const char *observed)
{
    tm_checks_add(checks, &(tm_check_result){ .id = id,
                                              .group = "settings",
                                              .status = status,
                                              .observed = observed,
                                              .expected = "0",
                                              .source = "/proc",
                                              .remedy = "mend it" });
}

static bool noted(const tm_table *table, const char *words)
{
    for (size_t i = 0; i < tm_table_n_notes(table); i++)
        if (strstr(tm_table_note_at(table, i), words)) return true;
    fprintf(stderr, "'%s' is not said; said is:\n", words);
    for (size_t i = 0; i < tm_table_n_notes(table); i++) fprintf(stderr, "  %s\n", tm_table_note_at(table, i));
    return false;
}

/* The row of each host is of its cards: sums of what ranks share out, the first rank's of the rest. `named`: a column
 * that differs is told in the column "outside" and in a note, and only those. */
static void rows_follow_cards(const scene *s, tm_comm *world, const tm_table *table)
{
    static const struct {
        const char *column;
        int         value; /* of a card */
        bool        sum;
    } measured[] = { { "memory_gbps", TM_HOSTS_BANDWIDTH, true }, { "product_gflops", TM_HOSTS_PRODUCT, true },
                     { "disk_mbps", TM_HOSTS_DISK, false },       { "link_gbps", TM_HOSTS_LINK, false },
                     { "clock_ms", TM_HOSTS_CLOCK, false },       { "memory_gib", TM_HOSTS_MEMORY, false } };
    for (size_t k = 0; k < sizeof measured / sizeof measured[0]; k++) {
        double value[64] = { 0 };
        bool   first[64] = { false };
        for (int rank = 0; rank < tm_comm_size(world); rank++) {
            tm_hosts_card card = usual(rank);
            int           host = tm_comm_place_of(world, rank).host;
            if (s->change) s->change(rank, &card);
            if (!first[host] || measured[k].sum) value[host] += card.value[measured[k].value];
            first[host] = true;
        }
        for (size_t i = 0; i < tm_table_n_rows(table); i++) {
            const tm_cell *cell = tm_table_cell(table, i, (size_t)tm_table_find(table, measured[k].column));
            CHECK(isfinite(value[i]) ? cell->kind == TM_CELL_F64 && fabs(cell->f64 - value[i]) < 1e-9
                                     : cell->kind == TM_CELL_EMPTY);
        }
    }
    for (size_t i = 0; i < tm_table_n_rows(table); i++) {
        const char    *host = tm_table_cell(table, i, (size_t)tm_table_find(table, "host"))->text;
        const tm_cell *outside = tm_table_cell(table, i, (size_t)tm_table_find(table, "outside"));
        char           list[200] = "", note[200], *rest = list;
        bool fails = strcmp(tm_table_cell(table, i, (size_t)tm_table_find(table, "verdict"))->text, "FAIL") == 0;
        if (outside->kind == TM_CELL_TEXT) snprintf(list, sizeof list, "%s", outside->text);
        for (char *one; *list && (one = strsep(&rest, ",")) && fails;) {
            while (*one == ' ') one++;
            snprintf(note, sizeof note, ": %s", strcmp(one, "clock_ms") == 0 ? "its clock is" : one);
            bool said = false;
            for (size_t k = 0; k < tm_table_n_notes(table); k++) {
                const char *at = tm_table_note_at(table, k);
                said = said ||
                       (strncmp(at, "FAIL ", 5) == 0 && strncmp(at + 5, host, strlen(host)) == 0 && strstr(at, note));
            }
            CHECK(said);
        }
        CHECK(!fails || *list ||
              strstr(tm_table_cell(table, i, (size_t)tm_table_find(table, "checks"))->text, "1 FAIL"));
    }
}

/* Every rank gets the same. */
static void compare(tm_comm *world, void *context)
{
    const scene  *s = context;
    int           rank = tm_comm_rank(world), last = tm_comm_size(world) - 1;
    tm_comm_place place = tm_comm_place_of(world, rank);
    tm_hosts_card card = usual(rank);
    tm_checks     checks = { 0 };
    tm_hosts     *hosts;
    tm_error      verdict = { 0 };
    bool          first = place.local_rank == 0, odd = place.host == tm_comm_place_of(world, last).host;
    if (s->change) s->change(rank, &card);
    add_check(&checks, "os", TM_CHECK_INFO, odd && s->failing ? "another" : "Debian");
    bool warns = s->failing && strcmp(s->failing, "WARN") == 0;
    add_check(&checks, "klog", !odd || !s->failing ? TM_CHECK_PASS : warns ? TM_CHECK_WARN : TM_CHECK_FAIL, "3 errors");
    add_check(&checks, "governor", TM_CHECK_WARN, "powersave");
    CHECK_OK(tm_hosts_compare(world, &card, first ? &checks : NULL, &s->limits, &hosts, err));
    tm_table *table = tm_hosts_table(hosts);
    int       failing = 0, column = tm_table_find(table, "verdict");
    CHECK((int)tm_table_n_rows(table) == place.hosts);
    for (size_t i = 0; i < tm_table_n_rows(table); i++)
        failing += strcmp(tm_table_cell(table, i, (size_t)column)->text, "FAIL") == 0;
    for (size_t i = 0; i < sizeof s->says / sizeof s->says[0] && s->says[i]; i++) CHECK(noted(table, s->says[i]));
    CHECK(s->n_notes < 0 || (int)tm_table_n_notes(table) == s->n_notes);
    CHECK(failing == s->fails);
    CHECK(tm_hosts_verdict(hosts, &verdict) == (failing ? TM_NEGATIVE : TM_OK));
    if (s->verdict && !strstr(verdict.text, s->verdict)) fprintf(stderr, "%s\n", verdict.text);
    CHECK(!s->verdict || strstr(verdict.text, s->verdict));
    if (s->threads > 0) CHECK(tm_table_cell(table, 0, (size_t)tm_table_find(table, "threads"))->f64 == s->threads);
    if (rank == 0) rows_follow_cards(s, world, table);
    char counted[64];
    snprintf(counted, sizeof counted, "%d of %d hosts fail: ", failing, place.hosts);
    CHECK(failing ? strncmp(verdict.text, counted, strlen(counted)) == 0 : !*verdict.text);
    tm_table_destroy(table);
    tm_hosts_destroy(hosts);
    tm_checks_fini(&checks);
}

static const tm_hosts_limits usual_limits = { 0.1, 1000 };
static const int             six[] = { 0, 1, 2, 3, 4, 5 }, pairs[] = { 0, 0, 1, 1, 2, 2 }, two[] = { 0, 1 },
                 threes[] = { 0, 0, 0, 1, 1, 1 };

static void play(int ranks, const int *host, scene s)
{
    s.limits = s.limits.clock_ms > 0 ? s.limits : usual_limits;
    run_world(ranks, host, 10, false, compare, &s);
}

TEST(alike)
{
    play(6, six,
         (scene){ .n_notes = 1,
                  .says = { "WARN all hosts: governor: powersave; expected: 0; remedy: mend it" },
                  .threads = 8 });
    play(6, pairs, (scene){ .n_notes = 1, .threads = 16 });
    play(1, NULL, (scene){ .n_notes = 1, .threads = 8 });
}

static void other_program(int rank, tm_hosts_card *card)
{
    if (rank == 4) snprintf(card->text[TM_HOSTS_PROGRAM], TM_HOSTS_TEXT, "deadbeef");
}

static void first_program(int rank, tm_hosts_card *card)
{
    if (rank == 0) snprintf(card->text[TM_HOSTS_PROGRAM], TM_HOSTS_TEXT, "deadbeef");
}

static void second_program(int rank, tm_hosts_card *card)
{
    if (rank == 5) snprintf(card->text[TM_HOSTS_PROGRAM], TM_HOSTS_TEXT, "deadbeef");
}

static void no_kernels(int rank, tm_hosts_card *card)
{
    if (rank >= 4) card->text[TM_HOSTS_KERNELS][0] = '\0';
}

TEST(texts)
{
    play(6, six,
         (scene){ .change = other_program,
                  .fails = 1,
                  .n_notes = 2,
                  .verdict = "1 of 6 hosts fail: ",
                  .says = { "-4: program is deadbeef, elsewhere it is 00c0ffee" } });
    play(6, pairs,
         (scene){ .change = other_program,
                  .fails = 1,
                  .n_notes = 2,
                  .says = { "-2 (rank 4): program is deadbeef, elsewhere it is 00c0ffee" } });
    play(6, six,
         (scene){ .change = first_program,
                  .fails = 1,
                  .n_notes = 2,
                  .says = { ": program is deadbeef, elsewhere it is 00c0ffee" } });
    play(6, pairs,
         (scene){ .change = second_program, .fails = 1, .n_notes = 2, .says = { "-2 (rank 5): program is deadbeef" } });
    play(6, pairs, (scene){ .change = no_kernels, .fails = 1, .n_notes = 2, .says = { "-2: kernels is unknown" } });
    play(6, threes,
         (scene){ .change = no_kernels,
                  .fails = 1,
                  .n_notes = 2,
                  .says = { "-1 (rank 4, ...): kernels is unknown, elsewhere it is avx512" } });
}

static void fewer_threads(int rank, tm_hosts_card *card)
{
    if (rank == 3) card->value[TM_HOSTS_THREADS] = 4;
}

static void less_memory(int rank, tm_hosts_card *card)
{
    if (rank == 2) card->value[TM_HOSTS_MEMORY] = 240;
}

static void wrong_clock(int rank, tm_hosts_card *card)
{
    if (rank == 2) card->value[TM_HOSTS_CLOCK] = -1200;
}

TEST(numbers)
{
    play(6, pairs,
         (scene){
             .change = fewer_threads, .fails = 1, .n_notes = 2, .says = { "-1: threads is 12, elsewhere it is 16" } });
    play(6, six,
         (scene){
             .change = less_memory, .fails = 1, .n_notes = 2, .says = { "-2: memory_gib is 240, the median is 250" } });
    play(6, six,
         (scene){
             .change = wrong_clock, .fails = 1, .n_notes = 2, .says = { "-2: its clock is 1200 ms behind that of " } });
    play(6, six, (scene){ .change = wrong_clock, .fails = 0, .n_notes = 1, .limits = { 0.1, 1500 } });
}

static void slow(int rank, tm_hosts_card *card)
{
    if (rank == 3) card->value[TM_HOSTS_BANDWIDTH] *= 0.85;
    if (rank == 5) card->value[TM_HOSTS_PRODUCT] *= 0.5, card->value[TM_HOSTS_DISK] = (double)NAN;
}

static void fast(int rank, tm_hosts_card *card)
{
    if (rank == 3) card->value[TM_HOSTS_LINK] *= 3;
}

/* So far from each other that 15 % below the middle is nothing. */
static void scattered(int rank, tm_hosts_card *card)
{
    card->value[TM_HOSTS_DISK] = 300 + 100 * rank;
}

TEST(speeds)
{
    play(6, six,
         (scene){ .change = slow,
                  .fails = 2,
                  .n_notes = 4,
                  .verdict = "2 of 6 hosts fail: ",
                  .says = { "-3: memory_gbps is 87.55, the median of the other hosts 101 (13.3 % below",
                            "-5: product_gflops is 500", "-5: disk_mbps was not measured, elsewhere it was" } });
    play(6, six, (scene){ .change = slow, .fails = 1, .n_notes = 3, .limits = { 0.2, 1000 } });
    play(6, six, (scene){ .change = fast, .fails = 0, .n_notes = 1 });
    play(6, six, (scene){ .change = scattered, .fails = 0, .n_notes = 1 });
}

static void slow_of_two(int rank, tm_hosts_card *card)
{
    if (rank == 1) card->value[TM_HOSTS_BANDWIDTH] = 80;
}

TEST(two_hosts)
{
    play(2, two,
         (scene){ .change = slow_of_two,
                  .fails = 1,
                  .n_notes = 2,
                  .says = { "-1: memory_gbps is 80, the median of the other hosts 100" } });
}

TEST(checks_of_hosts)
{
    play(6, six,
         (scene){ .failing = "FAIL",
                  .fails = 1,
                  .n_notes = 3,
                  .verdict = "(klog)",
                  .says = { "-5: klog: 3 errors; expected: 0; remedy: mend it",
                            "-5: os is 'another', elsewhere it is 'Debian'" } });
    play(6, six, (scene){ .failing = "WARN", .fails = 0, .n_notes = 3 });
}

/* --- between hosts ------------------------------------------------------------------------------- */

static _Thread_local int64_t ahead_ns;

static int64_t shifted(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec + ahead_ns;
}

static void clocks_of(tm_comm *world, void *context)
{
    int    host = tm_comm_place_of(world, tm_comm_rank(world)).host;
    bool   first = tm_comm_place_of(world, tm_comm_rank(world)).local_rank == 0;
    double ms;
    (void)context;
    ahead_ns = host * (int64_t)5000000000 * (host == 2 ? -1 : 1);
    CHECK_OK(tm_hosts_clock(world, shifted, &ms, err));
    CHECK(first == !isnan(ms));
    double want = host == 0 ? 0 : host == 1 ? 5000 : -10000;
    CHECK(!first || fabs(ms - want) < 1000);
    CHECK_OK(tm_hosts_clock(world, NULL, &ms, err));
    CHECK(!first || fabs(ms) < 1000);
}

/* The first rank reads 1000, 1040, 2000, 2030, 3000, 3020, ... ns: the third question is answered first, after 20 ns.
 * Each time the other one reads half a millisecond more. */
static _Thread_local int64_t readings;

static int64_t told_in_turn(void)
{
    static const int64_t took[] = { 40, 30, 20, 24, 20 };
    int64_t              n = readings++, question = n / 2;
    if (ahead_ns) return ahead_ns * (n + 1);
    return 1000 * (question + 1) + (n % 2 ? (question < 5 ? took[question] : 25 + question) : 0);
}

static void the_quickest_answer_counts(tm_comm *world, void *context)
{
    int    host = tm_comm_place_of(world, tm_comm_rank(world)).host;
    double ms;
    (void)context;
    ahead_ns = host * (int64_t)500000;
    readings = 0;
    CHECK_OK(tm_hosts_clock(world, told_in_turn, &ms, err));
    CHECK(fabs(ms - (host == 0 ? 0 : (3 * 500000 - (3000 + 10)) * 1e-6)) < 1e-12);
    CHECK(readings == (host == 0 ? 32 : 16));
}

static void links_of(tm_comm *world, void *context)
{
    tm_comm_place place = tm_comm_place_of(world, tm_comm_rank(world));
    double        gbps;
    (void)context;
    CHECK_OK(tm_hosts_link(world, 100000, 0.01, &gbps, err));
    CHECK((place.local_rank == 0 && place.hosts > 1) == !isnan(gbps));
    CHECK(isnan(gbps) || (gbps > 0 && gbps < 1000)); /* no link is faster: the data go through it */
}

TEST(between)
{
    run_world(6, pairs, 20, false, clocks_of, NULL);
    run_world(2, two, 20, false, the_quickest_answer_counts, NULL);
    run_world(6, six, 20, false, links_of, NULL);
    run_world(5, six, 20, false, links_of, NULL);
    run_world(3, six, 20, false, links_of, NULL);
    run_world(2, two, 20, false, links_of, NULL);
    run_world(6, pairs, 20, false, links_of, NULL);
    run_world(2, NULL, 20, false, links_of, NULL);
}

TESTS_IN_ORDER
