/* SPDX-License-Identifier: Apache-2.0 */
/* model/modules.c - the parts of a model by their names: where a pipeline can be cut. */
#include "model/model.h"

#include <stdio.h>
#include <string.h>

/* What lies in front of the blocks and behind them, ended by NULL. */
typedef struct {
    const char *front[6], *behind[3];
} around;

static const around language = { { "tok_embeddings", NULL }, { "norm", "output", NULL } };
static const around guided = { { "img_in", "txt_in", "time_in", "guidance_in", "vector_in", NULL },
                               { "final_layer", NULL } };
static const around images = { { "img_in", "txt_in", "time_in", "vector_in", NULL }, { "final_layer", NULL } };

static void name_block(const tm_model_shape *shape, int64_t block, char *name, size_t bytes)
{
    if (!tm_model_images(shape))
        snprintf(name, bytes, "layers.%lld", (long long)block);
    else if (block < shape->n_layers)
        snprintf(name, bytes, "double_blocks.%lld", (long long)block);
    else
        snprintf(name, bytes, "single_blocks.%lld", (long long)(block - shape->n_layers));
}

bool tm_model_module_at(const tm_model_shape *shape, int64_t i, tm_model_module *out)
{
    const around *a = !tm_model_images(shape) ? &language : shape->flux.guidance ? &guided : &images;
    const int64_t blocks = tm_model_blocks(shape);
    int64_t       front = 0, behind = 0;
    while (a->front[front]) front++;
    while (a->behind[behind]) behind++;
    TM_ASSERT(i >= 0);
    if (i >= front + blocks + behind) return false;
    out->block = i < front ? -1 : i < front + blocks ? i - front : blocks;
    if (i < front)
        snprintf(out->name, sizeof out->name, "%s", a->front[i]);
    else if (i < front + blocks)
        name_block(shape, out->block, out->name, sizeof out->name);
    else
        snprintf(out->name, sizeof out->name, "%s", a->behind[i - front - blocks]);
    return true;
}
