/* SPDX-License-Identifier: Apache-2.0 */
/* What checks read with, value by value: records of the kernel log, capabilities of a device, lists, numbers. */
#include "support/folder.h"
#include "system/check_context.h"

#include "support/test.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

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

/* --- PCI ------------------------------------------------------------------------------------------ */

/* A capability at `at`, which leads to `next`. */
static void capability(unsigned char *config, unsigned at, unsigned id, unsigned next)
{
    config[at] = (unsigned char)id;
    config[at + 1] = (unsigned char)(id >> 8);
    config[at + 2] = (unsigned char)(1 | next << 4);
    config[at + 3] = (unsigned char)(next >> 4);
}

TEST(access_control_of_a_device)
{
    unsigned char config[4096] = { 0 };
    assert_int_equal(check_parse_acs(config, 64), -1);
    assert_int_equal(check_parse_acs(config, 65), 0);
    assert_int_equal(check_parse_acs(config, 256), 0);
    assert_int_equal(check_parse_acs(config, 257), -1);
    assert_int_equal(check_parse_acs(config, 263), -1);
    assert_int_equal(check_parse_acs(config, 264), 0);
    capability(config, 0x100, 0x0D, 0);
    assert_int_equal(check_parse_acs(config, 264), 0);
    config[0x106] = 3;
    assert_int_equal(check_parse_acs(config, 264), 1);
    config[0x106] = 2;
    config[0x107] = 1;
    assert_int_equal(check_parse_acs(config, 264), 0);
    capability(config, 0x100, 0xFFFF, 0x148);
    capability(config, 0x148, 0x0D, 0);
    config[0x14E] = 1;
    assert_int_equal(check_parse_acs(config, sizeof config), 0); /* nothing answers */
    capability(config, 0x100, 0x10D, 0x148);
    assert_int_equal(check_parse_acs(config, sizeof config), 1);
    assert_int_equal(check_parse_acs(config, 0x14F), -1);
    assert_int_equal(check_parse_acs(config, 0x150), 1);
    capability(config, 0x100, 1, 0xFF8);
    capability(config, 0xFF8, 0x0D, 0);
    config[0xFFE] = 1;
    assert_int_equal(check_parse_acs(config, sizeof config), 1); /* the last place there is */
    capability(config, 0xFF8, 2, 0x100);
    assert_int_equal(check_parse_acs(config, sizeof config), 0); /* around for ever */
    capability(config, 0xFF8, 2, 0xFC);
    capability(config, 0xFC, 0x0D, 0);
    config[0x102] = 1;
    assert_int_equal(check_parse_acs(config, sizeof config), 0); /* that is not the extended space */
}

/* --- small parsers -------------------------------------------------------------------------------- */

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
