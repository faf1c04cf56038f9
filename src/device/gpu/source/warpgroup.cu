/* SPDX-License-Identifier: Apache-2.0 */
/* Products of Hopper's warpgroups (wgmma, sm_90a), 64 rows each, for attention. Factors in shared memory are boxes of 64 columns,
 * rows of 128 bytes, in which chunk c of 16 bytes of row r lies in place c ^ r % 8: wgmma's swizzle of 128 bytes (PTX ISA, "Shared
 * Memory Matrix Layout"). Eight rows of a column of chunks so lie in different banks. A box begins at a multiple of 1,024 bytes.
 * Sums of a thread, rounded in pairs, are the left factor of the next product as they are. */
#include "seen.cu"

enum { GROUP = 128 };

#define FLOATS_8(d, k)                                                                                                 \
    "+f"(d[k]), "+f"(d[k + 1]), "+f"(d[k + 2]), "+f"(d[k + 3]), "+f"(d[k + 4]), "+f"(d[k + 5]), "+f"(d[k + 6]),        \
        "+f"(d[k + 7])
#define FLOATS_32(d) FLOATS_8(d, 0), FLOATS_8(d, 8), FLOATS_8(d, 16), FLOATS_8(d, 24)
#define FLOATS_64(d) FLOATS_32(d), FLOATS_8(d, 32), FLOATS_8(d, 40), FLOATS_8(d, 48), FLOATS_8(d, 56)
#define NAMES_32                                                                                                       \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"   \
    "%30,%31"
#define NAMES_64                                                                                                       \
    NAMES_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,"   \
             "%57,%58,%59,%60,%61,%62,%63"
#define WGMMA(columns) "wgmma.mma_async.sync.aligned.m64n" columns "k16.f32.bf16.bf16 "

/* Where a factor is (PTX ISA, "Matrix Descriptor Format"): 8 rows are 1,024 bytes; `lead`: bytes from 64 columns to the next
 * ones of a factor that is read across its rows. */
DEVICE u64 descriptor(u32 at, u32 lead)
{
    return (u64)((at & 0x3ffff) >> 4) | (u64)(lead >> 4) << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}
/* Registers that were written before may be factors and sums of the products that follow. */
DEVICE void begin_products(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
DEVICE void end_products(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* All products but the last `but` groups of them are done. */
template <int but>
DEVICE void wait_products(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(but) : "memory");
}
/* Sums of products that are done: the compiler reads them here at the earliest. */
DEVICE void arrived(float (&x)[32])
{
    asm volatile("" : FLOATS_32(x)::"memory");
}
DEVICE void arrived(float (&x)[64])
{
    asm volatile("" : FLOATS_64(x)::"memory");
}

/* The warpgroup of a thread, which the compiler so knows to be the same in all lanes. */
DEVICE int group_id(void)
{
    return __shfl_sync(0xffffffffu, thread_id() / GROUP, 0);
}
/* Of a warpgroup's 64 rows, the one of a slot of this lane; columns are column_of(e), for e from 0 to DIM / 2 - 1. */
DEVICE int group_row(int slot)
{
    return thread_id() / WAVE % 4 * 16 + row_of(slot);
}
/* Rounded sums, as the left factor of products that follow. */
template <int N>
DEVICE void round_all(u32 (&two)[N], const float (&s)[2 * N])
{
    UNROLL for (int i = 0; i < N; i++) two[i] = pack(s[2 * i], s[2 * i + 1]);
}

/* A warpgroup's rows from `first` on, times a factor. */
template <int N>
DEVICE void store_rows(bf16 *to, int ld, const float (&out)[N], float by, int first, int end)
{
    UNROLL for (int e = 0; e < N; e += 2) {
        int row = first + group_row(slot_of(e));
        if (row < end) *(u32 *)(to + row * ld + column_of(e)) = pack(out[e] * by, out[e + 1] * by);
    }
}
