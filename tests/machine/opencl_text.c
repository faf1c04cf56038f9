/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels' texts, which know no address spaces, as C++ for OpenCL, and this as bitcode: PoCL 3.1 takes no such
 * source, but SPIR, which clang makes of it. */
#include "machine/opencl.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PART "tests/machine/opencl.cl"
#define REFUSAL "#error \"a compiler that this dialect does not know\"\n"
/* -O0: of what was optimized PoCL 3.1 makes wrong kernels. Behind a return before a barrier its work items take the way
 * of the first one. */
#define FLAGS                                                                                                          \
    "-x clcpp -cl-std=clc++ -target spir64-unknown-unknown -cl-kernel-arg-info -ffp-contract=off -O0 -emit-llvm "      \
    "-Werror=unknown-pragmas"

static char *read_whole(const char *path, size_t *bytes)
{
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    fseek(f, 0, SEEK_END);
    *bytes = (size_t)ftell(f);
    rewind(f);
    char *text = calloc(*bytes + 1, 1);
    if (!text || fread(text, 1, *bytes, f) != *bytes) abort();
    fclose(f);
    return text;
}

/* Behind the parenthesis that closes the one at `open`. */
static const char *behind(const char *open)
{
    int depth = 0;
    do depth += (*open == '(') - (*open == ')');
    while (*open++ && depth > 0);
    return open;
}

/* One argument; a pointer is one to global memory. */
static void write_argument(FILE *out, const char *from, const char *end)
{
    while (from < end && isspace((unsigned char)*from)) fputc(*from++, out);
    if (memchr(from, '*', (size_t)(end - from))) fputs("__global ", out);
    fwrite(from, 1, (size_t)(end - from), out);
}

/* `at`: a kernel's "KERNEL(name)" or "KERNEL_OF(threads, name)", then its arguments. Returns what follows. */
static const char *write_kernel(FILE *out, const char *at)
{
    const char *open = strchr(behind(strchr(at, '(')), '('), *end = behind(open), *from = open + 1;
    fwrite(at, 1, (size_t)(from - at), out);
    for (const char *c = from; c < end; c++) {
        if (*c != ',' && c + 1 < end) continue;
        write_argument(out, from, c);
        fputc(*c, out);
        from = c + 1;
    }
    return end;
}

/* With the dialect's part for OpenCL, and kernels whose pointers say where they point. The caller frees it. */
static char *as_opencl(const char *text, char error[MACHINE_ERROR_ROOM])
{
    char       *whole = NULL;
    size_t      bytes, n;
    const char *refusal = strstr(text, REFUSAL);
    char       *part = read_whole(PART, &bytes);
    if (!refusal || !part) {
        snprintf(error, MACHINE_ERROR_ROOM, "%s",
                 part ? "the dialect refuses no compiler: there is no place for OpenCL's part" : PART " is not there");
        free(part);
        return NULL;
    }
    FILE *out = open_memstream(&whole, &n);
    fwrite(text, 1, (size_t)(refusal - text), out);
    fputs(part, out);
    for (const char *at = refusal + strlen(REFUSAL); *at;) {
        if (at[-1] == '\n' && (strncmp(at, "KERNEL(", 7) == 0 || strncmp(at, "KERNEL_OF(", 10) == 0))
            at = write_kernel(out, at);
        else
            fputc(*at++, out);
    }
    fclose(out);
    free(part);
    return whole;
}

unsigned char *opencl_bitcode(const char *text, const char *clang, size_t *bytes, char error[MACHINE_ERROR_ROOM])
{
    char  folder[] = "/tmp/trainmark-opencl-XXXXXX", path[64], command[512];
    char *source = as_opencl(text, error), *code = NULL;
    if (!source) return NULL;
    if (!mkdtemp(folder)) abort();
    snprintf(path, sizeof path, "%s/k.clcpp", folder);
    FILE *f = fopen(path, "w");
    if (!f || fputs(source, f) < 0 || fclose(f) != 0) abort();
    free(source);
    snprintf(command, sizeof command, "cd %s && %s " FLAGS " -c k.clcpp -o k.bc 2>log", folder, clang);
    bool fine = system(command) == 0;
    snprintf(path, sizeof path, "%s/%s", folder, fine ? "k.bc" : "log");
    code = read_whole(path, bytes);
    if (!fine) {
        snprintf(error, MACHINE_ERROR_ROOM, "%.*s: %.400s", (int)strcspn(text, "\n"), text, code ? code : "");
        free(code);
        code = NULL;
    }
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) == 0 ? (unsigned char *)code : NULL;
}
