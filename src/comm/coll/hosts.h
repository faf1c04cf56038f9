/* SPDX-License-Identifier: Apache-2.0 */
/* comm/coll/hosts.h - which ranks of a group share a host, who speaks for whom between hosts, and how many bytes a call
 * moves from host to host. Pure arithmetic.
 *
 * A *run* is a row of ranks, one after the other in the group, on one host. A sum that keeps the order of the ranks
 * goes from run to run: ((x0 + x1) + x2) + ... is continued where the last run left it. A *lane* is a share of the
 * elements; there are as many as the longest run has ranks, and each has one owner in each run.
 */
#ifndef TM_COMM_HOSTS_H
#define TM_COMM_HOSTS_H

#include "comm/comm.h"

typedef struct tm_comm_hosts {
    int  size, hosts, runs, lanes;
    int *host;       /* (size) of each rank, in the order of their first ranks */
    int *run;        /* (size) of each rank */
    int *run_first;  /* (runs + 1) first rank of each run */
    int *members;    /* (size) the ranks of host 0, of host 1, ..., each host's in the order of the group */
    int *host_first; /* (hosts + 1) where they begin there */
    int *last_run;   /* (hosts) */
    int *back;       /* (hosts) the hosts, that of the last run first, then by their last runs */
    int *back_at;    /* (hosts) place of each host among them */
} tm_comm_hosts;

/* host: of each rank of a group, any numbers. */
tm_comm_hosts *tm_comm_hosts_make(const int *host, int size);
void           tm_comm_hosts_free(tm_comm_hosts *h);

/* Who adds a lane in a run; who has the lane's sum on a host. */
int tm_comm_hosts_owner(const tm_comm_hosts *h, int run, int lane);
int tm_comm_hosts_keeper(const tm_comm_hosts *h, int host, int lane);
/* Who gets, on this host, what a rank of another host has for all of its ranks. */
int tm_comm_hosts_partner(const tm_comm_hosts *h, int host, int rank);

/* Bytes of a call's data, all ranks together: what is sent from host to host, and what one rank gets from another of
 * its host, be it in a message or out of its memory. Of N bytes (call->count elements in all-reduce and broadcast, as
 * many for each rank in reduce-scatter and all-gather), among p ranks on H hosts in R runs, k on each host:
 *
 *                            between hosts                    within hosts
 *     from rank to rank
 *         all-reduce         2 N (p - k)                      2 N (k - 1)
 *         reduce-scatter     N (p - k)                        N (k - 1)
 *         all-gather         N (p - k)                        N (k - 1)
 *         broadcast          N (p - k)                        N (k - 1)
 *         all-to-all         N (p - k)                        N (k - 1), N bytes being those that one rank sends
 *     shared by hosts
 *         all-reduce         w N (R - 1) + N (H - 1)          N (p - R) + N (p - H)
 *         reduce-scatter     w N (R - 1) + N (p - k) / p      N (p - R) + N (k - 1) / p
 *         all-gather         N (H - 1)                        N (p - H)
 *         broadcast          N (H - 1)                        N (p - H)
 *
 * w: 2 in bfloat16, whose sums are under way in float32, else 1. k of the root's host in broadcasts, of the last run's
 * in reduce-scatters that are shared; elsewhere unlike k are counted as they are. */
typedef struct {
    double between, within;
} tm_comm_moved;

tm_comm_moved tm_comm_hosts_moved(const tm_comm_hosts *h, const tm_collective *call, bool shared);

/* Do hosts share this call out, as far as its bytes decide: is it large enough, and less to send? */
enum { TM_COMM_HOSTS_LEAST = 32768 };
bool tm_comm_hosts_share(const tm_comm_hosts *h, const tm_collective *call);

#endif
