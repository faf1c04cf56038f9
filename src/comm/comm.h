/* SPDX-License-Identifier: Apache-2.0 */
/* comm/comm.h - ranks that train together: groups of them, and collective calls among a group.
 *
 * A tm_comm is one rank's end of a group. The world is opened once; smaller groups are split off it. A call is made by
 * every rank of the group, in the same order, with the same kind, format, count and name; it returns when this rank's
 * part is done. Sums are added in the order of the ranks of the group, ((x0 + x1) + x2) + ..., element by element, in
 * float32 for bfloat16 elements (rounded once at the end): the bits depend on nothing else, neither on the library nor
 * on the size of the message, nor on where ranks run.
 *
 * Every wait has a deadline. A call that fails has failed for the whole world: the error names the rank that is late,
 * gone or calls something else, with the name of the call; afterwards every call of this world returns the same error.
 * One thread at a time calls a comm.
 */
#ifndef TM_COMM_COMM_H
#define TM_COMM_COMM_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tm_comm tm_comm;

typedef enum {
    TM_COMM_BARRIER,
    TM_COMM_ALL_REDUCE,     /* receive[count] = the sum of send[count] of all ranks */
    TM_COMM_REDUCE_SCATTER, /* receive[count] of rank r = the sum of send[r * count ...]; send has count x size */
    TM_COMM_ALL_GATHER,     /* receive[r * count ...] = send[count] of rank r */
    TM_COMM_BROADCAST,      /* receive[count] = send[count] of the rank `peer` (there both may be the same memory) */
    TM_COMM_ALL_TO_ALL,     /* receive, piece r = the piece of rank r that is for this one */
    TM_COMM_SEND,           /* send[count] to the rank `peer`; returns when `send` may be changed */
    TM_COMM_RECEIVE,        /* receive[count] from the rank `peer` */
} tm_comm_kind;

typedef enum { TM_COMM_SUM, TM_COMM_MAX, TM_COMM_MIN } tm_comm_op;

typedef enum { TM_COMM_BYTES, TM_COMM_INT64, TM_COMM_FLOAT64, TM_COMM_FLOAT32, TM_COMM_BFLOAT16 } tm_comm_format;

/* One call. In place: all-reduce and broadcast with receive == send, all-gather with send == receive + rank x count
 * elements, reduce-scatter with receive == send + rank x count elements; otherwise the memories do not overlap. */
typedef struct {
    tm_comm_kind   kind;
    tm_comm_op     op;     /* of reductions; TM_COMM_BYTES has none */
    tm_comm_format format; /* of the elements */
    const void    *send;
    void          *receive;
    size_t         count; /* elements, see the kinds */
    int            peer;  /* a rank of the group */
    /* All-to-all: elements of the pieces for and from each rank (size of them, one after the other in memory); NULL:
     * `count` each. They may differ by rank and may be 0; what rank a sends to b is what b receives from a. */
    const size_t *send_counts, *receive_counts;
    int  channel; /* of messages to one rank: those of one channel (0, 1) arrive in the order in which they were sent */
    bool buffered;    /* of a send: a copy goes on its way; the call does not wait for the receiver */
    const char *what; /* for messages: "gradients of layer 3" */
    int64_t     step; /* for messages; -1: none */
} tm_collective;

TM_MUST_USE tm_status tm_comm_run(tm_comm *comm, const tm_collective *call, tm_error *err);

int         tm_comm_rank(const tm_comm *comm);
int         tm_comm_size(const tm_comm *comm);
const char *tm_comm_name(const tm_comm *comm);        /* "world", or as it was split off */
const char *tm_comm_engine_name(const tm_comm *comm); /* "threads", "openmpi", "mpich", "tcp" */

/* How the last call was made: "in place", "in blocks" (on one host), "from rank to rank", "shared by hosts" (on
 * several), "a message"; "": there was none. docs/ranks.md says what these are. */
const char *tm_comm_way(const tm_comm *comm);
/* Whatever this rank has sent to other hosts in this world, in bytes, headers of calls among them. */
uint64_t tm_comm_sent_between_hosts(const tm_comm *comm);
/* What this rank has waited for other ranks inside calls of this world, in nanoseconds: until they arrived at the
 * same call, and until the receiver of a message took it out of shared memory. Copying, adding and transfers between
 * hosts do not count, nor do the first microseconds of a wait, nor what a device waits for in a queue of its own
 * (NCCL). */
int64_t tm_comm_waited_ns(const tm_comm *comm);
/* Calls of the group go from rank to rank also where hosts could share them out; the results are the same. All ranks
 * set it alike: one of them decides for all. For measuring. */
void tm_comm_set_direct(tm_comm *comm, bool direct);

/* Where a rank of the group runs. `local_rank` of `local_size` among the ranks of its host, of the world. */
typedef struct {
    int         host, hosts, local_rank, local_size;
    const char *host_name; /* as long as the comm */
} tm_comm_place;

tm_comm_place tm_comm_place_of(const tm_comm *comm, int rank);

/* Splits a group: ranks of the same color are a group each, in the order of (key, rank). Color < 0: in none, *out is
 * NULL. Every rank of `comm` calls it. Closed with tm_comm_close before `comm` is. */
TM_MUST_USE tm_status tm_comm_split(tm_comm *comm, int color, int key, const char *name, tm_comm **out, tm_error *err);

/* Memory of a rank, from one page to another. */
typedef struct {
    void  *memory;
    size_t bytes;
} tm_comm_range;

/* Private memory (anonymous, of this process) becomes memory that collectives of the world and of its groups reach
 * without copies: its pages are replaced by zeros that the ranks of the host have in common. Every rank of the world
 * calls it, with ranges of its own (none: n = 0). *share: for tm_comm_unshare. TM_UNSUPPORTED, on all ranks: the system
 * does not let one process reach what another has made; the memory is as it was, and calls copy it through blocks. */
TM_MUST_USE tm_status tm_comm_share(tm_comm *world, const tm_comm_range *ranges, int n, int *share, tm_error *err);
/* Before the memory is given back, and before the world is closed; no call of this rank uses it any more. */
void tm_comm_unshare(tm_comm *world, int share);

/* Such memory (zeros, aligned to a page). Every rank of the world calls it, with sizes of its own. */
TM_MUST_USE tm_status tm_comm_alloc(tm_comm *world, size_t bytes, void **memory, tm_error *err);
void                  tm_comm_free(tm_comm *world, void *memory); /* before the world is closed; NULL is fine */

/* What a world is made of. */
typedef struct {
    const char *engine;           /* "self", "openmpi", "mpich", "tcp"; NULL: what this process was launched by */
    double      deadline_seconds; /* of each wait; 0: 300 */
} tm_comm_options;

/* What this process was launched by. */
typedef struct {
    const char
        *engine; /* of its world: "self", "openmpi", "mpich", "tcp"; NULL: its launcher starts ranks, but no MPI */
    const char *launcher; /* in words */
    int         rank, ranks;
} tm_comm_launch;

tm_comm_launch tm_comm_launched(void);                   /* by the environment: costs nothing */
bool           tm_comm_engine_built(const char *engine); /* is the module of "openmpi", "mpich" there? */

/* Opens the world of this process. TM_INVALID: launched by something that does not fit (ranks that came up as separate
 * worlds of one are refused, with what to do). */
TM_MUST_USE tm_status tm_comm_open(const tm_comm_options *options, tm_comm **world, tm_error *err);

/* Worlds of `ranks` threads of this process: out[r] is for the thread of rank r. Closed one by one. */
TM_MUST_USE tm_status tm_comm_open_threads(int ranks, double deadline_seconds, tm_comm **out, tm_error *err);

/* Has a call of this process failed? Then no other one works. */
bool tm_comm_broken(const tm_comm *comm);

/* Collective, unless the world has failed. */
void tm_comm_close(tm_comm *comm);

/* Tells the others and the launcher that this rank cannot go on, with the exit code that the whole job shall have, and
 * the message that they print. Returns for worlds of threads and of one; else it ends the process. */
void tm_comm_abort(tm_comm *comm, int code, const char *message);

#endif
