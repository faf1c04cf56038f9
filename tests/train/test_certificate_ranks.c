/* SPDX-License-Identifier: Apache-2.0 */
/* The certificate of the gradients of several ranks: it holds for honest training, and all find the same; it leaves no
 * trace; one rank with wrong gradients is enough to fail it. */
#include "support/test.h"
#include "ranks_fixture.h"
#include "train/certify/certificate.h"

typedef struct {
    tm_certificate found[MOST_RANKS];
    bool           spoil; /* rank 1 doubles what it has of the gradients of a layer; in bfloat16 turns it round */
} certified;

static void spoil(tm_trainer *trainer)
{
    const tm_step *step = tm_trainer_step_of(trainer);
    const double   factor = step->options.precision->compute == TM_BF16 ? -1 : 2;
    for (size_t u = 0; u < step->units.n_units; u++) {
        tm_tensor_id id = step->units.units[u].gradients;
        if (step->units.units[u].layer != 0 || id == TM_NONE) continue;
        double *values = test_values_read(trainer, id);
        for (int64_t i = 0; i < tm_shape_elements(tm_graph_at(step->graph, id)->shape); i++) values[i] *= factor;
        test_values_write(trainer, id, values);
        free(values);
    }
}

/* In a step of its own; every rank does it. */
static void certify(const job *j, tm_trainer *trainer)
{
    const tm_step_options *o = &tm_trainer_step_of(trainer)->options;
    certified             *to = j->taken;
    int                    rank = o->layout.mesh.degree[0] == 0 ? 0 : o->layout.rank;
    int64_t                first = tm_layout_data_rank(&o->layout) * o->accumulation;
    tm_micro_batch         all = { 0 };
    void                  *field[16][TM_MAX_FIELDS] = { { NULL } };
    CHECK(o->accumulation <= 16);
    for (int64_t m = 0; m < o->accumulation; m++) all.target_tokens += make_batch(o, 1, first + m, field[m]);
    tm_micro_batch joined = join_batches(o, field);
    joined.target_tokens = all.target_tokens;
    if (to->spoil) {
        int64_t micro_batches = tm_layout_data_ranks(&o->layout) * o->accumulation;
        CHECK_OK(tm_trainer_begin(trainer, 1, 0, 0, count_targets(o, 1, micro_batches), err));
        CHECK_OK(tm_trainer_gradients(trainer, &joined, NULL, err));
        if (rank == 1) spoil(trainer);
        CHECK_OK(tm_certify(trainer, &joined, 11, &to->found[rank], err));
    } else {
        CHECK_OK(tm_certify_anew(trainer, &joined, 11, &to->found[rank], err));
    }
    for (int64_t m = 0; m < o->accumulation; m++) free_batch(o, field[m]);
    for (int f = 0; f < 2; f++) free((void *)joined.field[f]);
}

static const struct {
    int        replicate, shard, context;
    tm_sharing sharing;
} layouts[] = { { 2, 1, 1, TM_SHARE_COPIES }, { 1, 2, 1, TM_SHARE_OPTIMIZER }, { 1, 3, 1, TM_SHARE_GRADIENTS },
                { 1, 4, 1, TM_SHARE_ALL },    { 2, 2, 1, TM_SHARE_ALL },       { 2, 2, 1, TM_SHARE_OPTIMIZER },
                { 2, 1, 2, TM_SHARE_ALL } };
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

static job run_certified(tm_step_options o, int l, certified *to)
{
    job j = ranks_job(o, layouts[l].replicate, layouts[l].shard, layouts[l].sharing, 2);
    j.context = layouts[l].context;
    j.o.layout.reshard = true;
    j.taken = to;
    if (to) j.change = certify;
    run_job(&j);
    return j;
}

/* Llama, GPT (a table that is looked up and a factor, too), a mixture whose loss balances experts. */
static void honest_ranks_hold(void **state)
{
    (void)state;
    for (int k = 0; k < 3; k++)
        for (int accumulation = 1; accumulation <= 2; accumulation++)
            for (int l = 0; l < LAYOUTS; l++) {
                certified       to = { .spoil = false };
                tm_step_options o = model_options(k);
                o.accumulation = accumulation;
                job looked = run_certified(o, l, &to), plain = run_certified(o, l, NULL);
                for (int r = 0; r < ranks_of(&looked); r++) {
                    const tm_certificate *c = &to.found[r];
                    bool                  whole = layouts[l].context == 1;
                    if (!c->done || !c->gradients || c->looked_ahead != whole || (whole && !(c->causal && c->context)))
                        fail_msg("model %d, %d micro-batches, layout %d, rank %d: done %d, gradients %d, causal %d: %s",
                                 k, accumulation, l, r, c->done, c->gradients, c->causal, c->reason);
                    assert_true(fabs(c->measured) > 0);
                    assert_true(c->expected == to.found[0].expected && c->measured == to.found[0].measured);
                }
                assert_true(looked.loss[1] == plain.loss[1] && looked.weights[0] == plain.weights[0]);
            }
}

static void bfloat16_ranks_hold(void **state)
{
    (void)state;
    for (int l = 0; l < LAYOUTS; l++) {
        certified       to = { .spoil = false };
        tm_step_options o = model_options(0);
        o.precision = &tm_precision_bf16;
        o.exact = &tm_precision_f32;
        o.micro_batch = 4, o.seq = 64; /* so large that it takes no memory */
        job j = run_certified(o, l, &to);
        for (int r = 0; r < ranks_of(&j); r++) {
            const tm_certificate *c = &to.found[r];
            if (!c->done || !c->gradients) fail_msg("layout %d, rank %d: %s", l, r, c->reason);
            if (strcmp(c->losses, "float32") != 0) fail_msg("layout %d: losses in %s, %s", l, c->losses, c->inexact);
        }
    }
}

static void one_rank_with_wrong_gradients_is_seen(void **state)
{
    (void)state;
    for (int k = 0; k < 3; k++) /* the last one in bfloat16 */
        for (int l = 0; l < LAYOUTS; l++) {
            certified       to = { .spoil = true };
            tm_step_options o = model_options(k % 2);
            if (k == 2) o.precision = &tm_precision_bf16, o.exact = &tm_precision_f32, o.micro_batch = 4, o.seq = 64;
            job j = run_certified(o, l, &to);
            for (int r = 0; r < ranks_of(&j); r++) {
                assert_true(to.found[r].done);
                if (to.found[r].gradients) fail_msg("model %d, layout %d: rank %d sees nothing", k, l, r);
                if (!strstr(to.found[r].reason, k != 1 ? "the gradient of layers.0 " : "the gradient of h.0 "))
                    fail_msg("model %d, layout %d, rank %d: %s", k, l, r, to.found[r].reason);
            }
        }
}

static const struct CMUnitTest tests[] = {
    full_test(honest_ranks_hold),
    cmocka_unit_test(bfloat16_ranks_hold),
    full_test(one_rank_with_wrong_gradients_is_seen),
};

TM_TESTS(tests, NULL, NULL)
