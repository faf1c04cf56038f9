/* SPDX-License-Identifier: Apache-2.0 */
#include "machine/compile_amd.h"

#include "support/test.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER "tests/machine/kernels"
#define DIALECT "src/device/gpu/source/dialect.cu"
#define PYTHON "build/venv/bin/python"
#define FLAGS "-x hip --cuda-device-only --no-gpu-bundle-output -nogpuinc -nogpulib -O3 -std=c++17 -gline-tables-only"

/* The words that begin a command; NULL: there is no compiler. */
static const char *compiler(void)
{
    const char *words = getenv("TM_HIP_CLANG");
    if (words && *words) return words;
    return access(PYTHON, X_OK) == 0 && system(PYTHON " -c 'import ziglang' 2>/dev/null") == 0 ? PYTHON
               " -m ziglang clang"
                                                                                               : NULL;
}

bool machine_amd_missing(void)
{
    const char *required = getenv("TM_TEST_COMPILERS");
    if (compiler()) return false;
    printf("# SKIPPED: no clang for AMD GPUs (tools/kernel_compilers.sh)\n");
    if (required && strcmp(required, "required") == 0) fail();
    return true;
}

char *machine_read_file(const char *path)
{
    FILE *file = fopen(path, "r");
    char *text = NULL;
    if (!file) return NULL;
    fseek(file, 0, SEEK_END);
    long bytes = ftell(file);
    rewind(file);
    if (bytes >= 0) text = calloc((size_t)bytes + 1, 1);
    if (text && fread(text, 1, (size_t)bytes, file) != (size_t)bytes) text[0] = 0;
    fclose(file);
    return text;
}

static uint64_t hash_text(uint64_t hash, const char *text)
{
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return (hash ^ 0xff) * 0x100000001b3u;
}

/* The names of files that match, or what is in them. */
static uint64_t hash_files(uint64_t hash, const char *pattern, bool contents)
{
    glob_t found;
    if (glob(pattern, 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++) {
            char *text = contents ? machine_read_file(found.gl_pathv[i]) : NULL;
            hash = hash_text(hash, text ? text : found.gl_pathv[i]);
            free(text);
        }
        globfree(&found);
    }
    return hash;
}

/* build/release/tests/machine/kernels/NAME.ARCH.HASH.s */
static void cached_name(const char *words, const char *file, const char *arch, char path[512])
{
    const char *slash = strrchr(test_program, '/');
    int         folder = slash ? (int)(slash - test_program) : 0;
    char        source[256];
    uint64_t    hash = hash_text(0xcbf29ce484222325u, words);
    snprintf(source, sizeof source, FOLDER "/%s", file);
    hash = hash_files(hash_text(hash, FLAGS), source, true);
    hash = hash_files(hash, DIALECT, true);
    hash = hash_files(hash_files(hash, FOLDER "/*.h", true), "build/venv/lib/*/site-packages/ziglang-*", false);
    snprintf(path, 512, "%.*s/kernels", slash ? folder : 1, slash ? test_program : ".");
    mkdir(path, 0777);
    snprintf(path, 512, "%.*s/kernels/%.*s.%s.%016llx.s", slash ? folder : 1, slash ? test_program : ".",
             (int)strcspn(file, "."), file, arch, (unsigned long long)hash);
}

char *machine_compile_amd(const char *file, const char *arch, char error[MACHINE_ERROR_ROOM])
{
    const char *words = compiler();
    char        path[512], mine[560], command[2048];
    snprintf(error, MACHINE_ERROR_ROOM, "there is no compiler for AMD GPUs (tools/kernel_compilers.sh)");
    if (!words) return NULL;
    cached_name(words, file, arch, path);
    char *text = machine_read_file(path);
    if (text) return text;
    snprintf(mine, sizeof mine, "%s.%d", path, (int)getpid());
    snprintf(command, sizeof command, "%s " FLAGS " --offload-arch=%s -S " FOLDER "/%s -o %s 2>%s.log", words, arch,
             file, mine, mine);
    if (system(command) == 0 && rename(mine, path) == 0) {
        text = machine_read_file(path);
    } else {
        snprintf(mine, sizeof mine, "%s.%d.log", path, (int)getpid());
        char *log = machine_read_file(mine);
        snprintf(error, MACHINE_ERROR_ROOM, "%s for %s: %.500s", file, arch, log ? log : "");
        free(log);
    }
    snprintf(mine, sizeof mine, "%s.%d.log", path, (int)getpid());
    unlink(mine);
    return text;
}
