/* SPDX-License-Identifier: Apache-2.0 */
/* How often the certificate sees a gradient that is wrong by a factor, in one group of tensors, or in the part of it
 * that one of k ranks has: what the table of docs/certificate.md says. TM_LONG=1: more directions; TM_VERBOSE=1: the
 * table. */
#include "support/test.h"
#include "support/training.h"

#include "train/certify/certificate.h"
#include "train/certify/perturb.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of every tensor of the group the rows of rank 0 of `ranks` have `factor` times their gradient. */
typedef struct {
    const char *group; /* NULL: all */
    double      factor;
    int         ranks;
} defect;

typedef struct {
    tm_device  *device;
    tm_trainer *trainer;
    test_batch  rows;
} bench;

/* In which formats a step computes, and losses that are compared with its gradients. */
typedef struct {
    const tm_precision *step, *losses;
} way;
enum { FLOAT32, BFLOAT16, PURE, BFLOAT16_ALONE, WAYS };
static const way ways[WAYS] = { [FLOAT32] = { &tm_precision_f32, &tm_precision_f32 },
                                [BFLOAT16] = { &tm_precision_bf16, &tm_precision_f32 },
                                [PURE] = { &tm_precision_bf16_pure, &tm_precision_f32 },
                                [BFLOAT16_ALONE] = { &tm_precision_bf16, &tm_precision_bf16 } };

static bench bench_open(int w, int warm)
{
    tm_step_options o = test_llama_options();
    bench           b;
    o.micro_batch = 4, o.seq = 64; /* so large that losses in float32 take no memory */
    o.precision = ways[w].step;
    o.exact = ways[w].step != ways[w].losses ? ways[w].losses : NULL;
    b.device = test_device_open("cpu", 1);
    b.trainer = test_trainer_open(b.device, &o, 5);
    b.rows = test_batch_random(o.micro_batch, o.seq, o.shape.vocab_size, 5);
    for (int t = 1; t <= warm; t++) test_step(b.trainer, t, 1e-2, 1, &b.rows);
    return b;
}

static void bench_close(bench *b)
{
    test_batch_fini(&b->rows);
    tm_trainer_close(b->trainer);
    tm_device_close(b->device);
}

/* Returns x: along this gradient the loss changes by 1 + x times what the gradient says, in the groups that are wrong.
 */
static double plant(tm_trainer *trainer, const defect *d)
{
    const tm_graph *graph = tm_trainer_step_of(trainer)->graph;
    double          says = 0, does = 0;
    for (size_t i = 0; i < graph->n_tensors; i++) {
        const tm_tensor *t = &graph->tensors[i];
        char             name[96];
        tm_motion_group_of(t->name, name);
        if (t->role != TM_ROLE_PARAMETER || t->gradient == TM_NONE || (d->group && strcmp(name, d->group) != 0))
            continue;
        int64_t all = tm_shape_elements(t->shape);
        double *g = test_values_read(trainer, t->gradient);
        for (int64_t k = 0; k < all; k++) {
            double wrong = k < all / d->ranks ? d->factor * g[k] : g[k];
            says += wrong * wrong;
            does += wrong * g[k];
            g[k] = wrong;
        }
        test_values_write(trainer, t->gradient, g);
        free(g);
    }
    assert_true(does != 0 || d->factor == 0);
    return does / says - 1;
}

/* Of so many directions: those that show it, and those that say that they cannot tell; *x as above. */
typedef struct {
    int    directions, seen, untold, groups;
    double x;
} count;

static count look(bench *b, const defect *d, int directions)
{
    tm_micro_batch batch = { .field = { b->rows.tokens, b->rows.targets }, .target_tokens = b->rows.target_tokens };
    count          n = { .directions = directions };
    for (int seed = 1; seed <= directions; seed++) {
        tm_certificate c;
        tm_error       err = { 0 };
        test_begin(b->trainer, 1, 0, 0, b->rows.target_tokens);
        if (tm_trainer_gradients(b->trainer, &batch, NULL, &err) != TM_OK) fail_msg("%s", err.text);
        n.x = plant(b->trainer, d);
        if (tm_certify(b->trainer, &batch, (uint64_t)seed, &c, &err) != TM_OK) fail_msg("%s", err.text);
        if (!c.done && !strstr(c.reason, "rounding hides what the gradients say")) fail_msg("%s", c.reason);
        n.untold += !c.done;
        n.seen += c.done && !c.gradients;
        n.groups = c.groups;
    }
    return n;
}

static const char *const groups[] = {
    "layers.0 attention", "layers.1 feed_forward", "layers.0 norms", "tok_embeddings", "output", NULL
};
enum { GROUPS = sizeof groups / sizeof groups[0], FEW = 6, MANY = 24 };

/* Twice, half and minus what it should be, in one group: float32 sees it. A part of it now and then; bfloat16 sees a
 * wrong sign of all. */
FULL_TEST(a_factor_shows)
{
    static const double factors[] = { 2, 0.5, -1 };
    bench               b = bench_open(FLOAT32, 0);
    for (int g = 0; g < GROUPS; g++)
        for (int f = 0; f < 3; f++) {
            count n = look(&b, &(defect){ groups[g], factors[f], 1 }, FEW);
            if (n.seen < FEW - 1 || n.untold)
                fail_msg("%s x %g: %d of %d", groups[g] ? groups[g] : "all", factors[f], n.seen, FEW);
        }
    assert_true(look(&b, &(defect){ NULL, 0, 1 }, FEW).seen == FEW); /* no gradient at all */
    assert_true(look(&b, &(defect){ NULL, 0, 4 }, FEW).seen >= FEW - 1);
    assert_true(look(&b, &(defect){ NULL, -1, 8 }, FEW).seen >= FEW - 1);
    assert_true(look(&b, &(defect){ NULL, 1, 1 }, FEW).seen == 0);
    bench_close(&b);
    for (int w = BFLOAT16; w <= PURE; w++) { /* with losses in float32 one group shows in bfloat16, too */
        b = bench_open(w, 0);
        for (int g = 0; g < GROUPS; g++) {
            count n = look(&b, &(defect){ groups[g], 2, 1 }, FEW);
            int   wanted = w == PURE ? FEW / 2 : FEW - 1; /* motions are roundings there */
            if (n.seen < wanted || n.untold) fail_msg("way %d, %s: %d of %d", w, groups[g], n.seen, FEW);
        }
        assert_true(look(&b, &(defect){ NULL, 1, 1 }, FEW).seen == 0);
        bench_close(&b);
    }
    b = bench_open(BFLOAT16_ALONE, 0);
    assert_true(look(&b, &(defect){ NULL, -1, 1 }, FEW).seen == FEW);
    assert_true(look(&b, &(defect){ NULL, 1, 1 }, FEW).seen == 0);
    bench_close(&b);
}

/* Whoever cannot tell does not certify. */
TEST(what_rounding_hides_is_not_certified)
{
    bench b = bench_open(BFLOAT16_ALONE, 0);
    assert_int_equal(look(&b, &(defect){ NULL, 1, 1 }, FEW).untold, 0);
    assert_int_equal(look(&b, &(defect){ NULL, 0, 1 }, FEW).untold, FEW); /* no gradient: nothing is said */
    bench_close(&b);
    b = bench_open(BFLOAT16_ALONE, 40); /* by heart: hardly any gradient is left */
    assert_int_equal(look(&b, &(defect){ NULL, 1, 1 }, FEW).untold, FEW);
    bench_close(&b);
}

/* The table of docs/certificate.md. */
TEST(how_often_a_factor_shows)
{
    static const double factors[] = { 2, 0.5, -1, 0, 1.25, 1.1 };
    if (!getenv("TM_LONG")) return;
    for (int warm = 0; warm <= 20; warm += 20)
        for (int w = 0; w < WAYS; w++) {
            bench b = bench_open(w, warm);
            for (size_t f = 0; f < sizeof factors / sizeof factors[0]; f++)
                for (int ranks = 1; ranks <= 8; ranks = ranks == 1 ? 2 : 4 * ranks) {
                    int one = 0, least = MANY;
                    for (int g = 0; g < GROUPS - 1; g++) {
                        count n = look(&b, &(defect){ groups[g], factors[f], ranks }, MANY);
                        one += n.seen;
                        least = n.seen < least ? n.seen : least;
                    }
                    count all = look(&b, &(defect){ NULL, factors[f], ranks }, MANY);
                    print_message(
                        "# %s (losses %s), %d steps, x %g on one of %d ranks: one group %.2f (least %.2f), all %.2f, "
                        "not told %.2f\n",
                        ways[w].step->name, ways[w].losses->name, warm, factors[f], ranks,
                        (double)one / (MANY * (GROUPS - 1)), (double)least / MANY, (double)all.seen / MANY,
                        (double)all.untold / MANY);
                }
            bench_close(&b);
        }
}
