/* SPDX-License-Identifier: Apache-2.0 */
/* Cases in processes of their own; the smallest one that still fails. */
#include "judge.h"

#include "support/folder.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CASE_SECONDS = 60 };

_Noreturn static void judge_here(const setting *s, const char *folder, judgement *out, int output)
{
    const struct rlimit limit = { CASE_SECONDS, CASE_SECONDS }, no_core = { 0, 0 };
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setrlimit(RLIMIT_CPU, &limit);
    setrlimit(RLIMIT_CORE, &no_core);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    if (chdir(test_folder()) != 0) abort();
    judge(s, folder, out);
    _exit(0);
}

judgement judge_apart(const setting *s)
{
    judgement *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char      *folder = test_tree_make();
    int        output = memfd_create("output", MFD_CLOEXEC), status = 0;
    if (shared == MAP_FAILED || output < 0) abort();
    fflush(NULL);
    pid_t child = fork();
    if (child < 0) abort();
    if (child == 0) judge_here(s, folder, shared, output);
    waitpid(child, &status, 0);
    judgement j = *shared;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || j.outcome == DIED) {
        char    text[2048];
        ssize_t n = pread(output, text, sizeof text - 1, 0);
        text[n > 0 ? n : 0] = '\0';
        j.outcome = DIED;
        snprintf(j.text, sizeof j.text, "died: %s %d: %s", WIFSIGNALED(status) ? "signal" : "exit status",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), text);
    }
    close(output);
    munmap(shared, sizeof *shared);
    test_tree_remove(folder);
    return j;
}

static bool fails(const judgement *j)
{
    return j->outcome == FAILED || j->outcome == DIED;
}

/* The same kind of failure: equal up to the first number. */
static bool alike(const judgement *a, const judgement *b)
{
    size_t n = strcspn(a->text, "0123456789");
    return fails(b) && a->outcome == b->outcome && strncmp(a->text, b->text, n) == 0;
}

setting shrink(setting s, judgement *out)
{
    size_t  at = 0;
    setting next;
    while (simpler(&s, &at, &next)) {
        judgement j = judge_apart(&next);
        if (!alike(out, &j)) continue;
        s = next, *out = j, at = 0;
    }
    return s;
}

void describe_failure(const setting *s, const judgement *j, tm_text *out)
{
    tm_text name = { 0 }, words = { 0 };
    name_of(s, &name);
    words_of(s, MODEL_KEYS | LAYOUT_KEYS | NEUTRAL_KEYS, &words);
    tm_text_printf(out, "%s\n  trainmark run %s\n  again: build/release/tests/differential/all case '%s'\n", j->text,
                   words.data, name.data);
    tm_text_fini(&name);
    tm_text_fini(&words);
}
