/* SPDX-License-Identifier: Apache-2.0 */
/* comm/engine/proof.h - who a caller is: the secret of a job, proofs that both ends of a connection know it, and the
 * door at which callers are asked for them. HMAC-SHA-256 of libsodium; what is proven is in the text under it.
 *
 * Who listens says a random number first (tm_comm_hello). The caller answers with one of its own, its card, and a proof
 * over both numbers, the card and whose door it is (tm_comm_claim); then who listens proves the same
 * (tm_comm_answer). So nothing that was heard before proves anything, and nobody can be answered with his own words:
 * each proof has the name of what it is for.
 */
#ifndef TM_COMM_PROOF_H
#define TM_COMM_PROOF_H

#include "base/status.h"
#include "comm/engine.h"
#include "comm/engine/address.h"

#include <limits.h>

enum { TM_COMM_KEY = 32, TM_COMM_MAGIC = 0x746d7232 };

typedef struct {
    unsigned char byte[TM_COMM_KEY];
} tm_comm_key;

/* --- the secret of a job --------------------------------------------------------------------- */

enum { TM_COMM_SECRET_LEAST = 16, TM_COMM_SECRET_MOST = 4096 }; /* bytes */

/* Of TRAINMARK_SECRET or the file TRAINMARK_SECRET_FILE; *given: there is one. TM_INVALID: it is too short, or the file
 * is somebody else's or others may read it. */
TM_MUST_USE tm_status tm_comm_secret_given(tm_comm_key *out, bool *given, tm_error *err);

/* Of ranks of one user on one host, where none is given. The first rank makes a random one in a file that only this
 * user may read, in place of an older one of the same name; `path` gets its name. */
TM_MUST_USE tm_status tm_comm_secret_make(uint64_t name, tm_comm_key *out, char path[PATH_MAX], tm_error *err);
/* The others find it. TM_INVALID: there is none. */
TM_MUST_USE tm_status tm_comm_secret_find(uint64_t name, tm_comm_key *out, tm_error *err);

/* --- proofs ---------------------------------------------------------------------------------- */

/* What a rank tells of itself. */
typedef struct {
    uint32_t port, pid; /* port: where it listens for ranks above it */
    int32_t  rank, size;
    uint64_t job, host; /* host: the same for ranks that share memory */
    char     host_name[TM_COMM_HOST_NAME];
} tm_comm_tcp_card;

/* All that a caller and who listens say of a connection; without padding. */
typedef struct {
    unsigned char    listener[TM_COMM_KEY], caller[TM_COMM_KEY]; /* random numbers, each used once */
    tm_comm_tcp_card card;                                       /* the caller's */
    int64_t          door;                                       /* the rank that listens */
} tm_comm_encounter;

typedef struct {
    uint32_t      magic, none;
    unsigned char random[TM_COMM_KEY];
} tm_comm_hello;

typedef struct {
    unsigned char    random[TM_COMM_KEY];
    tm_comm_tcp_card card;
    tm_comm_key      proof;
} tm_comm_claim;

typedef struct {
    int32_t     verdict, none; /* a tm_comm_verdict; without a proof of a stranger, who could not check it */
    tm_comm_key proof;
} tm_comm_answer;

typedef enum {
    TM_COMM_WELCOME = 1,
    TM_COMM_OTHER_SIZE,
    TM_COMM_OTHER_JOB,
    TM_COMM_TWICE,
    TM_COMM_STRANGER, /* it has not proven that it knows the secret */
    /* What a caller finds out itself. */
    TM_COMM_FOREIGN,  /* who listens is no rank of this program */
    TM_COMM_UNPROVEN, /* or does not know the secret */
} tm_comm_verdict;

/* Before the others, once. */
TM_MUST_USE tm_status tm_comm_proof_begin(tm_error *err);

/* Of these bytes, for a purpose: two purposes never have the same proof. */
void tm_comm_prove(const tm_comm_key *key, const char *purpose, const void *data, size_t bytes, tm_comm_key *out);
/* In the same time, whatever is wrong. */
bool tm_comm_is_proven(const tm_comm_key *key, const char *purpose, const void *data, size_t bytes,
                       const tm_comm_key *proof);

void tm_comm_prove_caller(const tm_comm_key *secret, const tm_comm_encounter *e, tm_comm_key *out);
bool tm_comm_caller_is_proven(const tm_comm_key *secret, const tm_comm_encounter *e, const tm_comm_key *proof);
void tm_comm_prove_listener(const tm_comm_key *secret, const tm_comm_encounter *e, int32_t verdict, tm_comm_key *out);
bool tm_comm_listener_is_proven(const tm_comm_key *secret, const tm_comm_encounter *e, const tm_comm_answer *answer);
/* What only the two ends of this connection know. */
void tm_comm_connection_key(const tm_comm_key *secret, const tm_comm_encounter *e, tm_comm_key *out);

/* --- the door -------------------------------------------------------------------------------- */

/* Callers at a time (the one that has been silent for longest makes room), and seconds that each has to speak. */
enum { TM_COMM_CALLERS = 1024, TM_COMM_CALLER_S = 5 };

typedef struct tm_comm_caller tm_comm_caller;

typedef struct {
    int             listening; /* non-blocking socket; -1: none, callers are added */
    int64_t         rank;      /* whose door */
    tm_comm_key     secret;
    tm_comm_caller *caller; /* (count) */
    int             count;
    int64_t         strangers; /* sent away so far: the first one is told of in the log */
} tm_comm_door;

/* Somebody who knows the secret. */
typedef struct {
    int               fd;
    tm_comm_encounter encounter;
} tm_comm_arrival;

/* The door takes the socket, which listens or will; open: tm_comm_door_close. */
void tm_comm_door_open(tm_comm_door *door, int listening, int rank, const tm_comm_key *secret);
/* One has called from there: the door takes the connection, and says hello. */
void tm_comm_door_add(tm_comm_door *door, int fd, const tm_comm_address *from);
/* Looks after all callers at once, for so long at most; true: one has proven itself, and waits for the answer. */
bool tm_comm_door_look(tm_comm_door *door, int wait_ms, tm_comm_arrival *out);
/* Tells the verdict; false: it is not let in, or gone, and its connection is closed. */
bool tm_comm_door_answer(const tm_comm_door *door, const tm_comm_arrival *arrival, tm_comm_verdict verdict);
void tm_comm_door_close(tm_comm_door *door);

#endif
