/* SPDX-License-Identifier: Apache-2.0 */
/* cli/check_hosts.c - `trainmark check --all-ranks`: every host of a world of ranks checked, measured, and put beside
 * the others (docs/check.md). */
#include "apps/check/hosts.h"

#include "base/again.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/program.h"
#include "base/version.h"
#include "cli/check.h"
#include "cli/cli.h"
#include "cli/ranks.h"
#include "device/ceilings.h"
#include "device/device.h"
#include "record/table.h"
#include "system/environment.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    const tm_config *config;
    tm_comm         *world;
    int              rank;
    bool             first; /* of its host */
    bool             verbose;
    tm_arena        *arena;
    tm_hosts_card    card;
} station;

/* --- facts ------------------------------------------------------------------------------------- */

static tm_status read_facts(station *s, tm_error *err)
{
    enum { GIB = 1 << 30 };
    tm_device *device;
    TM_TRY(tm_device_open("cpu", 0, &device, err));
    const tm_device_info *info = tm_device_describe(device);
    snprintf(s->card.text[TM_HOSTS_PROGRAM], TM_HOSTS_TEXT, "%016llx", (unsigned long long)tm_program_hash());
    snprintf(s->card.text[TM_HOSTS_VERSION], TM_HOSTS_TEXT, "%s", TM_VERSION);
    snprintf(s->card.text[TM_HOSTS_KERNELS], TM_HOSTS_TEXT, "%s", info->kernels ? info->kernels : info->name);
    s->card.value[TM_HOSTS_THREADS] = info->threads;
    tm_device_close(device);
    if (!s->first) return TM_OK;
    tm_environment *e = tm_environment_read("");
    const char     *bytes = tm_environment_text(e, "memory", NULL, "total_bytes");
    if (bytes) s->card.value[TM_HOSTS_MEMORY] = strtod(bytes, NULL) / GIB;
    tm_environment_destroy(e);
    return TM_OK;
}

/* --- measures ---------------------------------------------------------------------------------- */

static tm_status meet(const station *s, const char *what, tm_error *err)
{
    tm_collective call = { .kind = TM_COMM_BARRIER, .what = what, .step = -1 };
    return tm_comm_run(s->world, &call, err);
}

/* What cannot be measured is missing in the table, with the reason here; ranks stay together. */
static void told(const station *s, const char *what, tm_status st, const tm_error *why)
{
    if (st != TM_OK) tm_warn("rank %d: %s was not measured: %s", s->rank, what, why->text);
}

/* Blocks that no disk has seen, then on the disk for sure. */
static tm_status write_disk(const char *folder, double seconds, double *mbps, tm_error *err)
{
    enum { BLOCK = 4 << 20, MOST = 256 };
    int fd = tm_file_open_nameless(folder);
    if (fd < 0) return tm_fail(err, TM_IO, "'%s': %s", folder, strerror(errno));
    uint64_t *block = tm_alloc(BLOCK), x = 88172645463325252u;
    for (size_t i = 0; i < BLOCK / sizeof *block; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        block[i] = x;
    }
    int64_t begin = tm_now_ns(), written = 0;
    bool    well = true;
    for (int i = 0; i < MOST && well && (double)(tm_now_ns() - begin) * 1e-9 < seconds; i++) {
        block[0] = (uint64_t)i;
        well = write(fd, block, BLOCK) == BLOCK;
        if (i % 4 == 3) well = well && tm_again_sync_data(fd) == 0;
        written += BLOCK;
    }
    well = well && tm_again_sync_data(fd) == 0;
    *mbps = (double)written / fmax((double)(tm_now_ns() - begin), 1) * 1e3;
    int why = errno;
    close(fd);
    free(block);
    return well ? TM_OK : tm_fail(err, TM_IO, "'%s': %s", folder, strerror(why));
}

static tm_status read_memory(double seconds, double *gbps, tm_error *err)
{
    tm_device  *device;
    tm_ceilings ceilings;
    TM_TRY(tm_device_open("cpu", 0, &device, err));
    tm_status st = tm_device_ceilings(device, seconds, &ceilings, err);
    *gbps = ceilings.bytes * 1e-9;
    tm_device_close(device);
    return st;
}

static tm_status measure(station *s, tm_error *err)
{
    enum { LINK_BYTES = 4 << 20 };
    double      seconds = tm_config_f64(s->config, "measure-sec"), *value = s->card.value;
    const char *folder = tm_config_text(s->config, "disk-path");
    tm_error    why = { 0 };
    TM_TRY(tm_hosts_clock(s->world, NULL, &value[TM_HOSTS_CLOCK], err));
    if (!(seconds > 0)) return TM_OK;
    TM_TRY(meet(s, "memory", err)); /* all ranks of a host at once: together they are the host */
    tm_status st = read_memory(seconds, &value[TM_HOSTS_BANDWIDTH], &why);
    told(s, "memory", st, &why);
    if (st != TM_OK) value[TM_HOSTS_BANDWIDTH] = (double)NAN;
    why = (tm_error){ 0 };
    TM_TRY(meet(s, "product", err));
    st = check_gemm(seconds, &value[TM_HOSTS_PRODUCT], &why);
    told(s, "the product", st, &why);
    if (st != TM_OK) value[TM_HOSTS_PRODUCT] = (double)NAN;
    why = (tm_error){ 0 };
    TM_TRY(meet(s, "disk", err));
    if (s->first && folder && strcmp(folder, "none") != 0) {
        st = write_disk(folder, seconds, &value[TM_HOSTS_DISK], &why);
        told(s, "the disk", st, &why);
        if (st != TM_OK) value[TM_HOSTS_DISK] = (double)NAN;
    }
    TM_TRY(meet(s, "link", err));
    return tm_hosts_link(s->world, LINK_BYTES, fmin(seconds, 1), &value[TM_HOSTS_LINK], err);
}

/* --- the command ------------------------------------------------------------------------------- */

static tm_status give_out(const station *s, const tm_hosts *hosts, tm_error *err)
{
    tm_text     text = { 0 };
    const char *file = tm_config_text(s->config, "report-file-name");
    tm_table   *table = tm_hosts_table(hosts);
    tm_cli_add_table(table, tm_config_bool(s->config, "json"), s->verbose, &text);
    tm_status st = tm_cli_print(&text, err);
    if (st == TM_OK && file) st = tm_table_write(table, file, err);
    tm_text_fini(&text);
    tm_table_destroy(table);
    return st;
}

static tm_status check_all(station *s, const check_hosts_options *o, tm_error *err)
{
    tm_hosts_limits limits = { tm_config_f64(s->config, "outside-pct") / 100,
                               tm_config_f64(s->config, "clock-limit-ms") };
    tm_checks       checks = { 0 };
    tm_hosts       *hosts = NULL;
    tm_status       st = s->first ? o->make(s->config, s->arena, &checks, err) : TM_OK;
    if (st == TM_OK) st = read_facts(s, err);
    if (st == TM_OK) st = measure(s, err);
    if (st == TM_OK) st = tm_hosts_compare(s->world, &s->card, s->first ? &checks : NULL, &limits, &hosts, err);
    if (st == TM_OK && s->rank == 0) st = give_out(s, hosts, err);
    if (st == TM_OK && tm_cli_stop) st = tm_fail(err, TM_INTERRUPTED, "stopped by a signal");
    if (st == TM_OK) st = tm_hosts_verdict(hosts, err);
    tm_hosts_destroy(hosts);
    tm_checks_fini(&checks);
    return st;
}

tm_status check_hosts(const check_hosts_options *o, tm_error *err)
{
    station      s = { .config = o->config, .verbose = o->line->verbose };
    bool         started = false;
    int64_t      ranks = tm_config_i64(o->config, "ranks");
    tm_cli_start start = { .ranks = ranks, .mpi = tm_config_text(o->config, "mpi") };
    tm_status    st = tm_cli_start_ranks(&start, o->line, &started, err);
    if (st != TM_OK || started) return st;
    st = tm_cli_open_ranks(ranks, tm_config_f64(o->config, "deadline"), &s.world, err);
    if (st == TM_OK) {
        s.rank = tm_comm_rank(s.world);
        s.first = tm_comm_place_of(s.world, s.rank).local_rank == 0;
        s.arena = tm_arena_create();
        tm_hosts_card_clear(&s.card);
        st = check_all(&s, o, err);
        tm_arena_destroy(s.arena);
    }
    tm_cli_close_ranks(s.world, st, err);
    return st;
}
