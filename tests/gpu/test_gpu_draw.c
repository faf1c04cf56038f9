/* SPDX-License-Identifier: Apache-2.0 */
/* Initial values that the devices cuda and hip make: those of the host, bit for bit, and nothing beside them. */
#include "gpu/emulated.h"
#include "op/describe.h"

#include "support/test.h"

enum { GUARD = 64 };

/* Elements from .. from + n - 1, with bytes before and behind that stay. */
static unsigned char *drawn_on(tm_device *device, tm_dtype dtype, const tm_random_rows *rows, int64_t from, int64_t n)
{
    size_t         bytes = (size_t)n * tm_dtype_bytes(dtype), all = bytes + 2 * GUARD;
    unsigned char *found = malloc(all);
    tm_address     memory;
    tm_error       err = { 0 };
    tm_status      st = tm_device_alloc(device, all, &memory, &err);
    if (st == TM_OK) st = tm_device_fill(device, memory, 0xa5, all, &err);
    if (st == TM_OK) st = tm_device_draw(device, tm_address_add(memory, GUARD), dtype, rows, from, n, &err);
    if (st == TM_OK) st = tm_device_read(device, found, memory, all, &err);
    if (st == TM_OK) st = tm_device_wait(device, &err);
    if (st != TM_OK) fail_msg("%s", err.text);
    tm_device_release(device, memory, all);
    return found;
}

static void draws_what_the_host_draws(const char *name)
{
    static const tm_dtype       formats[] = { TM_F32, TM_BF16, TM_F64 }; /* of the last: by the host */
    static const tm_random_rows all[] = {
        { .seed = 1, .stream = 2, .std = 0.02, .columns = 5003, .ld = 5003 },
        { .seed = UINT64_MAX, .stream = UINT64_MAX - 5, .mean = -1, .std = 3, .first = 77, .columns = 67, .ld = 131 },
        { .seed = 3, .stream = 4, .std = 0.5, .cut = 0.3, .first = (int64_t)3 << 32, .columns = 9, .ld = 10 },
        { .seed = 5, .stream = 6, .mean = 2, .std = 0.1, .uniform = true, .columns = 101, .ld = 202 },
        { .seed = 7, .stream = 8, .mean = 1, .columns = 4, .ld = 4 },
    };
    if (!emulated_device(name)) skip();
    tm_device *device = emulated_open(name), *host = emulated_open("cpu");
    for (int f = 0; f < TM_COUNT_OF(formats); f++)
        for (int r = 0; r < TM_COUNT_OF(all); r++)
            for (int64_t from = 0; from < 6; from += 5) {
                int64_t        n = 700 - from, bytes = n * (int64_t)tm_dtype_bytes(formats[f]) + 2 * GUARD;
                unsigned char *found = drawn_on(device, formats[f], &all[r], from, n);
                unsigned char *wanted = drawn_on(host, formats[f], &all[r], from, n);
                if (memcmp(found, wanted, (size_t)bytes) != 0)
                    fail_msg("%s, %s, rows %d, from %d", name, tm_dtype_name(formats[f]), r, (int)from);
                free(found), free(wanted);
            }
    const tm_device_info *info = tm_device_describe(device);
    assert_int_equal(info->judged_modules + info->compiled_modules, 2); /* it was not the host */
    tm_device_close(device);
    tm_device_close(host);
}

TEST(cuda_draws_what_the_host_draws)
{
    draws_what_the_host_draws("cuda");
}

TEST(hip_draws_what_the_host_draws)
{
    draws_what_the_host_draws("hip");
}
