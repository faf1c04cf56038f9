/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU's runtime, of both makers, over libraries that stand in for them (tests/standins): what is told of it, copies
 * and clocks, and what is said when each of its functions fails. */
#include "gpu/runtime.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "support/test.h"

static char libraries[2][PATH_MAX + 32];

/* The stand-ins lie beside the folder of this program. */
static void use(int hip)
{
    char    folder[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", folder, sizeof folder - 1);
    assert_true(n > 0);
    folder[n] = '\0';
    for (int i = 0; i < 2; i++) *strrchr(folder, '/') = '\0';
    snprintf(libraries[hip], sizeof libraries[hip], "%s/standins/%s.so", folder, hip ? "hip" : "cuda");
    setenv("TRAINMARK_GPU_RUNTIME", libraries[hip], 1);
}

static void *stream;

static tm_gpu *open_gpu(int hip, int wanted)
{
    tm_gpu  *gpu;
    tm_error err = { 0 };
    use(hip);
    if (tm_gpu_open((tm_gpu_maker)hip, wanted, &gpu, &err) != TM_OK) fail_msg("%s", err.text);
    if (tm_gpu_stream_open(gpu, &stream, &err) != TM_OK) fail_msg("%s", err.text);
    return gpu;
}

static void wait_for(tm_gpu *gpu)
{
    tm_error err = { 0 };
    for (bool done = false; !done;) {
        assert_int_equal(tm_gpu_stream_done(gpu, stream, &done, &err), TM_OK);
        nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
    }
}

static void facts_and_copies(void **state)
{
    (void)state;
    for (int hip = 0; hip < 2; hip++) {
        static const int indexes[] = { 0, 3, 4, 6 };
        char             words[16] = "fifteen letters", back[16] = "";
        void            *memory[2];
        tm_error         err = { 0 };
        double           seconds = -1;
        for (size_t i = 0; i < sizeof indexes / sizeof indexes[0]; i++) {
            tm_gpu             *gpu = open_gpu(hip, indexes[i]);
            const tm_gpu_facts *f = tm_gpu_facts_of(gpu);
            char                bus[32];
            snprintf(bus, sizeof bus, "0000:%02x:00.0", 16 + indexes[i] % 4);
            assert_string_equal(f->runtime, hip ? "HIP" : "CUDA");
            assert_non_null(strstr(f->library, hip ? "/standins/hip.so" : "/standins/cuda.so"));
            assert_int_equal(f->version, 12040);
            assert_int_equal(f->count, 4);
            assert_int_equal(f->index, indexes[i] % 4);
            assert_string_equal(f->name, "a stand-in");
            assert_string_equal(f->bus, bus);
            assert_true(f->memory == (size_t)1 << 32);
            assert_string_equal(f->arch, hip ? "gfx942" : "sm_90");
            assert_int_equal(f->shared_bytes, hip ? 65536 : 232448);
            assert_int_equal(f->multiprocessors, hip ? 304 : 132);
            tm_gpu_close(gpu);
        }
        tm_gpu *gpu = open_gpu(hip, 2);
        assert_int_equal(tm_gpu_count(), 4);
        void *mark[2];
        for (int i = 0; i < 2; i++) assert_int_equal(tm_gpu_event_open(gpu, &mark[i], &err), TM_OK);
        for (int i = 0; i < 2; i++) assert_int_equal(tm_gpu_alloc(gpu, sizeof words, &memory[i], &err), TM_OK);
        assert_ptr_not_equal(memory[0], memory[1]);
        assert_int_equal(tm_gpu_write(gpu, memory[0], words, sizeof words, &err), TM_OK);
        assert_int_equal(tm_gpu_event_record(gpu, mark[0], stream, &err), TM_OK);
        for (int i = 0; i < 5; i++)
            assert_int_equal(tm_gpu_queue_copy(gpu, stream, memory[1], memory[0], sizeof words, &err), TM_OK);
        assert_int_equal(tm_gpu_event_record(gpu, mark[1], stream, &err), TM_OK);
        bool done = true;
        assert_int_equal(tm_gpu_stream_done(gpu, stream, &done, &err), TM_OK);
        assert_false(done); /* seven that take a tenth of a millisecond each */
        wait_for(gpu);
        assert_int_equal(tm_gpu_read(gpu, back, memory[1], sizeof back, &err), TM_OK);
        assert_string_equal(back, words);
        assert_int_equal(tm_gpu_event_seconds(gpu, mark[0], mark[1], &seconds, &err), TM_OK);
        assert_true(seconds > 5e-4 && seconds < 5);
        for (int i = 0; i < 2; i++) tm_gpu_free(gpu, memory[i]);
        tm_gpu_free(gpu, NULL);
        tm_gpu_close(gpu);
        tm_gpu_close(NULL);
    }
}

static void no_memory(void **state)
{
    (void)state;
    for (int hip = 0; hip < 2; hip++) {
        tm_gpu  *gpu = open_gpu(hip, 2);
        void    *memory = NULL;
        tm_error err = { 0 };
        assert_int_equal(tm_gpu_alloc(gpu, (size_t)5 << 30, &memory, &err), TM_NOMEM);
        assert_string_equal(err.text, "GPU 2 (a stand-in, 4.0 GiB) has no memory for 5368709120 bytes");
        tm_gpu_close(gpu);
    }
}

/* --- functions that fail ---------------------------------------------------------------------------- */

static tm_status use_all(tm_gpu *gpu, tm_error *err)
{
    char   data[8] = "";
    void  *memory;
    bool   done;
    double seconds;
    TM_TRY(tm_gpu_alloc(gpu, sizeof data, &memory, err));
    TM_TRY(tm_gpu_write(gpu, memory, data, sizeof data, err));
    TM_TRY(tm_gpu_read(gpu, data, memory, sizeof data, err));
    TM_TRY(tm_gpu_mark(gpu, 0, err));
    TM_TRY(tm_gpu_mark(gpu, 1, err));
    TM_TRY(tm_gpu_copy(gpu, memory, memory, sizeof data, err));
    do {
        TM_TRY(tm_gpu_done(gpu, &done, err));
    } while (!done);
    return tm_gpu_marked(gpu, &seconds, err);
}

/* name: of CUDA, as the stand-ins are told; theirs: of HIP. opens: it is called while a GPU is opened, and `knows`:
 * behind what tells its name. */
static const struct {
    const char *name, *theirs;
    bool        opens, knows;
} functions[] = {
    { "cuInit", "hipInit", true, false },
    { "cuDriverGetVersion", "hipRuntimeGetVersion", true, false },
    { "cuDeviceGetCount", "hipGetDeviceCount", true, false },
    { "cuDeviceGet", "hipDeviceGet", true, false },
    { "cuDeviceGetName", "hipDeviceGetName", true, true },
    { "cuDeviceGetPCIBusId", "hipDeviceGetPCIBusId", true, true },
    { "cuDeviceTotalMem_v2", "hipDeviceTotalMem", true, true },
    { "cuDevicePrimaryCtxRetain", NULL, true, true },
    { "cuCtxSetCurrent", NULL, true, true },
    { "hipSetDevice", "hipSetDevice", true, true },
    { "cuStreamCreate", "hipStreamCreateWithFlags", true, true },
    { "cuEventCreate", "hipEventCreateWithFlags", true, true },
    { "cuMemAlloc_v2", "hipMalloc", false, true },
    { "cuMemcpyHtoD_v2", "hipMemcpyHtoD", false, true },
    { "cuMemcpyDtoH_v2", "hipMemcpyDtoH", false, true },
    { "cuMemcpyDtoDAsync_v2", "hipMemcpyDtoDAsync", false, true },
    { "cuEventRecord", "hipEventRecord", false, true },
    { "cuEventElapsedTime", "hipEventElapsedTime", false, true },
};

static void each_function_that_fails_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
        for (int hip = 0; hip < 2; hip++) {
            bool        of_hip = strncmp(functions[i].name, "hip", 3) == 0;
            const char *name = hip ? functions[i].theirs : functions[i].name;
            char        told[96], want[160];
            tm_error    err = { 0 };
            tm_gpu     *gpu = NULL;
            if (!name || (of_hip && !hip)) continue;
            use(hip);
            if (!functions[i].opens) gpu = open_gpu(hip, 1);
            snprintf(told, sizeof told, "%s@1=%d", functions[i].name, i % 2 ? 700 : 719);
            setenv("STANDIN_GPU_FAIL", told, 1);
            tm_status st = functions[i].opens ? tm_gpu_open((tm_gpu_maker)hip, 1, &gpu, &err) : use_all(gpu, &err);
            unsetenv("STANDIN_GPU_FAIL");
            snprintf(want, sizeof want, "GPU %d (%s): %s: %s (error %d)", i < 3 ? 0 : 1,
                     functions[i].knows ? "a stand-in"
                     : hip              ? "HIP"
                                        : "CUDA",
                     name, i % 2 ? "an illegal memory access was encountered" : "some other error", i % 2 ? 700 : 719);
            assert_int_equal(st, TM_DEVICE);
            assert_string_equal(err.text, want);
            if (functions[i].opens) assert_null(gpu);
            tm_gpu_close(gpu);
        }
}

static void what_is_not_there(void **state)
{
    static const char none[] =
        "no runtime of a GPU was found (%s); install NVIDIA's driver, which has libcuda.so.1 (in "
        "containers: docker run --gpus all), or ROCm's libamdhip64.so, or name the file in "
        "TRAINMARK_GPU_RUNTIME";
    tm_gpu  *gpu;
    char     want[2 * PATH_MAX + 400];
    tm_error err = { 0 }, other = { 0 }, empty = { 0 };
    (void)state;
    /* Either is found where it is not said which. */
    for (int hip = 0; hip < 2; hip++) {
        use(hip);
        assert_int_equal(tm_gpu_open(TM_GPU_ANY, 0, &gpu, &err), TM_OK);
        assert_string_equal(tm_gpu_facts_of(gpu)->runtime, hip ? "HIP" : "CUDA");
        tm_gpu_close(gpu);
        setenv("STANDIN_GPU_FAIL", "cuInit@1=3", 1);
        assert_int_equal(tm_gpu_count(), 0);
        setenv("STANDIN_GPU_FAIL", "cuDeviceGetCount@1=3", 1);
        assert_int_equal(tm_gpu_count(), 0);
        unsetenv("STANDIN_GPU_FAIL");
        setenv("STANDIN_GPUS", "3", 1);
        assert_int_equal(tm_gpu_count(), 3);
        setenv("STANDIN_GPUS", "0", 1);
        empty = (tm_error){ 0 };
        assert_int_equal(tm_gpu_open((tm_gpu_maker)hip, 0, &gpu, &empty), TM_INVALID);
        assert_null(gpu);
        snprintf(want, sizeof want,
                 "%s (%s) shows no GPU to this process; see CUDA_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES and the job's "
                 "allocation",
                 hip ? "HIP" : "CUDA", libraries[hip]);
        assert_string_equal(empty.text, want);
        unsetenv("STANDIN_GPUS");
        /* One where the other is wanted. */
        other = (tm_error){ 0 };
        assert_int_equal(tm_gpu_open((tm_gpu_maker)!hip, 0, &gpu, &other), TM_INVALID);
        snprintf(want, sizeof want, none, "");
        assert_string_equal(other.text, want);
    }
    setenv("TRAINMARK_GPU_RUNTIME", "/nowhere/libcuda.so", 1);
    err = (tm_error){ 0 };
    assert_int_equal(tm_gpu_open(TM_GPU_CUDA, 0, &gpu, &err), TM_INVALID);
    assert_non_null(strstr(err.text, "no runtime of a GPU was found (/nowhere/libcuda.so"));
    assert_int_equal(tm_gpu_count(), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(facts_and_copies),
    cmocka_unit_test(no_memory),
    cmocka_unit_test(each_function_that_fails_is_named),
    cmocka_unit_test(what_is_not_there),
};

TM_TESTS(tests, NULL, NULL)
