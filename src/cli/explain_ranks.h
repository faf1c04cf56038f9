/* SPDX-License-Identifier: Apache-2.0 */
/* cli/explain_ranks.h - private to the room: what plans say of several ranks. */
#ifndef TM_CLI_EXPLAIN_RANKS_H
#define TM_CLI_EXPLAIN_RANKS_H

#include "base/json.h"
#include "base/text.h"
#include "train/step/step.h"

/* Mesh and collectives, program by program; nothing for one rank. per_host: ranks on each host, for the bytes between
 * hosts; 0: these are not told. */
void explain_ranks(const tm_step *step, int64_t per_host, tm_text *out);
void explain_ranks_json(const tm_step *step, int64_t per_host, tm_json *json);

/* In which order a step runs its programs; of a pipeline that of all ranks. */
void explain_schedule(const tm_step *step, tm_text *out);

/* The bytes that ranks plan: a row for each run of places among those that share with the same, of each part of a
 * pipeline; more runs than there are rows are the last one, with the most that any of them needs. */
enum { MOST_RANK_PLANS = 16 };
typedef struct {
    int    first, last, part;
    size_t bytes;
} rank_plan;
typedef struct {
    rank_plan rows[MOST_RANK_PLANS];
    size_t    n;
} rank_plans;
/* Step: that of rank 0. */
TM_MUST_USE tm_status explain_each_rank(const tm_step_options *options, const tm_step *step, const tm_chooser *chooser,
                                        rank_plans *out, tm_error *err);
size_t                explain_most(const rank_plans *plans); /* of any rank */
void                  explain_plans(const rank_plans *plans, const tm_mesh *mesh, tm_text *out);

#endif
