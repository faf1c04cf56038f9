/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of tables by number, and the gradients of the tables. T: format of the tables, Y: of the rows. */
#include "vectors.cu"

enum { RUN = RUN_OF(T, Y) };

/* Does row r get a position? `rows` 0: all do. */
DEVICE int has_position(i64 r, i64 from, i64 rows)
{
    return rows == 0 || (r >= from && r < from + rows);
}

/* A row of a table, if it is `there`. A pointer that may be NULL would be no address of global memory to every compiler. */
struct row_of {
    const T *at;
    bool     there;
};

/* Element c of a row, ..., from a row of the table (not there: zeros) and one of the positions, if it is there. */
template <int N>
DEVICE void put_row(Y *y, row_of table, row_of positions, int columns)
{
    for (int c = thread_id() * N; c < columns; c += BLOCK * N) {
        run<T, N> v = {}, w = {};
        floats<N> result;
        if (table.there) v = load<T, N>(table.at, c);
        if (positions.there) w = load<T, N>(positions.at, c);
        UNROLL for (int e = 0; e < N; e++)
            result.of[e] = positions.there ? element(v, e) + element(w, e) : element(v, e);
        store<Y, N>(y, c, result);
    }
}

/* A block per row. */
KERNEL(embedding)
(Y *RESTRICT y, const int *RESTRICT tokens, const T *RESTRICT table, const T *RESTRICT positions,
 const int *RESTRICT place, i64 vocabulary, int columns, i64 seq, i64 first, i64 from, i64 rows, int wide)
{
    i64      r = block_id(0), token = tokens[r] - first, position = place ? place[r] : (u32)r % (u32)seq;
    row_of   mine = { table + token * columns, token >= 0 && token < vocabulary };
    row_of   added = { positions + position * columns, positions && has_position(r, from, rows) };
    if (wide)
        put_row<RUN>(y + r * columns, mine, added, columns);
    else
        put_row<1>(y + r * columns, mine, added, columns);
}

/* The number of row r in a table: of its token, or of its position; -1: it has none. */
DEVICE i64 number_of(const int *tokens, const int *place, i64 r, i64 seq, i64 first, i64 from, i64 rows)
{
    if (tokens) return tokens[r] - first;
    return !has_position(r, from, rows) ? -1 : place ? place[r] : (u32)r % (u32)seq;
}

enum { EACH_THREAD = 4, PIECE = EACH_THREAD * BLOCK, GROUP = 16, GROUPS = BLOCK / GROUP, UNROLLED = 4 };

/* The sum of x over the threads before this one, and over all of them. room: BLOCK + GROUPS. */
DEVICE int sum_before(int x, int *room, int *whole)
{
    int thread = thread_id(), group = thread / GROUP, sum = 0, all = 0;
    barrier();
    room[thread] = x;
    barrier();
    if (thread < GROUPS) {
        int own = 0;
        for (int i = 0; i < GROUP; i++) own += room[thread * GROUP + i];
        room[BLOCK + thread] = own;
    }
    barrier();
    for (int g = 0; g < GROUPS; g++) {
        sum += g < group ? room[BLOCK + g] : 0;
        all += room[BLOCK + g];
    }
    for (int i = group * GROUP; i < thread; i++) sum += room[i];
    *whole = all;
    return sum;
}

/* Rows by their numbers, those of a number in ascending order: order[i] is a row, sorted[i] its number, `numbers`
 * behind the last row that has one. A block has BLOCK numbers, a thread one of them; each looks at all rows twice: it counts, then
 * it puts rows in their places. Of a piece of rows those of the block's numbers are gathered first. */
KERNEL(embedding_order)
(int *RESTRICT order, int *RESTRICT sorted, const int *RESTRICT tokens, const int *RESTRICT place, int n, i64 numbers,
 i64 seq, i64 first, i64 from, i64 rows)
{
    SHARED int room[BLOCK + GROUPS], row_of[PIECE], number_in[PIECE];
    i64        low = (i64)block_id(0) * BLOCK, high = low + BLOCK < numbers ? low + BLOCK : numbers;
    int        count = 0, below = 0, at = 0, end = 0;
    ROLLED for (int pass = 0; pass < 2; pass++) {
        ROLLED for (int begin = 0; begin < n; begin += PIECE) {
            int own[EACH_THREAD], found = 0, all;
            UNROLL for (int e = 0; e < EACH_THREAD; e++) {
                int r = begin + EACH_THREAD * thread_id() + e;
                i64 number = r < n ? number_of(tokens, place, r, seq, first, from, rows) : -1;
                bool here = number >= low && number < high;
                own[e] = here ? (int)(number - low) : -1;
                found += here;
                below += pass == 0 && number >= 0 && number < low;
            }
            int to = sum_before(found, room, &all);
            UNROLL for (int e = 0; e < EACH_THREAD; e++) {
                if (own[e] < 0) continue;
                row_of[to] = begin + EACH_THREAD * thread_id() + e;
                number_in[to++] = own[e];
            }
            barrier();
            ROLLED for (int i = 0; i < all; i++) {
                if (number_in[i] != thread_id()) continue;
                if (pass == 0) {
                    count++;
                } else {
                    order[at] = row_of[i];
                    sorted[at++] = (int)low + thread_id();
                }
            }
        }
        if (pass > 0) continue;
        int all_below, all;
        sum_before(below, room, &all_below);
        at = all_below + sum_before(count, room, &all);
        end = all_below + all;
    }
    if (block_id(0) + 1 < blocks(0)) return;
    for (int i = end + thread_id(); i < n; i += BLOCK) sorted[i] = (int)numbers;
}

/* Rows order[begin ..] of dy, in ascending order, are added to a row of the table's gradient; apart: they are summed
 * first. */
template <int N>
DEVICE void sum_rows(T *row, const Y *dy, const int *order, int begin, int end, int columns, int adds, int apart)
{
    int       c = (block_id(1) * BLOCK + thread_id()) * N, i = begin;
    run<T, N> was = {};
    floats<N> sums;
    if (c >= columns) return;
    if (adds) was = load<T, N>(row, c);
    UNROLL for (int e = 0; e < N; e++) sums.of[e] = adds && !apart ? element(was, e) : 0.0f;
    ROLLED for (; i + UNROLLED <= end; i += UNROLLED) {
        run<Y, N> v[UNROLLED];
        UNROLL for (int u = 0; u < UNROLLED; u++) v[u] = load<Y, N>(dy, (i64)order[i + u] * columns + c);
        UNROLL for (int u = 0; u < UNROLLED; u++) UNROLL for (int e = 0; e < N; e++) sums.of[e] += element(v[u], e);
    }
    ROLLED for (; i < end; i++) {
        run<Y, N> v = load<Y, N>(dy, (i64)order[i] * columns + c);
        UNROLL for (int e = 0; e < N; e++) sums.of[e] += element(v, e);
    }
    UNROLL for (int e = 0; e < N; e++) if (adds && apart) sums.of[e] = element(was, e) + sums.of[e];
    store<T, N>(row, c, sums);
}

/* Of the rows of one number, by the block of the first of them (and of some columns). */
KERNEL(embedding_grad)
(T *RESTRICT table, const Y *RESTRICT dy, const int *RESTRICT order, const int *RESTRICT sorted, int n, int numbers,
 int columns, int adds, int apart, int wide)
{
    int begin = block_id(0), mine = sorted[begin], step = 1;
    if (mine == numbers || (begin > 0 && sorted[begin - 1] == mine)) return;
    while (begin + step < n && sorted[begin + step] == mine) step *= 2;
    int last = begin + step / 2, end = begin + step < n ? begin + step : n;
    while (end - last > 1) {
        int middle = last + (end - last) / 2;
        if (sorted[middle] == mine)
            last = middle;
        else
            end = middle;
    }
    T *row = table + (i64)mine * columns;
    if (wide)
        sum_rows<RUN>(row, dy, order, begin, end, columns, adds, apart);
    else
        sum_rows<1>(row, dy, order, begin, end, columns, adds, apart);
}

struct cleared {
    T *table;
    template <int N>
    METHOD void at(i64 i) const
    {
        store<T, N>(table, i, floats<N>{});
    }
};
KERNEL(clear)(T *table, i64 n, int wide)
{
    each_piece<RUN_OF(T, T)>(n, wide, cleared{ table });
}
