/* SPDX-License-Identifier: Apache-2.0 */
/* What small runs of several ranks tell agrees with itself, with the options and with what all their ranks know: steps,
 * evaluations, products in low precision, certificates, what is saved. (That ranks train as one does:
 * tests/differential.) */
#include "support/test.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "support/source_files.h"
#include "support/training.h"

#include "rank_run.h"
#include "stats/sampling.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MAX_RANKS = 4, DEADLINE = 120 };

typedef struct {
    tm_sink           sink;
    const char       *words;
    tm_run_options    options;
    bool              only_evaluates;
    tm_status         status[MAX_RANKS];
    tm_error          err[MAX_RANKS];
    tm_run_evaluation evaluation[MAX_RANKS];
    /* of the events so far */
    int64_t first, steps, tokens, planned, batch, saved, samples; /* samples: also those of runs before it */
    double  loss_first, loss_last, validation;
    int     evaluations, quantized;
} job;

static bool asked(const job *j, const char *key)
{
    return strstr(j->words, key) != NULL;
}

static bool near(double a, double b, double bound)
{
    return fabs(a - b) <= bound * fmax(fabs(a), fabs(b));
}

/* Threads cannot fail a test of cmocka. */
_Noreturn static void differs(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn static void differs(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    abort();
}

static void hear_start(job *j, const tm_run_started *s)
{
    const tm_run_options *o = &j->options;
    const tm_mesh        *mesh = &o->step.layout.mesh;
    const int64_t         data_ranks = mesh->degree[TM_AXIS_REPLICATE] * mesh->degree[TM_AXIS_SHARD];
    j->first = s->first_step, j->tokens = s->batch_tokens, j->planned = s->planned_bytes;
    j->batch = s->recipe.global_batch;
    CHECK((s->devices) == (tm_mesh_ranks(mesh)));
    CHECK(s->steps == o->steps && s->recipe.micro_batch == o->step.micro_batch);
    CHECK(j->batch == data_ranks * o->step.micro_batch * o->step.accumulation);
    CHECK(s->recipe.tensor_ranks == mesh->degree[TM_AXIS_TP]);
    CHECK(s->recipe.context_ranks == mesh->degree[TM_AXIS_CP]);
    CHECK(s->recipe.pipeline_ranks == mesh->degree[TM_AXIS_PP]);
    CHECK(s->recipe.expert_ranks == mesh->degree[TM_AXIS_EP]);
    CHECK((s->parameters) == (tm_model_parameters(&o->step.shape)));
}

static void hear_step(job *j, const tm_step_done *d)
{
    CHECK(d->step == j->first + j->steps++);
    CHECK(d->loss > 0 && d->grad_norm > 0 && d->tokens > 0 && d->tokens <= j->tokens);
    CHECK(near(d->learning_rate, j->options.learning_rate * tm_schedule_factor(&j->options.schedule, d->step - 1),
               1e-12));
    CHECK(d->used_bytes == j->planned);
    if (d->step == 1) j->loss_first = d->loss;
    j->loss_last = d->loss;
}

/* Each factor once. */
static void hear_quantized(job *j, const tm_quantized_step *q)
{
    j->quantized++;
    for (size_t i = 0; i < q->n_factors; i++) {
        const tm_quantized_factor *f = &q->factors[i];
        if (!(f->amax > 0 && f->scale > 0 && f->saturated >= 0 && f->saturated < 1 && f->flushed >= 0 &&
              f->flushed <= 1))
            differs("%s: %s %s: largest %g, scale %g, %g saturated, %g flushed\n", j->words, f->linear, f->factor,
                    f->amax, f->scale, f->saturated, f->flushed);
        for (size_t k = 0; k < i; k++)
            CHECK(strcmp(f->linear, q->factors[k].linear) != 0 || strcmp(f->factor, q->factors[k].factor) != 0);
    }
}

static void check_certificate(const job *j, const tm_certificate *c)
{
    const bool parts = j->options.step.layout.mesh.degree[TM_AXIS_CP] > 1; /* of sequences: nothing can be hidden */
    if (!c->done || !c->gradients || !near(c->measured, c->expected, 0.05) || (!parts && !(c->causal && c->context)))
        differs("%s: done %d, gradients %d, %g beside %g, causal %d, context %d: %s", j->words, c->done, c->gradients,
                c->measured, c->expected, c->causal, c->context, c->reason);
}

static void hear_end(job *j, const tm_run_ended *e)
{
    const int ranks = tm_mesh_ranks(&j->options.step.layout.mesh);
    CHECK(strcmp(e->stopped, "all steps done") == 0);
    CHECK(!e->interrupted && e->steps == j->steps && e->samples == (j->samples += j->steps * j->batch));
    CHECK(e->planned_bytes == j->planned && (int)e->n_ranks == ranks);
    if (j->steps > 0) CHECK(near(e->loss_last, j->loss_last, 0));
    CHECK(near(e->loss_first, j->loss_first, 0));
    if (j->evaluations > 0) CHECK(near(e->loss_validation, j->validation, 0));
    for (int r = 0; r < ranks; r++) {
        CHECK(e->ranks[r].rank == r && (e->ranks[r].target_tokens > 0) == (j->steps > 0) && e->ranks[r].used_bytes > 0);
        CHECK((e->ranks[r].data_rank) == (tm_mesh_group_rank(&j->options.step.layout.mesh, r, TM_AXES_BATCH)));
    }
    if (asked(j, "certificate_after")) check_certificate(j, &e->certificate_after);
    if (e->steps > 0) CHECK(e->speed->warmup + e->speed->n == j->steps);
    CHECK((e->sample && *e->sample) == asked(j, "sample_tokens"));
}

static void listen(tm_sink *sink, const tm_event *event)
{
    job                 *j = (job *)sink;
    const tm_evaluation *v = &event->evaluation;
    if (event->kind == TM_EVENT_RUN_STARTED) hear_start(j, &event->run_started);
    if (event->kind == TM_EVENT_STEP_DONE) hear_step(j, &event->step_done);
    if (event->kind == TM_EVENT_QUANTIZED) hear_quantized(j, &event->quantized);
    if (event->kind == TM_EVENT_RUN_ENDED) hear_end(j, &event->run_ended);
    if (event->kind == TM_EVENT_EVALUATION) {
        CHECK(v->step == j->first + j->steps - 1 && v->samples == j->samples + j->steps * j->batch && v->loss > 0);
        CHECK(v->last == (v->step == j->options.steps));
        j->evaluations++, j->validation = v->loss;
    }
    if (event->kind == TM_EVENT_CHECKPOINT) {
        CHECK(event->checkpoint.bytes > 2 * 4 * tm_model_parameters(&j->options.step.shape)); /* and moments */
        j->saved = event->checkpoint.step;
    }
}

static void run_rank(tm_comm *comm, void *context)
{
    job       *j = context;
    const int  rank = tm_comm_rank(comm);
    tm_device *device;
    CHECK_OK(tm_device_open("cpu", 1, &device, err));
    CHECK_OK(tm_device_limit_isa(device, "base", err));
    j->status[rank] = rank_run(comm, &j->options, device, &j->sink, NULL,
                               j->only_evaluates ? &j->evaluation[rank] : NULL, &j->err[rank]);
}

/* ---- the runs ---- */

#define TINY                                                                                                           \
    "tiny-llama --model.n_layers 2 --model.dim 32 --model.n_heads 2 --model.n_kv_heads 2 --model.ffn_dim 64 "          \
    "--model.vocab_size 64 --training.seq_len 16 --training.local_batch_size 2 --training.threads 1 "                  \
    "--training.stop_at_target false --optimizer.lr 0.01 --lr_scheduler.warmup_steps 2 --training.steps 2 "
#define MIXTRAL TINY "--model.family mixtral --model.n_experts 4 --model.n_experts_per_token 2 --model.moe_ffn_dim 32 "
#define TWO "--parallelism.ranks 2 "
#define FOUR "--parallelism.ranks 4 "
#define COPIES "--parallelism.data_parallel_replicate_degree 2 --parallelism.data_parallel_shard_degree 1 "
#define TP "--parallelism.tensor_parallel_degree 2 "
#define CP "--parallelism.context_parallel_degree 2 "
#define PP "--parallelism.pipeline_parallel_degree 2 --training.grad_accumulation 2 "
#define EP "--parallelism.expert_parallel_degree 2 "
#define NONE "--validation.enable false "
#define HELD "--validation.steps 3 --validation.freq 1 "
#define SAVES "--checkpoint.enable --checkpoint.folder saved --checkpoint.interval 1 "
#define BF16 "--training.dtype bfloat16 "
#define PAIRS "--data.source preference --data.path pairs.jsonl --data.validation_fraction 0.3 --model.vocab_size 257 "
#define TEXT "--data.source text --data.path text.txt --data.validation_fraction 0.2 --model.vocab_size 257 "
#define CERTIFIED "--debug.certificate true --debug.certificate_after true "

static const char *const runs[] = {
    TINY TWO COPIES    HELD "--training.grad_accumulation 2",
    TINY TWO HELD      CERTIFIED,
    TINY TWO NONE BF16 CERTIFIED,
    TINY TWO PP        HELD "--training.separate_sums 2",
    TINY TWO           NONE "--quantize.recipe fp8_delayed --quantize.log_freq 1 ",
    TINY TWO           NONE "--optimizer.name Muon --optimizer.groups=[{\"params\":\"*norm*\",\"lr_scale\":\"2\"}]",
    TINY TWO NONE "--optimizer.name AdamW8bit --model.dim 128 --parallelism.data_parallel_shard_strategy optim",
    TINY TWO NONE
    "--optimizer.decay matrices --optimizer.weight_decay 0.5 --parallelism.fsdp_reshard_after_forward always",
    TINY TWO         NONE "--training.dtype bfloat16 --training.regime pure --optimizer.bf16_stochastic_round true",
    TINY TWO         NONE "--lora.rank 2 --lora.dora true --lora.targets wq,w2",
    TINY TWO         NONE "--lora.rank 2 --lora.dropout 0.25 --lora.base_format nf4 --model.dim 64 --model.ffn_dim 128",
    TINY TWO TP HELD CERTIFIED "--model.tied true",
    TINY TWO TP      NONE "--quantize.recipe fp8_rowwise --quantize.log_freq 1",
    TINY TWO TP      NONE "--lora.rank 2 --lora.dropout 0.25 --lora.targets all-linear,lm_head",
    TINY TWO TP HELD PAIRS CERTIFIED "--training.seq_len 32",
    TINY TWO CP HELD       CERTIFIED,
    TINY TWO CP            NONE "--quantize.recipe fp8_tensorwise --quantize.log_freq 2",
    TINY TWO CP            NONE "--lora.rank 2 --lora.dropout 0.25 --lora.targets wq,w2",
    TINY FOUR TP CP NONE   CERTIFIED,
    TINY TWO TP NONE BF16  CERTIFIED,
    TINY TWO CP NONE BF16  CERTIFIED,
    TINY TWO PP NONE BF16  CERTIFIED,
    TINY TWO PP HELD       CERTIFIED,
    TINY TWO PP HELD       CERTIFIED "--parallelism.pipeline_parallel_divide_head true --model.tied true",
    TINY TWO PP NONE       CERTIFIED "--parallelism.pipeline_parallel_schedule ZBVZeroBubble --model.n_layers 4",
    TINY TWO PP            NONE "--quantize.recipe fp8_tensorwise --quantize.log_freq 1",
    TINY TWO PP HELD PAIRS CERTIFIED "--training.seq_len 32",
    TINY TWO PP HELD       TEXT "--data.sample_tokens 12",
    TINY TWO HELD          TEXT "--data.sample_tokens 12",
    TINY TWO PP            NONE "--lora.rank 2 --lora.layers 0 --lora.targets wq",
    TINY FOUR PP           HELD "--training.max_norm 0.1",
    MIXTRAL TWO EP HELD    CERTIFIED "--model.moe_aux_loss 0.1",
    MIXTRAL TWO TP         NONE "--model.moe_aux_loss 0.1 --model.moe_aux_loss_per_sequence false",
    MIXTRAL TWO PP         NONE "--model.moe_aux_loss 0.1",
    TINY TWO SAVES         HELD,
    TINY TWO TP SAVES      NONE "--training.steps 3",
    TINY TWO PP SAVES      NONE "--training.steps 4",
    TINY FOUR CP SAVES     NONE "--training.steps 5 --training.local_batch_size 1",
    TINY TWO CP SAVES      NONE "--training.steps 5",
    TINY TWO SAVES         NONE "--training.steps 9 --debug.seed 3",
    TINY TWO SAVES         NONE "--training.steps 9 --model.dim 64",
};

static void run_all(job *j, bool wanted)
{
    int ranks = tm_mesh_ranks(&j->options.step.layout.mesh);
    j->sink.handle = listen;
    run_world(ranks, NULL, DEADLINE, false, run_rank, j);
    for (int r = 0; r < ranks; r++)
        if ((j->status[r] == TM_OK) != wanted || strcmp(j->err[r].text, j->err[0].text) != 0)
            fail_msg("%s, rank %d: %d %s", j->words, r, (int)j->status[r], j->err[r].text);
    for (int r = 1; r < ranks && j->only_evaluates; r++)
        assert_true(near(j->evaluation[r].loss, j->evaluation[0].loss, 0) && j->evaluation[r].targets > 0 &&
                    j->evaluation[r].targets == j->evaluation[0].targets);
}

/* The last two go on with another seed, and another model. */
TEST(runs_of_ranks_agree_with_themselves)
{
    const size_t n = sizeof runs / sizeof runs[0];
    job          before = { .saved = 0 }; /* in the same folder */
    test_source_files_write();
    char *back = getcwd(NULL, 0);
    assert_int_equal(chdir(test_folder()), 0);
    for (size_t i = 0; i < n; i++) {
        tm_config *config = test_full_config();
        tm_error   err = { 0 };
        job        j = { .words = runs[i] }, evaluated;
        if (test_read_run(config, runs[i], &j.options, &err) != TM_OK) fail_msg("%s: %s", runs[i], err.text);
        j.options.checkpoint_folder = j.options.checkpoint ? "saved" : NULL;
        if (j.options.checkpoint) j.samples = before.samples, j.loss_first = before.loss_first, j.saved = before.saved;
        evaluated = j;
        run_all(&j, i + 2 < n);
        if (i + 2 < n) {
            const int64_t first = j.options.checkpoint ? before.saved + 1 : 1;
            assert_true(j.first == first && j.steps == j.options.steps - first + 1);
            assert_int_equal(j.evaluations, strstr(runs[i], HELD) ? j.steps : 0);
            assert_int_equal(j.quantized > 0, j.options.step.quantize.on);
            if (j.options.checkpoint) assert_int_equal(j.saved, j.options.steps), before = j;
        } else if (!strstr(j.err[0].text, i + 1 < n ? "debug.seed 1, this run has 3" : "tok_embeddings.weight")) {
            fail_msg("%s: %s", runs[i], j.err[0].text);
        }
        if (strstr(runs[i], HELD)) {
            evaluated.only_evaluates = true;
            run_all(&evaluated, true);
            if (j.options.checkpoint) assert_true(near(evaluated.evaluation[0].loss, j.validation, 0));
        }
        tm_config_destroy(config);
    }
    assert_int_equal(chdir(back), 0);
    free(back);
}

TEST_FIXTURE(NULL, test_folder_teardown)
