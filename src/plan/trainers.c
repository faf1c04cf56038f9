/* SPDX-License-Identifier: Apache-2.0 */
/* plan/trainers.c - the trainers that are described, and the constants. */
#include "plan/theirs.h"

#include "base/text.h"

#include <string.h>

static const tm_parameter_row parameters[] = {
#define TM_PARAMETER(id, name, unit, prior, doubt, fitted, help) { name, unit, prior, doubt, fitted, help },
#include "plan/parameters.def"
#undef TM_PARAMETER
};

const tm_parameter_row *tm_parameter_rows(void)
{
    return parameters;
}

tm_parameters tm_parameters_fitted(void)
{
    tm_parameters p;
    for (int i = 0; i < TM_PARAMETER_COUNT; i++) p.of[i] = parameters[i].fitted;
    return p;
}

tm_hardware tm_hardware_reached(const tm_hardware *hardware, const tm_parameters *p)
{
    tm_hardware  hw = *hardware;
    double      *of = hw.number;
    const double attention =
        p->of[TM_PARAMETER_ATTENTION] * (strcmp(hw.arch, "gfx942") == 0      ? p->of[TM_PARAMETER_ATTENTION_CDNA3]
                                         : strcmp(hw.arch, "gfx950") == 0    ? p->of[TM_PARAMETER_ATTENTION_CDNA4]
                                         : strncmp(hw.arch, "sm_10", 5) == 0 ? p->of[TM_PARAMETER_ATTENTION_BLACKWELL]
                                                                             : 1);
    if (hw.cpu) return hw;
    of[TM_HARDWARE_PRODUCT_F32] *= p->of[TM_PARAMETER_PRODUCT_BF16];
    of[TM_HARDWARE_PRODUCT_BF16] *= p->of[TM_PARAMETER_PRODUCT_BF16];
    of[TM_HARDWARE_PRODUCT_FP8] *= p->of[TM_PARAMETER_PRODUCT_FP8];
    of[TM_HARDWARE_PRODUCT_FP4] *= p->of[TM_PARAMETER_PRODUCT_FP4];
    of[TM_HARDWARE_ATTENTION_FORWARD] *= attention;
    of[TM_HARDWARE_ATTENTION_BACKWARD] *= attention;
    of[TM_HARDWARE_LINK_SHARE] *= p->of[TM_PARAMETER_COLLECTIVES];
    of[TM_HARDWARE_NIC_SHARE] *= p->of[TM_PARAMETER_COLLECTIVES];
    of[TM_HARDWARE_LINK_DELAY] *= p->of[TM_PARAMETER_DELAY];
    of[TM_HARDWARE_NIC_DELAY] *= p->of[TM_PARAMETER_DELAY];
    return hw;
}

static const tm_trainer_row trainers[] = {
    { .name = "ptb",
      .logits = TM_PARAMETER_LOGITS_PTB,
      .wide_norms = true,
      .te_casts = true,
      .sources = "PTB",
      .sharing = TM_THEY_SHARE_ALL,
      .fusion = TM_THEY_COMPILE,
      .factor = TM_PARAMETER_AS_PTB,
      .what = "the benchmarks of AMD's PyTorch training container" },
    { .name = "script",
      .logits = TM_PARAMETER_LOGITS_SCRIPT,
      .bare = true,
      .sources = "M350",
      .sharing = TM_THEY_SHARE_NOTHING,
      .fusion = TM_THEY_EAGER,
      .foreach = true,
      .factor = TM_PARAMETER_AS_SCRIPT,
      .what = "a plain training loop, DDP" },
    { .name = "torchtune",
      .logits = TM_PARAMETER_LOGITS_CHUNKS,
      .bare = true,
      .sources = "",
      .sharing = TM_THEY_SHARE_ALL,
      .fusion = TM_THEY_COMPILE,
      .factor = TM_PARAMETER_AS_TUNE,
      .what = "torchtune, FSDP, compiled" },
    { .name = "torchtitan",
      .again = TM_AGAIN_PER_OP,
      .logits = TM_PARAMETER_LOGITS_EAGER,
      .reserved = true,
      .sources = "TT,PTT",
      .sharing = TM_THEY_SHARE_ALL,
      .fusion = TM_THEY_COMPILE,
      .flash_2 = true,
      .wide = true,
      .unbalanced_ring = true,
      .factor = TM_PARAMETER_AS_TITAN,
      .what = "torchtitan, FSDP, compiled" },
    { .name = "untuned",
      .logits = TM_PARAMETER_LOGITS_EAGER,
      .sources = "CVS",
      .sharing = TM_THEY_SHARE_ALL,
      .fusion = TM_THEY_EAGER,
      .flash_2 = true,
      .wide = true,
      .unbalanced_ring = true,
      .factor = TM_PARAMETER_AS_UNTUNED,
      .what = "torchtitan, not compiled, not tuned" },
    { .name = "megatron",
      .logits = TM_PARAMETER_LOGITS,
      .sources = "MB,LL3,PAP,MLM",
      .sharing = TM_THEY_SHARE_OPTIMIZER,
      .fusion = TM_THEY_FUSE,
      .overlaps_experts = true,
      .factor = TM_PARAMETER_AS_MEGATRON,
      .what = "Megatron with Transformer Engine, distributed optimizer" },
    { .name = "megatron-2021",
      .logits = TM_PARAMETER_LOGITS,
      .early = true,
      .sources = "NAR,KOR",
      .sharing = TM_THEY_SHARE_OPTIMIZER,
      .fusion = TM_THEY_FUSE,
      .factor = TM_PARAMETER_AS_MEGATRON_2021,
      .what = "Megatron-LM of 2021 and 2022, as its papers measured it" },
    { .name = "megascale",
      .logits = TM_PARAMETER_LOGITS,
      .sources = "MSC",
      .sharing = TM_THEY_SHARE_OPTIMIZER,
      .fusion = TM_THEY_FUSE,
      .factor = TM_PARAMETER_AS_MEGASCALE,
      .what = "MegaScale (Jiang et al. 2024)" },
    { .name = "automodel",
      .logits = TM_PARAMETER_LOGITS_EAGER,
      .sources = "AM",
      .sharing = TM_THEY_SHARE_ALL,
      .fusion = TM_THEY_COMPILE,
      .flash_2 = true,
      .wide = true,
      .unbalanced_ring = true,
      .sends_once = true,
      .bare = true,
      .factor = TM_PARAMETER_AS_AUTOMODEL,
      .what = "NeMo AutoModel, FSDP" },
    { .name = "mlperf",
      .logits = TM_PARAMETER_LOGITS,
      .sources = "ML51,ML60",
      .sharing = TM_THEY_SHARE_OPTIMIZER,
      .fusion = TM_THEY_FUSE,
      .overlaps_experts = true,
      .factor = TM_PARAMETER_AS_MLPERF,
      .what = "MLPerf submissions" },
    { .name = "foundry",
      .logits = TM_PARAMETER_LOGITS_EAGER,
      .te_casts = true,
      .sources = "FND",
      .sharing = TM_THEY_SHARE_ALL,
      .fusion = TM_THEY_EAGER,
      .flash_2 = true,
      .factor = TM_PARAMETER_AS_FOUNDRY,
      .what = "llm-foundry, FSDP" },
    { .name = "primus",
      .keeps_all = true,
      .permutes_apart = true,
      .logits = TM_PARAMETER_LOGITS,
      .sources = "PRJ,PPL,PRD",
      .sharing = TM_THEY_SHARE_OPTIMIZER,
      .fusion = TM_THEY_FUSE,
      .factor = TM_PARAMETER_AS_PRIMUS,
      .what = "Primus with Megatron on AMD GPUs" },
};

const tm_trainer_row *tm_trainer_row_at(size_t i)
{
    return i < sizeof trainers / sizeof trainers[0] ? &trainers[i] : NULL;
}

const tm_trainer_row *tm_trainer_row_find(const char *name)
{
    for (size_t i = 0; i < sizeof trainers / sizeof trainers[0]; i++)
        if (tm_names_equal(trainers[i].name, name)) return &trainers[i];
    return NULL;
}

/* Is `word` one of a list that commas part? */
static bool listed(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = list; n > 0 && *at; at += strcspn(at, ",") + (at[strcspn(at, ",")] == ','))
        if (strcspn(at, ",") == n && strncmp(at, word, n) == 0) return true;
    return false;
}

const tm_trainer_row *tm_trainer_row_of(const char *source)
{
    for (size_t i = 0; i < sizeof trainers / sizeof trainers[0]; i++)
        if (listed(trainers[i].sources, source)) return &trainers[i];
    return NULL;
}

const char *tm_their_line_name(tm_their_line line)
{
    static const char *const names[] = {
#define X(id, name) name,
        TM_THEIR_TIME_LIST(X)
#undef X
    };
    return names[line];
}

const char *tm_their_class_name(tm_their_class which)
{
    static const char *const names[] = {
#define X(id, name) name,
        TM_THEIR_MEMORY_LIST(X)
#undef X
    };
    return names[which];
}
