/* SPDX-License-Identifier: Apache-2.0 */
/* hf/values.h - the tensors of a model, one after another, as its Hugging Face files have them (private to hf/). */
#ifndef TM_HF_VALUES_H
#define TM_HF_VALUES_H

#include "hf/gguf.h"
#include "hf/layout.h"
#include "hf/source.h"

typedef struct {
    const tm_hf_source      *source;
    tm_graph                *graph; /* parameters only, in the formats of a checkpoint */
    tm_hf_layout            *layout;
    const tm_stored_tensor **found; /* of a folder: its tensors */
} tm_hf_values;

/* As tm_hf_load without reading any value. The caller closes *out, also after a failure. */
TM_MUST_USE tm_status tm_hf_values_open(const tm_hf_source *source, tm_hf_values *out, tm_hf_report *report,
                                        tm_error *err);
/* All elements of an entry of the layout, with the adapter of the source, rounded to `dtype`. */
TM_MUST_USE tm_status tm_hf_values_fill(const tm_hf_values *values, size_t entry, tm_dtype dtype, void *out,
                                        tm_error *err);
/* Does the source hold a tensor in another format than bfloat16, of those that are not always written in float32? */
bool tm_hf_values_wider(const tm_hf_values *values);
void tm_hf_values_close(tm_hf_values *values); /* a zeroed one is fine */

/* The adapters of a run into a folder, or, of a model of llama.cpp, into a GGUF file (export.c). */
TM_MUST_USE tm_status tm_hf_export_adapter(const tm_hf_source *source, const char *path, const tm_gguf_model *gguf,
                                           tm_hf_report *report, tm_error *err);

#endif
