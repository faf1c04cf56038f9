/* SPDX-License-Identifier: Apache-2.0 */
/* train/certify/perturb.h - the trained tensors of a step in groups, moved along a direction and put back, and by how
 * much its gradients say that the loss changes. Private to the room: certificates are made of it (docs/certificate.md).
 *
 * Gradients are read from the device where they lie, piece by piece; weights have a copy. Of several ranks each has a
 * copy of what it holds, and pieces of what they share are put together as they are needed: gradients before an update
 * may still be sums over the ranks to be taken. Of what ranks divide for good (matrices, experts, blocks) each moves
 * its part, in the direction in which one rank moves the whole; groups are those of the whole model. All ranks make the
 * same calls and get the same numbers. */
#ifndef TM_TRAIN_CERTIFY_PERTURB_H
#define TM_TRAIN_CERTIFY_PERTURB_H

#include "train/trainer/trainer.h"

enum { TM_MOTION_PIECE = 1 << 15 }; /* elements that are worked on at a time */

/* A trained tensor, with a copy of its values. */
typedef struct {
    tm_tensor_id id;
    int          group;
    tm_dtype     dtype, used; /* `used`: the format that products take it in */
    int64_t      n;
    char        *values; /* those that are here */
    double       rms;    /* root mean square of the values */
    /* Of several ranks (train/certify/perturb_ranks.c). */
    unsigned apart; /* axes of the mesh over whose ranks the gradient is a sum that is not taken yet */
    unsigned sums;  /* of the group that divides matrices: the same, to be taken first (tm_tensor.sums) */
    bool     late;  /* the last program of micro-batches takes both */
    int      other; /* rank of the group of stages that has the same tensor and a term of its gradient; -1: none */
    tm_tensor_id
            earlier; /* of a step in parts: the unit with the sums of those before the last; TM_NONE: there are none */
    int64_t earlier_first; /* its element that is the first of this tensor */
    double part; /* what a sum over all ranks takes of its numbers: 1 / ranks that have the same; 0: counts elsewhere */
} tm_motion_member;

typedef struct {
    char   name[96];
    double norm, size; /* length of the gradient; of the values */
    double spread;     /* of the change of the loss by the gradient, for random moves of a tensor's size */
    double along;      /* the step along the gradient, in units of it, with its sign */
    double apart;      /* how far its elements move at random, in units of their tensor's size */
} tm_motion_group;

typedef struct {
    tm_trainer       *trainer;
    const tm_step    *step;
    tm_motion_member *members;
    tm_motion_group  *groups;
    size_t            n_members, n_groups, members_capacity, groups_capacity;
    const char       *lost; /* a parameter that is to be trained and has no gradient; NULL: none */
    char             *piece[2], *moved;
    double           *gradient, *kept; /* of a piece; its values as they were */
    bool              reduced;         /* the last program of micro-batches has run */
    bool              sizes;           /* numbers are read without their signs */
    bool              alone;           /* gradients are of one micro-batch, and not the last part of a step */
    bool              exact;           /* products are those of the program "exact" */
    double            table[2];        /* of a table of which stages have pieces (tm_motion_sum_parts) */
} tm_motion;

/* Name of the group that a tensor belongs to, from its own: "layers.3.attention.wo.weight" -> "layers.3 attention";
 * norms of a layer are one. */
void tm_motion_group_of(const char *tensor, char out[96]);

/* Lists tensors and groups that are here; takes no copies yet. `exact`: products are those of the program "exact". */
void   tm_motion_open(tm_trainer *trainer, bool exact, tm_motion *out);
void   tm_motion_fini(tm_motion *motion);
double tm_motion_bytes(const tm_motion *motion); /* of the copies of all weights that are here */
/* Takes the copies; from now on groups are those of all stages. Here and below: TM_DEVICE. */
TM_MUST_USE tm_status tm_motion_keep(tm_motion *motion, tm_error *err);
/* norm, size and spread of the groups, of the gradients as they are now. */
TM_MUST_USE tm_status tm_motion_measure(tm_motion *motion, tm_error *err);
/* Writes the tensors of groups [first, last): moved by `side` times along and apart, with random signs of `seed`, and
 * *change grows by this rank's part of the sum of g (w' - w), with what products see of both; side 0: as they were. */
TM_MUST_USE tm_status tm_motion_move(tm_motion *motion, size_t first, size_t last, double side, uint64_t seed,
                                     double *change, tm_error *err);

/* Elements [first, first + n) of a member's gradient, n at most TM_MOTION_PIECE, of all ranks and parts of a step, into
 * motion->gradient; or the sum of the sizes of what is added up for each. */
TM_MUST_USE tm_status tm_motion_gradient(tm_motion *motion, const tm_motion_member *m, int64_t first, int64_t n,
                                         bool sizes, tm_error *err);
/* Length of all gradients of the model. */
TM_MUST_USE tm_status tm_motion_norm(tm_motion *motion, double *norm, tm_error *err);

/* The number of the group of that name; a new one, if there is none. */
int tm_motion_group_named(tm_motion *motion, const char name[96]);

/* --- several ranks: train/certify/perturb_ranks.c
 * -------------------------------------------------------------------------- */

/* Fills in what ranks have to do with a member. */
void tm_motion_join(const tm_motion *motion, tm_motion_member *member);
/* Groups become those of all stages, in one order on every rank. */
TM_MUST_USE tm_status tm_motion_agree(tm_motion *motion, tm_error *err);
/* Sums over ranks that n elements of the member's gradient in motion->gradient still lack. */
TM_MUST_USE tm_status tm_motion_complete(tm_motion *motion, const tm_motion_member *member, int64_t n, tm_error *err);
/* Adds up two values of a member over the ranks that have parts of it. */
TM_MUST_USE tm_status tm_motion_sum_parts(tm_motion *motion, const tm_motion_member *member, double values[2],
                                          tm_error *err);
/* Adds up norm, size and spread of the groups over all ranks. */
TM_MUST_USE tm_status tm_motion_sum_groups(tm_motion *motion, tm_error *err);
/* A random bit for each of n <= 64 elements of a tensor from `first` on, by its place in the whole tensor. */
uint64_t tm_motion_signs(const tm_tensor *tensor, uint64_t seed, uint64_t stream, int64_t first, int64_t n);
/* Axes of the mesh whose ranks share a tensor. */
static inline unsigned tm_motion_shared(const tm_motion *motion, tm_tensor_id id)
{
    const tm_tensor *tensor = tm_graph_at(motion->step->graph, id);
    return tm_graph_elsewhere(tensor) ? tensor->shared->axes : 0;
}

#endif
