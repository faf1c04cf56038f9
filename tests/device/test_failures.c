/* SPDX-License-Identifier: Apache-2.0 */
/* What every call of a device says when the device cannot do it: one that was opened to plan, one whose calls fail, of
 * itself or not; memory on a disk. */
#include "device/backend.h"
#include "support/folder.h"

#include <signal.h>

#include "support/test.h"

/* --- one that fails ------------------------------------------------------------------------------------- */

static tm_status outcome; /* of every call from now on */
static int       calls;

static tm_status done(tm_error *err)
{
    calls++;
    return outcome == TM_OK ? TM_OK : tm_fail(err, outcome, "the cable is out");
}

static tm_status alloc(tm_device *device, size_t bytes, tm_address *out, tm_error *err)
{
    TM_TRY(done(err));
    return tm_backend_cpu.alloc(device, bytes, out, err);
}

static tm_status write_to(tm_queue *queue, tm_address to, const void *from, size_t bytes, tm_error *err)
{
    TM_TRY(done(err));
    return tm_backend_cpu.write(queue, to, from, bytes, err);
}

static tm_status read_from(tm_queue *queue, void *to, tm_address from, size_t bytes, tm_error *err)
{
    TM_TRY(done(err));
    return tm_backend_cpu.read(queue, to, from, bytes, err);
}

static tm_status copy(tm_queue *queue, tm_address to, tm_address from, size_t bytes, tm_error *err)
{
    TM_TRY(done(err));
    return tm_backend_cpu.copy(queue, to, from, bytes, err);
}

static tm_status fill(tm_queue *queue, tm_address to, unsigned char value, size_t bytes, tm_error *err)
{
    TM_TRY(done(err));
    return tm_backend_cpu.fill(queue, to, value, bytes, err);
}

static tm_status wait_all(tm_queue *queue, tm_error *err)
{
    TM_TRY(done(err));
    return tm_backend_cpu.wait(queue, err);
}

static tm_backend breaking(void)
{
    tm_backend b = tm_backend_cpu;
    b.name = "breaking";
    b.alloc = alloc;
    b.write = write_to, b.read = read_from, b.copy = copy, b.fill = fill, b.wait = wait_all;
    return b;
}

enum { ALLOC, HOST, WRITE, READ, COPY, FILL, WAIT, RUN, MAP, CALLS };

static tm_status call(tm_device *device, int which, tm_address memory, tm_error *err)
{
    static const tm_program nothing;
    char                    data[8] = "seven..";
    tm_address              other = { 0 };
    void                   *host = NULL;
    tm_status               st = TM_INTERNAL;
    *err = (tm_error){ 0 };
    switch (which) {
    case ALLOC:
        st = tm_device_alloc(device, 64, &other, err);
        if (st == TM_OK) tm_device_release(device, other, 64);
        break;
    case HOST:
        st = tm_device_alloc_host(device, 64, &host, err);
        for (int i = 0; i < 64 && st == TM_OK; i++) assert_int_equal(((char *)host)[i], 0);
        if (st == TM_OK) tm_device_release_host(device, host, 64);
        break;
    case WRITE:
        st = tm_device_write(device, memory, data, sizeof data, err);
        break;
    case READ:
        st = tm_device_read(device, data, memory, sizeof data, err);
        break;
    case COPY:
        st = tm_device_copy(device, tm_address_add(memory, 8), memory, sizeof data, err);
        break;
    case FILL:
        st = tm_device_fill(device, memory, 7, 16, err);
        break;
    case WAIT:
        st = tm_device_wait(device, err);
        break;
    case RUN:
        st = tm_device_run(device, &nothing, NULL, err);
        break;
    default:
        st = tm_device_map_file(device, test_folder(), 4096, &other, err);
        if (st == TM_OK) tm_device_unmap_file(device, other, 4096);
    }
    return st;
}

TEST(a_device_that_plans_cannot_run)
{
    tm_device *device;
    tm_error   err = { 0 };
    assert_int_equal(tm_device_open_planning("cpu", 1, &device, &err), TM_OK);
    for (int c = 0; c < CALLS; c++) {
        assert_int_equal(call(device, c, (tm_address){ 0 }, &err), TM_UNSUPPORTED);
        assert_string_equal(err.text, "device cpu was opened to plan for it and cannot run");
    }
    tm_device_close(device);
}

/* What is no failure of the device itself is told, and work goes on; a failure of its own stays, and nothing is called
 * any more. */
TEST(failures_stay_where_they_are_the_devices)
{
    const tm_backend backend = breaking();
    for (int c = 0; c < CALLS; c++) {
        tm_device *device;
        tm_address memory;
        tm_error   err = { 0 };
        bool       reaches = c < RUN; /* running nothing calls nothing, nor does a file */
        outcome = TM_OK;
        assert_int_equal(tm_device_open_backend(&backend, 1, false, &device, &err), TM_OK);
        assert_int_equal(tm_device_alloc(device, 64, &memory, &err), TM_OK);
        assert_int_equal(call(device, c, memory, &err), TM_OK);
        calls = 0;
        outcome = TM_NOMEM;
        assert_int_equal(call(device, c, memory, &err), reaches ? TM_NOMEM : TM_OK);
        if (reaches) assert_string_equal(err.text, "the cable is out");
        assert_int_equal(calls, reaches);
        outcome = TM_OK;
        for (int other = 0; other < CALLS; other++) assert_int_equal(call(device, other, memory, &err), TM_OK);
        outcome = TM_DEVICE;
        assert_int_equal(call(device, c, memory, &err), reaches ? TM_DEVICE : TM_OK);
        if (reaches) assert_string_equal(err.text, "device breaking failed: the cable is out");
        outcome = TM_OK;
        calls = 0;
        for (int other = 0; other < CALLS && reaches; other++) {
            assert_int_equal(call(device, other, memory, &err), TM_DEVICE);
            assert_string_equal(err.text, "device breaking failed: the cable is out");
        }
        assert_int_equal(calls, 0);
        tm_device_release(device, memory, 64);
        tm_device_release(device, (tm_address){ 0 }, 64);
        tm_device_close(device);
    }
    tm_device_close(NULL);
}

/* --- a disk ------------------------------------------------------------------------------------------------ */

TEST(memory_on_a_disk)
{
    tm_device *device;
    tm_address memory = { 0 };
    char       words[700];
    tm_error   err = { 0 }, none = { 0 }, large = { 0 };
    assert_int_equal(tm_device_open("cpu", 1, &device, &err), TM_OK);
    assert_int_equal(tm_device_map_file(device, test_folder(), 10000, &memory, &err), TM_OK);
    for (int i = 0; i < 10000; i += 99) assert_int_equal(((char *)memory.at)[i], 0);
    ((char *)memory.at)[9999] = 1;
    tm_device_unmap_file(device, memory, 10000);
    tm_device_unmap_file(device, (tm_address){ 0 }, 10000);
    snprintf(words, sizeof words, "%s/none", test_folder());
    char *folder = strdup(words);
    assert_int_equal(tm_device_map_file(device, folder, 10000, &memory, &none), TM_INVALID);
    snprintf(words, sizeof words,
             "cannot make the file for offloaded tensors in '%s': No such file or directory; name a directory that can "
             "be written with training.offload_path",
             folder);
    assert_string_equal(none.text, words);
    free(folder);
    signal(SIGXFSZ, SIG_IGN); /* as the program does, where a limit of files is set */
    assert_int_equal(tm_device_map_file(device, test_folder(), (size_t)1 << 62, &memory, &large), TM_IO);
    snprintf(words, sizeof words, "cannot reserve 4096.00 PiB for offloaded tensors in '%s': ", test_folder());
    assert_memory_equal(large.text, words, strlen(words));
    assert_non_null(strstr(large.text, "; make room, or name another directory with training.offload_path"));
    tm_device_close(device);
}

TEST_FIXTURE(NULL, test_folder_teardown)
