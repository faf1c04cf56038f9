/* SPDX-License-Identifier: Apache-2.0 */
/* comm/coll/nccl_own.h - what nccl.c (the library, who takes part) and nccl_calls.c (calls, waits, failures) share;
 * private to comm/coll. The two are the only files that know NCCL, and RCCL, which has the same names and numbers.
 */
#ifndef TM_COMM_NCCL_OWN_H
#define TM_COMM_NCCL_OWN_H

#include "base/text.h"
#include "comm/coll/nccl.h"
#include "comm/coll/nccl_calls.h"
#include "comm/group.h"
#include "gpu/library.h"

#include <pthread.h>
#include <stdatomic.h>

/* --- one rank's end of it -------------------------------------------------------------------- */

struct tm_nccl_group {
    tm_nccl *of;
    tm_comm *ranks;
    int      size, rank; /* of the communicator */
    bool     lane;       /* of messages from its rank 0 to its rank 1 */
    void    *comm;       /* NULL: not yet made, or given up */
};

enum { NCCL_NUMBERS = 4096, NCCL_LANE_BLOCKS = 8 };

struct tm_nccl {
    nccl_calls      call;
    tm_library      library;
    tm_nccl_facts   facts;
    int             version;
    tm_comm        *world;
    tm_gpu         *gpu;
    bool            owns_gpu;
    void           *stream; /* NULL: calls go into those of others */
    tm_nccl_group **group;
    int             groups;
    double          deadline_s;
    bool            failed;
    tm_error        error;
    tm_comm_header  last;   /* what was called last */
    tm_text         places; /* which rank has which GPU */
    tm_text         near;   /* and where those of the first host are */

    /* Of calls that are noted: `numbers`, on the GPU, are -1, 0, 1, ...; one of them is copied to *under_way, in pinned
     * memory, before and behind each call. The table has NCCL_NUMBERS of them behind -1. */
    tm_comm_header   *noted;
    int               n_noted, noted_room;
    char             *numbers;
    _Atomic(int32_t) *under_way; /* number of the call that the GPU is in; -1: in none */

    pthread_t           watcher; /* ends the job when a call of the library does not return */
    bool                watches;
    _Atomic bool        ends;
    _Atomic int64_t     since_ns; /* when the call began that has not returned; 0: there is none */
    const char *_Atomic within;   /* which */
};

/* What a call of the library has returned; if it goes on behind our back, until it has ended. */
TM_MUST_USE tm_status nccl_through(tm_nccl_group *g, const char *call, int code, tm_error *err);
void                  nccl_enter(tm_nccl *n, const char *call);
void                 *nccl_watch(void *nccl); /* the watcher's thread */

/* One of the calls, as a statement that ends the function if it fails. */
#define NCCL_MUST(g, name, ...)                                                                                        \
    do {                                                                                                               \
        nccl_enter((g)->of, "nccl" #name);                                                                             \
        TM_TRY(nccl_through((g), "nccl" #name, (g)->of->call.name(__VA_ARGS__), err));                                 \
    } while (0)

#endif
