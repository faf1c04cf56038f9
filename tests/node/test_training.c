/* SPDX-License-Identifier: Apache-2.0 */
/* The small trainings of a certificate: they train, their bits depend on the seed and not on threads, and a difference
 * is named by step, tensor and bits. */
#include "support/training.h"

#include "apps/node/training.h"

#include "support/test.h"

static tm_node_trace train(int format, int model, int threads, uint64_t seed)
{
    tm_node_format of;
    tm_node_trace  trace = { 0 };
    tm_error       err = { 0 };
    tm_device     *device = test_device_open("cpu", threads);
    assert_true(tm_node_format_at(format, &of));
    if (tm_node_train(device, &of, model, seed, &trace, &err) != TM_OK) fail_msg("%s: %s", of.name, err.text);
    tm_device_close(device);
    return trace;
}

static const tm_node_part *part_of(const tm_node_trace *trace, const char *name, int step)
{
    for (size_t i = 0; i < trace->n; i++)
        if (trace->parts[i].step == step && strcmp(trace->parts[i].name, name) == 0) return &trace->parts[i];
    fail_msg("there is no %s in step %d", name, step);
    return NULL;
}

/* Every training: its loss is a number, each tensor but constants moves, and threads and seed mean what they should. */
static void look_at(int format, int model)
{
    tm_node_trace      one = train(format, model, 1, 1), three = train(format, model, 3, 1);
    tm_node_trace      other = train(format, model, 1, 2);
    tm_node_difference d;
    double             told[2];
    assert_int_equal(tm_node_trace_hash(&one), tm_node_trace_hash(&three));
    assert_false(tm_node_trace_differs(&one, &three, &d));
    assert_int_not_equal(tm_node_trace_hash(&one), tm_node_trace_hash(&other));
    memcpy(told, one.data + part_of(&one, "loss and norm", 2)->offset, sizeof told);
    assert_true(isfinite(told[0]) && told[0] > 0 && told[1] > 0);
    size_t same = 0, n = 0, gradients = 0;
    for (size_t i = 0; i < one.n; i++) {
        if (one.parts[i].step != 1) continue;
        n++;
        gradients += strstr(one.parts[i].name, ".grad") != NULL;
        same += one.parts[i].hash == part_of(&one, one.parts[i].name, 2)->hash;
    }
    assert_true(gradients > 5 && n > 3 * gradients); /* and a weight and two moments for most */
    if (same > n / 10) fail_msg("format %d, model %d: %zu of %zu tensors are as they were", format, model, same, n);
    tm_node_trace_fini(&one);
    tm_node_trace_fini(&three);
    tm_node_trace_fini(&other);
}

TEST(the_plain_formats_train)
{
    tm_node_format format;
    for (int f = 0; f < 2; f++) {
        assert_true(tm_node_format_at(f, &format));
        for (int m = 0; m < format.models; m++) look_at(f, m);
    }
}

FULL_TEST(all_recipes_train)
{
    tm_node_format format;
    int            n = 2;
    for (; tm_node_format_at(n, &format); n++)
        for (int m = 0; m < format.models; m++) look_at(n, m);
    assert_true(n >= 16);
}
