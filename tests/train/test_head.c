/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters of the output layer: logits of the token that follows; rows with lengths of their own (DoRA), whose logits
 * are rescaled. */
#include "support/test.h"
#include "support/training.h"
#include "train/generate/generate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { VOCAB = 11, RANK = 3 };

/* Of many digits, and of bfloat16 only some are kept. */
static double value_of(int which, int64_t i)
{
    return 0.1 * which + 0.0137 * (double)(i * 7 % 23) - 0.1;
}

/* --- DoRA --------------------------------------------------------------------------------------------------------- */

static tm_step_options head_options(const tm_precision *precision, int64_t chunk, bool dora)
{
    tm_step_options o = test_llama_options();
    o.shape.vocab_size = VOCAB, o.shape.n_layers = 1;
    o.micro_batch = 1, o.seq = 12;
    o.precision = precision, o.loss_chunk = chunk;
    o.adapters = (tm_adapters){ .rank = RANK, .alpha = 7, .base = TM_DTYPE_COUNT, .place = "test", .seed = 1 };
    o.adapters.dora = dora;
    snprintf(o.adapters.targets, sizeof o.adapters.targets, "wo,lm_head");
    return o;
}

/* Every element of an adapter becomes `mean` and something of its own. */
static void shake(tm_trainer *trainer, tm_tensor_id id, double mean)
{
    int64_t n = tm_shape_elements(tm_graph_at(tm_trainer_step_of(trainer)->graph, id)->shape);
    double *values = test_values_read(trainer, id);
    for (int64_t i = 0; i < n; i++) values[i] = mean > 0 ? values[i] * (mean + value_of(0, i)) : value_of(0, i);
    test_values_write(trainer, id, values);
    free(values);
}

static tm_trainer *open_shaken(tm_device *device, const tm_step_options *o)
{
    tm_trainer     *trainer = test_trainer_open(device, o, 3);
    const tm_graph *graph = tm_trainer_step_of(trainer)->graph;
    for (size_t i = 0; i < graph->n_tensors; i++) {
        const tm_adapter *one = graph->tensors[i].adapter;
        if (!one || one->a == TM_NONE) continue;
        shake(trainer, one->a, 0), shake(trainer, one->b, 0);
        if (one->m != TM_NONE) shake(trainer, one->m, 1.2);
    }
    return trainer;
}

static const tm_adapter *of_head(const tm_trainer *trainer)
{
    const tm_step *step = tm_trainer_step_of(trainer);
    return tm_graph_at(step->graph, step->model.head)->adapter;
}

static double *gradient_of(const tm_trainer *trainer, tm_tensor_id id)
{
    return test_values_read(trainer, tm_graph_at(tm_trainer_step_of(trainer)->graph, id)->gradient);
}

/* w + scale b a of the output layer, in double; *turns: m over the lengths of its rows, NULL without m. */
static double *adapted_head(const tm_trainer *trainer, double **turns)
{
    const tm_step    *step = tm_trainer_step_of(trainer);
    const tm_adapter *head = of_head(trainer);
    int64_t rows = step->options.shape.vocab_size, width = tm_graph_at(step->graph, step->model.head)->shape.n[1];
    double *w = test_values_read(trainer, step->model.head), *a = test_values_read(trainer, head->a);
    double *b = test_values_read(trainer, head->b);
    *turns = head->m == TM_NONE ? NULL : test_values_read(trainer, head->m);
    for (int64_t v = 0; v < rows; v++) {
        double squares = 0;
        for (int64_t c = 0; c < width; c++) {
            for (int64_t r = 0; r < RANK; r++) w[v * width + c] += 7.0 / RANK * b[v * RANK + r] * a[r * width + c];
            squares += w[v * width + c] * w[v * width + c];
        }
        if (*turns) (*turns)[v] /= squares > 0 ? sqrt(squares) : 1; /* a row of zeros is as it was */
    }
    free(a), free(b);
    return w;
}

static double *turns_of(const tm_trainer *trainer)
{
    double *turns;
    free(adapted_head(trainer, &turns));
    assert_non_null(turns);
    return turns;
}

/* Rows of `width` values each, times their factors. */
static void stretch(double *values, const double *by, int64_t rows, int64_t width)
{
    for (int64_t i = 0; i < rows * width; i++) values[i] *= by[i / width];
}

static void near(const char *what, const double *is, const double *wanted, int64_t n, double error)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(wanted[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(is[i] - wanted[i]) <= error * most && most > 1e-4))
            fail_msg("%s, %lld: %.15g, wanted %.15g", what, (long long)i, is[i], wanted[i]);
}

/* The same without lengths: of the turned trainer's blocks, with rows of the head and of its b that have the lengths.
 */
static tm_trainer *open_stretched(tm_device *device, const tm_step_options *o, const tm_trainer *turned,
                                  const double *turns)
{
    tm_trainer     *plain = test_trainer_open(device, o, 3);
    const tm_graph *graph = tm_trainer_step_of(turned)->graph;
    const tm_step  *step = tm_trainer_step_of(plain);
    int64_t         width = tm_graph_at(step->graph, step->model.head)->shape.n[1];
    tm_tensor_id    from[3] = { tm_trainer_step_of(turned)->model.head, of_head(turned)->a, of_head(turned)->b };
    tm_tensor_id    to[3] = { step->model.head, of_head(plain)->a, of_head(plain)->b };
    int64_t         widths[3] = { width, 0, RANK };
    assert_true(of_head(plain)->m == TM_NONE && graph->n_tensors > 0);
    for (int k = 0; k < 3; k++) {
        double *values = test_values_read(turned, from[k]);
        if (widths[k] > 0) stretch(values, turns, step->options.shape.vocab_size, widths[k]);
        test_values_write(plain, to[k], values);
        free(values);
    }
    return plain;
}

/* n counts as a constant: then y = m / n (W x + s B A x) is LoRA of m / n W with m / n B, whose gradients the fused
 * loss has. Those of m are differences of the loss. */
static void turned(int64_t chunk, const tm_recompute *recompute)
{
    tm_device      *device = test_device_open("reference", 1);
    tm_step_options o = head_options(&tm_precision_f64, chunk, true), p = head_options(&tm_precision_f64, 12, false);
    double         *turns;
    snprintf(o.adapters.targets, sizeof o.adapters.targets, "lm_head");
    p.adapters = o.adapters, p.adapters.dora = false;
    o.recompute = *recompute;
    test_batch  batch = test_batch_random(1, o.seq, VOCAB, 5);
    tm_trainer *with = open_shaken(device, &o);
    turns = turns_of(with);
    tm_trainer *plain = open_stretched(device, &p, with, turns);
    double      loss = test_gradients(with, &batch), wanted = test_gradients(plain, &batch);
    near("loss", &loss, &wanted, 1, 1e-13);
    double *a = gradient_of(with, of_head(with)->a), *b = gradient_of(with, of_head(with)->b);
    double *wanted_a = gradient_of(plain, of_head(plain)->a), *wanted_b = gradient_of(plain, of_head(plain)->b);
    stretch(wanted_b, turns, VOCAB, RANK);
    near("a", a, wanted_a, tm_shape_elements(tm_graph_at(tm_trainer_step_of(with)->graph, of_head(with)->a)->shape),
         1e-11);
    near("b", b, wanted_b, VOCAB * RANK, 1e-11);
    double *m = gradient_of(with, of_head(with)->m), *lengths = test_values_read(with, of_head(with)->m);
    for (int v = 0; v < VOCAB; v += 3) {
        double was = lengths[v], side[2];
        for (int k = 0; k < 2; k++) {
            lengths[v] = was + (k ? 1e-5 : -1e-5);
            test_values_write(with, of_head(with)->m, lengths);
            side[k] = test_evaluate(with, batch.tokens, batch.targets);
        }
        lengths[v] = was;
        double slope = (side[1] - side[0]) / 2e-5 / (double)batch.target_tokens;
        if (!(fabs(slope - m[v]) <= 1e-7 * fmax(fabs(slope), 1e-2)))
            fail_msg("m, %d, chunk %lld: %.12g, by differences %.12g", v, (long long)chunk, m[v], slope);
    }
    free(a), free(b), free(wanted_a), free(wanted_b), free(m), free(lengths), free(turns);
    test_batch_fini(&batch);
    tm_trainer_close(with);
    tm_trainer_close(plain);
    tm_device_close(device);
}

TEST(turned_heads_have_the_gradients_of_stretched_ones)
{
    static const tm_recompute keep = { 0 }, full = { .cheap = true, .every_n = 1 };
    turned(12, &keep); /* all rows at once */
    turned(5, &keep);  /* in three parts, whose logits are made again */
    turned(5, &full);
}

/* Logits of an adapted head are those of the same matrix without an adapter. */
static void logits_are_adapted(const tm_precision *precision, bool dora, bool zeros, double error)
{
    enum { ZERO = 4 };
    tm_device      *device = test_device_open("cpu", 1);
    tm_step_options o = head_options(precision, 12, dora), p;
    int32_t         tokens[12];
    double          is[VOCAB], wanted[VOCAB], *turns;
    tm_error        err = { 0 };
    o.sample = true;
    snprintf(o.adapters.targets, sizeof o.adapters.targets, "lm_head");
    p = o, p.adapters = (tm_adapters){ 0 };
    for (int i = 0; i < 12; i++) tokens[i] = i % VOCAB;
    tm_trainer    *trainer = open_shaken(device, &o), *plain = test_trainer_open(device, &p, 3);
    const tm_step *step = tm_trainer_step_of(trainer);
    int64_t        width = tm_graph_at(step->graph, step->model.head)->shape.n[1];
    if (zeros) { /* a row without length, and without a product */
        double *w = test_values_read(trainer, step->model.head), *b = test_values_read(trainer, of_head(trainer)->b);
        memset(w + ZERO * width, 0, (size_t)width * sizeof *w);
        memset(b + ZERO * RANK, 0, RANK * sizeof *b);
        test_values_write(trainer, step->model.head, w);
        test_values_write(trainer, of_head(trainer)->b, b);
        free(w), free(b);
    }
    double *head = adapted_head(trainer, &turns);
    assert_true((turns != NULL) == dora);
    if (dora) stretch(head, turns, VOCAB, width);
    test_values_write(plain, tm_trainer_step_of(plain)->model.head, head);
    for (int32_t row = 0; row < 12; row += 11) {
        assert_int_equal(tm_trainer_logits(trainer, tokens, row, is, &err), TM_OK);
        assert_int_equal(tm_trainer_logits(plain, tokens, row, wanted, &err), TM_OK);
        near("logits", is, wanted, VOCAB, error);
        for (int v = 0; v < VOCAB && zeros; v++) assert_true((is[v] == 0) == (v == ZERO));
    }
    free(head), free(turns);
    tm_trainer_close(trainer), tm_trainer_close(plain);
    tm_device_close(device);
}

TEST(logits_of_adapted_heads)
{
    logits_are_adapted(&tm_precision_f32, false, false, 1e-5);
    logits_are_adapted(&tm_precision_bf16, true, false, 2e-2);
    logits_are_adapted(&tm_precision_f32, true, true, 1e-5);
}
