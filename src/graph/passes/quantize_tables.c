/* SPDX-License-Identifier: Apache-2.0 */
/* graph/passes/quantize_tables.c - what products in low precision keep from step to step: counters, records of factors,
 * histories, delayed scales. Of a part of a model they are rows of the whole model's tables. */
#include "graph/passes/quantize_tables.h"

#include "graph/passes/units.h"
#include "op/attrs.h"

#include <stdlib.h>

static bool uses_in(const tm_quantize *policy, bool switched, bool delayed)
{
    for (int k = 0; k < TM_QUANTIZE_KINDS; k++) {
        const tm_quantize_recipe *recipe = tm_quantize_recipe_of(policy, (tm_quantize_kind)k, switched);
        for (int f = 0; recipe && f < TM_FACTORS; f++) {
            const tm_quantizer *z = &recipe->factor[f];
            if (delayed ? z->scaled == TM_SCALED_DELAYED : z->stochastic) return true;
        }
    }
    return false;
}

static bool uses(const tm_quantize *policy, bool delayed)
{
    return uses_in(policy, false, delayed) || uses_in(policy, true, delayed);
}

/* The largest number of each row's delayed format; 1 where there is none. */
static double largest_of(const void *context, int64_t i)
{
    return ((const double *)context)[i];
}

/* Of a part of a model: which rows of the whole table these are. */
static void place_rows(tm_graph *graph, const tm_quantized *made, tm_tensor_id id)
{
    int n = 0;
    if (!made->all || made->n_rows == made->n_all) return;
    tm_tensor *table = tm_graph_at(graph, id);
    tm_cut     cut = { .ranks = 2, .whole = table->shape };
    tm_piece  *runs = tm_arena_take(graph->arena, made->n_rows * sizeof *runs);
    for (size_t i = 0; i < made->n_rows; i++) {
        int64_t place = (int64_t)made->places[i];
        if (n > 0 && place == runs[n - 1].begin + runs[n - 1].rows)
            runs[n - 1].rows++;
        else
            runs[n++] = (tm_piece){ .name = table->name, .row = (int64_t)i, .rows = 1, .begin = place };
    }
    table->pieces = runs;
    table->n_pieces = n;
    cut.whole.n[0] = (int64_t)made->n_all;
    tm_graph_cut(graph, id, &cut);
}

void quantize_make_tables(tm_graph *graph, const tm_quantize *policy, tm_quantized *made)
{
    int64_t n = (int64_t)made->n_rows;
    bool    delayed = uses(policy, true);
    if (n == 0) return;
    made->record = tm_graph_tensor(graph, "quantize.record", TM_ROLE_STATE, tm_shape_2(n, TM_QUANTIZE_RECORD));
    place_rows(graph, made, made->record);
    if (policy->several)
        made->found = tm_graph_tensor_as(graph, "quantize.found", TM_ROLE_SCALAR, tm_shape_2(n, TM_QUANTIZE_RECORD),
                                         tm_graph_at(graph, made->record)->dtype);
    if (delayed || policy->switch_step >= 0 || uses(policy, false)) {
        made->ticks = tm_graph_tensor_as(graph, "quantize.ticks", TM_ROLE_STATE, tm_shape_1(TM_QUANTIZE_TICKS), TM_F64);
        tm_graph_at(graph, made->ticks)->twin = made->all && made->places[0] > 0; /* all parts have the same */
    }
    if (!delayed) return;
    double *largest = tm_alloc((size_t)n * sizeof *largest);
    for (int64_t i = 0; i < n; i++) {
        largest[i] = 1;
        for (int r = 0; r < 2; r++) {
            const tm_quantizer *z =
                &tm_quantize_recipe_of(policy, made->rows[i].kind, r > 0)->factor[made->rows[i].factor];
            if (z->scaled == TM_SCALED_DELAYED) largest[i] = (double)tm_narrow_of(z->format).largest;
        }
    }
    made->history = tm_graph_tensor(graph, "quantize.history", TM_ROLE_STATE, tm_shape_2(n, policy->history));
    made->scale = tm_graph_tensor(graph, "quantize.scale", TM_ROLE_STATE, tm_shape_1(n));
    place_rows(graph, made, made->history);
    place_rows(graph, made, made->scale);
    made->largest =
        tm_graph_constant(graph, "quantize.largest", tm_shape_1(n), largest_of, largest, (size_t)n * sizeof *largest);
    free(largest);
}

void quantize_tick(tm_graph *graph, const tm_quantized *made, tm_tick_attr attr)
{
    if (made->ticks == TM_NONE) return;
    graph->module = "quantize";
    graph->layer = -1;
    tm_graph_add(graph, TM_OP_tick, &attr, sizeof attr, (tm_tensor_id[TM_MAX_IN]){ made->ticks, TM_NONE },
                 (tm_tensor_id[TM_MAX_OUT]){ made->ticks }, 0);
}

/* All of a table as a row; checkpoints hold the table. */
static tm_tensor_id flat(tm_graph *graph, const char *name, tm_tensor_id table)
{
    tm_tensor_id all =
        tm_graph_run(graph, name, table, 0, tm_shape_2(1, tm_shape_elements(tm_graph_at(graph, table)->shape)));
    tm_graph_at(graph, all)->role = TM_ROLE_STATISTIC;
    return all;
}

static void clear(tm_graph *graph, tm_tensor_id all)
{
    tm_fill_attr zero = { .value = 0 };
    tm_graph_add(graph, TM_OP_fill, &zero, sizeof zero, (tm_tensor_id[TM_MAX_IN]){ TM_NONE },
                 (tm_tensor_id[TM_MAX_OUT]){ all }, 0);
}

void tm_quantize_clear(tm_graph *graph, const tm_quantized *made)
{
    if (made->record == TM_NONE || made->found != TM_NONE) return;
    clear(graph, flat(graph, "quantize.record.all", made->record));
}

/* What all sums of a step found is its record. */
static void take_found(tm_graph *graph, const tm_quantized *made)
{
    if (made->found == TM_NONE) return;
    graph->module = "quantize";
    graph->layer = -1;
    tm_tensor_id from = flat(graph, "quantize.found.all", made->found);
    tm_units_call(graph, TM_OP_reduce_scatter, 0, 1, "records", from, flat(graph, "quantize.record.all", made->record),
                  false);
    clear(graph, from);
}

static double zero_of(const void *context, int64_t i)
{
    (void)context, (void)i;
    return 0;
}

/* Appends y = a + 0; y may be a view. */
static void copy_column(tm_graph *graph, tm_tensor_id a, tm_tensor_id zeros, tm_tensor_id y)
{
    tm_graph_add(graph, TM_OP_add, NULL, 0, (tm_tensor_id[TM_MAX_IN]){ a, zeros }, (tm_tensor_id[TM_MAX_OUT]){ y }, 0);
}

/* The largest magnitudes of a step are those of all ranks, with other tokens or parts of matrices. */
static void join_largest(tm_graph *graph, const tm_quantize *policy, const tm_quantized *made)
{
    tm_shape column = tm_shape_2((int64_t)made->n_rows, 1);
    tm_dtype dtype = tm_graph_at(graph, made->record)->dtype;
    const struct {
        unsigned axes;
        int      ranks;
    } groups[] = { { policy->tensor_axes, policy->tensor_ranks }, { policy->axes, policy->ranks } };
    if (policy->ranks < 2 && policy->tensor_ranks < 2) return;
    graph->module = "quantize";
    graph->layer = -1;
    tm_tensor_id zeros = tm_graph_constant(graph, "quantize.zeros", column, zero_of, NULL, 0);
    tm_tensor_id amax = tm_graph_tensor_as(graph, "quantize.amax", TM_ROLE_STATISTIC, column, dtype);
    tm_tensor_id of = tm_graph_view(graph, "quantize.record.amax", made->record, 0, 1);
    tm_graph_at(graph, zeros)->dtype = dtype;
    tm_graph_at(graph, of)->role = TM_ROLE_STATISTIC; /* checkpoints hold the record */
    copy_column(graph, of, zeros, amax);
    for (size_t g = 0; g < sizeof groups / sizeof groups[0]; g++) {
        tm_group_attr attr = {
            .axes = groups[g].axes, .ranks = groups[g].ranks, .what = "largest magnitudes", .largest = 1
        };
        if (attr.ranks > 1)
            tm_graph_add(graph, TM_OP_all_reduce, &attr, sizeof attr, (tm_tensor_id[TM_MAX_IN]){ amax },
                         (tm_tensor_id[TM_MAX_OUT]){ amax }, 0);
    }
    copy_column(graph, amax, zeros, of);
}

void tm_quantize_update(tm_graph *graph, const tm_quantize *policy, tm_quantized *made)
{
    if (!policy->on || made->record == TM_NONE) return;
    take_found(graph, made);
    int64_t passes = policy->passes_behind; /* those before it were counted by programs */
    if (made->number != TM_NONE) passes += policy->passes_before + policy->passes;
    quantize_tick(graph, made, (tm_tick_attr){ .steps = 1, .passes = passes });
    if (made->scale == TM_NONE) return;
    join_largest(graph, policy, made);
    tm_scale_history_attr attr = { .switch_step = policy->switch_step,
                                   .before = uses_in(policy, false, true),
                                   .recent = policy->recent,
                                   .margin = policy->margin,
                                   .frozen = policy->frozen };
    graph->module = "quantize";
    tm_graph_add(graph, TM_OP_scale_history, &attr, sizeof attr,
                 (tm_tensor_id[TM_MAX_IN]){ made->ticks, made->record, made->history, made->largest, made->scale },
                 (tm_tensor_id[TM_MAX_OUT]){ made->history, made->scale }, 0);
}

void tm_quantized_fini(tm_quantized *made)
{
    free(made->rows);
    free(made->first);
}
