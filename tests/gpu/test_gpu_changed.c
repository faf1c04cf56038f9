/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels whose text is not the one that the full sweep has judged (judged.txt): short trials of theirs, in turns,
 * within some seconds of processor time. With no such text nothing is compiled or executed. */
#include "base/arena.h"
#include "base/file.h"
#include "device/backend.h"
#include "device/gpu/own.h"
#include "gpu/emulated.h"
#include "gpu/judged_texts.h"
#include "gpu/trials.h"
#include "op/describe.h"
#include "support/folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "support/test.h"

enum { SECONDS = 20 }; /* for each maker */

/* A trial, the first changed text that it takes, and its module: a number of the planner's. turn: how many of its
 * kernel and precision come before it; behind: how many modules of the text in that turn. */
typedef struct {
    trial_of           trial;
    const tm_gpu_text *text;
    size_t             module;
    int                turn, behind;
} changed_trial;

typedef struct {
    tm_device     *planner; /* it has prepared the calls, and compiles none of them */
    const char    *judged;  /* content of judged.txt */
    changed_trial *all;
    size_t         n, room;
} changed_trials;

/* --- which trials take a changed text */

/* NULL: it takes none. */
static const tm_gpu_text *changed_text(const changed_trials *c, const char *const *lines)
{
    for (const tm_gpu_text *t = tm_gpu_texts; t->name; t++)
        if (t->lines == lines) return judged_texts_changed(c->judged, t) ? t : NULL;
    return NULL;
}

static void add_if_changed(void *out, const trial_of *trial, const tm_call *call)
{
    changed_trials    *c = out;
    const tm_gpu_own  *own = c->planner->own;
    const tm_gpu_text *text = NULL;
    void              *state = NULL;
    tm_error           err = { 0 };
    if (trial->kernel->prepare(c->planner, call, &state, &err) != TM_OK) fail_msg("%s", err.text);
    const tm_gpu_noted *noted = state;
    size_t              module = 0;
    for (int k = 0; k < noted->n && !text; k++) {
        if (!noted->all[k].name) continue;
        module = noted->all[k].module;
        text = changed_text(c, own->modules[module].text);
    }
    trial->kernel->release(state);
    if (!text) return;
    if (c->n == c->room) {
        c->room = c->room ? 2 * c->room : 64;
        c->all = tm_realloc(c->all, c->room * sizeof *c->all);
    }
    c->all[c->n++] = (changed_trial){ .trial = *trial, .text = text, .module = module };
}

static int by_cost(const void *a, const void *b)
{
    double x = ((const changed_trial *)a)->trial.cost, y = ((const changed_trial *)b)->trial.cost;
    return (x > y) - (x < y);
}

static int by_turn(const void *a, const void *b)
{
    const changed_trial *x = a, *y = b;
    if (x->turn != y->turn) return x->turn - y->turn;
    return x->behind != y->behind ? x->behind - y->behind : by_cost(a, b);
}

static bool is_of_one_kind(const changed_trial *a, const changed_trial *b)
{
    return a->trial.kernel == b->trial.kernel && a->trial.precision == b->trial.precision;
}

/* Every kernel in every precision has its turn before any has the next one. A kernel begins with its largest trial of a
 * usual cost, as the smallest ones have rows of few elements; then come these. A turn begins with one module of each
 * text and all that takes it, as compilers take most of the time. */
static void put_in_turns(changed_trials *c)
{
    enum { USUAL = 3000 };
    if (c->n == 0) return;
    qsort(c->all, c->n, sizeof *c->all, by_cost);
    for (size_t i = 0; i < c->n; i++) {
        int before = 0, usual = 0; /* of its kind: of lower cost; of a usual cost */
        for (size_t k = 0; k < c->n; k++) {
            if (!is_of_one_kind(&c->all[k], &c->all[i])) continue;
            before += k < i;
            usual += c->all[k].trial.cost <= USUAL;
        }
        c->all[i].turn = before + 1 == usual ? 0 : before < usual ? before + 1 : before;
    }
    for (size_t i = 0; i < c->n; i++)
        for (size_t k = 0; k < i; k++) {
            changed_trial *mine = &c->all[i], *other = &c->all[k];
            if (other->turn != mine->turn || other->text != mine->text) continue;
            if (other->module == mine->module) {
                mine->behind = other->behind;
                break;
            }
            if (mine->behind <= other->behind) mine->behind = other->behind + 1;
        }
    qsort(c->all, c->n, sizeof *c->all, by_turn);
}

/* Of texts that have no line in `judged`. */
static changed_trials trials_of(const char *device, const char *judged)
{
    changed_trials   c = { .planner = trials_open(device, CODE_COMPILED), .judged = judged };
    const tm_kernel *kernel;
    for (int id = 0; id < TM_OP_COUNT; id++)
        for (int k = 0; (kernel = trials_kernel(c.planner, id, k)); k++)
            trials_each(c.planner, tm_op_get((tm_op_id)id), kernel, &c, add_if_changed);
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

static void judge(const char *device)
{
    tm_text list = judged_list(), names = changed_names(list.data);
    if (names.data) {
        changed_trials c = trials_of(device, list.data);
        size_t         tried = try_within(device, &c, SECONDS);
        print_message(
            "# note: %s: %zu of %zu short trials of changed texts are right; not judged: the others and longer "
            "ones (TM_TEST_FULL=1 build/release/tests/gpu/test_gpu_kernels on_): %s\n",
            device, tried, c.n, names.data);
        free(c.all);
    }
    tm_text_fini(&list), tm_text_fini(&names);
}

TEST(what_has_changed_is_right_on_cuda)
{
    judge("cuda");
}

TEST(what_has_changed_is_right_on_hip)
{
    judge("hip");
}

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

/* The hash is of the dialect and of every line, and of where a line ends. */
TEST(hashes_are_of_all_that_is_compiled)
{
    static const char *const lines[][3] = { { "a", "b" }, { "a", "c" }, { "ab", "" }, { "b", "a" }, { "a" } };
    static const char *const dialects[][2] = { { "d" }, { "e" } };
    uint64_t                 hash[10];
    for (int i = 0; i < 10; i++) {
        tm_gpu_text text = { "made up", lines[i % 5] };
        hash[i] = judged_texts_hash(&text, dialects[i / 5]);
        for (int k = 0; k < i; k++) assert_true(hash[k] != hash[i]);
    }
}

/* All trials take the changed text; each kind has one trial in each turn, and goes on to larger ones. A part of texts
 * has no line of its own. Within no time none is executed. */
static void check_trials(const char *device)
{
    tm_text        list = list_without("softmax", ""), other = list_without("row_loss", "");
    changed_trials none = trials_of(device, list.data), some = trials_of(device, other.data);
    assert_int_equal(none.n, 0);
    assert_true(some.n > 20);
    for (size_t i = 0; i < some.n; i++) {
        const changed_trial *last = NULL;
        assert_string_equal(some.all[i].text->name, "row_loss");
        for (size_t k = 0; k < i; k++)
            if (is_of_one_kind(&some.all[k], &some.all[i])) last = &some.all[k];
        assert_int_equal(some.all[i].turn, last ? last->turn + 1 : 0);
        assert_true(!last || last->turn == 0 || last->trial.cost <= some.all[i].trial.cost);
        assert_true(i == 0 || some.all[i].turn >= some.all[i - 1].turn);
    }
    assert_int_equal(try_within(device, &some, 0), 0);
    tm_text_fini(&list), tm_text_fini(&other);
    free(some.all);
}

TEST(a_changed_text_has_its_trials_on_cuda)
{
    check_trials("cuda");
}

TEST(a_changed_text_has_its_trials_on_hip)
{
    check_trials("hip");
}

/* --- what a sweep leaves */

/* A part that has compiled these texts: all that examples reach, but for one. */
static void note_without(const char *part, const char *left_out)
{
    enum { MOST = 100 };
    tm_gpu_module modules[MOST];
    tm_gpu_own    own = { .modules = modules };
    tm_device     device = { .own = &own };
    for (const tm_gpu_text *t = tm_gpu_texts; t->name; t++)
        if (!judged_texts_elsewhere(t->name) && strcmp(t->name, left_out) != 0 && own.n_modules < MOST)
            modules[own.n_modules++] = (tm_gpu_module){ .name = t->name, .text = t->lines };
    judged_texts_note(test_in_folder("note"), part, &device);
}

static const char *differs(char why[JUDGED_WHY])
{
    tm_text     list = { 0 };
    const char *found;
    tm_text_add(&list, test_in_folder("list"));
    found = judged_texts_differ(test_in_folder("note"), list.data, why);
    tm_text_fini(&list);
    return found;
}

/* The list is judged, and written, only when all four parts have passed with the texts as they are. */
TEST(a_sweep_judges_the_list)
{
    char     why[JUDGED_WHY];
    tm_error err = { 0 };
    tm_text  list = { 0 };
    unsetenv("TM_RECORD");
    if (tm_file_write(test_in_folder("list"), "matrix 0\n", 9, &err) != TM_OK) fail_msg("%s", err.text);
    note_without("on_cuda", "matrix"), note_without("on_cuda_too", "matrix"), note_without("on_hip", "matrix");
    setenv("TM_RECORD", "1", 1);
    assert_null(differs(why)); /* a part is missing */
    if (tm_file_read(test_in_folder("list"), 1 << 20, &list, &err) != TM_OK) fail_msg("%s", err.text);
    assert_string_equal(list.data, "matrix 0\n");
    tm_text_fini(&list);
    unsetenv("TM_RECORD");
    note_without("on_hip_too", "matrix");
    assert_non_null(strstr(differs(why), "matrix.cu: no example"));
    note_without("on_hip", "");
    assert_non_null(strstr(differs(why), "TM_RECORD=1"));
    setenv("TM_RECORD", "1", 1);
    assert_null(differs(why));
    unsetenv("TM_RECORD");
    assert_null(differs(why));
    if (tm_file_read(test_in_folder("list"), 1 << 20, &list, &err) != TM_OK) fail_msg("%s", err.text);
    tm_text names = changed_names(list.data);
    assert_null(names.data);
    *strstr(list.data, "matrix ") = 'M';
    if (tm_file_write(test_in_folder("list"), list.data, list.length, &err) != TM_OK) fail_msg("%s", err.text);
    assert_non_null(strstr(differs(why), "TM_RECORD=1"));
    judged_texts_forget(test_in_folder("note"), "on_cuda");
    assert_null(differs(why));
    if (tm_file_write(test_in_folder("note.on_cuda"), "all 0\n", 6, &err) != TM_OK) fail_msg("%s", err.text);
    assert_null(differs(why)); /* it has judged other texts */
    tm_text_fini(&list);
    test_folder_remove();
}
