/* SPDX-License-Identifier: Apache-2.0 */
/* Command lines cut into words: quotes, backslashes, and nothing expanded. */
#include "support/test.h"

#include "base/words.h"
#include "support/refusal.h"

#include <string.h>

static void splits(const char *text, int n, const char *const *wanted)
{
    tm_arena *arena = tm_arena_create();
    tm_error  err = { 0 };
    char    **argv;
    int       argc = -1;
    assert_int_equal(tm_words_split(text, "--a", arena, &argv, &argc, &err), TM_OK);
    if (argc != n) fail_msg("'%s': %d words, wanted %d", text, argc, n);
    for (int i = 0; i < n; i++)
        if (strcmp(argv[i], wanted[i]) != 0)
            fail_msg("'%s': word %d is '%s', wanted '%s'", text, i, argv[i], wanted[i]);
    assert_null(argv[n]);
    tm_arena_destroy(arena);
}

#define SPLITS(text, ...)                                                                                              \
    splits(text, (int)(sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *)),                                 \
           (const char *const[]){ __VA_ARGS__ })

TEST(words_of_a_line)
{
    SPLITS("python -u train.py", "python", "-u", "train.py");
    SPLITS("  a\t\tb \n c  ", "a", "b", "c");
    SPLITS("a 'b c' \"d e\"", "a", "b c", "d e");
    SPLITS("a'b c'd\"e\"", "ab cde");
    SPLITS("'' x \"\"", "", "x", "");
    SPLITS("a\\ b \\' \\\"", "a b", "'", "\"");
    SPLITS("\"a \\\" b\" \"c \\\\ d\" \"e \\n f\"", "a \" b", "c \\ d", "e \\n f");
    SPLITS("'a \\ \" b'", "a \\ \" b");
    splits("", 0, NULL);
    splits(" \t\n", 0, NULL);
    SPLITS("a b c d e f g h i j k l m n o p", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o",
           "p");
}

TEST(what_does_not_end)
{
    const char *const bad[] = { "a 'b", "a \"b", "\"a\\\"", "a\\", "'", "\"", "\\" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tm_arena *arena = tm_arena_create();
        tm_error  err = { 0 };
        char    **argv;
        int       argc;
        assert_int_equal(tm_words_split(bad[i], "--b-command", arena, &argv, &argc, &err), TM_INVALID);
        refusal_is_sound(&err);
        assert_non_null(strstr(err.text, "--b-command"));
        tm_arena_destroy(arena);
    }
}

TESTS_IN_ORDER
