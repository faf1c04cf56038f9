/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/slow_links.h - which of many links between ranks is slow, or which rank with all of its links. Pure;
 * private to the room.
 *
 * A rate is the least of three: what the sender can, what the receiver can, what the link can. What a rank can is the
 * (upper) median over its links, which one bad link does not move. A rank is slow if that is below the median of all; a
 * link if it is below both of its ends. Rates are measured in four parts, rounds in turn: how much they differ is the
 * floor, and what is slow has to be so in each.
 */
#ifndef TM_NODE_SLOW_LINKS_H
#define TM_NODE_SLOW_LINKS_H

#include "apps/node/blame.h"

typedef struct {
    tm_blame who;   /* sender, receiver or link */
    double   part;  /* of the rate that it should have */
    double   usual; /* that rate */
} tm_slow_link;

enum { TM_LINKS_PARTS = 4 };

/* How far measurements of one thing lie apart, of many things: the 90th percentile of `spread` (the largest over the
 * smallest of each, as logarithms), and (1 + 6 / count) times that, as few may agree by chance. 0 of none. */
double tm_floor_of(const double *spread, int count);
/* part[k][sender * n + receiver]: rates, NAN: none. */
double tm_links_floor(const double *const part[TM_LINKS_PARTS], int n);
/* least: the smallest difference (a logarithm) that counts; what counts is at least the floor, too. So what lies once
 * the floor below that is found. n >= 3. Fills in at most `room`; returns how many. */
int tm_links_slow(const double *const part[TM_LINKS_PARTS], int n, double least, tm_slow_link *out, int room);

#endif
