/* SPDX-License-Identifier: Apache-2.0 */
/* hf/merge.h - a model's matrix with its adapter added (private to hf/). */
#ifndef TM_HF_MERGE_H
#define TM_HF_MERGE_H

#include "hf/adapter.h"
#include "hf/layout.h"

/* A, B and, of DoRA, the lengths of rows (else NULL), in the files of an adapter. */
enum { TM_HF_PARTS = 3 };

/* Has the adapter tensors for this matrix? TM_FORMAT: an A without its B, another shape. */
TM_MUST_USE tm_status tm_hf_merge_finds(const tm_hf_adapter *adapter, const tm_hf_form *form, const tm_hf_entry *entry,
                                        const tm_stored_tensor *found[TM_HF_PARTS], tm_error *err);
/* out[i] = stored[i] + scale (B A)[i], with lengths m each row of it times m over its own length, as float32, for all
 * elements of the matrix as it is stored. */
void tm_hf_merge(const tm_hf_adapter *adapter, const tm_hf_form *form, const tm_hf_entry *entry,
                 const tm_stored_tensor *stored, const tm_stored_tensor *const found[TM_HF_PARTS], int threads,
                 float *out);

#endif
