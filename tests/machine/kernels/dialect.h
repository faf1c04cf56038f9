/* SPDX-License-Identifier: Apache-2.0 */
/* One kernel source for several compilers: clang for AMD GPUs (-x hip, no header of ROCm) and NVRTC for NVIDIA's.
 *
 * KERNEL(name)(arguments) begins a kernel of any block size; KERNEL_OF(threads, name)(arguments) one of a fixed size.
 * Blocks have one dimension
 * and whole waves, grids three dimensions. All pointers of a kernel that do not overlap are RESTRICT.
 */
#ifndef TESTS_MACHINE_KERNELS_DIALECT_H
#define TESTS_MACHINE_KERNELS_DIALECT_H

typedef unsigned int       u32;
typedef unsigned long long u64;
typedef long long          i64;
typedef unsigned short     bf16; /* storage only, as the next two */
typedef unsigned short     f16;
typedef unsigned char      fp8;

#define RESTRICT __restrict__
#define UNROLL _Pragma("unroll")
#define LOG2_E 1.4426950408889634f
#define LN_2 0.69314718055994531f

#if defined(__CUDACC_RTC__)

#define KERNEL(name) extern "C" __global__ void name
#define KERNEL_OF(threads, name) extern "C" __global__ void __launch_bounds__(threads) name
#define DEVICE static __device__ __forceinline__
#define SHARED __shared__
#define WAVE 32
DEVICE int thread_id(void)
{
    return (int)threadIdx.x;
}
DEVICE int block_threads(void)
{
    return (int)blockDim.x;
}
DEVICE int block_id(int d)
{
    return (int)(d == 0 ? blockIdx.x : d == 1 ? blockIdx.y : blockIdx.z);
}
DEVICE int blocks(int d)
{
    return (int)(d == 0 ? gridDim.x : d == 1 ? gridDim.y : gridDim.z);
}
DEVICE void barrier(void)
{
    __syncthreads();
}
DEVICE u32 bits_of(float x)
{
    return __float_as_uint(x);
}
DEVICE float float_of(u32 x)
{
    return __uint_as_float(x);
}
DEVICE float exponential(float x)
{
    return expf(x);
}
DEVICE float logarithm(float x)
{
    return logf(x);
}
DEVICE float square_root(float x)
{
    return sqrtf(x);
}
DEVICE float multiply_add(float a, float b, float c)
{
    return fmaf(a, b, c);
}
DEVICE float larger(float a, float b)
{
    return fmaxf(a, b);
}
DEVICE void add_atomically(float *at, float x)
{
    atomicAdd(at, x);
}
DEVICE float wave_sum(float x)
{
    for (int m = WAVE / 2; m > 0; m >>= 1) x += __shfl_xor_sync(0xffffffffu, x, m);
    return x;
}

#elif defined(__HIP__)

#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define KERNEL_OF(threads, name)                                                                                       \
    extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(threads, threads))) void name
#define KERNEL(name) extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(1, 1024))) void name
#define DEVICE static __device__ inline __attribute__((always_inline))
#define SHARED __shared__
#define WAVE 64
DEVICE int thread_id(void)
{
    return (int)__builtin_amdgcn_workitem_id_x();
}
DEVICE int block_threads(void)
{
    int threads = (int)__builtin_amdgcn_workgroup_size_x();
    __builtin_assume(threads >= WAVE);
    return threads;
}
DEVICE int block_id(int d)
{
    return (int)(d == 0   ? __builtin_amdgcn_workgroup_id_x()
                 : d == 1 ? __builtin_amdgcn_workgroup_id_y()
                          : __builtin_amdgcn_workgroup_id_z());
}
/* From the hidden arguments (hidden_block_count_*), not from the packet that started the kernel. */
DEVICE int blocks(int d)
{
    return (int)((const __attribute__((address_space(4))) u32 *)__builtin_amdgcn_implicitarg_ptr())[d];
}
DEVICE void barrier(void)
{
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
DEVICE u32 bits_of(float x)
{
    return __builtin_bit_cast(u32, x);
}
DEVICE float float_of(u32 x)
{
    return __builtin_bit_cast(float, x);
}
DEVICE float exponential(float x)
{
    return __builtin_amdgcn_exp2f(x * LOG2_E);
}
DEVICE float logarithm(float x)
{
    return __builtin_amdgcn_logf(x) * LN_2;
}
DEVICE float square_root(float x)
{
    return __builtin_sqrtf(x);
}
DEVICE float multiply_add(float a, float b, float c)
{
    return __builtin_fmaf(a, b, c);
}
DEVICE float larger(float a, float b)
{
    return __builtin_fmaxf(a, b);
}
DEVICE void add_atomically(float *at, float x)
{
    __hip_atomic_fetch_add(at, x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
/* What the lane that differs in the bits of `mask` has. */
DEVICE float other_lane(float x, int mask)
{
    int lane = (int)__builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
    return __builtin_bit_cast(float, __builtin_amdgcn_ds_bpermute((lane ^ mask) << 2, __builtin_bit_cast(int, x)));
}
/* Within a row of 16 lanes by data-parallel primitives: 0xb1 and 0x4e exchange neighbours and pairs, 0x124 and 0x128
 * turn the row by 4 and 8. All lanes get the same bits. */
#define TURNED(x, how)                                                                                                 \
    __builtin_bit_cast(float, __builtin_amdgcn_mov_dpp(__builtin_bit_cast(int, (x)), how, 0xf, 0xf, false))
DEVICE float wave_sum(float x)
{
    x += TURNED(x, 0xb1);
    x += TURNED(x, 0x4e);
    x += TURNED(x, 0x124);
    x += TURNED(x, 0x128);
    x += other_lane(x, 16);
    return x + other_lane(x, 32);
}

#else
#error "a compiler that this dialect does not know"
#endif

DEVICE float from_bf16(bf16 x)
{
    return float_of((u32)x << 16);
}
/* To the nearest, ties to even; NaN stays NaN. */
DEVICE bf16 to_bf16(float x)
{
    u32 bits = bits_of(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (bf16)(bits >> 16 | 0x40u);
    return (bf16)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* The sum over a block's threads, in a fixed order; every thread gets it. `room` has a float for each wave. */
DEVICE float block_sum(float x, float *room, int thread, int threads)
{
    x = wave_sum(x);
    barrier();
    if (thread % WAVE == 0) room[thread / WAVE] = x;
    barrier();
    float sum = 0.0f;
    for (int i = 0; i < (threads + WAVE - 1) / WAVE; i++) sum += room[i];
    return sum;
}
/* The largest over a block's threads, whose number is a power of two; `room` has a float for each. */
DEVICE float block_largest(float x, float *room, int thread, int threads)
{
    barrier();
    room[thread] = x;
    barrier();
    for (int m = threads / 2; m > 0; m >>= 1) {
        if (thread < m) room[thread] = larger(room[thread], room[thread + m]);
        barrier();
    }
    return room[0];
}

#endif
