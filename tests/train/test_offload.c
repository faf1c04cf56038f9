/* SPDX-License-Identifier: Apache-2.0 */
/* Offloaded training: the same bits, also through a checkpoint; the file has no name, is dropped from the process's
 * memory as soon as it is copied, and is refused with a clear word where it cannot be. */
#include "support/test.h"
#include "support/folder.h"
#include "support/training.h"

#include "base/arena.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

typedef struct {
    bool                gpt;
    const tm_precision *precision;
    int64_t             accumulation;
    tm_recompute        recompute;
    int                 threads;
} configuration;

static const configuration configurations[] = {
    { false, &tm_precision_f32, 1, { 0 }, 2 },
    { false, &tm_precision_bf16, 2, { .cheap = true }, 1 },
    { false, &tm_precision_bf16_pure, 1, { .cheap = true, .every_n = 2 }, 2 },
    { true, &tm_precision_f32, 3, { .cheap = true }, 2 },
    { true, &tm_precision_bf16, 1, { .every_n = 1 }, 2 },
    { true, &tm_precision_bf16_pure, 2, { 0 }, 1 },
};
enum { CONFIGURATIONS = sizeof configurations / sizeof configurations[0], FORMS = 4 };

static tm_step_options options_of(const configuration *c, int form, const char *folder)
{
    tm_step_options o = c->gpt ? test_gpt_options() : test_llama_options();
    o.shape.n_layers = 4;
    o.precision = c->precision;
    o.accumulation = c->accumulation;
    o.recompute = c->recompute;
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

/* What is brought and taken away says where it lies: there. */
static void copies_name_their_space(const tm_graph *graph)
{
    for (size_t s = 0; s < graph->n_segments; s++)
        for (size_t i = 0; i < graph->segments[s]->n_nodes; i++) {
            const tm_node *node = &graph->segments[s]->nodes[i];
            if (node->op != TM_OP_fetch && node->op != TM_OP_store) continue;
            tm_tensor_id away = node->op == TM_OP_fetch ? node->in[0] : node->out[0];
            assert_int_equal(((const tm_copy_attr *)node->attr)->space, TM_SPACE_DISK);
            assert_int_equal(tm_graph_at(graph, away)->space, TM_SPACE_DISK);
        }
}

TEST(offload_changes_no_bit)
{
    char *folder = test_tree_make();
    for (int c = 0; c < CONFIGURATIONS; c++) {
        uint64_t hash[FORMS];
        for (int form = 0; form < FORMS; form++) {
            tm_device      *device = test_device_open("cpu", configurations[c].threads);
            tm_step_options options = options_of(&configurations[c], form, folder);
            tm_trainer     *trainer = test_trainer_open(device, &options, 7);
            const tm_plan  *plan = tm_trainer_step_of(trainer)->plan;
            assert_true((plan->spaces[TM_SPACE_DISK].arena_bytes > 0) == (form > 0));
            assert_int_equal(entries(folder), 0); /* the file has no name */
            copies_name_their_space(tm_trainer_step_of(trainer)->graph);
            do_steps(trainer, 1, 1);
            test_batch         batch = batch_of(&options, 2);
            unsigned long long before = tm_alloc_count();
            test_step(trainer, 2, 1e-3, 1, &batch);
            assert_true(tm_alloc_count() == before);
            test_batch_fini(&batch);
            do_steps(trainer, 3, 3);
            hash[form] = test_state_hash(trainer);
            assert_int_equal(tm_device_used_bytes(device, tm_trainer_arena(trainer), plan->arena_bytes),
                             plan->arena_bytes);
            tm_trainer_close(trainer);
            tm_device_close(device);
        }
        for (int form = 1; form < FORMS; form++)
            if (hash[form] != hash[0]) fail_msg("configuration %d, form %d: other bits", c, form);
    }
    test_tree_remove(folder);
}

/* Whoever saved, whoever loads. */
TEST(checkpoints_pass_between_forms)
{
    for (int from = 0; from < FORMS; from++) {
        char                *folder = test_tree_make();
        int                  to = (from + 1) % FORMS;
        tm_device           *device = test_device_open("cpu", 1);
        uint64_t             wanted, found;
        size_t               n;
        tm_checkpoint_state  saved = { .step = 2, .model = "small" };
        tm_checkpoint_report report;
        tm_step_options      options = options_of(&configurations[3], from, folder);
        tm_trainer          *trainer = test_trainer_open(device, &options, 7);
        do_steps(trainer, 1, 2);
        const tm_checkpoint_tensor *tensors = tm_trainer_tensors(trainer, &n);
        assert_int_equal(tm_checkpoint_save(folder, &saved, tensors, n, 0, NULL), TM_OK);
        do_steps(trainer, 3, 4);
        wanted = test_state_hash(trainer);
        tm_trainer_close(trainer);
        options = options_of(&configurations[3], to, folder);
        trainer = test_trainer_open(device, &options, 8);
        tensors = tm_trainer_tensors(trainer, &n);
        assert_int_equal(tm_checkpoint_load_newest(folder, -1, &saved, tensors, n, &report, NULL), TM_OK);
        do_steps(trainer, 3, 4);
        found = test_state_hash(trainer);
        tm_trainer_close(trainer);
        tm_device_close(device);
        test_tree_remove(folder);
        if (found != wanted) fail_msg("from form %d to form %d: other bits", from, to);
    }
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
    tm_device      *device = test_device_open("cpu", 1);
    tm_step_options options = options_of(&configurations[0], 3, folder);
    options.shape.dim = 256;
    options.shape.ffn_dim = 1024;
    options.shape.n_heads = 8;
    tm_trainer *trainer = test_trainer_open(device, &options, 7);
    size_t      disk = tm_trainer_step_of(trainer)->plan->spaces[TM_SPACE_DISK].arena_bytes;
    assert_true(disk > (size_t)16 << 20);
    do_steps(trainer, 1, 1);
    int64_t before = mapped_files();
    do_steps(trainer, 2, 3);
    int64_t grown = mapped_files() - before;
    if (before > 16 << 20 || grown > 4 << 20)
        fail_msg("%lld bytes of files are in memory, %lld more after two steps; %zu are on the disk", (long long)before,
                 (long long)grown, disk);
    uint64_t hash = test_state_hash(trainer);
    tm_trainer_close(trainer);
    options.offload = (tm_offload){ .optimizer = false };
    trainer = test_trainer_open(device, &options, 7);
    do_steps(trainer, 1, 3);
    assert_true(test_state_hash(trainer) == hash);
    tm_trainer_close(trainer);
    tm_device_close(device);
    test_tree_remove(folder);
}

static void expect_refusal(const char *folder, tm_status status, const char *word)
{
    tm_device      *device = test_device_open("cpu", 1);
    tm_step_options options = options_of(&configurations[0], 1, folder);
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
