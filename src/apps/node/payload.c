/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/payload.c - data of which every element is known, and what a rank has to receive. */
#include "apps/node/payload.h"

#include "apps/node/payload_value.h"

#include <string.h>

enum { BLOCK = 512 }; /* elements of a sum that are made at once */

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

size_t tm_payload_bytes(tm_comm_format format)
{
    return format == TM_COMM_BYTES ? 1 : format == TM_COMM_BFLOAT16 ? 2 : format == TM_COMM_FLOAT32 ? 4 : 8;
}

bool tm_payload_reduces(const tm_payload_call *c)
{
    return c->kind == TM_COMM_ALL_REDUCE || c->kind == TM_COMM_REDUCE_SCATTER;
}

/* --- numbers --------------------------------------------------------------------------------- */

static float widen(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float    value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* To nearest, ties to even. */
static uint16_t narrow(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (value != value) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void put_number(tm_comm_format format, double value, void *out)
{
    float    single = (float)value;
    int64_t  whole = (int64_t)value;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    uint16_t half = (uint16_t)(bits >> 16); /* of ORDER: cut off; of EXACT: nothing to cut */
    memcpy(out,
           format == TM_COMM_FLOAT64   ? (const void *)&value
           : format == TM_COMM_FLOAT32 ? (const void *)&single
           : format == TM_COMM_INT64   ? (const void *)&whole
                                       : (const void *)&half,
           tm_payload_bytes(format));
}

/* So large that the sum over all ranks is still exact: 2^8 in bfloat16, 2^24 in float32. */
static double exact_number(const tm_payload_call *c, uint64_t bits)
{
    const uint64_t most = c->format == TM_COMM_BFLOAT16 ? 1u << 8 : c->format == TM_COMM_FLOAT32 ? 1u << 24 : 1u << 30;
    const uint64_t each = most / (uint64_t)c->size > 1 ? most / (uint64_t)c->size : 1;
    const double   value = (double)(1 + (bits >> 8) % each);
    return bits & 1 ? -value : value;
}

static void put_one(const tm_payload_call *c, bool own, uint64_t bits, void *out)
{
    const double sizes = (double)(1 << (bits & 15));
    uint64_t     word = bits;
    switch (c->values) {
    case TM_PAYLOAD_BITS:
        if (c->format == TM_COMM_BYTES      ? !(uint8_t)word
            : c->format == TM_COMM_BFLOAT16 ? !(uint16_t)word
                                            : !(uint32_t)word)
            word = 1;
        memcpy(out, &word, tm_payload_bytes(c->format));
        break;
    case TM_PAYLOAD_ORDER:
        if (c->format == TM_COMM_INT64)
            memcpy(out, &word, sizeof word);
        else
            put_number(c->format, ((double)(bits >> 40) / 16777216.0 - 0.5 + 1e-9) * sizes, out);
        break;
    case TM_PAYLOAD_EXACT:
    case TM_PAYLOAD_SOLO:
        put_number(c->format, c->values == TM_PAYLOAD_SOLO && !own ? 0 : exact_number(c, bits), out);
    }
}

void tm_payload_put(const tm_payload_call *c, int from, int to, size_t index, size_t n, void *out)
{
    const size_t   each = tm_payload_bytes(c->format);
    const uint64_t who =
        (uint64_t)c->member[from] << 32 | (uint64_t)(c->kind == TM_COMM_ALL_TO_ALL ? c->member[to] + 1 : 0);
    const uint64_t key = mix(mix(c->seed + c->number * 0x9e3779b97f4a7c15u) ^ who);
    for (size_t i = 0; i < n; i++)
        put_one(c, from == c->root, mix(key + (index + i) * 0x9e3779b97f4a7c15u), (char *)out + i * each);
}

void tm_payload_fill(const tm_payload_call *c, void *out, size_t bytes)
{
    const uint64_t key = mix(~c->seed ^ c->number * 0x9e3779b97f4a7c15u);
    for (size_t i = 0; i < bytes; i += 8) {
        const uint64_t word = mix(key + i);
        memcpy((char *)out + i, &word, bytes - i < 8 ? bytes - i : 8);
    }
}

/* --- what lies where ------------------------------------------------------------------------- */

size_t tm_payload_piece(const tm_payload_call *c, int from, int to)
{
    const size_t a = (size_t)from, b = (size_t)to;
    if (!c->uneven) return c->count;
    return (a * 5 + b * 3) % 4 == 0 ? 0 : c->count * ((a + 2 * b) % 3) / 2 + (a ^ b) % 8;
}

size_t tm_payload_send_first(const tm_payload_call *c, int from, int to)
{
    size_t first = 0;
    for (int r = 0; r < to; r++) first += tm_payload_piece(c, from, r);
    return first;
}

size_t tm_payload_sends(const tm_payload_call *c, int rank)
{
    if (c->kind == TM_COMM_ALL_TO_ALL) return tm_payload_send_first(c, rank, c->size);
    if (c->kind == TM_COMM_SEND) return c->partner[rank] < 0 ? 0 : c->count;
    if (c->kind == TM_COMM_BROADCAST) return rank == c->root ? c->count : 0;
    return c->kind == TM_COMM_REDUCE_SCATTER ? c->count * (size_t)c->size : c->count;
}

size_t tm_payload_receives(const tm_payload_call *c, int rank)
{
    size_t n = 0;
    if (c->kind == TM_COMM_ALL_TO_ALL)
        for (int r = 0; r < c->size; r++) n += tm_payload_piece(c, r, rank);
    if (c->kind == TM_COMM_ALL_TO_ALL) return n;
    if (c->kind == TM_COMM_SEND) return c->partner[rank] < 0 ? 0 : c->count;
    return c->kind == TM_COMM_ALL_GATHER ? c->count * (size_t)c->size : c->count;
}

void tm_payload_send_image(const tm_payload_call *c, int rank, void *out)
{
    const size_t each = tm_payload_bytes(c->format);
    if (c->kind != TM_COMM_ALL_TO_ALL) {
        tm_payload_put(c, rank, 0, 0, tm_payload_sends(c, rank), out);
        return;
    }
    for (int r = 0; r < c->size; r++) {
        const size_t n = tm_payload_piece(c, rank, r);
        tm_payload_put(c, rank, r, 0, n, out);
        out = (char *)out + n * each;
    }
}

/* --- sums ------------------------------------------------------------------------------------ */

typedef union {
    double  d[BLOCK];
    float   f[BLOCK];
    int64_t i[BLOCK];
} totals;

#define COMBINE(total, x)                                                                                              \
    (op == TM_COMM_SUM   ? (total) + (x)                                                                               \
     : op == TM_COMM_MAX ? ((x) > (total) ? (x) : (total))                                                             \
                         : ((x) < (total) ? (x) : (total)))

/* total op= x, in place; the first one is taken as it is. */
static void add(tm_comm_op op, tm_comm_format format, bool begins, const void *from, size_t n, totals *t)
{
    for (size_t i = 0; i < n; i++) {
        if (format == TM_COMM_FLOAT64) {
            const double x = ((const double *)from)[i];
            t->d[i] = begins ? x : COMBINE(t->d[i], x);
        } else if (format == TM_COMM_INT64) {
            const int64_t x = ((const int64_t *)from)[i];
            if (op == TM_COMM_SUM)
                t->i[i] = begins ? x : (int64_t)((uint64_t)t->i[i] + (uint64_t)x);
            else
                t->i[i] = begins ? x : op == TM_COMM_MAX ? (x > t->i[i] ? x : t->i[i]) : (x < t->i[i] ? x : t->i[i]);
        } else {
            const float x = format == TM_COMM_FLOAT32 ? ((const float *)from)[i] : widen(((const uint16_t *)from)[i]);
            t->f[i] = begins ? x : COMBINE(t->f[i], x);
        }
    }
}

static void keep(tm_comm_format format, const totals *t, size_t n, void *out)
{
    if (format != TM_COMM_BFLOAT16) {
        memcpy(out, t, n * tm_payload_bytes(format));
        return;
    }
    for (size_t i = 0; i < n; i++) ((uint16_t *)out)[i] = narrow(t->f[i]);
}

void tm_payload_reduce(const tm_payload_call *c, tm_payload_contribution *what, const void *data, size_t first,
                       size_t n, void *out)
{
    _Alignas(16) unsigned char own[BLOCK * 8];
    const size_t               each = tm_payload_bytes(c->format);
    for (size_t i = 0; i < n; i += BLOCK) {
        totals       t;
        const size_t m = n - i < BLOCK ? n - i : BLOCK;
        for (int r = 0; r < c->size; r++) {
            if (what)
                what(data, r, first + i, m, own);
            else
                tm_payload_put(c, r, 0, first + i, m, own);
            add(c->op, c->format, r == 0, own, m, &t);
        }
        keep(c->format, &t, m, (char *)out + i * each);
    }
}

void tm_payload_receive_image(const tm_payload_call *c, int rank, void *out)
{
    const size_t each = tm_payload_bytes(c->format);
    if (tm_payload_reduces(c)) {
        tm_payload_reduce(c, NULL, NULL, c->kind == TM_COMM_REDUCE_SCATTER ? c->count * (size_t)rank : 0, c->count,
                          out);
        return;
    }
    if (c->kind == TM_COMM_BROADCAST) tm_payload_put(c, c->root, 0, 0, c->count, out);
    if (c->kind == TM_COMM_SEND && c->partner[rank] >= 0) tm_payload_put(c, c->partner[rank], 0, 0, c->count, out);
    if (c->kind != TM_COMM_ALL_GATHER && c->kind != TM_COMM_ALL_TO_ALL) return;
    for (int r = 0; r < c->size; r++) {
        const size_t n = c->kind == TM_COMM_ALL_GATHER ? c->count : tm_payload_piece(c, r, rank);
        tm_payload_put(c, r, rank, 0, n, out);
        out = (char *)out + n * each;
    }
}
