/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/places.h"

#include "base/root.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATHS = 4096, ENTRIES = 4096 };

const char *tm_gpu_variable(char *const *environment, const char *name)
{
    size_t n = strlen(name);
    for (char *const *variable = environment; variable && *variable; variable++)
        if (strncmp(*variable, name, n) == 0 && (*variable)[n] == '=') return *variable + n + 1;
    return NULL;
}

/* --- folders --------------------------------------------------------------------------------- */

typedef struct {
    const char   *sysroot;
    tm_arena     *arena;
    tm_gpu_place *places;
    size_t        n, capacity;
} search;

/* Adds a folder that exists and is not in the list. */
static void add(search *s, const char *named, bool loader, const char *folder)
{
    if (*folder != '/' || !tm_root_exists(s->sysroot, folder)) return;
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->places[i].folder, folder) == 0) return;
    s->places = tm_grow(s->places, &s->capacity, s->n, sizeof *s->places);
    s->places[s->n++] = (tm_gpu_place){ tm_arena_text(s->arena, folder), named, loader };
}

/* A list of folders with separators between them. */
static void add_list(search *s, const char *named, bool loader, const char *list, const char *separators)
{
    for (const char *at = list; at && *at; at += strspn(at, separators)) {
        size_t n = strcspn(at, separators);
        add(s, named, loader, tm_arena_text_n(s->arena, at, n));
        at += n;
    }
}

/* What the dynamic loader searches besides LD_LIBRARY_PATH: the folders of /etc/ld.so.conf.d, the system's own. */
static void add_loader(search *s)
{
    static const char        configuration[] = "/etc/ld.so.conf.d";
    static const char *const own[] = { "/lib/x86_64-linux-gnu",
                                       "/usr/lib/x86_64-linux-gnu",
                                       "/lib/aarch64-linux-gnu",
                                       "/usr/lib/aarch64-linux-gnu",
                                       "/lib64",
                                       "/usr/lib64",
                                       "/usr/lib",
                                       "/usr/local/lib" };
    size_t                   n;
    const char             **files = tm_root_list(s->sysroot, configuration, ENTRIES, s->arena, &n);
    for (size_t i = 0; i < n; i++) {
        tm_text text = { 0 };
        if (tm_root_read(s->sysroot, tm_arena_format(s->arena, "%s/%s", configuration, files[i]), 1 << 20, &text))
            add_list(s, "the loader", true, text.data, " \t\r\n");
        tm_text_fini(&text);
    }
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) add(s, "the loader", true, own[i]);
}

/* What pip has put into one folder of packages. */
static void add_packages(search *s, tm_gpu_maker maker, const char *packages)
{
    static const char *const nvidia[] = { "nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib", "nvidia/cublas/lib",
                                          "nvidia/cudnn/lib", "nvidia/nccl/lib" };
    size_t                   n;
    if (maker == TM_GPU_CUDA) {
        for (size_t i = 0; i < sizeof nvidia / sizeof nvidia[0]; i++)
            add(s, "a wheel", false, tm_arena_format(s->arena, "%s/%s", packages, nvidia[i]));
        return;
    }
    add(s, "a wheel", false, tm_arena_format(s->arena, "%s/_rocm_sdk_core/lib", packages));
    const char **names = tm_root_list(s->sysroot, packages, ENTRIES, s->arena, &n);
    for (size_t i = 0; i < n; i++)
        if (strncmp(names[i], "_rocm_sdk_libraries", strlen("_rocm_sdk_libraries")) == 0)
            add(s, "a wheel", false, tm_arena_format(s->arena, "%s/%s/lib", packages, names[i]));
    add(s, "torch", false, tm_arena_format(s->arena, "%s/torch/lib", packages));
}

/* Folders of packages: of the environment in use first. */
static void add_python(search *s, tm_gpu_maker maker, char *const *environment)
{
    const char *const prefixes[] = { tm_gpu_variable(environment, "VIRTUAL_ENV"),
                                     tm_gpu_variable(environment, "CONDA_PREFIX"),
                                     "/opt/venv",
                                     "/usr/local",
                                     "/usr",
                                     tm_gpu_variable(environment, "HOME")
                                         ? tm_arena_format(s->arena, "%s/.local", tm_gpu_variable(environment, "HOME"))
                                         : NULL };
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
        if (!prefixes[i] || *prefixes[i] != '/') continue;
        size_t       n;
        const char  *lib = tm_arena_format(s->arena, "%s/lib", prefixes[i]);
        const char **names = tm_root_list(s->sysroot, lib, ENTRIES, s->arena, &n);
        for (size_t k = n; k-- > 0;) {
            if (strncmp(names[k], "python3", strlen("python3")) != 0) continue;
            add_packages(s, maker, tm_arena_format(s->arena, "%s/%s/site-packages", lib, names[k]));
            add_packages(s, maker, tm_arena_format(s->arena, "%s/%s/dist-packages", lib, names[k]));
        }
    }
}

/* Releases beside each other in a folder, from the newest. */
static void add_releases(search *s, const char *folder, const char *begin)
{
    size_t       n;
    const char **names = tm_root_list(s->sysroot, folder, ENTRIES, s->arena, &n);
    for (size_t i = n; i-- > 0;) /* sorted by number */
        if (strncmp(names[i], begin, strlen(begin)) == 0)
            add(s, "/opt", false, tm_arena_format(s->arena, "%s/%s/lib", folder, names[i]));
}

/* From 7.14 on ROCm is in /opt/rocm/core-*; a package that need not be installed links /opt/rocm/lib to it. */
static void add_rocm(search *s)
{
    add(s, "/opt", false, "/opt/rocm/lib");
    add_releases(s, "/opt/rocm", "core");
    add_releases(s, "/opt", "rocm-");
}

const tm_gpu_place *tm_gpu_places(tm_gpu_maker maker, const char *sysroot, char *const *environment, tm_arena *arena,
                                  size_t *n)
{
    search      s = { .sysroot = sysroot, .arena = arena };
    bool        hip = maker == TM_GPU_HIP;
    const char *root = tm_gpu_variable(environment, hip ? "ROCM_PATH" : "CUDA_HOME");
    add_list(&s, "LD_LIBRARY_PATH", false, tm_gpu_variable(environment, "LD_LIBRARY_PATH"), ":;");
    if (root && *root)
        add(&s, hip ? "ROCM_PATH" : "CUDA_HOME", false, tm_arena_format(arena, "%s/%s", root, hip ? "lib" : "lib64"));
    add_loader(&s);
    if (hip)
        add_rocm(&s);
    else
        add(&s, "/usr/local", false, "/usr/local/cuda/lib64");
    add_python(&s, maker, environment);
    tm_gpu_place *places = tm_arena_take(arena, (s.n + 1) * sizeof *places);
    if (s.n > 0) memcpy(places, s.places, s.n * sizeof *places);
    free(s.places);
    *n = s.n;
    return places;
}

/* --- files ----------------------------------------------------------------------------------- */

/* Follows links by name, inside their folder: libx.so -> libx.so.6 -> libx.so.6.4.60403. */
static const char *behind_links(const char *sysroot, const char *folder, const char *name, tm_arena *arena)
{
    enum { MOST = 8 };
    char target[PATHS];
    for (int i = 0; i < MOST; i++) {
        tm_root_link(sysroot, tm_arena_format(arena, "%s/%s", folder, name), target, sizeof target);
        if (!*target) break;
        const char *slash = strrchr(target, '/');
        name = tm_arena_text(arena, slash ? slash + 1 : target);
        if (slash) break; /* elsewhere: its name says enough */
    }
    return name;
}

/* AMD's files end in a packed release: libamdhip64.so.6.4.60403 is of ROCm 6.4.3. A build of one's own ends in another
 * number, so what cannot be a release is none. */
static const char *packed_release(const char *version, tm_arena *arena)
{
    const char *last = strrchr(version, '.');
    char       *end;
    last = last ? last + 1 : version;
    if (!isdigit((unsigned char)*last)) return NULL;
    long value = strtol(last, &end, 10), major = value / 10000, minor = value / 100 % 100, patch = value % 100;
    if (*end || major < 5 || major > 20 || minor > 20 || patch > 20) return NULL;
    return tm_arena_format(arena, "%ld.%ld.%ld", major, minor, patch);
}

/* "6.4.1-83" -> "6.4.1" */
static const char *leading_numbers(const char *text, tm_arena *arena)
{
    size_t n = strspn(text, "0123456789.");
    while (n > 0 && text[n - 1] == '.') n--;
    return n > 0 ? tm_arena_text_n(arena, text, n) : NULL;
}

/* What the folder around it says: .info/version of an installation, the metadata of a wheel. */
static const char *release_of_folder(const char *sysroot, const char *folder, tm_arena *arena)
{
    char line[256];
    if (tm_root_read_line(sysroot, tm_arena_format(arena, "%s/../.info/version", folder), line, sizeof line))
        return leading_numbers(line, arena);
    size_t       n;
    const char  *packages = tm_arena_format(arena, "%s/../..", folder);
    bool         torch = strstr(folder, "/torch/lib") != NULL;
    const char **names = tm_root_list(sysroot, packages, ENTRIES, arena, &n);
    for (size_t i = 0; i < n; i++) {
        const char *rocm = strstr(names[i], "+rocm");
        if (!strstr(names[i], ".dist-info")) continue;
        if (torch && strncmp(names[i], "torch-", 6) == 0 && rocm) return leading_numbers(rocm + 5, arena);
        if (!torch && strncmp(names[i], "rocm_sdk_core-", 14) == 0) return leading_numbers(names[i] + 14, arena);
    }
    return NULL;
}

tm_gpu_file tm_gpu_file_find(tm_gpu_maker maker, const char *sysroot, const char *folder, const char *stem,
                             tm_arena *arena)
{
    size_t       n, length = strlen(stem);
    const char **names = tm_root_list(sysroot, folder, ENTRIES, arena, &n), *found = NULL;
    for (size_t i = 0; i < n; i++) {
        const char *rest = names[i] + length;
        if (strncmp(names[i], stem, length) != 0 || strncmp(rest, ".so", 3) != 0) continue;
        bool soname = rest[3] == '.' && strspn(rest + 4, "0123456789") == strlen(rest + 4);
        if (soname || (!rest[3] && !found)) found = names[i]; /* sorted: the highest number is the last */
    }
    for (size_t i = 0; i < n && !found; i++) /* the file alone, without links to it */
        if (strncmp(names[i], stem, length) == 0 && strncmp(names[i] + length, ".so.", 4) == 0) found = names[i];
    if (!found) return (tm_gpu_file){ 0 };
    const char *version = strstr(behind_links(sysroot, folder, found, arena), ".so.");
    tm_gpu_file file = { .path = tm_arena_format(arena, "%s/%s", folder, found),
                         .version = version ? version + 4 : "" };
    if (maker == TM_GPU_CUDA)
        file.release = *file.version ? file.version : NULL;
    else
        file.release = packed_release(file.version, arena);
    if (!file.release && maker == TM_GPU_HIP) file.release = release_of_folder(sysroot, folder, arena);
    return file;
}

bool tm_gpu_release_same(const char *a, const char *b)
{
    char *end_a, *end_b;
    if (!a || !b) return true;
    long major_a = strtol(a, &end_a, 10), major_b = strtol(b, &end_b, 10);
    long minor_a = *end_a == '.' ? strtol(end_a + 1, NULL, 10) : 0,
         minor_b = *end_b == '.' ? strtol(end_b + 1, NULL, 10) : 0;
    return major_a == major_b && minor_a == minor_b;
}
