/* SPDX-License-Identifier: Apache-2.0 */
/* comm/engine/frames.h - messages over one connection, as frames: {kind, tag, bytes} and, of some kinds, so many bytes.
 *
 * A message of up to TM_COMM_EARLY bytes may come before it is asked for, as long as no more than TM_COMM_ROOM bytes of
 * such messages are at the other end. A larger one is offered, and comes when it is asked for. So no rank takes in what
 * it has no room for, whatever another one says of itself: who sends more is cut off, with a text that says what it
 * sent.
 *
 * There are no locks and no waits in here.
 */
#ifndef TM_COMM_FRAMES_H
#define TM_COMM_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* EACH: what a message takes of the room beside its bytes; OFFERS: that wait for somebody who asks; TAGS: 0 .. TAGS
 * - 1.
 */
enum {
    TM_COMM_EARLY = 1 << 20,
    TM_COMM_ROOM = 8 << 20,
    TM_COMM_EACH = 256,
    TM_COMM_OFFERS = 1 << 16,
    TM_COMM_FRAME_TAGS = 258
};

typedef enum {
    TM_COMM_FRAME_EARLY = 1, /* a message, not asked for as far as its sender knows */
    TM_COMM_FRAME_OFFER,     /* there is one of so many bytes */
    TM_COMM_FRAME_ASK,       /* the first that was offered with this tag may come */
    TM_COMM_FRAME_REFUSE,    /* or is not wanted: another size was expected */
    TM_COMM_FRAME_ASKED,     /* it comes */
    TM_COMM_FRAME_TAKEN,     /* so many bytes of early messages have left their room */
} tm_comm_frame_kind;

typedef struct {
    uint32_t kind, tag;
    uint64_t bytes;
} tm_comm_frame;

/* A message that goes out. */
typedef struct tm_comm_outgoing {
    struct tm_comm_outgoing *next;
    tm_comm_frame            head;
    const char              *data;
    size_t                   size, at;      /* of the data; of what is written: head and data */
    bool                     done, answers; /* answers: it is of this end's own, not of a caller's */
} tm_comm_outgoing;

/* One that is waited for. */
typedef struct tm_comm_wanted {
    struct tm_comm_wanted *next;
    uint32_t               tag;
    size_t                 bytes;
    void                  *data;
    bool                   done, other_size;
} tm_comm_wanted;

/* One that has come, is coming, or was offered, before it was waited for. */
typedef struct tm_comm_parcel {
    struct tm_comm_parcel *next;
    tm_comm_frame          head;
    char                  *data;
    tm_comm_wanted        *goes_to; /* somebody waits for it by now */
} tm_comm_parcel;

/* One end of a connection. Zeros, but for fd, in the beginning. */
typedef struct {
    int               fd;         /* -1: gone */
    char              fault[128]; /* what it has sent that no rank does; "": nothing */
    tm_comm_outgoing *out, *offered;
    tm_comm_wanted   *wanted, *asked;
    tm_comm_parcel   *parcels, *last; /* in the order in which they came */
    tm_comm_frame     head;           /* that is coming */
    size_t            at;             /* of the head, then of its bytes */
    bool              inside;         /* the head is complete: its bytes go ... */
    tm_comm_wanted   *into;           /* there ... */
    tm_comm_parcel   *coming;         /* ... or there */
    size_t            owed;           /* of early messages that the other end has not taken */
    size_t            held, taken;    /* of those of the other end: here, and of these taken and not yet said */
    int               offers;
    bool              ends; /* nothing goes out any more */
} tm_comm_peer;

/* `data` stays until it is done. The message is the caller's, to be freed when it is done or given up. */
tm_comm_outgoing *tm_comm_peer_send(tm_comm_peer *p, int tag, const void *data, size_t bytes);
tm_comm_wanted   *tm_comm_peer_receive(tm_comm_peer *p, int tag, void *data, size_t bytes);
/* As far as it goes without waiting. A peer that has gone, or breaks the rules, has fd -1 then. */
void tm_comm_peer_push(tm_comm_peer *p);
void tm_comm_peer_pull(tm_comm_peer *p);
void tm_comm_peer_lose(tm_comm_peer *p);
/* Gives up a message and the connection. */
void tm_comm_peer_cancel(tm_comm_peer *p, const void *message);
void tm_comm_peer_free(tm_comm_peer *p); /* but for the messages of callers */

#endif
