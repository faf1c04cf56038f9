/* SPDX-License-Identifier: Apache-2.0 */
/* Rows to the experts of other ranks: how many go where (op/exchange.c). */

/* A rank's own: those between two offsets. */
KERNEL(own_counts)(int *counts, const int *offsets, i64 experts)
{
    EACH (e, experts) counts[e] = offsets[e + 1] - offsets[e];
}

/* Where the rows of each own expert begin in each round, and where the last one's end: `counts` (ranks, experts), of which
 * a rank has `each` from `first` on. */
KERNEL(exchange_places)(int *places, const int *counts, i64 experts, i64 first, i64 each, int ranks, int rounds, i64 rows)
{
    EACH (e, each + 1) {
        i64 place = 0;
        for (int s = 0; s < ranks; s++)
            for (i64 b = 0; b < e; b++) place += counts[s * experts + first + b];
        for (int r = 0; r < rounds; r++) {
            i64 here = place - r * rows;
            places[r * (each + 1) + e] = (int)(here < 0 ? 0 : here > rows ? rows : here);
        }
    }
}
