/* SPDX-License-Identifier: Apache-2.0 */
/* What every op says of shapes and attributes that do not fit, as recorded. After a change that is meant:
 * TM_RECORD=1 build/release/tests/op/test_refusals; git diff tests/op */
#include "op/quantize.h"
#include "support/whole.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "support/test.h"

enum { MOST = 64 };
typedef struct {
    const char *why[MOST];
    int         times[MOST], n, fine;
} reasons;

/* What is said of shapes and attributes; counted by what it is. */
static void ask(reasons *found, const tm_op *op, const tm_example *example)
{
    _Alignas(16) char attr[TM_MAX_ATTR];
    tm_shape          out[TM_MAX_OUT];
    int               k = 0;
    memcpy(out, example->out, sizeof out);
    memcpy(attr, example->attr, sizeof attr);
    const char *why = op->infer(example->in, attr, out);
    if (!why) {
        found->fine++;
        return;
    }
    while (k < found->n && strcmp(found->why[k], why) != 0) k++;
    assert_true(k < MOST);
    found->why[k] = why;
    found->times[k]++;
    if (k == found->n) found->n++;
}

static void ask_changed(reasons *found, const tm_op *op, const tm_example *example, size_t at, const void *value)
{
    tm_example other = *example;
    memcpy(other.attr + at, value, sizeof(int64_t));
    ask(found, op, &other);
}

/* Each whole number among the attributes one more or less, none, below that and far more; each other number that is not
 * 0 at the limits that such have. Those of quantize have formats among them, see recipes_that_do_not_fit. */
static void ask_attributes(reasons *found, const tm_op *op, const tm_example *example)
{
    static const double limits[] = { 0, -1, 1, 2, (double)NAN, (double)INFINITY };
    for (size_t at = 0; at + sizeof(int64_t) <= example->attr_bytes && op != &tm_op_quantize; at += sizeof(int64_t)) {
        int64_t value;
        double  number;
        memcpy(&value, example->attr + at, sizeof value);
        memcpy(&number, example->attr + at, sizeof number);
        if (value >= 0 && value <= INT32_MAX) {
            const int64_t others[] = { value - 1, value + 1, 0, -1, value + 5000 };
            for (size_t i = value < 2; i < (value == 0 ? 2 : sizeof others / sizeof others[0]); i++)
                ask_changed(found, op, example, at, &others[i]);
        } else if (fabs(number) > 1e-12 && fabs(number) < 1e12)
            for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
                ask_changed(found, op, example, at, &limits[i]);
    }
}

/* Each input absent, with an axis less or more, each axis longer or shorter; outputs of another shape; attributes. */
static void ask_all(reasons *found, const tm_op *op, const tm_example *example)
{
    ask(found, op, example);
    for (int k = 0; k < op->n_in; k++) {
        tm_example other = *example;
        other.in[k].rank = example->in[k].rank < 0 ? 1 : -1;
        if (other.in[k].rank == 1) other.in[k].n[0] = 7;
        if (other.in[k].rank < 0 && !(op->optional_in >> k & 1)) other.in[k] = (tm_shape){ .rank = 0 };
        ask(found, op, &other);
        for (int a = 0; a < example->in[k].rank; a++)
            for (int by = -1; by < 2; by += 2) {
                other = *example;
                other.in[k].n[a] += by;
                if (other.in[k].n[a] > 0) ask(found, op, &other);
            }
        other = *example;
        if (other.in[k].rank > 0) other.in[k].rank--, ask(found, op, &other);
        other = *example;
        if (other.in[k].rank >= 0 && other.in[k].rank < TM_MAX_RANK)
            other.in[k].n[other.in[k].rank++] = 2, ask(found, op, &other);
    }
    for (int o = 0; o < op->n_out; o++) {
        tm_example other = *example;
        other.out[o] = tm_shape_2(5, 3);
        ask(found, op, &other);
    }
    ask_attributes(found, op, example);
}

static void refusals_are_as_recorded(void **state)
{
    tm_text out = { 0 };
    (void)state;
    for (int id = 0; id < TM_OP_COUNT; id++) {
        const tm_op *op = tm_op_get((tm_op_id)id);
        tm_example   example;
        reasons      found = { .n = 0 };
        for (int k = 0; op->example(k, &example); k++) ask_all(&found, op, &example);
        tm_text_printf(&out, "%s: %d fine\n", op->name, found.fine);
        for (int k = 0; k < found.n; k++) tm_text_printf(&out, "  %d %s\n", found.times[k], found.why[k]);
    }
    whole_is("tests/op/refusals.txt", &out);
}

/* What the two recipes of a factor ask of its length, and parts of it: of a matrix and of experts' rows. */
static void recipes_that_do_not_fit(void **state)
{
    static const tm_quantizer
        even = { .format = TM_E4M3, .scaled = TM_SCALED_TENSOR },
        blocks = { .format = TM_E2M1, .scaled = TM_SCALED_BLOCK, .rule = TM_RULE_FLOOR, .block = 32 },
        ratios = { .format = TM_E4M3, .scaled = TM_SCALED_BLOCK, .rule = TM_RULE_RATIO_POW2, .block = 32 },
        turned = { .format = TM_E2M1, .scaled = TM_SCALED_LINE, .rotation = TM_ROTATE_16 },
        none = { .format = TM_E2M1, .rotation = TM_ROTATE_16, .rule = TM_RULE_UP, .block = 32 };
    static const char block[] = "the length must be a multiple of the block's",
                      turn[] = "a rotation needs a length that is a multiple of 16",
                      parts[] = "there must be from 1 to 8 parts", cover[] = "the parts must cover all of x",
                      columns[] = "rows of experts have no parts but columns";
    static const struct {
        tm_quantizer first, second;
        int64_t      switch_step, rows, columns, experts; /* experts 0: a matrix */
        int          down, cut_columns, n_parts, end[2];
        const char  *why;
    } rows[] = {
        { even, even, -1, 3, 5, 0, 0, 0, 1, { 3 }, NULL },
        { blocks, even, -1, 3, 64, 0, 0, 0, 1, { 3 }, NULL },
        { blocks, even, -1, 3, 65, 0, 0, 0, 1, { 3 }, block },
        { blocks, even, -1, 64, 3, 0, 1, 0, 1, { 64 }, NULL },
        { blocks, even, -1, 63, 64, 0, 1, 0, 1, { 63 }, block },
        { ratios, even, -1, 3, 65, 0, 0, 0, 1, { 3 }, NULL },
        { none, even, -1, 3, 5, 0, 0, 0, 1, { 3 }, NULL },
        { turned, even, -1, 3, 48, 0, 0, 0, 1, { 3 }, NULL },
        { turned, even, -1, 3, 40, 0, 0, 0, 1, { 3 }, turn },
        /* the second one counts where there is a switch, be it at once */
        { even, blocks, -1, 3, 65, 0, 0, 0, 1, { 3 }, NULL },
        { even, blocks, 0, 3, 65, 0, 0, 0, 1, { 3 }, block },
        { even, turned, 5, 3, 40, 0, 0, 0, 1, { 3 }, turn },
        { even, blocks, 5, 3, 64, 0, 0, 0, 1, { 3 }, NULL },
        /* parts */
        { even, even, -1, 3, 64, 0, 0, 0, 0, { 3 }, parts },
        { even, even, -1, 3, 64, 0, 0, 0, 9, { 3 }, parts },
        { even, even, -1, 3, 64, 0, 0, 0, 1, { 2 }, cover },
        { even, even, -1, 3, 64, 0, 0, 1, 1, { 3 }, cover },
        { blocks, even, -1, 3, 64, 0, 0, 1, 2, { 32, 64 }, NULL },
        { blocks, even, -1, 3, 64, 0, 0, 1, 2, { 16, 64 }, block },
        { blocks, even, -1, 64, 3, 0, 1, 0, 2, { 32, 64 }, NULL },
        { blocks, even, -1, 64, 3, 0, 1, 0, 2, { 33, 64 }, block },
        /* of experts' rows those along the rows may be of any length, but not the columns */
        { blocks, even, -1, 65, 64, 4, 0, 0, 1, { 65 }, NULL },
        { blocks, even, -1, 64, 65, 4, 0, 0, 1, { 64 }, block },
        { blocks, even, -1, 65, 64, 4, 1, 0, 1, { 65 }, NULL },
        { even, blocks, 5, 64, 65, 4, 0, 0, 1, { 64 }, block },
        { even, even, -1, 64, 64, 4, 0, 0, 2, { 32, 64 }, columns },
        { even, even, -1, 64, 64, 4, 0, 1, 2, { 32, 64 }, NULL },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tm_quantize_attr attr = { .recipe = { rows[i].first, rows[i].second },
                                  .switch_step = rows[i].switch_step,
                                  .down = rows[i].down,
                                  .cut_columns = rows[i].cut_columns,
                                  .n_parts = rows[i].n_parts,
                                  .end = { rows[i].end[0], rows[i].end[1] } };
        tm_shape         in[TM_MAX_IN], out[TM_MAX_OUT];
        for (int k = 0; k < TM_MAX_IN; k++) in[k].rank = -1;
        for (int k = 0; k < TM_MAX_OUT; k++) out[k].rank = -1;
        in[0] = tm_shape_2(rows[i].rows, rows[i].columns);
        if (rows[i].experts) in[TM_QUANTIZE_OFFSETS] = tm_shape_1(rows[i].experts + 1);
        const char *why = tm_op_quantize.infer(in, &attr, out);
        if (!why != !rows[i].why || (why && strcmp(why, rows[i].why) != 0))
            fail_msg("row %zu: '%s', wanted '%s'", i, why ? why : "", rows[i].why ? rows[i].why : "");
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(refusals_are_as_recorded),
    cmocka_unit_test(recipes_that_do_not_fit),
};

TM_TESTS(tests, NULL, NULL)
