/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/pairing.h - which groups to time next, to find the one rank, or the one link, that slows every group it is
 * in. Pure; private to the room.
 *
 * Each of n ends has a code of K = ceil(log2 n) bits, half of them the complements of the other half: so the two sides
 * of every bit have as many ends, or one more. First the sides of each bit are timed. A bad end slows one side of each
 * bit, which spells its code. A bad link slows a side where its two ends agree, and none where they differ; there the
 * parity of two such bits, on which they agree again, is timed next. That is 2 K - 1 groupings at most.
 */
#ifndef TM_NODE_PAIRING_H
#define TM_NODE_PAIRING_H

#include <stdbool.h>
#include <stdint.h>

/* GROUPINGS: room for 2^32 ends; PARTS: of the time of a group, each measured by itself. */
enum { TM_PAIRING_GROUPINGS = 64, TM_PAIRING_PARTS = 4 };

typedef struct {
    uint32_t mask;                         /* the side of an end is the parity of its code in these bits */
    double   seconds[2][TM_PAIRING_PARTS]; /* of each side; of fewer than two ends: not looked at */
    int      size[2];
    bool     slow[2];
} tm_grouping;

/* Zero-initialise but for n, at least 4. */
typedef struct {
    int         n, asked;
    double      least; /* smallest difference that counts, as a logarithm */
    tm_grouping grouping[TM_PAIRING_GROUPINGS];
} tm_pairing;

/* The side on which an end is. */
int tm_pairing_side(const tm_pairing *p, uint32_t mask, int end);
/* The next grouping, whose times are to be filled in; NULL: all are known. */
tm_grouping *tm_pairing_next(tm_pairing *p);

typedef struct {
    int    found; /* ends: 0 none, 1 a bad end, 2 the ends of a bad link; -1: groups differ, and neither explains it */
    int    end[2];
    double part;  /* of the rate of the others */
    double floor; /* how far the times of one group lie apart, as a logarithm, see tm_links_floor */
} tm_pairing_verdict;

tm_pairing_verdict tm_pairing_judge(tm_pairing *p);

#endif
