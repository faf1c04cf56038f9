/* SPDX-License-Identifier: Apache-2.0 */
/* The reports of several nodes: lists, placeholders for those that are missing, differences. */
#include "support/test.h"

#include "support/refusal.h"
#include "../support/folder.h"
#include "../support/fake_run.h"
#include "base/file.h"
#include "apps/check/report.h"

static const char *folder;

static int begin(void **state)
{
    (void)state;
    folder = test_in_folder("preflight");
    return 0;
}

static int end(void **state)
{
    (void)state;
    test_folder_remove();
    return 0;
}

static void put(const char *name, const char *content)
{
    test_put(folder, name, content);
}

static void expect_file(const char *name, const char *content)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    tm_text text = fake_read(path);
    assert_string_equal(text.data ? text.data : "", content);
    tm_text_fini(&text);
}

static const char *expected_file(const char *content)
{
    static char path[1024];
    put("asked.txt", content);
    snprintf(path, sizeof path, "%s/asked.txt", folder);
    return path;
}

TEST_WITH(bad_input_is_refused, begin, end)
{
    size_t   passing = 7, failing = 8;
    tm_error err = { 0 };
    assert_int_equal(tm_checks_aggregate(folder, NULL, &passing, &failing, &err), TM_INVALID);
    assert_int_equal(passing, 0);
    assert_int_equal(failing, 0);
    refusal_is_sound(&err);
    assert_non_null(strstr(err.text, "cannot read directory '"));
    assert_non_null(strstr(err.text, "`trainmark check --dump-path` makes it"));
    assert_int_equal(tm_checks_aggregate(folder, test_in_folder("none"), &passing, &failing, NULL), TM_INVALID);
    static const char *const lists[] = { "", "# nobody\n", "node1\n../x\n", "-x\n" };
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        err = (tm_error){ 0 };
        assert_int_equal(tm_checks_aggregate(folder, expected_file(lists[i]), &passing, &failing, &err), TM_INVALID);
        refusal_is_sound(&err);
    }
    /* Nobody answered at all: all fail, and that is a report. */
    assert_int_equal(tm_checks_aggregate(folder, expected_file("n1\nn2\n"), &passing, &failing, NULL), TM_OK);
    assert_int_equal(failing, 2);
    expect_file("passing_nodes.txt", "");
    expect_file("failing_nodes.txt", "n1\nn2\n");
}

static void one_of(tm_checks *checks, const char *id, tm_check_status status, const char *observed)
{
    tm_checks_add(checks, &(tm_check_result){ .id = id, .group = "g", .status = status, .observed = observed });
}

/* The report to the letter: several troubles of a node, texts that would break the table, what differs, who was not
 * expected. */
TEST_WITH(the_whole_report, begin, end)
{
    size_t passing, failing;
    for (int i = 0; i < 4; i++) {
        tm_checks checks = { .wall_ms = i < 2 ? 1000 : 31000 + 500 * i };
        snprintf(checks.host, sizeof checks.host, "n%d", i);
        one_of(&checks, "os", TM_CHECK_INFO, i == 3 ? "other" : "same");
        one_of(&checks, "a|b", TM_CHECK_FAIL, i == 1 ? "1\n2|3" : "x");
        one_of(&checks, "kernel", i == 0 ? TM_CHECK_WARN : TM_CHECK_PASS, i == 0 ? "old" : "new");
        if (i == 2) one_of(&checks, "cmdline", TM_CHECK_SKIP, "alone");
        if (i > 1) one_of(&checks, "versions", TM_CHECK_INFO, i == 2 ? "v2" : "v3");
        if (i == 3) checks.counts[TM_CHECK_FAIL] = 0, checks.results[1].status = TM_CHECK_PASS;
        assert_int_equal(tm_checks_dump(&checks, folder, NULL), TM_OK);
        tm_checks_fini(&checks);
    }
    char path[1024];
    snprintf(path, sizeof path, "%s/smoke/n3.json", folder);
    tm_text another = fake_read(path);
    put("smoke/n8.json", another.data);
    tm_text_fini(&another);
    put("smoke/n9.json", "[|\n");
    assert_int_equal(tm_checks_aggregate(folder, expected_file("n1\nn5\nn0\n"), &passing, &failing, NULL), TM_OK);
    assert_true(passing == 1 && failing == 6);
    snprintf(path, sizeof path, "%s/smoke_report.md", folder);
    tm_text text = fake_read(path), plain = { 0 };
    for (const char *at = text.data, *own; *at; at = own ? own + strlen(folder) : at + strlen(at)) {
        own = strstr(at, folder);
        tm_text_add_n(&plain, at, own ? (size_t)(own - at) : strlen(at));
    }
    assert_string_equal(plain.data,
                        "# System checks of 7 nodes\n\n1 pass, 6 fail.\n\n"
                        "| node | verdict | not passed |\n|---|---|---|\n"
                        "| n0 | FAIL | FAIL a\\|b: x; WARN kernel: old |\n"
                        "| n1 | FAIL | FAIL a\\|b: 1 2\\|3 |\n"
                        "| n2 | FAIL | FAIL a\\|b: x |\n"
                        "| n3 | PASS |  |\n"
                        "| n5 | FAIL | no report: the node did not answer |\n"
                        "| n8 | FAIL | '/smoke/n8.json' is the report of 'n3' |\n"
                        "| n9 | FAIL | '/smoke/n9.json', line 1: invalid token near '\\|' |\n"
                        "\n## Differences\n\n"
                        "- WARN os of n3 is `other`, that of most nodes `same`\n"
                        "- WARN kernel of n0 is `old`, that of most nodes `new`\n"
                        "- WARN versions of n3 is `v3`, that of most nodes `v2`\n"
                        "- WARN the nodes' times are 32 s apart: their clocks differ by more than 30 s, or they were "
                        "not checked at the same time\n"
                        "\n## Not expected\n\n"
                        "- INFO n2 reported and was not expected\n"
                        "- INFO n3 reported and was not expected\n"
                        "- INFO n8 reported and was not expected\n"
                        "- INFO n9 reported and was not expected\n");
    tm_text_fini(&text);
    tm_text_fini(&plain);
    expect_file("expected_nodes.txt", "n0\nn1\nn5\n");
    expect_file("passing_nodes.txt", "n3\n");
}

TESTS_IN_ORDER
