/* SPDX-License-Identifier: Apache-2.0 */
/* Initial values of weights in formats of blocks: what float32 would hold, quantized. (That all layouts begin with
 * them: test_layouts.c.) */
#include "support/test.h"
#include "support/training.h"
#include "graph/blocks.h"
#include "graph/nf4.h"
#include "train/trainer/init.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tm_step_options options_of(int model, tm_dtype base, const tm_precision *precision)
{
    tm_step_options o = model == 1 ? test_gpt_options() : test_llama_options();
    if (model == 2) {
        o.shape.family = TM_FAMILY_MIXTRAL;
        o.shape.moe = (tm_moe_shape){ .experts = 4, .top_k = 2, .ffn_dim = 96, .scale = 1, .normalise = true };
    }
    o.precision = precision;
    o.shape.n_layers = 1;
    o.shape.n_kv_heads = o.shape.n_heads;
    if (base == TM_DTYPE_COUNT) return o;
    /* One matrix of more blocks than are quantized at once. */
    o.shape.dim = 1088, o.shape.n_heads = 4, o.shape.n_kv_heads = 4, o.shape.head_dim = 256, o.shape.ffn_dim = 128;
    o.adapters = (tm_adapters){ .rank = 2, .alpha = 4, .base = base, .place = "test", .seed = 1 };
    snprintf(o.adapters.targets, sizeof o.adapters.targets, "all-linear");
    return o;
}

typedef struct {
    const double *values;
    int64_t       begin; /* of the run */
    size_t        at;    /* its first byte */
    char         *bytes;
} quantized;

static void give(void *context, int64_t first, int64_t n, float *out)
{
    const quantized *q = context;
    for (int64_t i = 0; i < n; i++) out[i] = (float)q->values[q->begin + first + i];
}

static tm_status keep(void *context, size_t offset, const void *bytes, size_t n, tm_error *err)
{
    const quantized *q = context;
    (void)err;
    memcpy(q->bytes + q->at + offset, bytes, n);
    return TM_OK;
}

/* A tensor is what becomes of the whole one of a model in float32. */
static void is_quantized(const tm_trainer *trainer, tm_tensor_id id, const double *values)
{
    const tm_tensor *t = tm_graph_at(tm_trainer_step_of(trainer)->graph, id);
    size_t           size = tm_tensor_bytes(t->shape, t->dtype);
    char            *found = malloc(size), *wanted = malloc(size);
    tm_error         err = { 0 };
    int64_t          all = tm_shape_elements(t->shape);
    for (int64_t begin = 0; begin < all;) {
        int64_t   end = tm_nf4_run_end(t, begin);
        quantized q = { values, begin, tm_blocked_bytes(t->dtype, begin), wanted };
        tm_nf4_io io = { give, keep, &q, 1 };
        assert_int_equal(tm_blocked_store(t->dtype, &io, end - begin, &err), TM_OK);
        begin = end;
    }
    assert_int_equal(tm_trainer_read(trainer, id, 0, found, size, &err), TM_OK);
    if (memcmp(found, wanted, size) != 0) fail_msg("'%s' has other values", t->name);
    free(found);
    free(wanted);
}

/* Pieces that begin anywhere among those that are made at a time. */
TEST(blocks_have_the_values_of_the_whole)
{
    static const int64_t  widths[] = { 390, 97, 4097 }; /* the last one is made in two parts */
    static const tm_dtype formats[] = { TM_NF4_BLOCKS, TM_E4M3_BLOCKS, TM_E4M3_BLOCKS };
    for (int i = 0; i < 3; i++) {
        tm_device      *device = test_device_open("cpu", 2);
        tm_step_options o = options_of(0, formats[i], &tm_precision_f32);
        int             seen = 0;
        o.shape.dim = 128, o.shape.n_heads = 4, o.shape.n_kv_heads = 2, o.shape.head_dim = 32;
        o.shape.ffn_dim = widths[i], o.shape.n_layers = 1;
        tm_trainer *narrow = test_trainer_open(device, &o, 5);
        o.adapters.base = TM_DTYPE_COUNT;
        tm_trainer     *wide = test_trainer_open(device, &o, 5);
        const tm_graph *a = tm_trainer_step_of(narrow)->graph, *b = tm_trainer_step_of(wide)->graph;
        for (size_t k = 0; k < a->n_tensors; k++) {
            size_t like = 0;
            if (a->tensors[k].role != TM_ROLE_PARAMETER || a->tensors[k].dtype != formats[i]) continue;
            while (b->tensors[like].role != TM_ROLE_PARAMETER || strcmp(a->tensors[k].name, b->tensors[like].name) != 0)
                like++;
            double *values = test_values_read(wide, (tm_tensor_id)like);
            is_quantized(narrow, (tm_tensor_id)k, values);
            free(values);
            seen++;
        }
        assert_true(seen >= 4);
        tm_trainer_close(narrow);
        tm_trainer_close(wide);
        tm_device_close(device);
    }
}
