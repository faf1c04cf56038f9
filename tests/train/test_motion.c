/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of bfloat16, moved by less than their steps: some elements move by a whole step and most do not; those that
 * move forward move back as far on the other side, and the average is the motion that was asked for. */
#include "support/test.h"
#include "support/training.h"

#include "train/certify/perturb.h"

static double *moved_to(tm_motion *motion, tm_tensor_id id, double side, uint64_t seed, double *change)
{
    *change = 0;
    assert_ok(tm_motion_move(motion, 0, motion->n_groups, side, seed, change, err));
    return test_values_read(motion->trainer, id);
}

/* Beyond a power of two the steps of the format have another size. */
static bool same_steps(double a, double b, double c)
{
    int e[3];
    (void)frexp(a, &e[0]), (void)frexp(b, &e[1]), (void)frexp(c, &e[2]);
    return e[0] == e[1] && e[0] == e[2];
}

TEST(motions_are_alike_in_both_directions)
{
    tm_step_options o = test_llama_options();
    o.micro_batch = 4, o.seq = 64;
    o.precision = &tm_precision_bf16_pure, o.exact = &tm_precision_f32;
    tm_trainer    *trainer = test_trainer_on("cpu", 1, &o, 5);
    test_batch     rows = test_batch_random(o.micro_batch, o.seq, o.shape.vocab_size, 5);
    tm_micro_batch batch = { .field = { rows.tokens, rows.targets }, .target_tokens = rows.target_tokens };
    tm_error       err = { 0 };
    tm_motion      motion;
    test_begin(trainer, 1, 0, 0, rows.target_tokens);
    if (tm_trainer_gradients(trainer, &batch, NULL, &err) != TM_OK) fail_msg("%s", err.text);
    tm_motion_open(trainer, true, &motion);
    if (tm_motion_keep(&motion, &err) != TM_OK || tm_motion_measure(&motion, &err) != TM_OK) fail_msg("%s", err.text);
    for (size_t i = 0; i < motion.n_groups; i++) motion.groups[i].apart = 0x1p-11, motion.groups[i].along = 0;
    for (size_t k = 0; k < motion.n_members; k++) {
        const tm_motion_member *m = &motion.members[k];
        double                  forward, back, none, sum = 0, asked = 0x1p-11 * m->rms;
        double *w = moved_to(&motion, m->id, 0, 9, &none), *up = moved_to(&motion, m->id, 1, 9, &forward);
        double *down = moved_to(&motion, m->id, -1, 9, &back);
        int64_t still = 0, counted = 0;
        for (int64_t i = 0; i < m->n; i++) {
            if (!same_steps(down[i], w[i], up[i])) continue;
            if (up[i] - w[i] != w[i] - down[i]) fail_msg("member %zu, %d: %g %g %g", k, (int)i, down[i], w[i], up[i]);
            int    e;
            double step = (frexp(w[i], &e), ldexp(1, e - 8));
            still += up[i] == w[i];
            counted++;
            sum += fabs(up[i] - w[i]);
            assert_true(fabs(up[i] - w[i]) < asked + step);
        }
        assert_true(none == 0);
        if (counted > 1000) { /* a sixteenth of a step is the least chance */
            assert_true(still > counted / 4 && still < counted);
            assert_true(fabs(sum / (double)counted / asked - 1) < 0.1);
            assert_true(forward != 0 && fabs(forward + back) < 0.05 * fabs(forward - back));
        }
        free(w), free(up), free(down);
    }
    tm_motion_fini(&motion);
    test_batch_fini(&rows);
    test_trainer_end(trainer);
}
