/* SPDX-License-Identifier: Apache-2.0 */
/* Made-up curves of a rate: nothing steady falls, what falls is found with its moment, and sensors agree or not. */
#include "base/random.h"
#include "apps/node/change.h"
#include "apps/node/judge.h"

#include "support/test.h"

enum { SAMPLES = 192, PLACES = 4 };
typedef enum { EVEN, ALIKE, BUSY, KINDS } noise_kind;

/* About 1, lower by `fall` from sample `at` on. */
static void draw(noise_kind kind, uint64_t seed, uint64_t place, double fall, size_t at, double x[SAMPLES])
{
    double level = 0;
    bool   busy = false;
    for (size_t i = 0; i < SAMPLES; i++) {
        const double normal = tm_random_normal(seed, place, i), uniform = tm_random_uniform(seed, place + 100, i);
        x[i] = 1 + 0.02 * normal;
        if (kind == ALIKE) x[i] = 1 + (level = 0.3 * level + 0.02 * normal);
        if (kind == BUSY && uniform < 0.2) busy = !busy;
        if (busy && uniform > 0.7) x[i] *= 0.8; /* another program, now and then, in stretches */
        if (i >= at) x[i] *= 1 - fall;
    }
}

TEST(a_fall_is_found_with_its_moment)
{
    static const size_t of_kind[2][3] = { { 20, 96, 160 }, { 40, 96, 160 } };
    for (int kind = 0; kind < KINDS; kind++)
        for (int m = 0; m < 3; m++) {
            const size_t *moments = of_kind[kind == BUSY];
            int           found = 0, near = 0;
            for (uint64_t s = 0; s < 20; s++) {
                double x[SAMPLES];
                draw(kind, 5000 + s, 0, kind == BUSY ? 0.25 : 0.08, moments[m], x);
                const tm_node_fall fall = tm_node_fall_find(x, SAMPLES, s);
                found += fall.fell;
                near += fall.at + 4 >= moments[m] && fall.at <= moments[m] + 4;
                if (kind == EVEN && fabs(1 - fall.late / fall.early - 0.08) > 0.03 && m == 1)
                    fail_msg("early %g, late %g", fall.early, fall.late);
            }
            if (found < 20) fail_msg("noise %d, moment %d: %d of 20", kind, m, found);
            if (near < 18) fail_msg("noise %d, moment %d: %d of 20 near it", kind, m, near);
        }
}

/* Place 0 falls, the others do not: by the rule of apps/node/judge.h. Of two floors and more. */
static size_t judged(noise_kind kind, uint64_t seed, double fall, double *limit, double *floor)
{
    double       x[PLACES][SAMPLES], gap;
    tm_node_rate kept[PLACES];
    size_t       found = 0;
    for (uint64_t p = 0; p < PLACES; p++) draw(kind, seed, p, p == 0 ? fall : 0, 96, x[p]);
    *floor = tm_node_kept(&x[0][0], PLACES, SAMPLES, kept);
    for (size_t p = 0; p < PLACES; p++) {
        tm_node_sample samples[PLACES];
        for (size_t i = 0; i < PLACES; i++)
            samples[i] = (tm_node_sample){ kept[i].value, (kept[i].high - kept[i].low) / 2 / 1.96, *floor };
        const tm_node_sample own = samples[p];
        samples[p] = samples[PLACES - 1];
        const double l = tm_node_limit(TM_NODE_SPEED, &own, samples, PLACES - 1, &gap);
        if (p == 0) *limit = l;
        if (gap > l) found |= (size_t)1 << p;
    }
    return found;
}

TEST(a_place_that_falls_is_named)
{
    double limit, floor;
    for (int kind = 0; kind < KINDS; kind++) {
        double reach = 0;
        int    far = 0;
        for (uint64_t s = 0; s < 1000; s++) {
            double       x[2][SAMPLES];
            tm_node_rate kept[2];
            if (judged(kind, s, 0, &limit, &floor)) fail_msg("noise %d, seed %d: an alarm", kind, (int)s);
            if (s < 20) reach = fmax(reach, limit + floor);
            for (uint64_t p = 0; p < 2; p++) draw(kind, s, 10 + p, 0, SAMPLES, x[p]);
            const double two = tm_node_kept(&x[0][0], 2, SAMPLES, kept);
            far += fabs(kept[0].value - kept[1].value) > two;
        }
        if (far > 50) fail_msg("noise %d: %d of 1000 beyond the floor", kind, far);
        if (reach > (kind == BUSY ? 0.3 : 0.15)) fail_msg("noise %d: reach %.3g", kind, reach);
        for (uint64_t s = 0; s < 20; s++)
            if (judged(kind, 3000 + s, reach, &limit, &floor) != 1)
                fail_msg("noise %d, seed %d: not found", kind, (int)s);
    }
}

TEST(sensors_agree_or_not)
{
    const double   nan = (double)NAN;
    tm_node_sensed s[8];
    for (int i = 0; i < 8; i++) s[i] = (tm_node_sensed){ nan, nan, nan, nan, nan };
    tm_node_cause c = tm_node_cause_find(s, 8, 0.1);
    assert_true(!c.known && !c.agrees && isnan(c.watts));
    for (int i = 0; i < 8; i++) s[i] = (tm_node_sensed){ i < 4 ? 3000 : 2900, 60 + i, 100 + i, 5, nan };
    c = tm_node_cause_find(s, 8, 0.1);
    assert_true(c.known && !c.agrees && c.clock[0] == 3000 && c.clock[1] == 2900);
    assert_true(c.hottest_c == 67 && c.watts == 103.5 && c.throttles == 0);
    assert_true(tm_node_cause_find(s, 8, 0.05).agrees); /* 3.3 % of a fall of 5 % */
    s[7].throttles = 6;
    assert_true(tm_node_cause_find(s, 8, 0.1).agrees);
    s[7].throttles = 5, s[3].hottest_c = 96;
    assert_true(tm_node_cause_find(s, 8, 0.1).agrees);
    s[3].hottest_c = 60, s[0].held = 1, s[7].held = 1.5;
    assert_true(tm_node_cause_find(s, 8, 0.1).agrees);
    s[7].held = 1;
    assert_false(tm_node_cause_find(s, 8, 0.1).agrees);
}
