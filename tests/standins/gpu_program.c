/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in for a GPU's runtime: modules and launches. A module is the text that its stand-in compiler writes; a
 * launch executes it, in the order that STANDIN_GPU_ORDER names ("eager", "reversed", a number: waves at random; as
 * late as may be otherwise). STANDIN_GPU_BLIND=1: races are not looked for. STANDIN_GPU_AUDIT=ARCH: each launch is
 * audited (machine/audit.h), until standin_audit_print.
 *
 * STANDIN_GPU_CODE=FOLDER: of code objects of AMD's GPUs, which are those of FOLDER/MODULE.code to the byte, the text
 * is executed that they were assembled from, MODULE.s; PTX is known by its bytes as well. A line "MODULE KERNEL" is
 * added to the file that STANDIN_GPU_LAUNCHED names for each kernel that is launched for the first time, and ran to its
 * end. Of texts that say what they are ("; text MODULE") it is a line of
 * src/device/gpu/source/modules.txt. */
#define _GNU_SOURCE
#include "gpu.h"

#include "machine/audit.h"
#include "machine/tensor_map.h"

#include <elf.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A module of STANDIN_GPU_CODE, which is read once, or one that says what it is. */
typedef struct loaded {
    struct loaded  *next;
    machine_module *module;
    char            file[PATH_MAX]; /* MODULE.code; or its text and definitions */
    bool            named;
    char            launched[512]; /* names of kernels, a blank before and behind each */
} loaded;

typedef struct {
    machine_module *module;
    loaded         *from; /* NULL: neither of STANDIN_GPU_CODE nor named */
    char            name[96];
} kernel;

typedef struct {
    kernel        *kernel;
    machine_launch launch;
    unsigned char  arguments[];
} launching;

/* --- code by its bytes
 * ------------------------------------------------------------------------------------------------ */

static loaded *all_loaded;

static size_t bytes_of(const void *code)
{
    const Elf64_Ehdr *h = code; /* of a stripped code object its table of sections is the end */
    if (memcmp(code, ELFMAG, SELFMAG) != 0) return strlen(code) + 1;
    return h->e_shoff + (size_t)h->e_shnum * h->e_shentsize;
}

static char *read_file(const char *path, size_t *bytes)
{
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    fseek(f, 0, SEEK_END);
    *bytes = (size_t)ftell(f);
    rewind(f);
    char *text = calloc(*bytes + 1, 1);
    if (fread(text, 1, *bytes, f) != *bytes) abort();
    fclose(f);
    return text;
}

/* The file with this code; false: there is none. */
static bool find_code(const char *folder, const void *code, char path[PATH_MAX])
{
    char   pattern[PATH_MAX];
    size_t wanted = bytes_of(code), bytes;
    glob_t found;
    bool   same = false;
    snprintf(pattern, sizeof pattern, "%s/*.code", folder);
    if (glob(pattern, 0, NULL, &found) != 0) return false;
    for (size_t i = 0; i < found.gl_pathc && !same; i++) {
        char *one = read_file(found.gl_pathv[i], &bytes);
        same = one && bytes == wanted && memcmp(one, code, wanted) == 0;
        snprintf(path, PATH_MAX, "%s", found.gl_pathv[i]);
        free(one);
    }
    globfree(&found);
    return same;
}

/* NULL: it is not known, or, with an error, wrong. */
static machine_module *load_known(const char *folder, const void *code, char error[MACHINE_ERROR_ROOM])
{
    char   path[PATH_MAX];
    size_t bytes;
    if (!find_code(folder, code, path)) return NULL;
    for (loaded *l = all_loaded; l; l = l->next)
        if (strcmp(l->file, path) == 0) return l->module;
    loaded *l = calloc(1, sizeof *l);
    strcpy(l->file, path);
    strcpy(strrchr(path, '.'), NAME(".code", ".s"));
    char *text = read_file(path, &bytes);
    l->module = text ? NAME(machine_load_ptx, machine_load_gcn)(text, error) : NULL;
    free(text);
    if (!l->module) {
        free(l);
        return NULL;
    }
    l->next = all_loaded;
    all_loaded = l;
    return l->module;
}

static machine_module *load(const char *text, char error[MACHINE_ERROR_ROOM])
{
    static const char head[] = "; text ";
    machine_module   *module = NAME(machine_load_ptx, machine_load_gcn)(text, error);
    if (!module || strncmp(text, head, strlen(head)) != 0) return module;
    const char *name = text + strlen(head);
    loaded     *l = calloc(1, sizeof *l);
    *l = (loaded){ .next = all_loaded, .module = module, .named = true };
    snprintf(l->file, sizeof l->file, "%.*s", (int)strcspn(name, "\n"), name);
    all_loaded = l;
    return module;
}

/* cuda.h, CUDA_ERROR_INVALID_IMAGE: "the device kernel image is invalid". */
API NAME(cuModuleLoadData, hipModuleLoadData)(void **out, const void *code)
{
    char        error[MACHINE_ERROR_ROOM] = "";
    const char *folder = getenv("STANDIN_GPU_CODE");
    int         fault = standin_fault("cuModuleLoadData");
    if (fault) return fault;
    *out = folder ? load_known(folder, code, error) : NULL;
    if (!*out && memcmp(code, ELFMAG, SELFMAG) == 0)
        snprintf(error, sizeof error, "a code object that is none of STANDIN_GPU_CODE");
    if (!*out && !*error) *out = load(code, error);
    if (!*out) fprintf(stderr, "stand-in: a module cannot be loaded: %s\n", error);
    return *out ? OK : INVALID_IMAGE;
}

static void note_launch(const kernel *k)
{
    const char *path = getenv("STANDIN_GPU_LAUNCHED");
    char        word[100];
    snprintf(word, sizeof word, " %s ", k->name);
    if (!path || !k->from || strstr(k->from->launched, word)) return;
    FILE *f = fopen(path, "a");
    if (!f) abort();
    if (k->from->named) {
        fprintf(f, NAME("cuda", "hip") " %s: %s\n", k->from->file, k->name);
    } else {
        const char *name = strrchr(k->from->file, '/') + 1;
        fprintf(f, "%.*s %s\n", (int)(strrchr(name, '.') - name), name, k->name);
    }
    fclose(f);
    strncat(k->from->launched, word, sizeof k->from->launched - strlen(k->from->launched) - 1);
}

/* Kernels of graphs may still name it: it stays. */
API NAME(cuModuleUnload, hipModuleUnload)(void *module)
{
    (void)module;
    return OK;
}

/* cuda.h, cuModuleGetFunction: CUDA_ERROR_NOT_FOUND "if no function of that name exists". */
API NAME(cuModuleGetFunction, hipModuleGetFunction)(void **out, void *module, const char *name)
{
    int fault = standin_fault("cuModuleGetFunction");
    if (fault) return fault;
    for (int i = 0; i < machine_kernels(module); i++) {
        if (strcmp(machine_kernel_at(module, i)->name, name) != 0) continue;
        kernel *k = calloc(1, sizeof *k);
        k->module = module;
        for (k->from = all_loaded; k->from && k->from->module != module;) k->from = k->from->next;
        snprintf(k->name, sizeof k->name, "%s", name);
        *out = k;
        return OK;
    }
    return NOT_FOUND;
}

#ifndef HIP
/* cuda.h: 8 is CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES; CUDA C++ Programming Guide, technical specifications:
 * 227 KiB of shared memory per block from compute capability 9.0 on. */
API cuFuncSetAttribute(void *of, int which, int value)
{
    int fault = standin_fault("cuFuncSetAttribute");
    (void)of;
    return fault ? fault : which == 8 && value <= 232448 ? OK : INVALID;
}
#endif

#ifndef HIP
/* cuda.h, cuTensorMapEncodeTiled: "tensorMap address must be aligned to 64 bytes", "globalStrides[i] >= globalDim[i]";
 * the rest of what it asks for, machine_tensor_map does. */
API cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *at, const uint64_t *sizes, const uint64_t *strides,
                           const unsigned *box, const unsigned *steps, int interleave, int swizzle, int promotion,
                           int fill)
{
    int            fault = standin_fault("cuTensorMapEncodeTiled");
    machine_tensor t = { .type = type, .rank = (int)rank, .address = (uintptr_t)at, .swizzle = swizzle, .fill = fill };
    if (fault) return fault;
    if ((uintptr_t)map % 64 || rank > MACHINE_TENSOR_RANK || interleave || promotion < 0 || promotion > 3)
        return INVALID;
    for (unsigned i = 0; i < rank; i++) {
        t.dims[i] = sizes[i], t.box[i] = box[i], t.element_strides[i] = steps[i];
        if (i > 0) t.strides[i - 1] = strides[i - 1];
        if (i > 0 && i + 1 < rank && strides[i] < sizes[i]) return INVALID;
    }
    const char *why = machine_tensor_map(map, &t);
    if (why) fprintf(stderr, "stand-in: a tensor has no map: %s\n", why);
    return why ? INVALID : OK;
}
#endif

static machine_order order_of_day(void)
{
    const char   *wanted = getenv("STANDIN_GPU_ORDER"), *blind = getenv("STANDIN_GPU_BLIND");
    machine_order order = { .skip = -1, .blind = blind && *blind == '1' };
    if (!wanted) return order;
    order.eager = strcmp(wanted, "eager") == 0;
    order.waves = strcmp(wanted, "reversed") == 0 ? 1 : atoi(wanted);
    return order;
}

static machine_audit *audit;

SHOWN machine_tally standin_audit_print(const char *proved)
{
    machine_tally none = { 0 };
    return audit ? machine_audit_print(audit, proved) : none;
}

static bool           counting;
static machine_counts counted;

/* For tests: from now on launches are counted; what they did, and what an allocation was asked for since then. */
SHOWN void standin_count(void)
{
    counting = true;
    counted = (machine_counts){ 0 };
    machine_use_clear(standin_memory());
}
SHOWN machine_counts standin_counted(void)
{
    return counted;
}
SHOWN machine_use standin_used(const void *address)
{
    return machine_use_of(standin_memory(), (uintptr_t)address);
}

static bool run_as_asked(const launching *l, char error[MACHINE_ERROR_ROOM])
{
    const char   *arch = getenv("STANDIN_GPU_AUDIT");
    machine_order order = order_of_day();
    if (!arch)
        return machine_run(l->kernel->module, standin_memory(), &l->launch, &order, counting ? &counted : NULL, error);
    if (!audit) audit = machine_audit_new(arch);
    return machine_audit_run(audit, l->kernel->module, standin_memory(), &l->launch, error);
}

static void run(void *with)
{
    launching *l = with;
    char       error[MACHINE_ERROR_ROOM] = "";
    if (run_as_asked(l, error)) {
        note_launch(l->kernel);
        return;
    }
    fprintf(stderr, "stand-in: %s\n", error);
    standin_broken(ILLEGAL_ADDRESS);
}

API NAME(cuLaunchKernel, hipModuleLaunchKernel)(void *of, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                                unsigned by, unsigned bz, unsigned shared, void *stream,
                                                void **arguments, void **extra)
{
    int       fault = standin_fault("cuLaunchKernel");
    uintptr_t end = NAME(0, 3); /* CU_LAUNCH_PARAM_END, HIP_LAUNCH_PARAM_END */
    if (fault) return fault;
    if (arguments || !extra || (uintptr_t)extra[0] != 1 || (uintptr_t)extra[2] != 2 || (uintptr_t)extra[4] != end)
        return INVALID;
    if (!gx || !gy || !gz || !bx || !by || !bz || (uint64_t)bx * by * bz > 1024 || gy > 65535 || gz > 65535)
        return INVALID; /* CUDA C++ Programming Guide, table of technical specifications */
    if (NAME(false, (uint64_t)gx * bx >> 32)) return INVALID; /* hip_runtime_api.h, hipModuleLaunchKernel */
    size_t bytes = *(const size_t *)extra[3];
    if (standin_notes()) {
        const unsigned grid[] = { gx, gy, gz, bx, by, bz, shared };
        standin_note(&of, sizeof of), standin_note(grid, sizeof grid), standin_note(extra[1], bytes);
        return OK;
    }
    launching *l = calloc(1, sizeof *l + bytes);
    memcpy(l->arguments, extra[1], bytes);
    l->kernel = of;
    l->launch = (machine_launch){ .kernel = l->kernel->name,
                                  .blocks = { gx, gy, gz },
                                  .threads = { bx, by, bz },
                                  .dynamic_shared = shared,
                                  .arguments = l->arguments,
                                  .argument_bytes = bytes };
    standin_put(stream, (standin_work){ .run = run, .drop = free, .with = l });
    return OK;
}
