/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/memory.h - private to the room: memory that is not the host's. */
#ifndef TM_NODE_MEMORY_H
#define TM_NODE_MEMORY_H

#include "apps/node/places.h"

/* Writes patterns to the memory that a device has of its own, copies them to other places of it, reads them back; for
 * about `seconds`. A figure: how fast it copies. *covered: bytes that were checked. */
TM_MUST_USE tm_status tm_node_device_memory(const tm_node_place *place, double seconds, uint64_t seed,
                                            tm_node_outcome *out, double *covered, tm_error *err);

#endif
