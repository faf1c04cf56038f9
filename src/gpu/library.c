/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/library.h"

#include "gpu/places.h"

#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *tm_library_symbol(const tm_library *library, const char *name)
{
    return dlsym(library->handle, name);
}

/* Where the loader found it. */
static void find_path(tm_library *library, const char *name)
{
    struct link_map *map = NULL;
    snprintf(library->path, sizeof library->path, "%s", name);
    if (dlinfo(library->handle, RTLD_DI_LINKMAP, &map) != 0 || !map->l_name || !*map->l_name) return;
    char *real = realpath(map->l_name, NULL);
    snprintf(library->path, sizeof library->path, "%s", real ? real : map->l_name);
    free(real);
}

static bool load(const char *name, tm_library *out, tm_text *tried)
{
    out->handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (out->handle) {
        find_path(out, name);
        return true;
    }
    const char *why = dlerror();
    /* The loader's own words begin with the name. */
    tm_text_printf(tried, "%s%s", tried->length ? "; " : "", why ? why : name);
    return false;
}

bool tm_library_open(const char *const *names, tm_library *out, tm_text *tried)
{
    for (; *names; names++) {
        glob_t found = { 0 };
        bool   loaded = false;
        if (!strpbrk(*names, "*?["))
            loaded = load(*names, out, tried);
        else if (glob(*names, 0, NULL, &found) == 0)
            loaded = load(found.gl_pathv[found.gl_pathc - 1], out, tried);
        globfree(&found);
        if (loaded) return true;
    }
    return false;
}

/* --- of a maker ------------------------------------------------------------------------------ */

extern char **environ;

static const char runtime_stem[] = "libamdhip64";

static int see_runtime(struct dl_phdr_info *object, size_t size, void *data)
{
    const char *slash = strrchr(object->dlpi_name, '/');
    (void)size;
    if (!slash || strncmp(slash + 1, runtime_stem, strlen(runtime_stem)) != 0) return 0;
    snprintf(data, PATH_MAX, "%.*s", (int)(slash - object->dlpi_name), object->dlpi_name);
    return 1;
}

/* What is known of a file by its name and folder. */
static tm_gpu_file describe(const char *path, tm_arena *arena)
{
    const char *slash = strrchr(path, '/'), *dot = slash ? strstr(slash, ".so") : NULL;
    if (!dot) return (tm_gpu_file){ 0 };
    return tm_gpu_file_find(TM_GPU_HIP, "", tm_arena_text_n(arena, path, (size_t)(slash - path)),
                            tm_arena_text_n(arena, slash + 1, (size_t)(dot - slash - 1)), arena);
}

/* A library of another release than the runtime's would work with other tables of it than it was built for. */
static bool fits_runtime(tm_library *library, const char *runtime, tm_arena *arena, tm_text *tried)
{
    tm_gpu_file own = describe(library->path, arena);
    tm_gpu_file hip = tm_gpu_file_find(TM_GPU_HIP, "", runtime, runtime_stem, arena);
    if (!*runtime || tm_gpu_release_same(own.release, hip.release)) return true;
    tm_text_printf(tried, "%s%s is of ROCm %s, but the runtime in %s is of %s", tried->length ? "; " : "",
                   library->path, own.release, runtime, hip.release);
    dlclose(library->handle);
    library->handle = NULL;
    return false;
}

/* The first of the names in a folder, "" for the loader's own search. */
static bool load_from(const char *folder, const char *const *names, tm_library *out, tm_arena *arena, tm_text *tried)
{
    for (; *names; names++) {
        const char *path = *folder ? tm_arena_format(arena, "%s/%s", folder, *names) : *names;
        if (*folder && access(path, F_OK) != 0) continue;
        if (!*folder && strcmp(strrchr(*names, '.'), ".so") == 0) continue; /* the loader knows them with a number */
        if (load(path, out, tried)) return true;
    }
    return false;
}

bool tm_library_open_of(tm_gpu_maker maker, const char *const *names, tm_library *out, tm_text *tried)
{
    char                runtime[PATH_MAX] = "";
    size_t              n;
    bool                asked = false, loaded = false;
    tm_arena           *arena = tm_arena_create();
    const tm_gpu_place *places = tm_gpu_places(maker, "", environ, arena, &n);
    bool                beside = maker == TM_GPU_HIP && strncmp(*names, runtime_stem, strlen(runtime_stem)) != 0;
    if (beside) dl_iterate_phdr(see_runtime, runtime);
    for (size_t i = 0; i <= n && !loaded; i++) {
        bool loader = i == n || places[i].loader;
        if (loader && asked) continue;
        asked = asked || loader;
        loaded = load_from(loader ? "" : places[i].folder, names, out, arena, tried) &&
                 fits_runtime(out, runtime, arena, tried);
    }
    tm_arena_destroy(arena);
    return loaded;
}
