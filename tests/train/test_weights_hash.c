/* SPDX-License-Identifier: Apache-2.0 */
/* tm_trainer_weights_hash: every byte of every weight counts, under its name, and nothing else does, whichever ranks
 * have what of them. */
#include "support/test.h"
#include "../comm/world.h"
#include "support/full_config.h"
#include "support/training.h"

#include "base/hash.h"
#include "train/parallel/ranks.h"
#include "train/run/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    tm_device  *device;
    tm_trainer *trainer;
} fixture;

static fixture open_fixture(uint64_t seed)
{
    tm_step_options options = test_llama_options();
    fixture         f = { .device = test_device_open("cpu", 1) };
    f.trainer = test_trainer_open(f.device, &options, seed);
    return f;
}

static void close_fixture(fixture *f)
{
    tm_trainer_close(f->trainer);
    tm_device_close(f->device);
}

static bool is_weight(const tm_trainer *trainer, const char *name)
{
    const tm_graph *graph = tm_trainer_step_of(trainer)->graph;
    for (size_t i = 0; i < graph->n_tensors; i++)
        if (strcmp(graph->tensors[i].name, name) == 0 && graph->tensors[i].role == TM_ROLE_PARAMETER) return true;
    return false;
}

static void seeds_differ_and_repeat(void **state)
{
    (void)state;
    fixture a = open_fixture(1), b = open_fixture(1), c = open_fixture(2);
    assert_true(test_weights_hash(a.trainer) == test_weights_hash(b.trainer));
    assert_true(test_weights_hash(a.trainer) != test_weights_hash(c.trainer));
    close_fixture(&a);
    close_fixture(&b);
    close_fixture(&c);
}

static void flip(const tm_checkpoint_tensor *tensor, size_t at)
{
    unsigned char byte;
    tm_error      err = { 0 };
    assert_int_equal(tensor->memory->read(tensor->memory, tm_address_add(tensor->at, at), &byte, 1, &err), TM_OK);
    byte ^= 1;
    assert_int_equal(tensor->memory->write(tensor->memory, tm_address_add(tensor->at, at), &byte, 1, &err), TM_OK);
}

/* One bit in the first and in the last byte of each tensor that a checkpoint holds. */
static void every_weight_counts_and_no_moment(void **state)
{
    (void)state;
    size_t                      n, weights = 0;
    fixture                     f = open_fixture(1);
    const tm_checkpoint_tensor *tensors = tm_trainer_tensors(f.trainer, &n);
    uint64_t                    before = test_weights_hash(f.trainer);
    for (size_t i = 0; i < n; i++) {
        bool   weight = is_weight(f.trainer, tensors[i].name);
        size_t ends[2] = { 0, tensors[i].bytes - 1 };
        weights += weight;
        for (int k = 0; k < 2; k++) {
            flip(&tensors[i], ends[k]);
            assert_int_equal(test_weights_hash(f.trainer) != before, weight);
            flip(&tensors[i], ends[k]);
        }
    }
    assert_true(weights > 10 && weights < n);
    assert_true(test_weights_hash(f.trainer) == before);
    close_fixture(&f);
}

/* Names count, so that weights which change places are other weights; the order of the sum does not. */
static void the_sum_is_the_documented_one(void **state)
{
    (void)state;
    size_t                      n;
    fixture                     f = open_fixture(1);
    const tm_checkpoint_tensor *tensors = tm_trainer_tensors(f.trainer, &n);
    uint64_t                    sum = 0;
    for (size_t i = n; i-- > 0;) { /* backwards: order does not matter */
        if (!is_weight(f.trainer, tensors[i].name)) continue;
        tm_error err = { 0 };
        void    *values = malloc(tensors[i].bytes);
        assert_int_equal(tensors[i].memory->read(tensors[i].memory, tensors[i].at, values, tensors[i].bytes, &err),
                         TM_OK);
        uint64_t both[2] = { tm_hash(tensors[i].name, strlen(tensors[i].name)), tm_hash(values, tensors[i].bytes) };
        free(values);
        sum += tm_hash(both, sizeof both);
    }
    assert_true(test_weights_hash(f.trainer) == sum);
    close_fixture(&f);
}

/* --- of ranks ----------------------------------------------------------------------------------------------------- */

#define SHORT "--training.seq_len 12 --training.threads 1 --validation.enable false "
#define TINY                                                                                                           \
    "tiny-llama --model.n_layers 2 --model.dim 24 --model.n_heads 4 --model.n_kv_heads 2 --model.head_dim 6 "          \
    "--model.ffn_dim 40 --model.vocab_size 96 " SHORT
#define MIXTRAL TINY "--model.family mixtral --model.n_experts 4 --model.n_experts_per_token 2 --model.moe_ffn_dim 20 "
#define WIDE                                                                                                           \
    "tiny-llama --model.n_layers 2 --model.dim 128 --model.n_heads 4 --model.n_kv_heads 4 --model.head_dim 32 "        \
    "--model.ffn_dim 384 --model.vocab_size 96 --model.bias all " SHORT
#define FLUX "tiny-flux --training.threads 1 --validation.enable false --model.n_layers 1 --model.n_single_layers 1 "
#define LORA "--lora.rank 2 --lora.alpha 6 --lora.targets all-linear "
#define EXPERTS_LORA "--lora.rank 2 --lora.targets experts.gate_up_proj,experts.down_proj,wq "
#define NF4 WIDE LORA "--lora.base_format nf4 "
#define R(n) "--parallelism.ranks " #n " "
#define TP(n) "--parallelism.tensor_parallel_degree " #n " "
#define CP(n) "--parallelism.context_parallel_degree " #n " "
#define EP(n) "--parallelism.expert_parallel_degree " #n " "
#define PP(n) "--parallelism.pipeline_parallel_degree " #n " --training.grad_accumulation 4 "
#define COPIES(n) "--parallelism.data_parallel_replicate_degree " #n " "
#define ORDER "--parallelism.pipeline_parallel_schedule "
#define DIVIDED "--parallelism.pipeline_parallel_divide_head true "

enum { MOST = 8 };

typedef struct {
    tm_step_options options;
    uint64_t        weights[MOST], base[MOST];
} divided;

/* Nothing is trained: weights begin as the same ones in all layouts. */
static void open_rank(tm_comm *comm, void *context)
{
    divided        *d = context;
    tm_step_options o = d->options;
    tm_ranks        ranks = { 0 };
    tm_device      *device;
    tm_trainer     *trainer;
    int             rank = comm ? tm_comm_rank(comm) : 0;
    o.layout.rank = rank;
    CHECK_OK(tm_device_open("cpu", 1, &device, err));
    if (comm) CHECK_OK(tm_ranks_open(&o.layout.mesh, comm, &ranks, err));
    if (comm) tm_device_join(device, &ranks.groups);
    CHECK_OK(tm_trainer_open(device, &o, 7, &trainer, err));
    CHECK_OK(tm_trainer_weights_hash(trainer, &d->weights[rank], err));
    CHECK_OK(tm_trainer_base_hash(trainer, &d->base[rank], err));
    tm_trainer_close(trainer);
    tm_device_close(device);
    if (comm) tm_ranks_close(&ranks);
}

static divided open_layout(const char *model, const char *layout)
{
    divided        d = { 0 };
    char           words[2000];
    tm_run_options options;
    tm_error       err = { 0 };
    tm_config     *config = test_full_config();
    snprintf(words, sizeof words, "%s%s", model, layout);
    if (test_read_run(config, words, &options, &err) != TM_OK) fail_msg("%s: %s", words, err.text);
    d.options = options.step;
    int ranks = tm_mesh_ranks(&options.step.layout.mesh);
    assert_true(ranks <= MOST);
    if (ranks == 1)
        open_rank(NULL, &d);
    else
        run_world(ranks, NULL, 120, false, open_rank, &d);
    for (int r = 0; r < ranks; r++)
        if (d.weights[r] != d.weights[0] || d.base[r] != d.base[0])
            fail_msg("%s: rank %d has %016llx, %016llx, rank 0 %016llx, %016llx", words, r,
                     (unsigned long long)d.weights[r], (unsigned long long)d.base[r], (unsigned long long)d.weights[0],
                     (unsigned long long)d.base[0]);
    tm_config_destroy(config);
    return d;
}

static void all_layouts_have_the_sum_of_one_rank(void **state)
{
    static const struct {
        const char *model, *layouts[9];
    } rows[] = {
        { TINY "--model.bias all ", { R(2) COPIES(2), R(3), R(6) TP(2), R(3) CP(3), R(4) PP(2) TP(2) } },
        { TINY "--model.n_layers 4 ", { R(2) PP(2) ORDER "ZBVZeroBubble " } },
        { TINY "--model.tied true ", { R(2) TP(2), R(2) PP(2), R(4) PP(2) DIVIDED } },
        { TINY "--training.dtype bfloat16 --training.regime pure --model.vocab_size 101 ",
          { R(3), R(2) PP(2) DIVIDED } },
        { TINY LORA, { R(6) TP(2), R(2) PP(2) } },
        { NF4, { R(3), R(6) TP(2), R(2) PP(2) } },
        { WIDE LORA "--lora.base_format float8_e4m3 ", { R(3), R(2) TP(2) } },
        { MIXTRAL, { R(4) EP(2), R(4) EP(4) TP(2), R(4) EP(2) PP(2) } },
        { MIXTRAL EXPERTS_LORA, { R(2) EP(2), R(2) TP(2) } },
        { FLUX LORA "--lora.base_format nf4 ", { R(3), R(2) TP(2) } },
        { FLUX, { R(4) TP(2), R(2) PP(2) } },
        { WIDE LORA "--lora.base_format nf4 --model.ffn_dim 16512 --model.n_layers 1 ", { R(2) TP(2) } },
        /* matrices of more bytes than are made, and read, at once */
        { TINY "--model.dim 64 --model.vocab_size 36000 --model.n_layers 1 --optimizer.name SGD ", { R(2) TP(2) } },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        divided alone = open_layout(rows[i].model, "");
        assert_true(alone.weights[0] != 0);
        assert_true((alone.base[0] != 0) == (alone.options.adapters.rank > 0));
        for (int k = 0; k < 9 && rows[i].layouts[k]; k++) {
            divided d = open_layout(rows[i].model, rows[i].layouts[k]);
            if (d.weights[0] != alone.weights[0] || d.base[0] != alone.base[0])
                fail_msg("%s %s: %016llx, %016llx, one rank has %016llx, %016llx", rows[i].model, rows[i].layouts[k],
                         (unsigned long long)d.weights[0], (unsigned long long)d.base[0],
                         (unsigned long long)alone.weights[0], (unsigned long long)alone.base[0]);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(seeds_differ_and_repeat),
    cmocka_unit_test(every_weight_counts_and_no_moment),
    cmocka_unit_test(the_sum_is_the_documented_one),
    cmocka_unit_test(all_layouts_have_the_sum_of_one_rank),
};

TM_TESTS(tests, NULL, NULL)
