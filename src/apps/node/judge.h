/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/judge.h - what is alike is compared: facts by the majority, figures by the median of the others
 * (docs/certify.md). */
#ifndef TM_NODE_JUDGE_H
#define TM_NODE_JUDGE_H

#include "apps/node/node.h"

/* One check of one earlier certificate, as that certificate told it. */
typedef struct {
    const char            *finished; /* "2026-01-31T12:00:00Z" */
    const tm_node_site    *sites;    /* by rank */
    const tm_node_outcome *outcome;
} tm_node_earlier;

/* Adds to the gathered outcome of one check what comparison finds, what it tells, and what it would have found (reach).
 * sites[] has an entry for every rank that the outcome names. earlier[n]: newest first; hosts of other kinds in them
 * are passed over. Only nodes of one kind are compared with each other. Computed by one rank; O(n log n) facts, figures
 * of one name O(n^2) up to 64 places of a node.
 *
 * Facts of one name: the text that more than half of the places have is right, all others are findings. Where no text
 * has that majority, each place is a finding that names the other one. Facts that are kept: a difference from the
 * node's last certificate is told, with its date; it is a finding if the latest certificates of two or more other nodes
 * agree on another text, and no other node of this certificate has this one.
 *
 * Figures of SPEED and TIME that have a floor are compared three times: the places of a node, the medians of the nodes,
 * and the median of a node with the latest of every other node in earlier certificates (two or more). Compared are
 * places of one sort (cores with cores). With m the median of the others, the worst one of fewer than three, a value is
 * a finding if it is worse than m by more than each of
 *
 *     2 floors                    3 floors where fewer than three others are there
 *     3 robust deviations         of the others, where three or more are there
 *     5 standard errors           of the difference, from the intervals
 *
 * A single place is told only. The reach is the largest limit plus a floor: what is that much slower is beyond the
 * limit in 39 of 40 measurements. */
void tm_node_judge(const tm_node_site *sites, tm_node_outcome *outcome, const tm_node_earlier *earlier, size_t n);

/* The limit of the rule above, as a part of m; *gap: by how much x is worse than m, as a part of it (below 0: better).
 * Each value has the standard error and the floor of the same place; all finite, m > 0. NAN: m is not above 0. n >= 1
 * others. */
typedef struct {
    double value, error, floor;
} tm_node_sample;
double tm_node_limit(tm_node_sense sense, const tm_node_sample *x, const tm_node_sample *others, size_t n, double *gap);

#endif
