/* SPDX-License-Identifier: Apache-2.0 */
/* What the rest of the house asks about a device is told by the device, and is true. */
#include <stdlib.h>

#include "support/test.h"

#include "support/training.h"

TEST(devices_tell_their_facts)
{
    static const struct {
        const char *name;
        bool        computes, float64_only;
    } rows[] = { { "cpu", true, false }, { "reference", true, true }, { "null", false, false } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tm_device            *device = test_device_open(rows[i].name, 2);
        const tm_device_info *info = tm_device_describe(device);
        assert_string_equal(info->name, rows[i].name);
        assert_int_equal(info->kind, TM_DEVICE_CPU);
        assert_int_equal(info->computes, rows[i].computes);
        assert_int_equal(info->float64_only, rows[i].float64_only);
        assert_false(info->own_memory);
        assert_int_equal(info->threads, rows[i].float64_only ? 1 : 2);
        tm_device_close(device);
    }
}
