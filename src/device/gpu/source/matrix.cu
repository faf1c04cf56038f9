/* SPDX-License-Identifier: Apache-2.0 */
/* Products of bfloat16 matrices by matrix units: NVIDIA's mma.sync from sm_80 on, AMD's MFMA of CDNA3 and CDNA4. Blocks of
 * 128 x 128 results, steps of 32 k; sums in float32. While a step is computed, the next one is on its way to registers.
 * C: format of the result. A_ACROSS, B_ACROSS: 1 where k goes from row to row of that matrix, 0 where it goes along a row. */

enum { SIDE = 128, DEPTH = 32, PITCH = DEPTH + 8 /* no two rows of a fragment share a bank */ };

struct alignas(16) eight {
    bf16 of[8];
};
struct alignas(8) four {
    bf16 of[4];
};

/* Two runs of eight elements of a tile, of each thread. Along a row: of rows thread / 4 and 64 more, from k 8 (thread % 4)
 * on. Across: of k thread / 16 and 16 more, from row 8 (thread % 16) on. */
struct staged {
    eight run[2];
};

DEVICE bf16 none(void)
{
    bf16 zero;
    zero.bits = 0;
    return zero;
}

/* whole: the matrix is aligned so that runs can be loaded at once. Elements outside are zeros. */
template <int ACROSS>
DEVICE staged load(const bf16 *x, i64 row0, i64 k0, i64 rows, i64 depth, i64 ld, int whole)
{
    staged s;
    int    thread = thread_id();
    UNROLL for (int r = 0; r < 2; r++) {
        i64 row = row0 + (ACROSS ? 8 * (thread % 16) : thread / 4 + 64 * r);
        i64 k = k0 + (ACROSS ? thread / 16 + 16 * r : 8 * (thread % 4)), at = ACROSS ? k * ld + row : row * ld + k;
        int inside = ACROSS ? k < depth : row < rows;
        i64 left = ACROSS ? rows - row : depth - k;
        if (whole && inside && left >= 8) {
            s.run[r] = *(const eight *)(x + at);
            continue;
        }
        UNROLL for (int i = 0; i < 8; i++) s.run[r].of[i] = inside && i < left ? x[at + i] : none();
    }
    return s;
}

template <int ACROSS>
DEVICE void keep(bf16 *tile, const staged *s)
{
    int thread = thread_id();
    UNROLL for (int r = 0; r < 2; r++) {
        if (!ACROSS) {
            *(eight *)(tile + (thread / 4 + 64 * r) * PITCH + 8 * (thread % 4)) = s->run[r];
            continue;
        }
        UNROLL for (int i = 0; i < 8; i++) tile[(8 * (thread % 16) + i) * PITCH + thread / 16 + 16 * r] = s->run[r].of[i];
    }
}

#if defined(__HIP__)

/* Four waves, each with 64 x 64 results in four units of 32 x 32. */
typedef short halves __attribute__((ext_vector_type(4)));
typedef float sums __attribute__((ext_vector_type(16)));
struct results {
    sums of[2][2];
};

DEVICE void clear(results *c)
{
    UNROLL for (int i = 0; i < 2; i++)
        UNROLL for (int j = 0; j < 2; j++)
            UNROLL for (int e = 0; e < 16; e++) c->of[i][j][e] = 0.0f;
}

DEVICE void multiply(results *c, const bf16 *as, const bf16 *bs)
{
    int wave = thread_id() / 64, lane = thread_id() % 64;
    int m = 64 * (wave / 2) + lane % 32, n = 64 * (wave % 2) + lane % 32, k = 4 * (lane / 32);
    UNROLL for (int step = 0; step < DEPTH; step += 8) {
        halves a[2], b[2];
        UNROLL for (int i = 0; i < 2; i++) a[i] = __builtin_bit_cast(halves, *(const four *)(as + (m + 32 * i) * PITCH + k + step));
        UNROLL for (int j = 0; j < 2; j++) b[j] = __builtin_bit_cast(halves, *(const four *)(bs + (n + 32 * j) * PITCH + k + step));
        UNROLL for (int i = 0; i < 2; i++)
            UNROLL for (int j = 0; j < 2; j++)
                c->of[i][j] = __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(a[i], b[j], c->of[i][j], 0, 0, 0);
    }
}

/* Row and column of result e of unit (i, j), within the block's. */
#define EACH_RESULT(c, row, column, value)                                                                             \
    UNROLL for (int i_ = 0; i_ < 2; i_++)                                                                              \
        UNROLL for (int j_ = 0; j_ < 2; j_++)                                                                          \
            UNROLL for (int e_ = 0; e_ < 16; e_++)                                                                     \
                if (float value = (c).of[i_][j_][e_]; true)                                                            \
                    if (int wave_ = thread_id() / 64, lane_ = thread_id() % 64; true)                                  \
                        if (int row = 64 * (wave_ / 2) + 32 * i_ + 8 * (e_ / 4) + 4 * (lane_ / 32) + e_ % 4,           \
                            column = 64 * (wave_ % 2) + 32 * j_ + lane_ % 32;                                          \
                            true)

#else

/* Eight warps, each with 64 x 32 results in units of 16 x 8. */
struct results {
    float of[4][4][4];
};

DEVICE void clear(results *c)
{
    UNROLL for (int i = 0; i < 4; i++)
        UNROLL for (int j = 0; j < 4; j++)
            UNROLL for (int e = 0; e < 4; e++) c->of[i][j][e] = 0.0f;
}

DEVICE u32 two(const bf16 *x)
{
    return *(const u32 *)x;
}

DEVICE void multiply(results *c, const bf16 *as, const bf16 *bs)
{
    int warp = thread_id() / 32, lane = thread_id() % 32;
    int m = 64 * (warp / 4) + lane / 4, n = 32 * (warp % 4) + lane / 4, k = 2 * (lane % 4);
    UNROLL for (int step = 0; step < DEPTH; step += 16) {
        u32 a[4][4], b[4][2];
        UNROLL for (int i = 0; i < 4; i++)
            UNROLL for (int q = 0; q < 4; q++) a[i][q] = two(as + (m + 16 * i + 8 * (q % 2)) * PITCH + k + step + 8 * (q / 2));
        UNROLL for (int j = 0; j < 4; j++)
            UNROLL for (int q = 0; q < 2; q++) b[j][q] = two(bs + (n + 8 * j) * PITCH + k + step + 8 * q);
        UNROLL for (int i = 0; i < 4; i++)
            UNROLL for (int j = 0; j < 4; j++)
                asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                             "{%8, %9}, {%0, %1, %2, %3};"
                             : "+f"(c->of[i][j][0]), "+f"(c->of[i][j][1]), "+f"(c->of[i][j][2]), "+f"(c->of[i][j][3])
                             : "r"(a[i][0]), "r"(a[i][1]), "r"(a[i][2]), "r"(a[i][3]), "r"(b[j][0]), "r"(b[j][1]));
    }
}

#define EACH_RESULT(c, row, column, value)                                                                             \
    UNROLL for (int i_ = 0; i_ < 4; i_++)                                                                              \
        UNROLL for (int j_ = 0; j_ < 4; j_++)                                                                          \
            UNROLL for (int e_ = 0; e_ < 4; e_++)                                                                      \
                if (float value = (c).of[i_][j_][e_]; true)                                                            \
                    if (int warp_ = thread_id() / 32, lane_ = thread_id() % 32; true)                                  \
                        if (int row = 64 * (warp_ / 4) + 16 * i_ + lane_ / 4 + 8 * (e_ / 2),                           \
                            column = 32 * (warp_ % 4) + 8 * j_ + 2 * (lane_ % 4) + e_ % 2;                             \
                            true)

#endif

/* As product (product.cu): c = a b^T + bias + residual, + c where it adds. */
KERNEL(product_matrix)
(C *c, const bf16 *RESTRICT a, const bf16 *RESTRICT b, const bf16 *RESTRICT bias, const C *residual, i64 rows,
 i64 columns, i64 depth, i64 ld_a, i64 ld_b, i64 ld_c, int adds)
{
    alignas(16) SHARED bf16 as[SIDE * PITCH], bs[SIDE * PITCH];
    i64     row0 = (i64)block_id(1) * SIDE, column0 = (i64)block_id(0) * SIDE;
    int     whole_a = ((u64)a % 16 == 0) & (ld_a % 8 == 0), whole_b = ((u64)b % 16 == 0) & (ld_b % 8 == 0);
    results sum;
    clear(&sum);
    staged next_a = load<A_ACROSS>(a, row0, 0, rows, depth, ld_a, whole_a);
    staged next_b = load<B_ACROSS>(b, column0, 0, columns, depth, ld_b, whole_b);
    for (i64 k = 0; k < depth; k += DEPTH) {
        keep<A_ACROSS>(as, &next_a);
        keep<B_ACROSS>(bs, &next_b);
        barrier();
        next_a = load<A_ACROSS>(a, row0, k + DEPTH, rows, depth, ld_a, whole_a);
        next_b = load<B_ACROSS>(b, column0, k + DEPTH, columns, depth, ld_b, whole_b);
        multiply(&sum, as, bs);
        barrier();
    }
    EACH_RESULT (sum, row, column, value) {
        i64 m = row0 + row, n = column0 + column;
        if (m >= rows || n >= columns) continue;
        float v = value;
        if (bias) v += get(bias, n);
        if (residual) v += get(residual, m * columns + n);
        if (adds) v += get(c, m * ld_c + n);
        put(c, m * ld_c + n, v);
    }
}
