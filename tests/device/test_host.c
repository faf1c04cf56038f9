/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of devices in the host's memory: what it takes of the address space, where it lies, how much of it is used,
 * when it is full of zeros, and what is said when there is none. */
#include <sys/mman.h>
#include <sys/resource.h>

#include "support/test.h"

#include "base/cpu.h"
#include "base/text.h"
#include "device/backend.h"
#include "support/training.h"

#define OK(call) assert_int_equal((call), TM_OK)

enum { PAGE = 4096, HUGE = 2 << 20 };

static long mapped_pages(void)
{
    char  text[128] = "";
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    setbuf(f, NULL);
    assert_non_null(fgets(text, sizeof text, f));
    fclose(f);
    return strtol(text, NULL, 10);
}

/* Whole pages, not one more, at a multiple of a huge page; zero; all of it is given back. */
TEST(memory_is_as_large_as_asked)
{
    static const size_t sizes[] = { 1, PAGE - 1, PAGE, PAGE + 1, HUGE - PAGE, HUGE, HUGE + 1, 3 * HUGE + 5 };
    tm_device          *device = test_device_open("cpu", 2);
    tm_address          warm;
    OK(tm_device_alloc(device, 1, &warm, NULL)); /* threads are made */
    (void)mapped_pages();
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        tm_address a;
        long       before = mapped_pages(), whole = (long)((sizes[i] + PAGE - 1) / PAGE);
        OK(tm_device_alloc(device, sizes[i], &a, NULL));
        assert_int_equal(mapped_pages(), before + whole);
        assert_int_equal(a.at % HUGE, 0);
        assert_int_equal(tm_device_used_bytes(device, a, sizes[i]), sizes[i]);
        const char *data = (const char *)a.at; // NOLINT
        for (size_t k = 0; k < sizes[i]; k++) assert_int_equal(data[k], 0);
        tm_device_release(device, a, sizes[i]);
        assert_int_equal(mapped_pages(), before);
    }
    tm_device_release(device, warm, 1);
    tm_device_close(device);
}

/* Of the host, for what is offloaded: zeros at first, all of it can be written, and it is given back. */
TEST(memory_near_a_device_is_the_hosts)
{
    tm_device *device = test_device_open("cpu", 1);
    tm_address a = { 0 };
    (void)mapped_pages();
    long before = mapped_pages();
    tm_device_release_near(device, a, 1);
    OK(tm_device_alloc_near(device, 3 * PAGE, &a, NULL));
    assert_int_equal(mapped_pages(), before + 3);
    unsigned char *data = (unsigned char *)a.at; // NOLINT
    for (size_t i = 0; i < 3 * PAGE; i++) assert_int_equal(data[i], 0), data[i] = 7;
    tm_device_release_near(device, a, 3 * PAGE);
    assert_int_equal(mapped_pages(), before);
    assert_refused(tm_device_alloc_near(device, (size_t)1 << 60, &a, err), TM_NOMEM, "");
    tm_device_close(device);
}

/* Pages that were touched count, the last one as far as it is asked for. More than are looked at in one go. */
TEST(used_memory_is_counted_by_pages)
{
    const size_t   pages = (1 << 16) + 3;
    tm_device     *device = test_device_open("cpu", 1);
    unsigned char *map =
        mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    tm_address a = { (uintptr_t)map };
    assert_true(map != MAP_FAILED);
    madvise(map, pages * PAGE, MADV_NOHUGEPAGE);
    assert_int_equal(tm_device_used_bytes(device, a, pages * PAGE), 0);
    map[5 * PAGE] = 1;
    assert_int_equal(tm_device_used_bytes(device, a, pages * PAGE), PAGE);
    map[(pages - 1) * PAGE] = map[(pages - 3) * PAGE] = map[(pages - 4) * PAGE] = 1;
    assert_int_equal(tm_device_used_bytes(device, a, pages * PAGE), 4 * PAGE);
    assert_int_equal(tm_device_used_bytes(device, a, (pages - 1) * PAGE + 100), 3 * PAGE + 100);
    assert_int_equal(tm_device_used_bytes(device, a, (pages - 1) * PAGE), 3 * PAGE);
    assert_int_equal(tm_device_used_bytes(device, a, 5 * PAGE + 1), 1);
    assert_int_equal(tm_device_used_bytes(device, a, 0), 0);
    munmap(map + 8 * PAGE, PAGE);
    assert_int_equal(tm_device_used_bytes(device, a, 20 * PAGE), -1);
    munmap(map, pages * PAGE);
    tm_device_close(device);
}

static void write_seven(const tm_call *call)
{
    memset(call->out[0].data, 7, 64);
}

static void expect_zeros(tm_device *device, tm_address at, size_t bytes)
{
    const unsigned char *data = (const unsigned char *)at.at; // NOLINT
    OK(tm_device_fill(device, at, 0, bytes, NULL));
    for (size_t i = 0; i < bytes; i++) assert_int_equal(data[i], 0);
}

/* Fresh memory is zero already: only all of it, and only until something else has happened. */
TEST(zeros_are_written_where_they_are_not)
{
    tm_device      *device = test_device_open("cpu", 2);
    const tm_kernel kernel = { .run = write_seven };
    tm_address      a, b;
    OK(tm_device_alloc(device, 64, &a, NULL));              /* a kernel wrote it */
    tm_call call = { .out = { { .data = (void *)a.at } } }; // NOLINT
    OK(device->backend->launch(device->queues[TM_ON_COMPUTE], &kernel, &call, NULL));
    expect_zeros(device, a, 64);
    tm_device_release(device, a, 64);

    OK(tm_device_alloc(device, 64, &a, NULL)); /* behind its end */
    memset((char *)a.at + 64, 7, 64);          // NOLINT
    expect_zeros(device, a, 128);
    tm_device_release(device, a, 64);

    OK(tm_device_alloc(device, 64, &a, NULL)); /* before its beginning */
    char *page = (char *)a.at - PAGE;          // NOLINT
    assert_ptr_equal(mmap(page, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
                     page);
    memset(page, 7, PAGE);
    expect_zeros(device, (tm_address){ (uintptr_t)page }, PAGE);
    munmap(page, PAGE);
    tm_device_release(device, a, 64);
    page += PAGE; /* another one in its place */
    assert_ptr_equal(mmap(page, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
                     page);
    memset(page, 7, PAGE);
    expect_zeros(device, (tm_address){ (uintptr_t)page }, 64);
    munmap(page, PAGE);

    OK(tm_device_alloc(device, 64, &a, NULL)); /* filled with something else */
    OK(tm_device_fill(device, a, 9, 64, NULL));
    expect_zeros(device, a, 64);
    OK(tm_device_alloc(device, 64, &b, NULL)); /* copied to */
    OK(tm_device_fill(device, a, 9, 64, NULL));
    OK(tm_device_copy(device, b, a, 64, NULL));
    expect_zeros(device, b, 64);
    tm_device_release(device, a, 64);
    tm_device_release(device, b, 64);
    tm_device_close(device);
}

TEST(memory_that_is_not_there_is_refused)
{
    tm_device    *device = test_device_open("cpu", 2);
    tm_address    a = { 0 };
    tm_error      err = { 0 };
    struct rlimit limit, less;
    OK(tm_device_alloc(device, 1, &a, NULL));
    tm_device_release(device, a, 1);
    assert_int_equal(tm_device_alloc(device, (size_t)1 << 50, &a, &err), TM_NOMEM);
    assert_int_equal(strncmp(err.text, "the plan needs 1.00 PiB and ", 28), 0);
    assert_non_null(strstr(err.text, " are available; lower training.local_batch_size or training.seq_len, or set "
                                     "activation_checkpoint.mode: full or training.offload: all"));
    assert_int_equal(getrlimit(RLIMIT_AS, &limit), 0);
    err = (tm_error){ 0 };
    less = limit;
    less.rlim_cur = (rlim_t)mapped_pages() * PAGE + (8 << 20);
    if (tm_memory_available_bytes("") > 32 << 20 && setrlimit(RLIMIT_AS, &less) == 0) {
        tm_status st = tm_device_alloc(device, 16 << 20, &a, &err);
        setrlimit(RLIMIT_AS, &limit);
        assert_int_equal(st, TM_NOMEM);
        assert_string_equal(err.text, "cannot reserve 16.00 MiB for the plan: Cannot allocate memory");
    }
    tm_device_close(device);
}

TEST(unknown_devices_are_refused_by_name)
{
    tm_device *device = NULL;
    tm_error   err = { 0 };
    assert_int_equal(tm_device_open("gpu7", 1, &device, &err), TM_INVALID);
    assert_string_equal(
        err.text, "unknown device 'gpu7' (--device); this build has: auto, cpu, cuda[:N], hip[:N], reference, null");
    err = (tm_error){ 0 };
    assert_int_equal(tm_device_open_planning("", 1, &device, &err), TM_INVALID);
    assert_string_equal(err.text,
                        "unknown device '' (--device); this build has: auto, cpu, cuda[:N], hip[:N], reference, null");
    assert_null(device);
    device = test_device_open("null", 3);
    assert_string_equal(tm_device_describe(device)->text, "null: computes nothing");
    assert_int_equal(tm_device_describe(device)->threads, 3);
    err = (tm_error){ 0 };
    assert_int_equal(tm_device_limit_isa(device, "avx2", &err), TM_UNSUPPORTED);
    assert_string_equal(err.text, "--isa avx2 is for device cpu, found device null; leave it out");
    assert_null(tm_device_gemm(device));
    assert_int_equal(tm_device_shared_bytes(device), 0);
    tm_device_close(device);
    device = test_device_open("null", 0);
    assert_int_equal(tm_device_describe(device)->threads, 1);
    tm_device_close(device);
    device = test_device_open("cpu", 0);
    assert_int_equal(tm_device_describe(device)->threads, tm_cpu_threads_allowed());
    tm_device_close(device);
    device = test_device_open("reference", 4);
    assert_string_equal(tm_device_describe(device)->text, "reference: float64, one thread");
    tm_device_close(device);
}
