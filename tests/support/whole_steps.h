/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/whole_steps.h - all programs of a step as text, to be compared as a whole (support/whole.h). */
#ifndef TM_TESTS_WHOLE_STEPS_H
#define TM_TESTS_WHOLE_STEPS_H

#include "base/text.h"
#include "graph/plan.h"
#include "train/step/step.h"

/* What each pass and the planner left: every op with its operands, formats, costs, kernels, lifetimes and places, where
 * each tensor lies, and in which order the programs run. Not `whole`: a checksum of each program. */
void whole_step_add(tm_text *out, const tm_step *step, const tm_chooser *chooser, bool whole);

/* The steps that presets with words of a command line make, on the first and the last rank, by checksums, or what is
 * refused, against the recorded file (support/whole.h). */
void whole_layouts_are(const char *path, const char *const *words, size_t n);

#endif
