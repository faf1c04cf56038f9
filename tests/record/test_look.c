/* SPDX-License-Identifier: Apache-2.0 */
/* What is printed of a look of the microscope, as a table and as JSON, to the letter: few tensors and many, with and
 * without one that diverges, errors that are equal, histograms of every length. After a change that is meant:
 *     TM_RECORD=1 build/release/tests/record/test_look; git diff tests/record/whole-look.txt
 */
#include "support/whole.h"

#include "base/event.h"
#include "record/look.h"

#include <math.h>
#include <stdio.h>

#include "support/test.h"

enum { TENSORS = 11, EXPONENTS = 6 };

/* None, one at either end, with gaps, all. */
static const double counts[5][EXPONENTS] = {
    { 0 }, { 7, 0, 0, 0, 0, 0 }, { 0, 0, 0, 0, 0, 3 }, { 0, 1, 0, 2, 0, 0 }, { 1, 2, 3, 4, 5, 6 }
};

static void make(tm_look_tensor tensors[TENSORS], tm_look *look)
{
    static const char *const kinds[] = { "forward", "factor", "backward", "gradient" };
    static const double      errors[TENSORS] = { 0.25, 3, 0.5, 3, 1e-9, (double)INFINITY, 0, 0.125, 4e10, 0.5, 0.0625 };
    static char              names[TENSORS][64];
    for (int i = 0; i < TENSORS; i++) {
        snprintf(names[i], sizeof names[i], "layers.%d.%s", i,
                 i == 3 ? "a.name.that.is.longer.than.the.column.of.it.is" : "x");
        tensors[i] = (tm_look_tensor){ .name = names[i],
                                       .kind = kinds[i % 4],
                                       .format = i % 2 ? "bfloat16" : "float32",
                                       .elements = 1000 + i,
                                       .error = errors[i],
                                       .cosine = 1 - 0.0625 * i,
                                       .underflow = i == 2 ? 0.5 : 0.0009765625 * i,
                                       .overflow = i == 5   ? 0.25
                                                   : i == 4 ? 0.0078125
                                                            : 0,
                                       .amax = 1.5 * i,
                                       .reference_amax = 2.5 * i,
                                       .zeros = 0.03125 * i,
                                       .reference_zeros = 0.015625 * i,
                                       .exponents = counts[i % 5],
                                       .reference_exponents = counts[(i + 1) % 5],
                                       .diverges = errors[i] >= 3 };
    }
    *look = (tm_look){ .step = 12,
                       .format = "bfloat16",
                       .reference = "float32",
                       .loss = 2.5,
                       .reference_loss = 2.25,
                       .bound = 1.5,
                       .seconds = 0.75,
                       .tensors = tensors,
                       .n_tensors = TENSORS,
                       .first_exponent = -3,
                       .n_exponents = EXPONENTS,
                       .first = &tensors[1],
                       .worst = &tensors[5] };
}

TEST(looks_are_as_recorded)
{
    static const size_t mosts[] = { 0, 1, 3, 4, TENSORS - 1, TENSORS, TENSORS + 1 };
    tm_look_tensor      tensors[TENSORS];
    tm_look             look;
    tm_text             out = { 0 };
    make(tensors, &look);
    for (size_t i = 0; i < sizeof mosts / sizeof *mosts; i++) {
        tm_text_printf(&out, "-- %zu\n", mosts[i]);
        tm_look_print_table(&look, mosts[i], &out);
    }
    for (int whole = 0; whole < 2; whole++) {
        tm_json json = { .out = &out };
        tm_json_open(&json, NULL, '{');
        tm_look_print_json(&look, whole, &json);
        tm_json_close(&json, '}');
        tm_text_add(&out, "\n");
    }
    look.first = look.worst = NULL;
    look.n_tensors = 0;
    tm_text_add(&out, "-- nothing\n");
    tm_look_print_table(&look, 8, &out);
    tm_json json = { .out = &out };
    tm_json_open(&json, NULL, '{');
    tm_look_print_json(&look, true, &json);
    tm_json_close(&json, '}');
    tm_text_add(&out, "\n");
    whole_is("tests/record/whole-look.txt", &out);
}
