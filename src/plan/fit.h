/* SPDX-License-Identifier: Apache-2.0 */
/* plan/fit.h - constants of the model of other trainers from published rows, and how well rows are predicted that were
 * not used.
 */
#ifndef TM_PLAN_FIT_H
#define TM_PLAN_FIT_H

#include "plan/rows.h"

/* The parameters with the greatest posterior density: of logarithms of predicted / published speeds a Huber loss of 12
 * % over a deviation of 8 %, and for each parameter with doubt a normal prior of its logarithm. Gauss-Newton with
 * Levenberg's damping, derivatives by differences. Only rows of speeds that are not refused, and not of `without`
 * (a source; NULL: all), count. */
tm_parameters tm_fit(const tm_published_rows *rows, const char *without, const tm_parameters *start);

/* errors[i] = log(predicted / published) of row i with parameters that were fitted without its source; NAN: refused, or
 * no speed. (rows->n). */
void tm_fit_without_each(const tm_published_rows *rows, const tm_parameters *start, double *errors);

#endif
