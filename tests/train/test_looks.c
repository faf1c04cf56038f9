/* SPDX-License-Identifier: Apache-2.0 */
/* What runs tell of their looks through the microscope: loss and figures are those of one rank with the samples that
 * were looked at, in every layout and of every kind of data. */
#include "support/test.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "support/source_files.h"
#include "support/training.h"

#include "rank_run.h"

enum { MOST_ROWS = 2000, DEADLINE = 120 };

typedef struct {
    char  *name;
    bool   forward;
    double elements, largest, error; /* largest: in float32; error: relative */
} figures;

typedef struct {
    tm_sink        sink;
    tm_run_options options;
    double         step_loss;           /* of the first step */
    double         loss, compared_loss; /* of the look before it; 0: nobody looked */
    size_t         n_rows;
    figures        rows[MOST_ROWS];
} job;

static void listen(tm_sink *sink, const tm_event *event)
{
    job           *j = (job *)sink;
    const tm_look *look = &event->look;
    if (event->kind == TM_EVENT_STEP_DONE && event->step_done.step == 1) j->step_loss = event->step_done.loss;
    if (event->kind != TM_EVENT_LOOK) return;
    CHECK(j->n_rows == 0 && look->n_tensors <= MOST_ROWS);
    j->loss = look->loss;
    j->compared_loss = look->reference_loss;
    for (size_t i = 0; i < look->n_tensors; i++) {
        const tm_look_tensor *t = &look->tensors[i];
        j->rows[j->n_rows++] = (figures){ strdup(t->name), strcmp(t->kind, "forward") == 0, (double)t->elements,
                                          t->reference_amax, t->error };
    }
}

static void run_rank(tm_comm *comm, void *context)
{
    job       *j = context;
    tm_device *device;
    CHECK_OK(tm_device_open("cpu", 1, &device, err));
    CHECK_OK(rank_run(tm_comm_size(comm) > 1 ? comm : NULL, &j->options, device, &j->sink, NULL, NULL, err));
}

/* One step of a run: what it tells. The caller ends it with forget. */
static job run_one(const char *words)
{
    job            j = { .sink.handle = listen };
    tm_config     *config = test_run_of(words, &j.options);
    const tm_mesh *mesh = &j.options.step.layout.mesh;
    run_world(mesh->degree[0] == 0 ? 1 : tm_mesh_ranks(mesh), NULL, DEADLINE, false, run_rank, &j);
    tm_config_destroy(config);
    return j;
}

static void forget(job *j)
{
    for (size_t i = 0; i < j->n_rows; i++) free(j->rows[i].name);
}

static bool near(double a, double b, double bound)
{
    return fabs(a - b) <= bound * fabs(b);
}

#define ONE_STEP                                                                                                       \
    "--training.steps 1 --training.threads 1 --training.stop_at_target false --validation.enable false "               \
    "--debug.certificate false "
#define TINY                                                                                                           \
    "tiny-llama --model.n_layers 2 --model.dim 32 --model.n_heads 4 --model.n_kv_heads 2 --model.ffn_dim 64 "          \
    "--model.vocab_size 64 --training.seq_len 16 " ONE_STEP
#define MOE "--model.n_experts 4 --model.n_experts_per_token 2 --model.moe_ffn_dim 32 "
#define FLUX "tiny-flux --model.dim 64 --model.n_heads 2 --model.n_layers 2 --model.n_single_layers 2 " ONE_STEP
#define LOOKS "--training.dtype bfloat16 --debug.microscope 1 "
#define TWO "--parallelism.ranks 2 "
#define FOUR "--parallelism.ranks 4 "
#define TP "--parallelism.tensor_parallel_degree 2 "
#define CP "--parallelism.context_parallel_degree 2 "
#define EP "--parallelism.expert_parallel_degree 2 "
#define PP "--parallelism.pipeline_parallel_degree 2 --training.grad_accumulation 2 "
#define ORDER PP "--parallelism.pipeline_parallel_schedule "
#define PAIRS                                                                                                          \
    TINY "--data.source preference --data.path pairs.jsonl --data.validation_fraction 0.3 --model.vocab_size 257 "     \
         "--training.seq_len 32 "
#define TEXT                                                                                                           \
    TINY "--data.source text --data.path text.txt --data.validation_fraction 0.2 --model.vocab_size 257 "              \
         "--data.sample_tokens 12 "

/* --- losses ------------------------------------------------------------------------------------------------------- */

/* A run with micro-batches of two samples, of which `samples` are looked at: the first ones of the first step. */
static const struct {
    const char *base, *layout;
    int         samples;
} layouts[] = {
    { TINY, "", 2 },
    { TINY, "--training.grad_accumulation 4 --training.separate_sums 2", 2 },
    { TINY, TWO, 4 },
    { TINY, FOUR "--parallelism.data_parallel_replicate_degree 2", 8 },
    { TINY, TWO TP "--training.grad_accumulation 2", 2 },
    { TINY, TWO CP "--training.grad_accumulation 2", 2 },
    { TINY, FOUR TP CP, 2 },
    { TINY, TWO ORDER "1F1B --training.grad_accumulation 4", 2 },
    { TINY, TWO ORDER "Interleaved1F1B --model.n_layers 4", 2 },
    { TINY, TWO ORDER "ZBVZeroBubble --model.n_layers 4", 2 },
    { TINY, TWO ORDER "DualPipeV --model.n_layers 4 --training.grad_accumulation 4", 2 },
    { TINY, FOUR PP TP, 2 },
    { TINY "--model.family mixtral " MOE, TWO EP, 4 },
    { TINY "--model.family mixtral " MOE, TWO PP, 2 },
    { TEXT, "--training.grad_accumulation 3", 2 },
    { TEXT, TWO PP, 2 },
    { PAIRS, TWO CP "--training.grad_accumulation 2", 2 },
    { PAIRS, TWO PP, 2 },
    { FLUX, TWO PP, 2 },
};

/* Terms of sums over the ranks that divide matrices, before they are added. */
static bool is_term(const char *name)
{
    return strstr(name, "embedding") || strstr(name, "attention.linear.2") || strstr(name, "feed_forward.linear.2");
}

/* What all ranks have of a tensor is that of one rank, or as many copies of it as have it whole: as large, and as far
 * from the other format. Returns how many they are. */
static int compare_figures(const char *what, const job *ranks, const job *one)
{
    int same = 0;
    for (size_t i = 0; i < one->n_rows; i++)
        for (size_t k = 0; k < ranks->n_rows; k++) {
            const figures *a = &ranks->rows[k], *b = &one->rows[i];
            if (!a->forward || !b->forward || strcmp(a->name, b->name) != 0 || a->elements < b->elements) continue;
            /* what experts compute goes by what routers choose in each format */
            if (is_term(a->name) || strstr(a->name, "moe")) continue;
            if (!near(a->largest, b->largest, 2e-3) || !near(a->error, b->error, 0.25))
                fail_msg("%s: %s: largest %.9g, error %.3g; of one rank %.9g, %.3g", what, a->name, a->largest,
                         a->error, b->largest, b->error);
            same++;
        }
    return same;
}

/* Another way to compute it: a look of one rank at these samples alone, and the loss of its step. */
TEST(figures_are_those_of_the_samples)
{
    test_source_files_write();
    char *back = getcwd(NULL, 0);
    assert_int_equal(chdir(test_folder()), 0);
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        char        words[2000];
        const char *layers = strstr(layouts[i].layout, "--model.n_layers");
        snprintf(words, sizeof words, "%s" LOOKS "--training.local_batch_size 2 %s", layouts[i].base,
                 layouts[i].layout);
        job looked = run_one(words);
        snprintf(words, sizeof words, "%s" LOOKS "--training.local_batch_size %d%s", layouts[i].base,
                 layouts[i].samples, layers ? " --model.n_layers 4" : "");
        job alone = run_one(words);
        /* a reference has read pairs in the format of training */
        double slack = strstr(words, "preference") ? 0.01 : 1e-5;
        if (!(alone.step_loss > 0) || !near(looked.compared_loss, alone.compared_loss, slack) ||
            !near(looked.loss, alone.step_loss, 0.01) || !near(alone.compared_loss, alone.step_loss, 0.01))
            fail_msg("%s: loss %.9g and in float32 %.9g, wanted %.9g", layouts[i].layout, looked.loss,
                     looked.compared_loss, alone.step_loss);
        int same = compare_figures(layouts[i].layout, &looked, &alone);
        if (same < 10) fail_msg("%s: only %d tensors", layouts[i].layout, same);
        forget(&looked), forget(&alone);
    }
    assert_int_equal(chdir(back), 0);
    free(back);
}

/* --- names -------------------------------------------------------------------------------------------------------- */

/* Of the outputs of two nodes, the first and the second row of each name, in the order of the program. */
TEST(later_rows_have_numbers_of_their_own)
{
    static const char *const wanted[] = { "double_blocks.0.txt.modulate",     "double_blocks.0.txt.modulate.1",
                                          "double_blocks.0.txt.modulate.2",   "double_blocks.0.txt.modulate.3",
                                          "double_blocks.0.txt.modulate.1.2", "double_blocks.0.txt.modulate.2.2" };
    job                      j = run_one(FLUX LOOKS "--training.local_batch_size 2");
    size_t                   found = 0;
    for (size_t i = 0; i < j.n_rows; i++) {
        if (strncmp(j.rows[i].name, wanted[0], strlen(wanted[0])) != 0 || strstr(j.rows[i].name, "grad")) continue;
        assert_true(found < sizeof wanted / sizeof wanted[0]);
        assert_string_equal(j.rows[i].name, wanted[found++]);
    }
    assert_int_equal(found, sizeof wanted / sizeof wanted[0]);
    forget(&j);
}

TEST_FIXTURE(NULL, test_folder_teardown)
