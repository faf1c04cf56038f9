/* SPDX-License-Identifier: Apache-2.0 */
/* What an adapter of the head adds to logits that the host computes, in every format of products. */
#include "support/training.h"

#include "graph/value.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { VOCAB = 11, RANK = 3 };

/* Of many digits, and of bfloat16 only some are kept. */
static double value_of(int which, int64_t i)
{
    return 0.1 * which + 0.0137 * (double)(i * 7 % 23) - 0.1;
}

static void put(tm_trainer *trainer, tm_tensor_id id, int which)
{
    float  *values;
    int64_t n = tm_shape_elements(tm_graph_at(tm_trainer_step_of(trainer)->graph, id)->shape);
    values = malloc((size_t)n * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < n; i++) values[i] = (float)value_of(which, i);
    test_tensor_write(trainer, id, values);
    free(values);
}

static double read_as(tm_dtype format, int which, int64_t i)
{
    double number;
    tm_value_set(&number, format, 0, (double)(float)value_of(which, i));
    return tm_value_get(&number, format, 0);
}

static void adds_to_logits(const tm_precision *precision, const char *targets)
{
    tm_error        err = { 0 };
    tm_device      *device;
    tm_step_options o = test_llama_options();
    o.shape.vocab_size = VOCAB;
    o.precision = precision;
    o.adapters = (tm_adapters){ .rank = RANK, .alpha = 7, .base = TM_DTYPE_COUNT, .place = "test", .seed = 1 };
    snprintf(o.adapters.targets, sizeof o.adapters.targets, "%s", targets);
    assert_int_equal(tm_device_open("cpu", 1, &device, &err), TM_OK);
    tm_trainer      *trainer = test_trainer_open(device, &o, 1);
    const tm_step   *step = tm_trainer_step_of(trainer);
    const tm_tensor *head = tm_graph_at(step->graph, step->model.head);
    int64_t          width = head->shape.n[1];
    double           logits[VOCAB], state[1024];
    assert_in_range(width, 2, 1024);
    for (int v = 0; v < VOCAB; v++) logits[v] = v;
    for (int64_t c = 0; c < width; c++) state[c] = sin((double)c + 1);
    if (head->adapter) put(trainer, head->adapter->a, 1), put(trainer, head->adapter->b, 2);
    assert_int_equal(tm_trainer_adapt_logits(trainer, state, 1.25, logits, &err), TM_OK);
    for (int64_t v = 0; v < VOCAB; v++) {
        double sum = 0;
        for (int64_t r = 0; r < RANK; r++) {
            double u = 0;
            for (int64_t c = 0; c < width; c++) u += read_as(precision->compute, 1, r * width + c) * state[c];
            sum += read_as(precision->compute, 2, v * RANK + r) * u;
        }
        double want = (double)v + (head->adapter ? 1.25 * (7.0 / RANK) * sum : 0);
        if (!(fabs(logits[v] - want) < 1e-9))
            fail_msg("%s: %lld: %.12g, not %.12g", targets, (long long)v, logits[v], want);
    }
    tm_trainer_close(trainer);
    tm_device_close(device);
}

static void adapters_of_the_head_add_to_logits(void **state)
{
    (void)state;
    adds_to_logits(&tm_precision_f32, "lm_head");
    adds_to_logits(&tm_precision_bf16, "q_proj,lm_head");
    adds_to_logits(&tm_precision_bf16, "q_proj");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(adapters_of_the_head_add_to_logits) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
