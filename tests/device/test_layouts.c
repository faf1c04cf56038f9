/* SPDX-License-Identifier: Apache-2.0 */
/* Where things lie: on every example, kernels of each instruction set read and write the right elements of operands whose
 * rows are apart by three more than their columns, with NaN between them, and of heads, positions and places inside rows.
 * Judged by the op's reference, which gets the same layout, with a bound that no rounding reaches and no misplaced element
 * keeps to; equal bits for 1 to 4 threads and for AVX2 and AVX-512. Rounding is judged elsewhere. */
#include "kernel_test.h"

#include "op/describe.h"

enum { GAP = 3, SEED = 11 };

typedef struct {
    const tm_op *op;
    isa_table    tables[3];
    int          n_tables;
} subject;

/* A call on an example in one format (float64 for the reference); strided operands apart. */
static tm_call call_of(const tm_op *op, const tm_example *example, bool strided, bool reference)
{
    tm_call  call = { .op = op, .attr = example->attr_bytes ? example->attr : NULL, .threads = 1 };
    tm_shape out[TM_MAX_OUT];
    memcpy(out, example->out, sizeof out);
    assert_null(op->infer(example->in, call.attr, out));
    for (int k = 0; k < TM_MAX_IN + TM_MAX_OUT; k++) {
        bool     input = k < TM_MAX_IN;
        int      o = k - TM_MAX_IN;
        tm_view *view = input ? &call.in[k] : &call.out[o];
        *view = (tm_view){ .shape = input ? example->in[k] : out[o] };
        if ((input ? k >= op->n_in : o >= op->n_out) || view->shape.rank < 0) {
            view->shape.rank = -1;
            continue;
        }
        view->dtype = input && example->role[k] == TM_ROLE_INPUT ? TM_I32 : reference ? TM_F64 : TM_F32;
        int64_t columns = view->shape.n[view->shape.rank - 1], count = tm_shape_elements(view->shape);
        bool    apart = strided && ((input ? op->strided_in >> k : op->strided_out >> o) & 1u);
        int64_t ld = columns + (apart ? GAP : 0);
        size_t  bytes = (size_t)(count / columns * ld) * tm_dtype_bytes(view->dtype);
        if (apart) view->ld = ld;
        view->data = malloc(bytes);
        assert_non_null(view->data);
        memset(view->data, 0xff, bytes);
        for (int64_t i = 0; input && i < count; i++) {
            double value = tm_example_value(example, k, i, SEED);
            if (view->dtype == TM_I32) ((int32_t *)view->data)[i] = (int32_t)value;
            if (view->dtype != TM_I32) tm_value_set(view->data, view->dtype, i / columns * ld + i % columns, (double)(float)value);
        }
    }
    return call;
}
static void call_free(tm_call *call)
{
    for (int k = 0; k < TM_MAX_IN; k++) free(call->in[k].data);
    for (int k = 0; k < TM_MAX_OUT; k++) free(call->out[k].data);
}

static double element(const tm_view *view, int64_t r, int64_t c)
{
    return tm_value_get(view->data, view->dtype, r * tm_view_ld(view) + c);
}

static void compare(const tm_call *have, const tm_call *want, const char *isa, int number)
{
    for (int k = 0; k < TM_MAX_OUT; k++) {
        const tm_view *view = &want->out[k];
        if (!tm_view_present(view)) continue;
        int64_t columns = view->shape.n[view->shape.rank - 1], rows = tm_shape_elements(view->shape) / columns;
        double  largest = 0;
        for (int64_t i = 0; i < rows * columns; i++) largest = fmax(largest, fabs(element(view, i / columns, i % columns)));
        for (int64_t i = 0; i < rows * columns; i++) {
            double x = element(&have->out[k], i / columns, i % columns), y = element(view, i / columns, i % columns);
            if (!(fabs(x - y) <= 1e-4 * largest))
                fail_msg("%s/%s, example %d, output %d, row %lld, column %lld: %.9g, wanted %.9g", want->op->name, isa,
                         number, k, (long long)(i / columns), (long long)(i % columns), x, y);
        }
        for (int64_t r = 0; have->out[k].ld && r < rows; r++)
            for (int64_t c = columns; c < have->out[k].ld; c++)
                if (!isnan(element(&have->out[k], r, c)))
                    fail_msg("%s/%s, example %d, output %d: wrote between its rows", want->op->name, isa, number, k);
    }
}

static void same_bits(const tm_call *a, const tm_call *b, int number)
{
    for (int k = 0; k < TM_MAX_OUT; k++) {
        if (!tm_view_present(&a->out[k])) continue;
        int64_t rows = tm_shape_elements(a->out[k].shape) / a->out[k].shape.n[a->out[k].shape.rank - 1];
        if (memcmp(a->out[k].data, b->out[k].data, (size_t)(rows * tm_view_ld(&a->out[k])) * sizeof(float)) != 0)
            fail_msg("%s, example %d, output %d: other bits", a->op->name, number, k);
    }
}

static int check_op(const subject *s)
{
    tm_example example;
    int        number = 0;
    for (; s->op->example(number, &example); number++) {
        tm_call want = call_of(s->op, &example, true, true), first = { .op = NULL };
        s->op->reference(&want);
        for (int t = 0; t < s->n_tables; t++) {
            if (!isa_available(s->tables[t].isa)) continue;
            for (int threads = 1; threads <= 4; threads++) {
                tm_call have = call_of(s->op, &example, true, false);
                call_run(kernel_find(s->tables[t].kernels, tm_op_id_of(s->op)), &have, threads);
                compare(&have, &want, s->tables[t].isa, number);
                bool fused = strcmp(s->tables[t].isa, "base") != 0;
                if (fused && first.op) same_bits(&have, &first, number);
                if (fused && !first.op)
                    first = have;
                else
                    call_free(&have);
            }
        }
        if (first.op) call_free(&first);
        call_free(&want);
    }
    return number;
}

#define SUBJECT(name, family) { &tm_op_##name, ISA_TABLES(family), COUNT(((isa_table[])ISA_TABLES(family))) }

static void operands_lie_where_they_are_said_to_lie(void **state)
{
    (void)state;
    static const subject subjects[] = {
        SUBJECT(add, pointwise),           SUBJECT(fill, pointwise),          SUBJECT(rope, pointwise),
        SUBJECT(rope_grad, pointwise),     SUBJECT(embedding, embedding),     SUBJECT(embedding_grad, embedding),
        SUBJECT(head_norm, head_norm),     SUBJECT(head_norm_grad, head_norm), SUBJECT(attention, attention),
        SUBJECT(attention_grad, attention),
    };
    for (int i = 0; i < COUNT(subjects); i++) assert_true(check_op(&subjects[i]) >= 3);
    for (int id = 0; id < TM_OP_COUNT; id++) { /* none is forgotten */
        const tm_op *op = tm_op_get((tm_op_id)id);
        bool         tested = !op->strided_in && !op->strided_out;
        for (int i = 0; i < COUNT(subjects); i++) tested = tested || subjects[i].op == op;
        if (!tested) fail_msg("%s takes views and is not tested with any", op->name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(operands_lie_where_they_are_said_to_lie) };
    return cmocka_run_group_tests_name("device: layouts", tests, NULL, NULL);
}
