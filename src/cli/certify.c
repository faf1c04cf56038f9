/* SPDX-License-Identifier: Apache-2.0 */
/* cli/certify.c - `trainmark certify`: is this node fit to train? */
#include "cli/cli.h"
#include "cli/ranks.h"
#include "apps/node/certificate.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "record/table.h"
#include "results/certificate.h"
#include "results/keep.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    bool        json, list, all_ranks;
    const char *only, *devices, *folder, *sysroot, *mpi, *out, *page, *store, *hosts;
    double      minutes, deadline_s;
    int64_t     seed, ranks;
} certify_options;

static const tm_option options[] = {
    { "list", 0, TM_OPTION_FLAG, offsetof(certify_options, list), .help = "list the checks and stop" },
    { "only", 0, TM_OPTION_TEXT, offsetof(certify_options, only), .value = "NAMES",
      .help = "checks, comma-separated; with '-' in front: all but these" },
    { "minutes", 0, TM_OPTION_F64, offsetof(certify_options, minutes), .value = "N", .fallback = "4", .lo = 0.1,
      .hi = 10000, .help = "minutes that all checks take together, about" },
    { "seed", 0, TM_OPTION_I64, offsetof(certify_options, seed), .value = "N", .fallback = "1", .lo = 0, .hi = 9e15,
      .help = "seed of everything that is drawn" },
    { "devices", 0, TM_OPTION_TEXT, offsetof(certify_options, devices), .value = "NAMES",
      .help = "devices, comma-separated; default: the CPU and every GPU that is there" },
    { "disk-path", 0, TM_OPTION_TEXT, offsetof(certify_options, folder), .value = "DIR", .fallback = ".",
      .help = "directory of the disk that is checked" },
    { "sysroot", 0, TM_OPTION_TEXT, offsetof(certify_options, sysroot), .value = "DIR", .fallback = "",
      .may_be_empty = true, .help = "a directory with copies of /proc and /sys instead of this system" },
    { "all-ranks", 0, TM_OPTION_FLAG, offsetof(certify_options, all_ranks), .help = "certify every host of the ranks" },
    { "hosts", 0, TM_OPTION_TEXT, offsetof(certify_options, hosts), .value = "FILE",
      .help = "with --all-ranks: names of hosts, one a line; one that does not come fails" },
    { "out", 'o', TM_OPTION_TEXT, offsetof(certify_options, out), .value = "FILE.json",
      .help = "write the certificate to a new file" },
    { "page", 0, TM_OPTION_TEXT, offsetof(certify_options, page), .value = "FILE.html",
      .help = "write the certificate as a page for people" },
    { "store", 0, TM_OPTION_TEXT, offsetof(certify_options, store), .value = "FILE",
      .help = "another store of results; none: do not store, and compare with no fleet" },
    TM_OPTION_RANKS(certify_options),
    TM_OPTION_JSON(certify_options),
};

static void list_checks(bool json, tm_text *out)
{
    size_t               n;
    const tm_node_check *checks = tm_node_checks(&n);
    tm_table            *table = tm_table_create("checks");
    tm_table_columns(table, (const tm_column[]){ { "id", 0 }, { "check", 0 }, { "finds", 0 }, { "cannot_find", 0 } },
                     4);
    for (size_t i = 0; i < n; i++) {
        tm_table_row(table);
        tm_table_text(table, "id", checks[i].id);
        tm_table_text(table, "check", checks[i].title);
        tm_table_text(table, "finds", checks[i].finds);
        tm_table_text(table, "cannot_find", checks[i].cannot);
    }
    tm_cli_add_table(table, json, true, out);
    tm_table_destroy(table);
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

/* Into the store. One that nobody named and that cannot be used is a warning. */
static tm_status keep(const tm_result *result, const char *path, bool chosen, tm_error *err)
{
    int64_t   id;
    tm_error  own = { 0 };
    tm_store *store = NULL;
    if (!path) return TM_OK;
    tm_status st = tm_store_open(path, true, &store, &own);
    if (st == TM_OK) st = tm_results_keep(store, result, NULL, NULL, &id, &own);
    tm_store_close(store);
    if (st == TM_OK) tm_note("stored as result %lld", (long long)id);
    if (st != TM_OK && chosen) return tm_fail(err, st, "%s", own.text);
    if (st != TM_OK) tm_warn("this certificate is not stored: %s", own.text);
    return TM_OK;
}

static tm_status print(const certify_options *o, const tm_text *document, const tm_result *result, tm_error *err)
{
    enum { MOST = 20 };
    tm_text text = { 0 };
    if (o->json) return tm_cli_print(document, err);
    tm_table *table = tm_results_certificate_table(result, MOST);
    tm_cli_add_table(table, false, true, &text);
    tm_table_destroy(table);
    tm_status st = tm_cli_print(&text, err);
    tm_text_fini(&text);
    return st;
}

static tm_status write_page(const char *path, const tm_result *result, tm_error *err)
{
    tm_text page = { 0 };
    tm_results_certificate_page(result, &page);
    tm_status st = tm_file_write(path, page.data, page.length, err);
    tm_text_fini(&page);
    return st;
}

/* The first rank judges what was gathered, and writes, stores and prints it. */
static tm_status conclude(const certify_options *o, tm_node_certificate *certificate, const char *expected,
                          tm_arena *arena, tm_error *err)
{
    bool        chosen;
    tm_text     document = { 0 };
    tm_result  *result = NULL;
    tm_error    own = { 0 };
    const char *store = tm_store_path(arena, o->store, &chosen);
    if (expected) tm_node_expect(certificate, expected);
    tm_status st = tm_node_judge_all(certificate, store, &own);
    if (st != TM_OK && chosen) return tm_fail(err, st, "%s", own.text);
    if (st != TM_OK) { /* without the fleet */
        tm_warn("not compared with earlier certificates: %s", own.text);
        store = NULL;
        TM_TRY(tm_node_judge_all(certificate, NULL, err));
    }
    tm_node_print(certificate, &document);
    st = tm_result_parse("this certificate", &document, NULL, NULL, &result, err);
    if (st == TM_OK && o->out) st = tm_file_write(o->out, document.data, document.length, err);
    if (st == TM_OK && o->page) st = write_page(o->page, result, err);
    if (st == TM_OK) st = keep(result, store, chosen, err);
    if (st == TM_OK) st = print(o, &document, result, err);
    if (st == TM_OK && !store && !o->out) tm_note("not kept: --out FILE.json, or a store of results, keeps it");
    tm_result_destroy(result);
    tm_text_fini(&document);
    return st;
}

/* --- the checks --------------------------------------------------------------------------------------------------- */

static void begins(const char *id, void *data)
{
    (void)data;
    tm_note("check %s", id);
}

/* What all ranks end with: the verdict is the first one's. */
static tm_status share_verdict(tm_comm *world, int64_t *verdict, tm_error *err)
{
    if (!world || tm_comm_size(world) == 1) return TM_OK;
    return tm_comm_run(world,
                       &(tm_collective){ .kind = TM_COMM_BROADCAST,
                                         .format = TM_COMM_INT64,
                                         .send = verdict,
                                         .receive = verdict,
                                         .count = 1,
                                         .what = "the verdict",
                                         .step = -1 },
                       err);
}

static tm_status certify(const certify_options *o, tm_comm *world, tm_node_outcome *outcomes, const char *expected,
                         tm_arena *arena, tm_error *err)
{
    const bool          first = !world || tm_comm_rank(world) == 0;
    const int           ranks = world ? tm_comm_size(world) : 1;
    tm_node_options     node = { .only = o->only,
                                 .minutes = o->minutes,
                                 .seed = (uint64_t)o->seed,
                                 .devices = o->devices,
                                 .folder = o->folder,
                                 .sysroot = o->sysroot,
                                 .world = world,
                                 .begins = first ? begins : NULL };
    tm_node_site       *sites = tm_arena_take(arena, (size_t)ranks * sizeof *sites);
    tm_node_certificate certificate = { .options = &node, .sites = sites, .ranks = ranks, .outcomes = outcomes };
    const int64_t       begun = tm_now_ns();
    TM_TRY(tm_node_sites(world, o->sysroot, sites, err));
    TM_TRY(tm_node_run(&node, outcomes, err));
    TM_TRY(tm_node_gather(world, outcomes, err));
    certificate.seconds = (double)(tm_now_ns() - begun) * 1e-9;
    if (first) TM_TRY(conclude(o, &certificate, expected, arena, err));
    int64_t verdict = tm_node_whole_verdict(&certificate);
    TM_TRY(share_verdict(world, &verdict, err));
    if (verdict == TM_NODE_FAIL) return tm_fail(err, TM_NEGATIVE, "this node is not fit to train: a check failed");
    if (verdict == TM_NODE_NO_VERDICT)
        return tm_fail(err, TM_NUMBERS, "a check has no verdict; give more --minutes, or end other work on the node");
    return TM_OK;
}

static tm_status check_options(const certify_options *o, tm_error *err)
{
    const size_t n = o->page ? strlen(o->page) : 0;
    if (o->out && tm_file_exists(o->out))
        return tm_fail(err, TM_INVALID, "'%s' already exists; name another file with --out", o->out);
    if (o->page && (n < 6 || strcmp(o->page + n - 5, ".html") != 0))
        return tm_fail(err, TM_USAGE, "--page %s: a page is HTML; give a name that ends in .html", o->page);
    if (o->hosts && !o->all_ranks && o->ranks == 0)
        return tm_fail(err, TM_USAGE,
                       "--hosts names the hosts of --all-ranks; start a rank on each by mpirun, srun or torchrun");
    if (o->out) TM_TRY(tm_file_check_writable(o->out, "--out", err));
    if (o->page) TM_TRY(tm_file_check_writable(o->page, "--page", err));
    return TM_OK;
}

/* What would be found out after minutes otherwise: a list without hosts, a store that cannot be used. */
static tm_status prepare(const certify_options *o, tm_arena *arena, tm_text *expected, tm_error *err)
{
    enum { LIMIT = 1 << 20 };
    bool        chosen;
    tm_store   *store = NULL;
    const char *path = tm_store_path(arena, o->store, &chosen);
    if (o->hosts) TM_TRY(tm_file_read(o->hosts, LIMIT, expected, err));
    if (o->hosts && (!expected->data || tm_node_expected(expected->data) == 0))
        return tm_fail(err, TM_INVALID, "'%s' names no host; write one name a line", o->hosts);
    if (path && chosen) TM_TRY(tm_store_open(path, true, &store, err));
    tm_store_close(store);
    return TM_OK;
}

static tm_status run(tm_cli_line *line, tm_error *err)
{
    const certify_options *o = line->options;
    const tm_comm_launch   launch = tm_comm_launched();
    tm_comm               *world = NULL;
    tm_text                expected = { 0 };
    size_t                 n;
    tm_node_checks(&n);
    if (o->list) {
        tm_text text = { 0 };
        list_checks(o->json, &text);
        tm_status st = tm_cli_print(&text, err);
        tm_text_fini(&text);
        return st;
    }
    if (launch.ranks == 1) TM_TRY(check_options(o, err));
    if (o->ranks > 0) {
        bool started = false;
        TM_TRY(tm_cli_start_ranks(&(tm_cli_start){ .ranks = o->ranks, .mpi = o->mpi }, line, &started, err));
        if (started) return TM_OK;
    }
    tm_status st = o->all_ranks || o->ranks > 0 ? tm_cli_open_ranks(o->ranks, o->deadline_s, &world, err) : TM_OK;
    if (st == TM_OK && launch.rank == 0) st = check_options(o, err); /* a failure ends the others, too */
    if (st == TM_OK && launch.rank == 0) st = prepare(o, line->arena, &expected, err);
    tm_node_outcome *outcomes = tm_arena_take(line->arena, n * sizeof *outcomes);
    memset(outcomes, 0, n * sizeof *outcomes);
    if (st == TM_OK) st = certify(o, world, outcomes, expected.data, line->arena, err);
    for (size_t i = 0; i < n; i++) tm_node_outcome_fini(&outcomes[i]);
    tm_text_fini(&expected);
    tm_cli_close_ranks(world, st, err);
    return st;
}

const tm_cli_command tm_command_certify = {
    .name = "certify",
    .summary = "certify that this node is fit to train: ten checks, each with a verdict",
    .about = "Ten checks of a node, or of all nodes of a world of ranks: the same training step everywhere, "
             "collectives, products, memory, links, disk, software and host. Each has a verdict, numbers with "
             "intervals, what it would have found and what it cannot find (docs/certify.md). The certificate goes into "
             "the store of results, and is compared with those of other nodes there.\n\nExit code 5 if a check fails, "
             "3 if none fails and one has no verdict.",
    TM_CLI_OPTIONS(options, certify_options),
    .run = run,
};
