/* SPDX-License-Identifier: Apache-2.0 */
#include "record/look.h"

#include "base/arena.h"

#include <math.h>
#include <stdlib.h>

static void print_histogram(tm_json *json, const char *key, const tm_look *look, const double *counts)
{
    int first = 0, end = look->n_exponents;
    while (first < end && counts[first] == 0) first++;
    while (end > first && counts[end - 1] == 0) end--;
    if (first == end) {
        tm_json_string(json, key, NULL);
        return;
    }
    tm_json_open(json, key, '{');
    tm_json_i64(json, "first", look->first_exponent + first);
    tm_json_open(json, "counts", '[');
    for (int e = first; e < end; e++) tm_json_i64(json, NULL, (int64_t)counts[e]);
    tm_json_close(json, ']');
    tm_json_close(json, '}');
}

static void print_tensor(tm_json *json, const tm_look *look, const tm_look_tensor *t, bool whole)
{
    tm_json_open(json, NULL, '{');
    tm_json_string(json, "name", t->name);
    tm_json_string(json, "kind", t->kind);
    tm_json_string(json, "format", t->format);
    tm_json_i64(json, "elements", t->elements);
    tm_json_f64(json, "relative_error", t->error);
    tm_json_f64(json, "cosine", t->cosine);
    tm_json_f64(json, "underflow", t->underflow);
    tm_json_f64(json, "overflow", t->overflow);
    tm_json_f64(json, "amax", t->amax);
    tm_json_f64(json, "reference_amax", t->reference_amax);
    tm_json_f64(json, "zeros", t->zeros);
    tm_json_f64(json, "reference_zeros", t->reference_zeros);
    if (whole) print_histogram(json, "exponents", look, t->exponents);
    if (whole) print_histogram(json, "reference_exponents", look, t->reference_exponents);
    tm_json_close(json, '}');
}

void tm_look_print_json(const tm_look *look, bool whole, tm_json *json)
{
    tm_json_string(json, "format", look->format);
    tm_json_string(json, "reference", look->reference);
    tm_json_f64(json, "loss", look->loss);
    tm_json_f64(json, "reference_loss", look->reference_loss);
    tm_json_f64(json, "bound", look->bound);
    tm_json_f64(json, "seconds", look->seconds);
    tm_json_string(json, "first_divergent", look->first ? look->first->name : NULL);
    tm_json_string(json, "worst", look->worst ? look->worst->name : NULL);
    tm_json_open(json, "tensors", '[');
    for (size_t i = 0; i < look->n_tensors; i++) print_tensor(json, look, &look->tensors[i], whole);
    tm_json_close(json, ']');
}

static int by_error(const void *a, const void *b)
{
    const tm_look_tensor *x = *(const tm_look_tensor *const *)a, *y = *(const tm_look_tensor *const *)b;
    if (x->error != y->error) return x->error > y->error ? -1 : 1;
    return x < y ? -1 : 1;
}

static int by_place(const void *a, const void *b)
{
    const tm_look_tensor *x = *(const tm_look_tensor *const *)a, *y = *(const tm_look_tensor *const *)b;
    return x < y ? -1 : 1;
}

static void print_row(const tm_look_tensor *t, tm_text *out)
{
    tm_text_printf(out, "    %-50.50s %-8s %9.2e %10.6f %8.2g%% %8.2g%% %9.2e%s\n", t->name, t->kind, t->error,
                   t->cosine, 100 * t->underflow, 100 * t->overflow, t->amax, t->diverges ? "  <" : "");
}

void tm_look_print_table(const tm_look *look, size_t most, tm_text *out)
{
    size_t                 n = look->n_tensors, shown = most > 0 && most < n ? most : n;
    const tm_look_tensor **order = tm_alloc((n + 1) * sizeof(const tm_look_tensor *));
    for (size_t i = 0; i < n; i++) order[i] = &look->tensors[i];
    if (shown < n) qsort(order, n, sizeof(const tm_look_tensor *), by_error);
    qsort(order, shown, sizeof(const tm_look_tensor *), by_place);
    tm_text_printf(out, "  %s beside %s: loss %.6f and %.6f, %zu tensors\n", look->format, look->reference, look->loss,
                   look->reference_loss, n);
    if (look->first)
        tm_text_printf(out, "  first tensor exceeding the error bound of %g: %s, relative error %.2e\n", look->bound,
                       look->first->name, look->first->error);
    else
        tm_text_printf(out, "  no tensor exceeds the error bound of %g\n", look->bound);
    if (shown < n) tm_text_printf(out, "  the %zu farthest, in the order of the program\n", shown);
    tm_text_printf(out, "    %-50s %-8s %9s %10s %9s %9s %9s\n", "tensor", "", "error", "cosine", "underflow",
                   "overflow", "largest");
    for (size_t i = 0; i < shown; i++) print_row(order[i], out);
    free(order);
}
