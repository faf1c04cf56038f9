/* SPDX-License-Identifier: Apache-2.0 */
/* model/hf.h - the Hugging Face forms of a family: what the keys of its config.json mean and what its tensors are
 * called.
 *
 * Data only, in the family's own file; src/hf/ reads and writes folders by it. A family has a form for every model_type
 * whose models it can be. A shape has the first form whose `pairs` it all has.
 *
 * A value of config.json is compared and passed on as text: a string as it is, numbers in their shortest form (0.0 is
 * "0"), true, false, null. A null member counts as absent, unless its row says otherwise.
 */
#ifndef TM_MODEL_HF_H
#define TM_MODEL_HF_H

#include "base/text.h"
#include "model/shape.h"

typedef enum {
    TM_HF_VALUE,    /* the value of our key `name` */
    TM_HF_CHOICE,   /* one of `values`, "default=none|llama3=llama3": theirs = the value of our key `name` */
    TM_HF_MUST,     /* one of `values`, "gelu_new|gelu_fast"; any other is refused. The first one is written, unless
                     * `absent` is "" */
    TM_HF_LIST,     /* a list of numbers: the value of our key `name`, with commas */
    TM_HF_PRODUCT,  /* no member of its own: our key `name` is the product of our keys `values`, "model.a|model.b" */
    TM_HF_CYCLE,    /* a list that goes through `values`, "sliding_attention|full_attention", again and again */
    TM_HF_TRAINING, /* as TM_HF_MUST when the model is trained, of no effect otherwise: dropout */
    TM_HF_HARMLESS /* changes nothing that is computed; not written. A key that ends in '*' stands for all that begin so
                    */
} tm_hf_kind;

/* A key of config.json. Rows are applied in their order; a member that no row names is refused by name, but for those
 * that every Hugging Face configuration may have and that compute nothing (hf/config_keys.c). */
typedef struct {
    const char *key; /* "hidden_size"; "rope_scaling.factor": a member of an object; other names behind '|'; the first
                      * one is written */
    tm_hf_kind  kind;
    const char *name;   /* VALUE, CHOICE, LIST, PRODUCT: our key, "model.dim" */
    const char *values; /* see the kinds */
    const char *absent; /* what a file means that lacks the key, as the Hugging Face class has it. NULL: it may not lack
                         * it (TM_HF_HARMLESS: may). "": what our key says by itself. "model.a": the value of that key
                         * of ours, of a row before; "model.a/model.b": their quotient */
    const char *null;   /* the same of a null, where that is something else; NULL: a null is as if it were absent */
    const char *only;   /* "model.rope_scaling=llama3|yarn": the row is there only when our key has one of the values */
} tm_hf_key;

/* A tensor. {l} is the number of a layer, {e} of an expert; ours is the name of a piece (tm_piece), or of a vector of
 * state (TM_ROLE_STATE), which a file holds if its form has a row for it.
 *
 * By default theirs has the rows of our piece. `ours` with {e} and `theirs` without: theirs has a leading axis of
 * experts. With `parts` > 1 theirs has the rows of so many of our pieces, equally many of each. Rotary rows: files hold
 * pairs (i, i + D/2) of a head's D rows; they are permuted when model.rope_layout is interleaved. */
typedef struct {
    const char *ours, *theirs;
    bool        transposed; /* theirs is (in, out); ours is (out, in) */
    bool        rotary;
    int         part, parts; /* number `part` of `parts` pieces; parts 0: one */
    bool        interleaved; /* parts: row r of ours is row r parts + part of theirs; else one piece behind the other */
    bool        wide;        /* float32 in files of any format */
} tm_hf_tensor;

typedef struct {
    const char         *model_type;   /* "llama"; of diffusers, whose files have no such member, the _class_name */
    const char         *architecture; /* "LlamaForCausalLM" */
    bool                diffusers;    /* a folder of that library: other names of files */
    const char *const  *pairs;        /* "model.family=llama": what this form is of; ended by NULL */
    const tm_hf_key    *keys;         /* ended by a row without key */
    const char         *rope;    /* the rope_parameters of a file that has neither them nor rope_scaling; NULL: none */
    const tm_hf_tensor *tensors; /* ended by a row without name; the order does not matter */
    /* May be NULL: */
    const char        *prefix;  /* "transformer.": names in files may begin so or not; those we write do */
    const char        *plain;   /* the one name that never has the prefix ("lm_head.weight") */
    const char *const *ignored; /* tensors that files may hold and nothing computes with, patterns; ended by NULL */
    const char        *tied_head, *tied_to; /* of a tied model a file may hold the first, too, equal to the second */
    /* Why a shape that has the pairs still has no such form; NULL: it has. */
    const char *(*lacks)(const tm_model_shape *shape);
} tm_hf_form;

/* The form of a model_type, NULL if no family has it. */
const tm_hf_form *tm_hf_form_named(const char *model_type);
/* All of them; *n is their number. Static. */
const tm_hf_form *const *tm_hf_forms(size_t *n);

/* Does `name` have the form of `pattern`? {l} and {e} stand for numbers, which go to numbers[0] and numbers[1]. */
bool tm_hf_matches(const char *pattern, const char *name, int64_t numbers[2]);
/* Appends `pattern` with its numbers. */
void tm_hf_name(const char *pattern, const int64_t numbers[2], tm_text *out);
/* The row of a piece or state of ours, NULL if the form has none; the numbers of its name go to numbers[]. */
const tm_hf_tensor *tm_hf_row_of(const tm_hf_form *form, const char *ours, int64_t numbers[2]);
/* Appends what a piece of ours is called in the first form of its family that has a row for it; false: in none. */
bool tm_hf_name_of(const tm_model_shape *shape, const char *ours, tm_text *out);
/* The same with the prefix of that form. */
bool tm_hf_full_name_of(const tm_model_shape *shape, const char *ours, tm_text *out);

#endif
