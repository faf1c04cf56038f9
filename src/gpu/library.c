/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/library.h"

#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
