/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels whose text or launches are not those that the full sweep has judged (judged.txt, launches.txt): short trials
 * of theirs, in turns, within some seconds of processor time. With none of them nothing is compiled or executed. */
#include "base/arena.h"
#include "base/file.h"
#include "device/backend.h"
#include "device/gpu/own.h"
#include "gpu/emulated.h"
#include "gpu/judged_launches.h"
#include "gpu/judged_texts.h"
#include "gpu/trials.h"
#include "op/describe.h"

#include <sys/resource.h>

#include "support/test.h"

enum { SECONDS = 20 }; /* for each maker */

/* A trial that takes a changed text. turn: how many of its kernel and precision come before it. */
typedef struct {
    trial_of trial;
    int      turn;
} changed_trial;

typedef struct {
    tm_device     *planner;            /* it has prepared the calls, and compiles none of them */
    const char    *judged;             /* content of judged.txt */
    bool           launched_otherwise; /* the kernel */
    changed_trial *all;
    size_t         n, room;
} changed_trials;

/* --- which trials take a changed text */

static bool is_changed(const changed_trials *c, const char *const *lines)
{
    for (const tm_gpu_text *t = tm_gpu_texts; t->name; t++)
        if (t->lines == lines) return judged_texts_changed(c->judged, t);
    return false;
}

static void add_if_changed(void *out, const trial_of *trial, const tm_call *call)
{
    changed_trials   *c = out;
    const tm_gpu_own *own = c->planner->own;
    bool              changed = c->launched_otherwise;
    void             *state = NULL;
    tm_error          err = { 0 };
    if (trial->kernel->prepare(c->planner, call, &state, &err) != TM_OK) fail_msg("%s", err.text);
    const tm_gpu_noted *noted = state;
    for (int k = 0; k < noted->n && !changed; k++)
        changed = noted->all[k].name && is_changed(c, own->modules[noted->all[k].module].text);
    trial->kernel->release(state);
    if (!changed) return;
    if (c->n == c->room) {
        c->room = c->room ? 2 * c->room : 64;
        c->all = tm_realloc(c->all, c->room * sizeof *c->all);
    }
    c->all[c->n++] = (changed_trial){ .trial = *trial };
}

static int by_cost(const void *a, const void *b)
{
    double x = ((const changed_trial *)a)->trial.cost, y = ((const changed_trial *)b)->trial.cost;
    return (x > y) - (x < y);
}

static int by_turn(const void *a, const void *b)
{
    const changed_trial *x = a, *y = b;
    return x->turn != y->turn ? x->turn - y->turn : by_cost(a, b);
}

/* Every kernel in every precision has its turn before any has the next one, the shortest trials first. */
static void put_in_turns(changed_trials *c)
{
    if (c->n == 0) return;
    qsort(c->all, c->n, sizeof *c->all, by_cost);
    for (size_t i = 0; i < c->n; i++)
        for (size_t k = 0; k < i; k++)
            c->all[i].turn += c->all[k].trial.kernel == c->all[i].trial.kernel &&
                              c->all[k].trial.precision == c->all[i].trial.precision;
    qsort(c->all, c->n, sizeof *c->all, by_turn);
}

/* Of texts that have no line in `judged`, and of kernels that have none in `launches`. */
static changed_trials trials_of(const char *device, const char *judged, const char *launches)
{
    changed_trials   c = { .planner = trials_open(device, CODE_COMPILED), .judged = judged };
    const tm_kernel *kernel;
    for (int id = 0; id < TM_OP_COUNT; id++)
        for (int k = 0; (kernel = trials_kernel(c.planner, id, k)); k++) {
            c.launched_otherwise = !gpu_is_real() && judged_launches_changed(launches, c.planner, device, kernel);
            trials_each(c.planner, tm_op_get((tm_op_id)id), kernel, &c, add_if_changed);
        }
    put_in_turns(&c);
    tm_device_close(c.planner);
    return c;
}

/* --- their judgement */

static double seconds_of(int who)
{
    struct rusage used;
    getrusage(who, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
}

/* Of this process and of those that it waited for. */
static double seconds_used(void)
{
    return seconds_of(RUSAGE_SELF) + seconds_of(RUSAGE_CHILDREN);
}

/* Fails at the first wrong one. Returns how many were tried. */
static size_t try_within(const char *device, const changed_trials *c, double seconds)
{
    size_t     tried = 0;
    double     begun = seconds_used();
    tm_device *of = trials_open(device, CODE_COMPILED);
    for (; tried < c->n && seconds_used() - begun < seconds; tried++) trials_try(of, &c->all[tried].trial);
    tm_device_close(of);
    return tried;
}

static tm_text judged_list(void)
{
    tm_text  list = { 0 };
    tm_error err = { 0 };
    if (tm_file_read(JUDGED_TEXTS, 1 << 20, &list, &err) != TM_OK) fail_msg("%s", err.text);
    return list;
}

/* The names of the texts that are not those of the list, with a blank behind each. */
static tm_text changed_names(const char *list)
{
    tm_text names = { 0 };
    for (const tm_gpu_text *t = tm_gpu_texts; t->name; t++)
        if (judged_texts_changed(list, t)) tm_text_printf(&names, "%s ", t->name);
    return names;
}

/* The same of kernels that are launched otherwise than those of the list. */
static void add_launched(tm_text *names, const char *device, const char *list)
{
    tm_device       *planner = trials_open(device, CODE_NONE);
    const tm_kernel *kernel;
    for (int id = 0; id < TM_OP_COUNT; id++)
        for (int k = 0; (kernel = trials_kernel(planner, id, k)); k++)
            if (judged_launches_changed(list, planner, device, kernel)) tm_text_printf(names, "%s ", kernel->name);
    tm_device_close(planner);
}

static void judge(const char *device)
{
    tm_text list = judged_list(), launches = judged_launches_list(), names = changed_names(list.data);
    if (!gpu_is_real()) add_launched(&names, device, launches.data);
    if (names.data) {
        changed_trials c = trials_of(device, list.data, launches.data);
        size_t         tried = try_within(device, &c, SECONDS);
        print_message("# note: %s: %zu of %zu short trials of changed texts or launches are right; not judged: the "
                      "others and longer "
                      "ones (TM_TEST_FULL=1 build/release/tests/gpu/test_gpu_kernels on_): %s\n",
                      device, tried, c.n, names.data);
        free(c.all);
    }
    tm_text_fini(&list), tm_text_fini(&launches), tm_text_fini(&names);
}

ON_BOTH(TEST, what_has_changed_is_right, judge(on))

/* --- which texts have changed */

static tm_text list_without(const char *name, const char *begins)
{
    tm_text list = { 0 };
    tm_text_add(&list, begins);
    for (const tm_gpu_text *t = tm_gpu_texts; t->name; t++)
        if (strcmp(t->name, name) != 0)
            tm_text_printf(&list, "%s %016llx\n", t->name,
                           (unsigned long long)judged_texts_hash(t, tm_gpu_text_dialect));
    return list;
}

/* Without a line, or with the hash of another text, also where its name ends another one's. */
TEST(a_changed_text_is_found)
{
    static const char *const lists[][2] = { { "matrix", "" },
                                            { "matrix", "matrix 0123456789abcdef\n" },
                                            { "blocks", "more-blocks 0123456789abcdef\n" },
                                            { "nothing", "" } };
    static const char *const wanted[] = { "matrix ", "matrix ", "blocks ", NULL };
    for (int i = 0; i < 4; i++) {
        tm_text list = list_without(lists[i][0], lists[i][1]), names = changed_names(list.data);
        if (wanted[i])
            assert_string_equal(names.data, wanted[i]);
        else
            assert_null(names.data);
        tm_text_fini(&list), tm_text_fini(&names);
    }
}
