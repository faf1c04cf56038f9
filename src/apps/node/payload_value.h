/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/payload_value.h - parts of a payload: elements of one sender, sums with data that is not as it should be
 * (payload.c, for payload_diagnose.c). */
#ifndef TM_NODE_PAYLOAD_VALUE_H
#define TM_NODE_PAYLOAD_VALUE_H

#include "apps/node/payload.h"

size_t tm_payload_bytes(tm_comm_format format);
bool   tm_payload_reduces(const tm_payload_call *c);

/* Elements [index, index + n) of what `from` has for `to`; only an all-to-all has pieces for each. */
void tm_payload_put(const tm_payload_call *c, int from, int to, size_t index, size_t n, void *out);
/* Elements before the piece for `to` in what `from` sends, of an all-to-all. */
size_t tm_payload_send_first(const tm_payload_call *c, int from, int to);

/* Elements [first, first + n) of the reduction, of what `what` says each rank of the group has; NULL: what it should.
 */
typedef void tm_payload_contribution(const void *data, int rank, size_t first, size_t n, void *out);
void         tm_payload_reduce(const tm_payload_call *c, tm_payload_contribution *what, const void *data, size_t first,
                               size_t n, void *out);

#endif
