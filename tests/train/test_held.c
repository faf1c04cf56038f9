/* SPDX-License-Identifier: Apache-2.0 */
/* What all ranks hold of a run is every byte of its tensors, and one of them saves it, however they divide them; no two
 * parts of a rank lie in the same memory. */
#include "support/test.h"
#include "layout_words.h"
#include "support/full_config.h"
#include "support/training.h"
#include "train/trainer/shards.h"
#include "train/run/run.h"

#include <stdlib.h>
#include <string.h>

static const char *const layouts[] = {
    TINY,
    TINY    R(2) COPIES(2),
    TINY    R(3),
    TINY    R(3) STRATEGY "optim",
    TINY    R(5) STRATEGY "optim_grads",
    TINY    R(4) COPIES(2) "--model.tied true --model.bias all",
    TINY    R(2) TP(2),
    TINY    R(6) TP(2),
    TINY    R(6) TP(2) STRATEGY "optim",
    TINY    R(10) TP(2) "--model.qk_norm true --model.tied true",
    TINY    R(14) TP(2) "--model.ffn_dim 88",
    TINY    R(22) TP(2) "--model.dim 56 --model.ffn_dim 88 " STRATEGY "optim_grads",
    TINY    R(26) TP(2) "--model.ffn_dim 152",
    TINY    R(8) TP(2) COPIES(2) "--parallelism.enable_sequence_parallel false",
    TINY    R(6) TP(2) CP(3),
    TINY    R(3) CP(3),
    TINY    R(2) PP(2),
    TINY    R(2) PP(2) "--model.tied true",
    TINY    R(2) PP(2) "--parallelism.pipeline_parallel_divide_head true --model.tied true",
    TINY    R(6) PP(2) STRATEGY "optim",
    TINY    R(6) PP(2) "--parallelism.pipeline_parallel_divide_head true",
    TINY    R(12) PP(2) TP(2),
    TINY    R(2) PP(2) "--parallelism.pipeline_parallel_schedule ZBVZeroBubble --model.n_layers 4",
    TINY    R(3) "--optimizer.name Muon",
    TINY    R(3) "--optimizer.name Adafactor",
    TINY    R(3) "--optimizer.name AdamW8bit --model.dim 64",
    TINY    R(3) "--optimizer.name SGD --optimizer.momentum 0.9 " STRATEGY "optim",
    TINY    R(3) "--training.dtype bfloat16 --training.regime pure --optimizer.kahan_sum true",
    TINY    R(3) "--lora.rank 2 --lora.targets all-linear,lm_head",
    TINY    R(2) TP(2) "--lora.rank 2 --lora.targets all-linear",
    TINY    R(6) TP(2) "--lora.rank 4",
    TINY    R(2) "--lora.rank 2 --lora.dora true --lora.base_format nf4",
    TINY    R(3) "--optimizer.groups=[{\"params\":\"layers.0.*\",\"trained\":\"false\"}]",
    TINY    R(3) "--training.offload optimizer",
    MIXTURE R(2),
    MIXTURE R(2) EP(2),
    MIXTURE R(6) EP(2),
    MIXTURE R(4) EP(2) COPIES(2) STRATEGY "optim",
    MIXTURE R(4) EP(4) TP(2),
    MIXTURE R(4) EP(2) PP(2),
    MIXTURE R(2) TP(2),
    MIXTURE R(2) EP(2) "--lora.rank 2 --lora.targets experts.gate_up_proj,experts.down_proj",
    MIXTURE R(2) TP(2) "--lora.rank 2 --lora.targets experts.gate_up_proj,experts.down_proj",
    MIXTURE R(4) EP(4) TP(2) "--lora.rank 2 --lora.targets experts.gate_up_proj,experts.down_proj",
    TINY    R(6) TP(2) "--lora.rank 2 --lora.targets wqkv,w13",
};

/* How often each byte of a tensor is held, and saved. */
typedef struct {
    char          *name;
    int            dtype, rank;
    int64_t        n[TM_CHECKPOINT_MAX_RANK];
    size_t         bytes;
    unsigned char *held, *saved;
} whole;

typedef struct {
    whole  all[400];
    size_t n;
} wholes;

static whole *whole_of(wholes *to, const tm_checkpoint_tensor *t, size_t bytes)
{
    size_t i = 0;
    while (i < to->n && strcmp(to->all[i].name, t->name) != 0) i++;
    whole *w = &to->all[i];
    assert_true(i < sizeof to->all / sizeof to->all[0]);
    if (i == to->n) {
        *w = (whole){ .name = strdup(t->name), .dtype = t->dtype, .rank = t->rank, .bytes = bytes };
        for (int k = 0; k < t->rank; k++) w->n[k] = t->n[k];
        w->held = calloc(bytes + 1, 1), w->saved = calloc(bytes + 1, 1);
        to->n++;
    }
    assert_true(w->dtype == t->dtype && w->rank == t->rank && w->bytes == bytes);
    for (int k = 0; k < t->rank; k++) assert_int_equal(w->n[k], t->n[k]);
    return w;
}

static void add_part(wholes *to, const tm_checkpoint_tensor *t)
{
    tm_checkpoint_part p = t->part;
    if (p.whole_bytes == 0) p = (tm_checkpoint_part){ t->bytes, t->bytes, 0, 1, 0, t->bytes };
    whole *w = whole_of(to, t, p.whole_bytes);
    assert_int_equal(t->bytes, p.rows * p.row_part);
    assert_int_equal(p.whole_bytes % p.row_bytes, 0);
    for (size_t row = 0; row < p.rows; row++)
        for (size_t k = 0; k < p.row_part; k++) {
            size_t at = (p.first_row + row) * p.row_bytes + p.first_byte + k;
            assert_true(at < w->bytes);
            w->held[at] = 1;
            w->saved[at] = (unsigned char)(w->saved[at] + !t->elsewhere);
        }
}

static void end(wholes *all, const char *words)
{
    for (size_t i = 0; i < all->n; i++) {
        whole *w = &all->all[i];
        for (size_t k = 0; k < w->bytes; k++)
            if (!w->held[k] || w->saved[k] != 1)
                fail_msg("%s: byte %zu of %zu of %s: held %d, saved %d", words, k, w->bytes, w->name, w->held[k],
                         w->saved[k]);
        free(w->name), free(w->held), free(w->saved);
    }
    all->n = 0;
}

/* Memory of the host begins at another address than the device's. */
static void check_apart(const char *words, const tm_checkpoint_tensor *held, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++)
            if (held[i].at.at < held[k].at.at + held[k].bytes && held[k].at.at < held[i].at.at + held[i].bytes)
                fail_msg("%s: %s lies on %s", words, held[i].name, held[k].name);
}

static void hold(const char *words, const tm_chooser *chooser)
{
    static const tm_checkpoint_memory nowhere = { NULL };
    static wholes                     all;
    tm_config                        *config = test_full_config();
    tm_run_options                    options;
    tm_error                          err = { 0 };
    if (test_read_run(config, words, &options, &err) != TM_OK) fail_msg("%s: %s", words, err.text);
    int ranks = tm_mesh_ranks(&options.step.layout.mesh);
    for (int r = 0; r < ranks; r++) {
        tm_step  *step;
        tm_arenas memory = { { { 1 << 20 }, { 1 << 30 }, { 0 } } };
        size_t    n;
        options.step.layout.rank = r;
        if (tm_step_create(&options.step, chooser, &step, &err) != TM_OK) fail_msg("%s: %s", words, err.text);
        tm_checkpoint_tensor *held = tm_held_list(step, &memory, &nowhere, &n);
        for (size_t i = 0; i < n; i++) add_part(&all, &held[i]);
        check_apart(words, held, n);
        free(held);
        tm_step_destroy(step);
    }
    end(&all, words);
    tm_config_destroy(config);
}

TEST(all_of_a_run_is_held_and_saved_once)
{
    tm_device *device = test_device_open("cpu", 1);
    tm_chooser chooser = tm_device_chooser(device);
    tm_error   err = { 0 };
    assert_int_equal(tm_device_limit_isa(device, "base", &err), TM_OK);
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) hold(layouts[i], &chooser);
    tm_device_close(device);
}
