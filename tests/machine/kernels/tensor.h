/* SPDX-License-Identifier: Apache-2.0 */
/* NVIDIA's tensor cores and asynchronous copies, by inline PTX. Shared addresses are numbers (shared_address). */
#ifndef TESTS_MACHINE_KERNELS_TENSOR_H
#define TESTS_MACHINE_KERNELS_TENSOR_H

#include "dialect.h"

DEVICE u32 shared_address(const void *at)
{
    return (u32)__cvta_generic_to_shared(at);
}
/* Two numbers as bf16, `low` in the low half. */
DEVICE u32 pack(float low, float high)
{
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
DEVICE float exp2_of(float x)
{
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}
DEVICE float log2_of(float x)
{
    float r;
    asm("lg2.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

/* --- sm_80: mma.sync, ldmatrix, cp.async */

/* c += a b of a shape and types; c has 4 registers, a 4, b 2. */
#define MMA(form, c, a, b)                                                                                             \
    asm volatile("mma.sync.aligned." form " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                     \
                 : "+f"((c)[0]), "+f"((c)[1]), "+f"((c)[2]), "+f"((c)[3])                                              \
                 : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "r"((b)[0]), "r"((b)[1]))
#define BF16_FORM "m16n8k16.row.col.f32.bf16.bf16.f32"

/* Four matrices of 8 rows of 16 bytes; each lane tells one row's address. */
DEVICE void load_matrices(u32 *r, u32 at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}
DEVICE void load_transposed(u32 *r, u32 at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}
DEVICE void copy16(u32 to, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
/* The same, or 16 bytes of zeros. */
DEVICE void copy16_if(u32 to, const void *from, bool some)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(some ? 16 : 0) : "memory");
}
DEVICE void commit_copies(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int n> DEVICE void wait_copies(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory");
}

/* --- sm_90a: mbarriers, TMA, wgmma */

typedef struct __align__(64)
{
    char bytes[128];
}
tensor_map;

DEVICE void init_barrier(u32 bar, u32 arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}
DEVICE void fence_barriers(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
DEVICE void fence_proxy(void)
{
    asm volatile("fence.proxy.async;" ::: "memory");
}
DEVICE void arrive(u32 bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
DEVICE void expect(u32 bar, u32 bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
DEVICE void await(u32 bar, u32 parity)
{
    u32 done = 0;
    while (!done)
        asm volatile("{\n.reg .pred done;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, done;\n}"
                     : "=r"(done)
                     : "r"(bar), "r"(parity)
                     : "memory");
}
/* One lane of the warp. */
DEVICE bool elected(void)
{
    u32 one;
    asm volatile("{\n.reg .pred one;\nelect.sync _|one, 0xffffffff;\nselp.u32 %0, 1, 0, one;\n}" : "=r"(one));
    return one != 0;
}
#define TMA "cp.async.bulk.tensor."
#define TO_SHARED ".shared::cluster.global.mbarrier::complete_tx::bytes "
DEVICE void load_box(u32 to, const tensor_map *map, u32 bar, int x, int y)
{
    asm volatile(TMA "2d" TO_SHARED "[%0], [%1, {%3, %4}], [%2];" ::"r"(to), "l"(map), "r"(bar), "r"(x), "r"(y)
                 : "memory");
}
DEVICE void load_box(u32 to, const tensor_map *map, u32 bar, int x, int y, int z, int w)
{
    asm volatile(TMA "4d" TO_SHARED "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to), "l"(map), "r"(bar), "r"(x), "r"(y),
                 "r"(z), "r"(w)
                 : "memory");
}
/* An operand of wgmma with 128-byte swizzle, 8 rows in 1,024 bytes; `lead`: between 64 columns of one that is
 * transposed. */
DEVICE u64 descriptor(u32 at, u32 lead)
{
    return (u64)((at & 0x3ffff) >> 4) | (u64)(lead >> 4) << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}
DEVICE void fence_products(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
DEVICE void commit_products(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
#define F8(d, k)                                                                                                       \
    "+f"(d[k]), "+f"(d[k + 1]), "+f"(d[k + 2]), "+f"(d[k + 3]), "+f"(d[k + 4]), "+f"(d[k + 5]), "+f"(d[k + 6]),        \
        "+f"(d[k + 7])
#define F32(d) F8(d, 0), F8(d, 8), F8(d, 16), F8(d, 24)
#define F64(d) F32(d), F8(d, 32), F8(d, 40), F8(d, 48), F8(d, 56)
#define NAMES32                                                                                                        \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"   \
    "%30,%31"
#define NAMES64                                                                                                        \
    NAMES32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,"    \
            "%57,%58,%59,%60,%61,%62,%63"
#define WGMMA(columns) "wgmma.mma_async.sync.aligned.m64n" columns "k16.f32.bf16.bf16 "

#endif
