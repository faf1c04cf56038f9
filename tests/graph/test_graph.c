/* SPDX-License-Identifier: Apache-2.0 */
/* What a graph notes down: every member of tensors, views, parameters, parts and nodes, compared as text. */
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

static const char *format_name(tm_dtype dtype)
{
    return dtype == TM_DTYPE_COUNT ? "none" : tm_dtype_name(dtype);
}

static void print_cut(const tm_tensor *t, tm_text *out)
{
    char      shape[96];
    tm_arena *arena = tm_arena_create();
    tm_tensor whole = tm_cut_whole(arena, t);
    tm_text_printf(out, "by columns %d, between %d, blocks %s %s; runs", tm_cut_by_columns(t), tm_cut_between_pieces(t),
                   format_name(tm_cut_blocked(t, TM_NF4_BLOCKS)), format_name(tm_cut_blocked(t, TM_E4M3_BLOCKS)));
    for (int64_t k = 0; k < tm_cut_runs(t) && k < 6; k++) {
        tm_cut_run run = tm_cut_run_at(t, k);
        tm_text_printf(out, " %lld=%lld+%lld", (long long)run.here, (long long)run.whole, (long long)run.n);
    }
    tm_text_printf(out, "; whole %s %s", tm_dtype_name(whole.dtype), tm_shape_text(shape, whole.shape));
    for (int p = 0; p < whole.n_pieces; p++) {
        const tm_piece *piece = &whole.pieces[p];
        tm_text_printf(out, " %s:%lld+%lld %lld %lld/%lld", piece->name, (long long)piece->row, (long long)piece->rows,
                       (long long)piece->begin, (long long)piece->first, (long long)piece->whole);
    }
    assert_null(whole.cut);
    tm_text_add(out, "\n");
    tm_arena_destroy(arena);
}

/* Rows of each piece; two runs of one; columns; whole pieces. */
TEST(parts_and_wholes)
{
    tm_graph *g = tm_graph_create(&tm_precision_f32);
    tm_text   text = { 0 };
    tm_piece  rows[] = { { .name = "a", .row = 0, .rows = 2, .begin = 2, .first = 2, .whole = 4 },
                         { .name = "b", .row = 2, .rows = 3, .begin = 7, .first = 3, .whole = 6 } };
    tm_piece  two[] = { { .name = "a", .row = 0, .rows = 1, .begin = 1, .first = 1, .whole = 4 },
                        { .name = "a", .row = 1, .rows = 1, .begin = 3, .first = 3, .whole = 4 } };
    tm_piece  columns[] = { { .name = "a", .row = 0, .rows = 1, .begin = 0 },
                            { .name = "b", .row = 1, .rows = 2, .begin = 1 } };
    tm_piece  between[] = { { .name = "c", .row = 0, .rows = 2, .begin = 4 },
                            { .name = "d", .row = 2, .rows = 2, .begin = 6 } };
    const struct {
        const tm_piece *pieces;
        tm_shape        shape;
        tm_cut          cut;
    } cases[] = {
        { rows, { 2, { 5, 64 } }, { .axes = 1, .rank = 1, .ranks = 2, .whole = { 2, { 10, 64 } } } },
        { two, { 2, { 2, 16 } }, { .axes = 1, .rank = 1, .ranks = 2, .whole = { 2, { 4, 16 } } } },
        { columns, { 2, { 3, 64 } }, { .axes = 1, .rank = 1, .ranks = 2, .column = 64, .whole = { 2, { 3, 128 } } } },
        { columns, { 2, { 3, 8 } }, { .axes = 1, .rank = 1, .ranks = 2, .column = 8, .whole = { 2, { 3, 16 } } } },
        { between, { 2, { 4, 64 } }, { .axes = 1, .rank = 1, .ranks = 2, .whole = { 2, { 8, 64 } } } },
        { between, { 2, { 4, 8192 } }, { .axes = 1, .rank = 1, .ranks = 2, .whole = { 2, { 8, 8192 } } } }
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tm_tensor_id w = tm_graph_parameter(g, "w", cases[i].shape, cases[i].pieces, 2);
        tm_graph_cut(g, w, &cases[i].cut);
        print_cut(tm_graph_at(g, w), &text);
    }
    assert_string_equal(
        text.data,
        "by columns 0, between 0, blocks nf4_scaled float8_e4m3_blocks; runs 0=128+128 128=448+192; whole float32 (10, "
        "64) a:0+4 0 0/0 b:4+6 0 0/0\n"
        "by columns 0, between 0, blocks none none; runs 0=16+16 16=48+16; whole float32 (4, 16) a:0+4 0 0/0\n"
        "by columns 1, between 0, blocks nf4_scaled float8_e4m3_blocks; runs 0=64+64 64=192+64 128=320+64; whole "
        "float32 "
        "(3, 128) a:0+1 0 0/0 b:1+2 0 0/0\n"
        "by columns 1, between 0, blocks none none; runs 0=8+8 8=24+8 16=40+8; whole float32 (3, 16) a:0+1 0 0/0 b:1+2 "
        "0 "
        "0/0\n"
        "by columns 0, between 1, blocks none float8_e4m3_blocks; runs 0=256+128 128=384+128; whole float32 (8, 64) "
        "c:4+2 "
        "0 0/0 d:6+2 0 0/0\n"
        "by columns 0, between 1, blocks nf4_blocks float8_e4m3_blocks; runs 0=32768+16384 16384=49152+16384; whole "
        "float32 (8, 8192) c:4+2 0 0/0 d:6+2 0 0/0\n");
    tm_text_fini(&text);
    tm_graph_destroy(g);
}

/* --- nodes -------------------------------------------------------------------------------------------------------- */

static void print_id(tm_tensor_id id, tm_text *out)
{
    if (id == TM_NONE)
        tm_text_add(out, " -");
    else
        tm_text_printf(out, " %d", id);
}

static void print_node(const tm_node *n, tm_text *out)
{
    tm_text_printf(out, "%s", tm_op_get(n->op)->name);
    for (int i = 0; i < TM_MAX_IN; i++) print_id(n->in[i], out);
    tm_text_add(out, " ->");
    for (int k = 0; k < TM_MAX_OUT; k++) print_id(n->out[k], out);
    tm_text_printf(out, ", %zu bytes, adds %u, rounded %u, phase %d, layer %d, module '%s', %d keep %d stream %d\n",
                   n->attr_bytes, n->accumulate, n->rounded, (int)n->phase, n->layer, n->module, n->recomputed,
                   (int)n->keep, (int)n->stream);
}

static void print_call(const tm_call *call, tm_text *out)
{
    tm_text_printf(out, "%s, adds %u, rounded %u, %d threads:", call->op->name, call->accumulate, call->rounded,
                   call->threads);
    for (int i = 0; i < TM_MAX_IN + TM_MAX_OUT; i++) {
        char           shape[96];
        const tm_view *view = i < TM_MAX_IN ? &call->in[i] : &call->out[i - TM_MAX_IN];
        assert_null(view->data);
        if (view->shape.rank < 0)
            tm_text_add(out, " -");
        else
            tm_text_printf(out, " %s%s/%lld", tm_dtype_name(view->dtype), tm_shape_text(shape, view->shape),
                           (long long)view->ld);
    }
    tm_text_add(out, "\n");
}

TEST(nodes)
{
    tm_graph    *g = tm_graph_create(&tm_precision_bf16);
    tm_text      text = { 0 };
    char         module[] = "block";
    tm_call      call;
    tm_tensor_id x = tm_graph_tensor(g, "x", TM_ROLE_ACTIVATION, tm_shape_2(5, 12)),
                 view = tm_graph_view(g, "v", x, 0, 8);
    tm_tensor_id w = tm_graph_tensor(g, "w", TM_ROLE_WEIGHT_COPY, tm_shape_2(3, 8));
    tm_tensor_id v = tm_graph_tensor(g, "scale", TM_ROLE_PARAMETER, tm_shape_1(3));
    tm_segment  *first = tm_graph_segment(g, "first"), *second = tm_graph_segment(g, "second");
    assert_ptr_equal(g->segment, second);
    assert_string_equal(first->name, "first");
    tm_tensor_id   in[TM_MAX_IN] = { view, w, TM_NONE, TM_NONE }, out[TM_MAX_OUT] = { TM_NONE };
    const tm_node *node = tm_graph_add(g, TM_OP_linear, NULL, 0, in, out, 0);
    print_node(node, &text);
    g->phase = TM_PHASE_BACKWARD, g->layer = 4, g->module = module, g->keep = TM_KEEP_NOT;
    tm_norm_attr norm = { .eps = 0.25 };
    tm_tensor_id from[TM_MAX_IN] = { out[0], v }, to[TM_MAX_OUT] = { TM_NONE, TM_NONE };
    node = tm_graph_add(g, TM_OP_rmsnorm, &norm, sizeof norm, from, to, 0);
    norm.eps = 1, module[0] = 'X'; /* copied */
    assert_true(((const tm_norm_attr *)node->attr)->eps < 0.3);
    print_node(node, &text);
    tm_tensor_id a[TM_MAX_IN] = { to[0], out[0] }, given[TM_MAX_OUT] = { out[0] };
    node = tm_graph_add(g, TM_OP_add, NULL, 0, a, given, 1);
    print_node(node, &text);
    tm_node_call(g, node, &call);
    print_call(&call, &text);
    second->nodes[0].rounded = 2;
    tm_node_call(g, &second->nodes[0], &call);
    print_call(&call, &text);
    assert_int_equal(first->n_nodes, 0);
    assert_int_equal(second->n_nodes, 3);
    assert_string_equal(
        text.data,
        "linear 1 2 - - - - - - - - - - -> 4 - - - - -, 0 bytes, adds 0, rounded 0, phase 0, layer -1, module '', 0 "
        "keep 0 stream 0\n"
        "rmsnorm 4 3 - - - - - - - - - - -> 5 6 - - - -, 8 bytes, adds 0, rounded 0, phase 1, layer 4, module "
        "'block', 0 keep 1 stream 0\n"
        "add 5 4 - - - - - - - - - - -> 4 - - - - -, 0 bytes, adds 1, rounded 0, phase 1, layer 4, module 'Xlock', 0 "
        "keep 1 stream 0\n"
        "add, adds 1, rounded 0, 1 threads: bfloat16(5, 3)/0 bfloat16(5, 3)/0 - - - - - - - - - - bfloat16(5, 3)/0 - - "
        "- - -\n"
        "linear, adds 0, rounded 2, 1 threads: bfloat16(5, 8)/12 bfloat16(3, 8)/0 - - - - - - - - - - bfloat16(5, 3)/0 "
        "- - - - -\n");
    tensors_are(g, 4,
                "4 step.linear 7 bfloat16 (5, 3)\n"
                "5 block.rmsnorm 7 bfloat16 (5, 3) layer 4\n"
                "6 block.rmsnorm.1 8 float32 (5) layer 4\n");
    tm_text_fini(&text);
    tm_graph_destroy(g);
}
