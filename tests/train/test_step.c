/* SPDX-License-Identifier: Apache-2.0 */
/* What a step is made of: its fields, its chunks, its first state, what Muon takes. */
#include "support/test.h"
#include "op/attrs.h"
#include "support/training.h"

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
    other.n_fields = 2;
    assert_refused(tm_step_create(&other, &chooser, &step, err), TM_INVALID,
                   "the model needs the field 'tokens' of a sample, and data.source gives noise, targets");
    tm_trainer_close(a);
    tm_trainer_close(b);
    test_batch_fini(&batch);
    tm_device_close(device);
}

/* Logits of a chunk take 32 MB at most, but for 512 rows, and for those that the device needs. */
TEST(chunks_of_the_loss_are_as_large_as_fit)
{
    static const int64_t cases[][3] = { /* rows, vocabulary, rows of a chunk */
                                        { 100000, 2048, 4096 },  { 100000, 2049, 3584 }, { 100000, 1 << 20, 512 },
                                        { 300, 50257, 300 },     { 4097, 2048, 4096 },   { 100000, 2, 100000 },
                                        { 1 << 24, 2, 4194304 }, { 100000, 5461, 1536 }, { 7, 0, 7 }
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

/* The rows of the matrices that Muon takes apart; those that come again and again are there once. */
TEST(muon_takes_each_matrix_for_itself)
{
    static const struct {
        int         heads; /* of keys */
        const char *name;
        int64_t     rows[4];
    } wanted[] = { { 1, "attention.wqkv.weight", { 64, 32, 32 } },
                   { 2, "attention.wqkv.weight", { 64 } },
                   { 1, "attention.wo.weight", { 64 } },
                   { 1, "feed_forward.w13.weight", { 160 } },
                   { 1, "feed_forward.w2.weight", { 64 } } };
    for (size_t k = 0; k < sizeof wanted / sizeof wanted[0]; k++) {
        tm_step_options o = test_llama_options();
        int             found = 0;
        o.shape.n_kv_heads = wanted[k].heads;
        o.optimizer = &tm_optimizer_muon;
        o.hyper = (tm_hyper){ .momentum = 0.75, .nesterov = true, .definition = TM_DEFINED_TORCH };
        tm_step *step = test_step_of(&o);
        for (size_t x = 0; x < step->update->count; x++) {
            const tm_node      *node = step->update->instructions[x].node;
            const tm_muon_attr *attr = node->attr;
            if (node->op != TM_OP_muon || !strstr(tm_graph_at(step->graph, node->in[0])->name, wanted[k].name))
                continue;
            for (int i = 0; i < 4; i++) assert_int_equal(attr->rows[i], wanted[k].rows[i]);
            found++;
        }
        assert_int_equal(found, 2);
        tm_step_destroy(step);
    }
}
