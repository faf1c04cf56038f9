/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of tables by number, and the gradients of the tables. T: format of the tables, Y: of the rows. */
#include "vectors.cu"

enum { RUN = RUN_OF(T, Y) };

/* Does row r get a position? `rows` 0: all do. */
DEVICE int has_position(i64 r, i64 from, i64 rows)
{
    return rows == 0 || (r >= from && r < from + rows);
}

/* Element c of a row, ..., from a row of the table (NULL: zeros) and one of the positions (NULL: none). */
template <int N>
DEVICE void put_row(Y *y, const T *table, const T *positions, int columns)
{
    for (int c = thread_id() * N; c < columns; c += BLOCK * N) {
        run<T, N> v = {}, w = {};
        floats<N> result;
        if (table) v = load<T, N>(table, c);
        if (positions) w = load<T, N>(positions, c);
        UNROLL for (int e = 0; e < N; e++) result.of[e] = positions ? element(v, e) + element(w, e) : element(v, e);
        store<Y, N>(y, c, result);
    }
}

/* A block per row. */
KERNEL(embedding)
(Y *RESTRICT y, const int *RESTRICT tokens, const T *RESTRICT table, const T *RESTRICT positions,
 const int *RESTRICT place, i64 vocabulary, int columns, i64 seq, i64 first, i64 from, i64 rows, int wide)
{
    i64      r = block_id(0), token = tokens[r] - first, position = place ? place[r] : (u32)r % (u32)seq;
    const T *mine = token >= 0 && token < vocabulary ? table + token * columns : (const T *)0;
    const T *added = positions && has_position(r, from, rows) ? positions + position * columns : (const T *)0;
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

/* Where the rows of a table's gradient come from, and how they are added. tokens NULL: by position. apart: they are summed
 * first. */
struct gathered {
    T         *table;
    const Y   *dy;
    const int *tokens, *place;
    i64        n;
    int        columns;
    i64        seq, first, from, rows;
    int        adds, apart;

    METHOD i64 number(i64 r) const
    {
        return number_of(tokens, place, r, seq, first, from, rows);
    }
    /* The rows from r on that have this number, in ascending order. */
    template <int N>
    METHOD void sum(i64 r, i64 mine) const
    {
        for (int c = thread_id() * N; c < columns; c += BLOCK * N) {
            run<T, N> was = {};
            floats<N> sums;
            if (adds) was = load<T, N>(table, mine * columns + c);
            UNROLL for (int e = 0; e < N; e++) sums.of[e] = adds && !apart ? element(was, e) : 0.0f;
            ROLLED for (i64 i = r; i < n; i++) {
                if (number(i) != mine) continue;
                run<Y, N> v = load<Y, N>(dy, i * columns + c);
                UNROLL for (int e = 0; e < N; e++) sums.of[e] += element(v, e);
            }
            UNROLL for (int e = 0; e < N; e++) if (adds && apart) sums.of[e] = element(was, e) + sums.of[e];
            store<T, N>(table, mine * columns + c, sums);
        }
    }
};

/* The rows of dy that have the same number, in ascending order, are added to that row of the table's gradient, by the
 * block of the first of them. */
KERNEL(embedding_grad)
(T *table, const Y *RESTRICT dy, const int *RESTRICT tokens, const int *RESTRICT place, i64 n, i64 numbers, int columns,
 i64 seq, i64 first, i64 from, i64 rows, int adds, int apart, int wide)
{
    SHARED float room[BLOCK];
    gathered     g = { table, dy, tokens, place, n, columns, seq, first, from, rows, adds, apart };
    i64          r = block_id(0), mine = g.number(r);
    float        earlier = 0.0f;
    if (mine < 0 || mine >= numbers) return;
    for (i64 i = thread_id(); i < r; i += BLOCK)
        if (g.number(i) == mine) earlier = 1.0f;
    if (block_largest(earlier, room) > 0.0f) return;
    if (wide)
        g.sum<RUN>(r, mine);
    else
        g.sum<1>(r, mine);
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
