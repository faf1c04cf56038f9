/* SPDX-License-Identifier: Apache-2.0 */
/* Trainings that must come to the same numbers do: random configurations of small models, each beside one rank,
 * float64, other threads, the device late, a run that is stopped and resumed, or one without what changes no bit.
 *
 *   all random SEED SECONDS  cases of a seed for so many seconds of processor time; ends at the first failure
 *   all case 'NAME'          one case again, by the name that a failure prints
 *
 * TM_DIFFERENTIAL_SHOWS=1 prints every case; with TM_DIFFERENTIAL_PLAIN=1 one that fails is not made smaller.
 */
#include "judge.h"

#include "support/folder.h"
#include "support/source_files.h"

#include <sys/resource.h>

#include "support/test.h"

typedef struct {
    int cases, draws, made[COMPARISONS], impossible[COMPARISONS];
} sum;

static double seconds_used(void)
{
    double        seconds = 0;
    struct rusage used;
    int           whose[] = { RUSAGE_SELF, RUSAGE_CHILDREN };
    for (int i = 0; i < 2; i++) {
        getrusage(whose[i], &used);
        seconds += (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                   (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
    }
    return seconds;
}

/* The next valid case from *number on. False: it fails, `out` says how. */
static bool next_case(uint64_t seed, uint64_t *number, sum *counts, tm_text *out)
{
    for (;; (*number)++) {
        setting   s = draw(seed, *number);
        double    begin = seconds_used();
        judgement j = judge_apart(&s);
        counts->draws++;
        for (int c = 0; c < COMPARISONS; c++) counts->made[c] += j.made[c], counts->impossible[c] += j.impossible[c];
        if (getenv("TM_DIFFERENTIAL_SHOWS")) {
            tm_text name = { 0 };
            name_of(&s, &name);
            printf("%llu, %.2f s, %s: %s %s\n", (unsigned long long)*number, seconds_used() - begin, name.data,
                   (const char *[]){ "died", "passed", "refused", "failed" }[j.outcome], j.text);
            tm_text_fini(&name);
        }
        if (j.outcome == REFUSED) continue;
        counts->cases++;
        (*number)++;
        if (j.outcome == PASSED) return true;
        if (!getenv("TM_DIFFERENTIAL_PLAIN")) s = shrink(s, &j);
        tm_text_printf(out, "seed %llu, draw %llu: ", (unsigned long long)seed, (unsigned long long)*number - 1);
        describe_failure(&s, &j, out);
        return false;
    }
}

static void print_sum(const sum *counts)
{
    printf("# %d cases of %d draws (others are refused);", counts->cases, counts->draws);
    for (int c = 0; c < COMPARISONS; c++)
        printf(" %s %d%s", comparisons[c] + strlen("compare."), counts->made[c], c + 1 < COMPARISONS ? "," : "\n");
}

/* --- tests -------------------------------------------------------------------------------------------------------- */

enum { SEEDS = 3, MANY = 60 };

static void judge_cases(uint64_t seed, int cases)
{
    uint64_t number = 0;
    tm_text  out = { 0 };
    sum      counts = { 0 };
    while (counts.cases < cases)
        if (!next_case(seed, &number, &counts, &out)) fail_msg("%s", out.data);
    print_sum(&counts);
}

/* One of each of some seeds. */
static void judge_few(void **state)
{
    uint64_t first = (uint64_t)(uintptr_t)*state;
    test_source_files_write();
    for (uint64_t seed = first; seed < first + SEEDS; seed++) judge_cases(seed, 1);
}

static void judge_many(void **state)
{
    test_source_files_write();
    judge_cases((uint64_t)(uintptr_t)*state, MANY);
}

static void judge_kept(void **state)
{
    const char *name = *state;
    setting     s;
    test_source_files_write();
    if (!setting_of(name, &s)) fail_msg("no case: %s", name);
    judgement j = judge_apart(&s);
    if (j.outcome != PASSED) fail_msg("%s: %s", name, j.text);
}

/* What few random cases have. */
#define KEPT(what, name)                                                                                               \
    {                                                                                                                  \
        "kept: " what, judge_kept, NULL, NULL, name                                                                    \
    }
#define QUICK(n)                                                                                                       \
    {                                                                                                                  \
        "cases of three seeds from " #n, judge_few, NULL, NULL, (void *)n                                              \
    }
#define FULL(n)                                                                                                        \
    {                                                                                                                  \
        TM_FULL "cases of seed " #n, judge_many, NULL, NULL, (void *)n                                                 \
    }
static const struct CMUnitTest tests[] = {
    KEPT("tied stages",
         "family=llama model.n_layers=4 training.grad_accumulation=4 model.tied=true "
         "parallelism.pipeline_parallel_degree=2 parallelism.pipeline_parallel_schedule=1F1B compare.unclipped=bits"),
    KEPT("two ways", "family=gpt model.n_layers=4 training.grad_accumulation=4 parallelism.pipeline_parallel_degree=2 "
                     "schedule.two_ways=DualPipeV compare.unclipped=bits compare.late=bits"),
    KEPT("experts and stages", "family=qwen3_moe model.n_layers=3 training.grad_accumulation=2 model.moe_aux_loss=0.1 "
                               "parallelism.data_parallel_shard_degree=2 parallelism.pipeline_parallel_degree=2 "
                               "parallelism.expert_parallel_degree=2 compare.float64=one"),
    KEPT("latents in a ring",
         "family=deepseek parallelism.tensor_parallel_degree=2 parallelism.context_parallel_degree=2 "
         "parallelism.context_parallel_rotate_method=alltoall compare.float64=one"),
    KEPT("adapters", "family=llama model.n_layers=3 training.grad_accumulation=2 lora.rank=2 lora.dropout=0.25 "
                     "lora.targets=all-linear,lm_head parallelism.tensor_parallel_degree=2 "
                     "activation_checkpoint.mode=full training.offload=all compare.float64=one compare.neutral=bits"),
    KEPT("images",
         "family=flux training.grad_accumulation=2 lora.rank=2 lora.dora=true parallelism.data_parallel_shard_degree=2 "
         "parallelism.tensor_parallel_degree=2 compare.float64=one compare.late=bits"),
    KEPT("images of stages", "family=flux model.n_layers=3 quantize.recipe=fp8_tensorwise lora.rank=2 "
                             "parallelism.pipeline_parallel_degree=2 compare.float64=one compare.late=bits"),
    KEPT("images of stages, all trained", "family=flux model.n_layers=3 quantize.recipe=fp8_tensorwise "
                                          "parallelism.pipeline_parallel_degree=2 compare.float64=one"),
    KEPT("text of stages", "family=llama training.grad_accumulation=2 data.source=text "
                           "parallelism.pipeline_parallel_degree=2 compare.float64=one compare.late=bits"),
    KEPT("text of divided matrices",
         "family=gpt model.tied=false data.source=text parallelism.tensor_parallel_degree=2 lora.rank=2 "
         "lora.targets=all-linear,lm_head lora.dora=true loss.chunk_tokens=5 validation.enable=true "
         "compare.float64=one"),
    KEPT("ranks of adapters", "family=llama model.n_layers=3 training.grad_accumulation=2 lora.rank=2 "
                              "lora.rank_pattern=k stages.cut=first parallelism.tensor_parallel_degree=2 "
                              "parallelism.pipeline_parallel_degree=2 compare.moved=1"),
    KEPT("an order of a file", "family=llama model.n_layers=4 training.grad_accumulation=3 training.ema_decay=0.5 "
                               "parallelism.pipeline_parallel_degree=2 schedule.file=loop compare.moved=1"),
    KEPT("an order of a file, two ways", "family=gpt model.n_layers=4 model.tied=true training.grad_accumulation=3 "
                                         "parallelism.pipeline_parallel_degree=2 schedule.file=v compare.late=bits"),
    KEPT("sums in bfloat16", "family=llama training.grad_accumulation=2 training.mixed_precision_reduce=bfloat16 "
                             "parallelism.data_parallel_shard_degree=2 parallelism.context_parallel_degree=2 "
                             "compare.moved=1"),
    KEPT("divided head", "family=llama model.n_layers=4 model.vocab_size=96 training.grad_accumulation=2 "
                         "parallelism.pipeline_parallel_degree=2 parallelism.pipeline_parallel_divide_head=true "
                         "compare.moved=1 compare.late=bits"),
    KEPT("copies of weights: tied, averaged, offloaded",
         "family=gpt training.grad_accumulation=2 validation.enable=true training.dtype=bfloat16 training.offload=all "
         "training.ema_decay=0.5 compare.copies=1"),
    KEPT("copies of weights: of an optimizer that does not write them",
         "family=qwen3_moe training.dtype=bfloat16 optimizer.name=Adafactor compare.copies=2"),
    KEPT("copies of weights: adapters", "family=llama training.dtype=bfloat16 lora.rank=2 lora.dora=true "
                                        "debug.certificate=true compare.copies=1"),
    KEPT("copies of weights: frozen, looked at twice",
         "family=llama training.dtype=bfloat16 optimizer.groups=frozen debug.microscope=2 debug.replay=1 "
         "compare.copies=1"),
    KEPT("copies of weights: stages", "family=llama model.n_layers=4 training.grad_accumulation=4 model.tied=true "
                                      "training.dtype=bfloat16 parallelism.pipeline_parallel_degree=2 "
                                      "parallelism.pipeline_parallel_schedule=1F1B compare.copies=2"),
    KEPT("copies of weights: gathered", "family=llama training.dtype=bfloat16 "
                                        "parallelism.data_parallel_shard_degree=2 compare.copies=1"),
    KEPT("copies of weights: updated in parts",
         "family=llama training.dtype=bfloat16 training.grad_accumulation=2 parallelism.data_parallel_shard_degree=2 "
         "parallelism.data_parallel_shard_strategy=optim compare.copies=1"),
    KEPT("copies of weights: images", "family=flux training.dtype=bfloat16 training.grad_accumulation=2 "
                                      "validation.enable=true compare.copies=1"),
    KEPT("updated early: tied, averaged, offloaded, computed again",
         "family=gpt training.dtype=bfloat16 activation_checkpoint.mode=full training.offload=all "
         "training.ema_decay=0.5 compare.early=2"),
    KEPT("updated early: experts, by an optimizer of whole tensors",
         "family=qwen3_moe training.dtype=bfloat16 optimizer.name=Adafactor compare.early=2"),
    KEPT("updated early: adapters", "family=llama lora.rank=2 lora.dora=true lora.dropout=0.25 compare.early=1"),
    KEPT("updated early: latents", "family=deepseek optimizer.name=Muon optimizer.groups=frozen compare.early=1"),
    KEPT("updated early: images",
         "family=flux training.dtype=bfloat16 activation_checkpoint.mode=full compare.early=2"),
    KEPT("fused: images", "family=flux model.n_layers=3 training.grad_accumulation=2 compare.fuses=one"),
    KEPT("fused: heads, computed again", "family=qwen3 training.grad_accumulation=2 activation_checkpoint.mode=full "
                                         "compare.fuses=one"),
    KEPT("updated early: codes", "family=llama training.dtype=bfloat16 quantize.recipe=fp8_delayed compare.early=2"),
    QUICK(1),
    QUICK(4),
    QUICK(7),
    QUICK(10),
    QUICK(13),
    QUICK(16),
    QUICK(19),
    FULL(101),
    FULL(102),
    FULL(103),
    FULL(104),
    FULL(105),
    FULL(106),
    FULL(107),
    FULL(108),
};

TEST_TABLE(tests)
TEST_FIXTURE(NULL, test_folder_teardown)

/* --- by hand ------------------------------------------------------------------------------------------------------ */

static int play(int argc, char **argv)
{
    tm_text out = { 0 };
    int     failed = 0;
    test_source_files_write();
    if (argc == 4 && strcmp(argv[1], "random") == 0) {
        uint64_t seed = strtoull(argv[2], NULL, 10), number = 0;
        double   end = seconds_used() + strtod(argv[3], NULL);
        sum      counts = { 0 };
        while (!failed && seconds_used() < end) failed = !next_case(seed, &number, &counts, &out);
        print_sum(&counts);
    } else if (argc == 3 && strcmp(argv[1], "case") == 0) {
        setting s;
        if (!setting_of(argv[2], &s)) {
            fprintf(stderr, "'%s' is no case\n", argv[2]);
            return 2;
        }
        judgement j = judge_apart(&s);
        failed = j.outcome != PASSED;
        if (failed) describe_failure(&s, &j, &out);
    } else {
        fprintf(stderr, "usage: all random SEED SECONDS, or all case NAME\n");
        return 2;
    }
    printf("%s", out.data ? out.data : "passed\n");
    tm_text_fini(&out);
    test_folder_remove();
    return failed;
}

static tm_test_role                      random_role = { "random", play, NULL }, case_role = { "case", play, NULL };
__attribute__((constructor)) static void add_roles(void)
{
    test_add_role(&random_role);
    test_add_role(&case_role);
}
