/* SPDX-License-Identifier: Apache-2.0 */
/* train/certificate.h - are the gradients of this very step those of its loss? Looked at before the first step, at the
 * real size, with the kernels, formats and data of the run (docs/certificate.md).
 *
 *   gradients    L(w + d) - L(w - d) against sum g (w+ - w-), g from the step's own backward pass: d goes along the
 * gradient in every group of tensors (a layer's attention, its feed-forward, its norms, the embedding, the head) with a
 *                random sign for each, and has a small random part besides, which finds what the gradient lacks
 *   causality    tokens that a target must not see, of its row and of others, are replaced: the loss keeps its bits
 *   context      tokens that it must see are replaced: the loss changes
 *
 * Weights and state are put back to the bit. A forward and backward pass and four evaluations; only a failure is
 * bisected to name the group. Where tokens choose experts, up to five directions are tried, and a loss that balances
 * them is looked at alone, too. */
#ifndef TM_TRAIN_CERTIFICATE_H
#define TM_TRAIN_CERTIFICATE_H

#include "base/event.h"
#include "train/trainer.h"

/* `batch`: of one micro-batch. result->done is false where nothing could be said, reason says why. TM_DEVICE, TM_NOMEM.
 */
TM_MUST_USE tm_status tm_certify(tm_trainer *trainer, const tm_micro_batch *batch, uint64_t seed,
                                 tm_certificate *result, tm_error *err);

/* Name of the group that a tensor belongs to, from its own: "layers.3.attention.wo.weight" -> "layers.3 attention";
 * norms of a layer are one. */
void tm_certificate_group(const char *tensor, char out[96]);

#endif
