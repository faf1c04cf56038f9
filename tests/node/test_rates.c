/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds of made-up rates: the floor is what two measurements of one place differ by, and nothing good is taken for
 * slow, whatever the noise is like. */
#include "base/random.h"
#include "apps/node/judge.h"
#include "apps/node/rates.h"

#include "support/test.h"

enum { MOST_PLACES = 8, ROUNDS = 64 };
typedef enum { EVEN, ALIKE, BUSY, DRIFTING, KINDS } noise_kind;

/* Rates of a round about 1: even noise; noise that stays for some rounds; a program that comes and goes and takes a
 * third of a place's caches; a clock that falls by a tenth for all. */
static void draw(noise_kind kind, uint64_t seed, size_t places, double slow, double *rates)
{
    for (size_t p = 0; p < places; p++) {
        double level = 0;
        bool   busy = tm_random_uniform(seed, p, 1 << 20) < 0.3;
        for (size_t r = 0; r < ROUNDS; r++) {
            const double normal = tm_random_normal(seed, p, r), uniform = tm_random_uniform(seed, p + 100, r);
            double       rate = 1 + 0.02 * normal;
            if (kind == ALIKE) rate = 1 + (level = 0.6 * level + 0.02 * normal);
            if (kind == BUSY) {
                if (uniform < 0.3) busy = !busy;
                rate *= busy ? 0.7 : 1;
            }
            if (kind == DRIFTING) rate *= 1 - 0.1 * (double)r / ROUNDS;
            rates[p * ROUNDS + r] = rate * (p == 0 ? 1 - slow : 1);
        }
    }
}

/* Two measurements of one place differ by more than the floor in 5 of 100 at most, and not much less often. */
TEST(the_floor_is_what_measurements_differ_by)
{
    int above[KINDS] = { 0 };
    enum { PAIRS = 1000 };
    for (int kind = 0; kind < KINDS; kind++) {
        for (uint64_t s = 0; s < PAIRS; s++) {
            double       rates[2 * ROUNDS], floor;
            tm_node_rate out[2];
            draw(kind, s, 2, 0, rates);
            floor = tm_node_rates(rates, 2, ROUNDS, out);
            assert_true(floor >= TM_NODE_LEAST_FLOOR);
            above[kind] += fabs(log(out[0].value / out[1].value)) > floor;
        }
        if (above[kind] > PAIRS * 5 / 100) fail_msg("noise %d: %d of %d", kind, above[kind], PAIRS);
    }
    assert_true(above[ALIKE] > PAIRS / 100);
}

TEST(by_hand)
{
    double       rates[2 * 16];
    tm_node_rate out[2];
    for (size_t i = 0; i < 32; i++) rates[i] = i < 16 ? 3 : 5;
    assert_true(tm_node_rates(rates, 2, 16, out) == TM_NODE_LEAST_FLOOR);
    assert_true(out[0].value == 3 && out[0].low == 3 && out[0].high == 3 && out[1].value == 5);
    /* Blocks of one place in turn 10 % faster and slower: of the 7 differences of halves one is 20 %. */
    for (size_t r = 0; r < 16; r++) rates[r] = r / 2 % 2 ? 1.1 : 0.9;
    const double floor = tm_node_rates(rates, 1, 16, out), student = 2.998;
    if (fabs(floor - student * 0.2 / sqrt(14)) > 1e-3) fail_msg("floor %.6g", floor);
    /* The interval: the deviation of the 8 medians, by Student's t for 7. */
    const double half = 2.3646 * 0.1 * sqrt(8. / 7) / sqrt(8);
    assert_true(fabs(out[0].value - 1) < 1e-12);
    if (fabs(out[0].high - 1 - half) > 1e-3) fail_msg("half %.6g, wanted %.6g", out[0].high - 1, half);
    /* The same at two places is a drift, and none of their errors. */
    memcpy(rates + 16, rates, 16 * sizeof *rates);
    assert_true(tm_node_rates(rates, 2, 16, out) == TM_NODE_LEAST_FLOOR);
    assert_true(fabs(out[1].high - out[1].low) < 1e-12);
    assert_true(isnan(tm_node_rates(rates, 2, 15, out)));
    assert_true(isnan(out[0].low) && out[0].value > 0);
}
