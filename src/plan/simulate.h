/* SPDX-License-Identifier: Apache-2.0 */
/* plan/simulate.h - the time of a step of our program on hardware that need not be here: the planned programs are
 * walked instruction by instruction, each as long as plan/rates.h says, on three streams with the plan's waits. Of a
 * pipeline every rank's programs are planned and walked, then put in the order of its actions, with messages between.
 */
#ifndef TM_PLAN_SIMULATE_H
#define TM_PLAN_SIMULATE_H

#include "plan/rates.h"
#include "train/step/step.h"

/* What a step's time is made of, as seconds of the compute stream: the lines of a ledger (device/device.h), then */
#define TM_SIMULATED_LAUNCHES "launches"
#define TM_SIMULATED_COMMUNICATION "exposed communication"
#define TM_SIMULATED_COPIES "waiting for copies"
#define TM_SIMULATED_IMBALANCE "fullest experts" /* what their rows take beyond even ones */
#define TM_SIMULATED_LOADER "waiting for data"   /* where the caller knows the loader: tm_simulate_loader */
#define TM_SIMULATED_BUBBLE "idle stages"
enum { TM_SIMULATED_LINES = 32 };

typedef struct {
    const char *name;
    double      seconds;
} tm_simulated_line;

/* A piece of the trace: an instruction, or (name NULL) a program as a whole. */
typedef struct {
    const char *program, *name, *path; /* of the program, the op and the module; as long as the arena */
    int         part;                  /* rank of the pipeline */
    int64_t     micro_batch;           /* -1: none */
    tm_stream   stream;
    double      begin, seconds; /* from the step's beginning */
} tm_simulated_piece;

typedef struct {
    double              step; /* seconds; the lines add up to it */
    tm_simulated_line   line[TM_SIMULATED_LINES];
    size_t              n_lines;
    double              busy[TM_STREAMS];
    double              flops;   /* that a rank executes */
    int                 part;    /* rank of the pipeline that works longest: lines, busy and flops are its */
    double              bytes;   /* of the largest plan of the pipeline's ranks */
    int                 fullest; /* the rank that has it */
    tm_simulated_piece *piece;   /* (n_pieces), where a trace was asked for; in the arena */
    size_t              n_pieces;
} tm_simulation;

/* An instruction, seconds from the beginning of its program. */
typedef struct {
    double begin, end;
} tm_simulated_instruction;

/* A program by itself; nothing but the instructions is part of it: no line of idle stages. */
typedef struct {
    double                    seconds, busy[TM_STREAMS];
    tm_simulated_line         line[TM_SIMULATED_LINES]; /* they add up to seconds */
    size_t                    n_lines;
    tm_simulated_instruction *instruction; /* (program->count), in the arena */
} tm_simulated_program;

/* mesh: of all ranks (degrees 0: one); tensors: of the graph. Messages between stages take no time in a program.
 * TM_INVALID: the hardware has no number that an instruction needs; the message has its key. */
TM_MUST_USE tm_status tm_simulate_program(const tm_program *program, size_t tensors, const tm_mesh *mesh,
                                          const tm_machine_plan *machine, tm_arena *arena, tm_simulated_program *out,
                                          tm_error *err);

/* A step: `step` is that of rank 0, the other ranks of a pipeline are planned here with the chooser. traced: with all
 * runs of programs, and the instructions of each program when it first runs. TM_INVALID as above, and where an order of
 * a pipeline never ends. */
TM_MUST_USE tm_status tm_simulate(const tm_step *step, const tm_chooser *chooser, const tm_machine_plan *machine,
                                  bool traced, tm_arena *arena, tm_simulation *out, tm_error *err);

/* A loader that reads `rate` tokens/s for a rank, ahead: adds the line and the time by which a step of `tokens` of a
 * rank is longer than without it. */
void tm_simulate_loader(tm_simulation *s, double tokens, double rate);

#endif
