/* SPDX-License-Identifier: Apache-2.0 */
/* train/certify/adapters.c - what adapters do beside their gradients: the factor of their products, and whether dropout
 * leaves out other elements in other micro-batches and steps. */
#include "train/certify/losses.h"

#include <math.h>
#include <stdio.h>

/* The first product of low rank whose factor is not lora.alpha / lora.rank (or / its root); NULL: none. */
static const tm_low_rank_attr *find_wrong(const tm_step *step, double *wanted)
{
    const tm_adapters *a = &step->options.adapters;
    for (size_t p = 0; p < step->plan->n_programs; p++)
        for (size_t k = 0; k < step->plan->programs[p].count; k++) {
            const tm_node *node = step->plan->programs[p].instructions[k].node;
            if (node->op != TM_OP_low_rank && node->op != TM_OP_low_rank_dgrad && node->op != TM_OP_low_rank_wgrad)
                continue;
            const tm_low_rank_attr *attr = node->attr;
            *wanted = a->alpha / (a->rslora ? sqrt((double)attr->rank) : (double)attr->rank);
            if (!(fabs(attr->scale - *wanted) <= 1e-12 * fabs(*wanted))) return attr;
        }
    return NULL;
}

tm_status tm_certifier_check_scales(const tm_certifier *c, tm_certificate *out, tm_error *err)
{
    const tm_adapters *a = &c->step->options.adapters;
    double             wanted = 0;
    if (a->rank == 0 || a->n_alphas > 0 || a->modules) return TM_OK; /* modules have an alpha of their own */
    const tm_low_rank_attr *attr = find_wrong(c->step, &wanted);
    bool                    wrong = attr != NULL;
    TM_TRY(tm_certifier_join_any(c, &wrong, err));
    if (!wrong) return TM_OK;
    out->done = true;
    if (attr)
        snprintf(out->reason, sizeof out->reason,
                 "an adapter of rank %lld is multiplied by %.6g, wanted %.6g (lora.alpha %g)", (long long)attr->rank,
                 attr->scale, wanted, a->alpha);
    else
        snprintf(out->reason, sizeof out->reason,
                 "the adapters of another rank have another factor than lora.alpha asks for");
    return TM_OK;
}

/* So few elements are left out that none may be. */
static bool drops_little(const tm_certifier *c)
{
    const tm_step_options *o = &c->step->options;
    return o->adapters.dropout * (double)(o->micro_batch * o->seq * o->shape.dim) < 256;
}

/* Are the rows of the step's micro-batches those of this rank, one behind the other? */
static bool numbered(const tm_certifier *c)
{
    const tm_step_options *o = &c->step->options;
    const double           rows = (double)(o->micro_batch * o->seq), all = rows * (double)o->accumulation;
    const double           first = tm_trainer_first_row(c->trainer, 0);
    bool                   good = fabs(fmod(first, all * c->ranks) - all * c->rank) < 0.5;
    for (int64_t m = 1; m < o->accumulation; m++)
        good = good && fabs(tm_trainer_first_row(c->trainer, m) - first - rows * (double)m) < 0.5;
    return good;
}

tm_status tm_certifier_drop(tm_certifier *c, tm_error *err)
{
    const bool several = c->step->options.accumulation > 1, fine = c->exact || !c->coarse;
    if (c->step->first_row == TM_NONE || c->dropped || !fine) return TM_OK;
    c->same_drops = !numbered(c);
    TM_TRY(tm_certifier_join_any(c, &c->same_drops, err));
    c->dropped = true;
    if (drops_little(c)) return TM_OK;
    for (int next = several ? 0 : 1; next < 2; next++) {
        double sum;
        TM_TRY(tm_trainer_forward_as(c->trainer, c->batch, next, c->exact, &sum, err));
        bool same = !(sum < c->first_sum || sum > c->first_sum);
        TM_TRY(tm_certifier_join_any(c, &same, err));
        c->same_drops = c->same_drops || same;
    }
    return TM_OK;
}
