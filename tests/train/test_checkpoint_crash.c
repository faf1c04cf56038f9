/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints whose process dies, or whose disk loses power, at every single call. (A disk that fails once:
 * test_checkpoint_words.c.) */
#include "support/test.h"
#include "disk_fixture.h"

/* Saved before, being saved when the fault strikes, how many are kept. */
typedef struct {
    int64_t before[2];
    size_t  n_before;
    int64_t step;
    int     keep;
} scenario;

static const scenario scenarios[] = {
    { { 1, 2 }, 2, 3, 2 }, /* one is removed at the end */
    { { 1 }, 1, 2, 1 },    /* the only one is replaced by a later one */
    { { 1, 2 }, 2, 2, 0 }, /* the newest is replaced by one of the same step */
    { { 2 }, 1, 2, 1 },    /* so is the only one */
};

/* After the fault: the newest one from before, or the new one, and nothing else; then a healthy save puts all right. */
static void check_what_is_left(fixture *f, const scenario *s, bool saved, const char *what)
{
    tm_checkpoint_report report;
    tm_error             err;
    int64_t              newest = s->before[s->n_before - 1];
    if (load(f, -1, &report, &err) != TM_OK) fail_msg("%s: %s", what, err.text);
    bool is_new = holds(f, s->step, 1);
    if (!is_new && !holds(f, newest, 0)) fail_msg("%s: loaded something else", what);
    if (saved && !is_new) fail_msg("%s: the save succeeded, but the earlier one was loaded", what);
    save(f, s->step, 2, s->keep);
    load_and_expect(f, s->step, 2);
    if (count_entries(f, TM_CHECKPOINT_TEMPORARY) != 0 || count_entries(f, TM_CHECKPOINT_OLD) != 0)
        fail_msg("%s: leftovers after the next save", what);
    if (s->keep > 0 && count_entries(f, TM_CHECKPOINT_FINAL) > (size_t)s->keep) fail_msg("%s: too many kept", what);
}

/* Returns how many calls the save made. */
static int run_with_fault(const scenario *s, fault_kind kind, int fail_at, size_t undone, bool *struck)
{
    fixture          f = new_fixture();
    disk            *d = tm_alloc(sizeof *d);
    tm_checkpoint_io io = table_of(d);
    tm_error         err = { 0 };
    char             what[200];
    snprintf(what, sizeof what, "scenario %d, fault %d at call %d, %zu renames undone", (int)(s - scenarios), (int)kind,
             fail_at, undone);
    d->kind = kind;
    d->fail_at = fail_at;
    for (size_t i = 0; i < s->n_before; i++) save(&f, s->before[i], 0, 0);
    fill(&f, s->step, 1);
    tm_status st = tm_checkpoint_save_with(&io, f.folder, &f.state, f.tensors, N_TENSORS, s->keep, &err);
    *struck = fail_at > 0 && d->calls >= fail_at;
    if (st != TM_OK && st != TM_IO) fail_msg("%s: status %d", what, (int)st);
    if (st != TM_OK && !*struck) fail_msg("%s: %s", what, err.text);
    if (kind == POWER_CUT) cut_power(d, undone, fail_at % 2);
    int calls = d->calls;
    check_what_is_left(&f, s, st == TM_OK, what);
    free(d);
    clear(f.folder);
    return calls;
}

static void sweep_faults(fault_kind kind, size_t max_undone)
{
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        for (size_t undone = 0; undone <= max_undone; undone++) {
            bool struck = true;
            int  calls = 0, k = 1;
            for (; struck; k++) calls = run_with_fault(&scenarios[i], kind, k, undone, &struck);
            assert_true(calls > 20 && k == calls + 2); /* every call of a whole save was the failing one once */
        }
}

TEST(a_crash_at_any_call)
{
    sweep_faults(CRASH, 0);
}

TEST(a_power_cut_at_any_call)
{
    sweep_faults(POWER_CUT, 2);
}
