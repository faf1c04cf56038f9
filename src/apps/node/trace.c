/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/trace.c - what a training left behind, and where two of them differ. */
#include "apps/node/training.h"

#include "base/arena.h"
#include "base/hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tm_node_trace_fini(tm_node_trace *trace)
{
    free(trace->data);
    free(trace->parts);
    *trace = (tm_node_trace){ 0 };
}

void tm_node_trace_add(tm_node_trace *t, const char *name, int step, const void *data, size_t bytes)
{
    if (t->bytes + bytes > t->data_room) t->data = tm_realloc(t->data, t->data_room = 2 * (t->bytes + bytes));
    if (bytes > 0) memcpy(t->data + t->bytes, data, bytes);
    t->parts = tm_grow(t->parts, &t->parts_room, t->n, sizeof *t->parts);
    tm_node_part *part = &t->parts[t->n++];
    *part = (tm_node_part){ .step = step, .offset = t->bytes, .bytes = bytes, .hash = tm_hash(data, bytes) };
    snprintf(part->name, sizeof part->name, "%s", name);
    t->bytes += bytes;
}

uint64_t tm_node_trace_hash(const tm_node_trace *t)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < t->n; i++) {
        const uint64_t both[2] = { hash, t->parts[i].hash };
        hash = tm_hash(both, sizeof both);
    }
    return hash;
}

static size_t bits_between(const unsigned char *a, const unsigned char *b, size_t bytes)
{
    size_t bits = 0;
    for (size_t i = 0; i < bytes; i++) bits += (size_t)__builtin_popcount((unsigned)(a[i] ^ b[i]));
    return bits;
}

bool tm_node_trace_differs(const tm_node_trace *a, const tm_node_trace *b, tm_node_difference *out)
{
    *out = (tm_node_difference){ 0 };
    for (size_t i = 0; i < a->n && i < b->n; i++) {
        const tm_node_part *p = &a->parts[i], *q = &b->parts[i];
        if (out->part && p->step != out->part->step) break;
        const bool same = p->hash == q->hash && p->bytes == q->bytes;
        out->different += !same;
        if (same || out->part) continue;
        out->part = p;
        out->bits = bits_between(a->data + p->offset, b->data + q->offset, p->bytes < q->bytes ? p->bytes : q->bytes);
    }
    for (size_t i = 0; out->part && i < a->n; i++) out->of += a->parts[i].step == out->part->step;
    return out->part != NULL;
}
