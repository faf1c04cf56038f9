/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/checks.h - private to the room: the functions of the checks. */
#ifndef TM_NODE_CHECKS_H
#define TM_NODE_CHECKS_H

#include "apps/node/node.h"

#define TM_NODE_CHECK(id, share, title, finds, cannot)                                                                 \
    TM_MUST_USE tm_status node_check_##id(const tm_node_task *task, tm_node_outcome *out, tm_error *err);
#include "apps/node/checks.def"
#undef TM_NODE_CHECK

#endif
