/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/payload.h - data for a collective call of which every element is known: f(seed, call, sender, receiver,
 * index).
 *
 * So both ends of a call can be made anew, whole or in part, by every rank: what a rank sends, what it has to receive,
 * and what it would receive if one rank's data were zeros, of an earlier call, another rank's or shifted. Sums are made
 * by plain loops in the order of the ranks, in float32 for bfloat16. Pure; private to the room.
 */
#ifndef TM_NODE_PAYLOAD_H
#define TM_NODE_PAYLOAD_H

#include "comm/comm.h"

typedef enum {
    TM_PAYLOAD_BITS,  /* any bits, none of them zero: of calls that move data */
    TM_PAYLOAD_ORDER, /* numbers of many sizes: the order of a sum shows */
    TM_PAYLOAD_EXACT, /* whole numbers whose sum is exact in every order */
    TM_PAYLOAD_SOLO   /* the same of one rank, zeros of the others: whose data is wrong is plain */
} tm_payload_values;

enum { TM_PAYLOAD_GUARD = 64 }; /* bytes behind what a rank receives that stay as they are */

/* A call of a group. TM_COMM_SEND is one message each way between the two ranks of each pair of `partner`. */
typedef struct {
    uint64_t          seed, number; /* number: of the call, of this rank's world */
    tm_comm_kind      kind;
    tm_comm_op        op;
    tm_comm_format    format;
    tm_payload_values values;
    size_t            count;
    int               root;    /* of a broadcast; whose data SOLO is */
    bool              uneven;  /* all-to-all: with counts of its own for each pair */
    const int        *member;  /* (size) ranks of the world */
    const int        *partner; /* (size) of messages: ranks of the group; -1: none */
    int               size;
} tm_payload_call;

/* Elements from one rank of the group for another one, of an all-to-all. */
size_t tm_payload_piece(const tm_payload_call *c, int from, int to);
/* Elements that a rank of the group sends, and receives. */
size_t tm_payload_sends(const tm_payload_call *c, int rank);
size_t tm_payload_receives(const tm_payload_call *c, int rank);
/* All of them. */
void tm_payload_send_image(const tm_payload_call *c, int rank, void *out);
void tm_payload_receive_image(const tm_payload_call *c, int rank, void *out);
/* Bytes that are like nothing that is sent. */
void tm_payload_fill(const tm_payload_call *c, void *out, size_t bytes);

/* --- what is wrong --------------------------------------------------------------------------- */

typedef enum {
    TM_WRONG_NOT_WRITTEN, /* as it was before the call */
    TM_WRONG_ZEROS,
    TM_WRONG_EARLIER, /* of a call before */
    TM_WRONG_SWAPPED, /* the data of rank `other` */
    TM_WRONG_MISSENT, /* what this rank sent to rank `other` */
    TM_WRONG_SHIFTED,
    TM_WRONG_BITS, /* few bits of each element */
    TM_WRONG_VALUES,
    TM_WRONG_BEHIND, /* memory behind the end was written */
    TM_WRONG_SOURCE, /* memory that is sent was written */
    TM_WRONGS
} tm_wrong_how;

/* Of one sender, or of one sum. */
typedef struct {
    tm_wrong_how how;
    int          from;                   /* rank of the world whose data is wrong; -1: of a sum, not known whose */
    int          other;                  /* rank of the world; how many calls before */
    long         shift;                  /* elements */
    size_t       first, last, wrong, of; /* elements: where in the sender's data (of a sum: in the sum), how many */
    bool         tail;                   /* from some place to the end, and nothing before */
} tm_wrong;

/* What is known of a call that went wrong. */
typedef struct {
    const tm_payload_call *call;
    const tm_payload_call *earlier; /* (n_earlier) the calls before it, the last one first */
    int                    n_earlier;
    int                    rank;             /* of the group: who received */
    const void            *got, *want, *was; /* what it received, had to, and had there before */
} tm_payload_case;

/* One for each sender whose data is wrong, of sums one. Returns how many, at most `room`. */
int tm_payload_diagnose(const tm_payload_case *k, tm_wrong *out, int room);
/* "elements 5 .. 9 of 40 are zeros". Returns out. */
char *tm_wrong_text(const tm_wrong *w, char out[160]);

#endif
