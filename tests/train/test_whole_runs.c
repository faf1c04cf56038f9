/* SPDX-License-Identifier: Apache-2.0 */
/* What small runs tell: every event agrees with those before it, with the options and with the times by a clock that
 * goes on by a millisecond whenever the run looks at it. What happens in which order, why a run ends and what is said
 * of it is in the row of the run. */
#include "support/test.h"
#include "support/full_config.h"
#include "support/source_files.h"
#include "support/folder.h"
#include "support/looked_clock.h"
#include "support/training.h"
#include "support/whole.h"
#include "rank_run.h"

#include "base/log.h"
#include "stats/sampling.h"
#include "train/run/interleave.h"
#include "train/run/run.h"

#include <sys/socket.h>

/* ---- who listens ---- */

enum { MOST_STEPS = 200 };

typedef struct {
    tm_sink                sink;
    tm_text               *out;
    const tm_run_options  *options;
    int64_t                stop_at; /* step; 0: never; -1: in the first validation */
    volatile sig_atomic_t *stop;
    /* of the events so far */
    int64_t      first, steps, tokens, planned, batch;
    int64_t      samples; /* before this process; -1: of the batches that it has, too */
    double       seconds[MOST_STEPS], loss_first, loss_last, validation;
    tm_named_f64 measures[8];
    size_t       n_measures;
    bool         evaluating;
    double       floor;
    bool         sample;
    char         said[TM_REASON_BYTES + 100];
} listener;

static void assert_close(double is, double wanted)
{
    if (!(fabs(is - wanted) <= 1e-9 * fmax(fabs(wanted), 1e-300) || (isnan(is) && isnan(wanted))))
        fail_msg("%.17g, wanted %.17g", is, wanted);
}

/* Classes of memory are all of the plan; the least of them that lives along the step is no more than the whole. */
static void hear_start(listener *l, const tm_run_started *s)
{
    int64_t sum = 0;
    for (size_t i = 0; i < s->n_memory; i++) sum += s->memory[i].value;
    assert_true(sum >= s->planned_bytes); /* classes share space at other times of the step */
    for (size_t p = 0; p < s->n_points; p++) {
        int64_t live = 0;
        for (size_t i = 0; i < s->n_memory_along; i++) live += s->memory_along[i].bytes[p];
        assert_true(live > 0 && live <= s->planned_bytes);
    }
    const tm_run_options *o = l->options;
    assert_int_equal(s->steps, o->steps);
    assert_int_equal(s->seed, o->seed);
    assert_int_equal(s->devices, 1);
    assert_int_equal(s->recipe.sequence_length, o->step.seq);
    assert_int_equal(s->recipe.global_batch, s->recipe.micro_batch * s->recipe.accumulation);
    if (l->samples < 0) l->samples = (s->first_step - 1) * s->recipe.global_batch;
    assert_int_equal(s->first_sample, l->samples);
    assert_close(s->recipe.learning_rate, o->learning_rate);
    assert_true(s->n_flops_per_token > 0 && s->flops_per_token[0].value > 0);
    l->first = s->first_step;
    l->planned = s->planned_bytes;
    l->batch = s->recipe.global_batch;
    l->tokens = s->batch_tokens;
    l->floor = s->loss_floor;
}

/* Phases are all of a step's time; what every step does is in its ledger. */
static void hear_step(listener *l, const tm_step_done *s)
{
    static const char *const lines[] = { "data", "optimizer", "loss" };
    double                   sum = 0, slow = 0;
    const tm_run_options    *o = l->options;
    assert_int_equal(s->step, l->first + l->steps);
    assert_true(l->steps < MOST_STEPS);
    assert_string_equal(s->phases[s->n_phases - 1].name, "unaccounted");
    for (size_t i = 0; i < s->n_phases; i++) {
        assert_true(s->phases[i].value >= -1e-12);
        sum += s->phases[i].value;
        if (strcmp(s->phases[i].name, "injected slowdown") == 0) slow = s->phases[i].value;
    }
    assert_close(sum, s->seconds);
    for (int k = 0; k < 3; k++) {
        size_t i = 0;
        while (i < s->n_phases && strcmp(s->phases[i].name, lines[k]) != 0) i++;
        assert_true(i < s->n_phases && s->phases[i].value > 0);
    }
    /* the spin ends at the first look behind its share */
    double share = (s->seconds - slow) * o->slowdown_pct / 100;
    assert_true(slow >= share - 0.0021 && slow <= share + 0.0021);
    assert_close(s->learning_rate, o->learning_rate * tm_schedule_factor(&o->schedule, s->step - 1));
    assert_int_equal(s->used_bytes, l->planned);
    assert_true(s->tokens > 0 && s->tokens <= l->tokens);
    if (l->steps == 0) l->loss_first = s->loss;
    l->loss_last = s->loss;
    l->seconds[l->steps++] = s->seconds;
    if (s->step == l->stop_at) *l->stop = 1;
    if (s->step < 8 || s->step % 20 == 0) tm_text_printf(l->out, " %lld", (long long)s->step);
}

static void hear_evaluation(listener *l, const tm_evaluation *e)
{
    assert_true(l->evaluating);
    l->evaluating = false;
    assert_int_equal(e->step, l->first + l->steps - 1);
    assert_int_equal(e->samples, l->samples + l->steps * l->batch);
    assert_true(e->tokens > 0 && e->seconds > 0);
    /* a text has one token more than bytes */
    double of_text = e->bits_per_byte / (e->loss / 0.69314718055994531);
    if (strcmp(l->options->source.name, "text") == 0) assert_true(of_text >= 1 && of_text < 1.01);
    l->validation = e->loss;
    l->n_measures = e->n_measures;
    for (size_t i = 0; i < e->n_measures && i < 8; i++) l->measures[i] = e->measures[i];
    tm_text_printf(l->out, " evaluated%s", e->last ? " at last" : "");
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* What is told in the end is what was told before: losses, times, their middle and sum. */
static void hear_end(listener *l, const tm_run_ended *e)
{
    const tm_sample_summary *s = e->speed;
    double                   sorted[MOST_STEPS], sum = 0;
    assert_int_equal(e->steps, l->steps);
    assert_int_equal(e->samples, l->samples + l->steps * l->batch);
    assert_int_equal(e->planned_bytes, l->planned);
    assert_true(e->used_bytes <= e->planned_bytes);
    for (int64_t i = 0; i < l->steps; i++) assert_close(e->step_seconds[i], l->seconds[i]);
    if (l->steps > 0 && l->first == 1) assert_close(e->loss_first, l->loss_first);
    if (l->steps > 0) assert_close(e->loss_last, l->loss_last);
    assert_close(e->loss_validation, l->validation);
    assert_close(e->loss_floor, l->floor);
    if (l->n_measures) assert_int_equal(e->n_measures, l->n_measures);
    for (size_t i = 0; i < l->n_measures && i < 8; i++) assert_close(e->measures[i].value, l->measures[i].value);
    assert_int_equal(s->n + s->warmup, l->steps);
    for (int64_t i = 0; i < s->n; i++) sum += sorted[i] = l->seconds[s->warmup + i];
    qsort(sorted, (size_t)s->n, sizeof *sorted, by_value);
    if (s->n > 0) {
        assert_close(s->median, (sorted[(s->n - 1) / 2] + sorted[s->n / 2]) / 2);
        assert_close(s->rate, (double)(s->n * l->tokens) / sum);
    }
    l->sample = e->sample && *e->sample;
    snprintf(l->said, sizeof l->said, "%s; stopped: %s%s", e->reason, e->stopped,
             e->interrupted ? "; interrupted" : "");
}

static void hear(tm_sink *sink, const tm_event *event)
{
    listener *l = (listener *)sink;
    switch (event->kind) {
    case TM_EVENT_RUN_STARTED:
        hear_start(l, &event->run_started);
        break;
    case TM_EVENT_STEP_DONE:
        hear_step(l, &event->step_done);
        break;
    case TM_EVENT_PICTURE: /* no model of images has encoders here */
    case TM_EVENT_BETWEEN_STEPS:
        fail(); /* nobody wants it here */
        break;
    case TM_EVENT_EVALUATION_STARTED:
        assert_false(l->evaluating);
        l->evaluating = true;
        if (l->stop_at < 0) *l->stop = 1;
        break;
    case TM_EVENT_EVALUATION:
        hear_evaluation(l, &event->evaluation);
        break;
    case TM_EVENT_CHECKPOINT:
        assert_int_equal(event->checkpoint.step, l->first + l->steps - 1);
        tm_text_add(l->out, " saved");
        break;
    case TM_EVENT_LOOK:
        tm_text_add(l->out, " looked");
        break;
    case TM_EVENT_QUANTIZED:
        tm_text_printf(l->out, " told of %zu factors", event->quantized.n_factors);
        break;
    case TM_EVENT_REPLAYED:
    case TM_EVENT_STRAGGLER:
        break;
    case TM_EVENT_RUN_ENDED:
        hear_end(l, &event->run_ended);
    }
}

/* ---- the runs ---- */

#define TINY                                                                                                           \
    "tiny-llama --model.n_layers 2 --model.dim 32 --model.n_heads 2 --model.n_kv_heads 1 --model.ffn_dim 64 "          \
    "--training.seq_len 16 --training.local_batch_size 2 --training.threads 1 --training.stop_at_target false "        \
    "--optimizer.lr 0.01 --lr_scheduler.warmup_steps 2 "
#define NONE "--validation.enable false "
#define TEXT "--data.source text --data.path text.txt --model.vocab_size 257 --data.sample_tokens 30 "
#define PAIRS                                                                                                          \
    "--training.steps 3 --data.source preference --data.path pairs.jsonl --data.validation_fraction 0.3 "              \
    "--model.vocab_size 257 --training.seq_len 32 --validation.steps 2 "
#define BLOCKS NONE "--model.dim 64 --training.seq_len 32 "
#define SAVES "--checkpoint.enable --checkpoint.folder saved "

/* `events`: steps and what lies between them. `says`: is in the reason, or in the error. `log`: is in what is written
 * beside it. stop_at: a signal comes in this step, or (-1) in the first validation. */
static const struct {
    const char *words, *events, *says, *log;
    int         exit;
    int64_t     stop_at;
    const char *folder;        /* of checkpoints, whether they are enabled or not; "": none; NULL: as the words say */
    int64_t     quantize_freq; /* 0: as the words say */
    bool        concluded;     /* the result is written */
    int64_t     samples;       /* of steps before it with other batches; 0: none had others */
} runs[] = {
    { TINY "--training.steps 3 " NONE, .events = "1 2 3",
      "3 steps are too few to judge (50 are needed); stopped: all steps done" },
    { TINY "--training.steps 5 --training.global_batch_size 6 --validation.freq 2 --validation.steps 3 "
           "--debug.seed 9 --optimizer.weight_decay 0.3 --training.max_norm 0.1",
      .events = "1 2 evaluated 3 4 evaluated 5 evaluated at last" },
    { TINY "--training.steps 4 --validation.freq 1 --validation.first 3 --validation.steps 2 "
           "--validation.local_batch_size 1 --validation.average sequences",
      .events = "1 2 3 evaluated 4 evaluated at last" },
    { TINY "--training.steps 9 --training.target_loss 9 --validation.freq 2 --validation.steps 1",
      .events = "1 2 evaluated at last", "stopped: target loss reached" },
    { TINY "--training.steps 9 --training.stop_at_target true --training.target_loss_gap 7 --validation.freq 3 "
           "--validation.steps 1",
      .events = "1 2 3 evaluated at last", "is within 7 nat of the floor, but not below what single tokens give",
      .exit = 3 },
    { TINY "--training.steps 3 --validation.steps 1", .events = "1 2 3", "stopped: interrupted", .exit = 130,
      .stop_at = 3 },
    { TINY "--training.steps 9 --validation.freq 2 --validation.steps 1", .events = "1 2",
      "stopped: interrupted; interrupted", .exit = 130, .stop_at = -1 },
    { TINY "--training.steps 9 --validation.freq 2 --validation.steps 1", .events = "1 2 evaluated 3",
      "stopped: interrupted; interrupted", .exit = 130, .stop_at = 3 },
    { TINY "--training.steps 9 --optimizer.name SGD --optimizer.lr 100 --training.max_norm 0 " NONE, .events = NULL,
      "a loss or gradient norm is not finite: step ", "is not finite: step ", .exit = 3 },
    { TINY "--training.steps 60 --training.local_batch_size 4 --validation.steps 2 --debug.certificate true "
           "--debug.certificate_after true",
      .events = "1 2 3 4 5 6 7 20 evaluated 40 evaluated 60 evaluated at last", "loss fell from " },
    { TINY "--training.steps 60 --optimizer.lr 1e-9 --validation.steps 2",
      .events = "1 2 3 4 5 6 7 20 evaluated 40 evaluated 60 evaluated at last",
      "norm.weight is trained, but has not moved", .exit = 3 },
    { TINY "--training.steps 60 --optimizer.lr 0 --optimizer.weight_decay 0 --validation.steps 2",
      .events = "1 2 3 4 5 6 7 20 evaluated 40 evaluated 60 evaluated at last",
      "no weight has moved in the 60 steps of this run", .exit = 3 },
    { TINY "--training.steps 60 --data.source mock --validation.steps 2",
      .events = "1 2 3 4 5 6 7 20 evaluated 40 evaluated 60 evaluated at last", "random tokens: loss " },
    { TINY "--training.steps 200 --metrics.target_half_width 0.2 " NONE, .events = "1 2 3 4 5 6 7 20 40",
      "stopped: precise enough" },
    { TINY "--training.steps 4 --debug.slowdown_pct 50 " NONE, .events = "1 2 3 4", "slowed down by 50 % on purpose",
      "every step is slowed down by 50 % on purpose" },
    /* saved, and gone on with */
    { TINY SAVES "--training.steps 4 --checkpoint.interval 2 " NONE, .events = "1 2 saved 3 4 saved" },
    { TINY SAVES "--training.steps 7 --checkpoint.interval 3 --validation.steps 1 --validation.freq 6",
      .events = "5 6 evaluated saved 7 evaluated at last saved", NULL, "resumed from step 4 in 'saved'" },
    { TINY SAVES "--training.steps 7 --validation.steps 1", .events = "evaluated at last",
      "all 7 steps were done before this process", "only the result is missing" },
    { TINY SAVES "--training.steps 7 --validation.steps 1 --validation.freq 5", .events = "", .concluded = true },
    { TINY SAVES "--training.steps 9 --debug.seed 5", .events = "", "was made with debug.seed 1, this run has 5",
      .exit = 4 },
    { TINY SAVES "--training.steps 9 --model.rope_theta 77", .events = "", "has rope_theta 10000, this run's has 77",
      .exit = 4 },
    { TINY SAVES "--training.steps 9 --data.source mock", .events = "",
      "is not what the checkpoint in 'saved' was trained on", .exit = 4 },
    { TINY SAVES "--training.steps 8 --data.source mock --checkpoint.allow_changed_data --validation.steps 1",
      .events = "evaluated at last saved", NULL, "the data is not what the checkpoint was trained on" },
    { TINY SAVES "--training.steps 8 --checkpoint.load_step 6 --validation.steps 1",
      .events = "7 evaluated at last saved", NULL, "resumed from step 6 in 'saved'" },
    { TINY "--training.steps 9 " NONE, .events = "1 2 3 saved", "interrupted", .exit = 130, .stop_at = 3,
      .folder = "other" },
    { TINY "--training.steps 4 " NONE, .events = "1 2 3 4", .folder = "other" }, /* nor gone on with, nor saved */
    { TINY "--training.steps 5 --checkpoint.enable --checkpoint.interval 4 --disable_last_saving true " NONE,
      .events = "4 saved 5", NULL, "resumed from step 3 in 'other'", .folder = "other" },
    { TINY "--training.steps 4 --checkpoint.enable --checkpoint.interval 2 " NONE, .events = "1 2 3", "interrupted",
      .exit = 130, .stop_at = 3, .folder = "" },
    { TINY "--training.steps 4 --checkpoint.enable --validation.steps 1", .events = "1 2 3 4 evaluated at last saved",
      .folder = "batches" },
    { TINY "--training.steps 7 --checkpoint.enable --validation.steps 1 --training.grad_accumulation 3",
      .events = "5 6 7 evaluated at last saved", NULL, "resumed from step 4", .folder = "batches", .samples = 8 },
    { TINY "--training.steps 7 --checkpoint.enable --validation.steps 1 --training.grad_accumulation 3",
      .events = "evaluated at last", NULL, "only the result is missing", .folder = "batches", .samples = 26 },
    /* texts; rows; pairs; images */
    { TINY TEXT "--training.steps 1 --data.validation_fraction 0 --validation.steps 1", .events = "1 a sample", NULL,
      "the warm-up is cut to 1 steps" },
    { TINY TEXT "--training.steps 3 --data.validation_fraction 0.2 --data.sample_tokens 30 --validation.steps 2",
      .events = "1 2 3 evaluated at last a sample" },
    { TINY TEXT "--training.steps 3 --data.validation_fraction 0.2 " NONE, .events = "1 2", "interrupted", .exit = 130,
      .stop_at = 2 },
    { TINY "--training.steps 3 --data.source sft --data.path rows.jsonl --data.validation_fraction 0.3 "
           "--model.vocab_size 257 --validation.steps 2",
      .events = "1 2 3 evaluated at last", NULL, "'rows.jsonl': 23 rows of completion; training 17 samples" },
    { TINY PAIRS "--dpo.beta 0.3 --dpo.label_smoothing 0.1 --debug.certificate_after true",
      .events = "1 2 3 evaluated at last", NULL, "has read 7 rows of training and 3 of validation in" },
    { TINY "--training.steps 3 --data.source megatron --data.path set --model.vocab_size 64 --data.validation_path set "
           "--validation.steps 2 --data.separate_documents true",
      .events = "1 2 3 evaluated at last", NULL,
      "'set': 6 samples take 1 epochs of 9 documents; their order takes 356 B of memory: "
      /* 26 samples of 16 in 432 tokens, and where the last ends: 9 x 4, 27 x 8, 26 x 4 */
      "documents 36 B, samples 216 B, shuffle 104 B" },
    { "tiny-flux --training.steps 2 --training.local_batch_size 2 --training.threads 1 --validation.steps 1 "
      "--model.dim 64 --model.n_heads 2 --optimizer.lr 0.001 --training.stop_at_target false "
      "--debug.certificate_after true",
      .events = "1 2 evaluated at last" },
    { TINY "--training.steps 3 --model.family mixtral --model.n_experts 4 --model.n_experts_per_token 2 "
           "--model.moe_ffn_dim 32 --model.moe_aux_loss 0.01 --validation.steps 1 --debug.certificate_after true",
      .events = "1 2 3 evaluated at last" },
    /* products in low precision: four linears of two layers, three of them of several matrices, six factors */
    { TINY "--training.steps 3 --training.dtype bfloat16 --debug.microscope 2 " NONE, .events = "1 looked 2 3" },
    { TINY "--training.steps 3 --quantize.recipe fp8_tensorwise --quantize.log_freq 2 " NONE,
      .events = "1 2 told of 72 factors 3" },
    { TINY BLOCKS "--training.steps 3 --quantize.recipe nvfp4 --quantize.switch_recipe mxfp8 --quantize.switch_step 2 "
                  "--quantize.log_freq 1",
      .events = "1 told of 72 factors 2 told of 72 factors 3 told of 72 factors" },
    { TINY "--training.steps 2 " NONE, .events = "1 2", .quantize_freq = 1 },
};

/* `l` NULL: the weights, which are those of the end where a run has saved them or left them, are evaluated alone. */
static tm_status run(const tm_run_options *options, listener *l, double *loss, tm_error *err)
{
    static volatile sig_atomic_t stop;
    tm_run_evaluation            found = { .loss = (double)NAN };
    tm_device                   *device;
    assert_int_equal(tm_device_open("cpu", options->threads, &device, err), TM_OK);
    assert_int_equal(tm_device_limit_isa(device, "base", err), TM_OK);
    tm_device_allow_reference(device, options->reference_kernels);
    stop = 0;
    if (l) l->stop = &stop;
    tm_status st = rank_run(NULL, options, device, l ? &l->sink : NULL, &stop, l ? NULL : &found, err);
    if (!l && st == TM_OK) assert_true(found.targets > 0);
    if (!l) *loss = found.loss;
    return st;
}

static void run_row(size_t i, tm_text *log)
{
    const char    *words = runs[i].words;
    tm_run_options options;
    tm_error       err = { 0 };
    tm_text        out = { 0 };
    listener       l = { .sink = { .handle = hear }, .out = &out, .stop_at = runs[i].stop_at };
    l.options = &options;
    l.validation = (double)NAN;
    l.samples = runs[i].samples > 0 ? runs[i].samples : -1;
    tm_config  *config = test_run_of(words, &options);
    const char *folder = runs[i].folder ? runs[i].folder : options.checkpoint ? "saved" : "";
    options.checkpoint_folder = *folder ? folder : NULL;
    if (*folder && !options.checkpoint) options.checkpoint_interval = 2; /* which is not meant */
    if (runs[i].quantize_freq) options.quantize_freq = runs[i].quantize_freq;
    options.concluded = runs[i].concluded;
    tm_status st = run(&options, &l, NULL, &err);
    if (l.sample) tm_text_add(&out, " a sample");
    if ((st == TM_OK ? 0 : tm_status_exit_code(st)) != runs[i].exit) fail_msg("%s: exit %d: %s", words, st, err.text);
    const char *events = out.data ? out.data + 1 : "";
    if (runs[i].events && strcmp(events, runs[i].events) != 0) fail_msg("%s: '%s'", words, events);
    if (runs[i].says && !strstr(l.said, runs[i].says) && !strstr(err.text, runs[i].says))
        fail_msg("%s: '%s', '%s'", words, l.said, err.text);
    whole_log_take(log);
    if (runs[i].log ? !log->data || !strstr(log->data, runs[i].log) : log->length > 0 && strstr(log->data, "warning"))
        fail_msg("%s: '%s'", words, log->data ? log->data : "");
    if (strstr(words, "validation.steps")) {
        double alone;
        bool   none = strstr(words, "validation_fraction 0 ") != NULL;
        st = run(&options, NULL, &alone, &err);
        if (tm_status_exit_code(st) != (none ? 4 : 0) || (none && !strstr(err.text, "holds out nothing that could be")))
            fail_msg("%s: %s", words, err.text);
        bool same = !runs[i].concluded &&
                    ((strstr(words, SAVES) && !strstr(words, "load_step")) || strstr(words, "--optimizer.lr 0 "));
        if (same && memcmp(&alone, &l.validation, sizeof alone) != 0)
            fail_msg("%s: evaluated alone %.17g, in the run %.17g", words, alone, l.validation);
        whole_log_take(log);
    }
    log->length = 0;
    tm_text_fini(&out);
    tm_config_destroy(config);
}

TEST(runs_tell_what_happens)
{
    tm_text log = { 0 };
    char   *back = getcwd(NULL, 0);
    look_ns = 1000000;
    tm_log_set_level(TM_LOG_ERROR);
    test_source_files_write();
    assert_int_equal(chdir(test_folder()), 0);
    whole_log_open();
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) run_row(i, &log);
    whole_log_close();
    tm_text_fini(&log);
    assert_int_equal(chdir(back), 0);
    free(back);
}

/* To the program that controls its turns, each as long as a step, a run says what it tells of its steps. */
TEST(who_gives_the_turns_hears_of_all_steps)
{
    enum { STEPS = 3 };
    static const char given[] = "turn 1e-9\nturn 1e-9\nturn 1e-9\nturn 1e-9\n";
    tm_run_options    options;
    tm_text           out = { 0 }, wanted = { 0 };
    char              heard[1000] = "";
    int               ends[2];
    listener          l = { .sink = { .handle = hear }, .out = &out, .options = &options, .samples = -1 };
    l.validation = (double)NAN;
    look_ns = 1000000;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    tm_config *config = test_run_of(TINY "--training.steps 3 " NONE, &options);
    options.turn_fd = ends[1];
    assert_int_equal(send(ends[0], given, sizeof given - 1, 0), sizeof given - 1);
    assert_ok(run(&options, &l, NULL, err));
    tm_text_add(&wanted, TM_TURN_HELLO "\n");
    for (int t = 0; t < STEPS; t++)
        tm_text_printf(&wanted, "step %d %.9f %lld\npause\n", t + 1, l.seconds[t], (long long)l.tokens);
    assert_true(recv(ends[0], heard, sizeof heard - 1, MSG_DONTWAIT) > 0);
    assert_string_equal(heard, wanted.data);
    close(ends[0]), close(ends[1]);
    tm_text_fini(&out), tm_text_fini(&wanted);
    tm_config_destroy(config);
}

TESTS_ALONE
TEST_FIXTURE(NULL, test_folder_teardown)
