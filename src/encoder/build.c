/* SPDX-License-Identifier: Apache-2.0 */
/* encoder/build.c - what builders share: parameters that remember where the files have them, inputs, nodes. */
#include "encoder/kind.h"

#include <stdarg.h>
#include <stdio.h>

static const char *vformat(tm_graph *graph, const char *format, va_list args) __attribute__((format(printf, 2, 0)));
static const char *vformat(tm_graph *graph, const char *format, va_list args)
{
    char name[256];
    vsnprintf(name, sizeof name, format, args);
    return tm_arena_text(graph->arena, name);
}

static void note(tm_frozen_program *p, const tm_frozen_weight *weight)
{
    p->weights = tm_grow(p->weights, &p->capacity, p->n_weights, sizeof *p->weights);
    p->weights[p->n_weights++] = *weight;
}

static tm_frozen_weight weight_like(tm_shape shape, const char *name)
{
    tm_frozen_weight weight = { .name = name, .rank = shape.rank };
    for (int i = 0; i < shape.rank; i++) weight.n[i] = shape.n[i];
    return weight;
}

static tm_tensor_id declare(tm_frozen_program *p, const char *name, tm_shape shape)
{
    tm_piece piece = { .name = name, .rows = tm_shape_elements(shape) / tm_piece_row(shape) };
    return tm_graph_parameter(p->graph, name, shape, &piece, 1);
}

tm_tensor_id tm_frozen_parameter(tm_frozen_program *p, tm_shape shape, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const char *name = vformat(p->graph, format, args);
    va_end(args);
    tm_frozen_weight weight = weight_like(shape, name);
    weight.parameter = declare(p, name, shape);
    note(p, &weight);
    return weight.parameter;
}

tm_tensor_id tm_frozen_fused(tm_frozen_program *p, int64_t rows, int64_t columns, const char *prefix,
                             const char *const *names, int n, const char *suffix)
{
    tm_shape     one = columns ? tm_shape_2(rows, columns) : tm_shape_1(rows);
    tm_shape     all = columns ? tm_shape_2(n * rows, columns) : tm_shape_1(n * rows);
    tm_piece     pieces[4];
    const char  *full = tm_arena_format(p->graph->arena, "%s%s", prefix, names[0]);
    tm_tensor_id id;
    TM_ASSERT(n <= 4);
    for (int i = 0; i < n; i++) {
        const char *name = tm_arena_format(p->graph->arena, "%s%s%s", prefix, names[i], suffix);
        if (i > 0) full = tm_arena_format(p->graph->arena, "%s+%s", full, names[i]);
        pieces[i] = (tm_piece){ .name = name, .row = i * rows, .rows = rows };
    }
    id = tm_graph_parameter(p->graph, tm_arena_format(p->graph->arena, "%s%s", full, suffix), all, pieces, n);
    for (int i = 0; i < n; i++) {
        tm_frozen_weight weight = weight_like(one, pieces[i].name);
        weight.parameter = id;
        weight.first = i * tm_shape_elements(one);
        note(p, &weight);
    }
    return id;
}

void tm_frozen_qkv(tm_frozen_program *p, const char *prefix, const char *const names[3], int64_t out, int64_t in,
                   bool biased, tm_tensor_id x, tm_tensor_id parts[3])
{
    tm_tensor_id w = tm_frozen_fused(p, out, in, prefix, names, 3, ".weight");
    tm_tensor_id b = biased ? tm_frozen_fused(p, out, 0, prefix, names, 3, ".bias") : TM_NONE;
    tm_tensor_id qkv = tm_frozen_emit(p, TM_OP_linear, NULL, 0, x, w, b, TM_NONE);
    for (int k = 0; k < 3; k++)
        parts[k] =
            tm_graph_view(p->graph, tm_arena_format(p->graph->arena, "%s%s", prefix, names[k]), qkv, k * out, out);
}

tm_tensor_id tm_frozen_reordered(tm_frozen_program *p, tm_shape shape, const char *name, int rank, const int64_t *n,
                                 int64_t (*from)(const tm_frozen_weight *weight, int64_t i))
{
    tm_frozen_weight weight = { .name = tm_arena_text(p->graph->arena, name), .rank = rank, .from = from };
    int64_t          elements = 1;
    for (int i = 0; i < rank; i++) elements *= weight.n[i] = n[i];
    TM_ASSERT(elements == tm_shape_elements(shape));
    weight.parameter = declare(p, weight.name, shape);
    note(p, &weight);
    return weight.parameter;
}

tm_tensor_id tm_frozen_field(tm_frozen_program *p, int number, const char *name, tm_shape shape, tm_dtype dtype)
{
    TM_ASSERT(number < TM_FROZEN_FIELDS);
    return p->field[number] = tm_graph_tensor_as(p->graph, name, TM_ROLE_INPUT, shape, dtype);
}

tm_tensor_id tm_frozen_emit(tm_frozen_program *p, tm_op_id op, const void *attr, size_t attr_bytes, tm_tensor_id a,
                            tm_tensor_id b, tm_tensor_id c, tm_tensor_id d)
{
    tm_tensor_id in[TM_MAX_IN] = { a, b, c, d }, out[TM_MAX_OUT];
    for (int i = 4; i < TM_MAX_IN; i++) in[i] = TM_NONE;
    for (int k = 0; k < TM_MAX_OUT; k++) out[k] = TM_NONE;
    tm_graph_add(p->graph, op, attr, attr_bytes, in, out, 0);
    return out[0];
}

void tm_frozen_module(tm_frozen_program *p, int layer, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    p->graph->layer = layer;
    p->graph->module = vformat(p->graph, format, args);
    va_end(args);
}
