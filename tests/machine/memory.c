/* SPDX-License-Identifier: Apache-2.0 */
#include "machine/machine.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Traces are kept for pages that a launch touches: an arena may be large and a launch small. */
enum { PAGE = 4096, GUARD = 4096, ALIGN = 256 };

/* No address of a process on x86-64 (47 bits): following one ends it. Descriptors of AMD's buffers have room for 48
 * bits. */
#define FIRST_ADDRESS 0x900000000000u

typedef struct traces {
    uint64_t      launch; /* the launch that they belong to */
    machine_trace of[PAGE];
} traces;

typedef struct span {
    uint64_t at, bytes;
} span;

typedef struct block {
    uint64_t at, bytes;
    uint8_t *data;
    traces **pages;
    span    *pieces; /* in ascending order, none overlapping */
    int      n_pieces, room;

    machine_use use;
} block;

struct machine_memory {
    block  **blocks; /* in ascending order of addresses */
    int      n, room, shift;
    uint64_t next, launch;
    block   *last; /* found last: most accesses fall into it again */
    /* For machine_host_at: launches make and release blocks for their arguments while the host looks for its own. */
    pthread_mutex_t changes;
};

static void *need(void *got)
{
    if (!got) abort();
    return got;
}

machine_memory *machine_memory_new(void)
{
    machine_memory *memory = need(calloc(1, sizeof *memory));
    memory->next = FIRST_ADDRESS;
    memory->launch = 1;
    pthread_mutex_init(&memory->changes, NULL);
    return memory;
}

static size_t page_count(const block *b)
{
    return (size_t)((b->at + b->bytes - 1) / PAGE - b->at / PAGE + 1);
}

static void free_block(block *b)
{
    for (size_t i = 0; i < page_count(b); i++) free(b->pages[i]);
    free(b->pages);
    free(b->pieces);
    free(b->data);
    free(b);
}

void machine_memory_free(machine_memory *memory)
{
    if (!memory) return;
    for (int i = 0; i < memory->n; i++) free_block(memory->blocks[i]);
    free(memory->blocks);
    pthread_mutex_destroy(&memory->changes);
    free(memory);
}

uint64_t machine_alloc(machine_memory *memory, uint64_t bytes)
{
    if (bytes == 0 || bytes > (uint64_t)1 << 40) return 0;
    uint8_t *data = malloc(bytes);
    if (!data) return 0;
    memset(data, 0xff, bytes);
    block *b = need(calloc(1, sizeof *b));
    *b = (block){ .at = memory->next, .bytes = bytes, .data = data };
    b->pages = need(calloc(page_count(b), sizeof *b->pages));
    pthread_mutex_lock(&memory->changes);
    if (memory->n == memory->room) {
        memory->room = memory->room ? 2 * memory->room : 16;
        memory->blocks = need(realloc(memory->blocks, (size_t)memory->room * sizeof(block *)));
    }
    memory->blocks[memory->n++] = b;
    memory->next = (memory->next + bytes + GUARD + ALIGN - 1) / ALIGN * ALIGN;
    pthread_mutex_unlock(&memory->changes);
    return b->at;
}

/* The last block that begins at or before the address; NULL: there is none. */
static block *before(const machine_memory *memory, uint64_t address)
{
    int low = 0, high = memory->n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (memory->blocks[middle]->at <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low == 0 ? NULL : memory->blocks[low - 1];
}

static bool has(const block *b, uint64_t address, uint64_t bytes)
{
    return address - b->at < b->bytes && bytes <= b->bytes - (address - b->at);
}

/* The block with `bytes` at `address`; NULL: none has all of them. */
static block *holding(machine_memory *memory, uint64_t address, uint64_t bytes)
{
    block *b = memory->last;
    if (!b || address < b->at || address - b->at >= b->bytes) {
        b = before(memory, address);
        if (!b || address - b->at >= b->bytes) return NULL;
        memory->last = b;
    }
    return has(b, address, bytes) ? b : NULL;
}

bool machine_release(machine_memory *memory, uint64_t address)
{
    for (int i = 0; i < memory->n; i++) {
        if (memory->blocks[i]->at != address) continue;
        pthread_mutex_lock(&memory->changes);
        free_block(memory->blocks[i]);
        memmove(memory->blocks + i, memory->blocks + i + 1, (size_t)(memory->n - i - 1) * sizeof(block *));
        memory->n--;
        memory->last = NULL;
        pthread_mutex_unlock(&memory->changes);
        return true;
    }
    return false;
}

/* The first piece that ends behind `address`. */
static int piece_behind(const block *b, uint64_t address)
{
    int low = 0, high = b->n_pieces;
    while (low < high) {
        int middle = (low + high) / 2;
        if (b->pieces[middle].at + b->pieces[middle].bytes <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool machine_piece(machine_memory *memory, uint64_t address, uint64_t bytes)
{
    block *b = holding(memory, address, bytes);
    if (!b || bytes == 0) return false;
    int first = piece_behind(b, address), end = first;
    while (end < b->n_pieces && b->pieces[end].at < address + bytes) end++;
    if (b->n_pieces + 1 > b->room) {
        b->room = b->room ? 2 * b->room : 16;
        b->pieces = need(realloc(b->pieces, (size_t)b->room * sizeof(span)));
    }
    memmove(b->pieces + first + 1, b->pieces + end, (size_t)(b->n_pieces - end) * sizeof(span));
    b->pieces[first] = (span){ address, bytes };
    b->n_pieces += 1 - (end - first);
    return true;
}

/* Where it lies on the host; NULL where pieces have not all of it. */
static uint8_t *inside(const block *b, uint64_t address, uint64_t bytes)
{
    if (b->n_pieces) {
        int p = piece_behind(b, address);
        if (p < b->n_pieces && b->pieces[p].at <= address) {
            if (address + bytes > b->pieces[p].at + b->pieces[p].bytes) return NULL;
        } else if (p < b->n_pieces && b->pieces[p].at < address + bytes) {
            return NULL;
        }
    }
    return b->data + (address - b->at);
}

uint8_t *machine_at(machine_memory *memory, uint64_t address, uint64_t bytes)
{
    const block *b = holding(memory, address, bytes);
    return b ? inside(b, address, bytes) : NULL;
}

uint8_t *machine_host_at(machine_memory *memory, uint64_t address, uint64_t bytes)
{
    pthread_mutex_lock(&memory->changes);
    const block *b = before(memory, address);
    uint8_t     *found = b && has(b, address, bytes) ? inside(b, address, bytes) : NULL;
    pthread_mutex_unlock(&memory->changes);
    return found;
}

bool machine_allocation(const machine_memory *memory, int i, uint64_t *address, uint64_t *bytes)
{
    if (i >= memory->n) return false;
    *address = memory->blocks[i]->at;
    *bytes = memory->blocks[i]->bytes;
    return true;
}

size_t machine_memory_bytes(const machine_memory *memory)
{
    size_t bytes = 0;
    for (int i = 0; i < memory->n; i++) bytes += memory->blocks[i]->bytes;
    return bytes;
}

void machine_memory_keep(const machine_memory *memory, uint8_t *to)
{
    for (int i = 0; i < memory->n; to += memory->blocks[i++]->bytes)
        memcpy(to, memory->blocks[i]->data, memory->blocks[i]->bytes);
}

void machine_memory_put(machine_memory *memory, const uint8_t *from)
{
    for (int i = 0; i < memory->n; from += memory->blocks[i++]->bytes)
        memcpy(memory->blocks[i]->data, from, memory->blocks[i]->bytes);
}

bool machine_memory_is(const machine_memory *memory, const uint8_t *bytes)
{
    for (int i = 0; i < memory->n; bytes += memory->blocks[i++]->bytes)
        if (memcmp(memory->blocks[i]->data, bytes, memory->blocks[i]->bytes) != 0) return false;
    return true;
}

machine_use machine_use_of(machine_memory *memory, uint64_t address)
{
    const block *b = holding(memory, address, 1);
    return b ? b->use : (machine_use){ 0, 0, 0, 0 };
}

void machine_use_clear(machine_memory *memory)
{
    for (int i = 0; i < memory->n; i++) memory->blocks[i]->use = (machine_use){ 0, 0, 0, 0 };
}

void machine_use_note(machine_memory *memory, const uint64_t *address, uint64_t mask, uint64_t bytes, bool write)
{
    for (int before = -1, i; mask; mask &= mask - 1, before = i) {
        i = __builtin_ctzll(mask);
        if (before >= 0 && address[i] == address[before]) continue;
        block *b = holding(memory, address[i], bytes);
        if (!b) continue; /* an error of the launch */
        *(write ? &b->use.written_bytes : &b->use.read_bytes) += bytes;
        *(write ? &b->use.writes : &b->use.reads) += 1;
    }
}

void machine_memory_launch(machine_memory *memory, int shift)
{
    memory->launch++;
    memory->shift = shift;
}

int machine_memory_shift(const machine_memory *memory)
{
    return memory->shift;
}

static machine_trace *page_of(machine_memory *memory, block *b, uint64_t address)
{
    traces **page = &b->pages[address / PAGE - b->at / PAGE];
    if (!*page) {
        *page = need(malloc(sizeof **page));
        (*page)->launch = 0;
    }
    if ((*page)->launch != memory->launch) {
        memset((*page)->of, 0, sizeof(*page)->of >> memory->shift);
        (*page)->launch = memory->launch;
    }
    return (*page)->of;
}

machine_trace *machine_traces(machine_memory *memory, uint64_t address, uint64_t bytes)
{
    block *b = holding(memory, address, bytes);
    if (!b) return NULL;
    if (address / PAGE != (address + bytes - 1) / PAGE) return NULL;
    return page_of(memory, b, address) + (address % PAGE >> memory->shift);
}
