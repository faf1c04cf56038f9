/* SPDX-License-Identifier: Apache-2.0 */
/* hf/gguf.h - models in GGUF files: what llama.cpp calls the values and tensors of a Hugging Face model, and in which
 * order it has their elements. A file is read as the folder that means the same (private to hf/). */
#ifndef TM_HF_GGUF_H
#define TM_HF_GGUF_H

#include "base/gguf.h"
#include "hf/adapter.h"

#include <jansson.h>

/* {l} is the number of a layer. */
typedef struct {
    const char *theirs; /* "blk.{l}.attn_q.weight" */
    const char *name; /* in the files of Hugging Face, without prefix; {e}: of an expert, in theirs an axis in front */
    enum {
        TM_GGUF_PLAIN,
        TM_GGUF_QUERIES,    /* rows of heads, rotary: where the model is `paired`, in pairs (2i, 2i + 1) in theirs */
        TM_GGUF_KEYS,       /* the same of key/value heads */
        TM_GGUF_TRANSPOSED, /* theirs is (out, in) */
        TM_GGUF_WIDE,       /* a matrix that is float32 in files of any format */
    } kind;
} tm_gguf_row;

/* A value. */
typedef struct {
    const char *theirs;         /* behind the name of the architecture: "embedding_length" */
    const char *member;         /* of config.json */
    bool        real, optional; /* optional: a file may lack it, and means what the class means without the member */
} tm_gguf_key;

typedef struct {
    const char        *arch;       /* "llama" */
    const char        *model_type; /* of Hugging Face */
    const tm_gguf_row *rows[2];    /* each ended by one without name */
    const tm_gguf_key *keys;       /* the same */
    bool               paired, experts, rotary;
} tm_gguf_model;

/* NULL: llama.cpp has no such model, or trainmark does not write it. */
const tm_gguf_model *tm_gguf_model_of_type(const char *model_type);
/* Of a file. TM_UNSUPPORTED, TM_FORMAT. */
TM_MUST_USE tm_status tm_gguf_model_of(const tm_gguf *gguf, const tm_gguf_model **out, tm_error *err);
/* "llama, mistral, ..." */
void tm_gguf_model_types(tm_text *out);
/* The row of a tensor, by one of its names; its numbers go to numbers[]. NULL: none. */
const tm_gguf_row *tm_gguf_row_of(const tm_gguf_model *model, const char *name, bool theirs, int64_t numbers[2]);

/* The rope_freqs.weight of llama3 scaling: divisors of n / 2 frequencies of a head of n elements. */
typedef struct {
    double theta, factor, low, high, original;
} tm_gguf_rope;
void tm_gguf_rope_divisors(const tm_gguf_rope *rope, int64_t n, float *out);

/* Element (r, c) of `rows` x `columns` of their tensor is element tm_gguf_at(...) of Hugging Face's. `head`: elements
 * of a head of a tensor whose rows are paired, else 0. */
static inline int64_t tm_gguf_at(int64_t r, int64_t c, int64_t rows, int64_t columns, int64_t head, bool transposed)
{
    if (transposed) return c * rows + r;
    if (head > 0) r += r % 2 * (head / 2) + r % head / 2 - r % head;
    return r * columns + c;
}

/* n elements, a multiple of 32 for q8_0, to float32; exact. */
void tm_gguf_to_f32(uint32_t format, const uint8_t *from, int64_t n, float *to);
/* Rounds n elements, a multiple of 32 for q8_0, to nearest. q8_0: d = max |x| / 127 in float32, q = x (1 / d) with ties
 * away from 0; d is stored as float16. */
void tm_gguf_from_f32(uint32_t format, const float *from, int64_t n, uint8_t *to);

/* Writes the adapters of a graph as a file that llama.cpp adds to its model, in float32, by memory->read.
 * TM_UNSUPPORTED: llama.cpp has no such adapters. */
TM_MUST_USE tm_status tm_gguf_adapter_write(const tm_hf_memory *memory, const tm_adapters *adapters,
                                            const tm_gguf_model *model, const char *path, tm_hf_report *report,
                                            tm_error *err);

/* Appends the config.json of a file. TM_FORMAT, TM_UNSUPPORTED, naming the key. */
TM_MUST_USE tm_status tm_gguf_config(const char *path, tm_text *out, tm_error *err);
/* Its tensors under Hugging Face's names: those of float32, float16 and bfloat16 stay in the file, q8_0 becomes float32
 * in memory, and so does what has another order. TM_UNSUPPORTED: another format, or a tensor that no row names. */
TM_MUST_USE tm_status tm_gguf_weights(const char *path, tm_safetensors **out, tm_error *err);

#endif
