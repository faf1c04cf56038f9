/* SPDX-License-Identifier: Apache-2.0 */
/* The values that training begins with, against the schemes as they are published: which standard deviation each weight
 * has, and that what lies in memory after tm_trainer_open has it. */
#include "support/training.h"

#include "model/model.h"

#include "support/test.h"

typedef struct {
    const char *name; /* of the piece, as far as the dot after the layer */
    double      mean, std;
} row;

/* Mean and deviation of a piece as it lies in memory, within five standard errors of the wanted ones. */
static void check_piece(const tm_tensor *tensor, const tm_piece *piece, const double *values, const row *wanted)
{
    int64_t width = tm_piece_row(tensor->shape), n = piece->rows * width;
    double  sum = 0, squares = 0, most = 0;
    for (int64_t i = 0; i < n; i++) {
        double v = values[piece->row * width + i];
        sum += v;
        squares += (v - wanted->mean) * (v - wanted->mean);
        most = fmax(most, fabs(v - wanted->mean));
    }
    double mean = sum / (double)n, std = sqrt(squares / (double)n), error = 5 / sqrt((double)n);
    if (wanted->std == 0 && most != 0) fail_msg("%s: not all values are %g", piece->name, wanted->mean);
    if (!(fabs(mean - wanted->mean) <= error * wanted->std + 1e-12) ||
        !(fabs(std - wanted->std) <= error * wanted->std + 1e-12))
        fail_msg("%s: mean %g, deviation %g; wanted %g, %g", piece->name, mean, std, wanted->mean, wanted->std);
}

static const row *row_of(const row *rows, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].name, name) == 0) return &rows[i];
    fail_msg("no row for '%s'", name);
    return NULL;
}

static void check(const tm_step_options *options, const row *rows, size_t n)
{
    tm_device     *device = test_device_open("cpu", 1);
    tm_trainer    *trainer = test_trainer_open(device, options, 11);
    const tm_step *step = tm_trainer_step_of(trainer);
    size_t         seen = 0;
    for (size_t i = 0; i < step->graph->n_tensors; i++) {
        const tm_tensor *tensor = &step->graph->tensors[i];
        if (tensor->role != TM_ROLE_PARAMETER) continue;
        double *values = test_values_read(trainer, (tm_tensor_id)i);
        for (int p = 0; p < tensor->n_pieces; p++, seen++)
            check_piece(tensor, &tensor->pieces[p], values, row_of(rows, n, tensor->pieces[p].name));
        free(values);
    }
    assert_int_equal(seen, n);
    tm_trainer_close(trainer);
    tm_device_close(device);
}

/* Divisors of 0.02: what leads back into the residual stream is smaller the deeper (torchtitan, by layer; GPT-2, by all
 * layers); torchtitan's table has deviation 1, its head 1 / sqrt(dim). */
TEST(every_scheme_has_its_deviations)
{
    tm_step_options o = test_llama_options();
    double          base = 0.02, l0 = base / sqrt(2), l1 = base / sqrt(4), head = 1 / sqrt(64);
    const row       titan[] = { { "tok_embeddings.weight", 0, 1 },
                                { "norm.weight", 1, 0 },
                                { "output.weight", 0, head },
                                { "layers.0.attention_norm.weight", 1, 0 },
                                { "layers.1.attention_norm.weight", 1, 0 },
                                { "layers.0.ffn_norm.weight", 1, 0 },
                                { "layers.1.ffn_norm.weight", 1, 0 },
                                { "layers.0.attention.wq.weight", 0, base },
                                { "layers.1.attention.wq.weight", 0, base },
                                { "layers.0.attention.wk.weight", 0, base },
                                { "layers.1.attention.wk.weight", 0, base },
                                { "layers.0.attention.wv.weight", 0, base },
                                { "layers.1.attention.wv.weight", 0, base },
                                { "layers.0.attention.wo.weight", 0, l0 },
                                { "layers.1.attention.wo.weight", 0, l1 },
                                { "layers.0.feed_forward.w1.weight", 0, base },
                                { "layers.1.feed_forward.w1.weight", 0, base },
                                { "layers.0.feed_forward.w3.weight", 0, l0 },
                                { "layers.1.feed_forward.w3.weight", 0, l1 },
                                { "layers.0.feed_forward.w2.weight", 0, l0 },
                                { "layers.1.feed_forward.w2.weight", 0, l1 } };
    check(&o, titan, sizeof titan / sizeof titan[0]);

    row    hf[sizeof titan / sizeof titan[0]];
    size_t n = sizeof titan / sizeof titan[0];
    for (size_t i = 0; i < n; i++) hf[i] = (row){ titan[i].name, titan[i].mean, titan[i].std > 0 ? 0.05 : 0 };
    o.shape.init = TM_INIT_HF;
    o.shape.init_std = 0.05;
    check(&o, hf, n);
}

TEST(gpt2_has_its_own)
{
    tm_step_options o = test_gpt_options();
    double          base = 0.02, out = base / sqrt(2 * 2);
    tm_device      *device = test_device_open("cpu", 1);
    tm_trainer     *trainer = test_trainer_open(device, &o, 11);
    const tm_step  *step = tm_trainer_step_of(trainer);
    int             projections = 0, zeros = 0, ones = 0, others = 0;
    for (size_t i = 0; i < step->graph->n_tensors; i++) {
        const tm_tensor *tensor = &step->graph->tensors[i];
        if (tensor->role != TM_ROLE_PARAMETER) continue;
        double *values = test_values_read(trainer, (tm_tensor_id)i);
        for (int p = 0; p < tensor->n_pieces; p++) {
            const char *name = tensor->pieces[p].name;
            size_t      length = strlen(name);
            bool        bias = length > 5 && strcmp(name + length - 5, ".bias") == 0;
            bool        norm = !bias && (strstr(name, "ln_") || strstr(name, "norm"));
            bool        back = !bias && strstr(name, "c_proj");
            row         wanted = { name, norm, bias || norm ? 0 : back ? out : base };
            check_piece(tensor, &tensor->pieces[p], values, &wanted);
            projections += back, zeros += bias, ones += norm, others += !(back || bias || norm);
        }
        free(values);
    }
    assert_int_equal(projections, 4);
    assert_int_equal(ones, 5);
    assert_true(zeros >= 11 && others >= 6);
    tm_trainer_close(trainer);
    tm_device_close(device);
}

/* torchtitan's: Xavier's uniform distribution in blocks and where images and texts come in, 0.02 where times and
 * vectors do, zeros in modulations and behind the blocks, so that these begin as if they were not there. */
TEST(images_begin_as_published)
{
    tm_model_shape s = test_shape_preset("tiny-flux", "--model.guidance_embed=true");
    tm_graph      *graph = tm_graph_create(&tm_precision_f32);
    tm_model       model;
    int            kinds[4] = { 0 };
    tm_model_declare(graph, &s, 8, NULL, &model);
    for (size_t i = 0; i < graph->n_tensors; i++) {
        const tm_tensor *t = &graph->tensors[i];
        for (int p = 0; p < t->n_pieces; p++) {
            const char  *name = t->pieces[p].name;
            const double sum = t->shape.rank == 2 ? (double)(t->shape.n[0] + t->shape.n[1]) : 0;
            const bool   zero =
                sum == 0 || strstr(name, "_mod.") || strstr(name, ".modulation.") || strstr(name, "final_layer.");
            const bool   small = strstr(name, "time_in.") || strstr(name, "vector_in.") || strstr(name, "guidance_in.");
            const double wanted = zero ? 0 : small ? 0.02 : sqrt(2 / sum);
            if (fabs(t->pieces[p].std - wanted) > 1e-12 || (wanted > 0 && t->pieces[p].uniform == small))
                fail_msg("%s: deviation %g, wanted %g", name, t->pieces[p].std, wanted);
            if (fabs(t->pieces[p].mean - (strstr(name, "_norm.scale") ? 1 : 0)) > 0) fail_msg("%s: mean", name);
            kinds[zero ? 0 : small ? 1 : 2]++;
        }
    }
    assert_true(kinds[0] > 50 && kinds[1] == 6 && kinds[2] > 30);
    tm_graph_destroy(graph);
}
