/* SPDX-License-Identifier: Apache-2.0 */
/* A case as whole runs (tm_run): ranks are threads of a world, each with a device of its own. Which numbers are equal
 * to the bit and which but for rounding: docs/architecture.md, "Numbers that do not depend on threads", and
 * docs/parallelism.md, "Which numbers are equal". */
#include "judge.h"

#include "base/log.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "train/trainer/trainer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "side.h"

/* --- comparing ---------------------------------------------------------------------------------------------------- */

typedef struct {
    const setting *setting;
    judgement     *out;
    const char    *folder;
    side          *whole; /* the case as it is */
    int            folders;
    bool           impossible; /* the other side is refused */
} bench;

__attribute__((format(printf, 2, 3))) static void fail_case(bench *b, const char *format, ...)
{
    va_list list;
    if (b->out->outcome == FAILED) return; /* the first one is told */
    b->out->outcome = FAILED;
    va_start(list, format);
    vsnprintf(b->out->text, sizeof b->out->text, format, list);
    va_end(list);
}

/* Bits: 0. Else relative to `b`, and to 1e-3 where that is less. NaN is NaN. */
static bool near(double a, double b, double bound)
{
    if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
    return bound > 0 ? fabs(a - b) <= bound * fmax(fabs(b), 1e-3) : a == b;
}

static void compare_numbers(bench *b, const side *x, const side *y, const char *what, int64_t step, const numbers *n,
                            const numbers *m, double bound, double norm_bound, double measure_bound)
{
    if (!near(n->loss, m->loss, bound))
        fail_case(b, "%s: %s %lld has loss %.17g, %s %.17g", x->what, what, (long long)step, n->loss, y->what, m->loss);
    if (!near(n->norm, m->norm, norm_bound))
        fail_case(b, "%s: %s %lld has norm (or targets) %.17g, %s %.17g", x->what, what, (long long)step, n->norm,
                  y->what, m->norm);
    for (int i = 0; i < MEASURES && bound < 1e-6; i++)
        if (!near(n->measures[i], m->measures[i], measure_bound))
            fail_case(b, "%s: %s %lld has measure %d %.17g, %s %.17g", x->what, what, (long long)step, i,
                      n->measures[i], y->what, m->measures[i]);
}

/* Losses, norms and evaluations of the steps that both did, and the text; with bound 0 the weights, too. */
static void compare(bench *b, const side *x, const side *y, double bound, double norm_bound)
{
    if (!ran(x->status)) {
        fail_case(b, "%s: %s", x->what, x->err.text);
        return;
    }
    if (x->last != y->last)
        fail_case(b, "%s ends with step %lld, %s with %lld", x->what, (long long)x->last, y->what, (long long)y->last);
    int64_t first = x->first > y->first ? x->first : y->first;
    double  measures = fmax(bound, norm_bound); /* some are sums over stages, as the norm is */
    for (int64_t t = first; t <= x->last; t++) {
        compare_numbers(b, x, y, "step", t, &x->step[t], &y->step[t], bound, norm_bound, measures);
        if (x->evaluated[t] != y->evaluated[t])
            fail_case(b, "%s: only one of the two evaluates behind step %lld", x->what, (long long)t);
        compare_numbers(b, x, y, "the evaluation of step", t, &x->evaluation[t], &y->evaluation[t], bound, 0, measures);
    }
    if (!(bound > 0) && x->weights != y->weights)
        fail_case(b, "%s: the losses agree with %s, the last weights do not", x->what, y->what);
    if (bound < 1e-6 && strcmp(x->text, y->text) != 0)
        fail_case(b, "%s writes '%s', %s '%s'", x->what, x->text, y->what, y->text);
}

/* --- sides -------------------------------------------------------------------------------------------------------- */

/* The case's words of these effects. */
static tm_status read_side(const bench *b, unsigned effects, const char *more, side *out)
{
    tm_text words = { 0 };
    words_of(b->setting, effects, &words);
    if (more) tm_text_printf(&words, " %s", more);
    out->config = test_full_config();
    out->err = (tm_error){ 0 };
    out->status = test_read_run(out->config, words.data, &out->options, &out->err);
    tm_text_fini(&words);
    out->device = "cpu";
    out->threads = 1;
    out->options.checkpoint_folder = NULL;
    out->options.step.offload.folder = b->folder;
    return out->status;
}

static void close_side(side *s)
{
    tm_config_destroy(s->config);
    free(s);
}

/* Without keys of other effects, for a step with the samples of the whole case, in its micro-batches. NULL: it is
 * refused. Closed by the caller. */
static side *other_side(bench *b, const char *what, unsigned effects, const char *more)
{
    side *s = calloc(1, sizeof *s);
    CHECK(s);
    s->what = what;
    if (read_side(b, effects, more, s) != TM_OK) {
        b->impossible = true;
        close_side(s);
        return NULL;
    }
    const tm_step_options *whole = &b->whole->options.step;
    int64_t data = tm_layout_data_ranks(&whole->layout), own = tm_layout_data_ranks(&s->options.step.layout);
    s->options.step.micro_batch = whole->micro_batch;
    s->options.step.accumulation = whole->accumulation * data / own;
    s->options.step.validation_batch = whole->validation_batch;
    s->options.source.samples = b->whole->options.source.samples; /* these two go by the batch that was given */
    s->options.schedule.batch = b->whole->options.schedule.batch;
    return s;
}

enum { ALL_KEYS = MODEL_KEYS | LAYOUT_KEYS | NEUTRAL_KEYS };

static side *same_side(bench *b, const char *what)
{
    return other_side(b, what, ALL_KEYS, NULL);
}

static side *one_rank(bench *b, const char *what)
{
    return other_side(b, what, MODEL_KEYS, NULL);
}

static const char *new_folder(bench *b)
{
    static char paths[8][600];
    char       *path = paths[b->folders % 8];
    snprintf(path, sizeof paths[0], "%s/%d", b->folder, b->folders++);
    return path;
}

static void save_to(side *s, const char *folder)
{
    s->options.checkpoint = true;
    s->options.checkpoint_folder = folder;
    s->options.checkpoint_load_step = -1;
    if (s->options.checkpoint_interval == 500) s->options.checkpoint_interval = 1000; /* at the end */
}

/* In float64, by the references. */
static void in_double(side *s)
{
    s->options.step.precision = &tm_precision_f64;
    s->options.step.compared = NULL;
    s->options.microscope = s->options.replay = 0;
    s->options.certify = false;
    s->device = "reference";
}

/* Runs it. NULL: it was closed, because it is refused. */
static side *run_or_close(bench *b, side *s)
{
    if (s) run_side(s);
    if (!s || !refused(s->status)) return s;
    b->impossible = true;
    close_side(s);
    return NULL;
}

/* --- weights ------------------------------------------------------------------------------------------------------ */

/* Weights and moments of a checkpoint, loaded by one rank: values[i] of tensor i, NULL where it holds no numbers. */
static bool load_values(bench *b, side *reader, const char *folder, double ***out, size_t *count)
{
    tm_device           *device;
    tm_trainer          *trainer;
    tm_checkpoint_state  state;
    tm_checkpoint_report report;
    tm_error             why = { 0 };
    CHECK_OK(tm_device_open(reader->device, 1, &device, err));
    CHECK_OK(tm_trainer_open(device, &reader->options.step, 1, &trainer, err));
    const tm_checkpoint_tensor *tensors = tm_trainer_tensors(trainer, count);
    bool loaded = tm_checkpoint_load_newest(folder, -1, &state, tensors, *count, &report, &why) == TM_OK;
    if (!loaded) fail_case(b, "one rank cannot load what the ranks saved: %s", why.text);
    *out = calloc(*count, sizeof **out);
    for (size_t i = 0; i < *count && loaded; i++) {
        const tm_checkpoint_tensor *t = &tensors[i];
        if (t->dtype != TM_F64) continue;
        (*out)[i] = calloc(t->bytes / sizeof(double) + 1, sizeof(double));
        for (size_t at = 0; at < t->bytes; at += 1 << 20) {
            size_t     bytes = t->bytes - at < 1 << 20 ? t->bytes - at : 1 << 20;
            tm_address from = tm_address_add(t->at, at);
            CHECK_OK(t->memory->read(t->memory, from, (char *)(*out)[i] + at, bytes, err));
        }
    }
    tm_trainer_close(trainer);
    tm_device_close(device);
    return loaded;
}

/* The tensors of two checkpoints in float64, in the layout of `reader`, one rank: but for rounding the same. */
static void compare_weights(bench *b, side *reader, const char *what, const char *mine, const char *theirs,
                            double bound)
{
    double    **x = NULL, **y = NULL;
    size_t      n = 0, m = 0;
    tm_device  *device;
    tm_trainer *trainer;
    if (load_values(b, reader, mine, &x, &n) && load_values(b, reader, theirs, &y, &m)) {
        CHECK_OK(tm_device_open(reader->device, 1, &device, err));
        CHECK_OK(tm_trainer_open(device, &reader->options.step, 1, &trainer, err));
        const tm_checkpoint_tensor *tensors = tm_trainer_tensors(trainer, &n);
        for (size_t i = 0; i < n && x[i]; i++) {
            double largest = 0, worst = 0;
            for (size_t k = 0; k < tensors[i].bytes / sizeof(double); k++) {
                largest = fmax(largest, fabs(y[i][k]));
                double apart = fabs(x[i][k] - y[i][k]);
                if (!(apart <= worst)) worst = apart;
            }
            bool record = strcmp(tensors[i].name, "quantize.record") == 0; /* of this rank, until it is reported */
            if (!(worst <= bound * fmax(largest, 1e-6)) && !record)
                fail_case(b, "%s: '%s' is %.3g apart, of at most %.3g", what, tensors[i].name, worst, largest);
        }
        tm_trainer_close(trainer);
        tm_device_close(device);
    }
    for (size_t i = 0; i < n; i++) free(x ? x[i] : NULL), free(y ? y[i] : NULL);
    free(x);
    free(y);
}

/* --- comparisons: each returns true, or false where the other side is refused --------------------------------------
 */

/* Sums in another order differ in the 12th digit; a quantized moment or the direction of a tiny gradient may turn
 * over. */
static const double double_bound = 1e-9, weights_bound = 1e-6;

/* What a run in a coarser format may be off by: a code that turns over. */
static double coarse_bound(const setting *s)
{
    if (is_set(s, "quantize.recipe") || is_set(s, "quantize.experts_recipe")) return 0.2;
    if (is_set(s, "training.dtype") || is_set(s, "lora.base_format") || is_set(s, "training.mixed_precision_reduce"))
        return 0.05;
    return is_set(s, "family") && number_of(s, "debug.seed", 1) > 0 ? 2e-3 : 0;
}

/* Scales of products in low precision are of a rank's own tokens, also where it has a part of each sequence, and those
 * of divided experts of all that come to a rank: then one rank has others. */
static bool own_scales(const setting *s)
{
    bool all = is_set(s, "quantize.recipe"), experts = is_set(s, "quantize.experts_recipe");
    return ((all || experts) && is_set(s, "parallelism.context_parallel_degree")) ||
           (experts && is_set(s, "parallelism.expert_parallel_degree") && data_ranks_of_case(s) > 1);
}

/* The layout beside one rank, both in float64; `moved`: after so many steps by one rank. */
static void beside_one_in_double(bench *b, int64_t moved)
{
    const char *mine = new_folder(b), *theirs = new_folder(b);
    side       *layout =
        other_side(b, moved ? "one rank, then the layout, in float64" : "the layout in float64", ALL_KEYS, NULL);
    side *one = one_rank(b, "one rank in float64"), *before = moved ? one_rank(b, "one rank") : NULL;
    if (own_scales(b->setting)) b->impossible = true;
    if (layout && one && (before || !moved) && !b->impossible) {
        in_double(layout), in_double(one);
        save_to(layout, mine), save_to(one, theirs);
        if (before) in_double(before), save_to(before, mine), before->stop_after = moved;
        if (before) before = run_or_close(b, before);
        one = run_or_close(b, one);
        layout = one ? run_or_close(b, layout) : layout;
    }
    if (one && layout && (before || !moved) && layout->sink.handle) {
        compare(b, layout, one, double_bound, double_bound);
        if (b->out->outcome != FAILED) compare_weights(b, one, layout->what, mine, theirs, weights_bound);
    }
    if (layout) close_side(layout);
    if (one) close_side(one);
    if (before) close_side(before);
}

/* A step that is not the last one. */
static int64_t stop_of(const bench *b, const char *name)
{
    int64_t steps = b->whole->options.steps, after = number_of(b->setting, name, 1);
    return after < steps ? after : steps - 1;
}

static void compare_float64(bench *b)
{
    beside_one_in_double(b, 0);
}

static void compare_moved(bench *b)
{
    beside_one_in_double(b, stop_of(b, "compare.moved"));
}

static void beside(bench *b, side *x, side *y, double bound, double norm_bound)
{
    x = run_or_close(b, x);
    y = y == b->whole ? y : run_or_close(b, y);
    if (x && y) compare(b, x, y, bound, norm_bound);
    if (x) close_side(x);
    if (y && y != b->whole) close_side(y);
}

static void compare_float32(bench *b)
{
    double bound = coarse_bound(b->setting);
    b->impossible = own_scales(b->setting);
    if (!b->impossible) beside(b, one_rank(b, "one rank"), b->whole, bound, 10 * bound);
}

/* Copies have the bits of one rank that adds the gradients of as many parts. */
static void compare_exact(bench *b)
{
    side *exact = other_side(b, "exact", ALL_KEYS, "--parallelism.exact true"), *one;
    if (!exact) return;
    close_side(exact);
    one = other_side(b, "one rank with separate sums", MODEL_KEYS | 1U << ORDER, NULL);
    if (one) one->options.step.layout.parts = data_ranks_of_case(b->setting);
    beside(b, one, b->whole, 0, 0);
}

static void compare_unclipped(bench *b)
{
    /* One rank rounds the sum of a tied table's gradients in bfloat16 once, if it has one micro-batch. */
    b->impossible = is_set(b->setting, "training.regime") && !is_set(b->setting, "training.grad_accumulation");
    if (b->impossible) return;
    unsigned effects = MODEL_KEYS | 1U << LAYOUT | 1U << ORDER | NEUTRAL_KEYS;
    side    *with = other_side(b, "unclipped", ALL_KEYS, "--training.max_norm 0");
    side    *without = other_side(b, "unclipped, without stages", effects, "--training.max_norm 0");
    beside(b, with, without, 0, 1e-5);
}

static void compare_neutral(bench *b)
{
    beside(b, other_side(b, "without what changes no bit", MODEL_KEYS | LAYOUT_KEYS, NULL), b->whole, 0, 0);
}

static void compare_reference(bench *b)
{
    double bound = coarse_bound(b->setting);
    side  *fast = one_rank(b, "one rank"), *slow = one_rank(b, "one rank in float64");
    if (slow) in_double(slow);
    beside(b, fast, slow, bound, 10 * bound);
}

static void compare_threads(bench *b)
{
    side *s = same_side(b, "other threads");
    if (s) s->threads = (int)number_of(b->setting, "compare.threads", 2);
    beside(b, s, b->whole, 0, 0);
}

static void compare_late(bench *b)
{
    side *s = same_side(b, "the device late");
    if (s) s->device = "late";
    beside(b, s, b->whole, 0, 0);
}

/* Stopped behind a step, and resumed. */
static void resume(bench *b, int64_t stop_after, bool copies)
{
    const char *folder = new_folder(b);
    side       *before = same_side(b, "until it is stopped"), *after = same_side(b, "resumed");
    if (before) save_to(before, folder), before->stop_after = stop_after, before->copies = copies;
    if (after) after->copies = copies;
    before = run_or_close(b, before);
    if (before && !ran(before->status)) fail_case(b, "%s: %s", before->what, before->err.text);
    if (before && before->last != before->stop_after)
        fail_case(b, "stopped after step %lld instead of %lld", (long long)before->last, (long long)before->stop_after);
    if (after) save_to(after, folder);
    if (before && after) {
        int64_t first = before->stop_after + 1;
        after = run_or_close(b, after);
        if (after && ran(after->status) && after->first != first)
            fail_case(b, "resumed with step %lld, wanted %lld", (long long)after->first, (long long)first);
        if (after) compare(b, after, b->whole, 0, 0);
    }
    if (before) close_side(before);
    if (after) close_side(after);
}

static void compare_resume(bench *b)
{
    resume(b, stop_of(b, "compare.resume"), false);
}

/* Copies of weights in the computation's format, from step to step, in the place of casts. */
static void compare_copies(bench *b)
{
    side *s = same_side(b, "with copies of weights, on the device late");
    if (s) s->device = "late", s->copies = true;
    beside(b, s, b->whole, 0, 0);
    if (b->out->outcome != FAILED && !b->impossible) resume(b, stop_of(b, "compare.copies"), true);
}

/* Updates within the backward pass, beside the same ones behind it. Norms add up in another order. */
static void compare_early(bench *b)
{
#define UNCLIPPED_ONCE "--training.max_norm 0 --debug.replay 0"
    unsigned effects = MODEL_KEYS | 1U << ORDER | NEUTRAL_KEYS;
    side    *early = other_side(b, "updated within the backward pass, on the device late", effects,
                                UNCLIPPED_ONCE " --optimizer.early_step_in_backward true");
    if (early) early->device = "late", early->copies = number_of(b->setting, "compare.early", 1) == 2;
    beside(b, early, other_side(b, "updated behind it", effects, UNCLIPPED_ONCE), 0, 1e-5);
}

/* Neighbours that passes make one op of, beside the same apart. */
static void compare_fuses(bench *b)
{
    side *fused = same_side(b, "fused, in float64"), *apart = same_side(b, "apart, in float64");
    if (fused) in_double(fused), fused->fuses = true;
    if (apart) in_double(apart);
    beside(b, fused, apart, double_bound, double_bound);
}

const char *const comparisons[COMPARISONS] = { "compare.float64",   "compare.float32", "compare.exact",
                                               "compare.unclipped", "compare.moved",   "compare.neutral",
                                               "compare.reference", "compare.threads", "compare.late",
                                               "compare.resume",    "compare.copies",  "compare.early",
                                               "compare.fuses" };
static void (*const makes[COMPARISONS])(bench *) = { compare_float64,   compare_float32, compare_exact,
                                                     compare_unclipped, compare_moved,   compare_neutral,
                                                     compare_reference, compare_threads, compare_late,
                                                     compare_resume,    compare_copies,  compare_early,
                                                     compare_fuses };

/* --- a case ------------------------------------------------------------------------------------------------------- */

static void check_finite(bench *b)
{
    for (int64_t t = 1; t <= b->whole->last; t++)
        if (!isfinite(b->whole->step[t].loss) || !isfinite(b->whole->step[t].norm))
            fail_case(b, "the case as it is: step %lld has loss %g, norm %g", (long long)t, b->whole->step[t].loss,
                      b->whole->step[t].norm);
}

void judge(const setting *s, const char *folder, judgement *out)
{
    side *whole = calloc(1, sizeof *whole);
    bench b = { .setting = s, .out = out, .folder = folder, .whole = whole };
    bool  any = false;
    CHECK(whole);
    whole->what = "the case as it is";
    tm_log_set_level(TM_LOG_ERROR);
    if (read_side(&b, ALL_KEYS, NULL, whole) == TM_OK) {
        if (whole->options.checkpoint) save_to(whole, new_folder(&b));
        run_side(whole);
    }
    out->outcome = PASSED;
    if (refused(whole->status)) {
        out->outcome = REFUSED;
        snprintf(out->text, sizeof out->text, "%s", whole->err.text);
        close_side(whole);
        return;
    }
    if (!ran(whole->status)) fail_case(&b, "the case as it is: %s", whole->err.text);
    check_finite(&b);
    any = is_set(s, "size") || ranks_of_case(s, LAYOUT_KEYS) == 1;
    for (int c = 0; c < COMPARISONS; c++) any = any || is_set(s, comparisons[c]);
    for (int c = 0; c < COMPARISONS && out->outcome == PASSED; c++) {
        if (!is_set(s, comparisons[c]) && (any || c > 0)) continue;
        b.impossible = false;
        makes[c](&b);
        out->made[c] = !b.impossible;
        out->impossible[c] = b.impossible;
    }
    close_side(whole);
}
