/* SPDX-License-Identifier: Apache-2.0 */
/* What a graph notes down: views and parameters, compared as text, and runs of groups. */
#include "graph/nf4.h"
#include "graph/cut.h"
#include "graph/graph.h"
#include "op/attrs.h"

#include "base/text.h"

#include <stdio.h>
#include <string.h>

#include "support/test.h"

/* What differs from an empty tensor without a layer. */
static void print_tensor(const tm_graph *graph, tm_tensor_id id, tm_text *out)
{
    const tm_tensor *t = tm_graph_at(graph, id);
    char             shape[96];
    tm_text_printf(out, "%d %s %d %s %s", id, t->name, (int)t->role, tm_dtype_name(t->dtype),
                   tm_shape_text(shape, t->shape));
    if (t->layer != -1) tm_text_printf(out, " layer %d", t->layer);
    if (t->base != TM_NONE || t->offset || t->ld)
        tm_text_printf(out, " of %d from %lld, rows %lld", t->base, (long long)t->offset, (long long)t->ld);
    if (t->space) tm_text_printf(out, " on %s", tm_space_name(t->space));
    for (int p = 0; p < t->n_pieces; p++)
        tm_text_printf(out, " %s:%lld+%lld", t->pieces[p].name, (long long)t->pieces[p].row,
                       (long long)t->pieces[p].rows);
    if (t->cut)
        tm_text_printf(out, " cut %u:%d/%d column %lld of %s", t->cut->axes, t->cut->rank, t->cut->ranks,
                       (long long)t->cut->column, tm_shape_text(shape, t->cut->whole));
    if (t->gradient != TM_NONE || t->lookup_gradient != TM_NONE || t->adapts != TM_NONE || t->adapter || t->shared)
        tm_text_add(out, " with company");
    if (t->trained) tm_text_add(out, " trained");
    if (t->as_stored || t->head || t->twin || t->sums || (t->fill && t->role != TM_ROLE_CONSTANT))
        tm_text_add(out, " marked");
    tm_text_add(out, "\n");
}

static void tensors_are(const tm_graph *graph, size_t from, const char *wanted)
{
    tm_text text = { 0 };
    tm_text_add(&text, "");
    for (size_t i = from; i < graph->n_tensors; i++) print_tensor(graph, (tm_tensor_id)i, &text);
    assert_string_equal(text.data, wanted);
    tm_text_fini(&text);
}

/* --- tensors ------------------------------------------------------------------------------------------------------ */

TEST(views)
{
    tm_graph *g = tm_graph_create(&tm_precision_bf16);
    char      name[] = "matrix";
    g->layer = 3;
    tm_tensor_id matrix = tm_graph_tensor(g, name, TM_ROLE_ACTIVATION, tm_shape_2(5, 12));
    name[0] = 'X'; /* names are copied */
    g->layer = -1;
    tm_graph_at(g, matrix)->space = TM_SPACE_HOST;
    tm_tensor_id flat = tm_graph_tensor_as(g, "flat", TM_ROLE_PARTIAL, tm_shape_1(60), TM_F32);
    tm_tensor_id view = tm_graph_view(g, "view", matrix, 2, 8), inner = tm_graph_view(g, "inner", view, 3, 4);
    tm_graph_view(g, "all", matrix, 0, 12);
    tm_tensor_id run = tm_graph_run(g, "run", matrix, 24, tm_shape_3(3, 2, 6));
    tm_graph_run(g, "inner run", run, 12, tm_shape_1(24));
    tm_tensor_id row = tm_graph_row(g, "row", matrix, 4);
    tm_graph_row(g, "row of a run", tm_graph_run(g, "rows", matrix, 12, tm_shape_2(4, 12)), 2);
    tm_graph_view_like(g, tm_graph_at(g, inner), tm_graph_tensor(g, "twin", TM_ROLE_STATISTIC, tm_shape_2(5, 12)));
    tm_graph_view_like(g, tm_graph_at(g, row), flat);
    assert_int_equal(tm_graph_base(g, inner), matrix);
    assert_int_equal(tm_graph_base(g, run), matrix);
    assert_int_equal(tm_graph_base(g, flat), flat);
    tensors_are(g, 0,
                "0 matrix 7 bfloat16 (5, 12) layer 3 on host\n"
                "1 flat 13 float32 (60)\n"
                "2 view 7 bfloat16 (5, 8) layer 3 of 0 from 2, rows 12 on host\n"
                "3 inner 7 bfloat16 (5, 4) layer 3 of 0 from 5, rows 12 on host\n"
                "4 all 7 bfloat16 (5, 12) layer 3 of 0 from 0, rows 0 on host\n"
                "5 run 7 bfloat16 (3, 2, 6) layer 3 of 0 from 24, rows 0 on host\n"
                "6 inner run 7 bfloat16 (24) layer 3 of 0 from 36, rows 0 on host\n"
                "7 row 7 bfloat16 (12) layer 3 of 0 from 48, rows 0 on host\n"
                "8 rows 7 bfloat16 (4, 12) layer 3 of 0 from 12, rows 0 on host\n"
                "9 row of a run 7 bfloat16 (12) layer 3 of 0 from 36, rows 0 on host\n"
                "10 twin 8 float32 (5, 12)\n"
                "11 twin.5 8 float32 (5, 4) of 10 from 5, rows 12\n"
                "12 flat.48 13 float32 (12) of 1 from 48, rows 0\n");
    tm_graph_destroy(g);
}

static double filled(const void *context, int64_t i)
{
    return ((const double *)context)[i];
}

TEST(parameters_and_constants)
{
    tm_graph *g = tm_graph_create(&tm_precision_bf16);
    char      name[] = "a";
    tm_piece  pieces[] = { { .name = name, .row = 0, .rows = 2, .std = 0.5, .begin = 4, .first = 1, .whole = 8 },
                           { .name = "b", .row = 2, .rows = 4, .mean = 1, .begin = 8, .first = 2, .whole = 8 } };
    double    values[] = { 1.5, 2.5 };
    g->layer = 2;
    tm_tensor_id w = tm_graph_parameter(g, "w", tm_shape_2(6, 64), pieces, 2);
    tm_cut       cut = { .axes = 4, .rank = 1, .ranks = 2, .column = 64, .whole = tm_shape_2(16, 128) };
    tm_graph_cut(g, w, &cut);
    tm_tensor_id c = tm_graph_constant(g, "c", tm_shape_1(2), filled, values, sizeof values);
    tm_tensor_id none = tm_graph_constant(g, "none", tm_shape_1(1), filled, NULL, 0);
    name[0] = 'X', pieces[1].rows = 9, cut.ranks = 7, values[1] = 7; /* all of it is copied */
    tensors_are(g, 0,
                "0 w 0 float32 (6, 64) layer 2 a:0+2 b:2+4 cut 4:1/2 column 64 of (16, 128) trained\n"
                "1 c 4 float32 (2) layer 2\n"
                "2 none 4 float32 (1) layer 2\n");
    assert_true(tm_graph_at(g, c)->fill(tm_graph_at(g, c)->fill_context, 1) > 2.4);
    assert_true(tm_graph_at(g, c)->fill(tm_graph_at(g, c)->fill_context, 1) < 2.6);
    assert_true(tm_graph_at(g, none)->fill == filled);
    assert_true(tm_graph_at(g, w)->pieces[0].std > 0.4 && tm_graph_at(g, w)->pieces[1].mean > 0.9);
    assert_int_equal(tm_graph_at(g, w)->pieces[1].first, 2);
    tm_shared part = { .flat = TM_NONE }, away = { .flat = 0 };
    assert_false(tm_graph_elsewhere(tm_graph_at(g, w)));
    tm_graph_at(g, w)->shared = &part;
    assert_false(tm_graph_elsewhere(tm_graph_at(g, w)));
    tm_graph_at(g, w)->shared = &away;
    assert_true(tm_graph_elsewhere(tm_graph_at(g, w)));
    tm_graph_destroy(g);
}

/* Groups of NF4 end with a piece where that is whole groups. */
TEST(runs_of_groups)
{
    tm_graph *g = tm_graph_create(&tm_precision_f32);
    tm_piece  even[] = { { .name = "a", .row = 0, .rows = 2 }, { .name = "b", .row = 2, .rows = 4 } };
    tm_piece  odd[] = { { .name = "a", .row = 0, .rows = 1 }, { .name = "b", .row = 1, .rows = 3 } };
    int64_t   group = TM_NF4_GROUP;
    tm_tensor w = *tm_graph_at(g, tm_graph_parameter(g, "w", tm_shape_2(6, group), even, 2));
    tm_tensor v = *tm_graph_at(g, tm_graph_parameter(g, "v", tm_shape_2(4, group / 2), odd, 2));
    assert_int_equal(tm_nf4_run_end(&w, 0), 2 * group);
    assert_int_equal(tm_nf4_run_end(&w, group), 2 * group);
    assert_int_equal(tm_nf4_run_end(&w, 2 * group), 6 * group);
    assert_int_equal(tm_nf4_run_end(&w, 5 * group), 6 * group);
    assert_int_equal(tm_nf4_run_end(&v, 0), 2 * group); /* a ends within a group */
    tm_graph_destroy(g);
}

/* --- parts of parameters ------------------------------------------------------------------------------------------ */

/* --- nodes -------------------------------------------------------------------------------------------------------- */
