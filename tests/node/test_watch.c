/* SPDX-License-Identifier: Apache-2.0 */
/* Sensors of processors in a made-up /sys: what is there is read in its units, what is not there is unknown. */
#include "support/folder.h"

#include "apps/node/watch.h"

#include "support/test.h"

static const int processors[] = { 1, 4, 6 };

TEST(all_is_read_in_its_units)
{
    char *root = test_tree_make();
    test_put(root, "sys/class/hwmon/hwmon0/name", "nvme\n");
    test_put(root, "sys/class/hwmon/hwmon0/temp1_input", "99000\n"); /* no processor */
    test_put(root, "sys/class/hwmon/hwmon3/name", "coretemp\n");
    test_put(root, "sys/class/hwmon/hwmon3/temp1_input", "61000\n");
    test_put(root, "sys/class/hwmon/hwmon3/temp5_input", "72500\n");
    test_put(root, "sys/class/thermal/thermal_zone0/type", "x86_pkg_temp\n");
    test_put(root, "sys/class/thermal/thermal_zone0/temp", "98000\n"); /* the same once more, where nothing better is */
    test_put(root, "sys/class/powercap/intel-rapl:0/name", "package-0\n");
    test_put(root, "sys/class/powercap/intel-rapl:0/energy_uj", "5000000\n");
    test_put(root, "sys/class/powercap/intel-rapl:0/max_energy_range_uj", "9000000\n");
    test_put(root, "sys/class/powercap/intel-rapl:0:0/name", "core\n");
    test_put(root, "sys/class/powercap/intel-rapl:0:0/energy_uj", "1\n");
    test_put(root, "sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq", "3000000\n");
    test_put(root, "sys/devices/system/cpu/cpu4/cpufreq/scaling_cur_freq", "2500000\n");
    test_put(root, "sys/devices/system/cpu/cpu6/cpufreq/scaling_cur_freq", "1000000\n");
    test_put(root, "sys/devices/system/cpu/cpu5/cpufreq/scaling_cur_freq", "100000\n"); /* not of these */
    test_put(root, "sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count", "3\n");
    test_put(root, "sys/devices/system/cpu/cpu6/thermal_throttle/core_throttle_count", "4\n");
    test_put(root, "sys/devices/system/cpu/cpu5/thermal_throttle/core_throttle_count", "100\n");
    tm_node_watch *w = tm_node_watch_processors(processors, 3, root);
    tm_node_sensed s;
    tm_node_watch_read(w, 10, &s);
    assert_true(s.clock_mhz == 2500 && s.hottest_c == 72.5 && s.throttles == 7 && isnan(s.watts));
    test_put(root, "sys/class/powercap/intel-rapl:0/energy_uj", "8000000\n");
    tm_node_watch_read(w, 12, &s);
    assert_true(fabs(s.watts - 1.5) < 1e-9); /* 3 J in 2 s */
    test_put(root, "sys/class/powercap/intel-rapl:0/energy_uj", "1000000\n");
    tm_node_watch_read(w, 13, &s);
    assert_true(fabs(s.watts - 2) < 1e-9); /* it has begun again */
    tm_node_watch_close(w);
    test_tree_remove(root);
}

TEST(a_zone_is_taken_where_no_monitor_is)
{
    char *root = test_tree_make();
    test_put(root, "sys/class/thermal/thermal_zone0/type", "acpitz\n");
    test_put(root, "sys/class/thermal/thermal_zone0/temp", "27000\n");
    test_put(root, "sys/class/thermal/thermal_zone1/type", "x86_pkg_temp\n");
    test_put(root, "sys/class/thermal/thermal_zone1/temp", "58000\n");
    tm_node_watch *w = tm_node_watch_processors(processors, 3, root);
    tm_node_sensed s;
    tm_node_watch_read(w, 0, &s);
    assert_true(s.hottest_c == 58);
    tm_node_watch_close(w);
    test_tree_remove(root);
}
