/* SPDX-License-Identifier: Apache-2.0 */
/* Prints what trainmark says of the libraries of GPUs, for tools/judge_headers.sh, which compares it with the makers'
 * headers. Fields of a line are parted by tabs: library, file, then
 *   call    name    result    (arguments)
 *   number  our name    value    the maker's expression
 */
#include "comm/coll/nccl_calls.h"
#include "gpu/blas.h"
#include "gpu/blas_calls.h"
#include "gpu/compile_calls.h"
#include "gpu/dnn_graph.h"
#include "gpu/gemm_ex_calls.h"
#include "gpu/runtime_calls.h"
#include "gpu/sensors_calls.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

static void call(const char *library, const char *file, const char *name, const char *result, const char *arguments)
{
    if (name) printf("%s\t%s\tcall\t%s\t%s\t%s\n", library, file, name, result, arguments);
}

static void number(const char *library, const char *file, const char *name, long long value, const char *expression)
{
    if (expression) printf("%s\t%s\tnumber\t%s\t%lld\t%s\n", library, file, name, value, expression);
}

/* A number and where it stands beside it. */
#define NUMBER(library, file, value, expression) number(library, file, #value, (long long)(value), expression)

static void runtimes(void)
{
    static const char file[] = "src/gpu/runtime_calls.h", facts[] = "src/gpu/runtime.c", map[] = "src/gpu/runtime.h";
#define X(member, result, arguments, cuda, hip)                                                                        \
    call("cuda", file, cuda, #result, #arguments);                                                                     \
    call("hip", file, hip, #result, #arguments);
    GPU_CALLS(X)
#undef X
#define X(name, value, cuda, hip) NUMBER("cuda", file, name, cuda), NUMBER("hip", file, name, hip);
    GPU_NUMBERS(X)
#undef X
    NUMBER("cuda", map, TM_GPU_MAP_BYTES, "sizeof(CUtensorMap)");
    /* The call and PTX ask for 64 in all versions; the type has 128 from CUDA 13 on. */
    NUMBER("cuda", map, TM_GPU_MAP_ALIGN, "(alignof(CUtensorMap) == 128 ? 64 : alignof(CUtensorMap))");
    NUMBER("hip", facts, sizeof(size_t), "sizeof(hipDeviceProp_tR0600::sharedMemPerBlock)");
    NUMBER("hip", facts, sizeof(int), "sizeof(hipDeviceProp_tR0600::multiProcessorCount)");
    NUMBER("hip", facts, sizeof(int), "sizeof(hipDeviceProp_tR0600::l2CacheSize)");
    NUMBER("hip", facts, sizeof(char), "sizeof(hipDeviceProp_tR0600::gcnArchName[0])");
}

static void compilers(void)
{
    static const char file[] = "src/gpu/compile_calls.h";
#define X(member, arguments, cuda, hip)                                                                                \
    call("nvrtc", file, cuda, "int", #arguments);                                                                      \
    call("hiprtc", file, hip, "int", #arguments);
    COMPILER_CALLS(X)
#undef X
    NUMBER("nvrtc", file, 0, "NVRTC_SUCCESS");
    NUMBER("hiprtc", file, 0, "HIPRTC_SUCCESS");
}

/* Formats are those of the runtime. */
static const char *of_hip(const char *expression)
{
    return expression && strncmp(expression, "HIP_R_", 6) == 0 ? "hip" : "hipblaslt";
}

static void products(void)
{
    static const char file[] = "src/gpu/blas_calls.h", use[] = "src/gpu/blas.c";
#define X(member, result, arguments, cuda, hip)                                                                        \
    call("cublaslt", file, cuda, #result, #arguments);                                                                 \
    call("hipblaslt", file, hip, #result, #arguments);
    BLAS_CALLS(X)
#undef X
#define X(member, cuda, cuda_name, hip, hip_name)                                                                      \
    number("cublaslt", file, #member, cuda, cuda_name);                                                                \
    number("hipblaslt", file, #member, hip, hip_name);
    BLAS_NUMBERS(X)
#undef X
#define X(name, value, cuda, hip) NUMBER("cublaslt", file, name, cuda), NUMBER(of_hip(hip), file, name, hip);
    BLAS_SAME_NUMBERS(X)
#undef X
#define X(cuda, cuda_name, hip, hip_name, words)                                                                       \
    number("cublaslt", file, words, cuda, cuda_name);                                                                  \
    number("hipblaslt", file, words, hip, hip_name);
    BLAS_STATUSES(X)
#undef X
    NUMBER("cublaslt", use, 0, "CUBLAS_STATUS_SUCCESS");
    number("cublaslt", use, "a version less its parts", 0,
           "CUBLAS_VERSION - CUBLAS_VER_MAJOR * 10000 - CUBLAS_VER_MINOR * 100 - CUBLAS_VER_PATCH");
    NUMBER("hipblaslt", use, 0, "HIPBLAS_STATUS_SUCCESS");
    NUMBER("cublaslt", use, 0, "offsetof(cublasLtMatmulHeuristicResult_t, algo)");
    NUMBER("hipblaslt", use, 0, "offsetof(hipblasLtMatmulHeuristicResult_t, algo)");
    NUMBER("cublaslt", use, sizeof(size_t), "sizeof(cublasLtMatmulHeuristicResult_t::workspaceSize)");
    NUMBER("hipblaslt", use, sizeof(size_t), "sizeof(hipblasLtMatmulHeuristicResult_t::workspaceSize)");
    NUMBER("cublaslt", use, 8, "alignof(cublasLtMatmulAlgo_t)"); /* where tm_gpu_matmul has room for it */
    NUMBER("hipblaslt", use, 8, "alignof(hipblasLtMatmulAlgo_t)");
}

static void other_products(void)
{
    static const char file[] = "src/gpu/gemm_ex_calls.h";
#define X(member, result, arguments, cuda, hip)                                                                        \
    call("cublas", file, cuda, #result, #arguments);                                                                   \
    call("rocblas", file, hip, #result, #arguments);
    GEMM_EX_CALLS(X)
#undef X
#define X(member, cuda, cuda_name, hip, hip_name)                                                                      \
    number("cublas", file, #member, cuda, cuda_name);                                                                  \
    number("rocblas", file, #member, hip, hip_name);
    GEMM_EX_NUMBERS(X)
#undef X
    NUMBER("cublas", file, 0, "CUBLAS_STATUS_SUCCESS");
    NUMBER("rocblas", file, 0, "rocblas_status_success");
}

static void attention(void)
{
    static const char file[] = "src/gpu/dnn_graph.h";
#define X(member, result, arguments, name) call("cudnn", file, name, #result, #arguments);
    DNN_CALLS(X)
#undef X
#define X(name, value, cudnn) NUMBER("cudnn", file, name, cudnn);
    DNN_NUMBERS(X)
#undef X
    NUMBER("cudnn", file, 0, "CUDNN_STATUS_SUCCESS");
    number("cudnn", "src/gpu/dnn.c", "a version less its parts", 0,
           "CUDNN_VERSION - CUDNN_MAJOR * 10000 - CUDNN_MINOR * 100 - CUDNN_PATCHLEVEL");
}

static void sensors(void)
{
    static const char file[] = "src/gpu/sensors_calls.h";
#define X(member, arguments, name, needed) call("nvml", file, name, "int", #arguments);
    NVML_CALLS(X)
#undef X
#define X(name, value, maker) NUMBER("nvml", file, name, maker);
    NVML_NUMBERS(X)
#undef X
#define X(name, value, maker) NUMBER("amdgpu", file, name, maker);
    AMD_METRICS_NUMBERS(X)
#undef X
#define FURTHER(value, member)                                                                                         \
    OF_CONTENT(value, member, "7"), OF_CONTENT(value, member, "8"),                                                    \
        NUMBER("amdgpu", file, sizeof(uint32_t), WIDTH(member))
#define OF_CONTENT(value, member, content)                                                                             \
    NUMBER("amdgpu", file, value,                                                                                      \
           "offsetof(struct gpu_metrics_v1_" content ", " member ") - offsetof(struct gpu_metrics_v1_" content         \
           ", accumulation_counter)")
#define WIDTH(member) "sizeof(gpu_metrics_v1_8::" member ")"
    NUMBER("amdgpu", file, sizeof(uint32_t), WIDTH("accumulation_counter"));
    FURTHER(AMD_HOT_PROCESSOR, "prochot_residency_acc");
    FURTHER(AMD_POWER, "ppt_residency_acc");
    FURTHER(AMD_HOT_SOCKET, "socket_thm_residency_acc");
    FURTHER(AMD_HOT_REGULATOR, "vr_thm_residency_acc");
    FURTHER(AMD_HOT_MEMORY, "hbm_thm_residency_acc");
    NUMBER("nvml", file, 0, "NVML_SUCCESS");
    NUMBER("nvml", file, sizeof(nvml_violation), "sizeof(nvmlViolationTime_t)");
    NUMBER("nvml", file, offsetof(nvml_violation, reference_us), "offsetof(nvmlViolationTime_t, referenceTime)");
    NUMBER("nvml", file, offsetof(nvml_violation, violation_ns), "offsetof(nvmlViolationTime_t, violationTime)");
    NUMBER("nvml", file, sizeof(nvml_temperature), "sizeof(nvmlTemperature_v1_t)");
    NUMBER("nvml", file, offsetof(nvml_temperature, sensor), "offsetof(nvmlTemperature_v1_t, sensorType)");
    NUMBER("nvml", file, offsetof(nvml_temperature, celsius), "offsetof(nvmlTemperature_v1_t, temperature)");
    NUMBER("nvml", file, sizeof(nvml_field), "sizeof(nvmlFieldValue_t)");
    NUMBER("nvml", file, offsetof(nvml_field, field), "offsetof(nvmlFieldValue_t, fieldId)");
    NUMBER("nvml", file, offsetof(nvml_field, scope), "offsetof(nvmlFieldValue_t, scopeId)");
    NUMBER("nvml", file, offsetof(nvml_field, time_us), "offsetof(nvmlFieldValue_t, timestamp)");
    NUMBER("nvml", file, offsetof(nvml_field, type), "offsetof(nvmlFieldValue_t, valueType)");
    NUMBER("nvml", file, offsetof(nvml_field, code), "offsetof(nvmlFieldValue_t, nvmlReturn)");
    NUMBER("nvml", file, offsetof(nvml_field, value), "offsetof(nvmlFieldValue_t, value)");
}

#define OF_CONFIG(member, maker)                                                                                       \
    NUMBER(library, file, offsetof(nccl_blocks_config, member), "offsetof(ncclConfig_t, " maker ")")

/* RCCL has NCCL's names. */
static void collectives(const char *library)
{
    static const char        file[] = "src/comm/coll/nccl_calls.h";
    const nccl_config        first;
    const nccl_blocks_config second;
#define X(member, result, arguments, later) call(library, file, "nccl" #member, #result, #arguments);
    NCCL_CALLS(X)
#undef X
#define X(name, value, maker) NUMBER(library, file, name, maker);
    NCCL_NUMBERS(X)
#undef X
    OF_CONFIG(size, "size");
    OF_CONFIG(magic, "magic");
    OF_CONFIG(version, "version");
    OF_CONFIG(blocking, "blocking");
    OF_CONFIG(cluster, "cgaClusterSize");
    OF_CONFIG(least_blocks, "minCTAs");
    OF_CONFIG(most_blocks, "maxCTAs");
    OF_CONFIG(net, "netName");
    NUMBER(library, file, offsetof(nccl_config, blocking), "offsetof(ncclConfig_t, blocking)");
    NUMBER(library, file, sizeof first.size, "sizeof(ncclConfig_t::size)");
    NUMBER(library, file, sizeof first.magic, "sizeof(ncclConfig_t::magic)");
    NUMBER(library, file, sizeof first.blocking, "sizeof(ncclConfig_t::blocking)");
    NUMBER(library, file, sizeof second.most_blocks, "sizeof(ncclConfig_t::maxCTAs)");
    NUMBER(library, file, NCCL_MAGIC, "initial.magic");
    number(library, "src/comm/coll/nccl.c", "versions up to 2.8", 2804, "NCCL_VERSION(2, 8, 4)");
}

int main(void)
{
    runtimes();
    compilers();
    products();
    other_products();
    attention();
    sensors();
    collectives("nccl");
    collectives("rccl");
    return 0;
}
