/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/rates.h - private to the room: rates of several places, measured in rounds, as figures with an interval and
 * an A/A floor. Pure: no clock.
 */
#ifndef TM_NODE_RATES_H
#define TM_NODE_RATES_H

#include <stddef.h>

typedef struct {
    double value, low, high; /* mean of the medians of 8 blocks of rounds; its 95 % interval */
} tm_node_rate;

enum { TM_NODE_BLOCKS = 8, TM_NODE_LEAST_ROUNDS = 2 * TM_NODE_BLOCKS };
/* No floor is below this part: cores of one kind differ by as much. */
#define TM_NODE_LEAST_FLOOR 0.01

/* rates: (places, rounds), all above 0; a round measures all places at about the same time. out: (places). Returns the
 * floor, the part by which two measurements of one place differ at most in 95 of 100; NAN below TM_NODE_LEAST_ROUNDS,
 * with intervals NAN, too.
 *
 * Rounds are cut into 8 blocks. The 7 ways to choose 4 of them that are orthogonal to each other (rows of the Hadamard
 * matrix) give 7 differences of halves for each place. They have independent errors if blocks do, whatever happens
 * within a block. A drift that most places share is taken out of the floor and of intervals, not of the value. */
double tm_node_rates(const double *rates, size_t places, size_t rounds, tm_node_rate *out);

#endif
