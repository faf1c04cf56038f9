/* SPDX-License-Identifier: Apache-2.0 */
/* comm/engine/proof.c - proofs that somebody knows a secret, for a purpose each. */
#include "comm/engine/proof.h"

#include <sodium.h>
#include <string.h>

_Static_assert(sizeof(tm_comm_key) == crypto_auth_hmacsha256_BYTES, "a proof is a key's size");
_Static_assert(sizeof(tm_comm_encounter) == 2 * TM_COMM_KEY + sizeof(tm_comm_tcp_card) + sizeof(int64_t),
               "no padding under a proof");
_Static_assert(sizeof(tm_comm_tcp_card) == 32 + TM_COMM_HOST_NAME, "nor in a card");

tm_status tm_comm_proof_begin(tm_error *err)
{
    return sodium_init() < 0 ? tm_fail(err, TM_INTERNAL, "libsodium does not start: the system gives no random numbers")
                             : TM_OK;
}

/* The purpose goes ahead with its NUL: none is the beginning of another one. */
static void prove(const tm_comm_key *key, const char *purpose, const void *data, size_t bytes, const void *more,
                  size_t more_bytes, tm_comm_key *out)
{
    crypto_auth_hmacsha256_state state;
    crypto_auth_hmacsha256_init(&state, key->byte, sizeof key->byte);
    crypto_auth_hmacsha256_update(&state, (const unsigned char *)purpose, strlen(purpose) + 1);
    crypto_auth_hmacsha256_update(&state, data, bytes);
    if (more_bytes > 0) crypto_auth_hmacsha256_update(&state, more, more_bytes);
    crypto_auth_hmacsha256_final(&state, out->byte);
    sodium_memzero(&state, sizeof state);
}

void tm_comm_prove(const tm_comm_key *key, const char *purpose, const void *data, size_t bytes, tm_comm_key *out)
{
    prove(key, purpose, data, bytes, NULL, 0, out);
}

static bool is_same(const tm_comm_key *a, const tm_comm_key *b)
{
    return sodium_memcmp(a->byte, b->byte, sizeof a->byte) == 0;
}

bool tm_comm_is_proven(const tm_comm_key *key, const char *purpose, const void *data, size_t bytes,
                       const tm_comm_key *proof)
{
    tm_comm_key own;
    tm_comm_prove(key, purpose, data, bytes, &own);
    return is_same(&own, proof);
}

void tm_comm_prove_caller(const tm_comm_key *secret, const tm_comm_encounter *e, tm_comm_key *out)
{
    tm_comm_prove(secret, "trainmark caller", e, sizeof *e, out);
}

bool tm_comm_caller_is_proven(const tm_comm_key *secret, const tm_comm_encounter *e, const tm_comm_key *proof)
{
    return tm_comm_is_proven(secret, "trainmark caller", e, sizeof *e, proof);
}

void tm_comm_prove_listener(const tm_comm_key *secret, const tm_comm_encounter *e, int32_t verdict, tm_comm_key *out)
{
    prove(secret, "trainmark listener", e, sizeof *e, &verdict, sizeof verdict, out);
}

bool tm_comm_listener_is_proven(const tm_comm_key *secret, const tm_comm_encounter *e, const tm_comm_answer *answer)
{
    tm_comm_key own;
    tm_comm_prove_listener(secret, e, answer->verdict, &own);
    return is_same(&own, &answer->proof);
}

void tm_comm_connection_key(const tm_comm_key *secret, const tm_comm_encounter *e, tm_comm_key *out)
{
    tm_comm_prove(secret, "trainmark connection", e, sizeof *e, out);
}
