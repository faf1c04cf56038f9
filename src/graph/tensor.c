/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/tensor.h"

#include "base/status.h"
#include "graph/blocks.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char   *name;
    int           bits;
    tm_dtype_kind kind;
} dtypes[TM_DTYPE_COUNT] = {
#define X(id, name, bits, kind) [TM_##id] = { name, bits, TM_KIND_##kind },
    TM_DTYPE_LIST(X)
#undef X
};

static const struct {
    const char *memory;
    bool        persistent;
} roles[TM_ROLE_COUNT] = {
#define X(id, memory, persistent) [TM_ROLE_##id] = { memory, persistent },
    TM_ROLE_LIST(X)
#undef X
};

static const char *const space_names[TM_SPACE_COUNT] = {
#define X(id, name) [TM_SPACE_##id] = name,
    TM_SPACE_LIST(X)
#undef X
};

const tm_precision tm_precision_f64 = { "float64", TM_F64, TM_F64, TM_F64, TM_F64, TM_F64 };
const tm_precision tm_precision_f32 = { "float32", TM_F32, TM_F32, TM_F32, TM_F32, TM_F32 };
const tm_precision tm_precision_bf16 = { "bfloat16", TM_F32, TM_BF16, TM_F32, TM_F32, TM_F32 };
const tm_precision tm_precision_bf16_pure = { "bfloat16-pure", TM_BF16, TM_BF16, TM_BF16, TM_BF16, TM_F32 };

const char *tm_dtype_name(tm_dtype dtype)
{
    return dtypes[dtype].name;
}

int tm_dtype_bits(tm_dtype dtype)
{
    return dtypes[dtype].bits;
}

size_t tm_dtype_bytes(tm_dtype dtype)
{
    TM_ASSERT(dtypes[dtype].bits % 8 == 0);
    return (size_t)dtypes[dtype].bits / 8;
}

bool tm_dtype_floating(tm_dtype dtype)
{
    return dtypes[dtype].kind == TM_KIND_FLOAT;
}

bool tm_dtype_small(tm_dtype dtype)
{
    return tm_dtype_floating(dtype) && (dtypes[dtype].bits < 16 || dtype == TM_F16);
}

size_t tm_tensor_bytes(tm_shape shape, tm_dtype dtype)
{
    size_t elements = (size_t)tm_shape_elements(shape), bits = (size_t)dtypes[dtype].bits;
    if (tm_dtype_blocked(dtype)) return tm_blocked_bytes(dtype, (int64_t)elements);
    return bits % 8 == 0 ? elements * (bits / 8) : (elements * bits + 7) / 8;
}

const char *tm_role_memory_class(tm_role role)
{
    return roles[role].memory;
}

bool tm_role_persistent(tm_role role)
{
    return roles[role].persistent;
}

const char *tm_space_name(tm_space space)
{
    return space_names[space];
}

int64_t tm_shape_elements(tm_shape shape)
{
    int64_t count = 1;
    TM_ASSERT(shape.rank >= 0 && shape.rank <= TM_MAX_RANK);
    for (int i = 0; i < shape.rank; i++) TM_ASSERT(!__builtin_mul_overflow(count, shape.n[i], &count));
    TM_ASSERT(count >= 0 && count < INT64_MAX / 16);
    return count;
}

bool tm_shape_equal(tm_shape a, tm_shape b)
{
    if (a.rank != b.rank) return false;
    for (int i = 0; i < a.rank; i++)
        if (a.n[i] != b.n[i]) return false;
    return true;
}

char *tm_shape_text(char out[96], tm_shape shape)
{
    size_t used = 0;
    if (shape.rank < 0) return strcpy(out, "absent");
    out[used++] = '(';
    for (int i = 0; i < shape.rank; i++)
        used += (size_t)snprintf(out + used, 96 - used, i ? ", %lld" : "%lld", (long long)shape.n[i]);
    snprintf(out + used, 96 - used, ")");
    return out;
}

tm_dtype tm_precision_of(const tm_precision *precision, tm_role role)
{
    switch (role) {
    case TM_ROLE_PARAMETER:
    case TM_ROLE_UNIT:
        return precision->parameter;
    case TM_ROLE_GRADIENT:
    case TM_ROLE_PARTIAL:
        return precision->gradient;
    case TM_ROLE_MOMENT:
        return precision->moment;
    case TM_ROLE_INPUT:
    case TM_ROLE_INDEX:
        return TM_I32;
    case TM_ROLE_SCALAR:
        return TM_F64;
    case TM_ROLE_CONSTANT:
    case TM_ROLE_STATE:
    case TM_ROLE_STATISTIC:
    case TM_ROLE_LOGITS:
        return precision->wide;
    case TM_ROLE_STAGED: /* made with the format of what it stands for */
    case TM_ROLE_COPY:
    case TM_ROLE_WEIGHT_COPY:
    case TM_ROLE_ACTIVATION:
        return precision->compute;
    case TM_ROLE_WORKSPACE:
        return TM_F32;
    case TM_ROLE_COUNT:
        break;
    }
    TM_ASSERT(!"unknown role");
    return TM_F32;
}
