/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/refusal.h - what every message of a failure has in common (style of base/status.h). */
#ifndef TM_TESTS_REFUSAL_H
#define TM_TESTS_REFUSAL_H

#include "base/status.h"

/* Fails unless the message is a whole one: lower case or a name first, at least 12 characters, no full stop, line feed
 * or blank at the end, not cut off, nothing that a format left over. TM_OK: nothing. */
void refusal_is_sound(const tm_error *err);

#endif
