/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix units of both makers as one instruction: sums (UNIT x 32) += operand (UNIT x 16) other (16 x 32), of bfloat16.
 *
 * NVIDIA, from sm_80 on: UNIT = 16, four mma.sync m16n8k16. AMD, CDNA3 and CDNA4: UNIT = 32, MFMA 32 x 32, which forms the
 * transposed product. Either way a lane has 16 sums, of SLOTS of the rows, and pairs of them rounded are an operand of the
 * next product as they are: operand element (i, half) of step x is sum 8 x + 2 i + half.
 *
 * The other factor comes from tiles in shared memory, rows of DIM elements; on NVIDIA of WIDE_A and WIDE_B, rounded up
 * to 32. It is read along the rows (k is a column of the
 * tile) or across them (k is a row). Two tensors are staged together: while a tile is used the next one is on its way, on
 * NVIDIA as asynchronous copies to a second stage, on AMD in registers. There tiles are kept as they are, turned, or both.
 */
#define LOG2_E 1.44269504f
#define LN_2 0.693147181f

enum { A = 0, B = 1, A_ALONG = 1, A_ACROSS = 2, B_ALONG = 4, B_ACROSS = 8 };

struct operand {
    u32 of[4];
};

/* Rows of a tensor: those before `from` and from `end` on are zeros, and so are columns from `width` on. Elements are
 * counted in 32 bits. */
struct rows_of {
    const bf16 *x;
    int         ld, from, end, width;
};

DEVICE float low_of(u32 two)
{
    return float_of(two << 16);
}
DEVICE float high_of(u32 two)
{
    return float_of(two & 0xffff0000u);
}
DEVICE int smaller(int a, int b)
{
    return a < b ? a : b;
}
DEVICE int greater(int a, int b)
{
    return a > b ? a : b;
}

#if defined(__HIP__)

enum { UNIT = 32, SLOTS = 1, SCALARS = 1 /* what is the same in all lanes has registers of its own */ };
typedef float f32x16 __attribute__((ext_vector_type(16)));
typedef short s16x4 __attribute__((ext_vector_type(4)));
typedef u32   u32x2 __attribute__((ext_vector_type(2)));
struct sums {
    f32x16 of;
};
struct other {
    u32x2 of[2];
};
#define EACH_SIMD(waves) __attribute__((amdgpu_waves_per_eu(waves, waves)))

DEVICE int lane_id(void)
{
    return thread_id() % 64;
}
/* Of what is the same in all lanes. */
DEVICE int uniform(int x)
{
    return __builtin_amdgcn_readfirstlane(x);
}
DEVICE bool any(bool x)
{
    return __builtin_amdgcn_ballot_w64(x) != 0;
}
DEVICE int exchanged(int x, int mask)
{
    return __builtin_amdgcn_ds_bpermute((lane_id() ^ mask) << 2, x);
}
/* Over the lanes that share a row. */
DEVICE float row_sum(float x)
{
    return x + other_lane(x, 32);
}
DEVICE float row_largest(float x)
{
    return larger(x, other_lane(x, 32));
}
DEVICE float power_of_2(float x)
{
    return __builtin_amdgcn_exp2f(x);
}
/* Two numbers as bfloat16, to the nearest even; a NaN may become infinite, never finite. */
DEVICE u32 pack(float low, float high)
{
#if defined(__gfx950__)
    typedef float  f2 __attribute__((ext_vector_type(2)));
    typedef __bf16 b2 __attribute__((ext_vector_type(2)));
    f2             v = { low, high };
    return __builtin_bit_cast(u32, __builtin_convertvector(v, b2));
#else
    u32 a = bits_of(low), b = bits_of(high);
    a += 0x7fffu + (a >> 16 & 1u);
    b += 0x7fffu + (b >> 16 & 1u);
    return __builtin_amdgcn_perm(b, a, 0x07060302u);
#endif
}
/* The same of a factor of products: where both are as near, away from zero, which takes three instructions instead of five. */
DEVICE u32 pack_factor(float low, float high)
{
#if defined(__gfx950__)
    return pack(low, high);
#else
    return __builtin_amdgcn_perm(bits_of(high) + 0x8000u, bits_of(low) + 0x8000u, 0x07060302u);
#endif
}
DEVICE int slot_of(int)
{
    return 0;
}
DEVICE int row_of(int)
{
    return lane_id() % 32;
}
DEVICE int column_of(int e)
{
    return 8 * (e / 4) + 4 * (lane_id() / 32) + e % 4;
}
/* gfx950's instruction takes eight of k a lane: which ones they are does not matter as long as both factors agree. */
DEVICE void multiply(sums *c, const operand &a, const other &b)
{
#if defined(__gfx950__)
    typedef __bf16 b16x8 __attribute__((ext_vector_type(8)));
    b16x8 x = __builtin_bit_cast(b16x8, b), y = __builtin_bit_cast(b16x8, a);
    c->of = __builtin_amdgcn_mfma_f32_32x32x16_bf16(x, y, c->of, 0, 0, 0);
#else
    UNROLL for (int k = 0; k < 2; k++) {
        u32x2 two = { a.of[2 * k], a.of[2 * k + 1] };
        s16x4 x = __builtin_bit_cast(s16x4, b.of[k]), y = __builtin_bit_cast(s16x4, two);
        c->of = __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(x, y, c->of, 0, 0, 0);
    }
#endif
}
/* Rows as a buffer, from which the hardware loads without asking where it ends: beyond it are zeros. Its descriptor: address,
 * bytes, format (MI300 ISA, "Buffer resource descriptor"). */
typedef int buffer __attribute__((ext_vector_type(4)));
__device__ u32x2 load_buffer(buffer from, int at, int, int) __asm("llvm.amdgcn.raw.buffer.load.v2i32");

DEVICE buffer buffer_of(const rows_of &x, bool some)
{
    u64 at = (u64)(x.x + (i64)x.from * x.ld);
    int bytes = some && x.from < x.end ? 2 * ((x.end - x.from - 1) * x.ld + x.width) : 0;
    return buffer{ uniform((int)(u32)at), uniform((int)(u32)(at >> 32) & 0xffff), uniform(bytes), 0x20000 };
}
/* Bytes from the buffer's beginning to an element, `row` rows below row `first` of the tensor; of rows and columns that are
 * outside of it, they are more than the buffer has. Rows have less than 2^22 elements. */
DEVICE int place_in(const rows_of &x, int first, int row, int column)
{
    int at = 2 * ((first - x.from) * x.ld + column) + (int)(((u32)row & 0xff) * ((u32)(2 * x.ld) & 0xffffff));
    return column < x.width ? at : (int)0x80000000;
}

/* 16 of k of a lane's row. */
DEVICE operand load_operand(const rows_of &x, int first, int k)
{
    operand f;
    buffer  from = buffer_of(x, true);
    UNROLL for (int i = 0; i < 2; i++) {
        u32x2 two = load_buffer(from, place_in(x, first, row_of(0), k + 8 * i + 4 * (lane_id() / 32)), 0, 0);
        f.of[2 * i] = two[0];
        f.of[2 * i + 1] = two[1];
    }
    return f;
}

/* The thread's number, as if read anew: what is made of it in a loop is not kept in registers in between. */
DEVICE int thread_again(void)
{
    int x = thread_id();
    asm volatile("" : "+v"(x));
    return x;
}

/* Rows in LDS have 4 elements more than they need: 16 lanes that read 8 bytes each hit all 32 banks. */
template <int ROWS, int KEPT, int THREADS, int WIDE_A, int WIDE_B>
struct tiles {
    enum { PITCH = DIM + 4, TURNED = ROWS + 4, UNITS = ROWS * DIM / 1024, WAVES = THREADS / 64 };
    enum { EACH = (2 * UNITS + WAVES - 1) / WAVES };
    struct room {
        alignas(16) bf16 a[KEPT & A_ALONG ? ROWS * PITCH : 8], b[KEPT & B_ALONG ? ROWS * PITCH : 8];
        alignas(16) bf16 a_turned[KEPT & A_ACROSS ? DIM * TURNED : 8], b_turned[KEPT & B_ACROSS ? DIM * TURNED : 8];
    };
    room *at;
    u32x2 next[EACH][4]; /* blocks of 4 x 4 on their way */

    /* The j-th of a wave: of tensor A below UNITS, of B from there on. */
    static METHOD int unit_of(int j)
    {
        int wave = uniform(thread_id() / 64);
        __builtin_assume(wave >= 0 && wave < WAVES);
        return wave + j * WAVES;
    }
    /* A wave's 32 rows and columns of a tensor: which ones, and where a lane's block lies. */
    static METHOD int row(int unit, int lane)
    {
        return 32 * (unit / (DIM / 32)) + 4 * ((lane & 3) + (lane >> 4 & 1) * 4);
    }
    static METHOD int column(int unit, int lane)
    {
        return 32 * (unit % (DIM / 32)) + 4 * ((lane >> 2 & 3) + (lane >> 5) * 4);
    }
    METHOD void fetch(int, const rows_of &a, const rows_of &b, int first)
    {
        int lane = lane_id();
        UNROLL for (int j = 0; j < EACH; j++) {
            int     u = unit_of(j), unit = u % UNITS;
            rows_of x = u >= UNITS ? b : a;
            buffer  from = buffer_of(x, u < 2 * UNITS);
            int     at = place_in(x, first, row(unit, lane), column(unit, lane));
            UNROLL for (int i = 0; i < 4; i++) next[j][i] = load_buffer(from, at + i * 2 * x.ld, 0, 0);
        }
    }
    METHOD void turn(bf16 *to, const u32x2 *v, int r, int c)
    {
        UNROLL for (int j = 0; j < 4; j++) {
            u32   which = j % 2 ? 0x07060302u : 0x05040100u;
            u32x2 four = { __builtin_amdgcn_perm(v[1][j / 2], v[0][j / 2], which),
                           __builtin_amdgcn_perm(v[3][j / 2], v[2][j / 2], which) };
            *(u32x2 *)&to[(c + j) * TURNED + r] = four;
        }
    }
    METHOD void arrive()
    {
        int lane = lane_id();
        barrier(); /* the tile before was used */
        UNROLL for (int j = 0; j < EACH; j++) {
            int u = unit_of(j), r = row(u % UNITS, lane), c = column(u % UNITS, lane);
            if (u < UNITS) {
                if (KEPT & A_ALONG) UNROLL for (int i = 0; i < 4; i++) *(u32x2 *)&at->a[(r + i) * PITCH + c] = next[j][i];
                if (KEPT & A_ACROSS) turn(at->a_turned, next[j], r, c);
            } else if (u < 2 * UNITS) {
                if (KEPT & B_ALONG) UNROLL for (int i = 0; i < 4; i++) *(u32x2 *)&at->b[(r + i) * PITCH + c] = next[j][i];
                if (KEPT & B_ACROSS) turn(at->b_turned, next[j], r, c);
            }
        }
        barrier();
    }
    /* Of 32 rows from `row` on, 16 of k from column k on. */
    METHOD other along(int tensor, int, int row, int k) const
    {
        const bf16 *x = (tensor == A ? at->a : at->b) + (row + lane_id() % 32) * PITCH + k + 4 * (lane_id() / 32);
        return other{ { *(const u32x2 *)x, *(const u32x2 *)(x + 8) } };
    }
    /* Of 32 columns from `column` on, 16 of k from row k on. */
    METHOD other across(int tensor, int, int k, int column) const
    {
        const bf16 *x = tensor == A ? at->a_turned : at->b_turned;
        x += (column + lane_id() % 32) * TURNED + k + 4 * (lane_id() / 32);
        return other{ { *(const u32x2 *)x, *(const u32x2 *)(x + 8) } };
    }
};

#else

enum { UNIT = 16, SLOTS = 2, SCALARS = 0 };
struct sums {
    float of[16];
};
struct other {
    u32 of[8];
};
#define EACH_SIMD(waves)

DEVICE int lane_id(void)
{
    return thread_id() % 32;
}
DEVICE int uniform(int x)
{
    return x;
}
DEVICE bool any(bool x)
{
    return __any_sync(0xffffffffu, x);
}
DEVICE int exchanged(int x, int mask)
{
    return __shfl_xor_sync(0xffffffffu, x, mask);
}
DEVICE float row_sum(float x)
{
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}
DEVICE float row_largest(float x)
{
    x = larger(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return larger(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
DEVICE float power_of_2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEVICE u32 pack(float low, float high)
{
    u32 two;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
    return two;
}
DEVICE u32 pack_factor(float low, float high)
{
    return pack(low, high);
}
DEVICE int slot_of(int e)
{
    return e / 2 % 2;
}
DEVICE int row_of(int slot)
{
    return lane_id() / 4 + 8 * slot;
}
DEVICE int column_of(int e)
{
    return 8 * (e / 4) + 2 * (lane_id() % 4) + e % 2;
}
DEVICE void multiply(sums *c, const operand &a, const other &b)
{
    UNROLL for (int j = 0; j < 4; j++)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(c->of[4 * j]), "+f"(c->of[4 * j + 1]), "+f"(c->of[4 * j + 2]), "+f"(c->of[4 * j + 3])
                     : "r"(a.of[0]), "r"(a.of[1]), "r"(a.of[2]), "r"(a.of[3]), "r"(b.of[2 * j]), "r"(b.of[2 * j + 1]));
}
DEVICE operand load_operand(const rows_of &x, int first, int k)
{
    operand f;
    UNROLL for (int i = 0; i < 4; i++) {
        int row = first + row_of(i % 2), column = k + 8 * (i / 2);
        f.of[i] = row < x.end && column < x.width ? *(const u32 *)(x.x + row * x.ld + column + 2 * (lane_id() % 4)) : 0;
    }
    return f;
}

/* The thread's number, read anew: what is made of it in a loop is not kept in registers in between. */
DEVICE int thread_again(void)
{
    int x;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
    return x;
}

/* Rows in shared memory have 16 bytes more than they need: eight of them lie in different banks (ldmatrix). */
template <int ROWS, int KEPT, int THREADS, int WIDE_A, int WIDE_B>
struct tiles {
    enum { COLUMNS_A = (WIDE_A + 31) / 32 * 32, COLUMNS_B = (WIDE_B + 31) / 32 * 32 };
    enum { PITCH_A = COLUMNS_A + 8, PITCH_B = COLUMNS_B + 8, BEHIND_A = ROWS * PITCH_A, STAGE = BEHIND_A + ROWS * PITCH_B };
    struct room {
        alignas(16) bf16 of[2][STAGE]; /* tensor A, then B */
    };
    room *at;

    METHOD u32 address(int tensor, int stage, int row, int column) const
    {
        int place = tensor == A ? row * PITCH_A : BEHIND_A + row * PITCH_B;
        return (u32)__cvta_generic_to_shared(at->of[0]) + 2 * (stage * STAGE + place + column);
    }
    template <int COLUMNS>
    METHOD void copy(int tensor, int stage, const rows_of &x, int first)
    {
        int thread = thread_again();
        UNROLL for (int c = 0; c < ROWS * (COLUMNS / 8); c += THREADS) {
            int  i = c + thread, r = i / (COLUMNS / 8), d = i % (COLUMNS / 8) * 8, row = first + r;
            bool some = row >= x.from && row < x.end && d < x.width;
            if (ROWS * (COLUMNS / 8) % THREADS != 0 && r >= ROWS) continue;
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address(tensor, stage, r, d)),
                         "l"(x.x + (some ? row * x.ld + d : 0)), "r"(some ? 16 : 0)
                         : "memory");
        }
    }
    METHOD void fetch(int stage, const rows_of &a, const rows_of &b, int first)
    {
        copy<COLUMNS_A>(A, stage, a, first);
        copy<COLUMNS_B>(B, stage, b, first);
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    METHOD void arrive()
    {
        asm volatile("cp.async.wait_group 0;" ::: "memory");
        barrier();
    }
    static METHOD void load(u32 *four, u32 at)
    {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(four[0]), "=r"(four[1]), "=r"(four[2]), "=r"(four[3])
                     : "r"(at)
                     : "memory");
    }
    static METHOD void load_turned(u32 *four, u32 at)
    {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(four[0]), "=r"(four[1]), "=r"(four[2]), "=r"(four[3])
                     : "r"(at)
                     : "memory");
    }
    METHOD other along(int tensor, int stage, int row, int k) const
    {
        other x;
        int   lane = lane_id();
        UNROLL for (int i = 0; i < 2; i++)
            load(x.of + 4 * i, address(tensor, stage, row + 16 * i + (lane & 7) + (lane >> 4) * 8, k + (lane >> 3 & 1) * 8));
        return x;
    }
    METHOD other across(int tensor, int stage, int k, int column) const
    {
        other x;
        int   lane = lane_id();
        UNROLL for (int i = 0; i < 2; i++)
            load_turned(x.of + 4 * i, address(tensor, stage, k + (lane & 7) + (lane >> 3 & 1) * 8,
                                              column + 16 * i + (lane >> 4) * 8));
        return x;
    }
};

#endif

DEVICE sums zeros(void)
{
    sums s;
    UNROLL for (int e = 0; e < 16; e++) s.of[e] = 0.0f;
    return s;
}
DEVICE int wave_id(void)
{
    return uniform(thread_id() / WAVE);
}
/* All 32 columns of rounded sums as operands of two steps of k. */
DEVICE void round_sums(operand *two, const sums &s)
{
    UNROLL for (int i = 0; i < 8; i++) two[i / 4].of[i % 4] = pack_factor(s.of[2 * i], s.of[2 * i + 1]);
}
DEVICE int wave_least(int x)
{
    for (int m = WAVE / 2; m > 0; m >>= 1) x = smaller(x, exchanged(x, m));
    return uniform(x);
}
DEVICE int wave_most(int x)
{
    return -wave_least(-x);
}
