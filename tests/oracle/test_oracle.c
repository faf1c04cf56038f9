/* SPDX-License-Identifier: Apache-2.0 */
/* Whole trainings, step by step, against the oracle's: loss, gradient norm, rate, evaluations, and at the end all
 * weights and moments. And the oracle's gradients against differences of its loss. */
#include "oracle/oracle.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "support/test.h"
#include "support/training.h"

#include "base/log.h"
#include "graph/value.h"
#include "train/checkpoint/view.h"

#include <errno.h>
#include <signal.h>

/* --- trainings ---------------------------------------------------------------------------------------------------- */

#define RUN                                                                                                            \
    "tiny-llama --debug.certificate=false --training.stop_at_target=false --validation.freq=0 --training.seq_len=8 "   \
    "--training.local_batch_size=2 "                                                                                   \
    "--optimizer.lr=0.02 --lr_scheduler.warmup_steps=2 --validation.steps=2 "
#define LLAMA                                                                                                          \
    RUN "--model.family=llama --model.vocab_size=24 --model.dim=12 --model.n_layers=2 --model.n_heads=4 "              \
        "--model.n_kv_heads=2 --model.head_dim=4 --model.ffn_dim=20 --data.source=mock "
#define GPT                                                                                                            \
    RUN "--model.family=gpt --model.vocab_size=24 --model.dim=12 --model.n_layers=2 --model.n_heads=3 "                \
        "--model.n_kv_heads=3 --model.head_dim=4 --model.ffn_dim=20 --model.max_seq_len=9 --model.tied=true "          \
        "--data.source=mock "
#define EXPERTS                                                                                                        \
    RUN "--model.family=mixtral --model.vocab_size=24 --model.dim=12 --model.n_layers=2 --model.n_heads=2 "            \
        "--model.n_kv_heads=1 --model.head_dim=6 --model.moe_ffn_dim=10 --model.n_experts=5 "                          \
        "--model.n_experts_per_token=2 --data.source=mock "
#define TEXT                                                                                                           \
    RUN "--model.family=llama --model.vocab_size=257 --model.dim=8 --model.n_layers=1 --model.n_heads=2 "              \
        "--model.n_kv_heads=1 --model.head_dim=4 --model.ffn_dim=12 --data.source=text --data.sample_tokens=0 "        \
        "--data.validation_fraction=0.2 --validation.freq=2 "
#define LOW                                                                                                            \
    RUN "--model.family=llama --model.vocab_size=24 --model.dim=16 --model.n_layers=2 --model.n_heads=2 "              \
        "--model.n_kv_heads=2 --model.head_dim=8 --model.ffn_dim=32 --data.source=mock --validation.freq=1 "
#define LORA "--lora.rank=2 --lora.alpha=3 --lora.targets=o_proj,down_proj --validation.freq=1 "
/* Where numbers are float32, small gradients must not decide. */
#define SINGLE "--optimizer.eps=1e-3 --optimizer.lr=0.01 "

typedef enum { DOUBLE, SINGLE_PRECISION, ROUNDED } arithmetic;
typedef struct {
    const char *name, *words;
    arithmetic  in;
    bool        resumed; /* after each step */
} training;

static const training trainings[] = {
    { "llama", LLAMA "--training.steps=5 --training.max_norm=0", DOUBLE, false },
    { "llama, tied, clipped, in parts",
      LLAMA "--training.steps=5 --model.tied=true --training.max_norm=0.3 --training.grad_accumulation=3", DOUBLE,
      false },
    { "llama, a window, other constants",
      LLAMA "--training.steps=4 --model.sliding_window=3 --model.norm_eps=0.01 --model.rope_theta=50 "
            "--optimizer.eps=1e-3 --optimizer.beta1=0.8 --optimizer.beta2=0.9 --optimizer.weight_decay=0.5",
      DOUBLE, false },
    { "llama, decay of matrices", LLAMA "--training.steps=5 --optimizer.weight_decay=2 --optimizer.decay=matrices",
      DOUBLE, false },
    { "llama, resumed", LLAMA "--training.steps=5 --training.grad_accumulation=2 --validation.freq=2", DOUBLE, true },
    { "gpt", GPT "--training.steps=5 --training.grad_accumulation=2 --optimizer.decay=matrices", DOUBLE, false },
    { "gpt, a head of its own, no biases", GPT "--training.steps=4 --model.tied=false --model.bias=none", DOUBLE,
      false },
    { "gpt, resumed", GPT "--training.steps=4 --training.max_norm=0.5", DOUBLE, true },
    { "averages", LLAMA "--training.steps=5 --training.ema_decay=0.8", DOUBLE, true },
    { "averages, adapters", LLAMA LORA "--training.steps=4 --training.ema_decay=0.5", DOUBLE, false },
    { "constant rate", LLAMA "--training.steps=6 --lr_scheduler.decay_ratio=0", DOUBLE, false },
    { "warm-up, constant, decay",
      LLAMA "--training.steps=8 --lr_scheduler.decay_ratio=0.4 --lr_scheduler.decay_type=sqrt "
            "--lr_scheduler.min_lr_factor=0.1",
      DOUBLE, false },
    { "cosine", LLAMA "--training.steps=7 --lr_scheduler.decay_type=cosine --lr_scheduler.min_lr_factor=0.2", DOUBLE,
      false },
    { "exponential, longer than the run",
      LLAMA "--training.steps=6 --lr_scheduler.decay_type=exponential --lr_scheduler.total_steps=9 "
            "--lr_scheduler.decay_steps=5",
      DOUBLE, true },
    { "nemo", LLAMA "--training.steps=6 --lr_scheduler.form=nemo --lr_scheduler.min_lr_factor=0.1", DOUBLE, false },
    { "megatron", LLAMA "--training.steps=6 --lr_scheduler.form=megatron --lr_scheduler.decay_type=cosine", DOUBLE,
      false },
    { "torchtune", LLAMA "--training.steps=6 --lr_scheduler.form=torchtune", DOUBLE, false },
    { "experts", EXPERTS "--training.steps=4 --validation.freq=2", DOUBLE, false },
    { "experts, balanced by a loss of sequences",
      EXPERTS "--training.steps=5 --model.moe_aux_loss=0.3 --training.grad_accumulation=2 --model.moe_scale=1.5",
      DOUBLE, false },
    { "experts, balanced by a loss of micro-batches, scores as they are",
      EXPERTS "--training.steps=4 --model.moe_aux_loss=0.3 --model.moe_aux_loss_per_sequence=false "
              "--model.moe_normalise=false",
      DOUBLE, false },
    { "experts, balanced by a bias",
      EXPERTS "--training.steps=6 --model.moe_score=sigmoid --model.moe_bias_rate=0.05 --training.grad_accumulation=2 "
              "--validation.freq=3",
      DOUBLE, true },
    { "text of several epochs", TEXT "--training.steps=8 --training.grad_accumulation=2", DOUBLE, false },
    { "text, documents apart",
      TEXT "--training.steps=6 --training.grad_accumulation=3 --training.local_batch_size=1 "
           "--data.separate_documents=true --debug.seed=5",
      DOUBLE, false },
    { "text, documents apart, resumed",
      TEXT "--training.steps=7 --training.grad_accumulation=2 --data.separate_documents=true", DOUBLE, true },
    { "gpt, documents apart",
      TEXT "--training.steps=4 --training.grad_accumulation=2 --data.separate_documents=true --model.family=gpt "
           "--model.n_kv_heads=2 --model.max_seq_len=8 --model.tied=true",
      DOUBLE, false },
    { "adapters", LLAMA LORA "--training.steps=4", DOUBLE, false },
    { "adapters with dropout",
      LLAMA LORA "--training.steps=5 --lora.dropout=0.3 --training.grad_accumulation=2 --debug.seed=3", DOUBLE, false },
    { "adapters of rank 1 with dropout, resumed", LLAMA LORA "--training.steps=4 --lora.rank=1 --lora.dropout=0.3",
      DOUBLE, true },
    { "delayed scales",
      LOW "--training.steps=6 --quantize.recipe=fp8_delayed --fp8_amax_history_len=3 --fp8_margin=1 "
          "--training.grad_accumulation=2",
      DOUBLE, false },
    { "delayed scales, the newest, resumed",
      LOW "--training.steps=4 --quantize.recipe=fp8_delayed --fp8_amax_history_len=2 "
          "--fp8_amax_compute_algo=most_recent",
      DOUBLE, true },
    { "current scales", LOW "--training.steps=4 --quantize.recipe=fp8_current --training.grad_accumulation=2", DOUBLE,
      false },
    { "gradients rounded at random",
      LOW "--training.steps=4 --quantize.recipe=fp8_current --quantize.stochastic_gradients=true "
          "--training.grad_accumulation=2",
      DOUBLE, true },
    { "float32, llama", LLAMA SINGLE "--training.steps=6 --training.grad_accumulation=2", SINGLE_PRECISION, false },
    { "float32, gpt", GPT SINGLE "--training.steps=5", SINGLE_PRECISION, false },
    { "float32, experts", EXPERTS SINGLE "--training.steps=4 --model.moe_aux_loss=0.1", SINGLE_PRECISION, false },
    { "float32, documents apart",
      TEXT SINGLE "--training.steps=6 --data.separate_documents=true --training.grad_accumulation=2", SINGLE_PRECISION,
      false },
    { "float32, adapters with dropout",
      LLAMA LORA SINGLE "--training.steps=4 --lora.dropout=0.3 --training.grad_accumulation=2", SINGLE_PRECISION,
      false },
    { "bfloat16 weights rounded at random",
      LLAMA SINGLE "--training.steps=4 --training.dtype=bfloat16 --training.regime=pure "
                   "--optimizer.bf16_stochastic_round=true",
      ROUNDED, false },
};
enum { TRAININGS = sizeof trainings / sizeof trainings[0] };

/* Weights and gradients in bfloat16, all else in float32. */
static const tm_precision weights_rounded = { "rounded weights", TM_BF16, TM_F32, TM_BF16, TM_F32, TM_F32 };

/* --- texts -------------------------------------------------------------------------------------------------------- */

enum { TEXTS = 4, LONGEST = 60 };
static const int   sizes[TEXTS] = { 41, 7, 60, 23 };
static char        bytes[TEXTS][LONGEST + 1];
static oracle_text texts[TEXTS];

/* Some files of letters; their folder. */
static const char *write_texts(void)
{
    static char folder[256];
    snprintf(folder, sizeof folder, "%s", test_in_folder("texts"));
    if (mkdir(folder, 0700) != 0 && errno != EEXIST) fail_msg("cannot make %s", folder);
    for (int i = 0; i < TEXTS; i++) {
        char name[16];
        for (int b = 0; b < sizes[i]; b++) bytes[i][b] = (char)('a' + oracle_random(3, (uint64_t)i, (uint64_t)b) % 23);
        snprintf(name, sizeof name, "%d", i);
        test_file_write(folder, name, bytes[i]);
        texts[i] = (oracle_text){ (const unsigned char *)bytes[i], sizes[i] };
    }
    return folder;
}

/* --- trainmark's training ----------------------------------------------------------------------------------------- */

enum { MOST_STEPS = 8 };
typedef struct {
    tm_sink               sink;
    oracle_step           heard[MOST_STEPS + 1];
    int64_t               stop_after, last;
    volatile sig_atomic_t stop;
} listener;

static void hear(tm_sink *sink, const tm_event *event)
{
    listener *l = (listener *)(void *)sink;
    if (event->kind == TM_EVENT_STEP_DONE) {
        const tm_step_done *done = &event->step_done;
        assert_in_range(done->step, 1, MOST_STEPS);
        assert_int_equal(done->step, l->last + 1);
        oracle_step *to = &l->heard[l->last = done->step];
        *to = (oracle_step){ done->loss, done->grad_norm, done->learning_rate, (double)NAN, 0 };
        for (size_t i = 0; i < done->n_measures; i++)
            if (strcmp(done->measures[i].name, "moe_balance_loss") == 0) to->balance = done->measures[i].value;
        l->stop = done->step == l->stop_after;
    }
    if (event->kind == TM_EVENT_EVALUATION) l->heard[event->evaluation.step].validation = event->evaluation.loss;
}

/* The oracle's first weights. */
static tm_status load(void *context, tm_trainer *trainer, tm_error *err)
{
    const tm_graph *graph = tm_trainer_step_of(trainer)->graph;
    (void)err;
    for (size_t i = 0; i < graph->n_tensors; i++) {
        if (graph->tensors[i].role != TM_ROLE_PARAMETER) continue;
        oracle_parameter *p = oracle_find(context, graph->tensors[i].name);
        if (!p) fail_msg("the oracle has no parameter '%s'", graph->tensors[i].name);
        assert_int_equal(p->rows * p->columns, tm_shape_elements(graph->tensors[i].shape));
        test_values_write(trainer, (tm_tensor_id)i, p->w);
    }
    return TM_OK;
}

/* Until it is done, in as many processes' worth of runs as it takes. */
static void train(const training *t, oracle *o, const char *folder, listener *heard)
{
    tm_device     *device = test_device_open(t->in == DOUBLE ? "reference" : "cpu", 1);
    tm_run_options options;
    tm_source     *source;
    tm_error       err = { 0 };
    char           words[2048];
    snprintf(words, sizeof words, "%s%s%s", t->words, texts[0].size ? " --data.path=" : "",
             texts[0].size ? write_texts() : "");
    tm_config *config = test_run_of(words, &options);
    if (t->in == DOUBLE) options.step.precision = &tm_precision_f64;
    if (t->in == ROUNDED) options.step.precision = &weights_rounded;
    options.load_weights = load, options.load_context = o;
    options.checkpoint = true, options.checkpoint_folder = folder, options.checkpoint_interval = 1000;
    heard->sink.handle = hear;
    tm_event_bus bus = { .sinks = (tm_sink *[]){ &heard->sink }, .count = 1 };
    if (tm_source_open(&options.source, &source, &err) != TM_OK) fail_msg("%s: %s", t->name, err.text);
    for (tm_status st = TM_INTERRUPTED; st == TM_INTERRUPTED;) {
        heard->stop = 0;
        heard->stop_after = t->resumed ? heard->last + 1 : 0;
        st = tm_run(&options, device, source, &bus, &heard->stop, &err);
        if (st != TM_OK && st != TM_INTERRUPTED && st != TM_NUMBERS) fail_msg("%s: %s", t->name, err.text);
    }
    assert_int_equal(heard->last, options.steps);
    tm_source_close(source);
    tm_config_destroy(config);
    tm_device_close(device);
}

/* --- comparing ---------------------------------------------------------------------------------------------------- */

static double tolerance(const training *t)
{
    return t->in == DOUBLE ? 1e-9 : t->in == SINGLE_PRECISION ? 1e-4 : 2e-2;
}

static void close_to(const training *t, const char *what, int step, double value, double wanted)
{
    if (isnan(wanted)) return;
    if (!(fabs(value - wanted) <= tolerance(t) * fmax(fabs(wanted), 1e-3)))
        fail_msg("%s: %s of step %d is %.12g, the oracle has %.12g", t->name, what, step, value, wanted);
}

/* One tensor: the largest difference, as a share of the largest number. Of weights that are rounded, a few may be the
 * other neighbour. */
static void same_tensor(const training *t, tm_checkpoint_view *view, const oracle_parameter *p, const char *state,
                        const double *wanted)
{
    char     name[120];
    int      dtype, n = p->rows * p->columns, other = 0;
    size_t   size;
    tm_error err = { 0 };
    double   largest = 1e-12;
    snprintf(name, sizeof name, "%s%s", p->name, state);
    if (tm_checkpoint_view_find(view, name, &dtype, &size, &err) != TM_OK) fail_msg("%s: %s", t->name, err.text);
    void *data = malloc(size);
    if (tm_checkpoint_view_read(view, name, 0, data, size, &err) != TM_OK) fail_msg("%s: %s", t->name, err.text);
    assert_int_equal(size, (size_t)n * tm_dtype_bytes((tm_dtype)dtype));
    for (int i = 0; i < n; i++) largest = fmax(largest, fabs(wanted[i]));
    for (int i = 0; i < n; i++) {
        double value = tm_value_get(data, (tm_dtype)dtype, i), apart = fabs(value - wanted[i]);
        if (t->in == ROUNDED && !*state)
            other += value != wanted[i];
        else if (!(apart <= tolerance(t) * largest))
            fail_msg("%s: element %d of '%s' is %.12g, the oracle has %.12g", t->name, i, name, value, wanted[i]);
    }
    if (other * 50 > n + 50) fail_msg("%s: %d of %d numbers of '%s' are rounded otherwise", t->name, other, n, name);
    free(data);
}

static void same_state(const training *t, const oracle *o, const char *folder)
{
    tm_checkpoint_view *view;
    tm_error            err = { 0 };
    if (tm_checkpoint_view_open(folder, o->steps, &view, &err) != TM_OK) fail_msg("%s: %s", t->name, err.text);
    for (int k = 0; k < o->n_parameters; k++) {
        const oracle_parameter *p = &o->parameters[k];
        if (!p->trained && !p->state) continue;
        same_tensor(t, view, p, "", p->w);
        if (!p->trained) continue;
        same_tensor(t, view, p, ".exp_avg", p->m);
        same_tensor(t, view, p, ".exp_avg_sq", p->v);
        if (strstr(t->words, "ema_decay")) same_tensor(t, view, p, ".ema", p->average);
    }
    tm_checkpoint_view_close(view);
}

static void judge(const training *t)
{
    bool     reads = strstr(t->words, "data.source=text") != NULL;
    listener heard = { .last = 0 };
    char    *folder = test_tree_make();
    if (reads)
        write_texts();
    else
        memset(texts, 0, sizeof texts);
    oracle *o = oracle_open(t->words, texts, reads ? TEXTS : 0);
    if (t->in == ROUNDED) oracle_round(o);
    train(t, o, folder, &heard);
    for (int step = 1; step <= o->steps; step++) {
        oracle_step wanted = oracle_train(o), *is = &heard.heard[step];
        close_to(t, "loss", step, is->loss, wanted.loss);
        close_to(t, "gradient norm", step, is->norm, wanted.norm);
        close_to(t, "learning rate", step, is->rate, wanted.rate);
        close_to(t, "balance loss", step, is->balance, wanted.balance);
        if (!t->resumed || step == o->steps) /* a run that is stopped leaves out its evaluation */
            close_to(t, "validation loss", step, is->validation, wanted.validation);
    }
    same_state(t, o, folder);
    oracle_close(o);
    test_tree_remove(folder);
}

static void judge_all(arithmetic in, bool resumed)
{
    tm_log_set_level(TM_LOG_ERROR);
    for (int i = 0; i < TRAININGS; i++)
        if (trainings[i].in == in && trainings[i].resumed == resumed) judge(&trainings[i]);
}

TEST(trains_as_the_oracle)
{
    judge_all(DOUBLE, false);
}

TEST(goes_on_as_the_oracle)
{
    judge_all(DOUBLE, true);
}

TEST(trains_as_the_oracle_in_float32)
{
    judge_all(SINGLE_PRECISION, false);
}

TEST(rounds_weights_as_the_oracle)
{
    judge_all(ROUNDED, false);
}

/* --- the oracle itself -------------------------------------------------------------------------------------------- */

static double objective(oracle *o, const oracle_batch *d)
{
    o->balanced = 0;
    double loss = oracle_forward(o, d, true);
    return (loss + o->balanced) / d->counted;
}

TEST(gradients_are_differences)
{
    static const char *const words[] = {
        LLAMA "--training.steps=1 --model.sliding_window=5",
        LLAMA "--training.steps=1 --model.tied=true",
        GPT "--training.steps=1",
        EXPERTS "--training.steps=1 --model.moe_aux_loss=0.3 --model.moe_scale=1.5",
        EXPERTS "--training.steps=1 --model.moe_score=sigmoid --model.moe_normalise=false --model.moe_bias_rate=0.1",
        LLAMA LORA "--training.steps=1 --lora.dropout=0.3",
        TEXT "--training.steps=1 --data.separate_documents=true",
    };
    const double h = 1e-5;
    for (size_t k = 0; k < sizeof words / sizeof words[0]; k++) {
        write_texts();
        oracle      *o = oracle_open(words[k], texts, strstr(words[k], "source=text") ? TEXTS : 0);
        oracle_batch d = oracle_batch_make(o);
        for (int r = 0; r < o->rows; r++) oracle_sample(o, 0, r, r, &d);
        (void)objective(o, &d);
        oracle_backward(o, &d, 1. / d.counted);
        for (int i = 0; i < o->n_parameters; i++) {
            oracle_parameter *p = &o->parameters[i];
            for (int e = 0; e < p->rows * p->columns && !p->state; e += 1 + p->rows * p->columns / 40) {
                double was = p->w[e], up, down;
                p->w[e] = was + h, up = objective(o, &d);
                p->w[e] = was - h, down = objective(o, &d);
                p->w[e] = was;
                if (!(fabs((up - down) / (2 * h) - p->g[e]) <= 1e-8 + 1e-6 * fabs(p->g[e])))
                    fail_msg("case %zu, '%s' %d: %.10g, by differences %.10g", k, p->name, e, p->g[e],
                             (up - down) / (2 * h));
            }
        }
        oracle_batch_free(&d);
        oracle_close(o);
    }
}

TEST_FIXTURE(NULL, test_folder_teardown)
