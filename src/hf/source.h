/* SPDX-License-Identifier: Apache-2.0 */
/* hf/source.h - a model that is somewhere on disk: a Hugging Face folder (config.json), a GGUF file, or the directory
 * of a run of ours (config.yaml and a checkpoint). */
#ifndef TM_HF_SOURCE_H
#define TM_HF_SOURCE_H

#include "hf/adapter.h"
#include "train/checkpoint/view.h"
#include "token/specials.h"

typedef struct {
    const char         *path;
    tm_config          *config; /* finished */
    tm_model_shape      shape;
    const tm_hf_form   *form;
    tm_safetensors     *weights;           /* of a folder; else NULL */
    tm_checkpoint_view *checkpoint;        /* of a run; else NULL */
    tm_hf_adapter       adapter;           /* see tm_hf_source_adapt */
    int64_t             ends[TM_MAX_ENDS]; /* eos_token_id of generation_config.json, else of config.json */
    int                 n_ends;
} tm_hf_source;

/* `config`: with all rows and nothing given; belongs to the source from now on, also after a failure: close it. `step`:
 * of a run's checkpoint; -1: the newest. TM_INVALID: neither a folder nor a run, or without weights; TM_UNSUPPORTED: a
 * run of a model that no Hugging Face class computes, so that its tensors have no names. */
TM_MUST_USE tm_status tm_hf_source_open(const char *path, int64_t step, tm_config *config, tm_hf_source *out,
                                        tm_error *err);
void                  tm_hf_source_close(tm_hf_source *source);
/* Adds the adapter of a folder to the model's weights, wherever they go. TM_UNSUPPORTED: the model is that of a run;
 * else as tm_hf_adapter_open and tm_hf_adapter_check. */
TM_MUST_USE tm_status tm_hf_source_adapt(tm_hf_source *source, const char *folder, tm_error *err);
/* Takes the averages of the weights (training.ema_decay) in the place of the weights. TM_INVALID: the source is no run,
 * or its checkpoint has none. */
TM_MUST_USE tm_status tm_hf_source_average(tm_hf_source *source, tm_error *err);
/* Was the run one of adapters, so that its checkpoint holds them and not the model? */
bool tm_hf_source_of_adapters(const tm_hf_source *source);
/* Does the token end a text of this model? */
bool tm_hf_source_ends(const tm_hf_source *source, int32_t token);

/* The tokenizer of the model's tokens, as tm_tokenizer_open takes it: the folder; of a run, what it read its data with,
 * "byte" of texts, else what the folder of its initial weights has. NULL: its tokens stand for no text. */
const char *tm_hf_source_tokenizer(const tm_hf_source *source);

/* Fills all parameters of a graph of the source's model: as tm_hf_load. */
TM_MUST_USE tm_status tm_hf_source_load(const tm_hf_source *source, const tm_hf_memory *memory, int threads,
                                        tm_hf_report *report, tm_error *err);

typedef struct {
    const char *folder;      /* is made; must not hold a model */
    tm_dtype    dtype;       /* TM_F32, TM_BF16; TM_DTYPE_COUNT: that of the source, float32 where it has others too */
    int64_t     shard_bytes; /* a file's tensors take so many at most, unless one takes more */
} tm_hf_export_options;

/* The format that an option's word means; NULL: that of the source. */
tm_dtype tm_hf_export_format(const char *word);
/* What an export wrote: "float32", "bfloat16 (rounded: the model was wider)". */
const char *tm_hf_report_format(const tm_hf_report *report);

/* Of a run of adapters: writes these (tm_hf_adapter_write; always float32). Of anything else:
 * writes config.json, model.safetensors or shards with an index, the tokenizer's files (of a run that read bytes, those
 * of bytes), and generation_config.json if the source is a folder that has it. config.json comes last: with it the
 * folder is complete. */
TM_MUST_USE tm_status tm_hf_export(const tm_hf_source *source, const tm_hf_export_options *options,
                                   tm_hf_report *report, tm_error *err);

typedef struct {
    const char *path;      /* of the file; must not be there */
    const char *format;    /* of matrices: "f32", "bf16", "q8_0" */
    const char *tokenizer; /* its place; NULL: that of the source, none where nothing says which that is */
} tm_gguf_options;

/* The model, or the adapters of a run, as a GGUF file for llama.cpp. TM_UNSUPPORTED: llama.cpp has no such model. */
TM_MUST_USE tm_status tm_hf_export_gguf(const tm_hf_source *source, const tm_gguf_options *options,
                                        tm_hf_report *report, tm_error *err);

#endif
