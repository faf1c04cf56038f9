/* SPDX-License-Identifier: Apache-2.0 */
/* What a step is made of: its fields, its chunks, its first state, what Muon takes. */
#include "support/test.h"
#include "base/text.h"
#include "op/attrs.h"
#include "support/training.h"

#include <stdlib.h>
#include <string.h>

/* Fields are known by their names: their order does not matter, one that the model does not read takes no memory, one
 * that is missing is named. */
TEST(fields_go_by_name)
{
    tm_device      *device = test_device_open("cpu", 2);
    tm_step_options plain = test_llama_options(), other = plain;
    tm_shape        t = tm_shape_1(plain.seq);
    const tm_field  fields[] = { { "noise", TM_F32, tm_shape_2(4, 1 << 20), 0 },
                                 { "targets", TM_I32, t, -100 },
                                 { "tokens", TM_I32, t, 0 } };
    memcpy(other.fields, fields, sizeof fields);
    other.n_fields = 3;
    test_batch  batch = test_batch_random(plain.micro_batch, plain.seq, plain.shape.vocab_size, 67);
    tm_trainer *a = test_trainer_open(device, &plain, 68), *b = test_trainer_open(device, &other, 68);
    double      x = 0, y = 0;
    assert_int_equal(tm_trainer_evaluate(a, &(tm_micro_batch){ { batch.tokens, batch.targets }, 0 }, &x, NULL), TM_OK);
    assert_int_equal(tm_trainer_evaluate(b, &(tm_micro_batch){ { NULL, batch.targets, batch.tokens }, 0 }, &y, NULL),
                     TM_OK);
    assert_true(x == y && x > 0);
    assert_int_equal(tm_trainer_step_of(a)->plan->arena_bytes, tm_trainer_step_of(b)->plan->arena_bytes);
    tm_chooser chooser = tm_device_chooser(device);
    tm_step   *step = NULL;
    tm_error   err = { 0 };
    other.n_fields = 2;
    assert_int_equal(tm_step_create(&other, &chooser, &step, &err), TM_INVALID);
    assert_non_null(
        strstr(err.text, "the model needs the field 'tokens' of a sample, and data.source gives noise, targets"));
    tm_trainer_close(a);
    tm_trainer_close(b);
    test_batch_fini(&batch);
    tm_device_close(device);
}

/* Logits of a chunk take 32 MB at most, but for 512 rows, and for those that the device needs. */
TEST(chunks_of_the_loss_are_as_large_as_fit)
{
    static const int64_t cases[][3] = { /* rows, vocabulary, rows of a chunk */
                                        { 100000, 2048, 4096 },   { 100000, 2049, 3584 }, { 100000, 50257, 512 },
                                        { 100000, 1 << 20, 512 }, { 300, 50257, 300 },    { 4096, 2048, 4096 },
                                        { 4095, 2048, 4095 },     { 4097, 2048, 4096 },   { 100000, 8192, 1024 },
                                        { 100000, 16384, 512 },   { 100000, 2, 100000 },  { 7, 0, 7 },
                                        { 1 << 24, 2, 4194304 },  { 100000, 5461, 1536 }
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int64_t least = 0; least <= 100000; least = 4 * least + 512) {
            int64_t wanted = cases[i][2];
            if (cases[i][1] > 0 && wanted < least) wanted = least < cases[i][0] ? least : cases[i][0];
            assert_int_equal(tm_step_loss_chunk(cases[i][0], cases[i][1], least), wanted);
        }
}

/* Moments and whatever else the optimizer keeps, to the bit; in a file, too. */
TEST(a_new_trainer_has_no_past)
{
    static const tm_optimizer *const optimizers[] = { &tm_optimizer_adamw, &tm_optimizer_sgd, &tm_optimizer_adafactor,
                                                      &tm_optimizer_muon, &tm_optimizer_adamw8bit };
    tm_device                       *device = test_device_open("cpu", 2);
    for (int k = 0; k < 7; k++) {
        tm_step_options o = test_llama_options();
        o.optimizer = optimizers[k % 5];
        o.hyper.momentum = 0.9;
        if (k >= 5) o.precision = &tm_precision_bf16_pure;
        if (k == 6) o.offload = (tm_offload){ .optimizer = true, .space = TM_SPACE_DISK, .folder = "/tmp" };
        tm_trainer     *trainer = test_trainer_open(device, &o, 3);
        const tm_graph *graph = tm_trainer_step_of(trainer)->graph;
        size_t          looked = 0;
        for (size_t i = 0; i < graph->n_tensors; i++) {
            const tm_tensor *t = &graph->tensors[i];
            if ((t->role != TM_ROLE_MOMENT && t->role != TM_ROLE_STATE) || t->base != TM_NONE) continue;
            char  *bytes = test_tensor_read(trainer, (tm_tensor_id)i);
            size_t n = tm_tensor_bytes(t->shape, t->dtype);
            for (size_t b = 0; b < n; b++)
                if (bytes[b] != 0) fail_msg("%s: byte %zu is %d", t->name, b, bytes[b]);
            looked += n;
            free(bytes);
        }
        assert_true(looked > 1000);
        tm_trainer_close(trainer);
    }
    tm_device_close(device);
}

/* What Muon does with each parameter of blocks: the rows of its matrices, which come again and again. */
static void add_muon(tm_text *out, const tm_step_options *o)
{
    tm_device *device = test_device_open("cpu", 1);
    tm_chooser chooser = tm_device_chooser(device);
    tm_step   *step = test_step_plan(o, &chooser);
    for (size_t s = 0; s < step->graph->n_segments; s++)
        for (size_t i = 0; i < step->graph->segments[s]->n_nodes; i++) {
            const tm_node      *node = &step->graph->segments[s]->nodes[i];
            const tm_muon_attr *attr = node->attr;
            const char         *name = tm_graph_at(step->graph, node->in[0])->name;
            if (node->op != TM_OP_muon || !strstr(name, "layers.0.")) continue;
            tm_text_printf(out, "%s:", name);
            for (int k = 0; k < TM_MUON_PARTS && attr->rows[k] > 0; k++)
                tm_text_printf(out, " %lld", (long long)attr->rows[k]);
            tm_text_printf(out, ", eps %g, %lld %lld %lld, %g %g, random %d\n", attr->eps, (long long)attr->nesterov,
                           (long long)attr->coefficients, (long long)attr->scale, attr->momentum, attr->weight_decay,
                           attr->rounding != 0);
        }
    tm_step_destroy(step);
    tm_device_close(device);
}

TEST(muon_takes_each_matrix_for_itself)
{
    tm_step_options o = test_llama_options();
    tm_text         out = { 0 };
    o.optimizer = &tm_optimizer_muon;
    o.hyper = (tm_hyper){ .momentum = 0.75, .weight_decay = 0.25, .nesterov = true, .definition = TM_DEFINED_TORCH };
    add_muon(&out, &o);
    o.shape.n_kv_heads = 2, o.precision = &tm_precision_bf16_pure;
    o.hyper = (tm_hyper){ .momentum = 0.5, .definition = TM_DEFINED_MEGATRON, .scale = TM_MUON_SPECTRAL };
    o.hyper.stochastic = true;
    add_muon(&out, &o);
    o.shape.family = TM_FAMILY_MIXTRAL;
    o.shape.moe = (tm_moe_shape){ .experts = 4, .top_k = 2, .ffn_dim = 48, .normalise = true, .scale = 1 };
    add_muon(&out, &o);
    assert_string_equal(out.data, "layers.0.attention.wqkv.weight: 64 32 32, eps 1e-07, 1 0 0, 0.75 0.25, random 0\n"
                                  "layers.0.attention.wo.weight: 64, eps 1e-07, 1 0 0, 0.75 0.25, random 0\n"
                                  "layers.0.feed_forward.w13.weight: 160, eps 1e-07, 1 0 0, 0.75 0.25, random 0\n"
                                  "layers.0.feed_forward.w2.weight: 64, eps 1e-07, 1 0 0, 0.75 0.25, random 0\n"
                                  "layers.0.attention.wqkv.weight: 64, eps 1e-15, 0 1 2, 0.5 0, random 1\n"
                                  "layers.0.attention.wo.weight: 64, eps 1e-15, 0 1 2, 0.5 0, random 1\n"
                                  "layers.0.feed_forward.w13.weight: 160, eps 1e-15, 0 1 2, 0.5 0, random 1\n"
                                  "layers.0.feed_forward.w2.weight: 64, eps 1e-15, 0 1 2, 0.5 0, random 1\n"
                                  "layers.0.attention.wqkv.weight: 64, eps 1e-15, 0 1 2, 0.5 0, random 1\n"
                                  "layers.0.attention.wo.weight: 64, eps 1e-15, 0 1 2, 0.5 0, random 1\n"
                                  "layers.0.moe.router.gate.weight: 4, eps 1e-15, 0 1 2, 0.5 0, random 1\n"
                                  "layers.0.moe.experts.w13.weight: 48, eps 1e-15, 0 1 2, 0.5 0, random 1\n"
                                  "layers.0.moe.experts.w2.weight: 64, eps 1e-15, 0 1 2, 0.5 0, random 1\n");
    tm_text_fini(&out);
}

/* Pieces that never come again in the same rows are one matrix. */
TEST(muon_takes_uneven_pieces_together)
{
    tm_graph *graph = tm_graph_create(&tm_precision_f32);
    tm_piece  pieces[TM_MUON_PARTS + 2];
    tm_hyper  hyper = { .momentum = 0.75, .definition = TM_DEFINED_TORCH };
    tm_update update = { .first = 0 };
    int64_t   rows = 0;
    for (int p = 0; p < TM_MUON_PARTS + 2; p++) {
        pieces[p] = (tm_piece){ .name = "p", .row = rows, .rows = p + 1 };
        rows += p + 1;
    }
    tm_graph_segment(graph, "update");
    update.parameter = tm_graph_parameter(graph, "w", tm_shape_2(rows, 8), pieces, TM_MUON_PARTS + 2);
    tm_graph_at(graph, update.parameter)->layer = 0;
    update.gradient = tm_graph_tensor_as(graph, "g", TM_ROLE_GRADIENT, tm_shape_2(rows, 8), TM_F32);
    update.scalars = tm_graph_tensor_as(graph, "s", TM_ROLE_SCALAR, tm_shape_1(TM_SCALAR_COUNT), TM_F64);
    update.clip = tm_graph_tensor_as(graph, "c", TM_ROLE_SCALAR, tm_shape_1(2), TM_F64);
    tm_optimizer_add(graph, &tm_optimizer_muon, &hyper, update);
    const tm_muon_attr *attr = graph->segment->nodes[0].attr;
    assert_int_equal(graph->segment->nodes[0].op, TM_OP_muon);
    assert_int_equal(attr->rows[0], rows);
    assert_int_equal(attr->rows[1], 0);
    tm_graph_destroy(graph);
}

/* Chooses as a device does, and says of losses that they keep two rows in the place of one. */
static tm_kernel two_rows;

static const tm_kernel *choose_two_rows(const void *context, const tm_call *call, tm_text *refusals)
{
    const tm_chooser *device = context;
    const tm_kernel  *kernel = device->choose(device->context, call, refusals);
    if (call->op != &tm_op_linear_cross_entropy_grad) return kernel;
    two_rows = *kernel;
    two_rows.two_rows = true;
    return &two_rows;
}

/* Half of the rows, rounded up, do where two are kept in one's place; unless fewer fit anyway. */
TEST(half_a_chunk_does_for_two_rows)
{
    static const int64_t cases[][4] = { /* sequences of 7, vocabulary, rows of a chunk of one, of two */
                                        { 3, 2048, 21, 11 },      { 2, 2048, 14, 7 },       { 1, 2048, 7, 4 },
                                        { 200, 16384, 512, 512 }, { 146, 16384, 512, 511 }, { 147, 16384, 512, 512 }
    };
    tm_device       *device = test_device_open("cpu", 1);
    const tm_chooser chooser = tm_device_chooser(device);
    tm_error         err = { 0 };
    assert_int_equal(tm_device_limit_isa(device, "base", &err), TM_OK); /* whose kernels keep one row */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int two = 0; two < 2; two++) {
            tm_step_options o = test_llama_options();
            tm_chooser      own = chooser;
            o.micro_batch = cases[i][0], o.seq = 7, o.shape.vocab_size = cases[i][1], o.loss_chunk = 0;
            if (two) own = (tm_chooser){ .choose = choose_two_rows, .context = &chooser, .threads = chooser.threads };
            tm_step *step = test_step_plan(&o, &own);
            assert_int_equal(step->options.loss_chunk, cases[i][2 + two]);
            tm_step_destroy(step);
        }
    tm_device_close(device);
}
