/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/blame.c - bad senders, bad receivers and bad links, those that explain most first. */
#include "apps/node/blame.h"

#include "base/arena.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Pairs that are wrong and not explained, of a sender (or receiver) with the others. */
static int pairs_of(const bool *left, int ranks, int rank, bool sends)
{
    int n = 0;
    for (int o = 0; o < ranks; o++)
        if (o != rank) n += left[sends ? o * ranks + rank : rank * ranks + o];
    return n;
}

static void explain(bool *left, int ranks, const tm_blame *b)
{
    for (int r = 0; r < ranks; r++)
        for (int s = 0; s < ranks; s++)
            if ((b->sender < 0 || s == b->sender) && (b->receiver < 0 || r == b->receiver)) left[r * ranks + s] = false;
}

/* The rank with most pairs; of equals, none: then it is not known which. */
static tm_blame most(const bool *left, int ranks)
{
    tm_blame best = { TM_BLAME_LINK, -1, -1, 0 };
    for (int r = 0; r < ranks; r++)
        for (int sends = 1; sends >= 0; sends--) {
            const int n = pairs_of(left, ranks, r, sends);
            if (n <= best.seen) continue;
            best = (tm_blame){ sends ? TM_BLAME_SENDER : TM_BLAME_RECEIVER, sends ? r : -1, sends ? -1 : r, n };
        }
    return best;
}

int tm_blame_find(const uint32_t *wrong, int ranks, tm_blame *out, int room)
{
    const size_t pairs = (size_t)ranks * (size_t)ranks;
    bool        *left = tm_alloc(pairs);
    int          n = 0;
    for (size_t i = 0; i < pairs; i++) left[i] = wrong[i] > 0 && i / (size_t)ranks != i % (size_t)ranks;
    while (n < room) {
        tm_blame b = most(left, ranks);
        /* More than half of the others, and at least two of them. */
        if (b.seen < 2 || 2 * b.seen <= ranks - 1) break;
        explain(left, ranks, &b);
        out[n++] = b;
    }
    for (size_t i = 0; i < pairs && n < room; i++) {
        const int receiver = (int)(i / (size_t)ranks), sender = (int)(i % (size_t)ranks);
        if (!left[i]) continue;
        /* Of two ranks, the one whose own data is wrong to itself, too. */
        const bool own[2] = { wrong[sender * ranks + sender] > 0, wrong[receiver * ranks + receiver] > 0 };
        tm_blame   b = { TM_BLAME_LINK, sender, receiver, 1 };
        if (own[0] && !own[1]) b = (tm_blame){ TM_BLAME_SENDER, sender, -1, 1 };
        if (own[1] && !own[0]) b = (tm_blame){ TM_BLAME_RECEIVER, -1, receiver, 1 };
        b.seen = pairs_of(left, ranks, b.kind == TM_BLAME_RECEIVER ? receiver : sender, b.kind != TM_BLAME_RECEIVER);
        if (b.kind == TM_BLAME_LINK) b.seen = 1;
        explain(left, ranks, &b);
        out[n++] = b;
    }
    for (int r = 0; r < ranks && n < room; r++) {
        bool known = wrong[r * ranks + r] == 0;
        for (int i = 0; i < n; i++) known = known || out[i].sender == r || out[i].receiver == r;
        if (!known) out[n++] = (tm_blame){ TM_BLAME_RECEIVER, -1, r, 0 };
    }
    free(left);
    return n;
}
