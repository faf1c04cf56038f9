/* SPDX-License-Identifier: Apache-2.0 */
/* What comes from outside commands neither a terminal nor a spreadsheet; secrets do not get into records. */

#include "support/test.h"

#include "base/csv.h"
#include "base/log.h"
#include "base/plain.h"
#include "base/secret.h"

static void expect_plain(const char *from, unsigned keep, const char *wanted)
{
    tm_text out = { 0 };
    tm_plain_add(&out, from, keep);
    assert_string_equal(out.data, wanted);
    tm_text_fini(&out);
}

TEST(terminals_obey_nothing)
{
    expect_plain("llama3.1_8B, Größe 5 µm, 模型", 0, "llama3.1_8B, Größe 5 µm, 模型");
    expect_plain("\033]0;owned\007\033[2J", 0, "\\x1b]0;owned\\x07\\x1b[2J");
    expect_plain("a\rb\bc\177", TM_PLAIN_LINES, "a\\x0db\\x08c\\x7f");
    expect_plain("\xc2\x9b"
                 "2J",
                 0, "\\u009b2J");                                     /* CSI in one character */
    expect_plain("user\xe2\x80\xaegpj.exe", 0, "user\\u202egpj.exe"); /* written from right to left */
    expect_plain("\xff\xfe", 0, "\\xff\\xfe");
    expect_plain("a\nb\tc", 0, "a\\nb\\x09c");
    expect_plain("a\nb\tc", TM_PLAIN_LINES, "a\nb\tc");
    expect_plain("no\ntrainmark: error: forged", TM_PLAIN_MESSAGE, "no\n  trainmark: error: forged");
    expect_plain("\033[1;32mvalid\033[0m", TM_PLAIN_LINES, "\\x1b[1;32mvalid\\x1b[0m");
    expect_plain("\033[1;32mvalid\033[0m", TM_PLAIN_COLOURS, "\033[1;32mvalid\033[0m");
    expect_plain("\033[8mhidden\033[31H", TM_PLAIN_COLOURS, "\\x1b[8mhidden\\x1b[31H");
    expect_plain("", 0, "");
}

/* What a function prints on standard error. */
static tm_text printed(void (*print)(void))
{
    int     ends[2], before = dup(STDERR_FILENO);
    tm_text text = { 0 };
    char    part[512];
    assert_int_equal(pipe(ends), 0);
    fflush(stderr);
    dup2(ends[1], STDERR_FILENO);
    print();
    fflush(stderr);
    dup2(before, STDERR_FILENO);
    close(ends[1]);
    close(before);
    for (ssize_t n; (n = read(ends[0], part, sizeof part)) > 0;) tm_text_add_n(&text, part, (size_t)n);
    close(ends[0]);
    return text;
}

static void warn(void)
{
    tm_warn("cannot use '%s'", "\033]0;x\007\ntrainmark: all is well");
}

TEST(the_log_is_a_sink)
{
    tm_text text = printed(warn);
    assert_string_equal(text.data, "trainmark: warning: cannot use '\\x1b]0;x\\x07\n  trainmark: all is well'\n");
    tm_text_fini(&text);
}

TEST(spreadsheets_compute_nothing)
{
    static const struct {
        const char *cell, *wanted;
    } cells[] = {
        { "=HYPERLINK(\"http://x\",\"y\")", "\"'=HYPERLINK(\"\"http://x\"\",\"\"y\"\")\"" },
        { "@SUM(A1)", "'@SUM(A1)" },
        { "+1+cmd|' /C calc'!A0", "'+1+cmd|' /C calc'!A0" },
        { "--training.steps 5", "'--training.steps 5" },
        { "-0.53", "-0.53" },
        { "+3", "+3" },
        { "-", "-" },
        { "-1e-05", "-1e-05" },
        { "nan", "nan" },
        { "it's", "it's" },
        { "", "" },
        { "\033[31mred", "\\x1b[31mred" },
        { "=", "=" },
        { "-x", "'-x" },
        { "\tx", "'\tx" },
        { " x ", " x " },
        { "'a", "'a" },
        { "a,b", "\"a,b\"" },
        { "\"", "\"\"\"\"" },
        { "a\nb", "\"a\nb\"" },
    };
    for (size_t i = 0; i < sizeof cells / sizeof cells[0]; i++) {
        tm_text     out = { 0 }, storage = { 0 };
        size_t      offsets[2];
        const char *cursor;
        tm_csv_add(&out, cells[i].cell, true);
        assert_string_equal(out.data, cells[i].wanted);
        tm_csv_add(&out, "x", false);
        tm_text_add(&out, "\n");
        cursor = out.data;
        assert_int_equal(tm_csv_read(&cursor, &storage, offsets, 2), 2);
        if (!strchr(cells[i].cell, '\033')) assert_string_equal(storage.data + offsets[0], cells[i].cell);
        assert_string_equal(storage.data + offsets[1], "x");
        tm_text_fini(&out);
        tm_text_fini(&storage);
    }
}

/* Cells between '|', of records between newlines; "+n" where a record has n cells more than there is room for. */
TEST(records_are_split)
{
    static const char *const all[][2] = {
        { "", "" },
        { "a", "a\n" },
        { "a,b\n", "a|b\n" },
        { "a,b\r\nc\n", "a|b\nc\n" },
        { ",", "|\n" },
        { "a,", "a|\n" },
        { "a,\nb", "a|\nb\n" },
        { ",a,,b", "|a|+1\n" },
        { "1,2,3", "1|2|3\n" },
        { "1,2,3,4,5\n6", "1|2|3+2\n6\n" },
        { "1,2,3,", "1|2|3+1\n" },
        { "\"a,b\",\"c\nd\"\n", "a,b|c\nd\n" },
        { "\"a\"\"b\",\"\"", "a\"b|\n" },
        { "\"open", "open\n" },
        { "\"a\"x,b\nc", "a\nc\n" },
        { "'=1+1,'x,'-2,'", "=1+1|'x|-2+1\n" },
        { "'=x,'a,''\n", "=x|'a|''\n" },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const char *cursor = all[i][0];
        tm_text     storage = { 0 }, out = { 0 };
        size_t      offsets[3], n;
        tm_text_add(&out, "");
        while ((n = tm_csv_read(&cursor, &storage, offsets, 3)) > 0) {
            for (size_t k = 0; k < n && k < 3; k++)
                tm_text_printf(&out, "%s%s", k ? "|" : "", storage.data + offsets[k]);
            if (n > 3) tm_text_printf(&out, "+%zu", n - 3);
            tm_text_add(&out, "\n");
        }
        if (strcmp(out.data, all[i][1]) != 0) fail_msg("'%s': '%s', wanted '%s'", all[i][0], out.data, all[i][1]);
        assert_int_equal(*cursor, '\0');
        tm_text_fini(&out);
        tm_text_fini(&storage);
    }
}

/* --- secrets ------------------------------------------------------------------------------------------------------ */

TEST(names_of_secrets)
{
    static const char *const secret[] = {
        "HF_TOKEN",   "my_secret",     "API_KEY",    "MYSQL_PASSWORD", "AWS_CREDENTIALS",      "MYSQL_PWD",
        "PROXY_AUTH", "AUTHORIZATION", "SENTRY_DSN", "ftp_pwd",        "BASIC_AUTH_SOCK_TOKEN"
    };
    static const char *const open[] = { "PWD",  "OLDPWD",          "SSH_AUTH_SOCK", "XAUTHORITY", "GIT_AUTHOR_NAME",
                                        "HOME", "OMP_NUM_THREADS", "PATH" };
    for (size_t i = 0; i < sizeof secret / sizeof secret[0]; i++)
        if (!tm_secret_name(secret[i])) fail_msg("%s is not secret", secret[i]);
    for (size_t i = 0; i < sizeof open / sizeof open[0]; i++)
        if (tm_secret_name(open[i])) fail_msg("%s is secret", open[i]);
}

static void expect_masked(const char *value, const char *wanted)
{
    tm_text out = { 0 };
    tm_secret_value(&out, value);
    assert_string_equal(out.data, wanted);
    tm_text_fini(&out);
}

TEST(values_that_look_like_secrets)
{
    expect_masked("postgres://bench:hunter2secret@db.example.com/x", "postgres://bench:***@db.example.com/x");
    expect_masked("https://a:b@c, redis://:pw@d:6379", "https://a:***@c, redis://:***@d:6379");
    expect_masked("https://example.com:8080/a@b", "https://example.com:8080/a@b");
    expect_masked("git@example.com:team/repo.git", "git@example.com:team/repo.git");
    expect_masked("ghp_"
                  "16C7e42F292c6912E7710c838347Ae178B4a",
                  "***");
    expect_masked("key=hf_"
                  "abcdefghijklmnopqrstuvwx;",
                  "key=***;");
    expect_masked("wJalrXUtnFEMI7K3MDENGbPxRfiCYEXAMPLEKEY", "***");
    expect_masked("Bearer eyJ"
                  "hbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9",
                  "Bearer ***");
    static const char *const plain[] = { "meta-llama-3.1-8B-Instruct",
                                         "/data/hf_models_llama31/train_2024_tokenized",
                                         "libomp.so.5:/usr/lib/x86_64-linux",
                                         "GRANULARITY=fine,compact,1,0",
                                         "nightlyperformanceregression7",
                                         "a1b2c3d4e5f6" /* a short commit */ };
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) expect_masked(plain[i], plain[i]);
    expect_masked("xxxx1111xxxx1111xxxx", "xxxx1111xxxx1111xxxx"); /* of 20 letters 4 changes are few, 5 many */
    expect_masked("xxxx1111xxxx1111xxx1", "***");
    expect_masked("", ""); /* a variable that is set to nothing */
}

TEST(command_lines_and_texts)
{
    static const char words[] =
        "trainmark\0run\0--data.path\0s3://user:pa55word@bucket/x\0--note\0wJalrXUtnFEMI7K3MDENG";
    tm_text out = { 0 };
    setenv("UPSTREAM_DSN", "very-private-thing", 1);
    tm_secret_command_line(&out, words, sizeof words);
    assert_string_equal(out.data, "trainmark run --data.path s3://user:***@bucket/x --note ***");
    static const char empty[] = "trainmark\0run\0--note\0\0--api-key\0\0--token=";
    out.length = 0;
    tm_secret_command_line(&out, empty, sizeof empty);
    assert_string_equal(out.data, "trainmark run --note '' --api-key *** --token=***");
    out.length = 0;
    tm_secret_command_line(&out, "", 0);
    assert_int_equal(out.length, 0);
    tm_text_add(&out, "path: very-private-thing, http://me:word@host");
    tm_secret_mask(&out);
    assert_string_equal(out.data, "path: ***, http://me:***@host");
    unsetenv("UPSTREAM_DSN");
    tm_text_fini(&out);
}
