/* SPDX-License-Identifier: Apache-2.0 */
/* graph/plan.h - from segments to programs: a kernel for every node, a place for every buffer.
 *
 * The arena holds the persistent tensors first, then one region that the segments share in turn: only one of them runs
 * at a time, so the peak is the maximum over them. Nothing is allocated here: a plan of a 405B model takes
 * milliseconds.
 */
#ifndef TM_GRAPH_PLAN_H
#define TM_GRAPH_PLAN_H

#include "base/event.h"
#include "base/json.h"
#include "graph/graph.h"
#include "op/kernel.h"

/* Who chooses kernels: a device. `choose` gives NULL when it has none; `refusals` (may be NULL) collects one line for
 * each better kernel that refused. */
typedef struct {
    const tm_kernel *(*choose)(const void *context, const tm_call *call, tm_text *refusals);
    const void *context;
    int         threads;
} tm_chooser;

typedef struct {
    const tm_node   *node;
    const tm_kernel *kernel;
    tm_call          call; /* data pointers are set by tm_plan_bind, state and queue by tm_device_load */
    const char      *line; /* of a ledger of times (static text): set by tm_device_load */
    size_t           workspace_offset;
    tm_cost          cost;
} tm_instruction;

typedef struct {
    const char     *name;
    tm_instruction *instructions;
    size_t          count;
    tm_cost         cost;
    size_t          live_peak; /* largest sum of live transient bytes over the instructions: no plan can do with less */
    size_t          bytes;     /* what the placement needs for them */
} tm_program;

/* Where a tensor lives. places[id] of a view is empty: tm_plan_place tells where it lies. first and last are instruction numbers in its program; -1 for persistent tensors. */
typedef struct {
    size_t  offset, bytes;
    int32_t program; /* index; -1: persistent */
    int32_t first, last;
    int32_t shares; /* tensor whose memory it continues (computed in place), or -1 */
} tm_place;

enum { TM_MEMORY_CLASSES = TM_ROLE_COUNT };

typedef struct tm_plan {
    const tm_graph *graph;
    tm_program     *programs; /* (graph->n_segments) */
    size_t          n_programs;
    tm_place       *places; /* (graph->n_tensors) */
    size_t          persistent_bytes, arena_bytes;
    size_t          live_peak;    /* persistent + the largest live_peak of the programs */
    tm_named_i64   *by_class;     /* bytes by memory class where the most bytes are live; the last is "planned" */
    size_t          n_classes;
    tm_arena       *arena;
} tm_plan;

/* Plans every segment of the graph, which must outlive the plan. TM_UNSUPPORTED: the device has no kernel for a node
 * (op, formats, shapes and reasons are in the error). */
TM_MUST_USE tm_status tm_plan_create(const tm_graph *graph, const tm_chooser *chooser, tm_plan **out, tm_error *err);
void                  tm_plan_destroy(tm_plan *plan);

/* Where a tensor lies: a view within the memory of its base. */
tm_place tm_plan_place(const tm_plan *plan, tm_tensor_id id);
/* Gives every call its addresses inside an arena of plan->arena_bytes bytes. */
void tm_plan_bind(tm_plan *plan, tm_address arena);
/* Address of a tensor; transient tensors only while their program runs. */
tm_address        tm_plan_address(const tm_plan *plan, tm_address arena, tm_tensor_id id);
const tm_program *tm_plan_program(const tm_plan *plan, const char *name); /* NULL: there is none */

/* The programs, instruction by instruction: op, shapes, formats, FLOPs, bytes, lifetimes, offsets, kernel and why
 * better ones refused (asks the chooser again). */
void tm_plan_print(const tm_plan *plan, const tm_chooser *chooser, tm_text *out);
void tm_plan_json(const tm_plan *plan, const tm_chooser *chooser, tm_json *json);

#endif
