/* SPDX-License-Identifier: Apache-2.0 */
/* apps/check/hosts.h - the hosts of a world of ranks beside each other: what must be the same on all of them, what
 * each measures, and who is outside; docs/check.md.
 */
#ifndef TM_SYSTEM_CHECK_HOSTS_H
#define TM_SYSTEM_CHECK_HOSTS_H

#include "base/table.h"
#include "comm/comm.h"
#include "apps/check/check.h"

/* What is compared: X(id, column, rule). SAME: a text that all ranks have. EQUAL: the sum over the ranks of a host.
 * ALIKE: a number of a host, within 2 % of the median. CLOCK: its distance from the first rank's clock. SPEED: higher
 * is better; of SUM, those of the ranks of a host are added. */
#define TM_HOSTS_LIST(X)                                                                                               \
    X(PROGRAM, "program", SAME)                                                                                        \
    X(VERSION, "version", SAME)                                                                                        \
    X(KERNELS, "kernels", SAME)                                                                                        \
    X(THREADS, "threads", EQUAL)                                                                                       \
    X(MEMORY, "memory_gib", ALIKE)                                                                                     \
    X(CLOCK, "clock_ms", CLOCK)                                                                                        \
    X(BANDWIDTH, "memory_gbps", SUM)                                                                                   \
    X(PRODUCT, "product_gflops", SUM)                                                                                  \
    X(DISK, "disk_mbps", SPEED)                                                                                        \
    X(LINK, "link_gbps", SPEED)
typedef enum {
#define X(id, column, rule) TM_HOSTS_##id,
    TM_HOSTS_LIST(X)
#undef X
        TM_HOSTS_ROWS
} tm_hosts_row;

enum { TM_HOSTS_TEXT = 80 };

/* What a rank tells. Of a host as a whole, its first rank does. */
typedef struct {
    char   text[TM_HOSTS_ROWS][TM_HOSTS_TEXT]; /* "": unknown */
    double value[TM_HOSTS_ROWS];               /* NAN: unknown, or not measured */
} tm_hosts_card;

/* What makes a host one that is outside. */
typedef struct {
    double outside;  /* part by which a speed is below the median of the other hosts: 0.1 */
    double clock_ms; /* most distance of a clock */
} tm_hosts_limits;

typedef struct tm_hosts tm_hosts;

/* An empty card. */
void tm_hosts_card_clear(tm_hosts_card *card);
/* Every rank of the world calls it, and gets the same. checks: of the first rank of each host; NULL: others, or none
 * were made. Judged by `limits`: a text, or a number
 * that must be equal, that differs from that of most (the first of equally many); a speed that was measured on other
 * hosts only, and one below (1 - outside) m and below m - 3 d, with m the median of the other hosts and d 1.4826 x
 * their median distance from it (robust: one slow host moves neither). The caller destroys *out. */
TM_MUST_USE tm_status tm_hosts_compare(tm_comm *world, const tm_hosts_card *own, const tm_checks *checks,
                                       const tm_hosts_limits *limits, tm_hosts **out, tm_error *err);
void                  tm_hosts_destroy(tm_hosts *hosts); /* NULL is fine */
/* A row for each host; a note for each finding. The caller destroys it. */
tm_table *tm_hosts_table(const tm_hosts *hosts);
/* TM_NEGATIVE with the hosts' names if a check failed or a host is outside. */
TM_MUST_USE tm_status tm_hosts_verdict(const tm_hosts *hosts, tm_error *err);

/* --- measured between hosts: every rank of the world calls these, the first of each host gets a value, others NAN --
 */

/* Milliseconds that this host's clock is ahead of the first rank's, from the quickest of some questions and answers;
 * half of its way is the error. now: nanoseconds since 1970; NULL: the system's clock. */
TM_MUST_USE tm_status tm_hosts_clock(tm_comm *world, int64_t (*now)(void), double *ms, tm_error *err);
/* GB/s of messages of `bytes` to and fro between neighbours in the ring of hosts, for about `seconds` each; of its two
 * neighbours, the better one: a slow host does not make its neighbours slow. One host: NAN. */
TM_MUST_USE tm_status tm_hosts_link(tm_comm *world, size_t bytes, double seconds, double *gbps, tm_error *err);

#endif
