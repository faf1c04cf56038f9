/* SPDX-License-Identifier: Apache-2.0 */
/* cli/recipes.c - the batch, sequence, recomputation and rates with which entries of the MAD catalogue and its report
 * scripts train (ROCm/MAD, scripts/pytorch_train of 2025; Primus' pages of v25.10; AMD's page of Megatron-LM, v25.6 and
 * later). */
#include "cli/habits.h"

#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A row: who trains which presets so; "a|b" are one of several. batches: one number, or one for each GPU, the first is
 * that of any other; "2x8": 8 of 2 in a step, its global batch on 8 GPUs is 128. The first row of a preset is its
 * entry's first task; a row without a precision is for all. */
typedef struct {
    const char *by, *task, *presets, *precision, *batches, *words;
} recipe;

#define TITAN "--training.seq_len 8192 --lr_scheduler.warmup_steps 10 --activation_checkpoint.mode "
#define TUNE(seq) "--training.steps 20 --training.seq_len " seq
#define MEGATRON(seq, recompute) "--training.seq_len " seq " --activation_checkpoint.mode " recompute
#define FLUX                                                                                                           \
    "--data.flow_protocol fluxbenchmark --training.regime pure --optimizer.beta2 0.999 --optimizer.weight_decay 0 "    \
    "--training.max_norm 0"
#define TUNES "finetune_fw|finetune_lora|finetune_qlora"

static const recipe recipes[] = {
    /* the container's scripts: torchtitan on eight GPUs, torchtune with packed rows, FluxBenchmark, PEFT */
    { "mad", "pretrain", "llama3.1_8B", "BF16", "18", TITAN "full --optimizer.lr 3e-4" },
    { "mad", "pretrain", "llama3.1_8B", "FP8", "4", TITAN "none --optimizer.lr 3e-4" },
    { "mad", "pretrain", "llama3.1_70B", "BF16", "4", TITAN "full --optimizer.lr 1.5e-4" },
    { "mad", "pretrain", "llama3.1_70B", "FP8", "3", TITAN "full --optimizer.lr 1.5e-4" },
    { "mad", "pretrain", "flux.1_dev", NULL, "10", FLUX },
    { "mad", "posttrain", "flux.1_dev", NULL, "MI300X=10|MI325X=10|MI350X=16|MI355X=16", FLUX }, /* of 2026 */
    { "mad", "finetune_qlora|finetune_lora|finetune_fw", "llama3.1_405B", NULL, "2", TUNE("8192") },
    { "mad", TUNES, "llama3.1_70B|llama3.3_70B|llama3_70B", NULL, "4", TUNE("8192") },
    { "mad", TUNES, "llama3.1_8B|llama3_8B", NULL, "16", TUNE("8192") },
    { "mad", TUNES, "llama3.2_1B|llama3.2_3B", NULL, "16", TUNE("8192") },
    { "mad", "finetune_lora|finetune_qlora|finetune_fw", "llama2_70B", NULL, "8", TUNE("4096") },
    { "mad", TUNES, "llama2_7B|llama2_13B", NULL, "32", TUNE("4096") },
    { "mad", "HF_finetune_lora", "llama2_70B|llama3.1_70B", NULL, "8",
      "--training.steps 5 --training.seq_len 3072 --training.grad_accumulation 4 --optimizer.weight_decay 1e-4 "
      "--lr_scheduler.warmup_steps 0" },
    /* Primus with torchtitan: the batches of its page for each GPU */
    { "primus", "pretrain", "llama3.1_8B", "BF16", "MI300X=4|MI325X=6|MI350X=6|MI355X=6", TITAN "none" },
    { "primus", "pretrain", "llama3.1_8B", "FP8", "MI300X=5|MI325X=7|MI350X=8|MI355X=8", TITAN "none" },
    { "primus", "pretrain", "llama3.1_70B", "BF16", "MI300X=4|MI325X=6|MI350X=8|MI355X=8",
      TITAN "full --optimizer.lr 1.5e-4" },
    { "primus", "pretrain", "llama3.1_70B", "FP8", "MI300X=3|MI325X=5|MI350X=6|MI355X=6",
      TITAN "full --optimizer.lr 1.5e-4" },
    { "primus", "pretrain", "deepseek_v3_16B", NULL, "MI300X=8|MI325X=10|MI350X=16|MI355X=16",
      "--training.seq_len 4096 --optimizer.lr 2.2e-4 --parallelism.expert_parallel_degree 8 "
      "--debug.moe_force_load_balance true" },
    /* Megatron-LM, by itself or in Primus: MBS and BS of its page, RECOMPUTE=1 recomputes all blocks */
    { "megatron", "pretrain", "llama3.1_8B", NULL, "MI300X=2x8|MI325X=2x8|MI350X=4x16|MI355X=4x16",
      MEGATRON("8192", "none") },
    { "megatron", "pretrain", "llama3.1_70B", NULL, "3", MEGATRON("8192", "full") },
    { "megatron", "pretrain", "llama3.3_70B", NULL, "2", MEGATRON("8192", "full") },
    { "megatron", "pretrain", "llama2_7B", NULL, "4x8", MEGATRON("4096", "none") },
    { "megatron", "pretrain", "llama2_70B", NULL, "7", MEGATRON("4096", "full") },
    { "megatron", "pretrain", "mixtral_8x7B", NULL, "1x2", MEGATRON("4096", "none") },
    { "megatron", "pretrain", "deepseek_v2_lite", NULL, "4x8", MEGATRON("4096", "none") },
};

static bool among(const char *list, const char *word)
{
    for (size_t n; *list; list += n + (list[n] == '|')) {
        n = strcspn(list, "|");
        if (strlen(word) == n && strncmp(list, word, n) == 0) return true;
    }
    return false;
}

static const recipe *find(const char *by, const char *task, const char *preset, const char *precision)
{
    for (size_t i = 0; i < sizeof recipes / sizeof recipes[0]; i++) {
        const recipe *r = &recipes[i];
        if (strcmp(r->by, by) == 0 && among(r->presets, preset) && (!task || among(r->task, task)) &&
            (!precision || !r->precision || tm_names_equal(r->precision, precision)))
            return r;
    }
    return NULL;
}

/* "10" of "MI300X=8|MI325X=10" for an MI325X; *of: of which GPU it is, NULL: of any. */
static int batch_of(tm_arena *arena, const recipe *r, const char *gpu, int *times, const char **of)
{
    const char *chosen = r->batches;
    for (const char *p = r->batches; gpu && p; p = strchr(p, '|') ? strchr(p, '|') + 1 : NULL) {
        size_t n = strcspn(p, "=|");
        if (p[n] == '=' && strlen(gpu) == n && strncmp(p, gpu, n) == 0) chosen = p;
    }
    const char *equals = strchr(chosen, '=');
    *of = equals ? tm_arena_text_n(arena, chosen, (size_t)(equals - chosen)) : NULL;
    char *rest;
    long  batch = strtol(equals ? equals + 1 : chosen, &rest, 10);
    *times = *rest == 'x' ? atoi(rest + 1) : 1;
    return (int)batch;
}

tm_habit_recipe tm_habit_recipe_find(tm_arena *arena, const char *by, const char *task, const char *preset,
                                     const char *precision, const char *gpu)
{
    const recipe   *r = find(by, task, preset, precision);
    tm_habit_recipe found = { .n = 0 };
    if (!r && precision) r = find(by, task, preset, NULL); /* as fast as it may be, what is measured is the same */
    if (!r) return found;
    int   times, batch = batch_of(arena, r, gpu, &times, &found.gpu);
    char *accumulated = times > 1 ? tm_arena_format(arena, "--training.grad_accumulation %d ", times) : "";
    char *words = tm_arena_format(arena, "--training.local_batch_size %d %s%s", batch, accumulated, r->words);
    found.task = tm_arena_text_n(arena, r->task, strcspn(r->task, "|"));
    found.text = tm_arena_text(arena, words);
    for (char *word = strtok(words, " "); word; word = strtok(NULL, " ")) {
        TM_ASSERT(found.n < TM_HABIT_RECIPE_WORDS);
        found.words[found.n++] = word;
    }
    return found;
}
