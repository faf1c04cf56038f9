/* SPDX-License-Identifier: Apache-2.0 */
#include "machine/opencl.h"

#include "machine/module.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the library: what is called of CL/cl.h (OpenCL 3.0), whose handles are pointers
 * -------------------------------------------------------------------------------------------------------------------
 */

#define CALLS(X)                                                                                                       \
    X(int, clGetPlatformIDs, (uint32_t room, void **platforms, uint32_t *n))                                           \
    X(int, clGetPlatformInfo, (void *platform, uint32_t what, size_t room, void *out, size_t *bytes))                  \
    X(int, clGetDeviceIDs, (void *platform, uint64_t kind, uint32_t room, void **devices, uint32_t *n))                \
    X(int, clGetDeviceInfo, (void *device, uint32_t what, size_t room, void *out, size_t *bytes))                      \
    X(void *, clCreateContext,                                                                                         \
      (const intptr_t *properties, uint32_t n, void *const *devices, void *notify, void *with, int *code))             \
    X(void *, clCreateCommandQueue, (void *context, void *device, uint64_t properties, int *code))                     \
    X(void *, clCreateProgramWithBinary,                                                                               \
      (void *context, uint32_t n, void *const *devices, const size_t *bytes, const unsigned char **binaries,           \
       int *each, int *code))                                                                                          \
    X(int, clBuildProgram,                                                                                             \
      (void *program, uint32_t n, void *const *devices, const char *options, void *notify, void *with))                \
    X(int, clGetProgramBuildInfo, (void *program, void *device, uint32_t what, size_t room, void *out, size_t *bytes)) \
    X(int, clReleaseProgram, (void *program))                                                                          \
    X(int, clCreateKernelsInProgram, (void *program, uint32_t room, void **kernels, uint32_t *n))                      \
    X(int, clReleaseKernel, (void *kernel))                                                                            \
    X(int, clGetKernelInfo, (void *kernel, uint32_t what, size_t room, void *out, size_t *bytes))                      \
    X(int, clGetKernelArgInfo, (void *kernel, uint32_t i, uint32_t what, size_t room, void *out, size_t *bytes))       \
    X(int, clSetKernelArg, (void *kernel, uint32_t i, size_t bytes, const void *value))                                \
    X(int, clSetKernelArgSVMPointer, (void *kernel, uint32_t i, const void *pointer))                                  \
    X(int, clEnqueueNDRangeKernel,                                                                                     \
      (void *queue, void *kernel, uint32_t dimensions, const size_t *from, const size_t *items, const size_t *block,   \
       uint32_t n, const void *events, void *event))                                                                   \
    X(int, clFinish, (void *queue))

enum {
    PLATFORM_VERSION = 0x0901,
    PLATFORM_NAME = 0x0902,
    DEVICE_EXTENSIONS = 0x1030,
    BUILD_LOG = 0x1183,
    FUNCTION_NAME = 0x1190,
    NUM_ARGS = 0x1191,
    ARG_TYPE_NAME = 0x1198,
};

static struct {
#define X(result, name, arguments) result(*name) arguments;
    CALLS(X)
#undef X
    void *device, *context, *queue;
    char  clang[24];
} cl;

static bool find_calls(void)
{
    void *library = dlopen("libOpenCL.so.1", RTLD_NOW);
    if (!library) return false;
#define X(result, name, arguments)                                                                                     \
    if (!(*(void **)&cl.name = dlsym(library, #name))) return false;
    CALLS(X)
#undef X
    return true;
}

/* PoCL among the platforms, and its first device. */
static void *find_platform(void)
{
    enum { MOST = 16 };
    void    *platforms[MOST];
    uint32_t n = 0;
    char     name[80] = "";
    if (cl.clGetPlatformIDs(MOST, platforms, &n) != 0) return NULL;
    for (uint32_t i = 0; i < n && i < MOST; i++)
        if (cl.clGetPlatformInfo(platforms[i], PLATFORM_NAME, sizeof name, name, NULL) == 0 &&
            strcmp(name, "Portable Computing Language") == 0)
            return platforms[i];
    return NULL;
}

/* Bitcode is for one LLVM: that of PoCL, which its version names. */
static bool find_clang(void *platform)
{
    char        version[400] = "", command[80];
    const char *llvm = NULL;
    if (cl.clGetPlatformInfo(platform, PLATFORM_VERSION, sizeof version, version, NULL) == 0)
        llvm = strstr(version, "LLVM ");
    if (!llvm) return false;
    snprintf(cl.clang, sizeof cl.clang, "clang-%d", atoi(llvm + 5));
    snprintf(command, sizeof command, "%s --version >/dev/null 2>&1", cl.clang);
    return system(command) == 0;
}

const char *machine_opencl_missing(void)
{
    static char extensions[4000];
    int         code = 0;
    if (cl.queue) return NULL;
    /* Its device without threads: PoCL knows variables in local memory by names that C++ does not give them, and blocks
     * that run side by side would share them. */
    setenv("POCL_DEVICES", "basic", 1);
    if (!find_calls()) return "there is no libOpenCL.so.1 (ocl-icd-libopencl1)";
    void *platform = find_platform();
    if (!platform || cl.clGetDeviceIDs(platform, 0xffffffff, 1, &cl.device, NULL) != 0)
        return "there is no PoCL (pocl-opencl-icd)";
    if (cl.clGetDeviceInfo(cl.device, DEVICE_EXTENSIONS, sizeof extensions, extensions, NULL) != 0 ||
        !strstr(extensions, "cl_khr_spir"))
        return "this PoCL takes no SPIR (that of Debian 12 does)";
    if (!find_clang(platform)) return "there is no clang of PoCL's LLVM";
    cl.context = cl.clCreateContext(NULL, 1, &cl.device, NULL, NULL, &code);
    if (cl.context) cl.queue = cl.clCreateCommandQueue(cl.context, cl.device, 0, &code);
    return cl.queue ? NULL : "PoCL opens no device";
}

/* --- modules
 * -------------------------------------------------------------------------------------------------------------------
 */

enum { MOST_ARGUMENTS = 32, MOST_KERNELS = 16 };

typedef struct {
    void  *handle;
    int    n;
    size_t bytes[MOST_ARGUMENTS]; /* 0: a pointer */
    char   name[80];
} opencl_kernel;

typedef struct {
    machine_module module;
    void          *program;
    int            n;
    opencl_kernel  kernels[MOST_KERNELS];
    machine_kernel about[MOST_KERNELS];
} opencl_module;

static void unload(machine_module *module)
{
    opencl_module *m = (void *)module;
    for (int i = 0; i < m->n; i++) cl.clReleaseKernel(m->kernels[i].handle);
    if (m->program) cl.clReleaseProgram(m->program);
    free(m);
}

static size_t bytes_of(const char *type)
{
    static const struct {
        const char *name;
        size_t      bytes;
    } all[] = { { "int", 4 }, { "float", 4 }, { "long", 8 }, { "double", 8 }, { "classes", 128 } };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (strcmp(all[i].name, type) == 0) return all[i].bytes;
    return 0;
}

/* The arguments that dialect.cu allows: numbers, addresses, and a struct of words of 32 bits (source/encoders.cu). */
static bool describe(opencl_kernel *k, char error[MACHINE_ERROR_ROOM])
{
    uint32_t n = 0;
    char     type[80] = "";
    int      code = cl.clGetKernelInfo(k->handle, FUNCTION_NAME, sizeof k->name, k->name, NULL);
    if (code == 0) code = cl.clGetKernelInfo(k->handle, NUM_ARGS, sizeof n, &n, NULL);
    for (uint32_t i = 0; i < n && i < MOST_ARGUMENTS && code == 0; i++) {
        code = cl.clGetKernelArgInfo(k->handle, i, ARG_TYPE_NAME, sizeof type, type, NULL);
        k->bytes[i] = bytes_of(type);
        if (code || k->bytes[i] || strchr(type, '*')) continue;
        snprintf(error, MACHINE_ERROR_ROOM, "%s: argument %d is of type %s", k->name, (int)i, type);
        return false;
    }
    k->n = (int)n;
    if (code || n > MOST_ARGUMENTS) snprintf(error, MACHINE_ERROR_ROOM, "%s: OpenCL's error %d", k->name, code);
    return code == 0 && n <= MOST_ARGUMENTS;
}

static bool build(opencl_module *m, const char *text, char error[MACHINE_ERROR_ROOM])
{
    size_t         bytes;
    int            code = 0, each = 0;
    unsigned char *bitcode = opencl_bitcode(text, cl.clang, &bytes, error);
    if (!bitcode) return false;
    m->program =
        cl.clCreateProgramWithBinary(cl.context, 1, &cl.device, &bytes, (const unsigned char **)&bitcode, &each, &code);
    free(bitcode);
    if (code == 0)
        code = cl.clBuildProgram(m->program, 1, &cl.device, "-x spir -spir-std=1.2 -cl-kernel-arg-info", NULL, NULL);
    if (code == 0) return true;
    char log[400] = "";
    if (m->program) cl.clGetProgramBuildInfo(m->program, cl.device, BUILD_LOG, sizeof log, log, NULL);
    snprintf(error, MACHINE_ERROR_ROOM, "PoCL builds no program, error %d: %s", code, log);
    return false;
}

static const machine_interpreter interpreter;

machine_module *machine_load_opencl(const char *text, char error[MACHINE_ERROR_ROOM])
{
    const char *missing = machine_opencl_missing();
    void       *handles[MOST_KERNELS];
    uint32_t    n = 0;
    if (missing) {
        snprintf(error, MACHINE_ERROR_ROOM, "%s", missing);
        return NULL;
    }
    opencl_module *m = calloc(1, sizeof *m);
    if (!m) abort();
    m->module.interpreter = &interpreter;
    bool fine = build(m, text, error);
    if (fine && cl.clCreateKernelsInProgram(m->program, MOST_KERNELS, handles, &n) != 0) {
        snprintf(error, MACHINE_ERROR_ROOM, "PoCL finds no kernels");
        fine = false;
    }
    for (m->n = 0; fine && m->n < (int)n; m->n++) {
        m->kernels[m->n].handle = handles[m->n];
        fine = describe(&m->kernels[m->n], error);
        m->about[m->n].name = m->kernels[m->n].name;
    }
    if (fine) return &m->module;
    unload(&m->module);
    return NULL;
}

/* --- launches
 * -------------------------------------------------------------------------------------------------------------------
 */

/* A pointer is passed as where the bytes are on the host: PoCL's devices are its processor. */
static int pass(const opencl_kernel *k, int i, machine_memory *memory, const unsigned char *from)
{
    uint64_t address;
    if (k->bytes[i]) return cl.clSetKernelArg(k->handle, (uint32_t)i, k->bytes[i], from);
    memcpy(&address, from, sizeof address);
    void *at = address ? machine_at(memory, address, 1) : NULL;
    if (address && !at) return -1;
    return cl.clSetKernelArgSVMPointer(k->handle, (uint32_t)i, at);
}

static bool pass_all(const opencl_kernel *k, machine_memory *memory, const machine_launch *l,
                     char error[MACHINE_ERROR_ROOM])
{
    size_t at = 0;
    for (int i = 0; i < k->n; i++) {
        size_t bytes = k->bytes[i] ? k->bytes[i] : sizeof(uint64_t);
        size_t align = bytes > sizeof(uint64_t) ? sizeof(uint32_t) : bytes;
        at = (at + align - 1) / align * align;
        if (at + bytes > l->argument_bytes || pass(k, i, memory, (const unsigned char *)l->arguments + at) != 0) {
            snprintf(error, MACHINE_ERROR_ROOM, "%s: argument %d is not passed, or no address of the GPU", k->name, i);
            return false;
        }
        at += bytes;
    }
    if (at == l->argument_bytes) return true;
    snprintf(error, MACHINE_ERROR_ROOM, "%s: takes %zu bytes of arguments, not %zu", k->name, at, l->argument_bytes);
    return false;
}

static bool run(machine_module *module, machine_memory *memory, const machine_launch *launch,
                const machine_order *order, machine_counts *counts, char error[MACHINE_ERROR_ROOM])
{
    opencl_module *m = (void *)module;
    int            i = 0;
    size_t         items[3], block[3];
    (void)order, (void)counts;
    while (i < m->n && strcmp(m->kernels[i].name, launch->kernel) != 0) i++;
    if (i == m->n) {
        snprintf(error, MACHINE_ERROR_ROOM, "no kernel %s", launch->kernel);
        return false;
    }
    if (!pass_all(&m->kernels[i], memory, launch, error)) return false;
    for (int d = 0; d < 3; d++) {
        block[d] = launch->threads[d];
        items[d] = (size_t)launch->blocks[d] * launch->threads[d];
    }
    int code = cl.clEnqueueNDRangeKernel(cl.queue, m->kernels[i].handle, 3, NULL, items, block, 0, NULL, NULL);
    if (code == 0) code = cl.clFinish(cl.queue);
    if (code) snprintf(error, MACHINE_ERROR_ROOM, "%s: PoCL's error %d", launch->kernel, code);
    return code == 0;
}

static int kernels(const machine_module *module)
{
    return ((const opencl_module *)(const void *)module)->n;
}

static const machine_kernel *kernel_at(const machine_module *module, int i)
{
    return &((const opencl_module *)(const void *)module)->about[i];
}

/* There are no instructions to look at. */
static machine_instruction instruction_at(const machine_module *module, int at)
{
    (void)module, (void)at;
    return (machine_instruction){ .text = "" };
}

static int find(const machine_module *module, int from, int end)
{
    (void)module, (void)from, (void)end;
    return -1;
}

static bool loosen(machine_module *module, int at, int count, int by)
{
    (void)module, (void)at, (void)count, (void)by;
    return false;
}

static const machine_interpreter interpreter = { unload, run, kernels, kernel_at, instruction_at, find, loosen, NULL };
