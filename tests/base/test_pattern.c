/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns that choose names: what they take as a whole, behind a dot, and which number they have; what gives up. */
#include "base/pattern.h"

#include "support/test.h"

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

TEST(names_are_taken_as_a_whole_or_behind_a_dot)
{
    static const struct {
        const char *pattern, *text;
        bool        matches, ends;
        int64_t     index;
    } rows[] = {
        { "q_proj", "q_proj", true, true, -1 },
        { "q_proj", "q_proj2", false, false, -1 },
        { "q_proj", "xq_proj", false, false, -1 },
        { "q_proj", "a.q_proj", false, true, -1 },
        { "q_proj", "a.b.q_proj", false, true, -1 },
        { "q_proj", "q_proj.a", false, false, -1 },
        { "q_proj", "q_proj\n", false, false, -1 },
        { "q_proj$", "q_proj\n", false, false, -1 },
        { "a|b", "b", true, true, -1 },
        { "a|b", "x.b", false, true, -1 },
        { "a|b", "bx", false, false, -1 },
        { "", "", true, true, -1 },
        { "", "a.", false, true, -1 },
        { "layers\\.(?<idx>\\d+)\\.", "layers.17.x", false, false, 17 },
        { "layers\\.(?<idx>\\d+)\\.", "a.layers.17.x", false, false, -1 },
        { "(?<idx>\\d+)", "0", true, true, 0 },
        { "(?<idx>\\d+)?x", "x", true, true, -1 },
        { "(?<index>\\d+)", "5", true, true, -1 },
        { "(?P<idx>[0-9]+)b", "9223372036854775807b", true, true, INT64_MAX },
        { "(", "(", false, false, -1 },
        { "(a+)+$", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", false, false, -1 },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        if (tm_pattern_matches(rows[i].pattern, rows[i].text) != rows[i].matches ||
            tm_pattern_ends(rows[i].pattern, rows[i].text) != rows[i].ends)
            fail_msg("'%s' and '%s'", rows[i].pattern, rows[i].text);
        assert_int_equal(tm_pattern_index(rows[i].pattern, rows[i].text), rows[i].index);
    }
}

TEST(the_first_that_fits_counts)
{
    static const tm_pattern_value all[] = { { "a", 1 }, { "b.a", 2 }, { "c", 3 } };
    assert_ptr_equal(tm_pattern_find(all, 3, "b.a"), &all[0]);
    assert_ptr_equal(tm_pattern_find(all + 1, 2, "b.a"), &all[1]);
    assert_ptr_equal(tm_pattern_find(all, 3, "x.c"), &all[2]);
    assert_null(tm_pattern_find(all, 2, "x.c"));
    assert_null(tm_pattern_find(all, 0, "a"));
}

TEST(what_is_none_is_refused)
{
    tm_error err = { 0 };
    assert_int_equal(tm_pattern_check("a(b)?", "here", &err), TM_OK);
    assert_int_equal(tm_pattern_check("a(b", "here", &err), TM_INVALID);
    assert_string_equal(err.text, "here: 'a(b' is no regular expression: missing closing parenthesis");
}
