/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the stand-in for NCCL and RCCL share: nccl.c has the library's functions, nccl_work.c what a queue
 * does for them. Rules are those of NCCL's User Guide, which is named where they are; who breaks one is told so, and
 * ended. */
#ifndef TESTS_STANDINS_NCCL_H
#define TESTS_STANDINS_NCCL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SLOT = 1 << 16, RANKS = 16, MAGIC = 0xcafe };

enum { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, MESSAGES };

typedef struct {
    _Atomic uint64_t full; /* bytes in it + 1; 0: empty */
    uint64_t         total;
    int              type;
    char             data[SLOT];
} box;

/* What a rank calls. */
typedef struct {
    int    kind, type, op, root;
    size_t count;
} header;

typedef struct {
    _Atomic int arrived, generation;
    header      calls[RANKS];
    char        slot[RANKS][SLOT];
    box         box[RANKS][RANKS]; /* from, to */
} shared;

typedef struct {
    int         magic, rank, size;
    _Atomic int async; /* the asynchronous error */
    atomic_bool aborted, busy;
    _Atomic int under_way; /* calls that were queued and are not yet done; those of graphs do not count */
    int         calls, turns, queued;
    _Atomic int begun;
    bool        blocking, finalized;
    shared     *all;
    char        path[128];
    pthread_t   beginner;
} communicator;

/* Of the calls between GroupStart and GroupEnd: messages. */
typedef struct {
    char  *data;
    size_t bytes, at;
    int    peer, type;
    bool   out;
} message;

typedef struct {
    communicator *comm;
    header        what;
    const char   *send;
    char         *receive;
    message      *message;
    int           messages, room;
    int           number; /* of the calls of the communicator; 0: it is part of a graph */
    bool          hangs, wrong;
} task;

/* Ends the process: "stand-in for nccl: rank 1 of 2: ...". */
_Noreturn void nccl_wrong(const communicator *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

bool   nccl_meet(communicator *c); /* false: it was aborted */
size_t nccl_bytes_of(int type);
void   nccl_run(void *task);
void   nccl_drop(void *task);

#endif
