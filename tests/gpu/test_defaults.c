/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of the vendor's pages: set before the libraries of their maker are loaded, never over a user's value, gone
 * where there is no library; which devices the *_VISIBLE_DEVICES leave; where libraries are searched. */
#include "gpu/defaults.h"
#include "gpu/library.h"
#include "gpu/places.h"
#include "gpu/visible.h"

#include "support/folder.h"
#include "base/file.h"

#include <limits.h>

#include "support/test.h"

static const char marker[] = "TRAINMARK_GPU_VARIABLES";

static void forget(void)
{
    size_t                n;
    const tm_gpu_default *rows = tm_gpu_defaults(&n);
    for (size_t i = 0; i < n; i++) unsetenv(rows[i].name);
    unsetenv(marker);
    unsetenv("TRAINMARK_GPU_RUNTIME");
}

TEST(set_once_and_not_over_the_users)
{
    forget();
    setenv("HSA_NO_SCRATCH_RECLAIM", "0", 1);
    tm_gpu_defaults_set(TM_GPU_CUDA);
    assert_null(getenv(marker));
    assert_null(getenv("RCCL_MSCCL_ENABLE"));
    tm_gpu_defaults_set(TM_GPU_HIP);
    assert_string_equal(getenv("HSA_NO_SCRATCH_RECLAIM"), "0");
    assert_string_equal(getenv("RCCL_MSCCL_ENABLE"), "0");
    assert_string_equal(getenv(marker), "HSA_OVERRIDE_CPU_AFFINITY_DEBUG,RCCL_MSCCL_ENABLE");
    assert_true(tm_gpu_default_is_ours("RCCL_MSCCL_ENABLE"));
    assert_false(tm_gpu_default_is_ours("HSA_NO_SCRATCH_RECLAIM"));
    assert_false(tm_gpu_default_is_ours("RCCL_MSCCL"));
    /* Again, as a process that this one has started would: they are still ours. */
    tm_gpu_defaults_set(TM_GPU_HIP);
    assert_string_equal(getenv(marker), "HSA_OVERRIDE_CPU_AFFINITY_DEBUG,RCCL_MSCCL_ENABLE");
    tm_gpu_defaults_unset(TM_GPU_CUDA);
    assert_non_null(getenv("RCCL_MSCCL_ENABLE"));
    tm_gpu_defaults_unset(TM_GPU_HIP);
    assert_string_equal(getenv("HSA_NO_SCRATCH_RECLAIM"), "0");
    assert_null(getenv("RCCL_MSCCL_ENABLE"));
    assert_null(getenv(marker));
    forget();
}

TEST(where_the_library_is)
{
    tm_gpu  *gpu;
    tm_error err = { 0 };
    forget();
    setenv("TRAINMARK_GPU_RUNTIME", "/nowhere/libamdhip64.so", 1);
    assert_int_equal(tm_gpu_open(TM_GPU_HIP, 0, &gpu, &err), TM_INVALID);
    assert_null(getenv("HSA_NO_SCRATCH_RECLAIM"));
    assert_null(getenv(marker));
    setenv("TRAINMARK_GPU_RUNTIME", test_built("standins/cuda.so"), 1);
    if (tm_gpu_open(TM_GPU_ANY, 0, &gpu, &err) != TM_OK) fail_msg("%s", err.text);
    tm_gpu_close(gpu);
    assert_null(getenv(marker));
    setenv("TRAINMARK_GPU_RUNTIME", test_built("standins/hip.so"), 1);
    if (tm_gpu_open(TM_GPU_HIP, 0, &gpu, &err) != TM_OK) fail_msg("%s", err.text);
    tm_gpu_close(gpu);
    assert_string_equal(getenv("HSA_NO_SCRATCH_RECLAIM"), "1");
    forget();
}

TEST(devices_that_are_left)
{
    static char *const none[] = { NULL };
    static const struct {
        tm_gpu_maker maker;
        char *const  variables[4];
        int          visible;
        const char  *wrong;
    } rows[] = {
        { TM_GPU_HIP, { "HIP_VISIBLE_DEVICES=7" }, 1, "" },
        { TM_GPU_HIP, { "HIP_VISIBLE_DEVICES=8" }, 0, "'8' of HIP_VISIBLE_DEVICES" },
        { TM_GPU_HIP, { "HIP_VISIBLE_DEVICES=0,-1,2" }, 1, "'-1' of HIP_VISIBLE_DEVICES" },
        { TM_GPU_HIP, { "HIP_VISIBLE_DEVICES=0,,2" }, 1, "'' of HIP_VISIBLE_DEVICES" },
        { TM_GPU_HIP, { "HIP_VISIBLE_DEVICES=" }, 8, "" },
        { TM_GPU_HIP, { "ROCR_VISIBLE_DEVICES=4,5,6", "HIP_VISIBLE_DEVICES=0,2" }, 2, "" },
        { TM_GPU_HIP, { "ROCR_VISIBLE_DEVICES=4,5,6", "HIP_VISIBLE_DEVICES=0,3" }, 1, "'3' of HIP_VISIBLE_DEVICES" },
        { TM_GPU_HIP, { "CUDA_VISIBLE_DEVICES=0,1", "HIP_VISIBLE_DEVICES=0,1,2" }, 3, "" },
        { TM_GPU_HIP, { "CUDA_VISIBLE_DEVICES=0,1" }, 2, "" },
        { TM_GPU_CUDA, { "HIP_VISIBLE_DEVICES=0" }, 8, "" },
        { TM_GPU_CUDA, { "CUDA_VISIBLE_DEVICES=" }, 0, "" },
        { TM_GPU_CUDA, { "CUDA_VISIBLE_DEVICES=GPU-1234,MIG-5678" }, 2, "" },
        { TM_GPU_CUDA, { "CUDA_VISIBLE_DEVICES=NoDevFiles" }, 0, "'NoDevFiles' of CUDA_VISIBLE_DEVICES" },
    };
    char wrong[96];
    assert_int_equal(tm_gpu_visible(TM_GPU_HIP, none, 8, NULL, wrong), 8);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int visible = tm_gpu_visible(rows[i].maker, rows[i].variables, 8, NULL, wrong);
        if (visible != rows[i].visible || strcmp(wrong, rows[i].wrong) != 0)
            fail_msg("row %zu: %d, \"%s\"", i, visible, wrong);
    }
}

static void put(const char *path)
{
    char     full[PATH_MAX];
    tm_error err = { 0 };
    snprintf(full, sizeof full, "%s%s", test_in_folder("root"), path);
    *strrchr(full, '/') = '\0';
    assert_int_equal(tm_folder_make(full, &err), TM_OK);
    snprintf(full, sizeof full, "%s%s", test_in_folder("root"), path);
    assert_int_equal(tm_file_write(full, "x", 1, &err), TM_OK);
}

/* All of NVIDIA's wheels, in the environment that is in use. */
TEST(places_of_wheels)
{
    static char *const       variables[] = { "VIRTUAL_ENV=/venv", NULL };
    static const char *const wheels[] = { "cu13", "cuda_nvrtc", "cublas", "cudnn", "nccl" };
    size_t                   n;
    tm_arena                *arena = tm_arena_create();
    for (size_t i = 0; i < sizeof wheels / sizeof wheels[0]; i++)
        put(tm_arena_format(arena, "/venv/lib/python3.12/site-packages/nvidia/%s/lib/x", wheels[i]));
    const tm_gpu_place *places = tm_gpu_places(TM_GPU_CUDA, test_in_folder("root"), variables, arena, &n);
    assert_int_equal(n, sizeof wheels / sizeof wheels[0]);
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(places[i].named, "a wheel");
        assert_non_null(strstr(places[i].folder, wheels[i]));
    }
    tm_arena_destroy(arena);
    test_folder_remove();
}

TEST(places_in_their_order)
{
    static char *const       variables[] = { "ROCM_PATH=/opt/rocm-6.2.4", "LD_LIBRARY_PATH=relative:/nothing:/ld/one",
                                             "VIRTUAL_ENV=/venv", "HOME=/home/me", NULL };
    static const char *const files[] = { "/opt/rocm-6.2.4/lib/x",
                                         "/opt/rocm-6.10.0/lib/x",
                                         "/opt/rocm-6.4.1/lib/x",
                                         "/opt/rocm/core-7.14/lib/x",
                                         "/opt/rocm/core-10.0/lib/x",
                                         "/opt/rocm/extras-10/lib/x",
                                         "/ld/one/x",
                                         "/usr/lib64/x",
                                         "/venv/lib/python3.12/site-packages/_rocm_sdk_core/lib/x",
                                         "/venv/lib/python3.12/site-packages/_rocm_sdk_libraries_gfx94X_dcgpu/lib/x",
                                         "/venv/lib/python3.12/site-packages/nvidia/cublas/lib/x",
                                         "/home/me/.local/lib/python3.10/site-packages/torch/lib/x" };
    static const char *const wanted[] = {
        "LD_LIBRARY_PATH /ld/one",
        "ROCM_PATH /opt/rocm-6.2.4/lib",
        "the loader /usr/lib64",
        "/opt /opt/rocm/core-10.0/lib",
        "/opt /opt/rocm/core-7.14/lib",
        "/opt /opt/rocm-6.10.0/lib",
        "/opt /opt/rocm-6.4.1/lib",
        "a wheel /venv/lib/python3.12/site-packages/_rocm_sdk_core/lib",
        "a wheel /venv/lib/python3.12/site-packages/_rocm_sdk_libraries_gfx94X_dcgpu/lib",
        "torch /home/me/.local/lib/python3.10/site-packages/torch/lib"
    };
    size_t    n;
    tm_arena *arena = tm_arena_create();
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) put(files[i]);
    const tm_gpu_place *places = tm_gpu_places(TM_GPU_HIP, test_in_folder("root"), variables, arena, &n);
    for (size_t i = 0; i < n; i++) {
        const char *text = tm_arena_format(arena, "%s %s", places[i].named, places[i].folder);
        if (i >= sizeof wanted / sizeof wanted[0] || strcmp(text, wanted[i]) != 0) fail_msg("%zu: %s", i, text);
    }
    assert_int_equal(n, sizeof wanted / sizeof wanted[0]);
    assert_true(tm_gpu_release_same("6.4", "6.4.3") && tm_gpu_release_same(NULL, "6.4") &&
                tm_gpu_release_same("7.0.2", "7.0.0"));
    assert_false(tm_gpu_release_same("6.4", "6.3.4") || tm_gpu_release_same("7.1.0", "7.10.0") ||
                 tm_gpu_release_same("6.0", "7.0"));
    tm_arena_destroy(arena);
    test_folder_remove();
}

/* By a name with a number; what no place has is looked for there once. */
TEST(the_loader_is_asked_too)
{
    static const char *const known[] = { "libc.so", "libc.so.6", NULL }, *const unknown[] = { "libunknown.so.1", NULL };
    tm_library library;
    tm_text    tried = { 0 };
    assert_true(tm_library_open_of(TM_GPU_CUDA, known, &library, &tried) && tried.length == 0);
    assert_false(tm_library_open_of(TM_GPU_CUDA, unknown, &library, &tried));
    assert_true(strstr(tried.data, *unknown) && !strstr(strstr(tried.data, *unknown) + 1, *unknown));
    tm_text_fini(&tried);
}

/* The kernel's file is not there, or is, or may not be opened. */
TEST(why_there_is_no_gpu)
{
    static const char *const absent[] = {
        [TM_GPU_CUDA] = "/proc/driver/nvidia: is NVIDIA's driver loaded", [TM_GPU_HIP] = "/dev/kfd: is amdgpu loaded"
    };
    static const char *const nodes[] = { [TM_GPU_CUDA] = "/dev/nvidiactl", [TM_GPU_HIP] = "/dev/kfd" };
    char                     why[320], path[PATH_MAX];
    for (int hip = 0; hip < 2; hip++) {
        tm_gpu_none_here((tm_gpu_maker)hip, test_in_folder("root"), why);
        if (!strstr(why, absent[hip])) fail_msg("%s", why);
        put(nodes[hip]);
        put("/proc/driver/nvidia/version");
        tm_gpu_none_here((tm_gpu_maker)hip, test_in_folder("root"), why);
        if (!strstr(why, hip ? "HIP_VISIBLE_DEVICES" : "CUDA_VISIBLE_DEVICES")) fail_msg("%s", why);
        snprintf(path, sizeof path, "%s%s", test_in_folder("root"), nodes[hip]);
        assert_int_equal(chmod(path, 0400), 0);
        tm_gpu_none_here((tm_gpu_maker)hip, test_in_folder("root"), why);
        if (geteuid() != 0 && !strstr(why, hip ? "-G render,video" : "let this user open it")) fail_msg("%s", why);
    }
    test_folder_remove();
}
