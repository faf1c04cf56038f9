/* SPDX-License-Identifier: Apache-2.0 */
/* tests/faults/faults.h - planted faults: what TM_FAULT describes, and when each of them acts.
 *
 *     TM_FAULT='flip,op=linear,at=7;slow,rank=1,percent=3;clock=made,noise=0.5;seed=5'
 *
 * build/release/tests/faults/trainmark is the program itself, linked with these files in front of the device
 * (device.c), the collectives (collectives.c) and the clock (clock.c): the linker's --wrap leads calls here. Everything
 * is a function of the description, its seed, the rank and what the rank has done so far. docs/testing.md has the
 * kinds.
 *
 * What a fault has done is a line of JSON in the file that TM_FAULT_LOG names.
 */
#ifndef TM_TESTS_FAULTS_H
#define TM_TESTS_FAULTS_H

#include "base/status.h"
#include "op/op.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(id, name). The clock is no fault, but is described like one. */
#define FAULT_KINDS(X)                                                                                                 \
    X(FLIP, "flip")                                                                                                    \
    X(STUCK, "stuck")                                                                                                  \
    X(SLOW, "slow")                                                                                                    \
    X(LINK, "link") X(STALE, "stale") X(SWAP, "swap") X(TAIL, "tail") X(HANG, "hang") X(CLOCK, "clock=made")
typedef enum {
#define X(id, name) FAULT_##id,
    FAULT_KINDS(X)
#undef X
        FAULT_KINDS_COUNT
} fault_kind;

enum { FAULT_TEXT = 48, FAULT_MOST = 16 };

/* The keys of a fault: parse.c has their table. Whole numbers are -1 where nothing is said, texts empty. */
typedef struct {
    fault_kind kind;
    int        index;              /* among the faults: its draws depend on it */
    int64_t    rank, core;         /* acts on this rank; while its thread is bound to this processor alone */
    int64_t    at, every;          /* the at-th event that it looks at, from 1; one in so many, drawn */
    int64_t    step;               /* from this step of the training on */
    double     after;              /* seconds after the device was opened */
    char       op[FAULT_TEXT];     /* launches of this op, calls of this kind ("all_reduce") */
    char       shape[FAULT_TEXT];  /* launches with an operand of these sizes: "64x256" */
    char       name[FAULT_TEXT];   /* tensors, or calls, with this in their names */
    char       where[FAULT_TEXT];  /* of a flip: result, memory, message */
    char       side[FAULT_TEXT];   /* of a message: send, receive */
    char       before[FAULT_TEXT]; /* what a hung rank does not begin: call, launch */
    int64_t    bit, to;            /* of an element, from the lowest; -1: drawn. What a stuck bit reads */
    int64_t    words, elements;    /* stuck words in each allocation; elements of the tail */
    int64_t    of, a, b;           /* the rank whose elements are stale; the pair of a link, or that is swapped */
    double     percent, rate, seconds;
    double     noise, gflops, gigabytes, wire, latency_us; /* of the made-up clock, and of a link */
} fault;

/* What is planted in this process. */
typedef struct {
    fault    all[FAULT_MOST];
    int      n;
    uint64_t seed;
    bool     made; /* the clock is made up, as `clock` says */
    fault    clock;
    unsigned times; /* that faults were planted: counts begin anew */
} faults;

/* Who has events, and how many the faults have looked at: calls of a rank have number 0, then come the devices of the
 * process, in the order in which they were opened, then the processors whose memory is tested. */
typedef struct {
    int     number;
    int64_t seen[FAULT_MOST];
} fault_place;
enum { FAULT_DEVICES = 1000 }; /* the most; processors are behind them */

/* Of a thread. One that drives a device is a rank; those that it starts are of this rank, too. */
typedef struct {
    unsigned     times;
    int          rank;
    int64_t      step; /* of the training that runs; 0: none yet */
    fault_place  calls;
    fault_place *place;  /* whose events count now; NULL: `calls` */
    bool         called; /* the launch that runs has called other ranks */
    /* clock.c */
    bool    made;
    int64_t now_ns, busy_ns, waited_ns, opened_ns;
} fault_rank;

/* Plants what `text` describes; NULL: nothing. TM_INVALID: names what is wrong, and the kinds or the keys. */
TM_MUST_USE tm_status faults_plant(const char *text, tm_error *err);
const faults         *faults_planted(void);
fault_rank           *faults_rank(void); /* of this thread */

/* Does the fault act on this rank, processor, step and time? Counts nothing. */
bool fault_is_here(const fault *f);
/* An event of the place that counts: is it the fault's turn? */
bool fault_turn(const fault *f);
/* A number below n, of this turn. */
uint64_t fault_draw(const fault *f, int what, uint64_t n);
/* Appends {"fault": ..., "rank": ..., "step": ..., "event": ..., and the members that `format` has} to TM_FAULT_LOG. */
void fault_tell(const fault *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The processor that this thread is bound to; -1: it may use several. */
int fault_core(void);
/* Stops this rank for f->seconds, or for ever. */
void fault_hang(const fault *f);

/* --- clock.c ------------------------------------------------------------------------------------------------------ */

int64_t clock_machine_ns(void);
int64_t clock_since_opened_ns(void);
void    clock_sleep(double seconds); /* of the machine's clock */
void clock_open(void); /* this thread has opened a device: from here on its clock is the made-up one, if there is one */
void clock_work(int64_t ns);    /* made-up time passes, and the processor's with it */
void clock_wait(int64_t at_ns); /* until a time of the made-up clock, in vain */
/* What the n-th launch at a place takes by the made-up clock, noise included, without faults. */
int64_t clock_launch_ns(const tm_call *call, int place, int64_t n);
int64_t clock_copy_ns(size_t bytes);

#endif
