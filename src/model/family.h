/* SPDX-License-Identifier: Apache-2.0 */
/* model/family.h - what a model family is: one row, one file (private to model/). Nobody else asks which family a
 * model is of. */
#ifndef TM_MODEL_FAMILY_H
#define TM_MODEL_FAMILY_H

#include "model/hf.h"
#include "model/model.h"

typedef struct {
    const char        *name;
    const char *const *fields; /* parts of a sample that the loss reads, ended by NULL */
    bool               images; /* samples are images: there is no vocabulary */
    /* what a key that is not given means */
    bool          tied;
    tm_model_bias bias;
    bool          qk_norm, moe_normalise, sinks, clamped;
    tm_model_init init, init_tied;
    int64_t (*ffn_dim)(int64_t dim);
    bool divides; /* among ranks: tensor parallel */
    bool ends;    /* sequences are max_seq_len long at most: the positions are a table */
    /* Keys that only this family reads; NULL: none. */
    tm_status (*read)(const tm_config *config, tm_model_shape *shape, tm_error *err);
    int64_t (*length)(const tm_model_shape *shape); /* see tm_model_length; NULL: any */
    /* FLOPs of a token by a convention, where those of decoders do not count; NULL: they do. */
    double (*flops)(const tm_model_shape *shape, double parameters, tm_flops_convention convention, int64_t seq);
    /* What this family cannot be; TM_INVALID or TM_UNSUPPORTED with the keys, all of them. A head_dim of 0 was refused
     * before. NULL: nothing. */
    tm_status (*check)(const tm_config *config, const tm_model_shape *shape, tm_error *err);
    /* Declares parameters and constants. */
    void (*declare)(tm_graph *graph, const tm_model_shape *shape, int64_t seq, tm_model *out);
    tm_tensor_id (*hidden)(tm_graph *graph, const tm_model *model, tm_tensor_id tokens);
    tm_tensor_id (*loss)(tm_graph *graph, const tm_model *model, const tm_inputs *inputs, tm_tensor_id loss,
                         int64_t chunk, bool accumulate);
    tm_tensor_id (*velocity)(tm_graph *graph, const tm_model *model, const tm_inputs *inputs); /* of images */
    void (*update)(tm_graph *graph, const tm_model *model); /* see tm_model_update; NULL: nothing */
    int (*products)(const tm_model_shape *shape, tm_model_product out[TM_MAX_PRODUCTS]);
    const tm_hf_form *const *hf; /* ended by NULL; NULL: no Hugging Face model is of this family */
} tm_family;

#define TM_FAMILY(id, name, what) extern const tm_family tm_family_##name;
#include "model/families.def"
#undef TM_FAMILY

const tm_family *tm_family_of(const tm_model_shape *shape);

#endif
