/* SPDX-License-Identifier: Apache-2.0 */
/* hf/folder.h - Hugging Face folders: config.json, and weights in safetensors files that go into the parameters of a
 * graph or come from them. A GGUF file in the place of a folder is read as the folder that means the same. */
#ifndef TM_HF_FOLDER_H
#define TM_HF_FOLDER_H

#include "data/safetensors.h"
#include "device/forward.h"
#include "graph/graph.h"
#include "hf/config.h"
#include "train/trainer/trainer.h"

/* Does the folder have a config.json, or is it a GGUF file? */
bool tm_hf_is_folder(const char *folder);
/* tm_hf_config_read of the folder's config.json. */
TM_MUST_USE tm_status tm_hf_folder_configure(const char *folder, tm_config *config, tm_hf_description *out,
                                             tm_error *err);
/* The same into a configuration of which nothing else is wanted, and finishes it: the shape of the model. */
TM_MUST_USE tm_status tm_hf_folder_shape(const char *folder, tm_config *config, tm_hf_description *out,
                                         tm_model_shape *shape, tm_error *err);
/* Opens the folder's weights: model.safetensors, or the shards of model.safetensors.index.json (of diffusers:
 * diffusion_pytorch_model.*). *out is NULL if there are no weights of any kind; TM_UNSUPPORTED for pickled ones only.
 */
TM_MUST_USE tm_status tm_hf_folder_weights(const char *folder, tm_safetensors **out, tm_error *err);

/* The parameters of a graph, wherever they are. */
typedef struct tm_hf_memory {
    const tm_graph       *graph;
    const tm_model_shape *shape;
    const tm_hf_form     *form;
    void                 *context;
    /* Added to the weights while they are loaded; NULL: none. No parameter may be in blocks of NF4 then. */
    const struct tm_hf_adapter *adapter;
    /* Copies of at most a few MiB, done when the call returns; `offset` in bytes. Either may be NULL where it is not
     * used. */
    tm_status (*write)(const struct tm_hf_memory *memory, tm_tensor_id id, size_t offset, const void *from,
                       size_t bytes, tm_error *err);
    tm_status (*read)(const struct tm_hf_memory *memory, tm_tensor_id id, size_t offset, void *to, size_t bytes,
                      tm_error *err);
    /* Sums of the ranks of a group; NULL where there is one rank only. */
    tm_status (*sum)(const struct tm_hf_memory *memory, unsigned axes, double *values, size_t n, tm_error *err);
} tm_hf_memory;

/* Those of a trainer, and of a program without one, which can be written. */
tm_hf_memory tm_hf_trainer_memory(tm_trainer *trainer, const tm_hf_form *form);
tm_hf_memory tm_hf_forward_memory(tm_forward *forward, const tm_model_shape *shape, const tm_hf_form *form);

/* What was loaded, or would be: every parameter has its tensor, and every tensor of the files is used, or listed as
 * harmless by the form. */
typedef struct {
    size_t  tensors, ignored; /* used; held by the files and of no use to anything */
    int64_t elements, bytes;  /* of those used, as stored */
    char    formats[64];      /* "BF16, F32" */
    /* Of an export: the format that was written, and whether the source's was wider. */
    tm_dtype dtype;
    bool     rounded;
} tm_hf_report;

/* Fills all parameters, converted to the formats that the graph holds them in: to nearest, ties to even. TM_FORMAT:
 * tensors missing, unexpected, of another shape or of no floating format, by name. On `threads` threads; 0: all. */
TM_MUST_USE tm_status tm_hf_load(const tm_hf_memory *memory, const tm_safetensors *weights, int threads,
                                 tm_hf_report *report, tm_error *err);

#endif
