/* SPDX-License-Identifier: Apache-2.0 */
/* cli/plan_layouts.h - private to the room: the layouts that a search looks at. */
#ifndef TM_CLI_PLAN_LAYOUTS_H
#define TM_CLI_PLAN_LAYOUTS_H

#include "cli/plan_one.h"
#include "plan/bound.h"

enum { PLAN_WORDS = 13, PLAN_WORD = 96 };

typedef struct {
    tm_sketch   of;
    const char *schedule, *again, *offload; /* values of their keys */
    double      least;                      /* seconds of a step that no plan of it beats */
    double      estimate; /* about what it takes, longer where it will hardly fit: the order of the search */
    double      need;     /* about the bytes of a rank */
} plan_layout;

typedef struct {
    const plan_one *given;
    int             devices;
    int64_t         global; /* sequences of a step */
    tm_bound        bound;
    tm_parameters   known;
    plan_layout    *all; /* (n), the most promising first */
    size_t          n, room, too_large;
} plan_layouts;

/* All of them, for the training and the machine of `given` and that batch. Ended with plan_layouts_fini, also on
 * failure. */
TM_MUST_USE tm_status plan_layouts_find(const plan_one *given, int64_t global, plan_layouts *out, tm_error *err);
void                  plan_layouts_fini(plan_layouts *layouts);

/* Bytes that a device may have with the host: as many as it has itself. */
double plan_host_room(const plan_one *given);

/* From number `from` on, the one that needs least memory first. */
void plan_layouts_by_need(plan_layouts *layouts, size_t from);

/* The options that make it; returns how many. */
int plan_layout_words(const plan_layouts *layouts, const plan_layout *l, char text[PLAN_WORDS][PLAN_WORD],
                      char *words[PLAN_WORDS]);

#endif
