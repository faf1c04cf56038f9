/* SPDX-License-Identifier: Apache-2.0 */
/* config/missing_file.c - what may be meant by the name of a file that is not there: a file beside it, one of the same
 * name here, or the model that it is called after. */
#include "base/arena.h"
#include "base/file.h"
#include "config/internal.h"

#include <ctype.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { LEAST_FRONT = 3 };

/* Is one of two names the other with something put in: "m-pretrain" and "m-BF16-pretrain"? */
static bool has_insertion(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b), least = n < m ? n : m, front = 0, back = 0;
    while (front < least && tolower((unsigned char)a[front]) == tolower((unsigned char)b[front])) front++;
    while (back < least && tolower((unsigned char)a[n - 1 - back]) == tolower((unsigned char)b[m - 1 - back])) back++;
    return front >= LEAST_FRONT && front + back >= least;
}

static bool same_ending(const char *a, const char *b)
{
    const char *dot_a = strrchr(a, '.'), *dot_b = strrchr(b, '.');
    return dot_a && dot_b && strcasecmp(dot_a, dot_b) == 0;
}

/* The name without its ending, and without points, which are none between sections here. */
static const char *stem(tm_arena *arena, const char *name)
{
    char *out = tm_arena_text(arena, name);
    *strrchr(out, '.') = '\0';
    for (char *c = out; *c; c++)
        if (*c == '.') *c = '_';
    return out;
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* The name in a folder that is near to `name`, from the arena; NULL: none is. */
static const char *near_file(tm_arena *arena, const char *folder, const char *name)
{
    enum { MOST = 200 };
    struct dirent **entries = NULL;
    const char     *names[MOST], *stems[MOST], *wanted = strrchr(name, '.') ? stem(arena, name) : NULL;
    size_t          n_names = 0;
    int             n = wanted ? scandir(folder, &entries, NULL, by_bytes) : 0;
    for (int i = 0; i < n; i++) {
        if (same_ending(name, entries[i]->d_name) && n_names < MOST) {
            names[n_names] = tm_arena_text(arena, entries[i]->d_name);
            stems[n_names++] = stem(arena, entries[i]->d_name);
        }
        free(entries[i]);
    }
    free(entries);
    for (size_t i = 0; i < n_names; i++)
        if (has_insertion(wanted, stems[i])) return names[i];
    const char *near = n_names ? tm_nearest(wanted, stems, n_names) : NULL;
    if (!near || tm_edit_distance(wanted, near) > 1 + (int)strlen(wanted) / 5) return NULL; /* another word */
    for (size_t i = 0; i < n_names; i++)
        if (stems[i] == near) return names[i];
    return NULL;
}

/* Letters, digits and points, in lower case. */
static void squeeze(const char *name, char out[128])
{
    size_t n = 0;
    for (; *name && n + 1 < 128; name++)
        if (isalnum((unsigned char)*name) || *name == '.') out[n++] = (char)tolower((unsigned char)*name);
    out[n] = '\0';
}

/* The model whose name, spelt in any way, the name of the file begins with; of several the longest. */
static const char *model_of(const tm_config *config, const char *name)
{
    char        wanted[128], have[128];
    const char *found = NULL;
    size_t      longest = 4; /* shorter ones are parts of words */
    squeeze(name, wanted);
    for (size_t i = 0; i < config->n_presets; i++) {
        squeeze(config->presets[i].name, have);
        size_t n = strlen(have);
        if (n <= longest || strncmp(wanted, have, n) != 0) continue;
        longest = n;
        found = config->presets[i].name;
    }
    return found;
}

const char *tm_config_meant(const tm_config *config, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const char *folder = slash ? tm_arena_text_n(config->arena, path, (size_t)(slash - path)) : ".";
    const char *near = near_file(config->arena, *folder ? folder : "/", name), *model = model_of(config, name);
    const char *meant = "check the path", *also = ";";
    if (near || (slash && tm_file_exists(name))) also = "";
    if (near)
        meant = tm_arena_format(config->arena, "did you mean '%.*s%s'?", (int)(name - path), path, near);
    else if (!*also)
        meant = tm_arena_format(config->arena, "did you mean '%s', which is here?", name);
    if (!model) return meant;
    return tm_arena_format(config->arena, "%s%s the model itself is called '%s'", meant, also, model);
}
