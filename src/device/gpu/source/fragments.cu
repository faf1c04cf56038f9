/* SPDX-License-Identifier: Apache-2.0 */
/* A part of texts: tiles of both factors in shared memory, and their product by matrix units: NVIDIA's mma.sync, AMD's MFMA
 * of CDNA3 and CDNA4. Blocks of 128 x 128 results; sums in float32. While a step is computed, the next one is on its way to
 * registers.
 *
 * CODES 0: of bfloat16, steps of 32 k. CODES 1: of codes of 8 bits, steps of 64 k; A_E5M2, B_E5M2: which factor is e5m2, else
 * e4m3. Their bits are what the architecture reads: FNUZ's formats on gfx942, OCP's elsewhere. What NVIDIA's units keep of
 * sums of codes has fewer bits than float32, so there they begin anew after 128 k (PROMOTED). MX: scales are those of blocks
 * of 32 k (mx.cu).
 *
 * A row of a tile has 64 bytes in runs of 16, whose order goes by the row: lanes that read or write at once meet in no bank.
 */
#ifndef MX
#define MX 0
#endif
#if CODES
struct element {
    unsigned char bits;
};
#else
typedef bf16 element;
#endif

enum { ROW = 64, RUN = 16 / (int)sizeof(element), SIDE = 128, DEPTH = 4 * RUN, TILE = SIDE * ROW, PROMOTED = 128 };

typedef unsigned char byte;
struct alignas(16) run {
    u32 of[4];
};

/* Two runs of a tile, of each thread. Along a row: of rows thread / 4 and 64 more, from k RUN (thread % 4) on. Across, of
 * bfloat16: of k thread / 16 and 16 more, from row 8 (thread % 16) on. */
struct staged {
    run of[2];
};

/* Of a (rows, depth) and b (columns, depth): the product of rows of a from row0 on by those of b from column0 on, over k from
 * `from` on. */
struct factors {
    const element *a, *b;
    i64            rows, columns, from, depth, ld_a, ld_b, row0, column0;
};

/* whole: the matrix is aligned so that runs can be loaded at once. Elements outside are zeros. */
template <int ACROSS>
DEVICE staged load(const element *x, i64 row0, i64 k0, i64 rows, i64 from, i64 depth, i64 ld, int whole)
{
    staged s;
    int    thread = thread_id();
    UNROLL for (int r = 0; r < 2; r++) {
        i64 row = row0 + (ACROSS ? 8 * (thread % 16) : thread / 4 + 64 * r);
        i64 k = k0 + (ACROSS ? thread / 16 + 16 * r : RUN * (thread % 4)), at = ACROSS ? k * ld + row : row * ld + k;
        int inside = ACROSS ? k < depth : row < rows;
        i64 left = ACROSS ? rows - row : depth - k, before = ACROSS ? 0 : from - k;
        if (whole && inside && left >= RUN && before <= 0) {
            s.of[r] = *(const run *)(x + at);
            continue;
        }
        UNROLL for (int i = 0; i < 4; i++) s.of[r].of[i] = 0;
        UNROLL for (int i = 0; i < RUN; i++)
            if (inside && i < left && i >= before) s.of[r].of[i * 4 / RUN] |= (u32)x[at + i].bits << i * 128 / RUN % 32;
    }
    return s;
}

/* Where the bytes of a row lie, all but their row's beginning: they are combined by exclusive or. */
DEVICE int turned(int row)
{
#if defined(__HIP__) && !MX
    return (row >> 1 & 3) << 4 | (row >> 3 & 1) << 3; /* lanes read 8 bytes */
#else
    return (row >> 1 & 3) << 4;
#endif
}

template <int ACROSS>
DEVICE void keep(byte *tile, const staged *s)
{
    int thread = thread_id();
    UNROLL for (int r = 0; r < 2; r++) {
        int row = ACROSS ? 8 * (thread % 16) : thread / 4 + 64 * r;
        if (ACROSS) {
            UNROLL for (int i = 0; i < RUN; i++) {
                int at = (row + i) * ROW + ((int)sizeof(element) * (thread / 16 + 16 * r) ^ turned(row + i));
                ((element *)(tile + at))->bits = (unsigned short)(s->of[r].of[i * 4 / RUN] >> i * 128 / RUN % 32);
            }
            continue;
        }
        run whole = s->of[r];
        if (turned(row) & 8) {
            UNROLL for (int i = 0; i < 4; i++) whole.of[i] = s->of[r].of[i ^ 2];
        }
        *(run *)(tile + row * ROW + (16 * (thread % 4) ^ (turned(row) & ~8))) = whole;
    }
}

#if defined(__HIP__)

/* Four waves, each with 64 x 64 results in four units of 32 x 32. */
enum { ACROSS_UNITS = 2, DOWN_UNITS = 2, EACH = 16 };
typedef float sums __attribute__((ext_vector_type(16)));
struct results {
    sums of[DOWN_UNITS][ACROSS_UNITS];
};

#if !MX

#if !CODES
typedef short eight_bytes __attribute__((ext_vector_type(4)));
#define MULTIPLY __builtin_amdgcn_mfma_f32_32x32x8bf16_1k
#else
typedef long eight_bytes;
#if A_E5M2 && B_E5M2
#define MULTIPLY __builtin_amdgcn_mfma_f32_32x32x16_bf8_bf8
#elif A_E5M2
#define MULTIPLY __builtin_amdgcn_mfma_f32_32x32x16_bf8_fp8
#elif B_E5M2
#define MULTIPLY __builtin_amdgcn_mfma_f32_32x32x16_fp8_bf8
#else
#define MULTIPLY __builtin_amdgcn_mfma_f32_32x32x16_fp8_fp8
#endif
#endif

DEVICE void multiply(results *c, const byte *as, const byte *bs)
{
    int wave = thread_id() / 64, lane = thread_id() % 64, at = turned(lane % 32) ^ 8 * (lane / 32);
    int m = 64 * (wave / 2) + lane % 32, n = 64 * (wave % 2) + lane % 32;
    UNROLL for (int step = 0; step < ROW; step += 16) {
        eight_bytes a[2], b[2];
        UNROLL for (int i = 0; i < 2; i++) a[i] = *(const eight_bytes *)(as + (m + 32 * i) * ROW + (step ^ at));
        UNROLL for (int j = 0; j < 2; j++) b[j] = *(const eight_bytes *)(bs + (n + 32 * j) * ROW + (step ^ at));
        UNROLL for (int i = 0; i < 2; i++)
            UNROLL for (int j = 0; j < 2; j++) c->of[i][j] = MULTIPLY(a[i], b[j], c->of[i][j], 0, 0, 0);
    }
}

#endif

/* Row and column of result e of unit (i, j), within the block's. */
DEVICE int row_of(int i, int e)
{
    int wave = thread_id() / 64, lane = thread_id() % 64;
    return 64 * (wave / 2) + 32 * i + 8 * (e / 4) + 4 * (lane / 32) + e % 4;
}
DEVICE int column_of(int j, int)
{
    int wave = thread_id() / 64, lane = thread_id() % 64;
    return 64 * (wave % 2) + 32 * j + lane % 32;
}

#else

/* Eight warps, each with 64 x 32 results in units of 16 x 8. */
enum { ACROSS_UNITS = 4, DOWN_UNITS = 4, EACH = 4 };
struct results {
    float of[DOWN_UNITS][ACROSS_UNITS][EACH];
};

#if !CODES
#define MULTIPLY "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
#elif A_E5M2 && B_E5M2
#define MULTIPLY "mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32"
#elif A_E5M2
#define MULTIPLY "mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e4m3.f32"
#elif B_E5M2
#define MULTIPLY "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32"
#else
#define MULTIPLY "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"
#endif

/* c += a b of a unit. */
DEVICE void multiply_unit(float (&c)[EACH], const u32 (&a)[4], const u32 (&b)[2])
{
    asm volatile(MULTIPLY " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* What a thread has of its warp's units, of 32 bytes of each row from byte `step` on. */
struct fragments {
    u32 a[DOWN_UNITS][4], b[ACROSS_UNITS][2];
};
DEVICE fragments fragments_of(const byte *as, const byte *bs, int step)
{
    int       warp = thread_id() / 32, lane = thread_id() % 32, at = turned(lane / 4) ^ 4 * (lane % 4);
    int       m = 64 * (warp / 4) + lane / 4, n = 32 * (warp % 4) + lane / 4;
    fragments f;
    UNROLL for (int i = 0; i < DOWN_UNITS; i++)
        UNROLL for (int q = 0; q < 4; q++)
            f.a[i][q] = *(const u32 *)(as + (m + 16 * i + 8 * (q % 2)) * ROW + (step + 16 * (q / 2) ^ at));
    UNROLL for (int j = 0; j < ACROSS_UNITS; j++)
        UNROLL for (int q = 0; q < 2; q++) f.b[j][q] = *(const u32 *)(bs + (n + 8 * j) * ROW + (step + 16 * q ^ at));
    return f;
}

DEVICE void multiply(results *c, const byte *as, const byte *bs)
{
    UNROLL for (int step = 0; step < ROW; step += 32) {
        fragments f = fragments_of(as, bs, step);
        UNROLL for (int i = 0; i < DOWN_UNITS; i++)
            UNROLL for (int j = 0; j < ACROSS_UNITS; j++) multiply_unit(c->of[i][j], f.a[i], f.b[j]);
    }
}

DEVICE int row_of(int i, int e)
{
    int warp = thread_id() / 32, lane = thread_id() % 32;
    return 64 * (warp / 4) + 16 * i + lane / 4 + 8 * (e / 2);
}
DEVICE int column_of(int j, int e)
{
    int warp = thread_id() / 32, lane = thread_id() % 32;
    return 32 * (warp % 4) + 8 * j + 2 * (lane % 4) + e % 2;
}

#endif

#define EACH_OF_RESULTS(i, j, e)                                                                                       \
    UNROLL for (int i = 0; i < DOWN_UNITS; i++)                                                                        \
        UNROLL for (int j = 0; j < ACROSS_UNITS; j++)                                                                  \
            UNROLL for (int e = 0; e < EACH; e++)

/* Row and column of a result, within the block's. */
#define EACH_RESULT(c, row, column, value)                                                                             \
    EACH_OF_RESULTS (i_, j_, e_)                                                                                       \
        if (float value = (c).of[i_][j_][e_]; true)                                                                    \
            if (int row = row_of(i_, e_), column = column_of(j_, e_); true)

DEVICE void clear(results *c)
{
    EACH_OF_RESULTS (i, j, e) c->of[i][j][e] = 0.0f;
}

#if MX
#include "mx.cu"
#else

/* What a product is multiplied with before it is added: nothing; PARTS: it has sums of its own until then. */
struct as_it_is {
#if CODES && !defined(__HIP__)
    enum { PARTS = 1 };
#else
    enum { PARTS = 0 };
#endif
    METHOD float of(int, int, i64) const
    {
        return 1.0f;
    }
};

/* Adds the product times `scale`, which goes by row and column within the block's and, with PARTS, by k. Along the rows a step begins at a multiple
 * of RUN, whatever `from` is. */
template <typename SCALE>
DEVICE void product_of(results *sum, const factors &f, byte *as, byte *bs, const SCALE &scale)
{
    int     whole_a = ((u64)f.a % 16 == 0) & (f.ld_a % RUN == 0), whole_b = ((u64)f.b % 16 == 0) & (f.ld_b % RUN == 0);
    i64     first = CODES ? f.from & -(i64)RUN : 0;
    staged  next_a = load<A_ACROSS>(f.a, f.row0, first, f.rows, f.from, f.depth, f.ld_a, whole_a);
    staged  next_b = load<B_ACROSS>(f.b, f.column0, first, f.columns, f.from, f.depth, f.ld_b, whole_b);
    results part;
    if (SCALE::PARTS) clear(&part);
    for (i64 k = first; k < f.depth; k += DEPTH) {
        keep<A_ACROSS>(as, &next_a);
        keep<B_ACROSS>(bs, &next_b);
        barrier();
        next_a = load<A_ACROSS>(f.a, f.row0, k + DEPTH, f.rows, f.from, f.depth, f.ld_a, whole_a);
        next_b = load<B_ACROSS>(f.b, f.column0, k + DEPTH, f.columns, f.from, f.depth, f.ld_b, whole_b);
        multiply(SCALE::PARTS ? &part : sum, as, bs);
        if (SCALE::PARTS && ((k - first) % PROMOTED == PROMOTED - DEPTH || k + DEPTH >= f.depth)) {
            EACH_OF_RESULTS (i, j, e) sum->of[i][j][e] += part.of[i][j][e] * scale.of(row_of(i, e), column_of(j, e), k);
            clear(&part);
        }
        barrier();
    }
}

#endif
