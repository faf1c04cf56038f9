/* SPDX-License-Identifier: Apache-2.0 */
/* what comes over the connections of ranks. The first byte says what follows: a caller's claim, or what a rank
 * that is let in sends. No claim proves anything; no frames take more memory than there is room for, or touch what was
 * not asked for.
 */
#include "fuzz.h"

#include "comm/engine/frames.h"
#include "comm/engine/proof.h"

#include "base/log.h"

enum { WANTED = 6, BYTES = 600 };

/* Two ends of a connection that do not wait. */
static void connect_them(int fd[2])
{
    TM_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd) == 0);
}

/* As much as there is room for; what follows, later. */
static size_t pour(int fd, const uint8_t *data, size_t size)
{
    ssize_t n = send(fd, data, size, MSG_NOSIGNAL);
    return n > 0 ? (size_t)n : 0;
}

static void fuzz_door(const uint8_t *data, size_t size)
{
    static const tm_comm_address nowhere;
    const tm_comm_key            secret = { { 1, 2, 3 } };
    tm_comm_door                 door;
    tm_comm_arrival              a;
    char                         answer[256];
    int                          fd[2];
    connect_them(fd);
    tm_comm_door_open(&door, -1, 0, &secret);
    tm_comm_door_add(&door, fd[0], &nowhere);
    for (size_t at = 0; at < size;) {
        size_t part = size - at < 61 ? size - at : 61;
        size_t n = pour(fd[1], data + at, part);
        if (n == 0) break;
        at += n;
        TM_ASSERT(!tm_comm_door_look(&door, 0, &a));
    }
    size_t heard = sizeof(tm_comm_hello) + (size >= sizeof(tm_comm_claim) ? sizeof(tm_comm_answer) : 0);
    TM_ASSERT(recv(fd[1], answer, sizeof answer, 0) == (ssize_t)heard);
    TM_ASSERT(door.strangers == (size >= sizeof(tm_comm_claim)));
    TM_ASSERT(door.count == (size < sizeof(tm_comm_claim)));
    tm_comm_door_close(&door);
    close(fd[1]);
}

static void check(const tm_comm_peer *p)
{
    size_t kept = 0;
    int    offers = 0;
    for (const tm_comm_parcel *at = p->parcels; at; at = at->next) {
        bool offer = at->head.kind == TM_COMM_FRAME_OFFER;
        offers += offer;
        if (!offer) kept += (size_t)at->head.bytes + TM_COMM_EACH;
        TM_ASSERT(at->next || at == p->last);
    }
    TM_ASSERT(p->fd < 0 || (kept <= p->held && p->held <= TM_COMM_ROOM && offers == p->offers));
    TM_ASSERT(p->owed <= TM_COMM_ROOM);
}

/* With messages that are asked for before, between and behind, and some that this rank sends. */
static void fuzz_frames(const uint8_t *data, size_t size)
{
    static const char text[BYTES];
    int               fd[2];
    tm_comm_wanted   *w[WANTED] = { 0 };
    tm_comm_outgoing *o[WANTED] = { 0 };
    unsigned char     into[WANTED][BYTES + 1];
    connect_them(fd);
    tm_comm_peer p = { .fd = fd[0] };
    memset(into, 0x77, sizeof into);
    for (size_t at = 0, turn = 0; p.fd >= 0 && (at < size || turn < WANTED); turn++) {
        if (turn < WANTED) {
            w[turn] = tm_comm_peer_receive(&p, (int)(turn % 3), into[turn], turn * 100);
            o[turn] = tm_comm_peer_send(&p, (int)(turn % 3), text, turn * 100);
        }
        size_t n = pour(fd[1], data + at, size - at < 97 ? size - at : 97);
        if (n == 0 && turn >= WANTED) break;
        at += n;
        tm_comm_peer_pull(&p);
        check(&p);
    }
    for (size_t i = 0; i < WANTED; i++) {
        if (w[i]) TM_ASSERT(into[i][i * 100] == 0x77);
        if (w[i] && !w[i]->done) tm_comm_peer_cancel(&p, w[i]);
        if (o[i] && !o[i]->done) tm_comm_peer_cancel(&p, o[i]);
        free(w[i]), free(o[i]);
    }
    tm_comm_peer_free(&p);
    close(fd[1]);
}

FUZZ(ranks)
{
    tm_log_set_level(TM_LOG_ERROR);
    if (size == 0) return;
    if (data[0] % 4 == 0)
        fuzz_door(data + 1, size - 1);
    else
        fuzz_frames(data + 1, size - 1);
}
