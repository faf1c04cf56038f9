/* SPDX-License-Identifier: Apache-2.0 */
/* train/certify/certificate.h - are the gradients of this very step those of its loss? Looked at between its backward
 * pass and its update, at the real size, with the kernels, formats and data of the run (docs/certificate.md).
 *
 *   gradients    L(w + d) - L(w - d) against sum g (w+ - w-), g as the update will take it: d goes along the gradient
 * in every group of tensors (a layer's attention, its feed-forward, its norms, the embedding, the head) with a random
 * sign and length for each, and has a small random part besides, which finds what the gradient lacks causality tokens
 * that a target must not see, of its row and of others, are replaced: its loss keeps its bits context      tokens that
 * it must see are replaced: the loss of some target changes
 *
 * Of several ranks each moves what it has of the weights, along the same direction; losses, gradients and what the
 * probes find are of all of them. All ranks make the same calls.
 *
 * Weights, gradients and state are put back to the bit. Two forward passes of the step and one of its first
 * micro-batch; only a failure is bisected to name the group. Where tokens choose experts, up to five directions are
 * tried, and a loss that balances them is looked at alone, too. */
#ifndef TM_TRAIN_CERTIFY_CERTIFICATE_H
#define TM_TRAIN_CERTIFY_CERTIFICATE_H

#include "base/event.h"
#include "train/trainer/trainer.h"

/* Behind tm_trainer_gradients and before tm_trainer_update, which comes to the same bits as without. `batch`: this
 * rank's of the step. result->done is false where nothing could be said, reason says why. TM_DEVICE, TM_NOMEM. */
TM_MUST_USE tm_status tm_certify(tm_trainer *trainer, const tm_micro_batch *batch, uint64_t seed,
                                 tm_certificate *result, tm_error *err);

/* Outside of a step: computes the gradients of `batch`, too. Those that were there are gone. */
TM_MUST_USE tm_status tm_certify_anew(tm_trainer *trainer, const tm_micro_batch *batch, uint64_t seed,
                                      tm_certificate *result, tm_error *err);

#endif
