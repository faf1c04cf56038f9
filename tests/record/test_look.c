/* SPDX-License-Identifier: Apache-2.0 */
/* What is printed of a look of the microscope, as a table and as JSON, is what was given: few tensors and many, with
 * and without one that diverges, errors that are equal, histograms of every length. */
#include "base/event.h"
#include "record/look.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Is it one of the `most` with the largest errors? Of equal ones the first; 0: all are. */
static bool is_shown(const tm_look *look, size_t i, size_t most)
{
    size_t ahead = 0;
    for (size_t k = 0; k < look->n_tensors; k++) {
        const double a = look->tensors[k].error, b = look->tensors[i].error;
        ahead += a > b || (k < i && !(a < b));
    }
    return most == 0 || ahead < most;
}

/* Equal to the last of the digits that are printed, "0.29%" to a hundredth. */
static void digits_are(const char *text, double value)
{
    char  *end;
    double is = strtod(text, &end), last = 1;
    for (const char *c = strchr(text, '.'); c && ++c < end && *c >= '0' && *c <= '9';) last /= 10;
    const char *power = strpbrk(text, "eE");
    if (power && power < end) last *= pow(10, atof(power + 1));
    if (!(fabs(is - value) <= 0.5001 * last) && !(isinf(is) && isinf(value))) fail_msg("'%s' of %g", text, value);
}

static void table_is_right(const tm_look *look, size_t most)
{
    tm_text out = { 0 };
    char    first[300], farthest[100], losses[100];
    size_t  n = look->n_tensors;
    tm_look_print_table(look, most, &out);
    snprintf(losses, sizeof losses, "  %s beside %s: loss %.6f and %.6f, %zu tensors\n", look->format, look->reference,
             look->loss, look->reference_loss, n);
    assert_int_equal(strncmp(out.data, losses, strlen(losses)), 0);
    if (look->first)
        snprintf(first, sizeof first, "\n  first tensor exceeding the error bound of %g: %s, relative error %.2e\n",
                 look->bound, look->first->name, look->first->error);
    else
        snprintf(first, sizeof first, "\n  no tensor exceeds the error bound of %g\n", look->bound);
    assert_non_null(strstr(out.data, first));
    snprintf(farthest, sizeof farthest, "\n  the %zu farthest, in the order of the program\n", most);
    assert_int_equal(strstr(out.data, farthest) != NULL, most > 0 && most < n);
    const char *line = strchr(strstr(out.data, "\n    tensor  ") + 1, '\n') + 1;
    for (size_t i = 0; i < n; i++) {
        const tm_look_tensor *t = &look->tensors[i];
        char                  words[8][64];
        if (!is_shown(look, i, most)) continue;
        int found = sscanf(line, "%63s %63s %63s %63s %63s %63s %63s%*[ ]%63[<]", words[0], words[1], words[2],
                           words[3], words[4], words[5], words[6], words[7]);
        assert_int_equal(found, 7 + t->diverges);
        assert_int_equal(strncmp(words[0], t->name, strlen(words[0])), 0);
        assert_true(strlen(words[0]) == strlen(t->name) || strlen(words[0]) > 40);
        assert_string_equal(words[1], t->kind);
        const double figures[] = { t->error, t->cosine, 100 * t->underflow, 100 * t->overflow, t->amax };
        for (int k = 0; k < 5; k++) digits_are(words[2 + k], figures[k]);
        line = strchr(line, '\n') + 1;
    }
    assert_string_equal(line, "");
    tm_text_fini(&out);
}

/* From the least exponent that occurs to the largest; nothing: null. */
static void histogram_is(const json_t *is, const double *wanted)
{
    int first = 0, end = EXPONENTS;
    while (first < EXPONENTS && wanted[first] <= 0) first++;
    while (end > first && wanted[end - 1] <= 0) end--;
    assert_int_equal(json_is_null(is), first == end);
    if (first == end) return;
    const json_t *all = json_object_get(is, "counts");
    assert_int_equal(json_integer_value(json_object_get(is, "first")), first - 3);
    assert_int_equal(json_array_size(all), end - first);
    for (int i = first; i < end; i++)
        assert_true(json_number_value(json_array_get(all, (size_t)(i - first))) == wanted[i]);
}

static void number_is(const json_t *object, const char *name, double wanted)
{
    const json_t *is = json_object_get(object, name);
    if (!is || json_is_null(is) != isinf(wanted) || (isfinite(wanted) && json_number_value(is) != wanted))
        fail_msg("%s is not %g", name, wanted);
}

static void json_is_right(const tm_look *look, bool whole)
{
    tm_text out = { 0 };
    tm_json json = { .out = &out };
    tm_json_open(&json, NULL, '{');
    tm_look_print_json(look, whole, &json);
    tm_json_close(&json, '}');
    json_t *root = json_loads(out.data, 0, NULL), *all = json_object_get(root, "tensors");
    json_t *head =
        json_pack("{s:s, s:s, s:f, s:f, s:f, s:f, s:s?, s:s?, s:O}", "format", look->format, "reference",
                  look->reference, "loss", look->loss, "reference_loss", look->reference_loss, "bound", look->bound,
                  "seconds", look->seconds, "first_divergent", look->first ? look->first->name : NULL, "worst",
                  look->worst ? look->worst->name : NULL, "tensors", all);
    assert_true(root && json_equal(root, head));
    assert_int_equal(json_array_size(all), look->n_tensors);
    for (size_t i = 0; i < look->n_tensors; i++) {
        const tm_look_tensor *t = &look->tensors[i];
        const json_t         *is = json_array_get(all, i);
        assert_string_equal(json_string_value(json_object_get(is, "name")), t->name);
        assert_string_equal(json_string_value(json_object_get(is, "kind")), t->kind);
        assert_string_equal(json_string_value(json_object_get(is, "format")), t->format);
        number_is(is, "elements", (double)t->elements);
        number_is(is, "relative_error", t->error);
        number_is(is, "cosine", t->cosine);
        number_is(is, "underflow", t->underflow);
        number_is(is, "overflow", t->overflow);
        number_is(is, "amax", t->amax);
        number_is(is, "reference_amax", t->reference_amax);
        number_is(is, "zeros", t->zeros);
        number_is(is, "reference_zeros", t->reference_zeros);
        assert_int_equal(json_object_size(is), whole ? 14 : 12);
        if (!whole) continue;
        histogram_is(json_object_get(is, "exponents"), t->exponents);
        histogram_is(json_object_get(is, "reference_exponents"), t->reference_exponents);
    }
    json_decref(root), json_decref(head);
    tm_text_fini(&out);
}

TEST(looks_are_told)
{
    static const size_t mosts[] = { 0, 1, 3, 4, TENSORS - 1, TENSORS, TENSORS + 1 };
    tm_look_tensor      tensors[TENSORS];
    tm_look             look;
    make(tensors, &look);
    for (int nothing = 0; nothing < 2; nothing++) {
        for (size_t i = 0; i < sizeof mosts / sizeof *mosts; i++) table_is_right(&look, mosts[i]);
        for (int whole = 0; whole < 2; whole++) json_is_right(&look, whole);
        look.first = look.worst = NULL;
        look.n_tensors = 0;
    }
}
