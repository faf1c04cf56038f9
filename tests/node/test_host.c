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
