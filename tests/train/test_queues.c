/* SPDX-License-Identifier: Apache-2.0 */
/* A queue for each stream, on `late`, which copies no sooner than somebody waits for it: any wait of a computation that
 * is left out shows. (Bits: tests/differential.) */
#include "support/test.h"
#include "support/folder.h"
#include "support/training.h"

#include <string.h>

typedef enum { BOUND, ONE_BY_ONE, WITH_LEDGER, WAYS } way;

enum { STEPS = 2 };

static tm_step_options options_of(const char *folder, bool gpt)
{
    tm_step_options o = gpt ? test_gpt_options() : test_llama_options();
    o.shape.n_layers = 3;
    o.accumulation = 2;
    o.offload = (tm_offload){ .optimizer = true, .activations = true, .space = TM_SPACE_DISK, .folder = folder };
    return o;
}

static uint64_t state_after(tm_trainer *trainer, way how)
{
    const tm_step_options *o = &tm_trainer_step_of(trainer)->options;
    tm_ledger              ledger = { 0 };
    tm_device_one_by_one(tm_trainer_device(trainer), how == ONE_BY_ONE);
    for (int64_t t = 1; t <= STEPS; t++) {
        test_batch batch =
            test_batch_random(o->micro_batch * o->accumulation, o->seq, o->shape.vocab_size, (uint64_t)t);
        tm_step_result result;
        tm_micro_batch fields = { .field = { batch.tokens, batch.targets } };
        test_begin(trainer, t, 1e-3, 1, o->micro_batch * o->accumulation * o->seq);
        assert_int_equal(tm_trainer_step(trainer, &fields, &result, how == WITH_LEDGER ? &ledger : NULL, NULL), TM_OK);
        test_batch_fini(&batch);
    }
    assert_int_equal(ledger.count > 0, how == WITH_LEDGER);
    return test_state_hash(trainer);
}

/* On a device of its own; `forget`: the wait of this number is left out, counted in the plan; -1: none. */
static uint64_t train(const char *name, const char *folder, bool gpt, way how, int forget, int *n_waits)
{
    tm_device      *device = test_device_open(name, 1);
    tm_step_options options = options_of(folder, gpt);
    tm_trainer     *trainer = test_trainer_open(device, &options, 7);
    const tm_plan  *plan = tm_trainer_step_of(trainer)->plan;
    int             waits = 0, streams = 0;
    for (size_t p = 0; p < plan->n_programs; p++)
        for (size_t x = 0; x < plan->programs[p].count; x++) {
            tm_instruction *i = &plan->programs[p].instructions[x];
            streams |= 1 << i->stream;
            assert_int_equal(i->done != NULL, i->awaited);
            for (int s = 0; s < TM_STREAMS; s++)
                if (i->stream == TM_ON_COMPUTE && i->waits[s] >= 0 && waits++ == forget) i->waits[s] = -1;
        }
    assert_int_equal(streams, 1 << TM_ON_COMPUTE | 1 << TM_ON_COPY);
    uint64_t hash = state_after(trainer, how);
    tm_trainer_close(trainer);
    tm_device_close(device);
    if (n_waits) *n_waits = waits;
    return hash;
}

TEST(a_wait_that_is_left_out_shows)
{
    char    *folder = test_tree_make();
    int      waits, unseen = 0;
    uint64_t wanted = train("late", folder, false, ONE_BY_ONE, -1, &waits);
    assert_true(waits > 10);
    for (int w = 0; w < waits; w++) unseen += train("late", folder, false, ONE_BY_ONE, w, NULL) == wanted;
    if (unseen) fail_msg("%d of %d waits are not missed", unseen, waits);
    test_tree_remove(folder);
}
