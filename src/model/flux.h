/* SPDX-License-Identifier: Apache-2.0 */
/* model/flux.h - the parameters of FLUX.1 (private to model/). The formulas: model/flux.c. */
#ifndef TM_MODEL_FLUX_H
#define TM_MODEL_FLUX_H

#include "model/blocks.h"

typedef struct {
    tm_tensor_id w, b;
} tm_flux_layer;

typedef struct {
    tm_flux_layer mod, qkv, proj, up, down;
    tm_tensor_id  norm; /* of queries, then of keys */
} tm_flux_stream;

typedef struct {
    tm_flux_layer mod, qkv, up, down;
    tm_tensor_id  norm;
    tm_tensor_id  down_mlp; /* the MLP's columns of `down`, where that has others only; TM_NONE: it has all */
} tm_flux_single;

typedef struct {
    tm_flux_layer   img_in, txt_in, time[2], guidance[2], vector[2], final_mod, final;
    tm_flux_stream *img, *txt; /* (n_layers) */
    tm_flux_single *singles;   /* (flux.n_single) */
} tm_flux_weights;

extern const char *const tm_flux_qkv[]; /* ".q", ".k", ".v" */
/* Declares parameters and the table of rotary positions; tm_model.own: tm_flux_weights. */
void tm_flux_declare(tm_graph *graph, const tm_model_shape *shape, int64_t seq, tm_model *out);
extern const tm_hf_form *const tm_flux_forms[]; /* diffusers' (model/flux_hf.c) */

#endif
