/* SPDX-License-Identifier: Apache-2.0 */
/* What checks read with: records of the kernel log, value by value, and files that are no text. */
#include "support/folder.h"
#include "apps/check/context.h"

#include "support/test.h"

#include <errno.h>

/* --- the kernel log ------------------------------------------------------------------------------ */

TEST(records_of_the_kernel)
{
    static const char log[] = " SUBSYSTEM=x\n\n"
                              "6,123,4567890,-;of the kernel\n"
                              "30,1,5,c,x=y;of a daemon\n"
                              "7,1,999999999999999999,-;at the end of days\n"
                              "7,1,9999999999999999999,-;a digit more\n"
                              "1,2;no time\n"
                              "1,,3,-;no number\n"
                              "1,2,3,-no text\n"
                              "<5>[    1.500000] both\n"
                              "<12>[1.000001]   a daemon's\n"
                              "<3>no time\n"
                              "<3[ 1.0] no level\n"
                              "<>[ 1.0] none\n"
                              "[ 17.250000] time alone\n"
                              "[ 17.25 x\n"
                              "[ 17]\n"
                              "[ x.5]\n"
                              "[ 1.x]\n"
                              "[\n"
                              "<\n"
                              "words\n"
                              "  continued";
    const char       *cursor = log, *end = log + strlen(log);
    check_record      r;
    tm_text           all = { 0 };
    while (check_next_record(&cursor, end, &r))
        tm_text_printf(&all, "%d %d %.6f '%.*s'\n", r.kernel, r.level, r.seconds, (int)r.length, r.text);
    assert_true(cursor == end);
    assert_string_equal(all.data, "1 6 4.567890 'of the kernel'\n"
                                  "0 6 0.000005 'of a daemon'\n"
                                  "1 7 1000000000000.000000 'at the end of days'\n"
                                  "1 7 1000000000000.000000 'a digit more'\n"
                                  "1 -1 nan '1,2;no time'\n"
                                  "1 -1 nan '1,,3,-;no number'\n"
                                  "1 -1 nan '1,2,3,-no text'\n"
                                  "1 5 1.500000 'both'\n"
                                  "0 4 1.000001 'a daemon's'\n"
                                  "1 3 nan 'no time'\n"
                                  "1 -1 nan '<3[ 1.0] no level'\n"
                                  "1 -1 nan '<>[ 1.0] none'\n"
                                  "1 -1 17.250000 'time alone'\n"
                                  "1 -1 nan '[ 17.25 x'\n"
                                  "1 -1 nan '[ 17]'\n"
                                  "1 -1 nan '[ x.5]'\n"
                                  "1 -1 nan '[ 1.x]'\n"
                                  "1 -1 nan '['\n"
                                  "1 -1 nan '<'\n"
                                  "1 -1 nan 'words'\n");
    tm_text_fini(&all);
}

/* What is not text in a file is not shown. */
TEST(only_what_can_be_printed)
{
    check c = { .arena = tm_arena_create(), .sysroot = test_folder() };
    FILE *f = fopen(test_in_folder("odd"), "w");
    fputs("a\tb\033c\177d\xc3\xa4 \001\n\r\nlast\tone", f);
    fputc(0, f);
    fputs("!\002", f);
    assert_int_equal(fclose(f), 0);
    assert_string_equal(check_line(&c, "/odd"), "a b?c?d\xc3\xa4 ?");
    assert_string_equal(check_line_in(&c, "", "odd"), "a b?c?d\xc3\xa4 ?");
    assert_string_equal(check_content(&c, "/odd"), "a\tb?c?d\xc3\xa4 ?\n?\nlast\tone?!?");
    errno = 0;
    assert_null(check_line(&c, "/none"));
    assert_int_equal(errno, ENOENT);
    errno = 0;
    assert_null(check_content(&c, "/none"));
    assert_int_equal(errno, ENOENT);
    tm_arena_destroy(c.arena);
    test_folder_remove();
}
