/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/proven.h - the two ends of an encounter by hand, with a secret of the tests. */
#ifndef TM_TESTS_COMM_PROVEN_H
#define TM_TESTS_COMM_PROVEN_H

#include "support/test.h"

#include "comm/engine/tcp.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>

static const char secret_of_tests[] = "a secret that these tests know";

/* The key that ranks make of such a text. */
static inline tm_comm_key key_of_text(const char *text)
{
    tm_comm_key key = { { 0 } };
    tm_error    err = { 0 };
    bool        given = false;
    char       *before = getenv("TRAINMARK_SECRET") ? strdup(getenv("TRAINMARK_SECRET")) : NULL;
    setenv("TRAINMARK_SECRET", text, 1);
    if (tm_comm_proof_begin(&err) != TM_OK || tm_comm_secret_given(&key, &given, &err) != TM_OK || !given) abort();
    if (before)
        setenv("TRAINMARK_SECRET", before, 1);
    else
        unsetenv("TRAINMARK_SECRET");
    free(before);
    return key;
}

/* A connection to a port of this machine that somebody is going to listen at; -1: nobody does. */
static inline int call(int port)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    for (int i = 0; i < 500; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0) return fd;
        close(fd);
        nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
    }
    return -1;
}

static inline bool read_all(int fd, void *out, size_t bytes)
{
    return recv(fd, out, bytes, MSG_WAITALL) == (ssize_t)bytes;
}

static inline bool write_all(int fd, const void *data, size_t bytes)
{
    return send(fd, data, bytes, MSG_NOSIGNAL) == (ssize_t)bytes;
}

/* What a rank says to one that has said hello. */
static inline tm_comm_claim claim_to(const tm_comm_key *secret, const tm_comm_hello *hello, int door,
                                     const tm_comm_tcp_card *card, tm_comm_encounter *e)
{
    tm_comm_claim claim = { .card = *card };
    *e = (tm_comm_encounter){ .card = *card, .door = door };
    memset(claim.random, 0x5a, sizeof claim.random);
    memcpy(e->listener, hello->random, sizeof e->listener);
    memcpy(e->caller, claim.random, sizeof e->caller);
    tm_comm_prove_caller(secret, e, &claim.proof);
    return claim;
}

#endif
