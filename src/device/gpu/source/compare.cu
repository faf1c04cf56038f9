/* SPDX-License-Identifier: Apache-2.0 */
/* A tensor beside the one that it should be (op/compare.h names the columns). X, Y: their formats. Sums are float64, in
 * a fixed order. Numbers below the normal ones count as 0. */

/* The columns of a record. */
enum {
    SUMS = 4,
    OWN_MOST = 4,
    MOST,
    UNDERFLOW,
    OVERFLOW,
    BROKEN,
    ZEROS,
    BINS = 11,
    N_BINS = 64,
    COLUMNS = BINS + 2 * N_BINS
};
enum { FIRST_EXPONENT = -48, NOT_FINITE = N_BINS + 1 /* N_BINS: a zero */ };

/* Which bin a number of this size belongs to. */
DEVICE int bin_of(u32 size)
{
    int e = (int)(size >> 23) - (127 + FIRST_EXPONENT);
    e = e < 0 ? 0 : e >= N_BINS ? N_BINS - 1 : e;
    return size >= 0x7f800000u ? NOT_FINITE : size < 0x00800000u ? N_BINS : e;
}

/* A thread's own elements. */
struct found {
    double sum[SUMS];
    float  most[2];
    int    underflow, overflow, broken;
};
DEVICE void look(found &f, float a, float b, int own, int other)
{
    bool finite = own != NOT_FINITE && other != NOT_FINITE;
    f.underflow += own == N_BINS && other != N_BINS;
    f.overflow += own == NOT_FINITE && other != NOT_FINITE;
    f.broken += other == NOT_FINITE;
    if (own != NOT_FINITE) f.most[0] = larger(f.most[0], a < 0.0f ? -a : a);
    if (other != NOT_FINITE) f.most[1] = larger(f.most[1], b < 0.0f ? -b : b);
    double p = finite ? (double)a : 0.0, q = finite ? (double)b : 0.0;
    f.sum[0] += (p - q) * (p - q);
    f.sum[1] += p * p;
    f.sum[2] += q * q;
    f.sum[3] += p * q;
}

/* How many of a tile's numbers, of the one tensor or of the other, are in bin `bin`. */
DEVICE int counted(const int (*bins)[2], int which, int bin)
{
    int n = 0;
    for (int i = 0; i < BLOCK; i++) n += bins[i][which] == bin;
    return n;
}

/* Tiles of BLOCK elements of a row, `tiles` of each row; a block has every blocks(0)-th of them, and leaves a record.
 */
KERNEL(compare_parts)
(f64 *RESTRICT records, const X *RESTRICT a, const Y *RESTRICT b, i64 rows, i64 columns, i64 ld_a, i64 ld_b, i64 tiles)
{
    SHARED int    bins[BLOCK][2];
    SHARED double room[BLOCK];
    SHARED float  sizes[BLOCK];
    int           thread = thread_id(), half = thread / (BLOCK / 2), slot = thread % (BLOCK / 2), count = 0;
    found         f = {};
    for (i64 tile = block_id(0); tile < rows * tiles; tile += blocks(0)) {
        i64   row = (i64)((u64)tile / (u64)tiles), c = (tile - row * tiles) * BLOCK + thread;
        bool  inside = c < columns;
        float x = inside ? get(a, row * ld_a + c) : 0.0f, y = inside ? get(b, row * ld_b + c) : 0.0f;
        int   own = bin_of(bits_of(x) & 0x7fffffffu), other = bin_of(bits_of(y) & 0x7fffffffu);
        if (inside) look(f, x, y, own, other);
        bins[thread][0] = inside ? own : NOT_FINITE;
        bins[thread][1] = inside ? other : NOT_FINITE;
        barrier();
        if (slot <= N_BINS) count += counted(bins, half, slot);
        barrier();
    }
    f64 *record = records + (i64)block_id(0) * COLUMNS;
    if (slot < N_BINS) record[BINS + half * N_BINS + slot] = (double)count;
    if (slot == N_BINS) record[ZEROS + half] = (double)count;
    double values[SUMS + 3] = { f.sum[0],           f.sum[1],        f.sum[2], f.sum[3], (double)f.underflow,
                                (double)f.overflow, (double)f.broken };
    UNROLL for (int k = 0; k < SUMS + 3; k++)
    {
        double all = block_sum(values[k], room);
        if (thread == 0) record[k < SUMS ? k : UNDERFLOW + k - SUMS] = all;
        barrier();
    }
    UNROLL for (int k = 0; k < 2; k++)
    {
        float all = block_largest(f.most[k], sizes);
        if (thread == 0) record[OWN_MOST + k] = (double)all;
        barrier();
    }
}

/* The records of all blocks, in ascending order: one block, a thread for each column. */
KERNEL(compare_record)(f64 *RESTRICT to, const f64 *RESTRICT records, int n)
{
    int c = thread_id();
    if (c >= COLUMNS) return;
    double all = 0.0;
    for (int i = 0; i < n; i++) {
        double x = records[(i64)i * COLUMNS + c];
        all = c != OWN_MOST && c != MOST ? all + x : all < x ? x : all;
    }
    to[c] = all;
}
