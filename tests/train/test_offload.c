/* SPDX-License-Identifier: Apache-2.0 */
/* Offloaded training: the file has no name, is dropped from the process's memory as soon as it is copied, and is
 * refused with a clear word where it cannot be. (The same bits, also through a checkpoint: tests/differential.) */
#include "support/test.h"
#include "support/folder.h"
#include "support/training.h"

#include "base/arena.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>

enum { FORMS = 4 };

static tm_step_options options_of(bool gpt, int form, const char *folder)
{
    tm_step_options o = gpt ? test_gpt_options() : test_llama_options();
    o.shape.n_layers = 4;
    o.accumulation = gpt ? 3 : 1;
    if (gpt) o.precision = &tm_precision_bf16, o.recompute = (tm_recompute){ .cheap = true, .every_n = 2 };
    o.offload =
        (tm_offload){ .optimizer = form & 1, .activations = form & 2, .space = TM_SPACE_DISK, .folder = folder };
    return o;
}

static test_batch batch_of(const tm_step_options *o, uint64_t step)
{
    return test_batch_random(o->micro_batch * o->accumulation, o->seq, o->shape.vocab_size, step);
}

static void do_steps(tm_trainer *trainer, int64_t from, int64_t to)
{
    for (int64_t t = from; t <= to; t++) {
        test_batch batch = batch_of(&tm_trainer_step_of(trainer)->options, (uint64_t)t);
        test_step(trainer, t, 1e-3, 1, &batch);
        test_batch_fini(&batch);
    }
}

static size_t entries(const char *folder)
{
    size_t n = 0;
    DIR   *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));) n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}

/* What is planned is used, without a name in the folder, and a step allocates nothing. */
TEST(what_is_offloaded_is_planned)
{
    char *folder = test_tree_make();
    for (int form = 1; form < 2 * FORMS; form += 2) {
        tm_device      *device = test_device_open("cpu", 2);
        tm_step_options options = options_of(form >= FORMS, form % FORMS, folder);
        tm_trainer     *trainer = test_trainer_open(device, &options, 7);
        const tm_plan  *plan = tm_trainer_step_of(trainer)->plan;
        assert_true((plan->spaces[TM_SPACE_DISK].arena_bytes > 0) == (form % FORMS > 0));
        assert_int_equal(entries(folder), 0);
        do_steps(trainer, 1, 1);
        test_batch         batch = batch_of(&options, 2);
        unsigned long long before = tm_alloc_count();
        test_step(trainer, 2, 1e-3, 1, &batch);
        assert_true(tm_alloc_count() == before);
        test_batch_fini(&batch);
        assert_int_equal(tm_device_used_bytes(device, tm_trainer_arena(trainer), plan->arena_bytes), plan->arena_bytes);
        tm_trainer_close(trainer);
        tm_device_close(device);
    }
    test_tree_remove(folder);
}

/* Bytes of files that are mapped into memory, by the system's books. */
static int64_t mapped_files(void)
{
    long  size, resident, shared;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%ld %ld %ld", &size, &resident, &shared), 3);
    fclose(file);
    return (int64_t)shared * sysconf(_SC_PAGESIZE);
}

/* With tensors of several MiB. */
TEST(the_file_is_no_memory_of_the_process)
{
    char           *folder = test_tree_make();
    tm_step_options options = options_of(false, 3, folder);
    options.shape.dim = 256;
    options.shape.ffn_dim = 1024;
    options.shape.n_heads = 8;
    tm_trainer *trainer = test_trainer_on("cpu", 1, &options, 7);
    size_t      disk = tm_trainer_step_of(trainer)->plan->spaces[TM_SPACE_DISK].arena_bytes;
    assert_true(disk > (size_t)16 << 20);
    do_steps(trainer, 1, 1);
    int64_t before = mapped_files();
    do_steps(trainer, 2, 3);
    int64_t grown = mapped_files() - before;
    if (before > 16 << 20 || grown > 4 << 20)
        fail_msg("%lld bytes of files are in memory, %lld more after two steps; %zu are on the disk", (long long)before,
                 (long long)grown, disk);
    test_trainer_end(trainer);
    test_tree_remove(folder);
}

static void expect_refusal(const char *folder, tm_status status, const char *word)
{
    tm_device      *device = test_device_open("cpu", 1);
    tm_step_options options = options_of(false, 1, folder);
    tm_trainer     *trainer = NULL;
    tm_error        err = { 0 };
    assert_int_equal(tm_trainer_open(device, &options, 7, &trainer, &err), status);
    assert_null(trainer);
    if (!strstr(err.text, word) || !strstr(err.text, "training.offload_path")) fail_msg("%s", err.text);
    tm_device_close(device);
}

TEST(where_no_file_can_be_the_word_is_clear)
{
    char         *folder = test_tree_make();
    char          missing[600];
    struct rlimit limit, small;
    snprintf(missing, sizeof missing, "%s/nothing/here", folder);
    expect_refusal(missing, TM_INVALID, missing);
    expect_refusal(NULL, TM_INVALID, "directory");
    /* no room: here a limit of the process stands for the disk's */
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = limit;
    small.rlim_cur = 1 << 16;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    expect_refusal(folder, TM_IO, "cannot reserve");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_int_equal(entries(folder), 0);
    test_tree_remove(folder);
}
