/* SPDX-License-Identifier: Apache-2.0 */
/* Who updates what where tensors are dealt out: the largest first, to the rank that has the least; experts that fewer
 * ranks have in common are dealt out among those; the rest keeps its owners. */
#include "support/test.h"
#include "train/step/owner_update.h"

enum { DATA = 1, EXPERTS = 2, NONE = -1 };

typedef struct {
    tm_unit_member members[6];
    tm_unit        units[4];
    tm_units       all;
} dealt;

static tm_unit unit_of(tm_unit_member *members, size_t n, unsigned axes, bool trained)
{
    return (tm_unit){ .members = members,
                      .n_members = n,
                      .group = { .axes = axes },
                      .gradient_dtype = trained ? TM_F32 : TM_DTYPE_COUNT };
}

/* Members of 6, 9 and 6 elements, which is one unit and another; one of experts; one that is not trained; two of a
 * group that shares nothing. */
static void make(dealt *d, tm_sharing sharing, int ranks, unsigned expert_axes, int expert_ranks)
{
    static const int64_t counts[] = { 6, 9, 6, 6, 7, 8 };
    *d = (dealt){ .all = { .sharing = sharing, .units = d->units, .n_units = 4 } };
    for (int i = 0; i < 6; i++)
        d->members[i] = (tm_unit_member){ .parameter = 10 - i, .count = counts[i], .owner = NONE };
    d->units[0] = unit_of(d->members, 2, DATA, true);
    d->units[1] = unit_of(d->members + 2, 1, DATA, true);
    d->units[2] = unit_of(d->members + 3, 2, EXPERTS, true);
    d->units[3] = unit_of(d->members + 5, 1, DATA, false);
    d->all.group = (tm_unit_group){ .axes = DATA, .ranks = ranks };
    d->all.experts = (tm_unit_group){ .axes = expert_axes, .ranks = expert_ranks };
}

TEST(the_largest_goes_first_to_who_has_the_least)
{
    static const struct {
        tm_sharing sharing;
        int        ranks, expert_ranks;
        bool       together; /* experts are of the same group */
        int        owners[6];
    } rows[] = {
        { TM_SHARE_OPTIMIZER, 2, 1, false, { 1, 0, 1, NONE, NONE, NONE } }, /* 9 | 6 of the first number; then 6 */
        { TM_SHARE_ALL, 3, 0, false, { 2, 0, 1, NONE, NONE, NONE } }, /* of 6 and 6 the smaller number goes first */
        { TM_SHARE_GRADIENTS, 4, 0, false, { 2, 0, 1, NONE, NONE, NONE } }, /* a rank more than tensors */
        { TM_SHARE_GRADIENTS, 2, 2, false, { 1, 0, 1, 1, 0, NONE } },       /* experts among their own */
        { TM_SHARE_GRADIENTS, 1, 2, false, { NONE, NONE, NONE, 1, 0, NONE } },
        { TM_SHARE_ALL, 2, 2, true, { 1, 0, 0, 1, 1, NONE } }, /* 9; 7 and 6; to the 9 another 6; the last 6 to 13 */
        { TM_SHARE_COPIES, 2, 2, false, { NONE, NONE, NONE, NONE, NONE, NONE } },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        dealt d;
        make(&d, rows[i].sharing, rows[i].ranks, rows[i].together ? DATA : EXPERTS, rows[i].expert_ranks);
        if (rows[i].together) d.units[2].group.axes = DATA;
        owner_update_assign(&d.all);
        for (int m = 0; m < 6; m++)
            if (d.members[m].owner != rows[i].owners[m])
                fail_msg("row %zu: member %d belongs to rank %d, not %d", i, m, d.members[m].owner, rows[i].owners[m]);
        for (int u = 0; u < 3; u++) assert_int_equal(owner_update_is(&d.units[u]), d.units[u].members[0].owner >= 0);
    }
}
