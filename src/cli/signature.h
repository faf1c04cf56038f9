/* SPDX-License-Identifier: Apache-2.0 */
/* cli/signature.h - private to the room: signatures of results, made and checked by ssh-keygen (OpenSSH 8.9 or later).
 * A signature is the file result.json.sig beside result.json, in the namespace "trainmark". What is signed is the text
 * of the result, which holds the digest of metrics.jsonl, as it was read and verified.
 */
#ifndef TM_CLI_SIGNATURE_H
#define TM_CLI_SIGNATURE_H

#include "base/status.h"
#include "base/text.h"
#include "results/result.h"

#include <stdbool.h>

/* Is there a signature beside it? */
bool signature_there(const tm_result *result);
/* Signs with the private key in `key` (or the public one of a key that ssh-agent has), replacing a signature that is
 * there. TM_INVALID: a result of the store, a key that cannot be used, no ssh-keygen. */
TM_MUST_USE tm_status signature_make(const tm_result *result, const char *key, tm_error *err);
/* Is there a signature of this very text by a key that `signers` (an allowed_signers file of ssh-keygen) lists, for
 * `identity` if that is not NULL? `who` takes whose. TM_NEGATIVE: there is none, or it is another's, or of another
 * text. TM_INVALID as above. */
TM_MUST_USE tm_status signature_check(const tm_result *result, const char *signers, const char *identity, tm_text *who,
                                      tm_error *err);

#endif
