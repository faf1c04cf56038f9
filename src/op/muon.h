/* SPDX-License-Identifier: Apache-2.0 */
/* op/muon.h - what kernels of muon share with its description. */
#ifndef TM_OP_MUON_H
#define TM_OP_MUON_H

#include "graph/tensor.h"
#include "op/attrs.h"

/* a, b, c of iteration i (0 .. TM_MUON_STEPS - 1). */
const double *tm_muon_triple(tm_muon_coefficients which, int i);
/* Factor of the learning rate of a matrix. */
double tm_muon_factor(tm_muon_scale scale, int64_t rows, int64_t columns);

/* Rows of all matrices of a parameter (its axes but the last, flattened), and those of the k-th. */
int64_t tm_muon_all_rows(tm_shape parameter);
int     tm_muon_parts(const tm_muon_attr *attr); /* of a period; 0: the attribute gives none */
int64_t tm_muon_rows(const tm_muon_attr *attr, int64_t k);

#endif
