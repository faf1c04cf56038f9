/* SPDX-License-Identifier: Apache-2.0 */
/* graph/plan.h - from segments to programs: a kernel for every node, a place for every buffer.
 *
 * Each space has an arena. It holds the persistent tensors first, then the slots of what crosses segments, then one
 * region that the segments share in turn: only one of them runs at a time, so the peak is the maximum over them.
 * Nothing is allocated here: a plan of a 405B model takes milliseconds.
 *
 * The instructions of a program are a list; in its order they are right. A device with several streams may run those of
 * one stream beside those of another, as far as the waits allow: the memory decides. An instruction waits for the last
 * one of another stream that wrote what it reads or writes, or that read what it writes, be it the same tensor, a view
 * of it, a result computed in its place, or a buffer that got the memory later. A program ends when its streams have.
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
    size_t      align; /* bytes: buffers begin at multiples of it; a power of two; 0: 64 */
    /* What pays on the device (device/device.h), and the bytes that a plan may take there; 0: not known. */
    bool    weight_copies, fuses;
    int64_t loss_rows, room;
} tm_chooser;

typedef struct {
    const tm_node   *node;
    const tm_kernel *kernel;
    tm_call          call; /* data pointers are set by tm_plan_bind, state and queue by tm_device_load */
    void       *done; /* a point behind it in its queue, where another stream waits for it: set by tm_device_load */
    const char *line; /* of a ledger of times (static text): set by tm_device_load */
    tm_stream   stream;
    int32_t     waits[TM_STREAMS]; /* instruction of another stream that must be done before; -1: none */
    bool        awaited;           /* one of another stream waits for it */
    size_t      workspace_offset;
    tm_cost     cost;
} tm_instruction;

typedef struct {
    const char     *name;
    tm_instruction *instructions;
    size_t          count;
    unsigned        streams; /* bit s: it has instructions of stream s */
    void           *bound;   /* all of it as one launch; NULL: one by one. Set by tm_device_load */
    tm_cost         cost;
    size_t          live_peak; /* largest sum of live transient bytes over the instructions: no plan can do with less */
    size_t          bytes;     /* what the placement needs for them; of both: beyond the gradients that are lent */
    const int32_t  *written; /* (graph->n_tensors) of a gradient that is lent: the instruction that writes it; 0: it is
                              * not; NULL: none is (lend.h) */
    size_t outside_bytes[TM_SPACE_COUNT]; /* the same in spaces other than the device */
} tm_program;

/* One run of a program: a step is a list of these. */
typedef struct {
    int32_t program;     /* index: of tm_plan.programs, and of the graph's segments */
    int32_t micro_batch; /* from 0; -1: it belongs to none (update) */
    int32_t slot;        /* where the micro-batch has what crosses its programs */
} tm_execution;

/* Gives every micro-batch of the list the lowest slot that is free from its first execution to its last. Returns the
 * number of slots: what tm_graph.slots must be. */
int tm_execution_slots(tm_execution *list, size_t n);

/* Where a tensor lives: in the arena of its space. places[id] of a view is empty: tm_plan_place tells where it lies.
 * first and last are instruction numbers in its program; program numbers for what crosses programs; -1 for persistent
 * tensors. */
enum { TM_PERSISTENT = -1, TM_ACROSS = -2 };
typedef struct {
    size_t   offset, bytes; /* in a slot: of the first slot */
    int32_t  program;       /* index, TM_PERSISTENT or TM_ACROSS */
    int32_t  first, last;
    int32_t  shares;  /* tensor whose memory it continues (computed in place), or -1 */
    unsigned streams; /* bit s: an instruction of stream s uses it */
} tm_place;

/* The arena of one space. */
typedef struct {
    size_t        persistent_bytes, slot_bytes, arena_bytes;
    size_t        live_peak;      /* persistent + slots + the largest live_peak of the programs */
    size_t        gradient_bytes; /* of the persistent ones, the last */
    tm_named_i64 *by_class; /* bytes by memory class where the most bytes are live; they add up with "padding" and, less
                             * than 0, "reused": what lies where gradients come later */
    size_t n_classes;
} tm_space_plan;

/* The arenas, by space; {0} where a plan needs none. */
typedef struct {
    tm_address base[TM_SPACE_COUNT];
} tm_arenas;

enum { TM_MEMORY_CLASSES = TM_ROLE_COUNT };

typedef struct tm_plan {
    const tm_graph *graph;
    size_t          align;    /* as tm_chooser.align */
    tm_program     *programs; /* (graph->n_segments) */
    size_t          n_programs;
    tm_place       *places; /* (graph->n_tensors) */
    tm_space_plan   spaces[TM_SPACE_COUNT];
    size_t          persistent_bytes, arena_bytes, live_peak; /* of spaces[TM_SPACE_DEVICE] */
    tm_named_i64   *by_class;                                 /* likewise */
    size_t          n_classes;
    tm_program     *in_slot; /* (slots, n_programs): the programs with the addresses of each slot; NULL: no slots */
    tm_arena       *arena;
} tm_plan;

/* Bytes that so many take up in an arena. */
size_t tm_plan_aligned(const tm_plan *plan, size_t bytes);

/* Plans every segment of the graph, which must outlive the plan. TM_UNSUPPORTED: the device has no kernel for a node
 * (op, formats, shapes and reasons are in the error). */
TM_MUST_USE tm_status tm_plan_create(const tm_graph *graph, const tm_chooser *chooser, tm_plan **out, tm_error *err);
void                  tm_plan_destroy(tm_plan *plan);

/* Where a tensor lies: a view within the memory of its base. */
tm_place tm_plan_place(const tm_plan *plan, tm_tensor_id id);
/* Gives every call its addresses inside arenas of plan->spaces[].arena_bytes bytes. */
void tm_plan_bind(tm_plan *plan, const tm_arenas *memory);
/* Address of a tensor (in slot 0, if it crosses programs); transient tensors only while their program runs. */
tm_address        tm_plan_address(const tm_plan *plan, const tm_arenas *memory, tm_tensor_id id);
const tm_program *tm_plan_program(const tm_plan *plan, const char *name); /* NULL: there is none */
/* The program of an execution, bound to its slot. */
const tm_program *tm_plan_execution(const tm_plan *plan, const tm_execution *execution);

/* The programs, instruction by instruction: op, shapes, formats, FLOPs, bytes, lifetimes, offsets, kernel and why
 * better ones refused (asks the chooser again). */
void tm_plan_print(const tm_plan *plan, const tm_chooser *chooser, tm_text *out);
/* The bytes of the spaces other than the device, by class; nothing if there are none. Each line behind `prefix`. */
void tm_plan_print_spaces(const tm_plan *plan, const char *prefix, tm_text *out);
void tm_plan_json(const tm_plan *plan, const tm_chooser *chooser, tm_json *json);

#endif
