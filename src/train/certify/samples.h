/* SPDX-License-Identifier: Apache-2.0 */
/* train/certify/samples.h - elements of trained tensors around an update: which, what they were before, and what they
 * must be (train/certify/update.c compares). Private to the room. */
#ifndef TM_TRAIN_CERTIFY_SAMPLES_H
#define TM_TRAIN_CERTIFY_SAMPLES_H

#include "train/certify/formulas.h"
#include "train/certify/perturb.h"
#include "train/certify/update.h"

enum { TM_SAMPLE_BLOCK = 256 }; /* elements of a sample: a block of 8-bit moments */
/* Smaller numbers may be stored as nothing. */
#define TM_LEAST_STORED 0x1p-126

/* Elements [first, first + n) of a tensor. */
typedef struct {
    const tm_motion_member *member;
    const tm_tensor        *tensor;
    tm_formula              formula;
    tm_hyper                hyper;
    tm_terms                terms;
    bool                    whole; /* all of the tensor: what its update depends on */
    int64_t                 first, n;
    double                  unit;               /* that its format rounds by */
    unsigned                share;              /* axes of the ranks that update a part each; 0: every rank all */
    unsigned                alike[2];           /* axes whose ranks have the same weights behind the update */
    tm_tensor_id            states[4];          /* moments (of Adafactor means) and scales; TM_NONE */
    tm_tensor_id            rest;               /* what rounding took from the weight; TM_NONE */
    int64_t                 state_first;        /* element of the tensor that is the first in its states */
    int64_t                 held_from, held_to; /* elements of the sample that this rank updates */
    /* What the update begins with. */
    double      *weights;
    tm_reckoned *gradients;
    double      *before[2];
    /* What it must end with: of all, where some rank updates it; of this rank's moments. */
    tm_reckoned *expected; /* (n); NULL: of the weights nothing is known */
    bool        *has_owner;
    tm_reckoned *moments[2];  /* (n), or (moment_n); NULL: none */
    int64_t      moment_n[2]; /* of means over rows and columns; -1: as the weights */
} tm_sample;

struct tm_update_check {
    tm_trainer    *trainer;
    const tm_step *step;
    tm_motion      motion;
    tm_update_rule rule;
    int64_t        number; /* of the step */
    uint64_t       seed;
    double         rate, norm, norm_slack, clip, clip_slack;
    int            terms;  /* that a gradient is a sum of at most: of ranks and of parts of the step */
    bool           narrow; /* added up in bfloat16 */
    double         map[2][256];
    tm_sample     *samples;
    size_t         n_samples, capacity, left_out;
    double         seconds;
};

void        tm_samples_choose(tm_update_check *check);
const char *tm_sample_name(const tm_sample *sample);
/* Reads what the update begins with, and lets it go. */
TM_MUST_USE tm_status tm_sample_take(tm_update_check *check, tm_sample *sample, tm_error *err);
void                  tm_sample_let_go(tm_sample *sample);
/* Works out what it must end with; ranks that update a part each tell each other. */
TM_MUST_USE tm_status tm_sample_reckon(tm_update_check *check, tm_sample *sample, tm_error *err);
void                  tm_sample_fini(tm_sample *sample);

/* Elements of a tensor as numbers. */
TM_MUST_USE tm_status tm_values_read(tm_trainer *trainer, tm_tensor_id id, int64_t first, int64_t n, double *out,
                                     tm_error *err);
/* The part of itself that a number stored in the format is off by at most. */
double tm_unit_stored(tm_dtype dtype, bool stochastic);

#endif
