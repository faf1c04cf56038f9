/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever ranks divide - matrices, sequences, experts, blocks, the optimizer's state - every layout begins with the
 * weights of one rank, to the bit, and a rank holds its part of the model and no more. How they train:
 * tests/differential. */
#include "support/test.h"
#include "layout_words.h"
#include "ranks_fixture.h"
#include "support/full_config.h"
#include "train/run/run.h"

#define GPT TINY "--model.family gpt --model.tied true --model.max_seq_len 12 "
#define IMAGES                                                                                                         \
    "tiny-flux --model.dim 32 --model.n_heads 2 --model.head_dim 16 --model.rope_axes 4,6,6 --model.n_layers 2 "       \
    "--model.n_single_layers 2 --model.image_size 64 --model.text_len 8 --training.local_batch_size 2 "                \
    "--training.threads 1 --validation.enable false "
#define LATENT                                                                                                         \
    TINY "--model.family deepseek --model.n_kv_heads null --model.head_dim null --model.kv_lora_rank 16 "              \
         "--model.qk_nope_head_dim 8 "                                                                                 \
         "--model.qk_rope_head_dim 8 --model.v_head_dim 8 --model.n_experts 4 --model.n_experts_per_token 2 "          \
         "--model.moe_ffn_dim 20 --model.n_shared_experts 1 --model.n_dense_layers 1 "
#define LORA(targets) "--lora.rank 2 --lora.targets " targets " "
#define DORA LORA("all-linear") "--lora.dora true "
#define WIDE "--model.dim 256 --model.n_kv_heads 4 --model.head_dim 32 --model.ffn_dim 256 --training.seq_len 16 "
#define FOUR TINY "--model.n_layers 4 "
#define HEAD "--parallelism.pipeline_parallel_divide_head true "
#define ORDER(name) "--parallelism.pipeline_parallel_schedule " name " "

/* `parts`: into how many the layout divides what outlives a step. 0: some of it lies on every rank. */
typedef struct {
    const char *model, *layout;
    int         parts;
} row;

static const row rows[] = {
    { TINY, R(2) COPIES(2), 1 },
    { TINY, R(3), 3 },
    { TINY, R(5), 5 },
    { TINY, R(3) STRATEGY "optim", 0 },
    { TINY, R(4) COPIES(2) STRATEGY "optim_grads", 0 },
    { TINY, R(2) TP(2), 2 },
    { TINY "--model.n_kv_heads 4 ", R(4) TP(4), 4 },
    { TINY, R(4) TP(2), 4 },
    { TINY, R(2) TP(2) "--parallelism.enable_sequence_parallel false", 2 },
    { TINY "--model.bias all --model.qk_norm true --model.tied true ", R(4) TP(2), 4 },
    { TINY, R(3) CP(3), 3 },
    { GPT, R(2) TP(2), 2 },
    { GPT, R(4), 4 },
    { IMAGES, R(2) TP(2), 0 },
    { IMAGES, R(2) CP(2), 2 },
    { MIXTURE, R(2) EP(2), 2 },
    { MIXTURE, R(4) EP(4) TP(2), 4 },
    { LATENT, R(2) TP(2), 2 },
    { LATENT, R(4) EP(2) TP(2), 0 },
    /* stages: the first one has the embedding, the last one the output layer */
    { TINY, PP(2) R(2), 0 },
    { TINY, PP(2) R(4), 0 },
    { FOUR, PP(2) R(2) ORDER("Interleaved1F1B"), 0 },
    { FOUR, PP(2) R(2) HEAD ORDER("ZBVZeroBubble"), 2 },
    { FOUR, PP(2) R(2) HEAD ORDER("DualPipeV") "--training.grad_accumulation 4", 2 },
    { TINY "--model.tied true ", PP(2) R(2) HEAD, 1 },
    { IMAGES, PP(2) R(2), 0 },
    { MIXTURE, PP(2) EP(2) R(4), 0 },
    /* adapters: their own values, those of a base in blocks, lengths of whole rows */
    { TINY LORA("all-linear"), R(2), 2 },
    { TINY LORA("all-linear") "--lora.init gaussian ", R(4) TP(2), 0 },
    { TINY LORA("wqkv,w2,lm_head") "--lora.base_format bfloat16 ", R(2) TP(2), 0 },
    { TINY DORA, R(3), 3 },
    { TINY DORA, R(2) TP(2), 0 },
    { TINY DORA, PP(2) R(2), 0 },
    { TINY DORA "--lora.targets wq,lm_head --model.vocab_size 91 ", R(2) TP(2), 0 },
    { TINY LORA("all-linear") WIDE "--lora.base_format nf4 ", R(2) TP(2), 0 },
    { TINY DORA WIDE "--lora.base_format nf4 ", R(3), 0 },
    { TINY DORA WIDE "--lora.base_format nf4 ", R(4) TP(2), 0 },
    { TINY DORA WIDE "--lora.base_format float8_e4m3 ", R(2) TP(2), 0 },
    { IMAGES LORA("all-linear") "--lora.dora true --lora.exclude lin ", R(2) TP(2), 0 },
    { MIXTURE LORA("experts.gate_up_proj,experts.down_proj"), R(2) EP(2), 2 },
    { MIXTURE LORA("experts.gate_up_proj,experts.down_proj"), R(2) TP(2), 0 },
    { TINY "--optimizer.groups=[{\"params\":\"layers.0.*\",\"trained\":\"false\",\"format\":\"float8_e4m3\"}] ", R(3),
      0 },
    { TINY "--training.dtype bfloat16 --training.regime pure --model.vocab_size 101 ", R(3), 3 },
    { TINY "--training.dtype bfloat16 --training.regime pure --model.vocab_size 101 ", PP(2) R(2) HEAD, 1 },
    { TINY DORA WIDE "--lora.base_format nf4 ", PP(2) R(2), 0 },
    { IMAGES LORA("all-linear") "--lora.base_format nf4 ", R(3), 0 },
    /* matrices of more bytes than are made, and read, at once */
    { TINY "--model.n_layers 1 --model.dim 64 --model.vocab_size 36000 --optimizer.name SGD ", R(2) TP(2), 2 },
    { TINY LORA("all-linear") WIDE "--model.n_layers 1 --model.ffn_dim 16512 --lora.base_format nf4 ", R(2) TP(2), 0 },
};

enum { LARGE = 2 }; /* the last rows: in full tests */

typedef struct {
    tm_step_options o;
    uint64_t        weights[MOST_RANKS], base[MOST_RANKS];
    size_t          states[MOST_RANKS];
} opened;

static void open_rank(tm_comm *comm, void *context)
{
    opened         *all = context;
    int             rank = comm ? tm_comm_rank(comm) : 0;
    tm_step_options o = all->o;
    tm_device      *device;
    tm_trainer     *trainer;
    tm_ranks        ranks = { 0 };
    o.layout.rank = rank;
    if (comm) CHECK_OK(tm_ranks_open(&o.layout.mesh, comm, &ranks, err));
    CHECK_OK(tm_device_open("cpu", 1, &device, err));
    if (comm) tm_device_join(device, &ranks.groups);
    CHECK_OK(tm_trainer_open(device, &o, 7, &trainer, err));
    if (comm) check_memory(trainer, device, comm);
    all->states[rank] = state_bytes(tm_trainer_step_of(trainer));
    CHECK_OK(tm_trainer_weights_hash(trainer, &all->weights[rank], err));
    CHECK_OK(tm_trainer_base_hash(trainer, &all->base[rank], err));
    CHECK(all->weights[rank] != 0 && (all->base[rank] != 0) == (o.adapters.rank > 0));
    tm_trainer_close(trainer);
    tm_device_close(device);
    if (comm) tm_ranks_close(&ranks);
}

/* The ranks; 1: one, without a world. */
static int open_words(const char *model, const char *layout, opened *out)
{
    char           words[2000];
    tm_run_options options;
    snprintf(words, sizeof words, "%s%s", model, layout);
    tm_config *config = test_run_of(words, &options);
    *out = (opened){ .o = options.step };
    int ranks = tm_mesh_ranks(&options.step.layout.mesh);
    if (ranks == 1)
        open_rank(NULL, out);
    else
        run_world(ranks, NULL, 120, false, open_rank, out);
    tm_config_destroy(config);
    return ranks;
}

/* What is wrong with a row is added to `out`; `one`: what one rank has of the model. */
static void look_at(const row *at, const opened *one, tm_text *out)
{
    opened all;
    size_t sum = 0;
    int    ranks = open_words(at->model, at->layout, &all);
    size_t share = at->parts > 0 ? one->states[0] / (size_t)at->parts : one->states[0] - 1;
    for (int r = 0; r < ranks; r++) {
        if (all.weights[r] != one->weights[0]) tm_text_printf(out, "rank %d begins with other weights\n", r);
        if (all.base[r] != one->base[0]) tm_text_printf(out, "rank %d has another hash of the base\n", r);
        if (all.states[r] > (at->parts > 0 ? share + share / 5 : share))
            tm_text_printf(out, "rank %d holds %zu bytes, of one rank's %zu\n", r, all.states[r], one->states[0]);
        sum += all.states[r];
    }
    if (sum < one->states[0]) tm_text_printf(out, "all ranks hold %zu bytes, one rank %zu\n", sum, one->states[0]);
}

TEST(every_layout_begins_as_one_rank_and_holds_its_part)
{
    tm_text wrong = { 0 };
    opened  one;
    size_t  n = sizeof rows / sizeof rows[0] - (test_is_full() ? 0 : LARGE);
    for (size_t i = 0; i < n; i++) {
        size_t before = wrong.length;
        if (i == 0 || strcmp(rows[i].model, rows[i - 1].model) != 0) open_words(rows[i].model, "", &one);
        look_at(&rows[i], &one, &wrong);
        if (wrong.length > before) tm_text_printf(&wrong, "  %s%s\n", rows[i].model, rows[i].layout);
    }
    if (wrong.length > 0) fail_msg("%s", wrong.data);
}
