/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/fake_run.h - the events of a made-up run with known figures, for sinks. */
#ifndef TM_TESTS_FAKE_RUN_H
#define TM_TESTS_FAKE_RUN_H

#include "base/event.h"
#include "base/text.h"

enum { FAKE_STEPS = 60, FAKE_TOKENS = 4096 };

/* A run of 60 steps of 0.2 s (the first takes 1 s), with loss 6 / step + 1, 25 GFLOP per step and an evaluation at 60.
 */
tm_event fake_started(void);
tm_event fake_step(int64_t step);
tm_event fake_evaluation(int64_t step);
tm_event fake_checkpoint(int64_t step);
/* Two tensors, of which the second is beyond the bound; two factors of a linear. */
tm_event fake_look(int64_t step);
tm_event fake_quantized(int64_t step);
tm_event fake_straggler(int64_t step);
/* A repeated step; reason NULL: it had the same bits. */
tm_event fake_replayed(int64_t step, const char *reason);
/* As the trainer fills it, after `steps` steps. */
tm_event fake_ended(int64_t steps, tm_verdict verdict, const char *reason);
/* All of them, in order. */
void fake_run(tm_sink *sink, tm_verdict verdict, const char *reason);

/* One event for one sink; closing it, which must not fail. */
void fake_emit(tm_sink *sink, tm_event event);
void fake_close(tm_sink *sink);

/* The content of a file; fails the test if it cannot be read. Free with tm_text_fini. */
tm_text fake_read(const char *path);

#endif
