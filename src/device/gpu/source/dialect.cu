/* SPDX-License-Identifier: Apache-2.0 */
/* One source for several compilers: NVRTC for NVIDIA GPUs, hiprtc and clang (-x hip, no header of ROCm) for AMD's. This
 * text stands before every other one of this folder. Products and sums are never contracted: multiply_add says where.
 *
 * KERNEL(name)(arguments) begins a kernel whose blocks have BLOCK threads; KERNEL_OF(threads, name)(arguments) one of another
 * size. Blocks have one dimension, grids three. Arguments are pointers, int, i64, float and double. DEVICE and METHOD stand
 * before functions: of their own, and of a struct. barrier() is for all threads of a block, wave_barrier() for those of a wave
 * (NVIDIA: warp), all of whose lanes come.
 */
typedef unsigned int       u32;
typedef unsigned long long u64;
typedef long long          i64;
typedef float              f32;
typedef double             f64;
struct bf16 {
    unsigned short bits;
};

#define RESTRICT __restrict__
#define UNROLL _Pragma("unroll")
#define ROLLED _Pragma("unroll 1")

enum { BLOCK = 256 };
#define KERNEL(name) KERNEL_OF(BLOCK, name)

#if defined(__CUDACC_RTC__)

#define KERNEL_OF(threads, name) extern "C" __global__ void __launch_bounds__(threads) name
#define DEVICE static __device__ __forceinline__
#define METHOD __device__ __forceinline__
#define SHARED __shared__
#define WAVE 32
DEVICE int thread_id(void)
{
    return (int)threadIdx.x;
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
DEVICE void wave_barrier(void)
{
    __syncwarp();
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
DEVICE double square_root(double x)
{
    return sqrt(x);
}
DEVICE float multiply_add(float a, float b, float c)
{
    return fmaf(a, b, c);
}
DEVICE float larger(float a, float b)
{
    return fmaxf(a, b);
}
DEVICE float wave_sum(float x)
{
    for (int m = WAVE / 2; m > 0; m >>= 1) x += __shfl_xor_sync(0xffffffffu, x, m);
    return x;
}

#elif defined(__HIP__)

#if !defined(__HIPCC_RTC__)
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#endif
#define KERNEL_OF(threads, name)                                                                                       \
    extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(threads, threads))) void name
#define DEVICE static __device__ inline __attribute__((always_inline))
#define METHOD __device__ inline __attribute__((always_inline))
#define SHARED __shared__
#define WAVE 64
DEVICE int thread_id(void)
{
    return (int)__builtin_amdgcn_workitem_id_x();
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
/* A wave's accesses to LDS are in order by themselves: this is for the compiler. */
DEVICE void wave_barrier(void)
{
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
DEVICE u32 bits_of(float x)
{
    return __builtin_bit_cast(u32, x);
}
DEVICE float float_of(u32 x)
{
    return __builtin_bit_cast(float, x);
}
DEVICE float multiply_add(float a, float b, float c)
{
    return __builtin_fmaf(a, b, c);
}
/* 2^(x log2 e): the product in two parts, or its rounding would count |x| times. */
DEVICE float exponential(float x)
{
    float high = x * 1.44269502f, low = multiply_add(x, 1.44269502f, -high) + x * 1.92596299e-8f;
    float y = __builtin_amdgcn_exp2f(high);
    return x < -104.0f || x > 88.7f ? y : multiply_add(y, low * 0.69314718f, y);
}
DEVICE float logarithm(float x)
{
    return __builtin_amdgcn_logf(x) * 0.69314718f;
}
DEVICE float square_root(float x)
{
    return __builtin_sqrtf(x);
}
DEVICE double square_root(double x)
{
    return __builtin_sqrt(x);
}
DEVICE float larger(float a, float b)
{
    return __builtin_fmaxf(a, b);
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

#define MINUS_INFINITY float_of(0xff800000u)

/* Elements as they are stored, to float32 and back: to the nearest, ties to even; NaN stays NaN. */
DEVICE float get(const f32 *x, i64 i)
{
    return x[i];
}
DEVICE float get(const bf16 *x, i64 i)
{
    return float_of((u32)x[i].bits << 16);
}
DEVICE void put(f32 *y, i64 i, float value)
{
    y[i] = value;
}
DEVICE void put(bf16 *y, i64 i, float value)
{
    u32 bits = bits_of(value);
    u32 rounded = (bits & 0x7fffffffu) > 0x7f800000u ? bits >> 16 | 0x40u : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    y[i].bits = (unsigned short)rounded;
}

/* Every element once: the loop of kernels that have as many threads as there are. */
#define EACH(i, n)                                                                                                     \
    for (i64 i = (i64)block_id(0) * BLOCK + thread_id(), step_ = (i64)blocks(0) * BLOCK; i < (n); i += step_)

/* Every column of every row: rows by the grid's second dimension, columns by its first, which has a thread for each. */
#define EACH_OF_ROWS(row, c, rows, columns)                                                                            \
    for (i64 row = block_id(1); row < (rows); row += blocks(1))                                                        \
        if (int c = block_id(0) * BLOCK + thread_id(); c < (columns))

/* The sum over a block's threads, in a fixed order; every thread gets it. `room` has a float for each wave. Here and below:
 * a barrier stands between its last use and this one. */
DEVICE float block_sum(float x, float *room)
{
    int thread = thread_id();
    x = wave_sum(x);
    if (thread % WAVE == 0) room[thread / WAVE] = x;
    barrier();
    float sum = 0.0f;
    UNROLL for (int i = 0; i < BLOCK / WAVE; i++) sum += room[i];
    return sum;
}
/* The largest over a block's threads; `room` has a float for each. */
DEVICE float block_largest(float x, float *room)
{
    int thread = thread_id();
    room[thread] = x;
    barrier();
    ROLLED for (int m = BLOCK / 2; m > 0; m >>= 1) {
        if (thread < m) room[thread] = larger(room[thread], room[thread + m]);
        barrier();
    }
    return room[0];
}
/* The same sum of doubles, as a tree. */
DEVICE double block_sum(double x, double *room)
{
    int thread = thread_id();
    room[thread] = x;
    barrier();
    ROLLED for (int m = BLOCK / 2; m > 0; m >>= 1) {
        if (thread < m) room[thread] += room[thread + m];
        barrier();
    }
    return room[0];
}
