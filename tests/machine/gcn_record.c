/* SPDX-License-Identifier: Apache-2.0 */
/* Launches written down for compare_emulator.py, which has another emulator repeat them. TM_MACHINE_RECORD names a
 * folder that exists. Of the launches of a kernel of a text that run to their end, the one that changes most bytes is
 *
 *   KERNEL.ARCH.HASH/text.s   the module
 *   KERNEL.ARCH.HASH/launch   lines: changed (bytes), kernel, arch, blocks, threads, shared (bytes of LDS), arguments
 * (address); then "memory ADDRESS BYTES" of each allocation, arguments and hidden arguments included
 *   KERNEL.ARCH.HASH/before, KERNEL.ARCH.HASH/after   what the allocations hold, in this order */
#include "machine/gcn.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH = 1024 };

static bool folder_of(const run *r, char path[PATH])
{
    const char *folder = getenv("TM_MACHINE_RECORD");
    u32         hash = 0x811c9dc5u;
    if (!folder || !r->module->whole || r->order->skip >= 0) return false;
    for (const char *c = r->module->whole; *c; c++) hash = (hash ^ (u8)*c) * 0x01000193u;
    int n = snprintf(path, PATH, "%s/%s.%s.%08x", folder, r->k->name, r->module->gfx950 ? "gfx950" : "gfx942", hash);
    return n < PATH;
}

static FILE *create(const char *folder, const char *name)
{
    char path[PATH + 16];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    if (!file) perror(path), abort();
    return file;
}

static void write_file(const char *folder, const char *name, const void *bytes, size_t count)
{
    FILE *file = create(folder, name);
    bool  whole = fwrite(bytes, 1, count, file) == count;
    if (fclose(file) != 0 || !whole) abort();
}

u8 *gcn_record_before(const run *r)
{
    char path[PATH];
    if (!folder_of(r, path)) return NULL;
    u8 *kept = malloc(machine_memory_bytes(r->memory) + 1);
    if (!kept) abort();
    machine_memory_keep(r->memory, kept);
    return kept;
}

/* How many bytes the recorded launch changed; 0: none is recorded. */
static size_t recorded(const char *folder)
{
    char   path[PATH + 16];
    size_t changed = 0;
    snprintf(path, sizeof path, "%s/launch", folder);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    if (fscanf(file, "changed %zu", &changed) != 1) changed = 0;
    fclose(file);
    return changed;
}

static void write_launch(const run *r, const machine_launch *l, const char *path, size_t changed)
{
    const u32 *b = l->blocks, *t = l->threads;
    u64        at, bytes;
    FILE      *file = create(path, "launch");
    fprintf(file, "changed %zu\nkernel %s\narch %s\n", changed, r->k->name, r->module->gfx950 ? "gfx950" : "gfx942");
    fprintf(file, "blocks %u %u %u\nthreads %u %u %u\nshared %u\narguments %" PRIu64 "\n", b[0], b[1], b[2], t[0], t[1],
            t[2], r->lds_bytes, r->arguments);
    for (int i = 0; machine_allocation(r->memory, i, &at, &bytes); i++)
        fprintf(file, "memory %" PRIu64 " %" PRIu64 "\n", at, bytes);
    if (fclose(file) != 0) abort();
}

void gcn_record_after(const run *r, const machine_launch *l, u8 *before, bool well)
{
    char   path[PATH];
    size_t bytes = machine_memory_bytes(r->memory), changed = 0;
    if (before && well && folder_of(r, path)) {
        u8 *after = malloc(bytes + 1);
        if (!after) abort();
        machine_memory_keep(r->memory, after);
        for (size_t i = 0; i < bytes; i++) changed += before[i] != after[i];
        if (changed > recorded(path)) {
            mkdir(path, 0777);
            write_launch(r, l, path, changed);
            write_file(path, "text.s", r->module->whole, strlen(r->module->whole));
            write_file(path, "before", before, bytes);
            write_file(path, "after", after, bytes);
        }
        free(after);
    }
    free(before);
}
