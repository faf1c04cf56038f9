/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of tables by number, and the gradients of the tables. T: format of the tables, Y: of the rows. */

/* Does row r get a position? `rows` 0: all do. */
DEVICE int has_position(i64 r, i64 from, i64 rows)
{
    return rows == 0 || (r >= from && r < from + rows);
}

/* A block per row. */
KERNEL(embedding)
(Y *RESTRICT y, const int *RESTRICT tokens, const T *RESTRICT table, const T *RESTRICT positions,
 const int *RESTRICT place, i64 vocabulary, int columns, i64 seq, i64 first, i64 from, i64 rows)
{
    i64 r = block_id(0), token = tokens[r] - first, position = place ? place[r] : (u32)r % (u32)seq;
    int here = token >= 0 && token < vocabulary, adds = positions && has_position(r, from, rows);
    for (int c = thread_id(); c < columns; c += BLOCK) {
        float v = here ? get(table, token * columns + c) : 0.0f;
        put(y, r * columns + c, adds ? v + get(positions, position * columns + c) : v);
    }
}

/* The number of row r in a table: of its token, or of its position; -1: it has none. */
DEVICE i64 number_of(const int *tokens, const int *place, i64 r, i64 seq, i64 first, i64 from, i64 rows)
{
    if (tokens) return tokens[r] - first;
    return !has_position(r, from, rows) ? -1 : place ? place[r] : (u32)r % (u32)seq;
}

/* The rows of dy that have the same number, in ascending order, are added to that row of the table's gradient, by the
 * block of the first of them. tokens NULL: by position. apart: they are summed first. */
KERNEL(embedding_grad)
(T *table, const Y *RESTRICT dy, const int *RESTRICT tokens, const int *RESTRICT place, i64 n, i64 numbers, int columns,
 i64 seq, i64 first, i64 from, i64 rows, int adds, int apart)
{
    SHARED float room[BLOCK];
    i64          r = block_id(0), number = number_of(tokens, place, r, seq, first, from, rows);
    float        earlier = 0.0f;
    if (number < 0 || number >= numbers) return;
    for (i64 i = thread_id(); i < r; i += BLOCK)
        if (number_of(tokens, place, i, seq, first, from, rows) == number) earlier = 1.0f;
    if (block_largest(earlier, room) > 0.0f) return;
    for (int c = thread_id(); c < columns; c += BLOCK) {
        float was = adds ? get(table, number * columns + c) : 0.0f, sum = adds && !apart ? was : 0.0f;
        for (i64 i = r; i < n; i++)
            if (number_of(tokens, place, i, seq, first, from, rows) == number) sum += get(dy, i * columns + c);
        put(table, number * columns + c, adds && apart ? was + sum : sum);
    }
}

KERNEL(clear)(T *table, i64 n)
{
    EACH(i, n) put(table, i, 0.0f);
}
