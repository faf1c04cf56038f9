/* SPDX-License-Identifier: Apache-2.0 */
#include "token/charsmap.h"

#include <string.h>

struct tm_charsmap {
    uint32_t   *units;
    size_t      n_units, n_text;
    const char *text;
};

static uint32_t unit_offset(uint32_t unit)
{
    return unit >> 10 << (unit >> 6 & 8);
}

tm_status tm_charsmap_read(tm_arena *arena, const uint8_t *bytes, size_t size, const char *name, tm_charsmap **out,
                           tm_error *err)
{
    uint32_t units =
        size >= 4 ? (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24
                  : 0;
    if (units < 4 || units % 4 || units > size - 4)
        return tm_fail(err, TM_FORMAT, "'%s': the precompiled_charsmap has %zu bytes and says that %u are its array",
                       name, size, units);
    tm_charsmap *map = tm_arena_take(arena, sizeof *map);
    map->n_units = units / 4;
    map->units = tm_arena_take(arena, units);
    for (size_t i = 0; i < map->n_units; i++) {
        const uint8_t *p = bytes + 4 + 4 * i;
        map->units[i] = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    }
    map->n_text = size - 4 - units;
    map->text = tm_arena_text_n(arena, (const char *)bytes + 4 + units, map->n_text); /* ends with a NUL of its own */
    *out = map;
    return TM_OK;
}

const char *tm_charsmap_find(const tm_charsmap *map, const char *text, size_t n, bool shortest, size_t *used,
                             size_t *bytes)
{
    const char *found = NULL;
    uint32_t    unit = map->units[0];
    size_t      node = unit_offset(unit);
    for (size_t i = 0; i < n && text[i]; i++) {
        uint8_t label = (uint8_t)text[i];
        node ^= label;
        if (node >= map->n_units) break;
        unit = map->units[node];
        if ((unit & 0x800000FFu) != label) break;
        node ^= unit_offset(unit);
        if (!(unit >> 8 & 1)) continue;
        if (node >= map->n_units) break;
        size_t at = map->units[node] & 0x7FFFFFFFu;
        if (at > map->n_text) break;
        found = map->text + at;
        *used = i + 1;
        *bytes = strlen(found);
        if (shortest) break;
    }
    return found;
}
