/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold of the graph and the plan of any step; whatever does not ends the test. */
#ifndef TM_TESTS_PLAN_RULES_H
#define TM_TESTS_PLAN_RULES_H

#include "train/trainer/trainer.h"

/* The nodes of its programs. */
void rules_of_step(const char *words, const tm_step *step);
/* What is printed of the plan, as JSON and as text, is the plan. */
void rules_of_print(const tm_plan *plan, const tm_chooser *chooser, const char *json, const char *text);

#endif
