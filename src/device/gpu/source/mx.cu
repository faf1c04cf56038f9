/* SPDX-License-Identifier: Apache-2.0 */
/* A part of fragments.cu: products of codes whose scales are those of blocks of 32 k, in e8m0, as rows of bytes (lines,
 * blocks). MX 1: codes of 8 bits. MX 2: of 4 bits, two in a byte, the first one in its low half; then what counts k here
 * counts bytes. A step has two blocks of each line, or four.
 *
 * gfx950: MFMA 32 x 32 with scales, over 64 k. Of codes of 8 bits a lane has k 16 (lane / 32) on of two blocks; of codes of
 * 4 bits all of one block. Either way it has the scale of its row (or column) and of block lane / 32 (MI350 ISA, "Matrix
 * arithmetic instructions"). NVIDIA: mma.sync over 32 k of codes of 8 bits; what it gives is multiplied in float32. */
enum { IN_BYTE = MX == 2 ? 2 : 1, BLOCK_BYTES = 32 / IN_BYTE, STEP_BLOCKS = DEPTH / BLOCK_BYTES };

/* Of one factor: its lines from `first` on; blocks: of a line. 32 bits count the scales of any matrix. */
struct block_scales {
    const byte *of;
    u32         first, lines, blocks;
};
/* Of a block, in shared memory: a word for each line of a, then of b; byte i is of block i of the step. */
typedef u32 step_scales[2 * SIDE];

/* The word of the thread's line. There are no codes beyond the last block, and none of lines beyond the last one count. */
DEVICE u32 load_scales(const block_scales &a, const block_scales &b, i64 k)
{
    bool        is_a = thread_id() < SIDE;
    const byte *of = is_a ? a.of : b.of;
    u32         blocks = is_a ? a.blocks : b.blocks, lines = is_a ? a.lines : b.lines, block = (u32)k / BLOCK_BYTES;
    u32         line = (is_a ? a.first : b.first) + (u32)thread_id() % SIDE, word = 0;
    if (line >= lines) line = lines - 1;
    UNROLL for (u32 i = 0; i < STEP_BLOCKS; i++)
        if (block + i < blocks) word |= (u32)of[line * blocks + block + i] << 8 * i;
    return word;
}

#if defined(__HIP__)

typedef int eight_words __attribute__((ext_vector_type(8)));

/* 16 bytes of a row of a tile, and 16 more; of codes of 4 bits the second ones are not read. */
DEVICE eight_words operand_of(const byte *tile, int row, int at)
{
    const byte *line = tile + row * ROW;
    run         low = *(const run *)(line + (at ^ turned(row))), high = low;
    eight_words all;
    if (MX == 1) high = *(const run *)(line + (at + 32 ^ turned(row)));
    UNROLL for (int i = 0; i < 4; i++) all[i] = (int)low.of[i], all[i + 4] = (int)high.of[i];
    return all;
}

DEVICE void multiply(results *c, const byte *as, const byte *bs, const step_scales &scales)
{
    const int format_a = MX == 2 ? 4 : A_E5M2, format_b = MX == 2 ? 4 : B_E5M2; /* e4m3, e5m2, e2m1: 0, 1, 4 */
    int       wave = thread_id() / 64, lane = thread_id() % 64, half = lane / 32;
    int       m = 64 * (wave / 2) + lane % 32, n = 64 * (wave % 2) + lane % 32;
    u32       of_a[2], of_b[2];
    UNROLL for (int i = 0; i < 2; i++) of_a[i] = scales[m + 32 * i] >> 8 * half;
    UNROLL for (int j = 0; j < 2; j++) of_b[j] = scales[SIDE + n + 32 * j] >> 8 * half;
    UNROLL for (int step = 0; step < IN_BYTE; step++) {
        eight_words a[2], b[2];
        UNROLL for (int i = 0; i < 2; i++) a[i] = operand_of(as, m + 32 * i, 32 * step + 16 * half);
        UNROLL for (int j = 0; j < 2; j++) b[j] = operand_of(bs, n + 32 * j, 32 * step + 16 * half);
        UNROLL for (int i = 0; i < 2; i++) {
            UNROLL for (int j = 0; j < 2; j++) {
                sums &sum = c->of[i][j];
                if (step == 0)
                    sum = __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(a[i], b[j], sum, format_a, format_b, 0,
                                                                          (int)of_a[i], 0, (int)of_b[j]);
                else
                    sum = __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(a[i], b[j], sum, format_a, format_b, 2,
                                                                          (int)of_a[i], 2, (int)of_b[j]);
            }
        }
    }
}

#else

/* 2 to the exponent that block `block` of a step has; 0 stands for 2^-127. */
DEVICE float scale_in(u32 word, int block)
{
    u32 exponent = word >> 8 * block & 255u;
    return float_of(exponent ? exponent << 23 : 1u << 22);
}

DEVICE void multiply(results *c, const byte *as, const byte *bs, const step_scales &scales)
{
    int warp = thread_id() / 32, lane = thread_id() % 32, m = 64 * (warp / 4) + lane / 4, n = 32 * (warp % 4) + 2 * (lane % 4);
    UNROLL for (int block = 0; block < STEP_BLOCKS; block++) {
        fragments f = fragments_of(as, bs, 32 * block);
        float     of_a[DOWN_UNITS][2], of_b[ACROSS_UNITS][2];
        UNROLL for (int h = 0; h < 2; h++) {
            UNROLL for (int i = 0; i < DOWN_UNITS; i++) of_a[i][h] = scale_in(scales[m + 16 * i + 8 * h], block);
            UNROLL for (int j = 0; j < ACROSS_UNITS; j++) of_b[j][h] = scale_in(scales[SIDE + n + 8 * j + h], block);
        }
        UNROLL for (int i = 0; i < DOWN_UNITS; i++) {
            UNROLL for (int j = 0; j < ACROSS_UNITS; j++) {
                float part[EACH] = {};
                multiply_unit(part, f.a[i], f.b[j]);
                UNROLL for (int e = 0; e < EACH; e++) c->of[i][j][e] += part[e] * (of_a[i][e / 2] * of_b[j][e % 2]);
            }
        }
    }
}

#endif

/* Adds the product of blocks from f.from to f.depth, which is where a block begins. */
DEVICE void product_of(results *sum, const factors &f, byte *as, byte *bs, step_scales &scales, const block_scales &scale_a,
                       const block_scales &scale_b)
{
    int    whole_a = ((u64)f.a % 16 == 0) & (f.ld_a % RUN == 0), whole_b = ((u64)f.b % 16 == 0) & (f.ld_b % RUN == 0);
    staged next_a = load<0>(f.a, f.row0, f.from, f.rows, f.from, f.depth, f.ld_a, whole_a);
    staged next_b = load<0>(f.b, f.column0, f.from, f.columns, f.from, f.depth, f.ld_b, whole_b);
    u32    next = load_scales(scale_a, scale_b, f.from);
    for (i64 k = f.from; k < f.depth; k += DEPTH) {
        keep<0>(as, &next_a);
        keep<0>(bs, &next_b);
        scales[thread_id()] = next;
        barrier();
        next_a = load<0>(f.a, f.row0, k + DEPTH, f.rows, f.from, f.depth, f.ld_a, whole_a);
        next_b = load<0>(f.b, f.column0, k + DEPTH, f.columns, f.from, f.depth, f.ld_b, whole_b);
        next = load_scales(scale_a, scale_b, k + DEPTH);
        multiply(sum, as, bs, scales);
        barrier();
    }
}
