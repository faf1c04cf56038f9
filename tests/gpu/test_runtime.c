/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU's runtime, of both makers, over libraries that stand in for them (tests/standins): what is told of it, copies
 * and clocks, and what is said when each of its functions fails. */
#include "gpu/runtime.h"
#include "gpu/visible.h"

#include "device/device.h"

#include <limits.h>
#include <time.h>

#include "support/folder.h"
#include "support/test.h"

static char libraries[2][PATH_MAX + 32];

static void use(int hip)
{
    snprintf(libraries[hip], sizeof libraries[hip], "%s", test_built(hip ? "standins/hip.so" : "standins/cuda.so"));
    setenv("TRAINMARK_GPU_RUNTIME", libraries[hip], 1);
}

static void *stream;

static tm_gpu *open_plain(int hip, int wanted)
{
    tm_gpu  *gpu;
    tm_error err = { 0 };
    use(hip);
    if (tm_gpu_open((tm_gpu_maker)hip, wanted, &gpu, &err) != TM_OK) fail_msg("%s", err.text);
    return gpu;
}

static tm_gpu *open_gpu(int hip, int wanted)
{
    tm_gpu  *gpu = open_plain(hip, wanted);
    tm_error err = { 0 };
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

TEST(facts_and_copies)
{
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
            assert_int_equal(f->cache, hip ? 4 << 20 : 50 << 20);
            tm_gpu_close(gpu);
        }
        tm_gpu *gpu = open_gpu(hip, 2);
        assert_int_equal(tm_gpu_count(TM_GPU_ANY), 4);
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

TEST(no_memory)
{
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

/* Kernels that do nothing, as the stand-ins take them: PTX, and assembler text of gfx942. */
static const char empty_ptx[] =
    ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(\n.param .u64 k_param_0\n)\n"
    "{\nret;\n}\n";
static const char empty_gcn[] =
    "\t.amdgcn_target \"amdgcn-amd-amdhsa--gfx942\"\n\t.text\nk:\n\ts_endpgm\n\t.section\t.rodata,\"a\",@progbits\n"
    "\t.amdhsa_kernel k\n\t\t.amdhsa_group_segment_fixed_size 0\n\t\t.amdhsa_kernarg_size 8\n"
    "\t\t.amdhsa_system_sgpr_workgroup_id_x 1\n\t.end_amdhsa_kernel\n\t.amdgpu_metadata\n---\namdhsa.kernels:\n"
    "  - .agpr_count:     0\n    .args:\n      - .offset:         0\n        .size:           8\n"
    "        .value_kind:     global_buffer\n    .group_segment_fixed_size: 0\n    .kernarg_segment_size: 8\n"
    "    .max_flat_workgroup_size: 1024\n    .name:           k\n    .private_segment_fixed_size: 0\n"
    "    .sgpr_count:     16\n    .vgpr_count:     4\n    .wavefront_size: 64\n\t.end_amdgpu_metadata\n";

/* All that belongs to a GPU and was opened, to be closed whatever fails. */
typedef struct {
    void *memory, *pinned, *stream[2], *event[2], *module, *graph;
} held;

/* A graph over two streams, with a launch and a copy, played twice. */
static tm_status use_graph(tm_gpu *gpu, held *h, tm_error *err)
{
    tm_gpu_launch_of launch = { .blocks = { 1, 1, 1 }, .threads = 32, .arguments = &h->memory, .argument_bytes = 8 };
    TM_TRY(tm_gpu_module_load(gpu, tm_gpu_is_hip(gpu) ? empty_gcn : empty_ptx, &h->module, err));
    TM_TRY(tm_gpu_module_kernel(gpu, h->module, "k", 64 << 10, &launch.kernel, err));
    TM_TRY(tm_gpu_capture_begin(gpu, h->stream[0], err));
    tm_status st = tm_gpu_launch(gpu, h->stream[0], &launch, err);
    if (st == TM_OK) st = tm_gpu_event_record(gpu, h->event[0], h->stream[0], err);
    if (st == TM_OK) st = tm_gpu_event_order(gpu, h->event[0], h->stream[1], err);
    if (st == TM_OK) st = tm_gpu_queue_copy(gpu, h->stream[1], h->memory, h->memory, 8, err);
    if (st == TM_OK) st = tm_gpu_event_record(gpu, h->event[1], h->stream[1], err);
    if (st == TM_OK) st = tm_gpu_event_order(gpu, h->event[1], h->stream[0], err);
    tm_error  later = { 0 };
    tm_status ended = tm_gpu_capture_end(gpu, h->stream[0], &h->graph, st == TM_OK ? err : &later);
    if (st != TM_OK || ended != TM_OK) return st != TM_OK ? st : ended;
    for (int i = 0; i < 2; i++) TM_TRY(tm_gpu_graph_play(gpu, h->graph, h->stream[0], err));
    launch.blocks[0] = 1U << 27; /* of 32 threads: as many as HIP does not take */
    if (tm_gpu_is_hip(gpu)) assert_int_equal(tm_gpu_launch(gpu, h->stream[0], &launch, &later), TM_DEVICE);
    return tm_gpu_stream_wait(gpu, h->stream[0], err);
}

/* Of one that TMA cannot read, the driver makes none. */
static tm_status make_map(tm_gpu *gpu, const void *memory, tm_error *err)
{
    _Alignas(TM_GPU_MAP_ALIGN) unsigned char map[TM_GPU_MAP_BYTES];
    tm_gpu_tensor t = { .at = memory, .columns = 192, .rows = 3, .sequences = 2, .row_bytes = 400, .box_rows = 128 };
    tm_error      wrong = { 0 };
    TM_TRY(tm_gpu_map(gpu, &t, map, err));
    t.row_bytes = 392;
    assert_int_equal(tm_gpu_map(gpu, &t, map, &wrong), TM_DEVICE);
    assert_non_null(strstr(wrong.text, "cuTensorMapEncodeTiled: "));
    return TM_OK;
}

static tm_status use_held(tm_gpu *gpu, held *h, tm_error *err)
{
    char    data[8] = "";
    bool    done;
    double  seconds;
    int64_t before, behind;
    TM_TRY(tm_gpu_memory_in_use(gpu, &before, err));
    TM_TRY(tm_gpu_alloc(gpu, sizeof data, &h->memory, err));
    TM_TRY(tm_gpu_memory_in_use(gpu, &behind, err));
    assert_true(behind >= before + (int64_t)sizeof data);
    TM_TRY(tm_gpu_alloc_pinned(gpu, sizeof data, &h->pinned, err));
    for (int i = 0; i < 2; i++) TM_TRY(tm_gpu_stream_open(gpu, &h->stream[i], err));
    for (int i = 0; i < 2; i++) TM_TRY(tm_gpu_event_open(gpu, &h->event[i], err));
    TM_TRY(tm_gpu_write(gpu, h->memory, data, sizeof data, err));
    TM_TRY(tm_gpu_read(gpu, data, h->memory, sizeof data, err));
    TM_TRY(tm_gpu_event_record(gpu, h->event[0], h->stream[0], err));
    TM_TRY(tm_gpu_queue_fill(gpu, h->stream[0], h->memory, 7, sizeof data, err));
    TM_TRY(tm_gpu_queue_read(gpu, h->stream[0], h->pinned, h->memory, sizeof data, err));
    TM_TRY(tm_gpu_queue_write(gpu, h->stream[0], h->memory, h->pinned, sizeof data, err));
    TM_TRY(tm_gpu_queue_copy(gpu, h->stream[0], h->memory, h->memory, sizeof data, err));
    TM_TRY(tm_gpu_event_record(gpu, h->event[1], h->stream[0], err));
    TM_TRY(tm_gpu_event_wait(gpu, h->event[1], err));
    do {
        TM_TRY(tm_gpu_stream_done(gpu, h->stream[0], &done, err));
    } while (!done);
    assert_int_equal(((char *)h->pinned)[3], 7);
    TM_TRY(tm_gpu_event_seconds(gpu, h->event[0], h->event[1], &seconds, err));
    assert_int_equal(tm_gpu_has_maps(gpu), !tm_gpu_is_hip(gpu));
    if (tm_gpu_has_maps(gpu)) TM_TRY(make_map(gpu, h->memory, err));
    return use_graph(gpu, h, err);
}

static tm_status use_all(tm_gpu *gpu, tm_error *err)
{
    held      h = { .memory = NULL };
    tm_status st = use_held(gpu, &h, err);
    tm_gpu_graph_close(gpu, h.graph);
    tm_gpu_module_unload(gpu, h.module);
    for (int i = 0; i < 2; i++) {
        tm_gpu_event_close(gpu, h.event[i]);
        tm_gpu_stream_close(gpu, h.stream[i]);
    }
    tm_gpu_free_pinned(gpu, h.pinned);
    tm_gpu_free(gpu, h.memory);
    return st;
}

TEST(nothing_fails)
{
    for (int hip = 0; hip < 2; hip++) {
        tm_gpu  *gpu = open_gpu(hip, 1);
        tm_error err = { 0 };
        if (use_all(gpu, &err) != TM_OK) fail_msg("%s", err.text);
        tm_gpu_close(gpu);
    }
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
    { "cuDeviceGetAttribute", NULL, true, true },
    { "hipGetDevicePropertiesR0600", "hipGetDevicePropertiesR0600", true, true },
    { "cuStreamCreate", "hipStreamCreateWithFlags", false, true },
    { "cuEventCreate", "hipEventCreateWithFlags", false, true },
    { "cuMemHostAlloc", "hipHostMalloc", false, true },
    { "cuMemcpyHtoDAsync_v2", "hipMemcpyHtoDAsync", false, true },
    { "cuMemcpyDtoHAsync_v2", "hipMemcpyDtoHAsync", false, true },
    { "cuMemsetD8Async", "hipMemsetD8Async", false, true },
    { "cuStreamQuery", "hipStreamQuery", false, true },
    { "cuStreamSynchronize", "hipStreamSynchronize", false, true },
    { "cuStreamWaitEvent", "hipStreamWaitEvent", false, true },
    { "cuEventSynchronize", "hipEventSynchronize", false, true },
    { "cuModuleLoadData", "hipModuleLoadData", false, true },
    { "cuModuleGetFunction", "hipModuleGetFunction", false, true },
    { "cuFuncSetAttribute", NULL, false, true },
    { "cuTensorMapEncodeTiled", NULL, false, true },
    { "cuLaunchKernel", "hipModuleLaunchKernel", false, true },
    { "cuStreamBeginCapture_v2", "hipStreamBeginCapture", false, true },
    { "cuStreamEndCapture", "hipStreamEndCapture", false, true },
    { "cuGraphInstantiateWithFlags", "hipGraphInstantiateWithFlags", false, true },
    { "cuGraphLaunch", "hipGraphLaunch", false, true },
    { "cuMemAlloc_v2", "hipMalloc", false, true },
    { "cuMemGetInfo_v2", "hipMemGetInfo", false, true },
    { "cuMemcpyHtoD_v2", "hipMemcpyHtoD", false, true },
    { "cuMemcpyDtoH_v2", "hipMemcpyDtoH", false, true },
    { "cuMemcpyDtoDAsync_v2", "hipMemcpyDtoDAsync", false, true },
    { "cuEventRecord", "hipEventRecord", false, true },
    { "cuEventElapsedTime", "hipEventElapsedTime", false, true },
};

TEST(each_function_that_fails_is_named)
{
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
        for (int hip = 0; hip < 2; hip++) {
            bool        of_hip = strncmp(functions[i].name, "hip", 3) == 0;
            const char *name = hip ? functions[i].theirs : functions[i].name;
            char        told[96], want[160];
            tm_error    err = { 0 };
            tm_gpu     *gpu = NULL;
            if (!name || (of_hip && !hip)) continue;
            use(hip);
            if (!functions[i].opens) gpu = open_plain(hip, 1);
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

TEST(what_is_not_there)
{
    static const char *const install[] = {
        "NVIDIA's driver, which has libcuda.so.1 (in containers: docker run --gpus all)",
        "ROCm's libamdhip64.so (or name where it is installed in ROCM_PATH)"
    };
    tm_gpu  *gpu;
    char     want[2 * PATH_MAX + 800], why[320];
    tm_error err = { 0 }, other = { 0 }, empty = { 0 };
    /* Either is found where it is not said which. */
    for (int hip = 0; hip < 2; hip++) {
        use(hip);
        assert_int_equal(tm_gpu_open(TM_GPU_ANY, 0, &gpu, &err), TM_OK);
        assert_string_equal(tm_gpu_facts_of(gpu)->runtime, hip ? "HIP" : "CUDA");
        tm_gpu_close(gpu);
        setenv("STANDIN_GPU_FAIL", "cuInit@1=3", 1);
        assert_int_equal(tm_gpu_count(TM_GPU_ANY), 0);
        setenv("STANDIN_GPU_FAIL", "cuDeviceGetCount@1=3", 1);
        assert_int_equal(tm_gpu_count(TM_GPU_ANY), 0);
        unsetenv("STANDIN_GPU_FAIL");
        setenv("STANDIN_GPUS", "3", 1);
        assert_int_equal(tm_gpu_count(TM_GPU_ANY), 3);
        setenv("STANDIN_GPUS", "0", 1);
        empty = (tm_error){ 0 };
        assert_int_equal(tm_gpu_open((tm_gpu_maker)hip, 0, &gpu, &empty), TM_INVALID);
        assert_null(gpu);
        tm_gpu_none_here((tm_gpu_maker)hip, "", why);
        snprintf(want, sizeof want, "%s (%s) shows no GPU to this process: %s", hip ? "HIP" : "CUDA", libraries[hip],
                 why);
        assert_string_equal(empty.text, want);
        unsetenv("STANDIN_GPUS");
        /* One where the other is wanted. */
        other = (tm_error){ 0 };
        assert_int_equal(tm_gpu_open((tm_gpu_maker)!hip, 0, &gpu, &other), TM_INVALID);
        snprintf(want, sizeof want,
                 "no runtime of a GPU was found (); install %s, or name the file in TRAINMARK_GPU_RUNTIME",
                 install[!hip]);
        assert_string_equal(other.text, want);
    }
    setenv("TRAINMARK_GPU_RUNTIME", "/nowhere/libcuda.so", 1);
    err = (tm_error){ 0 };
    assert_int_equal(tm_gpu_open(TM_GPU_CUDA, 0, &gpu, &err), TM_INVALID);
    assert_non_null(strstr(err.text, "no runtime of a GPU was found (/nowhere/libcuda.so"));
    assert_int_equal(tm_gpu_count(TM_GPU_ANY), 0);
}

/* `auto` is a GPU that is there, else the CPU. */
TEST(auto_takes_a_gpu_that_is_there)
{
    tm_device *device;
    tm_error   err = { 0 };
    char       name[80];
    for (int hip = 0; hip < 2; hip++)
        for (int gpus = 0; gpus < 3; gpus += 2) {
            use(hip);
            setenv("STANDIN_GPUS", gpus ? "2" : "0", 1);
            const char *wanted = gpus == 0 ? "cpu" : hip ? "hip" : "cuda";
            if (tm_device_open_planning("auto", 1, &device, &err) != TM_OK) fail_msg("%s", err.text);
            assert_string_equal(tm_device_describe(device)->name, wanted);
            tm_device_close(device);
            tm_device_name_of_rank(name, "auto", 1);
            assert_string_equal(name, gpus == 0 ? "cpu" : hip ? "hip:1" : "cuda:1");
        }
    unsetenv("STANDIN_GPUS");
}
