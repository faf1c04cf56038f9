/* SPDX-License-Identifier: Apache-2.0 */
/* As tables.c, of numbers of the stand-ins: RUNTIME, PRODUCTS (both: HIP or not), ATTENTION or COLLECTIVES says which.
 * Numbers that trainmark has, too, the tests compare with its own. */
#include <stdio.h>

#define NUMBER(library, file, value, expression)                                                                       \
    printf("%s\ttests/standins/%s\tnumber\t%s\t%lld\t%s\n", library, file, #value, (long long)(value), expression)

#if defined RUNTIME
#include "gpu.h"
#include "machine/tensor_map.h"

int main(void)
{
    const char *library = NAME("cuda", "hip");
#define SAME(value, cuda, hip) NUMBER(library, "gpu.h", value, NAME(cuda, hip))
    SAME(OK, "CUDA_SUCCESS", "hipSuccess");
    SAME(INVALID, "CUDA_ERROR_INVALID_VALUE", "hipErrorInvalidValue");
    SAME(NO_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "hipErrorOutOfMemory");
    SAME(NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "hipErrorNoDevice");
    SAME(INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "hipErrorInvalidImage");
    SAME(NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "hipErrorNotFound");
    SAME(NOT_READY, "CUDA_ERROR_NOT_READY", "hipErrorNotReady");
    SAME(ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "hipErrorIllegalAddress");
    SAME(CAPTURE_UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "hipErrorStreamCaptureUnjoined");
#ifndef HIP
#define MAP(value, name) NUMBER("cuda", "../machine/tensor_map.h", value, name)
    MAP(MACHINE_TENSOR_MAP_BYTES, "sizeof(CUtensorMap)");
    MAP(0, "CU_TENSOR_MAP_DATA_TYPE_UINT8");
    MAP(6, "CU_TENSOR_MAP_DATA_TYPE_FLOAT16");
    MAP(7, "CU_TENSOR_MAP_DATA_TYPE_FLOAT32");
    MAP(9, "CU_TENSOR_MAP_DATA_TYPE_BFLOAT16");
    MAP(1, "CU_TENSOR_MAP_SWIZZLE_32B");
    MAP(2, "CU_TENSOR_MAP_SWIZZLE_64B");
    MAP(3, "CU_TENSOR_MAP_SWIZZLE_128B");
    MAP(0, "CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE");
#endif
    return 0;
}

#elif defined PRODUCTS
#include "blaslt.c"

int main(void)
{
    const char *library = NAME("cublaslt", "hipblaslt");
#define FILES "blaslt.c, blaslt_codes.h"
#define SAME(value, cuda, hip) NUMBER(library, FILES, value, NAME(cuda, hip))
    SAME(NOT_INITIALIZED, "CUBLAS_STATUS_NOT_INITIALIZED", "HIPBLAS_STATUS_NOT_INITIALIZED");
    SAME(INVALID_VALUE, "CUBLAS_STATUS_INVALID_VALUE", "HIPBLAS_STATUS_INVALID_VALUE");
    SAME(NOT_SUPPORTED, "CUBLAS_STATUS_NOT_SUPPORTED", "HIPBLAS_STATUS_NOT_SUPPORTED");
    SAME(EPILOGUE_DEFAULT, "CUBLASLT_EPILOGUE_DEFAULT", "HIPBLASLT_EPILOGUE_DEFAULT");
    SAME(EPILOGUE_BIAS, "CUBLASLT_EPILOGUE_BIAS", "HIPBLASLT_EPILOGUE_BIAS");
    SAME(BIAS_TYPE, "CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE", "HIPBLASLT_MATMUL_DESC_BIAS_DATA_TYPE");
    SAME(SCALE_MODE_A, "CUBLASLT_MATMUL_DESC_A_SCALE_MODE", "HIPBLASLT_MATMUL_DESC_A_SCALE_MODE");
    SAME(SCALE_MODE_B, "CUBLASLT_MATMUL_DESC_B_SCALE_MODE", "HIPBLASLT_MATMUL_DESC_B_SCALE_MODE");
    SAME(SCALE_OF_MATRIX, "CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F", "HIPBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F");
    SAME(SCALES_E8M0, "CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0", "HIPBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0");
    SAME(SCALES_OF_ROWS, "CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F", "HIPBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F");
    SAME(sizeof(((result *)0)->algorithm), "sizeof(cublasLtMatmulAlgo_t)", "sizeof(hipblasLtMatmulAlgo_t)");
    SAME(offsetof(result, workspace), "offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize)",
         "offsetof(hipblasLtMatmulHeuristicResult_t, workspaceSize)");
    SAME(offsetof(result, status), "offsetof(cublasLtMatmulHeuristicResult_t, state)",
         "offsetof(hipblasLtMatmulHeuristicResult_t, state)");
    SAME(offsetof(result, waves), "offsetof(cublasLtMatmulHeuristicResult_t, wavesCount)",
         "offsetof(hipblasLtMatmulHeuristicResult_t, wavesCount)");
    SAME(sizeof(result), "sizeof(cublasLtMatmulHeuristicResult_t)", "sizeof(hipblasLtMatmulHeuristicResult_t)");
#ifndef HIP
    NUMBER(library, FILES, ALIGN_D, "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES");
    NUMBER(library, FILES, SCALES_OF_128, "CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F");
    NUMBER(library, FILES, SCALES_OF_SQUARES, "CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F");
#endif
    return 0;
}

#elif defined ATTENTION
#include "cudnn_rules.c"

/* Of attributes also the type: "CUDNN_ATTR_... (CUDNN_TYPE_..., 1 element)" are words of newer headers, which
 * tools/judge_headers.sh reads. */
static void type_of(const char *name, int number)
{
    static const char *const types[] = { [T_HANDLE] = "HANDLE",
                                         [T_FORMAT] = "DATA_TYPE",
                                         [T_BOOL] = "BOOLEAN",
                                         [T_I64] = "INT64",
                                         [T_ADDRESS] = "VOID_PTR",
                                         [T_HEURISTIC] = "HEUR_MODE",
                                         [T_FUNCTION] = "POINTWISE_MODE",
                                         [T_DESCRIPTOR] = "BACKEND_DESCRIPTOR",
                                         [T_REDUCTION] = "REDUCTION_OPERATOR_TYPE",
                                         [T_CHAR] = "CHAR" };
    for (int i = 0; i < N_ATTRIBUTES; i++)
        if (attributes[i].name == number)
            printf("cudnn\ttests/standins/cudnn_rules.c\ttype\t%s\tCUDNN_TYPE_%s\t%s\n", name,
                   types[attributes[i].type], attributes[i].most == 1 ? "1" : "more");
}

int main(void)
{
#define TOLD(value, number, name)                                                                                      \
    NUMBER("cudnn", "cudnn.h", value, "CUDNN_ATTR_" name), type_of("CUDNN_ATTR_" name, value);
#define ATTRIBUTE(value, number, name, ...) TOLD(value, number, name)
#define FUNCTION(value, number, name, ...) NUMBER("cudnn", "cudnn.h", value, "CUDNN_POINTWISE_" name);
#include "cudnn.def"
    return 0;
}

#elif defined COLLECTIVES
#include "nccl.c"

int main(void)
{
    for (int rccl = 0; rccl < 2; rccl++) {
        const char *library = rccl ? "rccl" : "nccl";
        NUMBER(library, "nccl.c", DEVICE, "ncclUnhandledCudaError");
        NUMBER(library, "nccl.c", SYSTEM, "ncclSystemError");
        NUMBER(library, "nccl.c", INTERNAL, "ncclInternalError");
        NUMBER(library, "nccl.c", ARGUMENT, "ncclInvalidArgument");
        NUMBER(library, "nccl.c", USAGE, "ncclInvalidUsage");
        NUMBER(library, "nccl.c", REMOTE, "ncclRemoteError");
        NUMBER(library, "nccl.c", BUSY, "ncclInProgress");
        NUMBER(library, "nccl.c", sizeof(unique_id), "sizeof(ncclUniqueId)");
        NUMBER(library, "nccl.c", offsetof(config, blocking), "offsetof(ncclConfig_t, blocking)");
        NUMBER(library, "nccl.c", offsetof(config, most_blocks), "offsetof(ncclConfig_t, maxCTAs)");
        NUMBER(library, "nccl.c", offsetof(config, net), "offsetof(ncclConfig_t, netName)");
    }
    return 0;
}
#endif
