/* SPDX-License-Identifier: Apache-2.0 */
/* The whole row of every op, and all its examples, as they were looked at and recorded: formats, shapes, attributes,
 * first values, costs, roundings. tests/op/tables.txt has a digest for each op; what it is of is printed where it
 * differs. After a change that is meant:
 *     TM_RECORD=1 build/release/tests/op/test_tables; git diff tests/op/tables.txt
 */
#include "base/hash.h"
#include "base/text.h"
#include "graph/graph.h"
#include "op/op.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

static const char *const records = "tests/op/tables.txt";

static void add_shape(tm_text *out, tm_shape shape)
{
    if (shape.rank < 0) tm_text_add(out, " -");
    for (int i = 0; i < shape.rank; i++) tm_text_printf(out, "%s%lld", i ? "x" : " ", (long long)shape.n[i]);
}

static void add_row(tm_text *out, const tm_op *op)
{
    tm_text_printf(out, "%s: %s\n%s %d, %d -> %d, optional %u %u, inplace %u, stored %u, strided %u %u, bytes %u %u\n",
                   op->name, op->formula, op->group, op->stream, op->n_in, op->n_out, op->optional_in, op->optional_out,
                   op->inplace, op->any_dtype_in, op->strided_in, op->strided_out, op->byte_in, op->byte_out);
    tm_text_printf(out, "vector %g, cheap %d, state %d, gradient %d, rounding %d, %s; %s\n", op->vector, op->cheap,
                   op->state, op->gradient != NULL, op->rounding != NULL, op->no_fast_kernel ? op->no_fast_kernel : "",
                   op->attributes ? op->attributes : "");
    for (int i = 0; i < op->n_in; i++) tm_text_printf(out, "in %s\n", op->in_name[i] ? op->in_name[i] : "-");
    for (int i = 0; i < op->n_out; i++)
        tm_text_printf(out, "out %s %d\n", op->out_name[i] ? op->out_name[i] : "-", op->out_role[i]);
}

static void add_input(tm_text *out, const tm_example *example, int k)
{
    int64_t n = example->in[k].rank < 0 ? 0 : tm_shape_elements(example->in[k]);
    tm_text_printf(out, "in %d:", k);
    add_shape(out, example->in[k]);
    tm_text_printf(out, ", role %d, limit %lld, %.9g +- %.9g, whole %d:", example->role[k],
                   (long long)example->limit[k], example->offset[k], example->scale[k], example->whole[k]);
    for (int64_t i = 0; i < n && i < 4; i++) tm_text_printf(out, " %.6g", tm_example_value(example, k, i, 7));
    tm_text_add(out, "\n");
}

/* As a step of a precision runs it, writing its outputs or adding to them. */
static void add_call(tm_text *out, const tm_op *op, const tm_example *example, const tm_precision *precision)
{
    tm_call call = tm_example_call(op, example, precision);
    for (int adds = 0; adds < 2; adds++) {
        call.accumulate = adds ? (1U << op->n_out) - 1 : 0;
        tm_cost cost = op->cost(&call);
        tm_text_printf(out, "%.12g flops, %.12g bytes, %.12g vector, %.12g wire\n", cost.flops, cost.bytes, cost.vector,
                       cost.wire);
    }
    call.accumulate = 0;
    for (int k = 0; k < op->n_out; k++) {
        tm_text_printf(out, "out %d:", k);
        add_shape(out, call.out[k].shape);
        tm_text_printf(out, " %d", call.out[k].dtype);
        if (op->rounding && tm_view_present(&call.out[k])) {
            tm_rounding r = op->rounding(&call, k);
            tm_text_printf(out, ", %.12g terms, %.12g stores, narrow %d", r.terms, r.stores, r.narrow);
        }
        tm_text_add(out, "\n");
    }
}

static tm_text everything(const tm_op *op, int *examples)
{
    tm_text    text = { 0 };
    tm_example example;
    add_row(&text, op);
    for (*examples = 0; op->example(*examples, &example); ++*examples) {
        tm_text_printf(&text, "example %d, ignored %lld, attributes", *examples, (long long)example.ignored_every);
        for (size_t i = 0; i < example.attr_bytes; i++) tm_text_printf(&text, " %d", (unsigned char)example.attr[i]);
        tm_text_add(&text, ", given");
        for (int k = 0; k < op->n_out; k++) add_shape(&text, example.out[k]);
        tm_text_add(&text, "\n");
        for (int k = 0; k < op->n_in; k++) add_input(&text, &example, k);
        add_call(&text, op, &example, &tm_precision_f32);
        add_call(&text, op, &example, &tm_precision_bf16);
    }
    return text;
}

static void ops_are_as_recorded(void **state)
{
    const bool record = getenv("TM_RECORD") != NULL;
    FILE      *file = fopen(records, record ? "w" : "r");
    int        wrong = 0;
    (void)state;
    assert_non_null(file);
    for (int id = 0; id < TM_OP_COUNT; id++) {
        const tm_op *op = tm_op_get((tm_op_id)id);
        int          n;
        tm_text      text = everything(op, &n);
        char         line[128], recorded[128] = "";
        snprintf(line, sizeof line, "%s %d examples %016llx\n", op->name, n,
                 (unsigned long long)tm_hash(text.data, text.length));
        if (record) {
            fputs(line, file);
        } else if (!fgets(recorded, sizeof recorded, file) || strcmp(recorded, line) != 0) {
            print_message("%s\nrecorded: %snow:      %s", text.data, recorded, line);
            wrong++;
        }
        tm_text_fini(&text);
    }
    assert_true(record || fgetc(file) == EOF);
    fclose(file);
    if (wrong) fail_msg("%d ops are otherwise than recorded in %s", wrong, records);
}

static const struct CMUnitTest tests[] = { cmocka_unit_test(ops_are_as_recorded) };

TM_TESTS(tests, NULL, NULL)
