/* SPDX-License-Identifier: Apache-2.0 */
/* tm_trainer_weights_hash: every byte of every weight counts, under its name, and nothing else does. Of ranks:
 * test_layouts.c. */
#include "support/test.h"
#include "support/training.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    tm_device  *device;
    tm_trainer *trainer;
} fixture;

static fixture open_fixture(uint64_t seed)
{
    tm_step_options options = test_llama_options();
    fixture         f = { .device = test_device_open("cpu", 1) };
    f.trainer = test_trainer_open(f.device, &options, seed);
    return f;
}

static void close_fixture(fixture *f)
{
    tm_trainer_close(f->trainer);
    tm_device_close(f->device);
}

static bool is_weight(const tm_trainer *trainer, const char *name)
{
    const tm_graph *graph = tm_trainer_step_of(trainer)->graph;
    for (size_t i = 0; i < graph->n_tensors; i++)
        if (strcmp(graph->tensors[i].name, name) == 0 && graph->tensors[i].role == TM_ROLE_PARAMETER) return true;
    return false;
}

TEST(seeds_differ_and_repeat)
{
    fixture a = open_fixture(1), b = open_fixture(1), c = open_fixture(2);
    assert_true(test_weights_hash(a.trainer) == test_weights_hash(b.trainer));
    assert_true(test_weights_hash(a.trainer) != test_weights_hash(c.trainer));
    close_fixture(&a);
    close_fixture(&b);
    close_fixture(&c);
}

static void flip(const tm_checkpoint_tensor *tensor, size_t at)
{
    unsigned char byte;
    tm_error      err = { 0 };
    assert_int_equal(tensor->memory->read(tensor->memory, tm_address_add(tensor->at, at), &byte, 1, &err), TM_OK);
    byte ^= 1;
    assert_int_equal(tensor->memory->write(tensor->memory, tm_address_add(tensor->at, at), &byte, 1, &err), TM_OK);
}

/* One bit in the first and in the last byte of each tensor that a checkpoint holds. */
TEST(every_weight_counts_and_no_moment)
{
    size_t                      n, weights = 0;
    fixture                     f = open_fixture(1);
    const tm_checkpoint_tensor *tensors = tm_trainer_tensors(f.trainer, &n);
    uint64_t                    before = test_weights_hash(f.trainer);
    for (size_t i = 0; i < n; i++) {
        bool   weight = is_weight(f.trainer, tensors[i].name);
        size_t ends[2] = { 0, tensors[i].bytes - 1 };
        weights += weight;
        for (int k = 0; k < 2; k++) {
            flip(&tensors[i], ends[k]);
            assert_int_equal(test_weights_hash(f.trainer) != before, weight);
            flip(&tensors[i], ends[k]);
        }
    }
    assert_true(weights > 10 && weights < n);
    assert_true(test_weights_hash(f.trainer) == before);
    close_fixture(&f);
}

/* Names count, so that weights which change places are other weights; the order of the sum does not. */
TEST(the_sum_is_the_documented_one)
{
    size_t                      n;
    fixture                     f = open_fixture(1);
    const tm_checkpoint_tensor *tensors = tm_trainer_tensors(f.trainer, &n);
    uint64_t                    sum = 0;
    for (size_t i = n; i-- > 0;) { /* backwards: order does not matter */
        if (!is_weight(f.trainer, tensors[i].name)) continue;
        tm_error err = { 0 };
        void    *values = malloc(tensors[i].bytes);
        assert_int_equal(tensors[i].memory->read(tensors[i].memory, tensors[i].at, values, tensors[i].bytes, &err),
                         TM_OK);
        uint64_t both[2] = { tm_hash(tensors[i].name, strlen(tensors[i].name)), tm_hash(values, tensors[i].bytes) };
        free(values);
        sum += tm_hash(both, sizeof both);
    }
    assert_true(test_weights_hash(f.trainer) == sum);
    close_fixture(&f);
}
