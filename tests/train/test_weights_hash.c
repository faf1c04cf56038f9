/* SPDX-License-Identifier: Apache-2.0 */
/* tm_trainer_weights_hash: every byte of every weight counts, under its name, and nothing else does. Of ranks:
 * test_layouts.c. */
#include "support/test.h"
#include "support/training.h"

#include "base/hash.h"

/* Of all that a checkpoint holds the parameters, by the documented sum; the order does not matter. */
static uint64_t sum_of(const tm_trainer *trainer, size_t *weights)
{
    const tm_graph             *graph = tm_trainer_step_of(trainer)->graph;
    size_t                      n;
    const tm_checkpoint_tensor *tensors = tm_trainer_tensors(trainer, &n);
    uint64_t                    sum = 0;
    *weights = 0;
    for (size_t i = n; i-- > 0;) {
        bool is_weight = false;
        for (size_t k = 0; k < graph->n_tensors; k++)
            is_weight = is_weight || (strcmp(graph->tensors[k].name, tensors[i].name) == 0 &&
                                      graph->tensors[k].role == TM_ROLE_PARAMETER);
        if (!is_weight) continue;
        void *values = malloc(tensors[i].bytes);
        assert_ok(tensors[i].memory->read(tensors[i].memory, tensors[i].at, values, tensors[i].bytes, err));
        uint64_t both[2] = { tm_hash(tensors[i].name, strlen(tensors[i].name)), tm_hash(values, tensors[i].bytes) };
        free(values);
        sum += tm_hash(both, sizeof both);
        ++*weights;
    }
    assert_true(*weights > 10 && *weights < n);
    return sum;
}

TEST(the_sum_is_the_documented_one)
{
    uint64_t before = 0;
    for (uint64_t seed = 1; seed <= 2; seed++) {
        tm_step_options o = test_llama_options();
        tm_trainer     *trainer = test_trainer_on("cpu", 1, &o, seed);
        size_t          weights;
        assert_true(test_weights_hash(trainer) == sum_of(trainer, &weights));
        assert_true(test_weights_hash(trainer) != before);
        before = test_weights_hash(trainer);
        test_trainer_end(trainer);
    }
}
