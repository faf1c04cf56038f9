/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that share each sequence: the work is shared alike, keys go round in a ring, and fields of tokens are cut. What
 * the ranks train: tests/differential. */
#include "support/test.h"
#include "ranks_fixture.h"
#include "train/step/sequence.h"

static tm_step_options one_way(bool ring)
{
    tm_step_options o = shareable(0);
    o.micro_batch = 2;
    o.layout.ring = ring;
    return o;
}

/* --- plans ----------------------------------------------------------------------------------------------------- */

static size_t count_calls(const tm_step *step, const char *program, const tm_op *op, unsigned axes)
{
    const tm_program *p = tm_plan_program(step->plan, program);
    size_t            n = 0;
    for (size_t x = 0; x < p->count; x++) {
        const tm_call *call = &p->instructions[x].call;
        n += call->op == op && (unsigned)((const tm_group_attr *)call->attr)->axes == axes;
    }
    return n;
}

/* Once a layer forward and once backward; no pair of a query and a key is computed twice, and ranks share them alike.
 */
TEST(work_is_shared_alike)
{
    tm_device *device = test_device_open("cpu", 1);
    tm_chooser chooser = tm_device_chooser(device);
    double     pairs[4] = { 0 }, whole = 0;
    for (int rank = -1; rank < 4; rank++) {
        tm_step_options o = one_way(false);
        o.layout.mesh = tm_mesh_one();
        if (rank >= 0) o.layout.mesh.degree[TM_AXIS_CP] = 4, o.layout.rank = rank;
        tm_step          *step = test_step_plan(&o, &chooser);
        const tm_program *p = step->first;
        for (size_t x = 0; x < p->count; x++)
            if (p->instructions[x].call.op == &tm_op_attention)
                *(rank < 0 ? &whole : &pairs[rank]) += p->instructions[x].cost.flops;
        if (rank >= 0) {
            const unsigned cp = 1U << TM_AXIS_CP;
            assert_int_equal(count_calls(step, "first", &tm_op_all_gather, cp), o.shape.n_layers);
            assert_int_equal(count_calls(step, "first", &tm_op_reduce_scatter, cp), o.shape.n_layers);
            assert_int_equal(count_calls(step, "evaluate", &tm_op_all_reduce, cp), 1);
        }
        tm_step_destroy(step);
    }
    for (int r = 0; r < 4; r++) assert_true(pairs[r] == whole / 4);
    tm_device_close(device);
}

/* Rounds of keys and values forward, of these and their gradients backward, one more to their owner; no rank has more
 * of them than two ranks' at a time, whatever the number of ranks, and all have as many pairs. */
TEST(keys_go_round)
{
    enum { RANKS = 8 };
    tm_device *device = test_device_open("cpu", 1);
    tm_chooser chooser = tm_device_chooser(device);
    double     pairs[RANKS] = { 0 };
    size_t     arena[2] = { 0 };
    for (int ring = 0; ring < 2; ring++)
        for (int rank = 0; rank < RANKS; rank++) {
            const unsigned  cp = 1U << TM_AXIS_CP;
            tm_step_options o = one_way(ring);
            o.seq = 512, o.micro_batch = 1;
            o.shape.max_seq_len = 512;
            o.shape.n_kv_heads = o.shape.n_heads;
            o.layout.mesh = tm_mesh_one();
            o.layout.mesh.degree[TM_AXIS_CP] = RANKS, o.layout.rank = rank;
            tm_step          *step = test_step_plan(&o, &chooser);
            const tm_program *p = step->first;
            int64_t           rows = o.seq / RANKS, most = 0, columns = 2 * o.shape.n_kv_heads * o.shape.head_dim;
            for (size_t x = 0; x < p->count && ring; x++) {
                const tm_call *call = &p->instructions[x].call;
                if (call->op == &tm_op_attention || call->op == &tm_op_attention_grad)
                    pairs[rank] += p->instructions[x].cost.flops;
                for (int k = 0; k < TM_MAX_IN + TM_MAX_OUT; k++) {
                    const tm_view *view = k < TM_MAX_IN ? &call->in[k] : &call->out[k - TM_MAX_IN];
                    bool           keys = view->shape.rank == 2 && view->shape.n[1] == columns;
                    if (keys && view->shape.n[0] > most) most = view->shape.n[0];
                }
            }
            if (ring) {
                assert_int_equal(most, rows);
                assert_true(pairs[rank] == pairs[0] && pairs[0] > 0);
                assert_int_equal(count_calls(step, "first", &tm_op_pass_on, cp), (3 * RANKS - 2) * o.shape.n_layers);
                assert_int_equal(count_calls(step, "evaluate", &tm_op_pass_on, cp), (RANKS - 1) * o.shape.n_layers);
                assert_int_equal(count_calls(step, "first", &tm_op_all_gather, cp), 0);
            }
            if (step->plan->arena_bytes > arena[ring]) arena[ring] = step->plan->arena_bytes;
            tm_step_destroy(step);
        }
    if (arena[1] >= arena[0]) fail_msg("a ring takes %zu bytes, gathered keys %zu", arena[1], arena[0]);
    tm_device_close(device);
}

/* The fields of a sample that ranks have parts of: of a text those of its length, of images those of several tokens. */
TEST(fields_of_tokens_are_cut)
{
    static const struct {
        int      model, ranks;
        tm_shape shape;
        bool     cut;
    } cases[] = {
        { 0, 2, { 1, { 32 } }, true },    { 0, 2, { 2, { 32, 4 } }, true },  { 0, 1, { 1, { 32 } }, false },
        { 0, 2, { 1, { 31 } }, false },   { 0, 2, { 1, { 1 } }, false },     { 0, 2, { 0, { 32 } }, false },
        { 3, 2, { 2, { 2, 16 } }, true }, { 3, 2, { 1, { 5 } }, true },      { 3, 2, { 2, { 1, 16 } }, false },
        { 3, 2, { 0, { 5 } }, false },    { 3, 1, { 2, { 2, 16 } }, false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tm_step_options o = model_options(cases[i].model);
        const tm_field  field = { "x", TM_F32, cases[i].shape, 0 };
        o.layout.mesh = tm_mesh_one();
        o.layout.mesh.degree[TM_AXIS_CP] = cases[i].ranks;
        if (context_cuts(&o, &field, 32) != cases[i].cut) fail_msg("row %zu", i);
    }
}

/* Sequences of training, and those of validation where there is one, are cut into equal chunks: two of each rank. */
TEST(what_cannot_be_cut_is_refused)
{
    tm_step_options o = one_way(false);
    tm_error        err = { 0 };
    o.layout.mesh = tm_mesh_one();
    o.seq = 10; /* of one rank: as it is */
    assert_int_equal(context_check(&o, &err), TM_OK);
    o.layout.mesh.degree[TM_AXIS_CP] = 2;
    assert_int_equal(context_check(&o, &err), TM_INVALID);
    assert_non_null(strstr(err.text, "training.seq_len is 10"));
    o.seq = 16, o.validation_seq = 10;
    assert_int_equal(context_check(&o, &err), TM_OK);
    o.validation_batch = 1;
    err = (tm_error){ 0 };
    assert_int_equal(context_check(&o, &err), TM_INVALID);
    assert_non_null(strstr(err.text, "validation.seq_len is 10"));
}
