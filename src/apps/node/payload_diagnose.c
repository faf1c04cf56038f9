/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/payload_diagnose.c - how a call's data is wrong, and whose it is: explanations are tried one after the
 * other on a sample of the wrong elements, and the first that gives all of them is the one. */
#include "apps/node/payload.h"

#include "apps/node/payload_value.h"

#include <stdio.h>
#include <string.h>

/* SAMPLE: elements that an explanation has to give; SHIFT: elements, the farthest; SUMMED: ranks, the most of which a
 * sum is taken apart. */
enum { SAMPLE = 48, SHIFT = 16, SUMMED = 256 };

/* A part of what was received: of one sender, or a sum. */
typedef struct {
    const tm_payload_case *k;
    size_t                 each;
    int                    from;         /* of the group; -1: a sum */
    size_t                 begin, count; /* elements of what was received */
    size_t                 index;        /* of the first one in the sender's data for this rank, or in the whole sum */
    size_t                 sample[SAMPLE];
    int                    n;
} part;

/* One explanation: the data of `rank` (of the group) is other data. */
typedef struct {
    const tm_payload_case *k;
    tm_wrong_how           how;
    int                    rank, other;
    long                   shift;
    size_t                 limit; /* elements of the data */
    int                    bit;
} explanation;

/* --- single elements ------------------------------------------------------------------------- */

/* Bytes [at, at + n) of what a rank of the world sends in a call, or receives. False: it is not that long, or the rank
 * is not in it. */
static bool bytes_of(const tm_payload_call *c, int who, bool receives, size_t at, size_t n, unsigned char *out)
{
    const size_t  each = tm_payload_bytes(c->format);
    unsigned char one[8];
    int           rank = 0;
    while (rank < c->size && c->member[rank] != who) rank++;
    if (rank == c->size) return false;
    for (size_t i = 0; i < n; i++) {
        size_t element = (at + i) / each;
        int    r = 0;
        if (element >= (receives ? tm_payload_receives(c, rank) : tm_payload_sends(c, rank))) return false;
        if (receives && tm_payload_reduces(c)) {
            const size_t first = c->kind == TM_COMM_REDUCE_SCATTER ? c->count * (size_t)rank : 0;
            tm_payload_reduce(c, NULL, NULL, first + element, 1, one);
        } else if (c->kind == TM_COMM_ALL_TO_ALL || (receives && c->kind == TM_COMM_ALL_GATHER)) {
            const bool pieces = c->kind == TM_COMM_ALL_TO_ALL;
            for (;; r++) {
                const size_t piece = !pieces    ? c->count
                                     : receives ? tm_payload_piece(c, r, rank)
                                                : tm_payload_piece(c, rank, r);
                if (element < piece) break;
                element -= piece;
            }
            tm_payload_put(c, receives ? r : rank, receives ? rank : r, element, 1, one);
        } else {
            r = !receives ? rank : c->kind == TM_COMM_BROADCAST ? c->root : c->partner[rank];
            tm_payload_put(c, r, 0, element, 1, one);
        }
        out[i] = one[(at + i) % each];
    }
    return true;
}

/* Where the data of a rank for this one begins in what it sends, in elements. */
static size_t sent_at(const tm_payload_case *k, int from)
{
    return k->call->kind == TM_COMM_ALL_TO_ALL ? tm_payload_send_first(k->call, from, k->rank) : 0;
}

/* Element `index` of the data of `rank` under an explanation. False: it says nothing of it. */
static bool explain(const explanation *e, size_t index, unsigned char *out)
{
    const tm_payload_call *c = e->k->call;
    const size_t           each = tm_payload_bytes(c->format);
    if (e->how == TM_WRONG_SHIFTED && ((long)index + e->shift < 0 || (long)index + e->shift >= (long)e->limit))
        return false;
    switch (e->how) {
    case TM_WRONG_ZEROS:
        memset(out, 0, each);
        return true;
    case TM_WRONG_EARLIER:
        return bytes_of(&e->k->earlier[e->other], c->member[e->rank], false, (sent_at(e->k, e->rank) + index) * each,
                        each, out);
    case TM_WRONG_SWAPPED:
        tm_payload_put(c, e->other, e->k->rank, index, 1, out);
        return true;
    case TM_WRONG_MISSENT:
        tm_payload_put(c, e->rank, e->other, index, 1, out);
        return true;
    case TM_WRONG_SHIFTED:
        tm_payload_put(c, e->rank, e->k->rank, (size_t)((long)index + e->shift), 1, out);
        return true;
    default: /* TM_WRONG_BITS */
        tm_payload_put(c, e->rank, e->k->rank, index, 1, out);
        out[e->bit / 8] ^= (unsigned char)(1 << e->bit % 8);
        return true;
    }
}

/* What a rank adds to a sum. */
static void contribution(const void *data, int rank, size_t first, size_t n, void *out)
{
    const explanation *e = data;
    const size_t       each = tm_payload_bytes(e->k->call->format);
    for (size_t i = 0; i < n; i++) {
        unsigned char *to = (unsigned char *)out + i * each;
        if (rank != e->rank || !explain(e, first + i, to)) tm_payload_put(e->k->call, rank, 0, first + i, 1, to);
    }
}

static const unsigned char *at(const void *image, const part *p, size_t i)
{
    return (const unsigned char *)image + (p->begin + i) * p->each;
}

/* Does it give what was received: 1, 0; -1: it says nothing of this element. Of bits each element has a bit of its own.
 */
static int gives(const part *p, explanation e, size_t i)
{
    unsigned char one[8];
    const int     bits = e.how == TM_WRONG_BITS ? (int)p->each * 8 : 1;
    for (e.bit = 0; e.bit < bits; e.bit++) {
        if (!explain(&e, p->index + i, one)) return -1;
        if (p->from < 0) tm_payload_reduce(p->k->call, contribution, &e, p->index + i, 1, one);
        if (memcmp(one, at(p->k->got, p, i), p->each) == 0) return 1;
    }
    return 0;
}

/* All elements of the sample of which it says something, and at least one. */
static bool gives_all(const part *p, const explanation *e)
{
    bool any = false;
    for (int s = 0; s < p->n; s++) {
        const int given = gives(p, *e, p->sample[s]);
        if (given == 0) return false;
        any = any || given > 0;
    }
    return any;
}

/* --- the whole of a part --------------------------------------------------------------------- */

/* As it was, zeros, or what this rank received in an earlier call. */
static bool as_received(const part *p, tm_wrong_how how, int earlier)
{
    static const unsigned char zeros[8];
    const int                  me = p->k->call->member[p->k->rank];
    unsigned char              one[8];
    for (int s = 0; s < p->n; s++) {
        const unsigned char *got = at(p->k->got, p, p->sample[s]), *like = zeros;
        if (how == TM_WRONG_NOT_WRITTEN) like = at(p->k->was, p, p->sample[s]);
        if (how == TM_WRONG_EARLIER) {
            if (!bytes_of(&p->k->earlier[earlier], me, true, (p->begin + p->sample[s]) * p->each, p->each, one))
                return false;
            like = one;
        }
        if (memcmp(got, like, p->each) != 0) return false;
    }
    return true;
}

static bool whole(const part *p, tm_wrong *w)
{
    for (int i = 0; i < 2 + p->k->n_earlier; i++) {
        w->how = i == 0 ? TM_WRONG_NOT_WRITTEN : i == 1 ? TM_WRONG_ZEROS : TM_WRONG_EARLIER;
        w->other = i - 1;
        if (as_received(p, w->how, i - 2)) return true;
    }
    return false;
}

/* The explanations of one rank's data. */
static bool explain_rank(const part *p, int rank, tm_wrong *w)
{
    const tm_payload_call *c = p->k->call;
    explanation            e = { .k = p->k, .how = TM_WRONG_ZEROS, .rank = rank, .limit = p->index + p->count };
    if (gives_all(p, &e)) goto found;
    e.how = TM_WRONG_EARLIER;
    for (e.other = 0; e.other < p->k->n_earlier; e.other++)
        if (gives_all(p, &e)) {
            e.other++;
            goto found;
        }
    e.how = TM_WRONG_SWAPPED;
    for (int r = 0; r < c->size; r++)
        if (e.other = r, r != rank && gives_all(p, &e)) {
            e.other = c->member[r];
            goto found;
        }
    e.how = TM_WRONG_MISSENT;
    for (int r = 0; r < c->size && c->kind == TM_COMM_ALL_TO_ALL; r++)
        if (e.other = r, r != p->k->rank && gives_all(p, &e)) {
            e.other = c->member[r];
            goto found;
        }
    e.how = TM_WRONG_SHIFTED;
    for (long shift = 1; shift <= SHIFT; shift++)
        for (int back = 0; back < 2; back++)
            if (e.shift = back ? -shift : shift, gives_all(p, &e)) goto found;
    e.how = TM_WRONG_BITS, e.shift = 0;
    if (gives_all(p, &e)) goto found;
    return false;
found:
    w->how = e.how, w->other = e.other, w->shift = e.shift;
    return true;
}

/* Whose data of a sum is wrong: one rank alone explains it; -1: none or several do. */
static void explain_sum(const part *p, tm_wrong *w)
{
    const tm_payload_call *c = p->k->call;
    int                    found = 0;
    w->how = TM_WRONG_VALUES;
    if (c->size > SUMMED) return;
    for (int r = 0; r < c->size; r++) {
        tm_wrong one = *w;
        if (!explain_rank(p, r, &one)) continue;
        if (found++ == 0) *w = one, w->from = c->member[r];
    }
    if (found > 1) w->from = -1;
}

/* Fills in which elements are wrong. False: none is. */
static bool look(part *p, tm_wrong *w)
{
    w->of = p->count;
    for (size_t i = 0; i < p->count; i++) {
        if (memcmp(at(p->k->got, p, i), at(p->k->want, p, i), p->each) == 0) continue;
        if (w->wrong++ == 0) w->first = i;
        w->last = i;
    }
    if (w->wrong == 0) return false;
    /* The first half of the sample from the front, the other one from the rest of them. */
    const size_t step = w->wrong <= SAMPLE ? 1 : w->wrong / SAMPLE;
    size_t       seen = 0;
    for (size_t i = w->first; i <= w->last && p->n < SAMPLE; i++)
        if (memcmp(at(p->k->got, p, i), at(p->k->want, p, i), p->each) != 0 && seen++ % step == 0)
            p->sample[p->n++] = i;
    w->tail = w->first > 0 && w->last == p->count - 1 && w->wrong * 8 >= (p->count - w->first) * 7 && w->wrong > 1;
    return true;
}

/* Other elements of the right sum: where all ranks but one add zeros, that one's shifted data looks like it. */
static bool shifted_sum(const part *p, tm_wrong *w)
{
    for (int k = 2; k < 2 * SHIFT + 2; k++) {
        const long shift = k % 2 ? -(k / 2) : k / 2;
        int        like = 0, other = 0;
        for (int s = 0; s < p->n; s++) {
            const long i = (long)p->sample[s] + shift;
            if (i < 0 || i >= (long)p->count) continue;
            const bool same = memcmp(at(p->k->got, p, p->sample[s]), at(p->k->want, p, (size_t)i), p->each) == 0;
            like += same, other += !same;
        }
        if (like == 0 || other > 0) continue;
        w->how = TM_WRONG_SHIFTED, w->shift = shift;
        return true;
    }
    return false;
}

static bool diagnose(part *p, tm_wrong *w)
{
    *w = (tm_wrong){ .from = p->from < 0 ? -1 : p->k->call->member[p->from] };
    if (!look(p, w)) return false;
    if (!whole(p, w)) {
        w->how = TM_WRONG_VALUES, w->other = 0;
        if (p->from < 0) {
            if (!shifted_sum(p, w)) explain_sum(p, w);
        } else if (!explain_rank(p, p->from, w))
            w->how = TM_WRONG_VALUES, w->other = 0;
    }
    w->tail = w->tail && w->how <= TM_WRONG_EARLIER;
    w->first += p->index, w->last += p->index;
    return true;
}

int tm_payload_diagnose(const tm_payload_case *k, tm_wrong *out, int room)
{
    const tm_payload_call *c = k->call;
    const bool sum = tm_payload_reduces(c), pieces = c->kind == TM_COMM_ALL_GATHER || c->kind == TM_COMM_ALL_TO_ALL;
    size_t     begin = 0;
    int        n = 0;
    for (int r = 0; r < (pieces ? c->size : 1) && n < room; r++) {
        part p = { .k = k, .each = tm_payload_bytes(c->format), .from = r, .begin = begin };
        p.count = c->kind == TM_COMM_ALL_TO_ALL ? tm_payload_piece(c, r, k->rank) : c->count;
        if (sum) p.from = -1;
        if (c->kind == TM_COMM_REDUCE_SCATTER) p.index = c->count * (size_t)k->rank;
        if (c->kind == TM_COMM_BROADCAST) p.from = c->root;
        if (c->kind == TM_COMM_SEND) p.from = c->partner[k->rank];
        if (c->kind == TM_COMM_SEND && p.from < 0) break;
        begin += p.count;
        if (diagnose(&p, &out[n])) n++;
    }
    return n;
}

char *tm_wrong_text(const tm_wrong *w, char out[160])
{
    char how[80];
    switch (w->how) {
    case TM_WRONG_NOT_WRITTEN:
        snprintf(how, sizeof how, "not written at all");
        break;
    case TM_WRONG_ZEROS:
        snprintf(how, sizeof how, "zeros");
        break;
    case TM_WRONG_EARLIER:
        if (w->other == 1)
            snprintf(how, sizeof how, "of the call before");
        else
            snprintf(how, sizeof how, "of a call %d before", w->other);
        break;
    case TM_WRONG_SWAPPED:
        snprintf(how, sizeof how, "rank %d's in place of rank %d's", w->other, w->from);
        break;
    case TM_WRONG_MISSENT:
        snprintf(how, sizeof how, "what rank %d sent to rank %d", w->from, w->other);
        break;
    case TM_WRONG_SHIFTED:
        snprintf(how, sizeof how, "shifted by %ld element%s", w->shift, w->shift == 1 || w->shift == -1 ? "" : "s");
        break;
    case TM_WRONG_BITS:
        snprintf(how, sizeof how, "right but for one bit each");
        break;
    case TM_WRONG_BEHIND:
        snprintf(out, 160, "memory behind what is received was written");
        return out;
    case TM_WRONG_SOURCE:
        snprintf(out, 160, "memory that is sent was written, from element %zu on", w->first);
        return out;
    default:
        snprintf(how, sizeof how, "other values");
    }
    if (w->tail)
        snprintf(out, 160, "the tail, elements %zu .. %zu, is lost: %s", w->first, w->last, how);
    else if (w->wrong == 1)
        snprintf(out, 160, "element %zu (of %zu) is %s", w->first, w->of, how);
    else
        snprintf(out, 160, "%zu of %zu elements, %zu .. %zu, are %s", w->wrong, w->of, w->first, w->last, how);
    return out;
}
