/* SPDX-License-Identifier: Apache-2.0 */
/* op/parts.h - the adapted columns of a product: shared by the ops of adapters. Private to this room. */
#ifndef TM_OP_PARTS_H
#define TM_OP_PARTS_H

#include "op/attrs.h"

/* Rows of all parts together, or -1 when the parts do not fit into `columns` columns. */
static inline int64_t tm_rows_of_parts(const tm_low_rank_attr *attr, int64_t columns)
{
    int64_t rows = 0, end = 0;
    if (attr->rank < 1 || attr->parts < 1 || attr->parts > TM_MAX_ADAPTED) return -1;
    for (int64_t p = 0; p < attr->parts; p++) {
        if (attr->part[p].rows < 1 || attr->part[p].column < end) return -1;
        end = attr->part[p].column + attr->part[p].rows;
        rows += attr->part[p].rows;
    }
    return end <= columns ? rows : -1;
}

#endif
