/* SPDX-License-Identifier: Apache-2.0 */
/* Who updates what where tensors are dealt out: the largest first, to the rank that has the least; experts that fewer
 * ranks have in common are dealt out among those; the rest keeps its owners. */
#include "support/test.h"
#include "train/step/owner_update.h"

#include <string.h>

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

static void owners_are(const dealt *d, const int owners[6])
{
    for (int i = 0; i < 6; i++)
        if (d->members[i].owner != owners[i])
            fail_msg("member %d belongs to rank %d, not %d", i, d->members[i].owner, owners[i]);
}

TEST(the_largest_goes_first_to_who_has_the_least)
{
    dealt d;
    make(&d, TM_SHARE_OPTIMIZER, 2, EXPERTS, 1); /* 9 | 6 of the first number; then 6 where 6 are, not 9 */
    deal_out(&d.all);
    owners_are(&d, (int[]){ 1, 0, 1, NONE, NONE, NONE });
    make(&d, TM_SHARE_ALL, 3, EXPERTS, 0);
    deal_out(&d.all);
    owners_are(&d, (int[]){ 2, 0, 1, NONE, NONE, NONE }); /* of 6 and 6 the one with the smaller number goes first */
    make(&d, TM_SHARE_GRADIENTS, 4, EXPERTS, 0);          /* a rank more than tensors */
    deal_out(&d.all);
    owners_are(&d, (int[]){ 2, 0, 1, NONE, NONE, NONE });
}

TEST(experts_are_dealt_out_among_their_own)
{
    dealt d;
    make(&d, TM_SHARE_GRADIENTS, 2, EXPERTS, 2);
    deal_out(&d.all);
    owners_are(&d, (int[]){ 1, 0, 1, 1, 0, NONE });
    make(&d, TM_SHARE_GRADIENTS, 1, EXPERTS, 2); /* only they have anybody */
    deal_out(&d.all);
    owners_are(&d, (int[]){ NONE, NONE, NONE, 1, 0, NONE });
    /* All are of one group: dealt out once, together. */
    make(&d, TM_SHARE_ALL, 2, DATA, 2);
    d.units[2].group.axes = DATA;
    deal_out(&d.all); /* 9; 7 and 6; to the 9 another 6; the last 6 to the 13 */
    owners_are(&d, (int[]){ 1, 0, 0, 1, 1, NONE });
}

TEST(copies_have_no_owners)
{
    dealt d;
    make(&d, TM_SHARE_COPIES, 2, EXPERTS, 2);
    deal_out(&d.all);
    owners_are(&d, (int[]){ NONE, NONE, NONE, NONE, NONE, NONE });
    assert_false(deal_is(&d.units[0]));
    make(&d, TM_SHARE_ALL, 2, EXPERTS, 1);
    d.members[5].owner = 0; /* not trained: nothing is updated */
    deal_out(&d.all);
    assert_true(deal_is(&d.units[0]));
    assert_false(deal_is(&d.units[2]));
    assert_false(deal_is(&d.units[3]));
}
