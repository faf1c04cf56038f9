/* SPDX-License-Identifier: Apache-2.0 */
/* hf/adapter.h - adapters as PEFT keeps them: a folder with adapter_config.json and adapter_model.safetensors, whose
 * tensors are called base_model.model.MODULE.lora_A.weight (r, in) and .lora_B.weight (out, r), with DoRA also
 * .lora_magnitude_vector (out). Experts have A (E r, in) and B (out, r E) together (hf/adapter_layout.c).
 *
 * Of image models also the files of diffusers and of other trainers are read (hf/lora_file.h), and those of diffusers
 * written.
 *
 * Read, they are parameters of a graph (tm_hf_adapter_load), or are added to the weights of the model while these are
 * loaded or exported: W + scale B A (with DoRA, rows of the stored lengths), summed in float64 and rounded once. */
#ifndef TM_HF_ADAPTER_H
#define TM_HF_ADAPTER_H

#include "hf/folder.h"
#include "train/adapter/adapters.h"

/* Does the folder have an adapter_config.json, or is it, or holds it, a file of hf/lora_file.h? */
bool tm_hf_is_adapter(const char *folder);

/* The model that the adapter of a folder is for: base_model_name_or_path, of a name of the hub with "@REVISION" where
 * there is one. TM_INVALID: none is named; TM_FORMAT: not the configuration of an adapter. */
TM_MUST_USE tm_status tm_hf_adapter_base(const char *folder, tm_text *out, tm_error *err);

/* Modules by their names: a list, each of all of a name or of what stands behind a dot, or a regular expression. */
typedef struct {
    const char **names;
    size_t       n;
    const char  *pattern; /* NULL: the list */
} tm_peft_names;

/* Which modules a configuration is for. */
typedef struct {
    bool           given, all_linear; /* is any said? */
    tm_peft_names  targets, excluded;
    const int64_t *layers; /* of targets that are not named in full; n_layers 0: all */
    size_t         n_layers;
    tm_peft_names  blocks; /* what the numbers stand behind, expressions: "layers"; none: anything */
} tm_peft_rules;

/* Is a module ("model.layers.0.self_attn.q_proj") one of them? */
bool tm_peft_selects(const tm_peft_rules *rules, const char *module);

typedef struct tm_hf_adapter {
    tm_adapters     adapters; /* rank, alpha, and the modules that the file holds */
    tm_peft_rules   rules;
    tm_safetensors *weights;
    tm_arena       *arena;
    const char     *folder, *file; /* as given; of the weights */
    const char     *config;        /* what the members of `rules` are from, for messages */
    bool            experts[2];    /* gate_up_proj, down_proj of all experts are adapted */
} tm_hf_adapter;

/* TM_INVALID, TM_FORMAT: no such folder, damaged; TM_UNSUPPORTED, naming the member: a configuration that computes what
 * is not supported (other modules to be saved, ...). Weights of the model itself that the file holds must equal those
 * of `model`, whose form is `form`; NULL: the file may hold none. The caller closes *out, also after a failure. */
TM_MUST_USE tm_status tm_hf_adapter_open(const char *folder, const tm_safetensors *model, const tm_hf_form *form,
                                         tm_hf_adapter *out, tm_error *err);
/* TM_UNSUPPORTED, TM_FORMAT: a tensor of the file is no adapter, nor what the model has under its name (private to
 * hf/). */
TM_MUST_USE tm_status tm_hf_adapter_check_own(const tm_stored_tensor *own, const tm_safetensors *model,
                                              const tm_hf_form *form, tm_error *err);
/* Is a tensor of the file a weight of the model, which PEFT has saved with it? (private to hf/) */
bool tm_hf_adapter_is_of_model(const tm_stored_tensor *tensor);
void tm_hf_adapter_close(tm_hf_adapter *adapter); /* a zeroed one is fine */

/* Reads adapter_config.json into a zeroed adapter that has its folder and its arena (private to hf/). */
TM_MUST_USE tm_status tm_hf_adapter_configure(tm_hf_adapter *adapter, tm_error *err);
/* The same of the text of a file's metadata, "lora_adapter_metadata", of which members of the transformer count; NULL:
 * nothing (private to hf/). */
TM_MUST_USE tm_status tm_hf_adapter_metadata(tm_hf_adapter *adapter, const char *text, tm_error *err);
/* The module of that name, with the prefix of files; NULL: the file has none. */
const tm_adapted_module *tm_hf_adapter_module(const tm_hf_adapter *adapter, const char *name);

/* TM_FORMAT, TM_INVALID: a module that the configuration names is not in the file, or has another rank or factor than
 * that of the graph (private to hf/). */
TM_MUST_USE tm_status tm_hf_adapter_check_modules(const tm_hf_memory *memory, const tm_hf_adapter *adapter,
                                                  tm_error *err);

/* Fills the adapters of a graph that was made with `own` (`adapter->adapters`, or others of the same modules): those of
 * the whole model, or what a rank has of them. TM_FORMAT: tensors missing, unexpected or of another shape, by name. */
TM_MUST_USE tm_status tm_hf_adapter_load(const tm_hf_memory *memory, const tm_hf_adapter *adapter,
                                         const tm_adapters *own, int threads, tm_hf_report *report, tm_error *err);

/* TM_FORMAT unless every tensor of the adapter belongs to a matrix of the model. Of `memory` graph (without adapters),
 * shape and form are used. */
TM_MUST_USE tm_status tm_hf_adapter_check(const tm_hf_memory *memory, const tm_hf_adapter *adapter, tm_error *err);

/* Writes adapter_config.json and adapter_model.safetensors (float32) from the adapters of a graph, by memory->read; of
 * a model of diffusers pytorch_lora_weights.safetensors (tm_hf_lora_write). `base`: path of the model, for PEFT. The
 * folder is made; must not hold an adapter. */
TM_MUST_USE tm_status tm_hf_adapter_write(const tm_hf_memory *memory, const tm_adapters *adapters, const char *base,
                                          const char *folder, tm_hf_report *report, tm_error *err);

#endif
