/* SPDX-License-Identifier: Apache-2.0 */
/* plan/instruction.h - private to the room: how long one instruction of a program takes on hardware. */
#ifndef TM_PLAN_INSTRUCTION_H
#define TM_PLAN_INSTRUCTION_H

#include "comm/mesh/mesh.h"
#include "graph/plan.h"
#include "plan/rates.h"

/* What the times of a program depend on. */
typedef struct {
    const tm_machine_plan *machine;
    const tm_mesh         *mesh; /* of all ranks; degrees 0: one rank */
    const tm_program      *program;
    uint8_t               *narrow; /* (tensors) tm_dtype that `quantize` rounds a tensor to; 0: it does not */
} plan_context;

/* Seconds of one instruction: at work, more of it on the rank with the fullest experts, and until its kernels are
 * started. */
typedef struct {
    double work, launch, more;
} plan_seconds;

/* tensors: of the graph. Ended with plan_context_fini. */
plan_context plan_context_of(const tm_machine_plan *machine, const tm_mesh *mesh, const tm_program *program,
                             size_t tensors);
void         plan_context_fini(plan_context *context);

/* TM_INVALID: the hardware file lacks a number that the instruction needs; the message names both. Messages between
 * stages of a pipeline take no time here: tm_simulate has them between the programs. */
TM_MUST_USE tm_status plan_time_instruction(const plan_context *context, const tm_instruction *x, plan_seconds *out,
                                            tm_error *err);

/* The ranks of a set of axes of the mesh on the machine. */
tm_group_plan plan_group(const tm_machine_plan *machine, const tm_mesh *mesh, unsigned axes);
/* Does the hardware have the numbers that messages from stage to stage need? TM_INVALID: not all. */
TM_MUST_USE tm_status plan_check_messages(const tm_machine_plan *machine, const tm_mesh *mesh, tm_error *err);
/* Is it a message from stage to stage? *bytes: of it. */
bool plan_is_stage_message(const tm_instruction *x, double *bytes);

#endif
