/* SPDX-License-Identifier: Apache-2.0 */
/* comm/coll/nccl.h - collective calls on the memory of GPUs, by NCCL or RCCL, loaded at run time.
 *
 * A tm_nccl is the GPU of one rank and its end of all of them; it takes the calls of comm/comm.h, with addresses of the
 * GPU. A call is put into a stream of the GPU and returns at once; a wait comes later. The order in which the library
 * adds is its own: unlike on processors, bits may depend on the library, the number of GPUs and the size.
 *
 * Every wait has the deadline; a call of the library that does not return within it ends the job (tm_comm_abort), with
 * the name of the rank that it waits for. After a failure the library's communicators are given up (ncclCommAbort), and
 * every later call returns the same error. One thread calls it: the one that has opened it.
 */
#ifndef TM_COMM_NCCL_H
#define TM_COMM_NCCL_H

#include "comm/comm.h"
#include "gpu/runtime.h"

typedef struct tm_nccl       tm_nccl;
typedef struct tm_nccl_group tm_nccl_group; /* a communicator of the library; closed with its tm_nccl */

/* Messages of one channel from one rank of a group to another. */
typedef struct {
    int from, to, channel;
} tm_nccl_lane;

/* Of several that are under way at once: those between two ranks are matched in their order. */
typedef struct {
    int    peer; /* may be the rank itself */
    bool   sends;
    void  *data;
    size_t bytes;
} tm_nccl_message;

typedef struct {
    const char *name;    /* "nccl", "rccl" */
    const char *library; /* the file that was loaded, links followed */
    char        version[24];
    bool        blocking; /* its calls wait by themselves, as usual; NCCL_COMM_BLOCKING=0: they do not */
} tm_nccl_facts;

/* The number of the GPU that this rank takes of those that its process sees, counted round: its own on its host. */
int tm_nccl_place(const tm_comm *world);

/* A GPU for each rank of the world, which all call it: the library from `library` (a file), else from the environment
 * variable TRAINMARK_NCCL, else from where it is usually installed; with a stream and a communicator of the world.
 * TM_INVALID on all ranks, with what to do: no library or no GPU somewhere, two versions of the library, two ranks on
 * one GPU. */
TM_MUST_USE tm_status tm_nccl_open(tm_comm *world, const char *library, double deadline_seconds, tm_nccl **out,
                                   tm_error *err);
/* The same on a GPU that the caller has opened and closes behind it, without stream and communicator, with the deadline
 * of the world. Its calls can be captured into graphs, so TM_UNSUPPORTED: the library is older than 2.10. */
TM_MUST_USE tm_status tm_nccl_open_on(tm_comm *world, tm_gpu *gpu, tm_nccl **out, tm_error *err);
/* Something else of the GPU has failed: its calls end, so that nothing waits for them any more. */
void tm_nccl_give_up(tm_nccl *nccl, const tm_error *why);
/* Before the world is closed; by all ranks, unless it has failed. NULL is fine. */
void tm_nccl_close(tm_nccl *nccl);

const tm_nccl_facts *tm_nccl_facts_of(const tm_nccl *nccl);
tm_gpu              *tm_nccl_gpu(tm_nccl *nccl);
void                *tm_nccl_stream(tm_nccl *nccl); /* of that GPU: where its calls go */
/* Which ranks have which GPUs: "ranks 0-3 on HOST: GPUs 0-3". As long as the tm_nccl. */
const char *tm_nccl_places(const tm_nccl *nccl);
/* Of the first host: "rank 0: GPU 0 at 0000:3b:00.0, NUMA node 0, mlx5_0; rank 1: ..." (gpu/neighbours.h). */
const char *tm_nccl_near(const tm_nccl *nccl);

/* Barriers are the world's. TM_UNSUPPORTED: a format that this version does not have. */
TM_MUST_USE tm_status tm_nccl_run(tm_nccl *nccl, const tm_collective *call, tm_error *err);
TM_MUST_USE tm_status tm_nccl_wait(tm_nccl *nccl, tm_error *err);

/* --- calls in streams of others, that may be captured and played ------------------------------------------------- */

/* A communicator of a group of the world, which stays open as long as it. All ranks of the group call it; who is in
 * several groups opens them in an order that is the same on all ranks. */
TM_MUST_USE tm_status tm_nccl_group_open(tm_nccl *nccl, tm_comm *ranks, tm_nccl_group **out, tm_error *err);
/* A communicator of two ranks of a group, for the messages of a lane: on each side one stream has all of its calls.
 * Both ranks call it; who is in several lanes opens them by channel, then by `from`, then by `to`. A call that waits
 * holds 8 blocks of the GPU at most (from 2.17 of the library on). */
TM_MUST_USE tm_status tm_nccl_lane_open(tm_nccl *nccl, tm_comm *ranks, const tm_nccl_lane *lane, tm_nccl_group **out,
                                        tm_error *err);
/* Of a call that will be queued, perhaps often: a number by which messages know it. */
int                   tm_nccl_note(tm_nccl *nccl, const tm_collective *call);
TM_MUST_USE tm_status tm_nccl_queue(tm_nccl_group *group, int number, const tm_collective *call, void *stream,
                                    tm_error *err);
/* The same of messages, all in one group of the library; `call` is the name of them all. */
TM_MUST_USE tm_status tm_nccl_queue_messages(tm_nccl_group *group, int number, const tm_collective *call,
                                             const tm_nccl_message *messages, size_t n, void *stream, tm_error *err);
/* The same in two steps: from `begin` to `end` the stream counts as in that call. */
TM_MUST_USE tm_status tm_nccl_begin(tm_nccl *nccl, int number, void *stream, tm_error *err);
TM_MUST_USE tm_status tm_nccl_end(tm_nccl *nccl, void *stream, tm_error *err);
/* A call that nobody waits for by its name. */
TM_MUST_USE tm_status tm_nccl_post(tm_nccl_group *group, const tm_collective *call, void *stream, tm_error *err);
/* Until all of a stream is done, and what it waits for in others. The deadline counts while the GPU is in one call. */
TM_MUST_USE tm_status tm_nccl_wait_for(tm_nccl *nccl, void *stream, tm_error *err);

#endif
