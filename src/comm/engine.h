/* SPDX-License-Identifier: Apache-2.0 */
/* comm/engine.h - what a world of ranks is carried by: shared memory within a host, messages of bytes between any two
 * ranks, an end of the whole job. All collective algorithms are written over this table; one file knows MPI.
 *
 * Calls return NULL, or why they failed: a text that lives until the next call of the same thread. Modules that are
 * loaded at run time have this header as their only interface to the program, so it needs nothing of it.
 */
#ifndef TM_COMM_ENGINE_H
#define TM_COMM_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A message that is under way; what an engine keeps of it. */
typedef struct {
    uint64_t word[8];
} tm_comm_request;

enum { TM_COMM_HOST_NAME = 64, TM_COMM_TAGS = 256 };

/* Ranks are those of the world. Tags: 0 .. TM_COMM_TAGS - 1. Messages with the same ranks and tag arrive in the order
 * in which they were sent. Calls may come from several threads. */
typedef struct {
    const char *name;  /* "openmpi" */
    double      end_s; /* `close` waits for the other ranks, and for so long beyond their deadline; 0: for nobody */

    /* Shared memory of the ranks of this host: `bytes` (by each as it wants) of zeros for this one, aligned to a page;
     * where[l]: the l-th of the host, in this process. Every rank of the world calls it, in the same order. It exists
     * until `close`. */
    const char *(*share)(void *own, size_t bytes, void **where);

    /* Neither waits. `data` stays as it is until `test` says so. A message has the size that its receiver expects. */
    const char *(*send)(void *own, int to, int tag, const void *data, size_t bytes, tm_comm_request *request);
    const char *(*receive)(void *own, int from, int tag, void *data, size_t bytes, tm_comm_request *request);
    /* *done: it has ended, and is not tested again. */
    const char *(*test)(void *own, tm_comm_request *request, bool *done);
    /* Gives up a message that has not ended, in a world that has failed. */
    void (*cancel)(void *own, tm_comm_request *request);

    /* Messages that were reported as sent may still have to be moved on by this rank: while it waits for something
     * else. NULL: they move on by themselves. */
    void (*move_on)(void *own);

    /* Ends all ranks with this exit code, after `message` (NULL: another rank says it) on standard error; returns where
     * ranks are no processes. */
    void (*abort)(void *own, int code, const char *message);
    /* All ranks call it, unless the world has failed. */
    void (*close)(void *own, bool failed);
} tm_comm_engine;

/* One rank's end of an engine that has been started. */
typedef struct {
    const tm_comm_engine *engine;
    void                 *own;
    int                   rank, size;
    const int            *host;                 /* (size) of each rank: 0, 1, ... in the order of their first ranks */
    const char (*host_name)[TM_COMM_HOST_NAME]; /* (hosts) */
} tm_comm_ports;

/* What a module has under the name TM_COMM_MODULE_SYMBOL: starts the library in this process, once. */
typedef const char *(*tm_comm_module_open)(tm_comm_ports *out);
#define TM_COMM_MODULE_SYMBOL "tm_comm_module"

#endif
