/* SPDX-License-Identifier: Apache-2.0 */
/* apps/bench/ab_binary.c - which trainmark is that file? Asked before a session, so that a wrong one costs no time. */
#include "base/clock.h"
#include "base/process.h"
#include "apps/bench/ab.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>
#include <unistd.h>

static const double answer_seconds = 10; /* at most; it takes some hundredths */
enum { LONGEST_ANSWER = 1 << 20, LONGEST_NAME = 64 };

bool tm_ab_build_parse(const char *answer, tm_text *out)
{
    static const char name[] = "trainmark ";
    size_t            line = strcspn(answer, "\n"), skip = sizeof name - 1;
    if (strncmp(answer, name, skip) != 0 || !answer[line]) return false;
    size_t named = skip + strcspn(answer + skip, " \t\r\n"); /* " (commit, compiler)" may follow */
    if (named == skip || named > LONGEST_NAME || (named != line && strncmp(answer + named, " (", 2) != 0)) return false;
    json_t *facts = json_loads(answer + line, JSON_REJECT_DUPLICATES, NULL);
    json_t *build = json_object_get(facts, "build");
    bool    found = json_is_object(build);
    if (found) {
        const char *commit = json_string_value(json_object_get(build, "commit"));
        tm_text_printf(out, "%.*s, commit %.64s", (int)named, answer, commit ? commit : "unknown");
    }
    json_decref(facts);
    return found;
}

/* What it prints, until it has ended or the time is over; *status is what waitpid tells. */
static bool read_answer(tm_process *process, const volatile sig_atomic_t *stop, tm_text *answer, int *status)
{
    int     fd = tm_process_output(process);
    int64_t until = tm_now_ns() + (int64_t)(answer_seconds * 1e9), left;
    bool    open = true;
    while (open && answer->length < LONGEST_ANSWER && (left = until - tm_now_ns()) > 0 && !(stop && *stop)) {
        char part[16384];
        if (!tm_process_wait(&process, 1, fd, left, stop)) continue;
        ssize_t n = read(fd, part, sizeof part);
        if (n > 0) tm_text_add_n(answer, part, (size_t)n);
        open = n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN));
    }
    while (!open && (left = until - tm_now_ns()) > 0 && !(stop && *stop)) {
        if (tm_process_ended(process, status)) return true;
        (void)tm_process_wait(&process, 1, -1, 1000000, stop); /* its stream is closed: it is about to end */
    }
    return false;
}

tm_status tm_ab_build_read(const char *binary, const char *flag, const volatile sig_atomic_t *stop, tm_text *out,
                           tm_error *err)
{
    char *argv[] = { (char *)binary, (char[]){ "version" }, (char[]){ "-v" }, NULL }; /* nobody writes there */
    tm_process_options options = { .argv = argv, .output = true };
    tm_process        *process;
    tm_error           why = { 0 };
    tm_text            answer = { 0 };
    int                status = 0;
    tm_status          st = tm_process_start(&options, &process, &why);
    if (st != TM_OK) return tm_fail(err, st, "%s: %s", flag, why.text);
    bool ended = read_answer(process, stop, &answer, &status);
    tm_process_close(process, 0);
    if (stop && *stop)
        st = tm_fail(err, TM_INTERRUPTED, "stopped before the session began");
    else if (!ended || status != 0 || !answer.data || !tm_ab_build_parse(answer.data, out))
        st = tm_fail(err, TM_INVALID,
                     "%s: '%.200s' is not a trainmark: it does not answer `version` as one does; name another program "
                     "with %.3s-command",
                     flag, binary, flag);
    tm_text_fini(&answer);
    return st;
}
