/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a host that is made up: what fails is found, with the way out. */
#include "support/test.h"

#include "base/file.h"
#include "one_check.h"
#include "support/folder.h"

static void certify(tm_node_outcome *host)
{
    run_one_check(&(tm_node_options){ .only = "host", .minutes = 1, .folder = ".", .sysroot = test_folder() }, host);
}

TEST(a_limit_on_one_processor)
{
    static const char *const kinds[] = { "scaling", "cpuinfo" };
    tm_node_outcome          o;
    certify(&o);
    assert_int_equal(o.verdict, TM_NODE_PASS);
    assert_non_null(strstr(o.reach, "were skipped"));
    tm_node_outcome_fini(&o);
    for (int cpu = 0; cpu < 2; cpu++)
        for (int k = 0; k < 2; k++) {
            char        path[512];
            const char *content = cpu == 1 && k == 0 ? "1200000\n" : "3500000\n";
            snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu%d/cpufreq", test_folder(), cpu);
            assert_int_equal(tm_folder_make(path, NULL), TM_OK);
            snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu%d/cpufreq/%s_max_freq", test_folder(), cpu,
                     kinds[k]);
            assert_int_equal(tm_file_write(path, content, strlen(content), NULL), TM_OK);
        }
    certify(&o);
    assert_int_equal(o.verdict, TM_NODE_FAIL);
    assert_int_equal(o.n_findings, 1);
    assert_string_equal(o.findings[0].place, "frequency");
    assert_non_null(strstr(o.findings[0].text, "1 of 2 are limited: cpu1 1.20 of 3.50 GHz"));
    assert_non_null(strstr(o.findings[0].text, "way out: cpupower"));
    tm_node_outcome_fini(&o);
    test_folder_remove();
}

static void begun(const char *id, void *all)
{
    tm_text_printf(all, "%s ", id);
}

/* Names, or with '-' in front all but these; what is not asked for says so. */
TEST(which_checks_a_list_wants)
{
    size_t               n;
    tm_text              but_two = { 0 }, said = { 0 };
    const tm_node_check *checks = tm_node_checks(&n);
    tm_node_options      options = {
             .minutes = 0.1, .folder = ".", .sysroot = test_folder(), .begins = begun, .data = &said
    };
    for (size_t i = 0; i < n; i++)
        if (strcmp(checks[i].id, "software") != 0 && strcmp(checks[i].id, "host") != 0)
            tm_text_printf(&but_two, "%s-%s", but_two.length ? "," : "", checks[i].id);
    const char *const rows[][2] = { { "host", "host " },
                                    { "host,software", "software host " },
                                    { but_two.data, "software host " },
                                    { "host,software,-host", "software " } };
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        tm_node_outcome outcomes[32] = { 0 };
        tm_error        err = { 0 };
        said.length = 0;
        options.only = rows[r][0];
        assert_int_equal(tm_node_run(&options, outcomes, &err), TM_OK);
        assert_string_equal(said.data, rows[r][1]);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(strcmp(outcomes[i].reason, "not asked for") != 0, strstr(said.data, checks[i].id) != NULL);
            tm_node_outcome_fini(&outcomes[i]);
        }
    }
    tm_node_outcome none[32] = { 0 };
    tm_error        err = { 0 };
    options.only = "host,softwear";
    assert_int_equal(tm_node_run(&options, none, &err), TM_USAGE);
    assert_non_null(strstr(err.text, "there is no check 'softwear'; did you mean 'software'?"));
    tm_text_fini(&but_two), tm_text_fini(&said);
    test_folder_remove();
}
