/* SPDX-License-Identifier: Apache-2.0 */
#include "train/optimizer/optimizer.h"

#include "base/random.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

static const tm_optimizer *const rows[] = {
#define TM_OPTIMIZER(id, name) &tm_optimizer_##id,
#include "train/optimizer/optimizers.def"
#undef TM_OPTIMIZER
};
enum { ROWS = sizeof rows / sizeof rows[0] };

const tm_optimizer *tm_optimizer_at(int i)
{
    return i >= 0 && i < ROWS ? rows[i] : NULL;
}

const tm_optimizer *tm_optimizer_find(const char *name)
{
    for (int i = 0; i < ROWS; i++)
        if (tm_names_equal(rows[i]->name, name)) return rows[i];
    return NULL;
}

/* Is `word` one of those of a list? */
static bool lists(const char *list, char between, const char *word)
{
    size_t length = strlen(word);
    char   ends[2] = { between, 0 };
    for (const char *p = list; *p;) {
        size_t n = strcspn(p, ends);
        if (n == length && strncmp(p, word, n) == 0) return true;
        p += n + (p[n] == between);
    }
    return false;
}

bool tm_optimizer_reads(const tm_optimizer *optimizer, const char *key)
{
    return lists(optimizer->keys, ',', key);
}

bool tm_optimizer_defines(const tm_optimizer *optimizer, const char *whose)
{
    return optimizer->definitions && lists(optimizer->definitions, '|', whose);
}

tm_definition tm_definition_find(const char *whose)
{
    static const char *const names[] = { [TM_DEFINED_TORCHAO] = "torchao",
                                         [TM_DEFINED_BITSANDBYTES] = "bitsandbytes",
                                         [TM_DEFINED_TORCH] = "torch",
                                         [TM_DEFINED_MEGATRON] = "megatron" };
    for (int i = 0; whose && i < (int)(sizeof names / sizeof names[0]); i++)
        if (strcmp(names[i], whose) == 0) return (tm_definition)i;
    return TM_DEFINED_TORCHAO;
}

double tm_hyper_decay(const tm_hyper *hyper, tm_shape parameter)
{
    return hyper->decay_matrices_only && parameter.rank < 2 ? 0 : hyper->weight_decay;
}

static tm_dtype format_of(const tm_graph *graph, const tm_tensor *parameter, tm_state_format format)
{
    switch (format) {
    case TM_STATE_WIDE:
        return graph->precision->wide;
    case TM_STATE_BF16:
        return TM_BF16;
    case TM_STATE_BYTE:
        return TM_U8;
    case TM_STATE_PARAMETER:
        return parameter->dtype;
    case TM_STATE_MOMENT:
        break;
    }
    return graph->precision->moment;
}

static void add_average(tm_graph *graph, double decay, tm_tensor_id weights, tm_tensor_id average)
{
    tm_ema_attr  attr = { .decay = decay };
    tm_tensor_id in[TM_MAX_IN] = { weights, average }, out[TM_MAX_OUT] = { average };
    graph->layer = tm_graph_at(graph, weights)->layer;
    tm_graph_add(graph, TM_OP_ema, &attr, sizeof attr, in, out, 0);
}

/* The weights of a unit, gathered again: every rank comes, whatever it updates. */
static tm_tensor_id gather_again(tm_graph *graph, const tm_node *gather)
{
    const tm_tensor of = *tm_graph_at(graph, gather->out[0]);
    tm_tensor_id    whole = tm_graph_tensor_as(graph, of.name, of.role, of.shape, of.dtype);
    tm_tensor_id    in[TM_MAX_IN] = { gather->in[0] }, out[TM_MAX_OUT] = { whole };
    graph->layer = gather->layer;
    tm_graph_add(graph, gather->op, gather->attr, sizeof(tm_group_attr), in, out, 0);
    return whole;
}

void tm_optimizer_copy(tm_graph *graph, const tm_segment *update)
{
    tm_tensor_id copy = TM_NONE, again = TM_NONE; /* a unit's weights in `update`, and here */
    for (size_t i = 0; i < update->n_nodes; i++) {
        const tm_node *node = &update->nodes[i];
        if (node->op == TM_OP_all_gather && tm_graph_at(graph, node->out[0])->role == TM_ROLE_WEIGHT_COPY) {
            copy = node->out[0];
            again = gather_again(graph, node);
        } else if (node->op == TM_OP_ema) {
            const tm_tensor weights = *tm_graph_at(graph, node->in[0]);
            bool            copied = weights.base != TM_NONE && weights.base == copy;
            add_average(graph, 0,
                        copied ? tm_graph_run(graph, weights.name, again, weights.offset, weights.shape) : node->in[0],
                        node->in[1]);
        }
    }
}

void tm_optimizer_add(tm_graph *graph, const tm_optimizer *optimizer, const tm_hyper *hyper, tm_update update)
{
    tm_tensor          of = *tm_graph_at(graph, update.parameter);
    tm_hyper           own = *hyper;
    tm_optimizer_state states[TM_MAX_STATES];
    char               name[200];
    own.in_block = of.layer >= 0;
    int n = optimizer->states(&own, of.shape, states);
    graph->layer = of.layer;
    for (int k = 0; k < TM_MAX_STATES; k++) update.states[k] = TM_NONE;
    for (int k = 0; k < n; k++) {
        snprintf(name, sizeof name, "%s.%s", of.name, states[k].name);
        update.states[k] =
            tm_graph_tensor_as(graph, name, TM_ROLE_MOMENT, states[k].shape, format_of(graph, &of, states[k].format));
        if (tm_shape_equal(states[k].shape, of.shape)) tm_graph_at(graph, update.states[k])->cut = of.cut;
    }
    /* never 0, which is rounding to nearest */
    update.rounding = hyper->stochastic ? (int64_t)(tm_random_stream(of.name) >> 1 | 1) : 0;
    own.weight_decay = tm_hyper_decay(hyper, of.shape);
    optimizer->emit(graph, &own, &update);
    if (!(own.ema_decay > 0)) return;
    snprintf(name, sizeof name, "%s.%s", of.name, TM_EMA);
    tm_tensor_id average =
        tm_graph_tensor_as(graph, name, TM_ROLE_MOMENT, of.shape, format_of(graph, &of, TM_STATE_WIDE));
    tm_graph_at(graph, average)->cut = of.cut;
    add_average(graph, own.ema_decay, update.parameter, average);
}

tm_tensor_id tm_optimizer_state_of(const tm_graph *graph, tm_tensor_id parameter, const char *name)
{
    const char *owner = tm_graph_at(graph, parameter)->name;
    size_t      n = strlen(owner);
    for (size_t i = 0; i < graph->n_tensors; i++) {
        const tm_tensor *tensor = &graph->tensors[i];
        if (tensor->role == TM_ROLE_MOMENT && strncmp(tensor->name, owner, n) == 0 && tensor->name[n] == '.' &&
            strcmp(tensor->name + n + 1, name) == 0)
            return (tm_tensor_id)i;
    }
    return TM_NONE;
}
