/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/embedded.h"

#include "base/arena.h"
#include "base/hash.h"

#include <stdlib.h>
#include <string.h>
#include <zstd.h>

typedef struct {
    char     magic[8];
    uint64_t hash, bytes;
} header;

typedef struct {
    uint64_t key, at, bytes; /* at: of its code in the content */
    int32_t  runtime;        /* the oldest version of CUDA whose driver loads it; 0: any */
    char     arch[12];
    char     kernels[128]; /* that were judged: names with a blank before and behind each */
} entry;

struct tm_gpu_embedded {
    char        *content;
    const entry *entries;
    size_t       n;
    char         arch[12], own[12]; /* of code for it and what came later; of code for it alone; empty: there is none */
    int          count;
};

static const char magic[8] = "TMKSET1";

/* --- the set
 * ---------------------------------------------------------------------------------------------------------- */

/* Entries lie within the content, and their texts end. */
static bool is_whole(const char *content, uint64_t bytes)
{
    uint64_t n;
    if (bytes < sizeof n) return false;
    memcpy(&n, content, sizeof n);
    if (n > (bytes - sizeof n) / sizeof(entry)) return false;
    const entry *all = (const entry *)(const void *)(content + sizeof n);
    for (uint64_t i = 0; i < n; i++)
        if (all[i].at > bytes || all[i].bytes > bytes - all[i].at || !memchr(all[i].arch, 0, sizeof all[i].arch) ||
            !memchr(all[i].kernels, 0, sizeof all[i].kernels))
            return false;
    return true;
}

static tm_status unpack(char **out, uint64_t *bytes, tm_error *err)
{
    enum { LIMIT = 1 << 30 };
    size_t      size;
    header      h;
    const char *set = tm_gpu_embedded_set(&size);
    bool        good = size > sizeof h;
    *out = NULL;
    if (!set) return TM_OK;
    if (good) memcpy(&h, set, sizeof h);
    good = good && memcmp(h.magic, magic, sizeof magic) == 0 && h.bytes <= LIMIT &&
           tm_hash(set + offsetof(header, bytes), size - offsetof(header, bytes)) == h.hash;
    if (good) {
        *out = tm_alloc(h.bytes);
        good = ZSTD_decompress(*out, h.bytes, set + sizeof h, size - sizeof h) == h.bytes && is_whole(*out, h.bytes);
    }
    if (good) {
        *bytes = h.bytes;
        return TM_OK;
    }
    free(*out);
    *out = NULL;
    return tm_fail(err, TM_INTERNAL, "the judged kernels inside this program are damaged: install it anew");
}

/* --- what a GPU takes of it
 * ------------------------------------------------------------------------------------------- */

/* 80 of "sm_80"; -1: another maker's. */
static int number_of(const char *arch)
{
    return strncmp(arch, "sm_", 3) == 0 ? atoi(arch + 3) : -1;
}

/* PTX for "sm_90a" has instructions of 9.0 alone (PTX ISA, ".target"). */
static bool for_one(const char *arch)
{
    return number_of(arch) >= 0 && arch[strlen(arch) - 1] == 'a';
}

/* Machine code is for one architecture; PTX for its own and all that came later. */
static bool takes(const tm_gpu_facts *gpu, const entry *e)
{
    int of = number_of(e->arch), mine = number_of(gpu->arch);
    if (of < 0 || mine < 0) return strcmp(gpu->arch, e->arch) == 0;
    return (for_one(e->arch) ? of == mine : of <= mine) && e->runtime <= gpu->version;
}

static void take(tm_gpu_embedded *e, const tm_gpu_facts *gpu)
{
    for (size_t i = 0; i < e->n; i++) {
        const char *arch = e->entries[i].arch;
        if (!takes(gpu, &e->entries[i])) continue;
        if (for_one(arch))
            memcpy(e->own, arch, sizeof e->own);
        else if (number_of(arch) >= number_of(e->arch))
            memcpy(e->arch, arch, sizeof e->arch);
    }
    for (size_t i = 0; i < e->n; i++) {
        const char *arch = e->entries[i].arch;
        e->count += *arch && (strcmp(arch, e->arch) == 0 || strcmp(arch, e->own) == 0);
    }
}

tm_status tm_gpu_embedded_open(const tm_gpu_facts *gpu, tm_gpu_embedded **out, tm_error *err)
{
    char    *content;
    uint64_t bytes, n;
    *out = NULL;
    TM_TRY(unpack(&content, &bytes, err));
    if (!content) return TM_OK;
    memcpy(&n, content, sizeof n);
    tm_gpu_embedded *e = memset(tm_alloc(sizeof *e), 0, sizeof *e);
    *e = (tm_gpu_embedded){ .content = content, .entries = (const entry *)(const void *)(content + sizeof n), .n = n };
    take(e, gpu);
    if (e->count > 0)
        *out = e;
    else
        tm_gpu_embedded_close(e);
    return TM_OK;
}

void tm_gpu_embedded_close(tm_gpu_embedded *e)
{
    if (e) free(e->content);
    free(e);
}

int tm_gpu_embedded_count(const tm_gpu_embedded *e)
{
    return e ? e->count : 0;
}

const char *tm_gpu_embedded_arch(const tm_gpu_embedded *e)
{
    return e->arch;
}

static uint64_t key_of(const char *arch, const tm_gpu_source *s)
{
    tm_hasher *hasher = tm_hasher_create();
    tm_hasher_add(hasher, arch, strlen(arch) + 1);
    for (int i = 0; i < TM_GPU_MOST_DEFINES && s->defines[i]; i++)
        tm_hasher_add(hasher, s->defines[i], strlen(s->defines[i]) + 1);
    tm_hasher_add(hasher, s->source, strlen(s->source));
    uint64_t key = tm_hasher_value(hasher);
    tm_hasher_destroy(hasher);
    return key;
}

static bool has_word(const char *text, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = text; (at = strstr(at, word)); at += n)
        if (at > text && at[-1] == ' ' && at[n] == ' ') return true;
    return false;
}

const void *tm_gpu_embedded_find(const tm_gpu_embedded *e, const tm_gpu_source *source, const char *kernel)
{
    const char *archs[2] = { e ? e->own : "", e ? e->arch : "" };
    for (int k = 0; k < 2; k++) {
        uint64_t key = *archs[k] ? key_of(archs[k], source) : 0;
        for (size_t i = 0; *archs[k] && i < e->n; i++)
            if (e->entries[i].key == key && strcmp(e->entries[i].arch, archs[k]) == 0)
                return has_word(e->entries[i].kernels, kernel) ? e->content + e->entries[i].at : NULL;
    }
    return NULL;
}
