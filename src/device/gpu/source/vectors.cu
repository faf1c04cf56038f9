/* SPDX-License-Identifier: Apache-2.0 */
/* Elements by 16 bytes: a part of the texts whose kernels are bound by memory. A lane takes a run of N elements, N =
 * RUN_OF(formats): 16 bytes of the narrowest format. A run of 1 is an element by itself, of any address. Longer ones need
 * addresses that are multiples of 16 bytes, and rows that are multiples of N apart: the host looks at both
 * (tm_gpu_is_wide) and tells the kernel by its argument `wide`. */

#if defined(__CUDACC_RTC__)
typedef uint4 u32x4;
typedef uint2 u32x2;
/* NVRTC may part a store of a struct. */
DEVICE void store_words(void *to, u32 a, u32 b, u32 c, u32 d)
{
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)), "r"(a), "r"(b), "r"(c),
                 "r"(d)
                 : "memory");
}
#else
typedef u32 u32x4 __attribute__((ext_vector_type(4)));
typedef u32 u32x2 __attribute__((ext_vector_type(2)));
DEVICE void store_words(void *to, u32 a, u32 b, u32 c, u32 d)
{
    *(u32x4 *)to = u32x4{ a, b, c, d };
}
#endif

#define RUN_OF(A, B) (16 / (int)(sizeof(A) < sizeof(B) ? sizeof(A) : sizeof(B)))

/* N elements as they are stored, two of bfloat16 in a word. One by itself: as float32. */
template <typename S, int N>
struct run {
    u32 of[N == 1 ? 1 : N * (int)sizeof(S) / 4];
};
template <int N>
struct floats {
    float of[N];
};

/* x and i: such that x + i is a multiple of the run's bytes, at most of 16. */
template <typename S, int N>
DEVICE run<S, N> load(const S *x, i64 i)
{
    run<S, N> r;
    if constexpr (N == 1) {
        r.of[0] = bits_of(get(x, i));
    } else if constexpr (N * sizeof(S) == 8) {
        u32x2 v = *(const u32x2 *)(x + i);
        r.of[0] = v.x, r.of[1] = v.y;
    } else {
        UNROLL for (int k = 0; k < N * (int)sizeof(S) / 16; k++) {
            u32x4 v = ((const u32x4 *)(x + i))[k];
            r.of[4 * k] = v.x, r.of[4 * k + 1] = v.y, r.of[4 * k + 2] = v.z, r.of[4 * k + 3] = v.w;
        }
    }
    return r;
}

/* Element e of a run. */
template <typename S, int N>
DEVICE float element(run<S, N> r, int e)
{
    if constexpr (N == 1 || sizeof(S) == 4) return float_of(r.of[e]);
    return float_of(e % 2 ? r.of[e / 2] & 0xffff0000u : r.of[e / 2] << 16);
}

/* Two numbers as bfloat16, the first one low: to the nearest, ties to even; NaN stays NaN. */
DEVICE u32 two_of(float low, float high)
{
#if defined(__CUDACC_RTC__) && __CUDA_ARCH__ >= 800
    u32 two;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
    return two;
#elif defined(__gfx950__)
    typedef float  f2 __attribute__((ext_vector_type(2)));
    typedef __bf16 b2 __attribute__((ext_vector_type(2)));
    f2             v = { low, high };
    return __builtin_bit_cast(u32, __builtin_convertvector(v, b2));
#else
    bf16 of[2];
    put(of, 0, low);
    put(of, 1, high);
    return of[0].bits | (u32)of[1].bits << 16;
#endif
}

template <typename S, int N>
DEVICE void store(S *y, i64 i, floats<N> v)
{
    if constexpr (N == 1) {
        put(y, i, v.of[0]);
    } else {
        run<S, N> r;
        if constexpr (sizeof(S) == 4)
            UNROLL for (int e = 0; e < N; e++) r.of[e] = bits_of(v.of[e]);
        else
            UNROLL for (int e = 0; e < N; e += 2) r.of[e / 2] = two_of(v.of[e], v.of[e + 1]);
        if constexpr (N * sizeof(S) == 8)
            *(u32x2 *)(y + i) = u32x2{ r.of[0], r.of[1] };
        else
            UNROLL for (int k = 0; k < N * (int)sizeof(S) / 16; k++)
                store_words((u32x4 *)(y + i) + k, r.of[4 * k], r.of[4 * k + 1], r.of[4 * k + 2], r.of[4 * k + 3]);
    }
}

/* All of n elements in pieces, by as many threads as there are (tm_gpu_pieces): runs of LENGTH, then those
 * behind them one by one; not wide: all one by one. f.template at<N>(i) has elements i, ..., i + N - 1. */
template <int LENGTH, typename F>
DEVICE void each_piece(i64 n, int wide, F &&f)
{
    i64 runs = wide ? (i64)((u64)n / LENGTH) : 0, pieces = n - runs * (LENGTH - 1);
    ROLLED EACH (p, pieces) {
        if (p < runs)
            f.template at<LENGTH>(p * LENGTH);
        else
            f.template at<1>(p + runs * (LENGTH - 1));
    }
}

/* The same of every row: f.template at<N>(row, column). */
template <int LENGTH, typename F>
DEVICE void each_piece_of_rows(i64 rows, int columns, int wide, F f)
{
    int runs = wide ? columns / LENGTH : 0, pieces = columns - runs * (LENGTH - 1);
    ROLLED EACH_OF_ROWS (row, p, rows, pieces) {
        if (p < runs)
            f.template at<LENGTH>(row, p * LENGTH);
        else
            f.template at<1>(row, p + runs * (LENGTH - 1));
    }
}

/* y = f(a), and y = f(a, b). y may be an input. */
template <typename To, typename From, typename F>
struct mapped {
    To         *y;
    const From *a;
    F           f;
    template <int N>
    METHOD void at(i64 i) const
    {
        run<From, N> v = load<From, N>(a, i);
        floats<N> result;
        UNROLL for (int e = 0; e < N; e++) result.of[e] = f(element(v, e));
        store<To, N>(y, i, result);
    }
};
template <typename To, typename From, typename F>
DEVICE void map(To *y, const From *a, i64 n, int wide, F f)
{
    each_piece<RUN_OF(From, To)>(n, wide, mapped<To, From, F>{ y, a, f });
}
template <typename To, typename From, typename F>
struct mapped_two {
    To         *y;
    const From *a, *b;
    F           f;
    template <int N>
    METHOD void at(i64 i) const
    {
        run<From, N> v = load<From, N>(a, i), w = load<From, N>(b, i);
        floats<N> result;
        UNROLL for (int e = 0; e < N; e++) result.of[e] = f(element(v, e), element(w, e));
        store<To, N>(y, i, result);
    }
};
template <typename To, typename From, typename F>
DEVICE void map_two(To *y, const From *a, const From *b, i64 n, int wide, F f)
{
    each_piece<RUN_OF(From, To)>(n, wide, mapped_two<To, From, F>{ y, a, b, f });
}
