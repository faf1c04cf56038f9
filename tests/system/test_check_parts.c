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

static const char *bad(bool kernel, int level, const char *text)
{
    const char *found = check_bad_record(
        &(check_record){ .kernel = kernel, .level = level, .seconds = 1, .text = text, .length = strlen(text) });
    return found ? found : "";
}

TEST(words_that_tell_of_trouble)
{
    static const char *const rows[][2] = {
        { "HARDWARE ERROR", "hardware error" },
        { "hardware erro", "" },
        { "x GPU reset", "gpu reset" },
        { "hung_task", "hung_task" },
        { "page allocation failure", "page allocation failure" },
        { "soft lockup", "soft lockup" },
        { "soft lockup. Command line: x", "" },
        { "Xid", "xid" },
        { "(Xid):", "xid" },
        { "maxid", "" },
        { "xids", "" },
        { "4xid", "" },
        { "xid4", "" },
        { "mce: hot", "mce:" },
        { "amdgpu: an ERROR", "amdgpu" },
        { "failed amdgpu", "amdgpu" },
        { "amdgpu timeout", "amdgpu" },
        { "amdgpu fine", "" },
        { "timeout", "" },
        { "", "" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_string_equal(bad(true, 5, rows[i][0]), rows[i][1]);
        assert_string_equal(bad(false, 5, rows[i][0]), "");
    }
    assert_string_equal(bad(true, 6, "mce: hot"), "");
    assert_string_equal(bad(true, -1, "mce: hot"), "mce:");
    /* Not behind the end of the record. */
    assert_null(check_bad_record(&(check_record){ .kernel = true, .level = 5, .text = "xid", .length = 2 }));
    assert_string_equal(check_bad_record(&(check_record){ .kernel = true, .level = 5, .text = "xids", .length = 3 }),
                        "xid");
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

TEST(lists_of_processors)
{
    static const struct {
        const char *list;
        int64_t     n;
    } rows[] = {
        { "", 0 },
        { "0", 1 },
        { "0-3,8,10-11", 7 },
        { "5-5", 1 },
        { "3-1", -1 },
        { "5-", -1 },
        { ",1", -1 },
        { "1,", 1 },
        { "1;2", -1 },
        { "1-2-3", -1 },
        { "a", -1 },
        { "1-b", -1 },
        { "1 ,2", -1 },
        { "0-1048575", 1048576 },
        { "0-1048576", -1 },
        { "1-1048576", 1048576 },
        { "2-1048577", -1 },
        { "0-1048575,0", -1 },
        { "1048576", 1 },
        { "1048577", -1 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (check_count_cpus(rows[i].list) != rows[i].n)
            fail_msg("'%s' is %lld", rows[i].list, (long long)check_count_cpus(rows[i].list));
}

TEST(numbers_and_fields)
{
    int64_t n = 77;
    assert_false(check_number(NULL, &n));
    assert_int_equal(n, 77);
    assert_true(check_number("9223372036854775807", &n) && n == INT64_MAX);
    assert_false(check_number("9223372036854775808", &n));
    assert_true(check_number(" -0x1f \t\n", &n) && n == -31);
    errno = EIO; /* of somebody else */
    assert_true(check_number("5", &n) && n == 5);
    assert_false(check_number("", &n) || check_number(" ", &n) || check_number("5 5", &n) || check_number("5kB", &n));
    static const char text[] = "one: 1\n two\t 2\nthree:3\nthree 33\nfour: x\nfour: 4\nfive\n\n\nsix:\t 666 kB";
    assert_int_equal(check_field(text, "one"), 1);
    assert_int_equal(check_field(text, "two"), 2);
    assert_int_equal(check_field(text, "three"), 33);
    assert_int_equal(check_field(text, "four"), -1);
    assert_int_equal(check_field(text, "five"), -1);
    assert_int_equal(check_field(text, "six"), 666);
    assert_int_equal(check_field(text, "seven"), -1);
    assert_int_equal(check_field("", "x"), -1);
}

TEST(arguments_of_the_kernel)
{
    static const char line[] = "ro pci=nomsi,bfsort\tiommu=pt,nopass\nx=  y=a,b";
    assert_true(check_argument(line, "pci", "nomsi") && check_argument(line, "pci", "bfsort"));
    assert_true(check_argument(line, "iommu", "pt") && check_argument(line, "iommu", "nopass"));
    assert_true(check_argument(line, "y", "a") && check_argument(line, "y", "b"));
    assert_false(check_argument(line, "pci", "bfsor") || check_argument(line, "pci", "bfsortx"));
    assert_false(check_argument(line, "pci", "pt") || check_argument(line, "ommu", "pt"));
    assert_false(check_argument(line, "iomm", "pt") || check_argument(line, "ro", "") ||
                 check_argument(line, "z", "a"));
    assert_false(check_argument("", "y", "a") || check_argument("  \t", "y", "a") || check_argument("y", "y", "a"));
}

TEST(moments_and_choices)
{
    char          out[32];
    check         c = { .arena = tm_arena_create(), .sysroot = "" };
    char         *variables[] = { (char[]){ "AB=1" }, (char[]){ "A=2" }, (char[]){ "E=" }, (char[]){ "A=3" }, NULL };
    tm_check_host host = { .environment = variables };
    c.host = &host;
    assert_string_equal(check_utc(0, out), "1970-01-01T00:00:00Z");
    assert_string_equal(check_utc(-1, out), "unknown");
    assert_string_equal(check_utc(INT64_C(253402300799999), out), "9999-12-31T23:59:59Z");
    assert_string_equal(check_utc(INT64_C(253402300800000), out), "unknown");
    assert_string_equal(check_choice(&c, "a [b] c [d]"), "b");
    assert_string_equal(check_choice(&c, "a []"), "");
    assert_string_equal(check_choice(&c, "a [b"), "a [b");
    assert_string_equal(check_choice(&c, "a] b"), "a] b");
    assert_string_equal(check_env(&c, "A"), "2");
    assert_string_equal(check_env(&c, "AB"), "1");
    assert_null(check_env(&c, "E"));
    assert_null(check_env(&c, "B"));
    host.environment = NULL;
    assert_null(check_env(&c, "A"));
    tm_arena_destroy(c.arena);
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
