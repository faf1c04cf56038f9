/* SPDX-License-Identifier: Apache-2.0 */
/* train/certify/formulas.h - what an update makes of a weight, in double and by the published formula of its optimizer,
 * apart from the ops that training uses; and by how much float32 may be off. Private to the room: the certificate of
 * the update is made of it (train/certify/update.h). */
#ifndef TM_TRAIN_CERTIFY_FORMULAS_H
#define TM_TRAIN_CERTIFY_FORMULAS_H

#include "train/optimizer/optimizer.h"

/* Of a tensor in a step, from the configuration. */
typedef struct {
    const tm_hyper *hyper;
    int64_t         step;       /* from 1 */
    double          rate;       /* learning rate, of the tensor's group */
    double          decay;      /* weight decay of this tensor */
    double          clip;       /* what gradients are multiplied by */
    double          clip_slack; /* and how much of it that may be off */
} tm_terms;

/* Gradient before the clip, and how far it may be off. */
typedef struct {
    double value, slack;
} tm_reckoned;

/* Elements of what Muon moves a matrix by may be off by this part of their root mean square: small singular values,
 * which rounding changes, grow by up to 480 times. */
#define TM_MUON_SLACK 0.1
enum { TM_RECKONED = 3 }; /* the weight and up to two moments, before they are stored */

/* AdamW (Loshchilov & Hutter 2019, algorithm 2): moments m and v. */
void tm_reckon_adamw(const tm_terms *t, double weight, tm_reckoned gradient, double m, double v,
                     tm_reckoned out[TM_RECKONED]);
/* torch.optim.SGD with coupled weight decay; `buffer` counts where there is momentum. */
void tm_reckon_sgd(const tm_terms *t, double weight, tm_reckoned gradient, double buffer, tm_reckoned out[TM_RECKONED]);

/* The 8-bit map of Dettmers et al. 2022: 256 values in ascending order. */
void tm_reckon_map(bool is_signed, double map[256]);

/* torch.optim.Adafactor of a whole matrix, or of a vector (rows 0): weights, gradients -> out (rows columns); `row`
 * (rows), `column` (columns): its means, or of a vector the variance in `column`; the new ones in their place. */
void tm_reckon_adafactor(const tm_terms *t, double eps1, int64_t rows, int64_t columns, const double *weights,
                         const tm_reckoned *gradients, double *row, double *column, tm_reckoned *out);

/* Muon (Jordan et al. 2024) of a whole matrix: `buffer` (rows columns) becomes the new one. */
void tm_reckon_muon(const tm_terms *t, int64_t rows, int64_t columns, const double *weights,
                    const tm_reckoned *gradients, double *buffer, tm_reckoned *out);
/* What the learning rate is multiplied by for a matrix of this shape. */
double tm_reckon_muon_factor(const tm_hyper *hyper, double rows, double columns);

#endif
