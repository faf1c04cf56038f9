/* SPDX-License-Identifier: Apache-2.0 */
/* The part of the kernels' dialect (src/device/gpu/source/dialect.cu) for C++ for OpenCL, which stands where that text
 * refuses a compiler (tests/machine/opencl_text.c). A wave has one lane: OpenCL's work items know of no neighbours, and
 * local memory for an exchange would have to be declared by each kernel. So sums over a block are sums over all its
 * threads, and a barrier of a wave is one of the block; kernels only have them where the whole block comes. */
#define KERNEL_OF(threads, name) __kernel __attribute__((reqd_work_group_size(threads, 1, 1))) void name
#define DEVICE static inline __attribute__((always_inline))
#define METHOD inline __attribute__((always_inline))
#define SHARED __local
#define WAVE 1
#define barrier() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#define i64 long /* long long has 128 bits */
#define u64 ulong
#define half half_ /* a type of OpenCL, and an argument's name in the texts */
DEVICE int thread_id(void)
{
    return (int)get_local_id(0);
}
DEVICE int block_id(int d)
{
    return (int)get_group_id(d);
}
DEVICE int blocks(int d)
{
    return (int)get_num_groups(d);
}
DEVICE void wave_barrier(void)
{
    barrier();
}
DEVICE u32 bits_of(float x)
{
    return as_uint(x);
}
DEVICE float float_of(u32 x)
{
    return as_float(x);
}
DEVICE float exponential(float x)
{
    return exp(x);
}
DEVICE float logarithm(float x)
{
    return log(x);
}
DEVICE float square_root(float x)
{
    return sqrt(x);
}
DEVICE double square_root(double x)
{
    return sqrt(x);
}
DEVICE float multiply_add(float a, float b, float c)
{
    return fma(a, b, c);
}
DEVICE float larger(float a, float b)
{
    return fmax(a, b);
}
DEVICE float wave_sum(float x)
{
    return x;
}
