/* SPDX-License-Identifier: Apache-2.0 */
/* A queue for each stream, on `late`, which copies no sooner than somebody waits for it: any wait of a computation that
 * is left out shows. (Bits: tests/differential.) */
#include "support/test.h"
#include "support/folder.h"
#include "support/training.h"

static uint64_t state_after_steps(tm_trainer *trainer)
{
    const tm_step_options *o = &tm_trainer_step_of(trainer)->options;
    for (int64_t t = 1; t <= 2; t++) {
        test_batch batch =
            test_batch_random(o->micro_batch * o->accumulation, o->seq, o->shape.vocab_size, (uint64_t)t);
        test_step(trainer, t, 1e-3, 1, &batch);
        test_batch_fini(&batch);
    }
    return test_state_hash(trainer);
}

/* On a device of its own; `forget`: the wait of this number is left out, counted in the plan; -1: none. */
static uint64_t train(const char *folder, int forget, int *n_waits)
{
    tm_device      *device = test_device_open("late", 1);
    tm_step_options options = test_llama_options();
    options.shape.n_layers = 3, options.accumulation = 2;
    options.offload = (tm_offload){ .optimizer = true, .activations = true, .space = TM_SPACE_DISK, .folder = folder };
    tm_device_one_by_one(device, true);
    tm_trainer    *trainer = test_trainer_open(device, &options, 7);
    const tm_plan *plan = tm_trainer_step_of(trainer)->plan;
    int            waits = 0, streams = 0;
    for (size_t p = 0; p < plan->n_programs; p++)
        for (size_t x = 0; x < plan->programs[p].count; x++) {
            tm_instruction *i = &plan->programs[p].instructions[x];
            streams |= 1 << i->stream;
            assert_int_equal(i->done != NULL, i->awaited);
            for (int s = 0; s < TM_STREAMS; s++)
                if (i->stream == TM_ON_COMPUTE && i->waits[s] >= 0 && waits++ == forget) i->waits[s] = -1;
        }
    assert_int_equal(streams, 1 << TM_ON_COMPUTE | 1 << TM_ON_COPY);
    uint64_t hash = state_after_steps(trainer);
    tm_trainer_close(trainer);
    tm_device_close(device);
    *n_waits = waits;
    return hash;
}

TEST(a_wait_that_is_left_out_shows)
{
    char    *folder = test_tree_make();
    int      waits, unseen = 0;
    uint64_t wanted = train(folder, -1, &waits);
    assert_true(waits > 10);
    for (int w = 0; w < waits; w++) unseen += train(folder, w, &waits) == wanted;
    if (unseen) fail_msg("%d of %d waits are not missed", unseen, waits);
    test_tree_remove(folder);
}
