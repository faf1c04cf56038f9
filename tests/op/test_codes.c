/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts of scales beside codes (op/codes.h), and what scaled_mm refuses of them. */
#include "op/codes.h"

#include <stdlib.h>

#include "support/test.h"

/* No two blocks share a scale, and those of one block do; what is left over fills up. */
TEST(every_block_has_a_scale_of_its_own)
{
    static const int64_t lines[] = { 1, 31, 128, 130, 260 }, lengths[] = { 16, 128, 144, 672 };
    for (int kind = TM_CODES_RUNS; kind < TM_CODES_KINDS; kind++)
        for (int x = 0; x < 5 * 4; x++) {
            int64_t        n = lines[x / 4], k = lengths[x % 4], room = tm_codes_scales(kind, n, k);
            tm_codes_scale of = tm_codes_scale_of(kind);
            int64_t       *owner = malloc((size_t)room * sizeof *owner), used = 0;
            for (int64_t i = 0; i < room; i++) owner[i] = -1;
            for (int64_t i = 0; i < n * k; i++) {
                int64_t line = i / k, at = i % k, place = tm_codes_place(kind, n, k, line, at);
                int64_t block = line / of.lines * k + at / of.block;
                assert_in_range(place, 0, room - 1);
                if (owner[place] < 0) owner[place] = block, used++;
                assert_int_equal(owner[place], block);
            }
            int64_t blocks = tm_codes_cut(k, of.block) * tm_codes_cut(n, of.lines);
            assert_int_equal(used, blocks);
            if (kind == TM_CODES_RUNS || kind == TM_CODES_ROWS) assert_int_equal(room, blocks);
            free(owner);
        }
}

/* The other way round, as the library's document has it: which line and which block an offset in a tile is of. */
TEST(tiles_lie_as_the_document_says)
{
    enum { LINES = 300, LENGTH = 352, BLOCKS = 12, TILE = 512 };
    assert_int_equal(tm_codes_scales(TM_CODES_TILES, LINES, LENGTH), 3 * 3 * TILE);
    for (int at = 0; at < 3 * 3 * TILE; at++) {
        int offset = at % TILE, row = at / TILE / 3, column = at / TILE % 3;
        int line = row * 128 + offset % 16 / 4 * 32 + offset / 16, block = column * 4 + offset % 4;
        if (line >= LINES || block * 32 >= LENGTH) continue;
        assert_int_equal(tm_codes_place(TM_CODES_TILES, LINES, LENGTH, line, block * 32 + 31), at);
    }
    /* Squares along the depth, a multiple of 4 of them; runs line after line. */
    assert_int_equal(tm_codes_scales(TM_CODES_SQUARES, 300, 640), 3 * 8);
    assert_int_equal(tm_codes_place(TM_CODES_SQUARES, 300, 640, 299, 639), 2 * 8 + 4);
    assert_int_equal(tm_codes_place(TM_CODES_RUNS, 300, 640, 299, 639), 4 * 300 + 299);
    assert_int_equal(tm_codes_place(TM_CODES_ROWS, 300, 640, 299, 639), 299 * 20 + 19);
}
