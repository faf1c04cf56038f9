/* SPDX-License-Identifier: Apache-2.0 */
/* What fine-tuning a model as wide and deep as Llama 3.2 1B takes, planned and compared with numbers counted by hand:
 * 2 bytes for a frozen parameter (in NF4 at most 4.13 bits for those of matrices), 16 for a trained one (weight,
 * gradient, two moments in float32). The real run is tests/long/test_qlora_memory.sh. */
#include "support/test.h"
#include "graph/nf4.h"
#include "support/training.h"

/* Of a block, of a model: query and output, key and value, the three matrices of the FFN; two norms. */
enum { LAYERS = 16, WIDTH = 2048, KEYS = 512, HIDDEN = 8192, WORDS = 128256, RANK = 8 };
static const int64_t matrices = LAYERS * (2LL * WIDTH * WIDTH + 2LL * KEYS * WIDTH + 3LL * HIDDEN * WIDTH);
static const int64_t others = (int64_t)WORDS * WIDTH + (2 * LAYERS + 1) * WIDTH;
/* RANK times inputs and outputs of each of the seven matrices; DoRA: their outputs. */
static const int64_t adapters = LAYERS * RANK * (2LL * (WIDTH + WIDTH) + 2LL * (WIDTH + KEYS) + 3LL * (WIDTH + HIDDEN));
static const int64_t lengths = LAYERS * (2LL * WIDTH + 2LL * KEYS + 2LL * HIDDEN + WIDTH);

static tm_step *plan_1b(tm_dtype base, bool dora)
{
    tm_step_options o = test_llama_options();
    o.precision = &tm_precision_bf16;
    o.micro_batch = 1;
    o.seq = 512;
    o.recompute.cheap = true;
    o.shape.vocab_size = WORDS, o.shape.dim = WIDTH, o.shape.n_layers = LAYERS, o.shape.ffn_dim = HIDDEN;
    o.shape.n_heads = 32, o.shape.n_kv_heads = 8, o.shape.head_dim = 64;
    o.shape.tied = true;
    o.adapters = (tm_adapters){ .rank = RANK, .alpha = 16, .base = base, .place = "test", .dora = dora };
    strcpy(o.adapters.targets, "all-linear");
    tm_step *step = test_step_of(&o);
    return step;
}

static int64_t class_bytes(const tm_plan *plan, const char *name)
{
    for (size_t i = 0; i < plan->n_classes; i++)
        if (strcmp(plan->by_class[i].name, name) == 0) return plan->by_class[i].value;
    return 0;
}

/* Tensors begin at multiples of 64 bytes. */
static void is_about(const char *what, int64_t bytes, int64_t wanted, const tm_graph *graph)
{
    if (bytes < wanted || bytes > wanted + 64 * (int64_t)graph->n_tensors)
        fail_msg("%s: %lld bytes, counted by hand %lld", what, (long long)bytes, (long long)wanted);
}

TEST(a_stack_of_1b_takes_what_the_formula_says)
{
    assert_true(matrices + others == 1235814400 && adapters == 5636096);
    for (int dora = 0; dora < 2; dora++) {
        tm_step          *step = plan_1b(TM_BF16, dora);
        tm_adapters_facts facts = tm_adapters_describe(step->graph);
        int64_t           trained = adapters + (dora ? lengths : 0);
        assert_true(facts.trained == trained && facts.frozen == matrices + others);
        is_about("weights", class_bytes(step->plan, "weights"), 2 * facts.frozen + 4 * trained, step->graph);
        is_about("gradients", class_bytes(step->plan, "gradients"), 4 * trained, step->graph);
        is_about("optimizer", class_bytes(step->plan, "optimizer"), 8 * trained, step->graph);
        tm_step_destroy(step);
    }
}

TEST(a_base_in_nf4_fits)
{
    for (int dora = 0; dora < 2; dora++) {
        tm_step *step = plan_1b(TM_NF4_BLOCKS, dora);
        int64_t  coded = 0, bytes = 0;
        for (size_t i = 0; i < step->graph->n_tensors; i++) {
            const tm_tensor *t = &step->graph->tensors[i];
            if (t->role != TM_ROLE_PARAMETER || t->dtype != TM_NF4_BLOCKS) continue;
            coded += tm_shape_elements(t->shape);
            bytes += (int64_t)tm_tensor_bytes(t->shape, t->dtype);
        }
        assert_true(coded == matrices);
        assert_true((double)bytes * 8 <= 4.13 * (double)matrices);
        assert_true(tm_adapters_describe(step->graph).frozen_bytes == (size_t)(bytes + 2 * others));
        if (step->plan->arena_bytes > (5ULL << 30) / 2)
            fail_msg("%zu bytes are planned for 1 x 512, more than 2.5 GiB", step->plan->arena_bytes);
        tm_step_destroy(step);
    }
}
