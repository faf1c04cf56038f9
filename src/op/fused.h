/* SPDX-License-Identifier: Apache-2.0 */
/* op/fused.h - the parts of a fused matrix as a kernel sees them. */
#ifndef TM_OP_FUSED_H
#define TM_OP_FUSED_H

#include "graph/tensor.h"
#include "op/attrs.h"

/* q, k and v as columns of qkv (rows, H dim_qk + J dim_qk + J dim_v). */
static inline void tm_fused_qkv(const tm_attention_attr *attr, tm_view qkv, tm_view part[3])
{
    int64_t q = attr->heads * attr->dim_qk, k = attr->kv_heads * attr->dim_qk;
    part[0] = tm_view_cut(qkv, 0, q);
    part[1] = tm_view_cut(qkv, q, k);
    part[2] = tm_view_cut(qkv, q + k, attr->kv_heads * attr->dim_v);
}

#endif
