/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/trained.h"
#include "base/random.h"
#include "support/golden.h"

#include "support/test.h"

enum { DOCUMENT = 5 };

/* --- values of a micro-batch */

static void *floats_of(const tm_field *field, int number, int64_t samples, uint64_t seed)
{
    int64_t n = samples * tm_shape_elements(field->shape);
    float  *x = malloc((size_t)n * sizeof *x);
    bool    time = strcmp(field->name, "time") == 0; /* between 0 and 1 */
    for (int64_t i = 0; i < n; i++)
        x[i] = time ? (float)tm_random_uniform(seed, (uint64_t)number, (uint64_t)i)
                    : (float)tm_random_normal(seed, (uint64_t)number, (uint64_t)i);
    return x;
}

/* Positions in documents, or the first token of each one's. */
static void *places_of(int64_t rows, int64_t seq, bool first)
{
    int32_t *places = malloc((size_t)rows * sizeof *places);
    for (int64_t i = 0; i < rows; i++) places[i] = (int32_t)(first ? i % seq - i % seq % DOCUMENT : i % seq % DOCUMENT);
    return places;
}

static tm_micro_batch fields_of(const tm_step_options *o, int64_t samples, uint64_t seed)
{
    tm_micro_batch fields = { .target_tokens = samples * o->seq };
    if (o->shape.family == TM_FAMILY_FLUX) {
        for (int f = 0; f < o->n_fields; f++) fields.field[f] = floats_of(&o->fields[f], f, samples, seed);
        return fields;
    }
    test_batch batch = test_batch_random(samples, o->seq, o->shape.vocab_size, seed);
    fields.field[0] = batch.tokens, fields.field[1] = batch.targets;
    for (int f = 2; f < o->n_fields; f++) fields.field[f] = places_of(batch.rows, o->seq, f == 3);
    return fields;
}

static void release_fields(tm_micro_batch *fields)
{
    for (int f = 0; f < TM_MAX_FIELDS; f++) free((void *)(uintptr_t)fields->field[f]);
}

/* --- a training */

/* b begins as zeros: here it does something from the first step on. */
static void fill_adapters(tm_trainer *trainer)
{
    const tm_graph *graph = tm_trainer_step_of(trainer)->graph;
    for (size_t i = 0; i < graph->n_tensors; i++)
        for (const tm_adapter *one = graph->tensors[i].adapter; one && one->b != TM_NONE; one = one->next) {
            int64_t n = tm_shape_elements(tm_graph_at(graph, one->b)->shape);
            double *values = test_values_read(trainer, one->b);
            for (int64_t k = 0; k < n; k++) values[k] = 0.1 * tm_random_normal(5, (uint64_t)one->b, (uint64_t)k);
            test_values_write(trainer, one->b, values);
            free(values);
        }
}

static void take_counts(tm_trainer *trainer, double counts[TRAINED_COUNTS], int64_t *n)
{
    const tm_step *step = tm_trainer_step_of(trainer);
    if (step->model.expert_counts == TM_NONE) return;
    *n = tm_shape_elements(step->graph->tensors[step->model.expert_counts].shape);
    assert_true(*n <= TRAINED_COUNTS);
    double *sent = test_values_read(trainer, step->model.expert_counts);
    memcpy(counts, sent, (size_t)*n * sizeof *sent);
    free(sent);
}

trained train(tm_device *device, const tm_step_options *o, int steps, trained_way way)
{
    tm_trainer    *trainer = test_trainer_open(device, o, 7);
    trained        out;
    tm_ledger      ledger = { 0 };
    tm_error       err = { 0 };
    tm_micro_batch fields;
    memset(&out, 0, sizeof out);
    if (o->shape.family == TM_FAMILY_FLUX) golden_fill(trainer);
    fill_adapters(trainer);
    tm_device_one_by_one(device, way == ONE_BY_ONE);
    for (int t = 1; t <= steps; t++) {
        tm_step_result result;
        fields = fields_of(o, o->micro_batch * o->accumulation, (uint64_t)t);
        test_begin(trainer, t, 1e-3, o->accumulation > 1, fields.target_tokens);
        if (tm_trainer_step(trainer, &fields, &result, way == WITH_LEDGER ? &ledger : NULL, &err) != TM_OK)
            fail_msg("step %d: %s", t, err.text);
        out.loss[t - 1] = result.loss, out.norm[t - 1] = result.grad_norm;
        take_counts(trainer, out.counts[t - 1], &out.n_counts);
        release_fields(&fields);
    }
    fields = fields_of(o, o->micro_batch, 99);
    if (tm_trainer_evaluate(trainer, &fields, &out.evaluation, &err) != TM_OK) fail_msg("%s", err.text);
    if (o->sample && tm_trainer_logits(trainer, fields.field[0], (int32_t)o->seq - 3, out.logits, &err) != TM_OK)
        fail_msg("%s", err.text);
    release_fields(&fields);
    out.state = test_state_hash(trainer);
    assert_int_equal(ledger.count > 0, way == WITH_LEDGER);
    for (size_t i = 0; i < ledger.count; i++) assert_true(ledger.lines[i].value > 0);
    tm_trainer_close(trainer);
    return out;
}

/* --- two */

/* Rows that two runs send to different experts, as a part of all; at least. */
static double moved(const trained *a, const trained *b, int t)
{
    double all = 1e-30, apart = 0;
    for (int64_t i = 0; i < a->n_counts; i++) all += a->counts[t][i], apart += fabs(a->counts[t][i] - b->counts[t][i]);
    return apart / 2 / all;
}

static bool is_near(double a, double b, double bound)
{
    return fabs(a - b) <= bound * fmax(1, fabs(b));
}

void compare_trained(const trained *a, const trained *b, const tm_step_options *o, int steps, const char *what)
{
    bool   exact = o->precision == &tm_precision_f32;
    double bound = exact ? 1e-4 : 1e-2;
    for (int t = 0; t < steps; t++) {
        bool norms = fabs(a->norm[t] - b->norm[t]) <= 4 * bound * b->norm[t];
        bool rows = exact ? moved(a, b, t) == 0 : t > 0 || moved(a, b, t) <= 0.05;
        if (!is_near(a->loss[t], b->loss[t], bound) || !norms || !rows)
            fail_msg("%s, step %d: loss %.9g, norm %.9g; on the CPU %.9g, %.9g; %.3g of the rows elsewhere", what,
                     t + 1, a->loss[t], a->norm[t], b->loss[t], b->norm[t], moved(a, b, t));
    }
    assert_true(b->norm[0] > 0 && b->loss[0] != b->loss[steps - 1]);
    if (!is_near(a->evaluation, b->evaluation, bound))
        fail_msg("%s: evaluation %.9g, on the CPU %.9g", what, a->evaluation, b->evaluation);
    for (int v = 0; v < TRAINED_COUNTS; v++)
        if (!is_near(a->logits[v], b->logits[v], 4 * bound))
            fail_msg("%s: logit %d is %.9g, on the CPU %.9g", what, v, a->logits[v], b->logits[v]);
}
