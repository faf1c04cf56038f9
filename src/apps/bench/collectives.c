/* SPDX-License-Identifier: Apache-2.0 */
/* apps/bench/collectives.c - collective calls among ranks: algorithm and bus bandwidth over a sweep of sizes
 * (docs/bench-collectives.md). */
#include "base/arena.h"
#include "apps/bench/carrier.h"
#include "gpu/runtime.h"
#include "graph/value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
static const tm_key options[] = {
    { .name = "ranks", .kind = TM_KEY_I64, .fallback = "0", .lo = 0, .hi = 256,
      .help = "processes to start under MPI; 0: those that a launcher has started" },
    { .name = "mpi", .kind = TM_KEY_CHOICE, .choices = "openmpi|mpich",
      .help = "MPI that ranks uses; null: whichever is there" },
    { .name = "deadline", .kind = TM_KEY_F64, .fallback = "0", .lo = 0, .hi = 1e6,
      .help = "seconds that a rank may keep the others waiting; 0: 300" },
    { .name = "calls", .kind = TM_KEY_TEXT, .fallback = "all",
      .help = "calls to measure, by commas, or all; a wrong name lists them" },
    { .name = "min-bytes", .kind = TM_KEY_I64, .fallback = "1024", .lo = 8, .hi = 1e12, .help = "smallest message" },
    { .name = "max-bytes", .kind = TM_KEY_I64, .fallback = "16777216", .lo = 8, .hi = 1e12, .help = "largest message" },
    { .name = "factor", .kind = TM_KEY_I64, .fallback = "8", .lo = 2, .hi = 1e6, .help = "from one size to the next" },
    { .name = "format", .kind = TM_KEY_CHOICE, .fallback = "float32", .choices = "float32|bfloat16|float64",
      .help = "of the elements" },
    { .name = "engine", .kind = TM_KEY_CHOICE, .fallback = "host", .choices = "host|nccl",
      .help = "memory of processes (host), or of GPUs by NCCL or RCCL (nccl)" },
    { .name = "library", .kind = TM_KEY_TEXT,
      .help = "library of --engine nccl; null: TRAINMARK_NCCL, else the installed one" },
    { .name = "buffers", .kind = TM_KEY_CHOICE, .fallback = "shared", .choices = "shared|private",
      .help = "memory: shared among the ranks of a host, as training has it, or private" },
    { .name = "algorithm", .kind = TM_KEY_CHOICE, .fallback = "auto", .choices = "auto|direct",
      .help = "between hosts: share calls out where that sends less (auto), or never (direct)" },
};
/* clang-format on */

static const tm_column columns[] = {
    { "host", 0 },      { "engine", 0 },         { "call", 0 },     { "ranks", 0 },
    { "hosts", 0 },     { "bytes", 0 },          { "format", 0 },   { "buffers", 0 },
    { "algorithm", 0 }, { "algorithm_gbps", 5 }, { "bus_gbps", 5 }, { "between_hosts_bytes", 0 },
    { "correct", 0 },   { "link_pct", 3 },       { "link", 0 },     { "skipped", 0 },
};
static const char *const brief[] = { "engine",  "call",  "bytes",     "median_ms", "bus_gbps",      "skipped",
                                     "correct", "ranks", "algorithm", "format",    "algorithm_gbps" };

/* COPY: every rank copies memory of its own, the yardstick of a host. */
enum { COPY = TM_COMM_RECEIVE + 1, P2P = TM_COMM_SEND };

typedef struct {
    const char *name;
    int         kind;
    bool        uneven; /* all-to-all: with counts of its own for each rank */
} call_row;

static const call_row rows[] = {
    { "copy", COPY, false },
    { "all-reduce", TM_COMM_ALL_REDUCE, false },
    { "all-gather", TM_COMM_ALL_GATHER, false },
    { "reduce-scatter", TM_COMM_REDUCE_SCATTER, false },
    { "all-to-all", TM_COMM_ALL_TO_ALL, false },
    { "all-to-all-v", TM_COMM_ALL_TO_ALL, true },
    { "broadcast", TM_COMM_BROADCAST, false },
    { "p2p", P2P, false },
};
enum { ROWS = sizeof rows / sizeof rows[0] };

typedef struct {
    tm_bench       *bench;
    tm_comm        *world;
    int             rank, size;
    tm_comm_format  format;
    tm_dtype        dtype;
    size_t          element;
    tm_carrier      carrier;
    const call_row *row;
    size_t         *counts;        /* (size) elements for and from each rank, of all-to-all-v */
    size_t          bytes;         /* of the message, as nccl-tests counts */
    int             judged, below; /* rows that were held against a copy */
    tm_status       st;            /* of the calls of a sample */
    tm_error       *err;
} work;

/* --- what is said and checked ------------------------------------------------------------------ */

/* Elements of a rank's call->count. */
static size_t count_of(const work *w)
{
    bool parts = w->row->kind == TM_COMM_ALL_GATHER || w->row->kind == TM_COMM_REDUCE_SCATTER ||
                 w->row->kind == TM_COMM_ALL_TO_ALL;
    size_t count = w->bytes / w->element / (parts ? (size_t)w->size : 1);
    return count > 0 ? count : 1;
}

/* Elements from rank a to rank b of an all-to-all: as many for each, or between none and twice as many, in all the same
 * (but for fractions). */
static size_t piece_of(const work *w, int a, int b)
{
    size_t count = count_of(w);
    return w->row->uneven && w->size > 1 ? 2 * count * (size_t)((a + b) % w->size) / (size_t)(w->size - 1) : count;
}

static double bus_factor(const work *w)
{
    double p = w->size;
    switch (w->row->kind) {
    case TM_COMM_ALL_REDUCE:
        return 2 * (p - 1) / p;
    case TM_COMM_ALL_GATHER:
    case TM_COMM_REDUCE_SCATTER:
    case TM_COMM_ALL_TO_ALL:
        return (p - 1) / p;
    default:
        return 1;
    }
}

/* Bytes whose copying by every rank at once moves as much through memory as the call does (docs/ranks.md): what one
 * rank reads and writes, halved. 0: the ranks have no memory in common (GPUs: each in its own, which is faster than
 * what links them). */
static size_t link_bytes(const work *w)
{
    size_t p = (size_t)w->size, n = w->bytes;
    bool   apart = !w->carrier.on_gpu && tm_comm_place_of(w->world, w->rank).hosts > 1;
    if (w->row->kind == COPY || apart) return 0;
    return w->row->kind == TM_COMM_REDUCE_SCATTER ? (n + n / p) / 2 : n;
}

/* Small whole numbers: every format holds them and their sums exactly (bfloat16: to 256, of which 32 ranks need 224 and
 * more have zeros and ones). */
static double value(const work *w, int rank, size_t i)
{
    enum { MANY = 32, MOST = 256 };
    if (w->size > MANY) return rank < MOST ? (double)(((size_t)rank + i) % 2) : 0;
    return (double)((rank + 1) % 4 + (int)(i % 5));
}

static size_t sent(const work *w)
{
    bool all = w->row->kind == TM_COMM_REDUCE_SCATTER || w->row->kind == TM_COMM_ALL_TO_ALL;
    return count_of(w) * (all ? (size_t)w->size : 1);
}

static size_t received(const work *w)
{
    bool all = w->row->kind == TM_COMM_ALL_GATHER || w->row->kind == TM_COMM_ALL_TO_ALL;
    return count_of(w) * (all ? (size_t)w->size : 1);
}

static void fill(work *w)
{
    tm_carrier *c = &w->carrier;
    size_t      n = sent(w), e = w->element;
    for (int r = 0; r < w->size; r++) w->counts[r] = piece_of(w, w->rank, r);
    for (size_t i = 0; i < n; i++) tm_value_set(c->host_send, w->dtype, (int64_t)i, value(w, w->rank, i));
    memset(c->host_receive, 0, received(w) * e);
    if (w->st == TM_OK) w->st = c->put(c, n * e, received(w) * e, w->err);
}

static bool holds(const work *w, size_t at, double want)
{
    double have = tm_value_get(w->carrier.host_receive, w->dtype, (int64_t)at);
    return !(have < want) && !(have > want);
}

/* Of an all-to-all: elements that are not what their rank sent. */
static size_t wrong_pieces(const work *w)
{
    size_t at = 0, wrong = 0;
    for (int r = 0; r < w->size; r++) {
        size_t first = 0, n = piece_of(w, r, w->rank);
        for (int b = 0; b < w->rank; b++) first += piece_of(w, r, b);
        for (size_t i = 0; i < n; i++) wrong += !holds(w, at++, value(w, r, first + i));
    }
    return wrong;
}

/* Does what was received follow from what all ranks sent? */
static bool right(const work *w)
{
    size_t count = count_of(w), first = (size_t)w->rank * count, wrong = 0;
    bool   reduces = w->row->kind == TM_COMM_ALL_REDUCE || w->row->kind == TM_COMM_REDUCE_SCATTER;
    if (w->row->kind == P2P && (w->rank % 2 == 0)) return true;
    for (size_t i = 0; i < count && reduces; i++) {
        double sum = 0;
        for (int r = 0; r < w->size; r++) sum += value(w, r, i + (w->row->kind == TM_COMM_REDUCE_SCATTER ? first : 0));
        wrong += !holds(w, i, sum);
    }
    if (w->row->kind == TM_COMM_ALL_TO_ALL) wrong += wrong_pieces(w);
    for (int r = 0; r < w->size && w->row->kind == TM_COMM_ALL_GATHER; r++)
        for (size_t i = 0; i < count; i++) wrong += !holds(w, (size_t)r * count + i, value(w, r, i));
    for (size_t i = 0; i < count && (w->row->kind == TM_COMM_BROADCAST || w->row->kind == P2P || w->row->kind == COPY);
         i++)
        wrong += !holds(w, i,
                        value(w,
                              w->row->kind == TM_COMM_BROADCAST ? 0
                              : w->row->kind == P2P             ? w->rank - 1
                                                                : w->rank,
                              i));
    return wrong == 0;
}

/* --- calls ------------------------------------------------------------------------------------- */

/* Of p2p, ranks 0, 2, ... send to the next; a last one without a partner waits. */
static void one_call(work *w)
{
    bool          sends = w->rank % 2 == 0;
    tm_collective call = { .kind = (tm_comm_kind)w->row->kind,
                           .format = w->format,
                           .send = w->carrier.send,
                           .receive = w->carrier.receive,
                           .count = count_of(w),
                           .what = w->row->name,
                           .step = -1 };
    if (w->st != TM_OK) return;
    if (w->row->uneven) call.send_counts = call.receive_counts = w->counts;
    if (w->row->kind == COPY) {
        w->st = w->carrier.copy(&w->carrier, w->carrier.receive, w->carrier.send, count_of(w) * w->element, w->err);
        return;
    }
    if (w->row->kind == P2P) {
        if (sends && w->rank + 1 == w->size) return;
        call.kind = sends ? TM_COMM_SEND : TM_COMM_RECEIVE;
        call.peer = sends ? w->rank + 1 : w->rank - 1;
    }
    w->st = w->carrier.call(&w->carrier, &call, w->err);
}

static void one_copy(work *w)
{
    tm_carrier *c = &w->carrier;
    if (w->st == TM_OK) w->st = c->copy(c, c->spare, c->send, link_bytes(w), w->err);
}

/* The slowest rank's seconds of `loops` calls that all begin together. */
static double timed_calls(work *w, void (*one)(work *), int64_t loops)
{
    tm_collective meet = { .kind = TM_COMM_BARRIER, .what = "begin", .step = -1 };
    double        longest = 0, took = 0;
    if (w->st == TM_OK) w->st = tm_comm_run(w->world, &meet, w->err);
    if (w->st == TM_OK) w->st = w->carrier.begin(&w->carrier, w->err);
    for (int64_t i = 0; i < loops; i++) one(w);
    if (w->st == TM_OK) w->st = w->carrier.end(&w->carrier, &took, w->err);
    tm_collective slowest = { .kind = TM_COMM_ALL_REDUCE,
                              .op = TM_COMM_MAX,
                              .format = TM_COMM_FLOAT64,
                              .send = &took,
                              .receive = &longest,
                              .count = 1,
                              .what = "slowest rank",
                              .step = -1 };
    if (w->st == TM_OK) w->st = tm_comm_run(w->world, &slowest, w->err);
    return longest;
}

/* What rank 0 decides. */
static int64_t decided(work *w, int64_t number)
{
    tm_collective tell = { .kind = TM_COMM_BROADCAST,
                           .format = TM_COMM_INT64,
                           .send = &number,
                           .receive = &number,
                           .count = 1,
                           .peer = 0,
                           .what = "go on",
                           .step = -1 };
    if (w->st == TM_OK) w->st = tm_comm_run(w->world, &tell, w->err);
    return w->st == TM_OK ? number : 0;
}

/* As many calls as last a little longer than `shortest`; one takes a nanosecond at least. */
static int64_t loops_for(double shortest, double a_call)
{
    return (int64_t)ceil(1.25 * shortest / fmax(a_call, 1e-9));
}

/* --- a row ------------------------------------------------------------------------------------- */

/* As apps/bench/timing.h does it for one process; all ranks take the same samples, as rank 0 decides. A copy of the
 * bytes that the call moves takes turns with it. */
static void take_samples(work *w, tm_measurement *m, tm_sampling *sampling, tm_sampling *copies)
{
    const tm_timing *t = &w->bench->timing;
    double           spent = timed_calls(w, one_call, 1), least = spent, wanted = t->warmup_ms * 1e-3;
    double           shortest = (double)w->carrier.least_ns * 1e-9;
    m->calls = 1;
    while (decided(w, spent < wanted || m->calls < 3)) {
        double took = timed_calls(w, one_call, 1);
        least = fmin(least, took);
        spent += took;
        m->calls++;
    }
    m->loops = decided(w, least < shortest ? loops_for(shortest, least) : 1);
    double rep = t->duration_s > 0 ? t->duration_s : t->rep_ms * 1e-3, sum = 0;
    for (int64_t n = 0, more = 1; more && w->st == TM_OK;) {
        double  took = timed_calls(w, one_call, m->loops);
        int64_t longer = loops_for(shortest, took / (double)m->loops);
        if (took < shortest / 2 && longer > m->loops) { /* the ranks of the calls before waited for a processor */
            m->loops = longer;
            continue;
        }
        sum += took;
        n++;
        if (link_bytes(w) > 0)
            (void)tm_sampling_add(copies, fmax(timed_calls(w, one_copy, m->loops), 1e-9) / (double)m->loops, 1);
        m->stop = tm_sampling_add(sampling, fmax(took, 1e-9) / (double)m->loops, (double)w->bytes);
        bool enough =
            n >= t->min_samples && sum >= rep && (t->duration_s > 0 || t->precision <= 0 || m->stop != TM_STOP_NO);
        if (enough && m->stop == TM_STOP_NO) m->stop = TM_STOP_SECONDS;
        more = decided(w, !enough && tm_bench_left(w->bench) > 0);
    }
}

static tm_sampling *make_sampling(const tm_timing *t)
{
    tm_sampling_options options_of = { .half_width = t->precision > 0 ? t->precision : 0.01,
                                       .max_seconds =
                                           t->duration_s > 0 ? t->duration_s : t->rep_ms * 1e-3 * TM_MOST_REPS };
    if (!(options_of.max_seconds > 0)) options_of.max_seconds = 1e-3;
    return tm_sampling_create(&options_of);
}

static bool all_right(work *w)
{
    tm_carrier *c = &w->carrier;
    if (w->st == TM_OK) w->st = c->get(c, received(w) * w->element, w->err);
    int64_t       own = right(w), all = 0;
    tm_collective least = { .kind = TM_COMM_ALL_REDUCE,
                            .op = TM_COMM_MIN,
                            .format = TM_COMM_INT64,
                            .send = &own,
                            .receive = &all,
                            .count = 1,
                            .what = "correct",
                            .step = -1 };
    if (w->st == TM_OK) w->st = tm_comm_run(w->world, &least, w->err);
    return all == 1;
}

/* One more call: how it went, and the bytes that all ranks together sent to other hosts for it. */
static void look_at_call(work *w)
{
    if (w->carrier.on_gpu || w->row->kind == COPY) return;
    int64_t before = (int64_t)tm_comm_sent_between_hosts(w->world), all = 0;
    one_call(w);
    int64_t       own = (int64_t)tm_comm_sent_between_hosts(w->world) - before;
    const char   *way = tm_comm_way(w->world);
    tm_collective sum = { .kind = TM_COMM_ALL_REDUCE,
                          .format = TM_COMM_INT64,
                          .send = &own,
                          .receive = &all,
                          .count = 1,
                          .what = "bytes between hosts",
                          .step = -1 };
    if (w->st == TM_OK) w->st = tm_comm_run(w->world, &sum, w->err);
    tm_table_text(w->bench->table, "algorithm", way);
    tm_table_i64(w->bench->table, "between_hosts_bytes", all);
}

static void begin_row(const work *w)
{
    tm_table *table = w->bench->table;
    tm_table_row(table);
    tm_table_text(table, "host", w->bench->host);
    tm_table_text(table, "engine", w->carrier.engine);
    tm_table_text(table, "call", w->row->name);
    tm_table_i64(table, "ranks", w->size);
    tm_table_i64(table, "hosts", tm_comm_place_of(w->world, w->rank).hosts);
    tm_table_i64(table, "bytes", (int64_t)w->bytes);
    tm_table_text(table, "format", tm_config_text(w->bench->options, "format"));
    tm_table_text(table, "buffers", w->carrier.buffers);
}

/* A call among ranks of one host should take no longer than copying as many bytes; of small ones the steps count. What
 * links GPUs is slower than their memory. */
static void judge_link(work *w, double share)
{
    static const double enough = 0.9;
    if (isnan(share)) return;
    tm_table_f64(w->bench->table, "link_pct", 100 * share);
    if (w->bytes < w->carrier.least_judged || (w->carrier.on_gpu && w->size > 1)) return;
    w->judged++;
    w->below += share < enough;
    tm_table_text(w->bench->table, "link", share < enough ? "below a copy" : "as fast as a copy");
}

static tm_status measure(work *w)
{
    tm_bench      *bench = w->bench;
    tm_measurement m = { .verdict = TM_VERDICT_NOT_JUDGED, .reason = "" };
    begin_row(w);
    if (w->row->kind == P2P && w->size < 2) {
        tm_table_text(bench->table, "skipped", "a message takes two ranks");
        return TM_OK;
    }
    if (!decided(w, tm_bench_left(bench) > 0)) {
        if (w->st == TM_OK) tm_table_text(bench->table, "skipped", "the budget ended before a sample (--budget)");
        return w->st;
    }
    tm_sampling *sampling = make_sampling(&bench->timing), *copies = make_sampling(&bench->timing);
    fill(w);
    take_samples(w, &m, sampling, copies);
    m.summary = tm_sampling_summary(sampling);
    double copied = link_bytes(w) > 0 ? tm_sampling_summary(copies).median : (double)NAN;
    tm_sampling_destroy(sampling);
    tm_sampling_destroy(copies);
    look_at_call(w);
    bool correct = all_right(w);
    if (w->st != TM_OK) return w->st;
    double rate = (double)w->bytes / m.summary.median * 1e-9;
    tm_table_f64(bench->table, "algorithm_gbps", rate);
    tm_table_f64(bench->table, "bus_gbps", rate * bus_factor(w));
    tm_table_bool(bench->table, "correct", correct);
    judge_link(w, copied / m.summary.median);
    tm_bench_put(bench->table, &m);
    if (!correct)
        tm_bench_invalid(bench, "%s of %zu bytes: a rank did not receive what the others sent", w->row->name, w->bytes);
    return TM_OK;
}

/* --- all of them ------------------------------------------------------------------------------- */

/* Is `name` among the words of the list? */
static bool listed(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = list; *at;) {
        size_t length = strcspn(at, ",");
        if (length == n && strncmp(at, name, n) == 0) return true;
        at += length + (at[length] == ',');
    }
    return strcmp(list, "all") == 0;
}

static tm_status check_list(const char *list, tm_error *err)
{
    for (const char *at = list; strcmp(list, "all") != 0 && *at;) {
        size_t length = strcspn(at, ",");
        bool   known = false;
        for (int i = 0; i < ROWS; i++)
            known = known || (strlen(rows[i].name) == length && strncmp(at, rows[i].name, length) == 0);
        if (!known)
            return tm_fail(err, TM_USAGE,
                           "--calls: '%.*s' is no call; there are: copy, all-reduce, all-gather, reduce-scatter, "
                           "all-to-all, all-to-all-v, broadcast, p2p, all",
                           (int)length, at);
        at += length + (at[length] == ',');
    }
    return TM_OK;
}

static tm_status sweep(work *w, const char *list, size_t least, size_t most, size_t factor)
{
    for (int i = 0; i < ROWS; i++) {
        w->row = &rows[i];
        if (!listed(list, rows[i].name)) continue;
        for (size_t bytes = least; bytes <= most; bytes *= factor) {
            /* Whole elements for every rank. */
            size_t whole = w->element * (size_t)w->size;
            w->bytes = (bytes + whole - 1) / whole * whole;
            TM_TRY(measure(w));
            if (!decided(w, !(w->bench->stop && *w->bench->stop)))
                return w->st != TM_OK ? w->st : tm_fail(w->err, TM_INTERRUPTED, "stopped while timing");
        }
    }
    return TM_OK;
}

static void note_link(const work *w)
{
    if (w->judged > 0)
        tm_bench_note(w->bench,
                      "link: %d of %d calls of %zu KiB or more took no longer than 1.11 times as long as every rank "
                      "copying the bytes that the call reads and writes, in turn with it",
                      w->judged - w->below, w->judged, w->carrier.least_judged >> 10);
    else if (w->carrier.on_gpu && w->size > 1)
        tm_bench_note(w->bench, "link_pct: of a copy from one place of a GPU's memory to another; what links GPUs is "
                                "slower, so there is no verdict");
}

static tm_status run_calls(work *w, tm_error *err)
{
    tm_bench   *bench = w->bench;
    const char *list = tm_config_text(bench->options, "calls");
    size_t      least = (size_t)tm_config_i64(bench->options, "min-bytes");
    size_t      most = (size_t)tm_config_i64(bench->options, "max-bytes");
    size_t      room = (most + 16 * (size_t)w->size + 4095) / 4096 * 4096;
    bool        gpu = strcmp(tm_config_text(bench->options, "engine"), "nccl") == 0;
    TM_TRY(check_list(list, err));
    if (least > most) return tm_fail(err, TM_USAGE, "--min-bytes (%zu) is more than --max-bytes (%zu)", least, most);
    if (!gpu && tm_config_text(bench->options, "library"))
        return tm_fail(err, TM_USAGE, "--library names a file for --engine nccl; the engine is host");
    if (!w->world || (w->size < 2 && !gpu))
        return tm_fail(err, TM_INVALID,
                       "collective calls take two ranks: `trainmark bench collectives --ranks 2`, or mpirun");
    TM_TRY(gpu ? tm_carrier_open_gpu(bench, room, &w->carrier, err)
               : tm_carrier_open_host(bench, room, &w->carrier, err));
    /* Each rank has measured its clock's steps; samples are as long for all. */
    w->carrier.least_ns = decided(w, w->carrier.least_ns);
    tm_comm_set_direct(w->world, strcmp(tm_config_text(bench->options, "algorithm"), "direct") == 0);
    w->counts = tm_alloc((size_t)w->size * sizeof *w->counts);
    tm_table_columns(bench->table, columns, sizeof columns / sizeof columns[0]);
    tm_bench_columns(bench->table);
    tm_table_brief(bench->table, brief, sizeof brief / sizeof brief[0]);
    tm_status st = sweep(w, list, least, most, (size_t)tm_config_i64(bench->options, "factor"));
    note_link(w);
    tm_comm_set_direct(w->world, false);
    free(w->counts);
    w->carrier.close(&w->carrier);
    return st;
}

static tm_status run(tm_bench *bench, tm_error *err)
{
    const char *format = tm_config_text(bench->options, "format");
    work        w = { .bench = bench, .world = bench->world, .size = 1, .err = err };
    if (w.world) {
        w.rank = tm_comm_rank(w.world);
        w.size = tm_comm_size(w.world);
    }
    w.format = strcmp(format, "bfloat16") == 0  ? TM_COMM_BFLOAT16
               : strcmp(format, "float64") == 0 ? TM_COMM_FLOAT64
                                                : TM_COMM_FLOAT32;
    w.dtype = w.format == TM_COMM_BFLOAT16 ? TM_BF16 : w.format == TM_COMM_FLOAT64 ? TM_F64 : TM_F32;
    w.element = w.format == TM_COMM_BFLOAT16 ? 2 : w.format == TM_COMM_FLOAT64 ? 8 : 4;
    return run_calls(&w, err);
}

/* A rank for each GPU. */
static int ranks_here(const tm_config *config)
{
    if (strcmp(tm_config_text(config, "engine"), "nccl") != 0) return 2;
    int gpus = tm_gpu_count(TM_GPU_ANY);
    return gpus > 0 ? gpus : 1;
}

const tm_workload tm_workload_collectives = {
    .name = "collectives",
    .summary = "measure collective calls among processes: bandwidth over sizes",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .ranks = true,
    .ranks_here = ranks_here,
    .run = run,
};
