/* SPDX-License-Identifier: Apache-2.0 */
/* What is printed of a look of the microscope, as a table and as JSON, to the letter: few tensors and many, errors that
 * are equal, none that diverges, histograms of every length. */
#include "base/event.h"
#include "record/look.h"

#include "support/test.h"

#define LONG "layers.3.a.name.that.is.longer.than.the.column.of.it.is"

/* Counts of exponents from -3 on. */
static const double none[3], middle[3] = { 0, 7, 0 }, all[3] = { 1, 0, 3 };

static const tm_look_tensor tensors[] = {
    { .name = "a",
      .kind = "forward",
      .format = "float32",
      .elements = 10,
      .error = 0.5,
      .cosine = 0.9375,
      .underflow = 0.5,
      .overflow = 0.0078125,
      .amax = 1.5,
      .reference_amax = 2.5,
      .zeros = 0.25,
      .reference_zeros = 0.125,
      .exponents = middle,
      .reference_exponents = all },
    { .name = LONG,
      .kind = "backward",
      .format = "bfloat16",
      .elements = 11,
      .error = 3,
      .diverges = true,
      .exponents = none,
      .reference_exponents = middle },
    { .name = "c",
      .kind = "factor",
      .format = "bfloat16",
      .error = 0.5,
      .exponents = none,
      .reference_exponents = none },
    { .name = "d",
      .kind = "gradient",
      .format = "float32",
      .error = (double)INFINITY,
      .diverges = true,
      .exponents = none,
      .reference_exponents = none },
};

static tm_look look_at(size_t n)
{
    return (tm_look){ .format = "bfloat16",
                      .reference = "float32",
                      .loss = 2.5,
                      .reference_loss = 2.25,
                      .bound = 1.5,
                      .seconds = 0.75,
                      .tensors = tensors,
                      .n_tensors = n,
                      .first_exponent = -3,
                      .n_exponents = 3,
                      .first = n > 1 ? &tensors[1] : NULL,
                      .worst = n > 3 ? &tensors[3] : NULL };
}

#define TITLES                                                                                                         \
    "    tensor                                                          error     cosine underflow  overflow   "      \
    "largest\n"
#define A                                                                                                              \
    "    a                                                  forward   5.00e-01   0.937500       50%     0.78%  "       \
    "1.50e+00\n"
#define B                                                                                                              \
    "    layers.3.a.name.that.is.longer.than.the.column.of. backward  3.00e+00   0.000000        0%        0%  "       \
    "0.00e+00  <\n"
#define C                                                                                                              \
    "    c                                                  factor    5.00e-01   0.000000        0%        0%  "       \
    "0.00e+00\n"
#define D                                                                                                              \
    "    d                                                  gradient       inf   0.000000        0%        0%  "       \
    "0.00e+00  <\n"
#define FIRST "  first tensor exceeding the error bound of 1.5: " LONG ", relative error 3.00e+00\n"

TEST(tables_have_the_farthest)
{
    static const struct {
        size_t      n, most;
        const char *text;
    } rows[] = {
        { 4, 0, "4 tensors\n" FIRST TITLES A B C D },
        { 4, 5, "4 tensors\n" FIRST TITLES A B C D },
        { 4, 4, "4 tensors\n" FIRST TITLES A B C D },
        { 4, 3, "4 tensors\n" FIRST "  the 3 farthest, in the order of the program\n" TITLES A B D },
        { 4, 1, "4 tensors\n" FIRST "  the 1 farthest, in the order of the program\n" TITLES D },
        { 1, 1, "1 tensors\n  no tensor exceeds the error bound of 1.5\n" TITLES A },
        { 0, 1, "0 tensors\n  no tensor exceeds the error bound of 1.5\n" TITLES },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tm_look look = look_at(rows[i].n);
        tm_text out = { 0 }, wanted = { 0 };
        tm_look_print_table(&look, rows[i].most, &out);
        tm_text_printf(&wanted, "  bfloat16 beside float32: loss 2.500000 and 2.250000, %s", rows[i].text);
        assert_string_equal(out.data, wanted.data);
        tm_text_fini(&out);
        tm_text_fini(&wanted);
    }
}

/* Histograms from their first count on to the last; none where all are zero. */
TEST(json_has_all)
{
    static const char *const parts[] = {
        "\"loss\": 2.5, \"reference_loss\": 2.25, \"bound\": 1.5, \"seconds\": 0.75, \"first_divergent\": \"" LONG
        "\", \"worst\": \"d\"",
        "\"elements\": 10, \"relative_error\": 0.5, \"cosine\": 0.9375, \"underflow\": 0.5, \"overflow\": 0.0078125, "
        "\"amax\": 1.5, \"reference_amax\": 2.5, \"zeros\": 0.25, \"reference_zeros\": 0.125, \"exponents\": "
        "{\"first\": -2, \"counts\": [7]}, \"reference_exponents\": {\"first\": -3, \"counts\": [1, 0, 3]}}",
        "\"relative_error\": null", "\"exponents\": null, \"reference_exponents\": null}"
    };
    tm_look look = look_at(4);
    tm_text out = { 0 };
    tm_json json = { .out = &out };
    tm_json_open(&json, NULL, '{');
    tm_look_print_json(&look, true, &json);
    tm_json_close(&json, '}');
    for (size_t i = 0; i < 4; i++)
        if (!strstr(out.data, parts[i])) fail_msg("no '%s' in %s", parts[i], out.data);
    tm_text_fini(&out);
}
