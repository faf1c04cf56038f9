/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts beside each other: worlds of threads on several hosts, one of which is slow, or different, or fails a check. */
#include "support/test.h"
#include "apps/check/hosts.h"

#include "base/arena.h"
#include "base/clock.h"
#include "comm/world.h"
#include "record/table.h"

#include <time.h>

/* What is other on the cards of some ranks: a text, a value, or the value times something. */
typedef struct {
    int         from, to, what;
    const char *text;
    double      value, times;
} other;

typedef struct {
    int         ranks;
    const int  *host; /* of each; NULL: one */
    other       others[3];
    int         fails, n_notes;  /* hosts that fail; notes */
    const char *says[4];         /* among the notes */
    const char *verdict;         /* in the message */
    const char *failing;         /* a check of the host of the last rank that fails; "WARN": that warns */
    double      threads;         /* of the first host; 0: any */
    double      below, clock_ms; /* limits; 0: a tenth, a second */
} scene;

/* Ranks of alike hosts: a few percent of noise, as between measurements. */
static tm_hosts_card card_of(const scene *s, int rank)
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
    for (const other *o = s->others; o < s->others + 3; o++) {
        if (rank < o->from || rank > o->to || (!o->text && o->value == 0 && o->times == 0)) continue;
        if (o->text)
            snprintf(card.text[o->what], TM_HOSTS_TEXT, "%s", o->text);
        else
            card.value[o->what] = o->value + o->times * card.value[o->what];
    }
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

/* The row of each host is of its cards: sums of what ranks share out, the first rank's of the rest. */
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
            tm_hosts_card card = card_of(s, rank);
            int           host = tm_comm_place_of(world, rank).host;
            if (!first[host] || measured[k].sum) value[host] += card.value[measured[k].value];
            first[host] = true;
        }
        for (size_t i = 0; i < tm_table_n_rows(table); i++) {
            const tm_cell *cell = tm_table_cell(table, i, (size_t)tm_table_find(table, measured[k].column));
            CHECK(isfinite(value[i]) ? cell->kind == TM_CELL_F64 && fabs(cell->f64 - value[i]) < 1e-9
                                     : cell->kind == TM_CELL_EMPTY);
        }
    }
}

/* Every rank gets the same. */
static void compare(tm_comm *world, void *context)
{
    const scene          *s = context;
    int                   rank = tm_comm_rank(world), last = tm_comm_size(world) - 1;
    tm_comm_place         place = tm_comm_place_of(world, rank);
    tm_hosts_card         card = card_of(s, rank);
    tm_checks             checks = { 0 };
    tm_hosts             *hosts;
    const tm_hosts_limits limits = { s->below > 0 ? s->below : 0.1, s->clock_ms > 0 ? s->clock_ms : 1000 };
    tm_error              verdict = { 0 };
    bool                  first = place.local_rank == 0, odd = place.host == tm_comm_place_of(world, last).host;
    add_check(&checks, "os", TM_CHECK_INFO, odd && s->failing ? "another" : "Debian");
    bool warns = s->failing && strcmp(s->failing, "WARN") == 0;
    add_check(&checks, "klog", !odd || !s->failing ? TM_CHECK_PASS : warns ? TM_CHECK_WARN : TM_CHECK_FAIL, "3 errors");
    add_check(&checks, "governor", TM_CHECK_WARN, "powersave");
    CHECK_OK(tm_hosts_compare(world, &card, first ? &checks : NULL, &limits, &hosts, err));
    tm_table *table = tm_hosts_table(hosts);
    int       failing = 0, column = tm_table_find(table, "verdict");
    CHECK((int)tm_table_n_rows(table) == place.hosts);
    for (size_t i = 0; i < tm_table_n_rows(table); i++)
        failing += strcmp(tm_table_cell(table, i, (size_t)column)->text, "FAIL") == 0;
    for (size_t i = 0; i < sizeof s->says / sizeof s->says[0] && s->says[i]; i++) CHECK(noted(table, s->says[i]));
    CHECK((int)tm_table_n_notes(table) == s->n_notes);
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

static const int six[] = { 0, 1, 2, 3, 4, 5 }, pairs[] = { 0, 0, 1, 1, 2, 2 }, two[] = { 0, 1 },
                 threes[] = { 0, 0, 0, 1, 1, 1 };

/* What a row does not say is nothing. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
/* clang-format off */
static const scene scenes[] = {
    { 6, six, { { 0 } }, 0, 1, { "WARN all hosts: governor: powersave; expected: 0; remedy: mend it" }, .threads = 8 },
    { 6, pairs, { { 0 } }, 0, 1, .threads = 16 },
    { 1, NULL, { { 0 } }, 0, 1, .threads = 8 },
    /* texts */
    { 6, six, { { 4, 4, TM_HOSTS_PROGRAM, "deadbeef" } }, 1, 2, { "-4: program is deadbeef, elsewhere it is 00c0ffee" },
      "1 of 6 hosts fail: " },
    { 6, pairs, { { 4, 4, TM_HOSTS_PROGRAM, "deadbeef" } }, 1, 2, { "-2 (rank 4): program is deadbeef, elsewhere" } },
    { 6, six, { { 0, 0, TM_HOSTS_PROGRAM, "deadbeef" } }, 1, 2, { ": program is deadbeef, elsewhere it is 00c0ffee" } },
    { 6, pairs, { { 5, 5, TM_HOSTS_PROGRAM, "deadbeef" } }, 1, 2, { "-2 (rank 5): program is deadbeef" } },
    { 6, pairs, { { 4, 5, TM_HOSTS_KERNELS, "" } }, 1, 2, { "-2: kernels is unknown" } },
    { 6, threes, { { 4, 5, TM_HOSTS_KERNELS, "" } }, 1, 2, { "-1 (rank 4, ...): kernels is unknown, elsewhere it is avx512" } },
    /* numbers */
    { 6, pairs, { { 3, 3, TM_HOSTS_THREADS, NULL, 4 } }, 1, 2, { "-1: threads is 12, elsewhere it is 16" } },
    { 6, six, { { 2, 2, TM_HOSTS_MEMORY, NULL, 240 } }, 1, 2, { "-2: memory_gib is 240, the median is 250" } },
    { 6, six, { { 2, 2, TM_HOSTS_CLOCK, NULL, -1200 } }, 1, 2, { "-2: its clock is 1200 ms behind that of " } },
    { 6, six, { { 2, 2, TM_HOSTS_CLOCK, NULL, -1200 } }, 0, 1, .clock_ms = 1500 },
    /* speeds; of the disks, all are so far from each other that 15 % below the middle is nothing */
    { 6, six, { { 3, 3, TM_HOSTS_BANDWIDTH, NULL, 0, 0.85 }, { 5, 5, TM_HOSTS_PRODUCT, NULL, 0, 0.5 },
      { 5, 5, TM_HOSTS_DISK, NULL, NAN } }, 2, 4, { "-3: memory_gbps is 87.55, the median of the other hosts 101 (13.3 % below",
      "-5: product_gflops is 500", "-5: disk_mbps was not measured, elsewhere it was" }, "2 of 6 hosts fail: " },
    { 6, six, { { 3, 3, TM_HOSTS_BANDWIDTH, NULL, 0, 0.85 }, { 5, 5, TM_HOSTS_PRODUCT, NULL, 0, 0.5 } }, 1, 2, .below = 0.2 },
    { 6, six, { { 3, 3, TM_HOSTS_LINK, NULL, 0, 3 } }, 0, 1 },
    { 6, six, { { 0, 1, TM_HOSTS_DISK, NULL, 350 }, { 2, 3, TM_HOSTS_DISK, NULL, 550 }, { 4, 5, TM_HOSTS_DISK, NULL, 750 } }, 0, 1 },
    { 2, two, { { 1, 1, TM_HOSTS_BANDWIDTH, NULL, 80 } }, 1, 2, { "-1: memory_gbps is 80, the median of the other hosts 100" } },
    /* checks */
    { 6, six, { { 0 } }, 1, 3, { "-5: klog: 3 errors; expected: 0; remedy: mend it", "-5: os is 'another', elsewhere it is 'Debian'" },
      "(klog)", "FAIL" },
    { 6, six, { { 0 } }, 0, 3, .failing = "WARN" },
};
/* clang-format on */

TEST(hosts_are_compared)
{
    for (size_t i = 0; i < sizeof scenes / sizeof scenes[0]; i++)
        run_world(scenes[i].ranks, scenes[i].host, 10, false, compare, (void *)(uintptr_t)&scenes[i]);
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
