/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/change.h - private to the room: does a rate fall while it is measured, and when? Pure: no clock, no sensor.
 *
 * A series of n samples in time order is cut into 32 blocks, of which the medians count: what disturbs fewer than half
 * of the samples of a block does not.
 */
#ifndef TM_NODE_CHANGE_H
#define TM_NODE_CHANGE_H

#include "apps/node/rates.h"

#include <stdbool.h>
#include <stdint.h>

enum { TM_NODE_CHANGE_BLOCKS = 32, TM_NODE_LEAST_SAMPLES = 2 * TM_NODE_CHANGE_BLOCKS };
/* Smaller falls are none: a cold processor is faster. */
#define TM_NODE_LEAST_FALL 0.03
/* A fall is called one if it comes by chance in at most so many of all series. */
#define TM_NODE_FALL_CHANCE 0.001

typedef struct {
    double early, late; /* levels before and behind; NAN below TM_NODE_LEAST_SAMPLES */
    double chance;      /* of a fall as clear as this in the same blocks in any order; NAN: too few samples */
    size_t at;          /* the first sample of the lower level */
    bool   fell;        /* by at least TM_NODE_LEAST_FALL, and not by chance */
} tm_node_fall;

/* The fall is the largest of the differences of the means before and behind each block, in units of their error: a
 * permutation test, of which `seed` draws the orders. Exact if blocks are independent. */
tm_node_fall tm_node_fall_find(const double *rates, size_t n, uint64_t seed);

/* What each of several places has kept: out[p].value = mean of the last 8 blocks / mean of the first 8, with its 95 %
 * interval. rates: (places, n), n at
 * least TM_NODE_LEAST_SAMPLES. Returns the A/A floor: how far two such parts of one place are from each other at most
 * in 95 of 100. The errors are those of blocks about two levels of each place: a change of level is none. */
double tm_node_kept(const double *rates, size_t places, size_t n, tm_node_rate *out);

/* What sensors say at a sample; NAN: unknown. */
typedef struct {
    double clock_mhz, hottest_c, watts;
    double throttles; /* events of throttling by heat so far */
    double held;      /* seconds so far in which heat held the clock down */
} tm_node_sensed;

typedef struct {
    bool   known;     /* any of clock, temperature and throttling */
    bool   agrees;    /* explains a fall by that part */
    double clock[2];  /* median of the first and the last quarter */
    double hottest_c; /* of all samples */
    double watts;     /* median */
    double throttles; /* events from the first to the last sample */
    double held;      /* seconds likewise */
} tm_node_cause;

/* Does a sensor agree that the node was held down? The clock fell by at least half of `fall`, heat throttled or held
 * it, or it is as hot as processors are allowed to become (95 Celsius). */
tm_node_cause tm_node_cause_find(const tm_node_sensed *sensed, size_t n, double fall);

#endif
