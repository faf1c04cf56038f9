/* SPDX-License-Identifier: Apache-2.0 */
/* train/certify/losses.c - losses of a step, of all ranks, with the weights as they are. */
#include "train/certify/losses.h"

#include "base/arena.h"
#include "graph/value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double tm_certifier_rounding(const tm_certifier *c, double unit)
{
    double rows = c->targets, blocks = (double)c->step->options.shape.n_layers;
    if (unit > TM_COARSE_UNIT)
        rows = fmin(rows, 128); /* what weights round is the same in all rows: no mean takes it away */
    return 4 * unit * c->scale * sqrt((1 + blocks) / rows);
}

static const unsigned stages = 1U << TM_AXIS_PP, matrices = 1U << TM_AXIS_TP;

tm_status tm_certifier_join(const tm_certifier *c, unsigned axes, double *values, size_t n, tm_error *err)
{
    return tm_trainer_sum(c->trainer, axes, values, n, err);
}

tm_status tm_certifier_join_any(const tm_certifier *c, bool *any, tm_error *err)
{
    double flag = *any ? 1 : 0;
    TM_TRY(tm_certifier_join(c, TM_AXES_WORLD, &flag, 1, err));
    *any = flag > 0;
    return TM_OK;
}

/* Ranks that found different numbers where there should be one go on with their mean. */
static tm_status agree(const tm_certifier *c, double *value, tm_error *err)
{
    int ranks = tm_layout_size(&c->step->options.layout, TM_AXES_WORLD);
    TM_TRY(tm_certifier_join(c, TM_AXES_WORLD, value, 1, err));
    *value /= ranks;
    return TM_OK;
}

/* Rows of each expert in the programs that have just run, and what the model adds to the loss: of this rank. */
static tm_status read_counts(const tm_certifier *c, double *counts, tm_error *err)
{
    if (c->n_counts == 0) return TM_OK;
    return tm_trainer_read(c->trainer, c->step->model.expert_counts, 0, counts, c->n_counts * sizeof *counts, err);
}

static tm_status read_balance(const tm_certifier *c, double *balance, tm_error *err)
{
    *balance = 0;
    if (c->step->model.balance_loss == TM_NONE) return TM_OK;
    return tm_trainer_read(c->trainer, c->step->model.balance_loss, 0, balance, sizeof *balance, err);
}

/* Of what the ranks' programs have summed: losses of targets, and what the model adds, which ranks that divide matrices
 * count for rows of their own where they divide experts, too; stages have what is theirs. */
static tm_status join_sums(const tm_certifier *c, double targets, double balance, double *sum, tm_error *err)
{
    double both[2] = { targets, balance };
    if (tm_moe_own_rows(&c->step->model.parallel)) TM_TRY(tm_certifier_join(c, matrices, &both[1], 1, err));
    TM_TRY(tm_certifier_join(c, stages, both, 2, err));
    *sum = both[0] + both[1];
    return tm_certifier_join(c, TM_AXES_LOSS, sum, 1, err);
}

/* One stage of a pipeline has them. */
static tm_status read_rows(const tm_certifier *c, double *rows, tm_error *err)
{
    const tm_tensor_id id = c->step->row_losses;
    size_t             n = (size_t)c->probe.rows;
    tm_status          st = TM_OK;
    memset(rows, 0, n * sizeof *rows);
    if (id != TM_NONE) {
        tm_dtype dtype = tm_graph_at(c->step->graph, id)->dtype;
        size_t   bytes = n * (size_t)tm_dtype_bytes(dtype);
        void    *stored = tm_alloc(bytes);
        st = tm_trainer_read(c->trainer, id, 0, stored, bytes, err);
        for (size_t i = 0; i < n && st == TM_OK; i++) rows[i] = tm_value_get(stored, dtype, (int64_t)i);
        free(stored);
    }
    return st == TM_OK ? tm_certifier_join(c, stages, rows, n, err) : st;
}

tm_status tm_certifier_probe(tm_certifier *c, tm_error *err)
{
    double sum;
    TM_TRY(tm_trainer_forward(c->trainer, &c->probe.replaced, 0, &sum, err));
    TM_TRY(read_rows(c, c->others, err));
    c->probed = true;
    return TM_OK;
}

/* Of micro-batch m of this rank. */
static tm_status loss_of(const tm_certifier *c, int64_t m, bool exact, double *sum, tm_error *err)
{
    return exact ? tm_trainer_exact(c->trainer, c->batch, m, sum, err)
                 : tm_trainer_forward(c->trainer, c->batch, m, sum, err);
}

/* Those of the rows of the first micro-batch, which has just gone forward, but maybe in float32. */
static tm_status take_rows(const tm_certifier *c, tm_error *err)
{
    double sum;
    if (c->exact) TM_TRY(tm_trainer_forward(c->trainer, c->batch, 0, &sum, err));
    return read_rows(c, c->rows, err);
}

/* The mean over all targets, and without what the model adds to them; counts of experts into c->now. `exact`: by those
 * programs. `rows`: with those of the first micro-batch. */
static tm_status mean_loss(tm_certifier *c, bool exact, bool rows, double *loss, double *of_targets, tm_error *err)
{
    double total = 0, balances = 0, *counts = tm_alloc(c->n_counts * sizeof *counts);
    memset(c->now, 0, c->n_counts * sizeof *c->now);
    tm_status st = TM_OK;
    for (int64_t m = 0; m < c->micro_batches && st == TM_OK; m++) {
        double sum, balance;
        st = loss_of(c, m, exact, &sum, err);
        if (st == TM_OK) st = read_balance(c, &balance, err);
        if (st == TM_OK) st = read_counts(c, counts, err);
        if (st != TM_OK) break;
        if (m == 0) c->first_sum = sum;
        total += sum; /* of whole sequences and of all stages; the balance is that of this rank's rows */
        balances += balance;
        for (size_t i = 0; i < c->n_counts; i++) c->now[i] += counts[i];
        if (m == 0 && rows) st = take_rows(c, err);
    }
    free(counts);
    if (st == TM_OK) st = tm_certifier_join(c, TM_AXES_BATCH, &total, 1, err);
    if (st == TM_OK) st = join_sums(c, 0, balances, &balances, err);
    *loss = (total + balances) / c->targets;
    *of_targets = total / c->targets;
    return st == TM_OK ? agree(c, loss, err) : st;
}

tm_status tm_certifier_loss(tm_certifier *c, double *loss, bool *jumped, tm_error *err)
{
    double unused;
    TM_TRY(mean_loss(c, c->exact, c->probe.possible && !c->probed, loss, &unused, err));
    *jumped = *jumped || memcmp(c->now, c->counts, c->n_counts * sizeof *c->now) != 0;
    return tm_certifier_join_any(c, jumped, err);
}

/* Of a step in parts what those before the last one have counted, as step->counts packs it. */
static tm_status add_earlier(tm_certifier *c, double *targets, double *balance, tm_error *err)
{
    const tm_step *step = c->step;
    if (!step->part_gradients || c->alone) return TM_OK;
    size_t    n = (size_t)tm_shape_elements(tm_graph_at(step->graph, step->part_counts)->shape);
    double   *counts = tm_alloc(n * sizeof *counts);
    tm_status st = tm_trainer_read(c->trainer, step->part_counts, 0, counts, n * sizeof *counts, err);
    if (st == TM_OK) {
        *targets += counts[0];
        for (size_t i = 0; i < c->n_counts; i++) c->counts[i] += counts[1 + i];
        if (step->model.balance_loss != TM_NONE) *balance += counts[1 + c->n_counts];
    }
    free(counts);
    return st;
}

tm_status tm_certifier_evaluate(tm_certifier *c, tm_error *err)
{
    double targets, balance, sum;
    TM_TRY(tm_trainer_read(c->trainer, c->step->loss, 0, &targets, sizeof targets, err));
    TM_TRY(read_balance(c, &balance, err));
    TM_TRY(read_counts(c, c->counts, err));
    TM_TRY(add_earlier(c, &targets, &balance, err));
    TM_TRY(join_sums(c, targets, balance, &sum, err));
    TM_TRY(agree(c, &sum, err));
    c->said = sum / c->targets;
    return mean_loss(c, false, false, &c->loss, &c->of_targets, err);
}
