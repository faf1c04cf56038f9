/* SPDX-License-Identifier: Apache-2.0 */
/* The model of trainers based on PyTorch: parameters and FLOPs counted another way, memory that papers published, and
 * what must hold of any layout. */
#include "support/test.h"

#include "plan/fit.h"
#include "plan/their_model.h"

static void within(const char *what, double value, double wanted, double tolerance)
{
    if (!(fabs(value / wanted - 1) <= tolerance)) fail_msg("%s: %.6g, wanted %.6g", what, value, wanted);
}

static tm_model_shape shape_of(const char *name)
{
    tm_model_shape shape;
    int64_t        seq;
    if (!tm_published_model(name, &shape, &seq)) fail_msg("%s is not known", name);
    return shape;
}

static tm_hardware hardware_of(tm_arena *arena, const char *name)
{
    tm_hardware hw;
    assert_ok(tm_hardware_read(arena, name, &hw, err));
    return hw;
}

/* By Megatron-LM, bfloat16, one sequence of 4096 tokens at a time, one device. */
static tm_their_job job_of(const tm_hardware *hw, const char *model)
{
    const tm_trainer_row *trainer = tm_trainer_row_find("megatron");
    return (tm_their_job){ .trainer = trainer,
                           .device = hw,
                           .shape = shape_of(model),
                           .sharing = trainer->sharing,
                           .fusion = trainer->fusion,
                           .format = TM_RATE_BF16,
                           .devices = 1,
                           .dp = 1,
                           .tp = 1,
                           .pp = 1,
                           .vp = 1,
                           .cp = 1,
                           .ep = 1,
                           .bubble = 1,
                           .micro_batch = 1,
                           .accumulation = 1,
                           .seq = 4096,
                           .again = TM_AGAIN_NONE,
                           .layout_known = true };
}

/* Experts over eight devices. */
static tm_their_job mixture_job(const tm_hardware *hw)
{
    tm_their_job job = job_of(hw, "Qwen3-30B-A3B");
    job.devices = job.dp = job.ep = job.accumulation = 8;
    job.sequence_parallel = true;
    return job;
}

/* Norms and biases are not counted here: a part in a thousand. */
TEST(parameters_are_those_of_the_models)
{
    static const char *const names[] = { "Llama-3.1-8B",    "Llama-3.1-70B", "Llama-3.1-405B", "Llama-2-70B",
                                         "Mistral-7B",      "Qwen3-8B",      "Qwen3-32B",      "Qwen3-30B-A3B",
                                         "Qwen3-235B-A22B", "DeepSeek-V3",   "DeepSeek-16B",   "Mixtral-8x7B",
                                         "Mixtral-8x22B",   "gpt-oss-120b",  "GPT-2.65B" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        tm_model_shape s = shape_of(names[i]);
        within(names[i], tm_their_dense_parameters(&s) + tm_their_expert_parameters(&s),
               (double)tm_model_parameters(&s), 0.003);
    }
    /* As their papers name them: the third significant digit counts. */
    static const struct {
        const char *name;
        double      billions;
    } papers[] = { { "GPT-1.7B", 1.7 },        { "GPT-18.4B", 18.4 }, { "GPT-76.1B", 76.1 }, { "GPT-145.6B", 145.6 },
                   { "GPT-1008B", 1008 },      { "GPT-22B", 22 },     { "GPT-175B", 175 },   { "GPT-530B", 530 },
                   { "BLOOM-176B", 176 },      { "MPT-7b", 6.65 },    { "MPT-30b", 30 },     { "Llama4-Scout", 109 },
                   { "Llama4-Maverick", 400 }, { "Kimi-K2", 1026 } };
    for (size_t i = 0; i < sizeof papers / sizeof papers[0]; i++) {
        tm_model_shape s = shape_of(papers[i].name);
        within(papers[i].name, (tm_their_dense_parameters(&s) + tm_their_expert_parameters(&s)) * 1e-9,
               papers[i].billions, 0.04);
    }
}

/* A job without communication on hardware of rate 1: what is computed is what a formula counts (F3: 6 N_mm + attention
 * of half the pairs). */
TEST(work_is_that_of_the_formula)
{
    static const char *const names[] = { "Llama-3.1-8B", "Qwen3-32B", "Qwen3-30B-A3B", "DeepSeek-16B", "GPT-2.65B" };
    tm_arena                *arena = tm_arena_create();
    tm_parameters            p = tm_parameters_fitted();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        tm_hardware hw = hardware_of(arena, "MI300X");
        hw.number[TM_HARDWARE_HALF_DEPTH] = 1e-9; /* every shape reaches the rate */
        hw.number[TM_HARDWARE_TILE_ROWS] = hw.number[TM_HARDWARE_TILE_COLUMNS] = hw.number[TM_HARDWARE_UNITS] = 1;
        hw.number[TM_HARDWARE_MEMORY_RATE] = 1e12;
        p.of[TM_PARAMETER_PRODUCT_BF16] = p.of[TM_PARAMETER_ATTENTION] = p.of[TM_PARAMETER_ATTENTION_CDNA3] = 1;
        p.of[TM_PARAMETER_EXPERT_PRODUCTS] = p.of[TM_PARAMETER_EXPERT_PRODUCTS_AMD] = 1;
        hw.number[TM_HARDWARE_PRODUCT_BF16] = hw.number[TM_HARDWARE_ATTENTION_FORWARD] =
            hw.number[TM_HARDWARE_ATTENTION_BACKWARD] = 1;
        tm_their_job j = job_of(&hw, names[i]);
        j.micro_batch = 2;
        j.accumulation = 3;
        tm_their_time t = tm_their_time_of(&j, &p);
        double        own = p.of[j.trainer->factor];
        double seconds = (t.seconds[TM_THEIR_FORWARD] + t.seconds[TM_THEIR_BACKWARD] + t.seconds[TM_THEIR_HEAD]) / own;
        double attention = t.seconds[TM_THEIR_ATTENTION] / own,
               narrow = j.shape.head_dim < 128 && j.shape.mla.kv_rank == 0
                            ? 2.0 * (double)j.shape.head_dim / (double)(j.shape.head_dim + 128)
                            : 1;
        double tokens = 2 * 4096 * 3, causal = tm_model_flops_per_token(&j.shape, TM_FLOPS_MEGATRON, 4096);
        /* Backward of attention is 2.5 times forward there, twice in the formula. */
        within(names[i], (seconds + attention * narrow * 3 / 3.5) * 1e12, causal * tokens, 0.02);
    }
    tm_arena_destroy(arena);
}

/* Korthikanti et al. 2022, figure 1 and table 2: GiB of a rank of A100s. */
TEST(memory_as_papers_have_it)
{
    tm_arena         *arena = tm_arena_create();
    tm_parameters     p = tm_parameters_fitted();
    tm_published_rows rows;
    int               n = 0;
    assert_ok(tm_rows_read(arena, "configs/calibration/memory.csv", &rows, err));
    for (size_t i = 0; i < rows.n; i++) {
        const tm_published_row *row = &rows.row[i];
        if (row->refused) fail_msg("%s: %s", row->id, row->refused);
        double predicted = tm_row_predict(row, &p);
        if (strcmp(row->source, "KOR") == 0) within(row->id, predicted, row->published, 0.02);
        if (strcmp(row->source, "PTB") == 0 && fabs(predicted - row->published) > 1)
            fail_msg("%s: %g sequences fit, published %g", row->id, predicted, row->published);
        n += strcmp(row->source, "KOR") == 0 || strcmp(row->source, "PTB") == 0;
    }
    assert_int_equal(n, 13);
    tm_arena_destroy(arena);
}

/* More of something takes longer, or less memory. */
TEST(layouts_change_what_they_should)
{
    tm_arena     *arena = tm_arena_create();
    tm_parameters p = tm_parameters_fitted();
    tm_hardware   hw = hardware_of(arena, "H100");
    tm_their_job  base = job_of(&hw, "Llama-3.1-70B");
    base.devices = 64, base.dp = 2, base.tp = 8, base.pp = 4;
    base.sequence_parallel = true;
    base.accumulation = 16;
    base.seq = 8192;
    tm_their_time   t = tm_their_time_of(&base, &p);
    tm_their_memory m = tm_their_memory_of(&base, TM_AGAIN_NONE, &p);
    double          sum = 0;
    for (int i = 0; i < TM_THEIR_TIMES; i++) sum += t.seconds[i];
    within("sum of the lines", sum, t.step, 1e-9);
    within("idle stages",
           t.seconds[TM_THEIR_BUBBLE] /
               (t.seconds[TM_THEIR_FORWARD] + t.seconds[TM_THEIR_BACKWARD] + t.seconds[TM_THEIR_ATTENTION] +
                t.seconds[TM_THEIR_STREAMS] + t.seconds[TM_THEIR_GAPS] + t.seconds[TM_THEIR_TENSOR]),
           p.of[TM_PARAMETER_BUBBLE] * 3 / 16, 1e-6);
    tm_their_job j = base;
    j.vp = 4; /* a quarter of the idle time, more activations */
    within("interleaved", tm_their_time_of(&j, &p).seconds[TM_THEIR_BUBBLE], t.seconds[TM_THEIR_BUBBLE] / 4, 1e-6);
    assert_true(tm_their_memory_of(&j, TM_AGAIN_NONE, &p).total > m.total);
    j = base;
    j.again = TM_AGAIN_FULL;
    assert_true(tm_their_time_of(&j, &p).step > 1.2 * t.step);
    assert_true(tm_their_memory_of(&j, TM_AGAIN_FULL, &p).total < m.total);
    j = base;
    j.format = TM_RATE_FP8;
    assert_true(tm_their_time_of(&j, &p).step < t.step && tm_their_time_of(&j, &p).seconds[TM_THEIR_CASTS] > 0);
    j = base;
    j.adapter = true; /* no gradients of weights */
    assert_true(tm_their_time_of(&j, &p).seconds[TM_THEIR_BACKWARD] < 0.6 * t.seconds[TM_THEIR_BACKWARD]);
    assert_float_equal(tm_their_time_of(&j, &p).seconds[TM_THEIR_OPTIMIZER], 0, 0);
    j = base;
    j.sharing = TM_THEY_SHARE_ALL;
    assert_true(tm_their_memory_of(&j, TM_AGAIN_NONE, &p).bytes[TM_THEIRS_WEIGHTS] <=
                2.01 * m.bytes[TM_THEIRS_WEIGHTS] / 2);
    tm_arena_destroy(arena);
}

/* Gaps are a number of kernels: of layers, passes and micro-batches, whatever the rows. */
TEST(kernels_are_counted)
{
    tm_arena     *arena = tm_arena_create();
    tm_parameters p = tm_parameters_fitted();
    tm_hardware   hw = hardware_of(arena, "H100");
    tm_their_job  job = mixture_job(&hw), j = job;
    tm_their_time t = tm_their_time_of(&job, &p);
    double        factor = p.of[TM_PARAMETER_AS_MEGATRON];
    /* Four products and eight kernels, with experts 20 more and two for each of the 16 here; three passes. */
    double launches = 48.0 * 3 * (2 + 8 + 20 + 2 * 16) * 8;
    within("gaps", t.seconds[TM_THEIR_GAPS] / factor,
           launches * hw.number[TM_HARDWARE_LAUNCH] * 1e-6 * p.of[TM_PARAMETER_GAP], 1e-6);
    j.seq = 8192;
    within("of more rows", tm_their_time_of(&j, &p).seconds[TM_THEIR_GAPS], t.seconds[TM_THEIR_GAPS], 1e-9);
    j.accumulation = 16;
    within("of more micro-batches", tm_their_time_of(&j, &p).seconds[TM_THEIR_GAPS], 2 * t.seconds[TM_THEIR_GAPS],
           1e-9);
    tm_arena_destroy(arena);
}

/* Rows of the fullest experts take so much longer; a loader is waited for when it needs longer than the step. */
TEST(what_is_waited_for)
{
    tm_arena     *arena = tm_arena_create();
    tm_parameters p = tm_parameters_fitted();
    tm_hardware   hw = hardware_of(arena, "H100");
    p.of[TM_PARAMETER_STRAGGLERS] = 1e-12;
    tm_their_job job = mixture_job(&hw), twice = job, j = job;
    twice.shape.moe.top_k *= 2; /* twice the rows everywhere is what an imbalance of 2 is */
    j.imbalance = 2;
    tm_their_time even = tm_their_time_of(&job, &p), full = tm_their_time_of(&j, &p),
                  more = tm_their_time_of(&twice, &p);
    assert_float_equal(even.seconds[TM_THEIR_IMBALANCE], 0, 0);
    assert_true(full.seconds[TM_THEIR_IMBALANCE] > even.seconds[TM_THEIR_EXPERTS]);
    within("twice the rows", full.step, more.step, 0.02);
    j = job;
    j.loader = 8 * 4096 / even.step / 0.5; /* it needs half of the step */
    within("a fast loader", tm_their_time_of(&j, &p).step, even.step, 1e-9);
    j.loader = 8 * 4096 / even.step / 3;
    tm_their_time slow = tm_their_time_of(&j, &p);
    within("a slow loader", slow.step, 3 * even.step, 1e-9);
    within("its line", slow.seconds[TM_THEIR_LOADER], 2 * even.step, 1e-9);
    within("its speed", slow.tokens_per_second, even.tokens_per_second / 3, 1e-9);
    tm_arena_destroy(arena);
}

static int compare(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

/* What docs/plan-theirs.md claims of published memory. */
TEST(published_memory_is_predicted)
{
    tm_arena         *arena = tm_arena_create();
    tm_parameters     p = tm_parameters_fitted();
    tm_published_rows rows;
    double            errors[64];
    size_t            n = 0;
    int               said = 0, right = 0;
    assert_ok(tm_rows_read(arena, "configs/calibration/memory.csv", &rows, err));
    for (size_t i = 0; i < rows.n; i++) {
        const tm_published_row *row = &rows.row[i];
        bool                    good[2];
        int                     k = tm_row_verdicts(row, &p, good);
        said += k;
        for (int v = 0; v < k; v++) right += good[v];
        if (row->kind != TM_ROW_MEMORY) continue;
        double error = tm_row_predict(row, &p) / row->published - 1;
        if (row->job.devices == 1 && fabs(error) > 0.03) fail_msg("%s: %+.3f", row->id, error);
        errors[n++] = fabs(error);
    }
    qsort(errors, n, sizeof *errors, compare);
    assert_int_equal(n, 37);
    if (errors[n / 2] > 0.05) fail_msg("median error %g", errors[n / 2]);
    if (right < 0.95 * said) fail_msg("%d of %d verdicts are right", right, said);
    tm_arena_destroy(arena);
}

/* PyTorch's last stage keeps two bytes of each logit of all micro-batches, twice; what is reserved does not make a
 * batch too large. */
TEST(stages_keep_what_they_should)
{
    tm_arena     *arena = tm_arena_create();
    tm_parameters p = tm_parameters_fitted(), none = p;
    tm_hardware   hw = hardware_of(arena, "H100");
    tm_their_job  job = mixture_job(&hw);
    job.shape = shape_of("Llama-3.1-70B");
    job.trainer = tm_trainer_row_find("torchtitan");
    job.sharing = job.trainer->sharing;
    job.fusion = job.trainer->fusion;
    job.ep = 1;
    job.dp = 2;
    job.pp = 4;
    job.accumulation = 400;
    none.of[TM_PARAMETER_FRAGMENTS] = 0;
    tm_their_job j = job;
    j.accumulation = 401;
    double more = tm_their_memory_of(&j, TM_AGAIN_FULL, &none).total;
    within("of a micro-batch", more - tm_their_memory_of(&job, TM_AGAIN_FULL, &none).total, 4 * 4096.0 * 128256, 1e-6);
    within("of what is needed", tm_their_memory_of(&job, TM_AGAIN_FULL, &none).needed,
           tm_their_memory_of(&job, TM_AGAIN_FULL, &p).needed, 1e-9);
    assert_true(tm_their_memory_of(&job, TM_AGAIN_FULL, &p).total >
                tm_their_memory_of(&job, TM_AGAIN_FULL, &none).total);
    job.trainer = tm_trainer_row_find("megatron");
    job.sharing = job.trainer->sharing;
    j = job;
    j.accumulation = 401;
    within("of Megatron", tm_their_memory_of(&j, TM_AGAIN_FULL, &p).total,
           tm_their_memory_of(&job, TM_AGAIN_FULL, &p).total, 1e-9);
    tm_arena_destroy(arena);
}
