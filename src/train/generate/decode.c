/* SPDX-License-Identifier: Apache-2.0 */
/* train/generate/decode.c - the next token: logits on the device, keys and values of earlier tokens in tables. */
#include "train/generate/decode.h"

#include "op/attrs.h"
#include "train/trainer/init.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 32 /* tokens of a prompt at a time */, MAX_TABLES = 8, ONE = 0, MANY = 1 };

/* Where the tokens of a call go in tables of `rows` rows. */
typedef struct {
    int64_t      rows;
    tm_tensor_id row, first; /* (n) int32 */
} table_inputs;

typedef struct {
    int64_t           n;                         /* tokens; 0: there is no such program */
    tm_tensor_id      tokens, positions, logits; /* logits: of ONE */
    table_inputs      tables[MAX_TABLES];
    int               n_tables;
    const tm_program *program;
} call;

struct tm_decoder {
    tm_model_shape shape;
    tm_precision   precision;
    int64_t        length, position;
    tm_graph      *graph;
    tm_model       model;
    tm_tensor_id  *keys, *values; /* of each attention in the order of the model */
    size_t         n_attentions, capacity;
    call           calls[2];
    tm_forward     forward;
    bool           windowed; /* tables turn: one token at a time */
};

/* --- the graph ---------------------------------------------------------------------------------------------------- */

static tm_tensor_id input(tm_decoder *d, const char *what, int64_t n, int64_t rows)
{
    char name[80];
    snprintf(name, sizeof name, "%s.%lld.%lld", what, (long long)n, (long long)rows);
    return tm_graph_tensor_as(d->graph, name, TM_ROLE_INPUT, tm_shape_1(n), TM_I32);
}

static const table_inputs *inputs_of(tm_decoder *d, call *c, int64_t rows)
{
    for (int i = 0; i < c->n_tables; i++)
        if (c->tables[i].rows == rows) return &c->tables[i];
    TM_ASSERT(c->n_tables < MAX_TABLES);
    c->tables[c->n_tables] = (table_inputs){ rows, input(d, "row", c->n, rows), input(d, "first", c->n, rows) };
    return &c->tables[c->n_tables++];
}

static tm_tensor_id table_for(tm_decoder *d, const char *what, size_t at, tm_tensor_id like, int64_t rows)
{
    char      name[80];
    tm_tensor of = *tm_graph_at(d->graph, like);
    snprintf(name, sizeof name, "%s.%zu", what, at);
    return tm_graph_tensor_as(d->graph, name, TM_ROLE_STATE, tm_shape_2(rows, of.shape.n[1]), of.dtype);
}

static void put(tm_decoder *d, const tm_node *user, tm_tensor_id table, tm_tensor_id x, tm_tensor_id row)
{
    tm_tensor_id in[TM_MAX_IN] = { table, x, row }, out[TM_MAX_OUT] = { table };
    d->graph->module = user->module;
    tm_graph_add(d->graph, TM_OP_put_rows, NULL, 0, in, out, 0);
}

/* Attention number `at` of the model looks at its table. */
static void lead_attention(tm_decoder *d, call *c, tm_node *node, size_t at)
{
    tm_attention_attr *attr = tm_arena_take(d->graph->arena, sizeof *attr);
    memcpy(attr, node->attr, sizeof *attr);
    int64_t rows = attr->window > 0 && attr->window < d->length ? attr->window : d->length;
    d->windowed |= rows < d->length;
    TM_ASSERT(attr->causal && node->in[3] == TM_NONE);
    if (at == d->n_attentions) {
        size_t other = d->capacity;
        d->keys = tm_grow(d->keys, &d->capacity, at, sizeof *d->keys);
        d->values = tm_grow(d->values, &other, at, sizeof *d->values);
        d->keys[at] = table_for(d, "keys", at, node->in[1], rows);
        d->values[at] = table_for(d, "values", at, node->in[2], rows);
        d->n_attentions++;
    }
    const table_inputs *inputs = inputs_of(d, c, rows);
    put(d, node, d->keys[at], node->in[1], inputs->row);
    put(d, node, d->values[at], node->in[2], inputs->row);
    attr->seq_k = rows;
    attr->q_offset = attr->causal = attr->window = 0;
    node->attr = attr;
    node->in[1] = d->keys[at];
    node->in[2] = d->values[at];
    node->in[3] = inputs->first;
}

static void append(tm_segment *segment, const tm_node *node)
{
    segment->nodes = tm_grow(segment->nodes, &segment->capacity, segment->n_nodes, sizeof *segment->nodes);
    segment->nodes[segment->n_nodes++] = *node;
}

/* The nodes of the builder, with positions and tables. */
static void lead_all(tm_decoder *d, call *c)
{
    tm_segment *segment = d->graph->segment, was = *segment;
    size_t      attentions = 0;
    *segment = (tm_segment){ .name = was.name };
    for (size_t i = 0; i < was.n_nodes; i++) {
        tm_node node = was.nodes[i];
        if (node.op == TM_OP_rope) node.in[2] = c->positions;
        if (node.op == TM_OP_embedding && node.in[2] != TM_NONE) node.in[3] = c->positions;
        if (node.op == TM_OP_attention) lead_attention(d, c, &node, attentions++);
        append(segment, &node);
    }
    free(was.nodes);
}

/* The constants of a decoder have a row for each position: as many as the call has tokens while the builder looks at
 * them. */
static void cut_tables(tm_decoder *d, int64_t from, int64_t to)
{
    for (size_t i = 0; i < d->graph->n_tensors; i++) {
        tm_tensor *tensor = &d->graph->tensors[i];
        if (tensor->role != TM_ROLE_CONSTANT) continue;
        TM_ASSERT(tensor->shape.rank == 2 && tensor->shape.n[0] == from);
        tensor->shape.n[0] = to;
    }
}

static void build_call(tm_decoder *d, call *c, const char *name, int64_t n)
{
    *c = (call){ .n = n, .logits = TM_NONE };
    c->tokens = input(d, "tokens", n, 0);
    c->positions = input(d, "positions", n, 0);
    tm_graph_segment(d->graph, name);
    d->model.seq = n;
    cut_tables(d, d->length, n);
    tm_tensor_id hidden = tm_model_hidden(d->graph, &d->model, c->tokens);
    cut_tables(d, n, d->length);
    lead_all(d, c);
    if (n > 1) return;
    c->logits = tm_graph_tensor(d->graph, "logits", TM_ROLE_LOGITS, tm_shape_2(1, d->shape.vocab_size));
    tm_tensor_id in[TM_MAX_IN] = { hidden, d->model.head }, out[TM_MAX_OUT] = { c->logits };
    for (int i = 2; i < TM_MAX_IN; i++) in[i] = TM_NONE;
    d->graph->module = "output";
    tm_graph_add(d->graph, TM_OP_linear, NULL, 0, in, out, 0);
}

static void build(tm_decoder *d, int64_t prompt)
{
    d->graph = tm_graph_create(&d->precision);
    tm_model_declare(d->graph, &d->shape, d->length, NULL, &d->model);
    tm_model_grow(d->graph, &d->model, prompt);
    build_call(d, &d->calls[ONE], "one", 1);
    if (!d->windowed && d->length > CHUNK) build_call(d, &d->calls[MANY], "many", CHUNK);
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

tm_status tm_decoder_open(tm_device *device, const tm_model_shape *shape, const tm_precision *precision, int64_t length,
                          int64_t prompt, tm_decoder **out, tm_error *err)
{
    tm_decoder *d = tm_alloc(sizeof *d);
    TM_ASSERT(length >= 2 && length <= tm_model_max_length(shape));
    d->shape = *shape;
    d->precision = *precision;
    d->precision.parameter = precision->compute; /* no weight needs a copy */
    d->length = length;
    build(d, prompt);
    tm_status st = tm_forward_open(device, d->graph, d->calls[ONE].logits, &d->forward, err);
    if (st == TM_OK) st = tm_init_constants(d->forward.plan, device, &d->forward.memory, d->forward.threads, err);
    if (st != TM_OK) {
        tm_decoder_close(d);
        return st;
    }
    d->calls[ONE].program = tm_plan_program(d->forward.plan, "one");
    d->calls[MANY].program = tm_plan_program(d->forward.plan, "many");
    *out = d;
    return TM_OK;
}

void tm_decoder_close(tm_decoder *d)
{
    if (!d) return;
    tm_forward_close(&d->forward);
    tm_graph_destroy(d->graph);
    free(d->keys);
    free(d->values);
    free(d);
}

tm_forward *tm_decoder_forward(tm_decoder *decoder)
{
    return &decoder->forward;
}

/* --- running ------------------------------------------------------------------------------------------------------ */

/* `have` tokens of c->n; those behind them are placeholders, which lie before all that anybody sees. */
static tm_status run(tm_decoder *d, const call *c, const int32_t *tokens, int64_t have, tm_error *err)
{
    int32_t id[CHUNK] = { 0 }, position[CHUNK], row[MAX_TABLES][CHUNK], first[MAX_TABLES][CHUNK];
    TM_ASSERT(have <= c->n && c->n <= CHUNK && d->position + c->n <= d->length);
    memcpy(id, tokens, (size_t)have * sizeof *id);
    for (int64_t i = 0; i < c->n; i++) {
        int64_t p = d->position + i;
        position[i] = (int32_t)p;
        for (int t = 0; t < c->n_tables; t++) {
            int64_t rows = c->tables[t].rows, start = rows - 1 - p;
            row[t][i] = (int32_t)(rows - 1 - p % rows);
            first[t][i] = (int32_t)(start > 0 ? start : 0);
        }
    }
    TM_TRY(tm_forward_put(&d->forward, c->tokens, id, err));
    TM_TRY(tm_forward_put(&d->forward, c->positions, position, err));
    for (int t = 0; t < c->n_tables; t++) {
        TM_TRY(tm_forward_put(&d->forward, c->tables[t].row, row[t], err));
        TM_TRY(tm_forward_put(&d->forward, c->tables[t].first, first[t], err));
    }
    TM_TRY(tm_device_run(d->forward.device, c->program, NULL, err));
    d->position += have;
    return tm_device_wait(d->forward.device, err);
}

tm_status tm_decoder_feed(tm_decoder *d, const int32_t *tokens, int64_t n, double *logits, tm_error *err)
{
    const call *one = &d->calls[ONE], *many = &d->calls[MANY];
    TM_ASSERT(n >= 1 && d->position + n <= d->length);
    while (n > 1) { /* the last one by itself: it alone has logits */
        bool    room = many->program && d->position + CHUNK <= d->length;
        int64_t part = !room ? 1 : n - 1 < CHUNK ? n - 1 : CHUNK;
        TM_TRY(run(d, room ? many : one, tokens, part, err));
        tokens += part;
        n -= part;
    }
    TM_TRY(run(d, one, tokens, 1, err));
    TM_TRY(tm_forward_read(&d->forward, err));
    for (int64_t v = 0; v < d->shape.vocab_size; v++) logits[v] = tm_forward_value(&d->forward, v);
    return TM_OK;
}

int64_t tm_decoder_position(const tm_decoder *decoder)
{
    return decoder->position;
}

void tm_decoder_restart(tm_decoder *decoder)
{
    decoder->position = 0;
}
