/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/blame.h - who is to blame for what several receivers have seen of several senders. Pure; private to the
 * room.
 *
 * One sender that most of its receivers see wrong is bad itself; so is one receiver to which most senders are wrong.
 * What is left is between two ranks: the end whose own data is wrong to itself, too; else the link or one of its ends.
 * A rank that only its own data is wrong to is a bad receiver that no other one has seen.
 */
#ifndef TM_NODE_BLAME_H
#define TM_NODE_BLAME_H

#include <stddef.h>
#include <stdint.h>

typedef enum { TM_BLAME_SENDER, TM_BLAME_RECEIVER, TM_BLAME_LINK } tm_blame_kind;

typedef struct {
    tm_blame_kind kind;
    int           sender, receiver; /* -1: any */
    int           seen;             /* by how many of the others */
} tm_blame;

/* wrong[receiver * ranks + sender]: how often. Fills in at most `room`, those that
 * explain most pairs first; returns how many. */
int tm_blame_find(const uint32_t *wrong, int ranks, tm_blame *out, int room);

#endif
