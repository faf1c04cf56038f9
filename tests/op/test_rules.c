/* SPDX-License-Identifier: Apache-2.0 */
/* The nodes that every gradient rule emits, as recorded: for each example of its op, of whichever inputs gradients are
 * wanted, of whichever results they come, where inputs are parts of wider tensors or are used twice, and where
 * gradients add to what is there. Of an op's first example they are written out, of the others there is a checksum.
 * After a change that is meant: TM_RECORD=1 build/release/tests/op/test_rules; git diff tests/op/rules.txt
 */
#include "base/hash.h"
#include "graph/gradient.h"
#include "support/whole.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

typedef struct {
    const tm_op      *op;
    const tm_example *example;
    unsigned          wanted, seeds; /* bits of inputs, of results */
    int               uses;
    bool              views, adds;
    tm_graph         *graph;
    tm_tensor_id      in[TM_MAX_IN];
} question;

static bool has_gradient(const tm_example *example, int k)
{
    return example->in[k].rank >= 0 &&
           (example->role[k] == TM_ROLE_PARAMETER || example->role[k] == TM_ROLE_ACTIVATION);
}

static bool has_cotangent(const tm_op *op, int k)
{
    return op->out_role[k] == TM_ROLE_ACTIVATION || (op->out_role[k] == TM_ROLE_SCALAR && k == 0);
}

/* Of a matrix that an op may read with its rows apart, some columns of a wider one. */
static tm_tensor_id make_input(const question *q, int k)
{
    tm_shape shape = q->example->in[k];
    tm_role  role = q->example->role[k];
    if (shape.rank < 0) return TM_NONE;
    if (role == TM_ROLE_PARAMETER) {
        tm_piece     piece = { .name = "w", .rows = tm_shape_elements(shape) / tm_piece_row(shape) };
        tm_tensor_id id = tm_graph_parameter(q->graph, "w", shape, &piece, 1);
        tm_graph_at(q->graph, id)->trained = q->wanted >> k & 1U;
        return id;
    }
    if (!q->views || shape.rank != 2 || !(q->op->strided_in >> k & 1U) || role != TM_ROLE_ACTIVATION)
        return tm_graph_tensor(q->graph, "x", role, shape);
    tm_tensor_id base = tm_graph_tensor(q->graph, "wide", role, tm_shape_2(shape.n[0], shape.n[1] + 5));
    return tm_graph_view(q->graph, "part", base, 2, shape.n[1]);
}

static void add_tensor(tm_text *out, const tm_graph *graph, tm_tensor_id id)
{
    if (id == TM_NONE) {
        tm_text_add(out, " -");
        return;
    }
    const tm_tensor *t = tm_graph_at(graph, id);
    tm_text_printf(out, " %d", id);
    if (t->base != TM_NONE) tm_text_printf(out, "(%d+%lld)", t->base, (long long)t->offset);
    tm_text_printf(out, ":%d %s", t->role, tm_dtype_name(t->dtype));
}

/* Attributes that are not those of the op itself by a checksum. */
static void add_nodes(tm_text *out, const question *q)
{
    const tm_segment *segment = q->graph->segment;
    for (size_t i = 0; i < segment->n_nodes; i++) {
        const tm_node *n = &segment->nodes[i];
        const tm_op   *op = tm_op_get(n->op);
        tm_text_printf(out, " | %s", op->name);
        for (int k = 0; k < op->n_in; k++) add_tensor(out, q->graph, n->in[k]);
        tm_text_add(out, " ->");
        for (int k = 0; k < op->n_out; k++) add_tensor(out, q->graph, n->out[k]);
        if (n->accumulate) tm_text_printf(out, " adds %x", n->accumulate);
        if (n->phase != TM_PHASE_BACKWARD) tm_text_add(out, " forward");
        bool same = n->attr_bytes == q->example->attr_bytes &&
                    (n->attr_bytes == 0 || memcmp(n->attr, q->example->attr, n->attr_bytes) == 0);
        if (!same) tm_text_printf(out, " %08x", (unsigned)tm_hash(n->attr, n->attr_bytes));
    }
}

static void ask(question *q, tm_text *out)
{
    tm_seed      seeds[2 * TM_MAX_OUT];
    tm_tensor_id inputs[TM_MAX_IN], gradients[TM_MAX_IN];
    size_t       n_inputs = 0, n_seeds = 0;
    q->graph = tm_graph_create(&tm_precision_bf16);
    for (int k = 0; k < TM_MAX_IN; k++) {
        q->in[k] = k < q->op->n_in ? make_input(q, k) : TM_NONE;
        if (q->in[k] != TM_NONE && q->wanted >> k & 1U && q->example->role[k] == TM_ROLE_ACTIVATION)
            inputs[n_inputs++] = q->in[k];
    }
    tm_graph_segment(q->graph, "training");
    for (int use = 0; use < q->uses; use++) {
        tm_tensor_id made[TM_MAX_OUT];
        for (int k = 0; k < TM_MAX_OUT; k++) {
            bool given = k < q->op->n_out && q->example->out[k].rank >= 0;
            made[k] = given ? tm_graph_tensor(q->graph, "y", q->op->out_role[k], q->example->out[k]) : TM_NONE;
        }
        tm_graph_add(q->graph, tm_op_id_of(q->op), q->example->attr, q->example->attr_bytes, q->in, made,
                     q->adds && q->op->out_role[0] == TM_ROLE_SCALAR ? 1 : 0);
        for (int k = 0; k < q->op->n_out; k++) {
            if (made[k] == TM_NONE || !(q->seeds >> k & 1U)) continue;
            tm_role  role = q->op->out_role[k];
            tm_shape shape =
                role == TM_ROLE_SCALAR ? tm_shape_1(TM_SCALAR_COUNT) : tm_graph_at(q->graph, made[k])->shape;
            seeds[n_seeds++] = (tm_seed){ made[k], tm_graph_tensor(q->graph, "cotangent", role, shape) };
        }
    }
    tm_gradient_pass(q->graph, q->adds, seeds, n_seeds, inputs, gradients, n_inputs);
    tm_text_printf(out, "  wanted %x of %x, %d uses%s%s", q->wanted, q->seeds, q->uses, q->views ? ", parts" : "",
                   q->adds ? ", adds" : "");
    add_nodes(out, q);
    tm_text_add(out, " =");
    for (size_t i = 0; i < n_inputs; i++) add_tensor(out, q->graph, gradients[i]);
    for (int k = 0; k < q->op->n_in; k++)
        if (q->in[k] != TM_NONE && q->example->role[k] == TM_ROLE_PARAMETER)
            add_tensor(out, q->graph, tm_graph_at(q->graph, q->in[k])->gradient);
    tm_text_add(out, "\n");
    tm_graph_destroy(q->graph);
}

/* One question; what was answered before for this example is not written again. */
static void ask_new(question *q, tm_text *found)
{
    tm_text line = { 0 };
    ask(q, &line);
    if (!found->data || !strstr(found->data, line.data)) tm_text_add(found, line.data);
    tm_text_fini(&line);
}

static void ask_example(const tm_op *op, const tm_example *example, tm_text *found)
{
    unsigned inputs = 0, results = 0;
    for (int k = 0; k < op->n_in; k++) inputs |= (unsigned)has_gradient(example, k) << k;
    for (int k = 0; k < op->n_out; k++) results |= (unsigned)has_cotangent(op, k) << k;
    for (int form = 0; form < 8; form++) {
        question q = { op, example, inputs, results, 1 + (form & 1), form & 2, form & 4, NULL, { 0 } };
        ask_new(&q, found);
    }
    for (int k = 0; k < op->n_in; k++)
        for (int others = 0; others < 2 && inputs >> k & 1U; others++) {
            question q = { op, example, others ? inputs & ~(1U << k) : 1U << k, results, 1, false, false, NULL, { 0 } };
            ask_new(&q, found);
        }
    for (int k = 0; k < op->n_out; k++)
        for (int others = 0; others < 2 && results >> k & 1U; others++) {
            question q = { op, example, inputs, others ? results & ~(1U << k) : 1U << k, 1, false, false, NULL, { 0 } };
            if (q.seeds) ask_new(&q, found);
        }
}

static void rules_are_as_recorded(void **state)
{
    tm_text out = { 0 };
    (void)state;
    for (int id = 0; id < TM_OP_COUNT; id++) {
        const tm_op *op = tm_op_get((tm_op_id)id);
        tm_example   example;
        if (!op->gradient) continue;
        for (int k = 0; op->example(k, &example); k++) {
            tm_text found = { 0 };
            ask_example(op, &example, &found);
            if (k == 0)
                tm_text_printf(&out, "%s\n%s", op->name, found.data);
            else
                tm_text_printf(&out, "  example %d: %016llx\n", k,
                               (unsigned long long)tm_hash(found.data, found.length));
            tm_text_fini(&found);
        }
    }
    whole_is("tests/op/rules.txt", &out);
}

static const struct CMUnitTest tests[] = { cmocka_unit_test(rules_are_as_recorded) };

TM_TESTS(tests, NULL, NULL)
