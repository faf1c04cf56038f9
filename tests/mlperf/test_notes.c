/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of notes: any number of them, in their order, none touching another; what cannot be printed is a question mark.
 */
#include "apps/mlperf/notes.h"

#include <stdio.h>
#include <string.h>

#include "support/test.h"

TEST(many)
{
    enum { N = 100 };
    tm_arena *arena = tm_arena_create();
    tm_notes  notes = { 0 };
    char      words[64];
    for (int i = 0; i < N; i++) {
        tm_notes_add(&notes, arena, "note %d of %s", i, "these");
        assert_int_equal(notes.n, i + 1);
        assert_true(notes.room >= notes.n && notes.room <= 16 * notes.n);
        for (int k = 0; k <= i; k++) {
            snprintf(words, sizeof words, "note %d of these", k);
            assert_string_equal(notes.items[k], words);
        }
    }
    assert_int_equal(notes.room, 128);
    tm_arena_destroy(arena);
}

TEST(odd_characters)
{
    tm_arena *arena = tm_arena_create();
    tm_notes  notes = { 0 };
    tm_notes_add(&notes, arena, "%s", "a\x01\x1f\n\t b~\x7f\x80\xff");
    tm_notes_add(&notes, arena, "%s", "");
    tm_notes_add(&notes, arena, "100%%");
    assert_string_equal(notes.items[0], "a???? b~?\x80\xff");
    assert_string_equal(notes.items[1], "");
    assert_string_equal(notes.items[2], "100%");
    tm_arena_destroy(arena);
}
