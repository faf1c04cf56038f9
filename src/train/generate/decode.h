/* SPDX-License-Identifier: Apache-2.0 */
/* train/generate/decode.h - a model that reads a sequence once and remembers it: programs for a few tokens and for one,
 * which keep keys and values of all tokens so far. Any family: the forward pass of its builder, whose attention is led
 * to a table.
 *
 * Of a token at position p the key is in row R - 1 - p % R of a table of R rows: those in use are at its end, so that
 * what a query sees is "all rows from first = max(R - 1 - p, 0) on". R is the longest sequence, or the window of the
 * layer, whose oldest row is then replaced. Rotary positions are in the keys; their order does not matter to attention.
 */
#ifndef TM_TRAIN_GENERATE_DECODE_H
#define TM_TRAIN_GENERATE_DECODE_H

#include "device/forward.h"
#include "model/model.h"

typedef struct tm_decoder tm_decoder;

/* For sequences of at most `length` tokens, of which `prompt` are there from the start (tm_model_grow). Parameters are
 * held in the compute format of `precision`. Their values are for the caller to write. TM_NOMEM; TM_UNSUPPORTED: the
 * device lacks a kernel. */
TM_MUST_USE tm_status tm_decoder_open(tm_device *device, const tm_model_shape *shape, const tm_precision *precision,
                                      int64_t length, int64_t prompt, tm_decoder **out, tm_error *err);
void                  tm_decoder_close(tm_decoder *decoder); /* NULL is fine */

/* The programs and their parameters, closed by tm_decoder_close. */
tm_forward *tm_decoder_forward(tm_decoder *decoder);

/* Appends n >= 1 tokens to the sequence, which must have room for them; logits (vocab): of what follows the last. */
TM_MUST_USE tm_status tm_decoder_feed(tm_decoder *decoder, const int32_t *tokens, int64_t n, double *logits,
                                      tm_error *err);
/* Tokens fed so far. */
int64_t tm_decoder_position(const tm_decoder *decoder);
/* Forgets the sequence. */
void tm_decoder_restart(tm_decoder *decoder);

#endif
