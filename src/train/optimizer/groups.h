/* SPDX-License-Identifier: Apache-2.0 */
/* train/optimizer/groups.h - parameter groups: patterns of names, and what is different for the parameters that they
 * match.
 *
 * Group 0 is what the section optimizer.* says; optimizer.groups lists the others. The first group with a pattern that
 * matches a parameter takes it.
 */
#ifndef TM_TRAIN_OPTIMIZER_GROUPS_H
#define TM_TRAIN_OPTIMIZER_GROUPS_H

#include "config/config.h"
#include "train/optimizer/optimizer.h"

enum { TM_MAX_GROUPS = 16, TM_MAX_PATTERNS_TEXT = 256 };

typedef struct {
    char        patterns[TM_MAX_PATTERNS_TEXT]; /* "*.bias|*norm*": of file names (* ? [abc]), group 0: "" */
    const char *place;                          /* for messages: "x.yaml:12" */
    double      lr_scale;                       /* x the learning rate of the step */
    tm_hyper    hyper;
    bool        frozen;
    tm_dtype    format; /* that frozen weights are held in; TM_DTYPE_COUNT: as all weights */
} tm_group;

/* optimizer.groups, each on top of `hyper`, which is group 0; *n counts that one, too. TM_INVALID for a member that
 * does not exist or that the optimizer does not read, a value out of range; TM_UNSUPPORTED for a format that needs
 * scales. */
TM_MUST_USE tm_status tm_groups_read(const tm_config *config, const tm_optimizer *optimizer, const tm_hyper *hyper,
                                     tm_group out[TM_MAX_GROUPS], int *n, tm_error *err);

/* Puts every parameter of the graph into its group: group_of[id], `trained`, format. A fused parameter goes by the
 * names of its pieces or by its own. TM_INVALID, with near names, for a pattern that matches nothing, for one that
 * takes only some pieces of a fused parameter, and if nothing is left to be trained. Of a part of a model (`whole`
 * false) neither of what is not there is said. */
TM_MUST_USE tm_status tm_groups_assign(tm_graph *graph, const tm_group *groups, int n, bool whole, int *group_of,
                                       tm_error *err);

#endif
