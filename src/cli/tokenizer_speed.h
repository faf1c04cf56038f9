/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TM_CLI_TOKENIZER_SPEED_H
#define TM_CLI_TOKENIZER_SPEED_H

#include "base/status.h"
#include "base/text.h"
#include "token/token.h"

/* Appends JSON: bytes, documents, threads, seconds of each round, ids of one. */
TM_MUST_USE tm_status tm_cli_tokenizer_speed(const tm_tokenizer *tokenizer, const tm_text *input, int threads,
                                             int rounds, tm_text *out, tm_error *err);

#endif
