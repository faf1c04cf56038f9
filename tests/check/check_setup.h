/* SPDX-License-Identifier: Apache-2.0 */
/* tests/check/check_setup.h - more rows of check_fixtures.h: how the GPUs are set up, and what is installed for them.
 * Whole servers: test_check_servers.c. */
/* clang-format off */
#define STATUS(mode) "/proc/self/status=Name:\tx\nSeccomp:\t" mode "\nSeccomp_filters:\t1\n"
    { "seccomp", TM_CHECK_PASS, "no filter", 0, { STATUS("0") } },
    { "seccomp", TM_CHECK_PASS, "allows mbind", nothing_refused, { STATUS("2") } },
    { "seccomp", TM_CHECK_WARN, "refuses mbind", numa_refused, { STATUS("2") } },
    { "seccomp", TM_CHECK_SKIP, "only known on the running system", 0, { STATUS("2") } },
    { "seccomp", TM_CHECK_SKIP, "has no Seccomp", 0, { 0 } },
#define NODE_OF(n, id, minor, place) KFD n "/gpu_id=" id "\n", KFD n "/properties=simd_count 304\nlocation_id " place \
    "\ndomain 0\ndrm_render_minor " minor "\n"
    { "gpu_devices", TM_CHECK_PASS, "all 2 device files", 0, { GPU("1", "0x74a1"), NODE_OF("1", "7", "128", "256"), "/dev/kfd=", "/dev/dri/renderD128=" } },
    { "gpu_devices", TM_CHECK_FAIL, "missing: /dev/dri/renderD136", 0, { GPU("1", "0x74a1"), NODE_OF("1", "7", "136", "256"), "/dev/kfd=",
      "/dev/dri/renderD128=" } },
    { "gpu_devices", TM_CHECK_FAIL, "missing: /dev/kfd", 0, { GPU("1", "0x74a1"), "/dev/dri/renderD128=" } },
    { "gpu_devices", TM_CHECK_FAIL, "missing: /dev/nvidia-uvm, /dev/nvidia3", 0, { H200, "/dev/nvidiactl=",
      "/proc/driver/nvidia/gpus/0000:41:00.0/information=Model: \t\t NVIDIA H200\nDevice Minor: \t 3\n" } },
    { "gpu_devices", TM_CHECK_SKIP, "no device files below", 0, { GPU("1", "0x74a1") } },
#define GRAPHICS GPU_OF("0000:03:00.0", "0x1002", "0x164e", "0x030000")
    { "gpu_devices", TM_CHECK_SKIP, "only graphics cards", 0, { GRAPHICS, "/dev/dri/renderD128=" } },
    { "gpu_devices", TM_CHECK_FAIL, "missing: /dev/kfd", want_1_gpu, { GRAPHICS, "/dev/dri/renderD128=" } },
    { "rocm", TM_CHECK_WARN, "not found: hipBLASLt, RCCL", 0, { GPU("1", "0x74a1"), "/opt/rocm/lib/libamdhip64.so.6.2.60204=", "/opt/rocm/lib/libhiprtc.so.6.2.60204=" } },
    { "rocm", TM_CHECK_SKIP, "only graphics cards", 0, { GRAPHICS } },
    { "cuda", TM_CHECK_SKIP, "only graphics cards", 0, { GPU_OF("0000:03:00.0", "0x10de", "0x2684", "0x030000") } },
    { "gpu_devices", TM_CHECK_SKIP, "no GPU", 0, { 0 } },
#define TWO_GPUS GPU("1", "0x74a1"), GPU("2", "0x74a1")
    { "gpu_visible", TM_CHECK_PASS, "2 of 2 devices", 0, { TWO_GPUS } },
    { "gpu_visible", TM_CHECK_INFO, "2 of 2 devices (HIP_VISIBLE_DEVICES=0,1)", 0, { "$HIP_VISIBLE_DEVICES=0,1", TWO_GPUS } },
    { "gpu_visible", TM_CHECK_FAIL, "1 of 2 devices (HIP_VISIBLE_DEVICES=0,5): '5' of HIP_VISIBLE_DEVICES names no device", 0, { "$HIP_VISIBLE_DEVICES=0,5", TWO_GPUS } },
    { "gpu_visible", TM_CHECK_INFO, "2 of 4 devices (ROCR_VISIBLE_DEVICES=GPU-4b2c1a9f,1,2, HIP_VISIBLE_DEVICES=2,0)", 0, { "$ROCR_VISIBLE_DEVICES=GPU-4b2c1a9f,1,2", "$HIP_VISIBLE_DEVICES=2,0", "$CUDA_VISIBLE_DEVICES=0", TWO_GPUS, GPU("3", "0x74a1"), GPU("4", "0x74a1") } },
    { "gpu_visible", TM_CHECK_INFO, "1 of 2 devices (CUDA_VISIBLE_DEVICES=1)", 0, { "$CUDA_VISIBLE_DEVICES=1", TWO_GPUS } },
    { "gpu_visible", TM_CHECK_FAIL, "0 of 1 devices (CUDA_VISIBLE_DEVICES=), but LOCAL_WORLD_SIZE is 1", 0, { "$CUDA_VISIBLE_DEVICES=", "$LOCAL_WORLD_SIZE=1", H200 } },
    { "gpu_visible", TM_CHECK_FAIL, "2 of 2 devices, but GPUS_PER_NODE is 8", 0, { "$GPUS_PER_NODE=8", TWO_GPUS } },
    { "gpu_visible", TM_CHECK_SKIP, "no GPU", 0, { 0 } },
#define PARTITION(n, compute, memory) GPU(n, "0x74a1"), GPU_FILE(n, "current_compute_partition=" compute "\n"), \
    GPU_FILE(n, "current_memory_partition=" memory "\n")
    { "partition", TM_CHECK_PASS, "2 x SPX; 2 x NPS1; 0 devices of 2 GPUs", 0, { PARTITION("1", "SPX", "NPS1"), PARTITION("2", "SPX", "NPS1") } },
    { "partition", TM_CHECK_WARN, "1 x CPX; 1 x NPS4; 2 devices of 1 GPUs", 0, { PARTITION("1", "CPX", "NPS4"), KFD "1/gpu_id=11\n", KFD "2/gpu_id=12\n" } },
    { "partition", TM_CHECK_FAIL, "1 x NPS1, 1 x NPS4; 0 devices of 2 GPUs; 0000:02:00.0 differs", 0, { PARTITION("1", "CPX", "NPS1"),
      PARTITION("2", "CPX", "NPS4") } },
    { "partition", TM_CHECK_SKIP, "no driver shows", 0, { H200 } },
#define BAD_PAGES(n, lines) GPU(n, "0x74a1"), GPU_FILE(n, "ras/gpu_vram_bad_pages=" lines)
    { "bad_pages", TM_CHECK_PASS, "none", 0, { BAD_PAGES("1", "") } },
    { "bad_pages", TM_CHECK_INFO, "0000:01:00.0 2 retired, 0 pending, 0 not retired", 0, { BAD_PAGES("1", "0x1 : 0x1000 : R\n0x2 : 0x1000 : R\n") } },
    { "bad_pages", TM_CHECK_WARN, "0000:02:00.0 0 retired, 1 pending", 0, { BAD_PAGES("1", ""), BAD_PAGES("2", "0x1 : 0x1000 : P") } },
    { "bad_pages", TM_CHECK_FAIL, "0 retired, 1 pending, 1 not retired", 0, { BAD_PAGES("1", "0x1 : 0x1000 : P\n0x2 : 0x1000 : F \n") } },
    { "bad_pages", TM_CHECK_SKIP, "ROW_REMAPPER", 0, { H200 } },
#define NVSWITCH(address) GPU_OF(address, "0x10de", "0x22a3", "0x068000")
#define SWITCH_OF_DRIVER(address) "/proc/driver/nvidia-nvswitch/devices/" address "/information=\n"
    { "nvlink", TM_CHECK_PASS, "1 NVSwitches, the fabric manager runs", 0, { H200, NVSWITCH("0000:05:00.0"), SWITCH_OF_DRIVER("0000:05:00.0"),
      "/proc/9/comm=nv-fabricmanage\n" } },
    { "nvlink", TM_CHECK_INFO, "not seen from a container", 0, { H200, NVSWITCH("0000:05:00.0"), SWITCH_OF_DRIVER("0000:05:00.0"), "/.dockerenv=" } },
    { "nvlink", TM_CHECK_FAIL, "2 NVSwitches, the driver has 1; not 0000:06:00.0", 0, { H200, NVSWITCH("0000:05:00.0"), NVSWITCH("0000:06:00.0"),
      SWITCH_OF_DRIVER("0000:05:00.0"), "/proc/9/comm=nv-fabricmanage\n" } },
    { "nvlink", TM_CHECK_SKIP, "no NVSwitch", 0, { H200 } },
#define FOUR(folder, hip, blas, packed) folder "/libamdhip64.so." hip "." packed "=", folder "/libhiprtc.so." hip "." packed "=", \
    folder "/libhipblaslt.so." blas "." packed "=", folder "/librccl.so.1.0." packed "="
    { "rocm", TM_CHECK_PASS, "HIP 6.4.3 in /opt/rocm-6.4.3/lib, hiprtc 6.4.3", 0, { GPU("1", "0x74a1"), FOUR("/opt/rocm-6.4.3/lib", "6.4", "0.12", "60403"),
      FOUR("/opt/rocm-6.2.4/lib", "6.2", "0.8", "60204") } },
    { "rocm", TM_CHECK_PASS, "HIP 7.10.0 in /opt/venv/lib/python3.12/site-packages/_rocm_sdk_core/lib", 0, { GPU("1", "0x75a3"),
      "/opt/venv/lib/python3.12/site-packages/_rocm_sdk_core/lib/libamdhip64.so.7=", "/opt/venv/lib/python3.12/site-packages/_rocm_sdk_core/lib/libhiprtc.so.7=",
      "/opt/venv/lib/python3.12/site-packages/_rocm_sdk_libraries_gfx950_dcgpu/lib/libhipblaslt.so.1=",
      "/opt/venv/lib/python3.12/site-packages/_rocm_sdk_libraries_gfx950_dcgpu/lib/librccl.so.1=",
      "/opt/venv/lib/python3.12/site-packages/rocm_sdk_core-7.10.0.dist-info/METADATA=" } },
    { "rocm", TM_CHECK_PASS, "HIP of an unknown release", 0, { GPU("1", "0x74a1"), "/usr/lib64/libamdhip64.so.6.4.43484=", "/usr/lib64/libhiprtc.so.6=",
      "/usr/lib64/libhipblaslt.so.0=", "/usr/lib64/librccl.so.1=" } },
    { "rocm", TM_CHECK_FAIL, "ROCM_PATH is '/nowhere'", 0, { "$ROCM_PATH=/nowhere", GPU("1", "0x74a1"), FOUR("/opt/rocm-6.4.3/lib", "6.4", "0.12", "60403") } },
    { "rocm", TM_CHECK_SKIP, "no GPU of AMD", 0, { H200 } },
#define HIP_OF(path) "/opt/rocm/lib/libamdhip64.so." path "="
    { "amdgpu", TM_CHECK_FAIL, "amdgpu is not loaded", 0, { GPU("1", "0x74a1") } },
    { "amdgpu", TM_CHECK_INFO, "the kernel's own", 0, { GPU("1", "0x74a1"), "/sys/module/amdgpu/refcnt=1\n", HIP_OF("6.4.60400") } },
    { "amdgpu", TM_CHECK_INFO, "no ROCm was found", 0, { GPU("1", "0x74a1"), "/sys/module/amdgpu/version=6.12.12\n" } },
    { "amdgpu", TM_CHECK_INFO, "ROCm 7.12.0 is not in the table", 0, { GPU("1", "0x74a1"), "/sys/module/amdgpu/version=6.16.13\n", HIP_OF("7.12.71200") } },
    { "amdgpu", TM_CHECK_PASS, "amdgpu 6.10.5 (release 6.3) with ROCm 6.4.0", 0, { GPU("1", "0x74a1"), "/sys/module/amdgpu/version=6.10.5\n", HIP_OF("6.4.60400") } },
    { "amdgpu", TM_CHECK_SKIP, "no GPU of AMD", 0, { H200 } },
#define NVRM "/proc/driver/nvidia/version=NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n"
#define LIBCUDA(version) "/usr/lib64/libcuda.so.1->libcuda.so." version, "/usr/lib64/libcuda.so." version "="
#define NVRTC_12 "/opt/venv/lib/python3.12/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12="
#define CUBLAS_12 "/opt/venv/lib/python3.12/site-packages/nvidia/cublas/lib/libcublasLt.so.12="
    { "cuda", TM_CHECK_PASS, "driver 550.54.15 (CUDA 12), NVRTC 12, cublasLt 12", 0, { H200, NVRM, LIBCUDA("550.54.15"), NVRTC_12, CUBLAS_12,
      "/usr/local/cuda/lib64/libnvrtc.so.13=" } },
    { "cuda", TM_CHECK_PASS, "driver 550.54.15 with the compatibility package of 575.57.08 (CUDA 12)", 0, { H200, NVRM, "/usr/local/cuda/compat/libcuda.so.1->libcuda.so.575.57.08",
      "/usr/local/cuda/compat/libcuda.so.575.57.08=", "/etc/ld.so.conf.d/cuda.conf=/usr/local/cuda/compat\n", NVRTC_12, CUBLAS_12 } },
    { "cuda", TM_CHECK_PASS, "550.54.15 with the compatibility package of 580.82.07 (CUDA 13), NVRTC 13, cublasLt 13", 0, { H200, NVRM, "/usr/local/cuda/compat/libcuda.so.1->libcuda.so.580.82.07",
      "/usr/local/cuda/compat/libcuda.so.580.82.07=", "/etc/ld.so.conf.d/cuda.conf=/usr/local/cuda/compat\n", "/usr/local/cuda/lib64/libnvrtc.so.13=",
      "/usr/local/cuda/lib64/libcublasLt.so.13=" } },
    { "cuda", TM_CHECK_WARN, "NVRTC: not found", 0, { H200, NVRM, LIBCUDA("550.54.15") } },
    { "cuda", TM_CHECK_FAIL, "the driver is not loaded", 0, { H200 } },
    { "cuda", TM_CHECK_SKIP, "no GPU of NVIDIA", 0, { GPU("1", "0x74a1") } },
    { "firmware", TM_CHECK_PASS, "1 of 8 kinds are read", 0, { GPU("1", "0x74a1"), GPU_FILE("1", "vbios_version=113-M\n") } },
    { "firmware", TM_CHECK_WARN, "mec_fw_version 1 x 0xb1, 1 x 0xb0 (0000:02:00.0)", 0, { TWO_GPUS, GPU_FILE("1", "fw_version/mec_fw_version=0xb1\n"),
      GPU_FILE("2", "fw_version/mec_fw_version=0xb0\n") } },
    { "firmware", TM_CHECK_SKIP, "nvidia-smi -q", 0, { H200 } },
    { "gpu_level", TM_CHECK_PASS, "1 x perf_determinism", 0, { GPU("1", "0x74a1"), GPU_FILE("1", "power_dpm_force_performance_level=perf_determinism\n") } },
    { "gpu_level", TM_CHECK_WARN, "1 x auto, 1 x high", 0, { TWO_GPUS, GPU_FILE("1", "power_dpm_force_performance_level=auto\n"),
      GPU_FILE("2", "power_dpm_force_performance_level=high\n") } },
    { "gpu_level", TM_CHECK_SKIP, "no driver shows", 0, { H200 } },
    { "gpu_temp", TM_CHECK_PASS, "at most 90 C on 1", 0, { GPU("1", "0x74a1"), GPU_FILE("1", "hwmon/hwmon4/temp2_input=90000\n") } },
    { "gpu_temp", TM_CHECK_WARN, "junction 90.001 of 100 C", 0, { GPU("1", "0x74a1"), GPU_FILE("1", "hwmon/hwmon4/temp2_input=90001\n"),
      GPU_FILE("1", "hwmon/hwmon4/temp2_label=junction\n") } },
    { "gpu_temp", TM_CHECK_WARN, "mem 85 of 94 C", 0, { GPU("1", "0x74a1"), GPU_FILE("1", "hwmon/hwmon4/temp3_input=85000\n"),
      GPU_FILE("1", "hwmon/hwmon4/temp3_label=mem\n"), GPU_FILE("1", "hwmon/hwmon4/temp3_crit=94000\n") } },
    { "gpu_temp", TM_CHECK_SKIP, "nvidia-smi", 0, { H200 } },
    { "gpu_power", TM_CHECK_PASS, "limit on 1", 0, { GPU("1", "0x74a1"), GPU_FILE("1", "hwmon/hwmon4/power1_cap=750000000\n"),
      GPU_FILE("1", "hwmon/hwmon4/power1_cap_default=750000000\n"), GPU_FILE("1", "hwmon/hwmon4/power1_cap_max=900000000\n") } },
    { "gpu_count", TM_CHECK_FAIL, "1 x NVIDIA device 2335, 0 in the driver", 0, { H200, "/proc/driver/nvidia/gpus/" } },
    { "xgmi", TM_CHECK_FAIL, "node 1 (0000:05:00.0) to 2 (0000:26:00.0), 2 (0000:26:00.0) to 1", 0, { NODE_OF("1", "7", "128", "1280"),
      NODE_OF("2", "8", "136", "9728") } },
    /* clang-format on */
