/* SPDX-License-Identifier: Apache-2.0 */
/* Whole runs that look like training: the verdict says which of them were. */
#include "support/test.h"
#include "support/folder.h"
#include "support/training.h"

#include "proof_fixture.h"
#include "run_fixture.h"

#include "train/certify/dead_attention.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tm_run_ended told;
static char         reason[TM_REASON_BYTES];

static void hear(tm_sink *sink, const tm_event *event)
{
    (void)sink;
    if (event->kind != TM_EVENT_RUN_ENDED) return;
    told = event->run_ended;
    strncpy(reason, event->run_ended.reason, sizeof reason - 1);
}

static tm_run_options options_of(int64_t steps)
{
    tm_run_options o = small_run("synthetic", steps);
    o.certify = true;
    return o;
}

static tm_status go(const tm_run_options *options)
{
    tm_sink  sink = { .handle = hear };
    tm_error err;
    return run_small(options, "cpu", 1, &sink, NULL, &err);
}

/* Steps before the checkpoint count in the verdict, so the others are looked at. */
TEST_WITH(who_goes_on_is_certified, NULL, test_folder_teardown)
{
    char folder[300];
    snprintf(folder, sizeof folder, "%s", test_in_folder("checkpoint"));
    tm_run_options o = options_of(45);
    o.schedule.steps = 90;
    o.checkpoint = true;
    o.checkpoint_folder = folder;
    o.checkpoint_interval = 1000;
    o.checkpoint_load_step = -1;
    o.checkpoint_keep = 1;
    assert_int_equal(go(&o), TM_OK);
    assert_false(told.certificate.done);
    o.steps = 90;
    if (go(&o) != TM_OK) fail_msg("%s", reason);
    assert_true(told.certificate.done && told.certificate.gradients && told.certificate.causal);
}

/* Attention of the other layers uses context, so the tokens tell nothing: the gradients do. */
TEST(attention_must_look_back_in_every_layer)
{
    static const tm_precision *const precisions[] = { &tm_precision_f32, &tm_precision_bf16, &tm_precision_bf16_pure };
    for (int i = 0; i < 3; i++) {
        tm_run_options o = options_of(60);
        o.source.name = "mock";
        o.step.precision = precisions[i];
        o.step.shape.n_layers = 3;
        o.step.shape.window = 1;
        o.step.shape.window_every = 2;
        assert_int_equal(go(&o), TM_NUMBERS);
        if (!strstr(reason, "the attention of layers 0, 2 is dead: the gradients of its wq and wk are nothing but"))
            fail_msg("%s", reason);
        assert_true(told.certificate.gradients && told.certificate.context);
        o.step.shape.window = 2;
        if (go(&o) != TM_OK) fail_msg("%s", reason);
        o.step.shape.window = 1; /* a key and a sink are two to choose from */
        o.step.shape.sinks = true;
        if (go(&o) != TM_OK) fail_msg("%s", reason);
    }
}

/* Weights of the three parts of an attention, gradients of wv, and those of wq and wk in units of what rounding makes.
 */
typedef struct {
    double wq, wk, wv, v, q, k;
} attention;

/* Values of a tensor that is made of pieces: those of piece p are `parts`[p], larger and smaller by turns, and much
 * larger at its ends and in the middle. */
static void fill(tm_trainer *trainer, const tm_tensor *t, tm_tensor_id id, const double parts[3])
{
    double *values = test_values_read(trainer, id);
    int64_t columns = t->shape.n[1];
    assert_int_equal(t->n_pieces, 3);
    for (int p = 0; p < 3; p++)
        for (int64_t i = 0, n = t->pieces[p].rows * columns; i < n; i++) {
            double value = i % 3 == 0 ? -1.5 : i % 3 == 1 ? 0.5 : 1;
            if (i == 0 || i == n - 1 || i == (1 << 18) - 1 || i == 1 << 18) value = sqrt(0.1 * (double)n);
            values[t->pieces[p].row * columns + i] = parts[p] * value;
        }
    test_values_write(trainer, id, values);
    free(values);
}

/* The root of the sum of the squares, and of their mean over rows. */
static void measure(const tm_trainer *trainer, const tm_tensor *t, tm_tensor_id id, double norm[3], double length[3])
{
    double *values = test_values_read(trainer, id);
    int64_t columns = t->shape.n[1];
    for (int p = 0; p < 3; p++) {
        double squares = 0;
        for (int64_t i = 0; i < t->pieces[p].rows * columns; i++) {
            double value = values[t->pieces[p].row * columns + i];
            squares += value * value;
        }
        norm[p] = sqrt(squares);
        length[p] = sqrt(squares / (double)t->pieces[p].rows);
    }
    free(values);
}

/* Gives each layer its weights and gradients; are the layers that are found those of `wanted`? */
static void find(const tm_step_options *o, const attention *of, const char *wanted)
{
    tm_device     *device = test_device_open("cpu", 1);
    tm_trainer    *trainer = test_trainer_open(device, o, 5);
    tm_text        found = { 0 };
    tm_error       err = { 0 };
    const tm_step *step = tm_trainer_step_of(trainer);
    for (size_t i = 0; i < step->graph->n_tensors; i++) {
        const tm_tensor *t = &step->graph->tensors[i];
        if (t->role != TM_ROLE_PARAMETER || !strstr(t->name, "attention.wqkv")) continue;
        const attention *a = &of[t->layer];
        double           g[3] = { 1, 1, a->v }, norm[3], length[3], none[3];
        fill(trainer, t, (tm_tensor_id)i, (double[3]){ a->wq, a->wk, a->wv });
        fill(trainer, t, t->gradient, g);
        measure(trainer, t, (tm_tensor_id)i, none, length);
        measure(trainer, t, t->gradient, norm, none);
        if (o->shape.qk_norm) length[0] = length[1] = 1;
        double size = pow((double)o->shape.head_dim, 1.5) * 2 * 0x1p-24 * length[2] * norm[2];
        g[0] = a->q * size * length[1] / norm[0];
        g[1] = a->k * size * length[0] / norm[1];
        fill(trainer, t, t->gradient, g);
    }
    if (dead_attention_find(trainer, &o->shape, NULL, &found, &err) != TM_OK) fail_msg("%s", err.text);
    if (strcmp(found.data ? found.data : "", wanted) != 0) fail_msg("layers '%s', wanted '%s'", found.data, wanted);
    tm_text_fini(&found);
    tm_trainer_close(trainer);
    tm_device_close(device);
}

/* Of wq and wk both, by the sizes of the values and of the other of the two; and never more than 1/256 of wv's. */
TEST(attention_is_dead_up_to_what_rounding_makes)
{
    const attention below = { 0.1, 0.3, 0.2, 3, 0.98, 0.98 }, q = { 0.1, 0.3, 0.2, 3, 1.02, 0.98 },
                    k = { 0.1, 0.3, 0.2, 3, 0.98, 1.02 }, none = { 0.1, 0.3, 0.2, 3, 0, 0 },
                    all = { 0.1, 0.3, 0.2, 0, 0, 0 };
    tm_step_options o = test_llama_options();
    o.shape.n_layers = 4;
    for (int normal = 0; normal < 2; normal++) {
        o.shape.qk_norm = normal;
        find(&o, (attention[4]){ below, q, k, below }, "0, 3");
        find(&o, (attention[4]){ q, none, all, k }, "1");
        find(&o, (attention[4]){ { 0.02, 0.3, 0.4, 1, 1.02, 0.5 }, { 0.4, 0.1, 0.3, 1, 0.5, 1.02 }, below, q }, "2");
    }
    o.precision = &tm_precision_bf16_pure;
    find(&o, (attention[4]){ q, below, k, none }, "1, 3");
    o = test_llama_options();
    /* Rounding of weights as large as these would reach further: 0.0039 of wv's gradient is a 256th. */
    double rows = 64 * (3.5 / 3 + 0.2), reach = pow(32, 1.5) * 0x1p-23 * rows * 40 * 40, most = 0x1p-8 / reach;
    assert_true(most < 0.5);
    find(&o, (attention[2]){ { 40, 40, 40, 1, 0.98 * most, 0.98 * most }, { 40, 40, 40, 1, 1.02 * most, 0.98 * most } },
         "0");
    find(&o, (attention[2]){ { 40, 40, 40, 1, 0.5 * most, 1.02 * most }, { 40, 40, 40, 1, 0.5 * most, 0.98 * most } },
         "1");
    /* Matrices of several pieces at a time. */
    o.shape.dim = 640, o.shape.head_dim = 64, o.shape.n_heads = o.shape.n_kv_heads = 10;
    find(&o, (attention[2]){ below, q }, "0");
    find(&o, (attention[2]){ k, below }, "1");
}

/* Runs of 120 samples of a text with so many rows, of which `different` are not alike: behind the last one is the end.
 */
static tm_status read_rows(int rows, int different)
{
    tm_run_options o = options_of(60);
    FILE          *f = fopen(test_in_folder("rows.txt"), "w");
    assert_non_null(f);
    for (int row = 0; row < rows; row++) fprintf(f, "x%030d.", row % (different - 1) * 7919);
    assert_int_equal(fclose(f), 0);
    o.certify = false;
    o.prefetch = 0; /* nothing is read that is not trained on */
    o.step.shape.vocab_size = 257;
    o.step.shape.n_layers = 1;
    o.source = (tm_source_options){ .name = "text", .path = test_in_folder("rows.txt"), .vocab = 257, .seq = 32 };
    tm_error err = { 0 };
    assert_int_equal(tm_source_fields(&o.source, o.step.fields, &o.step.n_fields, &err), TM_OK);
    reason[0] = '\0';
    return go(&o);
}

/* Three of four, of those that an epoch has. */
TEST_WITH(rows_must_be_different, NULL, test_folder_teardown)
{
    static const struct {
        int         rows, different;
        const char *reason; /* NULL: they are different enough */
    } cases[] = { { 120, 90, NULL },
                  { 120, 89, "only 89 of the 120 training samples are distinct" },
                  { 60, 45, NULL },
                  { 60, 44, "only 44 of the 120 training samples are distinct" },
                  { 400, 400, NULL } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tm_status st = read_rows(cases[i].rows, cases[i].different);
        if (st != (cases[i].reason ? TM_NUMBERS : TM_OK)) fail_msg("case %zu: %d, %s", i, (int)st, reason);
        if (cases[i].reason) assert_string_equal(reason, cases[i].reason);
    }
}

/* Element 3 of a parameter moves; the gradient of a part of one is zero but for an element (-1: all of it). */
typedef struct {
    const char *moved, *dead;
    int64_t     alive;
} planted;

static void plant(tm_trainer *trainer, const void *what)
{
    const planted  *p = what;
    const tm_graph *graph = tm_trainer_step_of(trainer)->graph;
    for (size_t i = 0; i < graph->n_tensors; i++) {
        const tm_tensor *t = &graph->tensors[i];
        for (int k = 0; t->role == TM_ROLE_PARAMETER && k < t->n_pieces; k++) {
            bool         moves = p->moved && strcmp(t->name, p->moved) == 0;
            bool         dies = p->dead && strcmp(t->pieces[k].name, p->dead) == 0;
            tm_tensor_id id = moves ? (tm_tensor_id)i : t->gradient;
            if (!moves && !dies) continue;
            double *values = test_values_read(trainer, id);
            int64_t columns = tm_shape_elements(t->shape) / t->shape.n[0], first = t->pieces[k].row * columns;
            if (moves) values[3] += 1;
            for (int64_t e = 0; dies && e < t->pieces[k].rows * columns; e++) values[first + e] = e == p->alive;
            test_values_write(trainer, id, values);
            free(values);
        }
    }
}

static const char *check_proof(const tm_run_options *o, const run *like, planted what)
{
    proof p = { .device = "cpu", .spoil = plant, .what = &what };
    return proof_says(o, like, &p);
}

static const planted nothing = { .moved = NULL };

/* A hundredth of the steps' time, and 5 us a step, may be counted twice. */
TEST(phases_are_no_longer_than_their_steps)
{
    static const struct {
        double      all, accounted;
        int64_t     done;
        const char *unreal;
    } cases[] = { { 1, 1.01029, 60, "" },
                  { 1, 1.01031, 60, "the phases of the steps take 1.01 s together, the steps 1 s" },
                  { 0.2, 0.20201, 2, "" },
                  { 0.2, 0.202011, 2, "the phases of the steps take 0.202 s together, the steps 0.2 s" },
                  { 1, 1.2, 1, "the phases of the steps take 1.2 s together, the steps 1 s" },
                  { 3, 9, 0, "" } };
    const tm_run_options o = options_of(60);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        run like = { .progress.finite = true, .progress.done = cases[i].done };
        like.timing.all_seconds = cases[i].all, like.timing.accounted_seconds = cases[i].accounted;
        assert_string_equal(check_proof(&o, &like, nothing), cases[i].unreal);
        like.progress.finite = false; /* which says enough */
        assert_string_equal(check_proof(&o, &like, nothing), "");
    }
}

/* Every named part, to its last element, in a run whose gradients were looked at and are not all zero. */
TEST(every_part_has_a_gradient)
{
    enum { PIECE = 1 << 18 }; /* elements that are read at a time */
    tm_run_options o = options_of(60);
    run            like = { .progress.finite = true, .progress.done = 60, .progress.last_norm = 1 };
    like.certified.first = (tm_certificate){ .done = true, .gradients = true };
    static const char *const parts[] = { "tok_embeddings.weight", "layers.0.feed_forward.w1.weight",
                                         "layers.1.feed_forward.w3.weight", "layers.1.ffn_norm.weight",
                                         "output.weight" };
    static const int64_t     alive[] = { -1, 0, 63 };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        for (int k = 0; k < 3; k++) {
            char wanted[200] = "";
            if (k == 0) snprintf(wanted, sizeof wanted, "no gradient reaches %s", parts[i]);
            assert_string_equal(check_proof(&o, &like, (planted){ .dead = parts[i], .alive = alive[k] }), wanted);
        }
    run unknown[2] = { like, like };
    unknown[0].progress.last_norm = 0, unknown[1].certified.first.done = false;
    for (int i = 0; i < 2; i++)
        assert_string_equal(check_proof(&o, &unknown[i], (planted){ .dead = "output.weight", .alive = -1 }), "");
    static const int64_t last[] = { -1, PIECE - 1, PIECE, 2 * PIECE + 63 };
    o.step.shape.vocab_size = 2 * PIECE / 64 + 1;
    for (int k = 0; k < 4; k++)
        assert_string_equal(check_proof(&o, &like, (planted){ .dead = "output.weight", .alive = last[k] }),
                            k == 0 ? "no gradient reaches output.weight" : "");
}
