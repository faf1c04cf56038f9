/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers for a device whose values the host makes: more of them than it makes at once are those of the stream.
 */
#include "device/device.h"
#include "graph/value.h"

#include "support/test.h"

enum { N = (1 << 20) + 5003, FROM = 77 };

TEST(long_rows_are_those_of_the_stream)
{
    static const tm_random_rows rows = { .seed = 1, .stream = 2, .std = 0.02, .columns = 1009, .ld = 2018 };
    static float                wanted[N];
    static uint16_t             found[N];
    tm_device                  *device;
    tm_address                  memory;
    tm_error                    err = { 0 };
    tm_random_make(&rows, FROM, N, wanted);
    assert_int_equal(tm_device_open("cpu", 2, &device, &err), TM_OK);
    assert_int_equal(tm_device_alloc(device, sizeof found, &memory, &err), TM_OK);
    assert_int_equal(tm_device_draw(device, memory, TM_BF16, &rows, FROM, N, &err), TM_OK);
    assert_int_equal(tm_device_read(device, found, memory, sizeof found, &err), TM_OK);
    assert_int_equal(tm_device_wait(device, &err), TM_OK);
    for (int i = 0; i < N; i++)
        if (found[i] != tm_bf16_round(wanted[i])) fail_msg("element %d", i);
    tm_device_release(device, memory, sizeof found);
    tm_device_close(device);
}
