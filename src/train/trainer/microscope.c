/* SPDX-License-Identifier: Apache-2.0 */
#include "train/trainer/microscope.h"

#include "base/arena.h"
#include "base/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Ranks along some axes have tokens, or parts of tensors, of their own: sums and counts are those of all, magnitudes
 * the largest. */
static tm_status join_ranks(const tm_trainer *trainer, unsigned axes, double *record, size_t n, tm_error *err)
{
    static const int most[2] = { TM_COMPARED_OWN_MOST, TM_COMPARED_MOST };
    const tm_layout *layout = &tm_trainer_step_of(trainer)->options.layout;
    size_t           ranks = (size_t)tm_layout_size(layout, axes);
    if (ranks == 1) return TM_OK;
    size_t  own = (size_t)tm_mesh_group_rank(&layout->mesh, layout->rank, axes);
    double *largest = tm_alloc(ranks * n * 2 * sizeof *largest);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < 2; k++) largest[(own * n + i) * 2 + k] = record[i * TM_COMPARED + (size_t)most[k]];
    tm_status st = tm_trainer_sum(trainer, axes, largest, ranks * n * 2, err);
    if (st == TM_OK) st = tm_trainer_sum(trainer, axes, record, n * TM_COMPARED, err);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < 2; k++) {
            double *to = &record[i * TM_COMPARED + (size_t)most[k]];
            *to = 0;
            for (size_t r = 0; r < ranks; r++) *to = fmax(*to, largest[(r * n + i) * 2 + k]);
        }
    free(largest);
    return st;
}

/* --- stages --------------------------------------------------------------------------------------------------------
 *
 * Each stage has the rows of its own blocks. All of them become one list on every rank, as one rank would have it: the
 * forward rows of the first stage, of the second, ..., then the backward rows of the last one, of the one before. */

/* What is known of a row, as numbers that can be added up: others have zeros there. */
enum { NAME_BYTES = 192, BYTES_OF_A_NUMBER = 6, NAME_NUMBERS = NAME_BYTES / BYTES_OF_A_NUMBER };
typedef struct {
    double place; /* among the runs of rows of all stages */
    double kind, format, elements;
    double name[NAME_NUMBERS];
} row_facts;
enum { FACTS = sizeof(row_facts) / sizeof(double) };

static void write_name(const char *name, double to[NAME_NUMBERS])
{
    size_t length = strlen(name);
    for (size_t k = 0; k < NAME_NUMBERS; k++) {
        to[k] = 0;
        for (size_t b = BYTES_OF_A_NUMBER; b-- > 0;) {
            size_t at = k * BYTES_OF_A_NUMBER + b;
            to[k] = to[k] * 256 + (at < length && at + 1 < NAME_BYTES ? (double)(unsigned char)name[at] : 0);
        }
    }
}

static void read_name(const double from[NAME_NUMBERS], char name[NAME_BYTES])
{
    for (size_t k = 0; k < NAME_NUMBERS; k++) {
        uint64_t bytes = (uint64_t)from[k];
        for (size_t b = 0; b < BYTES_OF_A_NUMBER; b++, bytes /= 256)
            name[k * BYTES_OF_A_NUMBER + b] = (char)(bytes % 256);
    }
}

static row_facts facts_of(const tm_step *step, const tm_look_row *row)
{
    const tm_tensor   *own = tm_graph_at(step->graph, row->own);
    const tm_parallel *parallel = &step->model.parallel;
    int                chunks = parallel->chunks, stages = tm_layout_size(&step->options.layout, 1U << TM_AXIS_PP);
    row_facts          facts = { .kind = row->kind, .format = own->dtype };
    facts.elements = (double)(tm_shape_elements(own->shape) * tm_layout_sum_ranks(&step->options.layout) *
                              tm_layout_size(&step->options.layout, 1U << TM_AXIS_TP));
    write_name(row->name, facts.name);
    if (chunks > 0) /* parts of the segment: forward passes, then backward passes from the last one on */
        facts.place = row->part < chunks ? parallel->chunk[row->part].number
                                         : 2 * stages * chunks - parallel->chunk[2 * chunks - 1 - row->part].number;
    return facts;
}

/* A row and where it lies in what all gave. */
typedef struct {
    double place;
    size_t at;
} placed;

static int by_place(const void *a, const void *b)
{
    const placed *x = a, *y = b;
    if (x->place < y->place || x->place > y->place) return x->place < y->place ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Adds up what the stages have of `each` numbers a row, this one from row `first` of n on. Free it. */
static tm_status gather_rows(const tm_trainer *trainer, const double *own, size_t n_own, size_t first, size_t n,
                             size_t each, double **out, tm_error *err)
{
    *out = tm_alloc(n * each * sizeof **out);
    if (n_own) memcpy(*out + first * each, own, n_own * each * sizeof **out);
    return tm_trainer_sum(trainer, 1U << TM_AXIS_PP, *out, n * each, err);
}

static void reorder(double *values, size_t each, const placed *order, size_t n)
{
    double *sorted = tm_alloc(n * each * sizeof *sorted);
    for (size_t i = 0; i < n; i++) memcpy(sorted + i * each, values + order[i].at * each, each * sizeof *sorted);
    memcpy(values, sorted, n * each * sizeof *sorted);
    free(sorted);
}

/* How many rows the stages before this one have, and all of them. */
static tm_status count_rows(const tm_trainer *trainer, size_t own, size_t *first, size_t *all, tm_error *err)
{
    const tm_layout *layout = &tm_trainer_step_of(trainer)->options.layout;
    size_t           ranks = (size_t)tm_layout_size(layout, 1U << TM_AXIS_PP);
    size_t           rank = (size_t)tm_mesh_group_rank(&layout->mesh, layout->rank, 1U << TM_AXIS_PP);
    double          *counts = tm_alloc(ranks * sizeof *counts);
    for (size_t r = 0; r < ranks; r++) counts[r] = r == rank ? (double)own : 0;
    tm_status st = tm_trainer_sum(trainer, 1U << TM_AXIS_PP, counts, ranks, err);
    *first = *all = 0;
    for (size_t r = 0; r < ranks && st == TM_OK; r++) {
        if (r < rank) *first += (size_t)counts[r];
        *all += (size_t)counts[r];
    }
    free(counts);
    return st;
}

/* The rows of all stages in the place of this one's own; *n: of these, then of all. */
static tm_status join_stages(tm_looked *out, const tm_trainer *trainer, row_facts **facts, size_t *n, tm_error *err)
{
    const tm_step *step = tm_trainer_step_of(trainer);
    double        *record = NULL, *all_facts = NULL;
    size_t         first, all;
    if (tm_layout_size(&step->options.layout, 1U << TM_AXIS_PP) == 1) return TM_OK;
    TM_TRY(count_rows(trainer, *n, &first, &all, err));
    tm_status st = gather_rows(trainer, out->record, *n, first, all, TM_COMPARED, &record, err);
    if (st == TM_OK) st = gather_rows(trainer, (double *)*facts, *n, first, all, FACTS, &all_facts, err);
    placed *order = tm_alloc(all * sizeof *order);
    for (size_t i = 0; i < all && st == TM_OK; i++) order[i] = (placed){ ((row_facts *)(void *)all_facts)[i].place, i };
    if (st == TM_OK) {
        qsort(order, all, sizeof *order, by_place);
        reorder(record, TM_COMPARED, order, all);
        reorder(all_facts, FACTS, order, all);
    }
    free(order);
    free(out->record);
    free(*facts);
    out->record = record;
    *facts = (row_facts *)(void *)all_facts;
    *n = all;
    return st;
}

/* --- names ----------------------------------------------------------------------------------------------------------
 *
 * Rows are told apart by their names: the second row of a tensor's name ends in ".2", or in the next number that makes
 * it no other tensor's ("modulate.2" is an output of the first "modulate"). */

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The first of n sorted names that is not before `name`. */
static size_t place_of(const char *const *sorted, size_t n, const char *name)
{
    size_t begin = 0, end = n;
    while (begin < end) {
        size_t middle = begin + (end - begin) / 2;
        if (strcmp(sorted[middle], name) < 0)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

static bool is_taken(const char *const *sorted, size_t n, const char *name)
{
    size_t at = place_of(sorted, n, name);
    return at < n && strcmp(sorted[at], name) == 0;
}

/* names[i]: of row i, of which the arena keeps the new ones. */
static void tell_apart(tm_arena *arena, const char **names, size_t n)
{
    const char **sorted = tm_alloc((n + 1) * sizeof *sorted);
    int         *last = tm_alloc((n + 1) * sizeof *last); /* number of the last row of sorted[k], at the first such k */
    memcpy(sorted, names, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_text);
    for (size_t i = 0; i < n; i++) {
        const char *name = names[i];
        int        *number = &last[place_of(sorted, n, name)];
        if (++*number == 1) continue;
        names[i] = tm_arena_format(arena, "%s.%d", name, *number);
        while (is_taken(sorted, n, names[i])) names[i] = tm_arena_format(arena, "%s.%d", name, ++*number);
    }
    free(sorted);
    free(last);
}

/* --- figures ------------------------------------------------------------------------------------------------------ */

/* Sums of this rank's micro-batch become means over the target tokens of all ranks' micro-batches. Ranks that share a
 * sequence have parts of its loss, and the same count of its targets. */
static tm_status mean_losses(const tm_trainer *trainer, int64_t targets, double losses[2], tm_error *err)
{
    const tm_layout *layout = &tm_trainer_step_of(trainer)->options.layout;
    double           sums[3] = { losses[0], losses[1], (double)targets };
    if (!tm_layout_first_copy(layout, 1U << TM_AXIS_CP)) sums[2] = 0;
    if (tm_layout_size(layout, 1U << TM_AXIS_PP) > 1) /* 0 but on the last one */
        TM_TRY(tm_trainer_sum(trainer, 1U << TM_AXIS_PP, sums, 2, err));
    if (tm_layout_sum_ranks(layout) > 1) TM_TRY(tm_trainer_sum(trainer, TM_AXES_LOSS, sums, 3, err));
    for (int i = 0; i < 2; i++) losses[i] = sums[2] > 0 ? sums[i] / sums[2] : 0;
    return TM_OK;
}

/* A row of the record as figures. */
static tm_look_tensor figures(const row_facts *facts, const char *name, const double *record, double bound)
{
    double         error = record[TM_COMPARED_ERROR], a = record[TM_COMPARED_OWN], b = record[TM_COMPARED_REFERENCE];
    double         elements = facts->elements;
    tm_look_tensor out = { .name = name,
                           .kind = tm_look_kind_name((tm_look_kind)facts->kind),
                           .format = tm_dtype_name((tm_dtype)facts->format),
                           .elements = (int64_t)elements,
                           .underflow = record[TM_COMPARED_UNDERFLOW] / elements,
                           .overflow = record[TM_COMPARED_OVERFLOW] / elements,
                           .amax = record[TM_COMPARED_OWN_MOST],
                           .reference_amax = record[TM_COMPARED_MOST],
                           .zeros = record[TM_COMPARED_OWN_ZEROS] / elements,
                           .reference_zeros = record[TM_COMPARED_ZEROS] / elements,
                           .exponents = record + TM_COMPARED_OWN_BINS,
                           .reference_exponents = record + TM_COMPARED_BINS };
    out.error = b > 0 ? sqrt(error / b) : error > 0 ? (double)INFINITY : 0;
    out.cosine = a > 0 && b > 0 ? record[TM_COMPARED_DOT] / sqrt(a) / sqrt(b) : a == b ? 1 : 0;
    out.diverges = record[TM_COMPARED_OVERFLOW] > 0 || !(out.error <= bound);
    return out;
}

/* What the record says, row by row. */
static void tell(tm_looked *out, const row_facts *facts, size_t n, double bound)
{
    const char **names = tm_alloc((n + 1) * sizeof *names);
    for (size_t i = 0; i < n; i++) {
        char name[NAME_BYTES];
        read_name(facts[i].name, name);
        names[i] = tm_arena_text(out->names, name);
    }
    tell_apart(out->names, names, n);
    for (size_t i = 0; i < n; i++) {
        tm_look_tensor *tensor = &out->tensors[i];
        *tensor = figures(&facts[i], names[i], out->record + i * TM_COMPARED, bound);
        if (tensor->diverges && !out->look.first) out->look.first = tensor;
        if (!out->look.worst || !(tensor->error <= out->look.worst->error)) out->look.worst = tensor;
    }
    free(names);
}

tm_status tm_looked_take(tm_looked *out, tm_trainer *trainer, const tm_micro_batch *batch, int64_t step, double bound,
                         tm_error *err)
{
    const tm_step       *of = tm_trainer_step_of(trainer);
    const tm_microscope *microscope = &of->microscope;
    size_t               n = microscope->n_rows;
    double               losses[2];
    int64_t              begin = tm_now_ns();
    tm_looked_fini(out);
    out->record = tm_alloc(n * TM_COMPARED * sizeof *out->record);
    TM_TRY(tm_trainer_look(trainer, batch, out->record, losses, err));
    TM_TRY(join_ranks(trainer, TM_AXES_LOSS, out->record, n, err));
    TM_TRY(join_ranks(trainer, 1U << TM_AXIS_TP, out->record, n, err));
    TM_TRY(mean_losses(trainer, batch->target_tokens, losses, err));
    row_facts *facts = tm_alloc(n * sizeof *facts);
    for (size_t i = 0; i < n; i++) facts[i] = facts_of(of, &microscope->rows[i]);
    tm_status st = join_stages(out, trainer, &facts, &n, err);
    out->tensors = tm_alloc(n * sizeof *out->tensors);
    out->names = tm_arena_create();
    out->look = (tm_look){ .step = step,
                           .format = of->options.precision->name,
                           .reference = of->options.compared->name,
                           .loss = losses[0],
                           .reference_loss = losses[1],
                           .bound = bound,
                           .tensors = out->tensors,
                           .n_tensors = n,
                           .first_exponent = TM_EXPONENT_FIRST,
                           .n_exponents = TM_EXPONENT_BINS };
    if (st == TM_OK) tell(out, facts, n, bound);
    free(facts);
    out->look.seconds = (double)(tm_now_ns() - begin) * 1e-9;
    return st;
}

void tm_looked_fini(tm_looked *looked)
{
    free(looked->record);
    free(looked->tensors);
    tm_arena_destroy(looked->names);
    *looked = (tm_looked){ 0 };
}
