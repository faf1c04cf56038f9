/* SPDX-License-Identifier: Apache-2.0 */
/* What happened before what among the threads of a block, and who touched which byte: races, thread by thread.
 *
 * Deeds have a time, which goes on from block to block, and an agent: a thread, or who works for it. What happened
 * before `floor`, the last barrier of the whole block, everyone knows. Of later deeds a thread knows what its row says:
 * those of each agent up to a time. What is older than `begin` was done by another block, which nothing but atomics
 * orders.
 */
#ifndef TESTS_MACHINE_CLOCKS_H
#define TESTS_MACHINE_CLOCKS_H

#include "machine/machine.h"

/* Times end here: too much has happened in one block. */
enum { MACHINE_LAST_TIME = (1 << 20) - 4096 };

typedef struct machine_clocks {
    bool      on;              /* else nothing is kept */
    uint32_t  threads, agents; /* the first agents are the threads */
    uint32_t  now, floor, begin;
    uint32_t *own;   /* the time of each agent's next deed */
    uint32_t *known; /* a row of `agents` for each thread */
    uint32_t *proxy; /* up to when asynchronous agents see each agent's ordinary writes */
} machine_clocks;

/* Memory for `threads` threads among `agents`; all of it is given back by machine_clocks_end. */
void machine_clocks_make(machine_clocks *c, uint32_t threads, uint32_t agents);
void machine_clocks_end(machine_clocks *c);

/* Another block begins. True: times begin anew, so traces of the blocks before have to be forgotten. */
bool machine_clocks_block(machine_clocks *c);

/* All threads of the block meet; lanes of the warp whose first thread is `base` (`far`: one may know of other warps).
 */
void machine_clocks_barrier(machine_clocks *c);
void machine_clocks_meet(machine_clocks *c, uint32_t base, uint32_t lanes, bool far);

/* What a thread did and knows is added to a row of times, and what it does from now on is later; it learns a row. */
void machine_clocks_publish(machine_clocks *c, uint32_t thread, uint32_t *row);
void machine_clocks_learn(machine_clocks *c, uint32_t thread, const uint32_t *row);
bool machine_clocks_knows(const machine_clocks *c, uint32_t thread, uint32_t agent, uint32_t time);

/* fence.proxy.async by a thread: what it knows of ordinary writes, asynchronous agents may see. */
void machine_clocks_fence(machine_clocks *c, uint32_t thread);

/* --- traces of bytes (machine_trace): the last writer, and who has read since */

/* Readers that do not know of each other: lanes, from thread `first` on, at one time. */
typedef struct machine_readers {
    uint32_t time, first, lanes, next;
} machine_readers;

typedef struct machine_reader_lists {
    machine_readers *of;
    uint32_t         n, room, free;
} machine_reader_lists;

typedef enum machine_deed { MACHINE_READ, MACHINE_WRITE, MACHINE_ASYNC_WRITE } machine_deed;

/* Who acts: lanes from thread `first` on, or (lanes 1) one agent, for the thread `knows`. */
typedef struct machine_doer {
    uint32_t first, lanes, time, knows;
} machine_doer;

/* Notes a deed on `n` traces. Why it is a race, as words, and with whom; NULL: it is none. */
const char *machine_clocks_touch(const machine_clocks *c, machine_reader_lists *lists, machine_trace *t, uint32_t n,
                                 const machine_doer *a, machine_deed deed, int64_t *other);

/* The same for the lanes `on` of a warp, whose first thread is `first`: each touches n traces from t[place[lane]] on.
 * Lanes one behind the other that read one place, and acted last when the first of them did, read as one. *lane: whose
 * deed is a race. */
const char *machine_clocks_touch_warp(const machine_clocks *c, machine_reader_lists *lists, machine_trace *t,
                                      const uint32_t place[32], uint32_t n, uint32_t first, uint32_t on,
                                      machine_deed deed, int64_t *other, int *lane);

/* The thread whose ordinary write in this block an asynchronous agent would not see; -1: none. */
int64_t machine_clocks_unfenced(const machine_clocks *c, const machine_trace *t, uint32_t n);

#endif
