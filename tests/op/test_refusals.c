/* SPDX-License-Identifier: Apache-2.0 */
/* What ops refuse beside wrong lengths (test_ops.c): inputs that are not there, recipes that do not fit. */
#include "op/quantize.h"

#include <ctype.h>

#include "support/test.h"

/* A scalar in the place of an input with axes; one axis less where there are several. Inputs "x (...)" have any axes.
 */
TEST(inputs_without_their_axes)
{
    for (int id = 0; id < TM_OP_COUNT; id++) {
        const tm_op *op = tm_op_get((tm_op_id)id);
        tm_example   example;
        for (int n = 0; op->example(n, &example); n++)
            for (int k = 0; k < op->n_in; k++)
                for (int rank = 0; rank < example.in[k].rank;
                     rank += rank + 1 < example.in[k].rank ? example.in[k].rank - 1 : 1) {
                    tm_shape in[TM_MAX_IN], out[TM_MAX_OUT];
                    memcpy(in, example.in, sizeof in);
                    memcpy(out, example.out, sizeof out);
                    in[k].rank = rank;
                    const char *why = op->infer(in, example.attr, out);
                    if (!why && !strstr(op->in_name[k], ".."))
                        fail_msg("%s, example %d: input %d with %d axes", op->name, n, k, rank);
                    if (why) assert_true(islower((unsigned char)why[0]) && strlen(why) > 15);
                }
    }
}

/* The first attribute is a length or a number of something: of none there is nothing to compute. */
TEST(nothing_is_computed_of_nothing)
{
    static const char none[] = " balance_loss balance_loss_grad fetch store grouped_linear grouped_linear_dgrad "
                               "grouped_linear_wgrad grouped_scaled_mm grouped_scaled_wgrad join split quantize "
                               "quantize_both quantize_largest quantize_made tick vocabulary_loss "
                               "vocabulary_loss_grad vocabulary_parts "; /* 0 is one of several there */
    for (int id = 0; id < TM_OP_COUNT; id++) {
        const tm_op *op = tm_op_get((tm_op_id)id);
        tm_example   example;
        char         name[64];
        int64_t      first, less = 0;
        snprintf(name, sizeof name, " %s ", op->name);
        for (int n = 0; op->example(n, &example) && example.attr_bytes >= sizeof first && !strstr(none, name); n++) {
            memcpy(&first, example.attr, sizeof first);
            if (first < 1 || first > INT32_MAX) continue;
            memcpy(example.attr, &less, sizeof less);
            if (!op->infer(example.in, example.attr, example.out)) fail_msg("%s, example %d", op->name, n);
        }
    }
}

/* What the two recipes of a factor ask of its length, and parts of it: of a matrix and of experts' rows. */
TEST(recipes_that_do_not_fit)
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
