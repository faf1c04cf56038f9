/* SPDX-License-Identifier: Apache-2.0 */
/* apps/check/check.c - the table of checks, and how they are run: here, or each in a process of its own with a
 * deadline. */
#include "apps/check/check.h"

#include "base/clock.h"
#include "base/root.h"
#include "apps/check/context.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- the table ------------------------------------------------------------------------------- */

enum {
    P = 1 << TM_CHECK_PASS,
    W = 1 << TM_CHECK_WARN,
    F = 1 << TM_CHECK_FAIL,
    I = 1 << TM_CHECK_INFO,
    S = 1 << TM_CHECK_SKIP,
    PWS = P | W | S,
    PFS = P | F | S,
    PIS = P | I | S,
    PWI = P | W | I,
    PFI = P | F | I,
    PF = P | F,
    PFIS = P | F | I | S,
    PWFS = P | W | F | S,
    PWFIS = P | W | F | I | S,
    WIS = W | I | S,
    IS = I | S
};

static const tm_check_row rows[] = {
#define TM_CHECK(id, group, outcomes, function, source, expected, remedy)                                              \
    { #id, TM_CHECK_GROUP_##group, outcomes, function, source, expected, remedy },
#include "apps/check/checks.def"
#undef TM_CHECK
};
enum { ROWS = sizeof rows / sizeof rows[0] };

static const char *const status_names[] = { "PASS", "WARN", "FAIL", "INFO", "SKIP" };
static const char *const group_names[] = {
#define X(id, name) name,
    TM_CHECK_GROUP_LIST(X)
#undef X
};

const tm_check_row *tm_check_rows(size_t *n)
{
    *n = ROWS;
    return rows;
}

const char *tm_check_group_name(tm_check_group group)
{
    return group_names[group];
}

const char *tm_check_status_name(tm_check_status status)
{
    return status_names[status];
}

tm_check_status tm_check_status_find(const char *name)
{
    tm_check_status status = TM_CHECK_PASS;
    while (status < TM_CHECK_STATUSES && strcmp(status_names[status], name) != 0) status++;
    return status;
}

char *tm_check_outcomes(unsigned outcomes, char out[TM_CHECK_OUTCOMES_BYTES])
{
    out[0] = '\0';
    for (unsigned s = 0; s < TM_CHECK_STATUSES; s++)
        if (outcomes & 1u << s) strcat(strcat(out, *out ? " " : ""), status_names[s]);
    return out;
}

tm_check_options tm_check_options_default(void)
{
    return (tm_check_options){ .sysroot = "",
                               .timeout_seconds = 15,
                               .klog_minutes = 15,
                               .memlock_min_gib = 32,
                               .shm_min_gib = 8,
                               .expected_gpus = -1,
                               .expected_nics = -1,
                               .gpu_activity_warn_pct = 20,
                               .hbm_busy_threshold_gib = 2 };
}

/* --- selecting ------------------------------------------------------------------------------- */

static tm_status unknown_name(const char *name, tm_error *err)
{
    const char *nearest = "klog";
    int         best = 1000;
    for (int i = 0; i < ROWS + TM_CHECK_GROUPS; i++) {
        const char *known = i < ROWS ? rows[i].id : group_names[i - ROWS];
        int         distance = tm_edit_distance(name, known);
        if (distance >= best) continue;
        best = distance;
        nearest = known;
    }
    return tm_fail(err, TM_USAGE,
                   "there is no check or group '%.100s'; did you mean '%s'? `trainmark check --list` "
                   "names all",
                   name, nearest);
}

/* Applies the names in `only` to `chosen`; the first name decides whether the list adds to nothing or takes from all.
 */
static tm_status select_rows(const char *only, bool chosen[ROWS], tm_error *err)
{
    bool first = true;
    for (int i = 0; i < ROWS; i++) chosen[i] = !only;
    for (const char *p = only; p && *p; p += strcspn(p, ",")) {
        p += strspn(p, ", ");
        if (!*p) break;
        bool out = *p == '-', found = false;
        char name[64];
        p += out;
        snprintf(name, sizeof name, "%.*s", (int)(strcspn(p, ",") < 63 ? strcspn(p, ",") : 63), p);
        if (first && out) memset(chosen, true, ROWS * sizeof *chosen);
        first = false;
        for (int i = 0; i < ROWS; i++) {
            if (!tm_names_equal(name, rows[i].id) && strcasecmp(name, group_names[rows[i].group]) != 0) continue;
            chosen[i] = !out;
            found = true;
        }
        if (!found) return unknown_name(name, err);
    }
    return only && first ? tm_fail(err, TM_USAGE, "the list of checks is empty; `trainmark check --list` names all")
                         : TM_OK;
}

static bool is_quick(const tm_check_row *row)
{
    return row->group <= TM_CHECK_GROUP_OS || row->group == TM_CHECK_GROUP_JOB;
}

/* --- one check ------------------------------------------------------------------------------- */

static tm_check_result run_one(const tm_check_row *row, const tm_check_options *options, const tm_check_host *host,
                               tm_arena *arena)
{
    check c = { .row = row,
                .options = options,
                .host = host,
                .sysroot = options->sysroot,
                .arena = arena,
                .status = TM_CHECK_STATUSES,
                .observed = "",
                .expected = row->expected,
                .source = row->source,
                .remedy = row->remedy };
    if (row->group == TM_CHECK_GROUP_LOG && options->skip_klog)
        check_say(&c, TM_CHECK_SKIP, "left out (--skip-dmesg)");
    else
        row->run(&c);
    TM_ASSERT(c.status != TM_CHECK_STATUSES);
    return (tm_check_result){ .id = row->id,
                              .group = group_names[row->group],
                              .status = c.status,
                              .observed = c.observed,
                              .expected = c.expected,
                              .source = c.source,
                              .remedy = c.remedy };
}

void tm_checks_add(tm_checks *checks, const tm_check_result *result)
{
    if (!checks->arena) checks->arena = tm_arena_create();
    checks->results = tm_grow(checks->results, &checks->capacity, checks->n, sizeof *checks->results);
    tm_check_result *r = &checks->results[checks->n++];
    r->id = tm_arena_text(checks->arena, result->id ? result->id : "");
    r->group = tm_arena_text(checks->arena, result->group ? result->group : "");
    r->status = result->status;
    r->observed = tm_arena_text(checks->arena, result->observed ? result->observed : "");
    r->expected = tm_arena_text(checks->arena, result->expected ? result->expected : "");
    r->source = tm_arena_text(checks->arena, result->source ? result->source : "");
    r->remedy = tm_arena_text(checks->arena, result->remedy ? result->remedy : "");
    checks->counts[r->status]++;
}

/* --- a process per check --------------------------------------------------------------------- */

/* A child sends its status as a letter and four texts, each with its NUL; nothing else. */
typedef struct {
    pid_t   pid;
    int     fd; /* -1 when closed */
    tm_text answer;
} child;

enum { ANSWER_BYTES = 16384 }; /* what check_say and its like can make: four texts of 2 KiB */

static _Noreturn void child_main(int fd, const tm_check_row *row, const tm_check_options *options,
                                 const tm_check_host *host)
{
    tm_text         answer = { 0 };
    char            letter[2] = { 0 };
    tm_check_result r = run_one(row, options, host, tm_arena_create());
    letter[0] = (char)('0' + r.status);
    tm_text_add_n(&answer, letter, 2);
    const char *texts[] = { r.observed, r.expected, r.source, r.remedy };
    for (int i = 0; i < 4; i++) tm_text_add_n(&answer, texts[i], strlen(texts[i]) + 1);
    const char *at = answer.data;
    for (size_t left = answer.length; left > 0;) {
        ssize_t n = write(fd, at, left);
        if (n <= 0) break;
        at += n;
        left -= (size_t)n;
    }
    _exit(0);
}

static void child_start(child *out, const tm_check_row *row, const tm_check_options *options, const tm_check_host *host)
{
    int ends[2];
    *out = (child){ .pid = -1, .fd = -1 };
    if (pipe(ends) != 0) return;
    fflush(NULL);
    out->pid = fork();
    if (out->pid == 0) {
        close(ends[0]);
        signal(SIGINT, SIG_DFL);
        signal(SIGTERM, SIG_DFL);
        child_main(ends[1], row, options, host);
    }
    close(ends[1]);
    if (out->pid > 0)
        out->fd = ends[0];
    else
        close(ends[0]);
}

/* Reads what children say until all have ended or the time is over. */
static void children_listen(child *children, size_t n, int64_t until_ns)
{
    struct pollfd *poll_rows = tm_alloc((n + 1) * sizeof *poll_rows);
    for (;;) {
        size_t  open = 0;
        int64_t left_ms = (until_ns - tm_now_ns()) / 1000000;
        for (size_t i = 0; i < n; i++) {
            poll_rows[i] = (struct pollfd){ .fd = children[i].fd, .events = POLLIN };
            open += children[i].fd >= 0;
        }
        if (open == 0 || left_ms <= 0) break;
        if (poll(poll_rows, n, (int)left_ms) <= 0) continue;
        for (size_t i = 0; i < n; i++) {
            char    part[4096];
            ssize_t got = poll_rows[i].fd >= 0 && poll_rows[i].revents ? read(children[i].fd, part, sizeof part) : -1;
            if (got > 0 && children[i].answer.length < ANSWER_BYTES)
                tm_text_add_n(&children[i].answer, part, (size_t)got);
            if (got != 0) continue;
            close(children[i].fd);
            children[i].fd = -1;
        }
    }
    free(poll_rows);
}

/* The texts of an answer; false if it is not whole. */
static bool read_answer(const tm_text *answer, tm_check_result *r)
{
    const char *texts[5], *at = answer->data, *end = at + answer->length;
    for (int i = 0; i < 5; i++) {
        const char *stop = at < end ? memchr(at, '\0', (size_t)(end - at)) : NULL;
        if (!stop) return false;
        texts[i] = at;
        at = stop + 1;
    }
    r->status = (tm_check_status)(texts[0][0] - '0');
    r->observed = texts[1];
    r->expected = texts[2];
    r->source = texts[3];
    r->remedy = texts[4];
    return true;
}

/* A child that hangs in the kernel cannot be killed; it is left to the system, which will end it one day. */
static void child_end(child *ch, const tm_check_row *row, double seconds, tm_checks *checks)
{
    char            problem[160];
    int             status = 0;
    bool            late = ch->fd >= 0;
    tm_check_result r = { .id = row->id,
                          .group = group_names[row->group],
                          .status = TM_CHECK_FAIL,
                          .observed = problem,
                          .expected = row->expected,
                          .source = row->source,
                          .remedy = row->remedy };
    if (late) close(ch->fd);
    if (late) kill(ch->pid, SIGKILL);
    if (ch->pid > 0 && waitpid(ch->pid, &status, late ? WNOHANG : 0) < 0) status = 0;
    if (late)
        snprintf(problem, sizeof problem, "no answer within %g s: a driver or file system hangs", seconds);
    else if (ch->pid < 0)
        snprintf(problem, sizeof problem, "the check could not be started: no process");
    else if (WIFSIGNALED(status))
        snprintf(problem, sizeof problem, "the check ended with signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else if (!read_answer(&ch->answer, &r))
        snprintf(problem, sizeof problem, "the check gave no answer (exit code %d)", WEXITSTATUS(status));
    tm_checks_add(checks, &r);
    tm_text_fini(&ch->answer);
}

static void run_isolated(const bool chosen[ROWS], const tm_check_options *options, const tm_check_host *host,
                         tm_checks *checks)
{
    child   children[ROWS];
    size_t  n = 0;
    int64_t until = tm_now_ns() + (int64_t)(options->timeout_seconds * 1e9);
    for (int i = 0; i < ROWS; i++)
        if (chosen[i]) child_start(&children[n++], &rows[i], options, host);
    children_listen(children, n, until);
    n = 0;
    for (int i = 0; i < ROWS; i++)
        if (chosen[i]) child_end(&children[n++], &rows[i], options->timeout_seconds, checks);
}

/* --- all of them ----------------------------------------------------------------------------- */

/* Up to the first dot: what --nodelist and --exclude take. */
static void name_host(tm_checks *checks, const char *sysroot)
{
    char name[256];
    (void)tm_root_read_line(sysroot, "/proc/sys/kernel/hostname", name, sizeof name);
    size_t n = strcspn(name, ".\n");
    for (size_t i = 0; i < n; i++) /* it becomes a file name */
        checks->host[i] = isalnum((unsigned char)name[i]) || (i > 0 && strchr("-_", name[i])) ? name[i] : '_';
    checks->host[n] = '\0';
    if (n == 0) strcpy(checks->host, "unknown");
}

tm_status tm_checks_run(const tm_check_options *options, tm_checks *checks, tm_error *err)
{
    bool chosen[ROWS], log = false;
    TM_TRY(select_rows(options->only, chosen, err));
    int64_t from = tm_now_ns();
    if (!checks->arena) checks->arena = tm_arena_create();
    for (int i = 0; i < ROWS; i++) {
        if (options->quick && !is_quick(&rows[i])) chosen[i] = false;
        if (rows[i].group == TM_CHECK_GROUP_LOG && chosen[i] && !options->skip_klog) log = true;
    }
    tm_check_host host = options->host ? *options->host : tm_check_host_read(options->sysroot, log, checks->arena);
    for (int i = 0; i < ROWS; i++)
        if (rows[i].group == TM_CHECK_GROUP_PERF && !host.perf) chosen[i] = false;
    name_host(checks, options->sysroot);
    checks->wall_ms = host.wall_ms;
    if (options->isolate) {
        run_isolated(chosen, options, &host, checks);
    } else {
        for (int i = 0; i < ROWS; i++) {
            if (!chosen[i]) continue;
            tm_check_result r = run_one(&rows[i], options, &host, checks->arena);
            tm_checks_add(checks, &r);
        }
    }
    checks->seconds = (double)(tm_now_ns() - from) * 1e-9;
    return TM_OK;
}

bool tm_checks_failed(const tm_checks *checks)
{
    return checks->counts[TM_CHECK_FAIL] > 0;
}

void tm_checks_fini(tm_checks *checks)
{
    free(checks->results);
    tm_arena_destroy(checks->arena);
    *checks = (tm_checks){ 0 };
}
