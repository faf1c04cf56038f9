/* SPDX-License-Identifier: Apache-2.0 */
/* tests/oracle/oracle.h - a trainer of small language models in plain loops over double, to judge trainmark's by.
 *
 * It shares no code with src/: no graph, no plan, no kernels. It reads the words of a command line, of which it knows
 * some keys and their documented defaults, and trains on the bytes of texts, or on the random tokens of data.source
 * mock. What it takes from documents is the specification of the random numbers (base/random.h), of the order of data
 * (data/text.c), of dropout, of low precision and of random rounding.
 */
#ifndef TM_TESTS_ORACLE_H
#define TM_TESTS_ORACLE_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    char    name[80]; /* as in checkpoints */
    int     rows, columns;
    bool    matrix, trained, state;  /* of at least two dimensions; by the optimizer; a bias of experts */
    double *w, *g, *m, *v, *average; /* (rows, columns) */
} oracle_parameter;

/* A factor of a product in low precision: the largest magnitude of this step and of those before, newest first. */
enum { ORACLE_HISTORY = 8 };
typedef struct {
    double now, before[ORACLE_HISTORY];
    float  scale;
} oracle_factor;

/* y = x w^T + b, with an adapter (LoRA) or with factors in low precision. */
typedef struct {
    oracle_parameter *w, *b, *low_a, *low_b;
    int               parts, end[3]; /* rows that are a linear of their own */
    char              first[64];     /* name of the first of them */
    oracle_factor     x, of_w[3], dy[3];
} oracle_linear;

typedef struct {
    oracle_parameter *norm[2], *norm_b[2], *router, *expert_up, *expert_down, *bias;
    oracle_linear     qkv, out, up, down;
    /* What a forward pass leaves: rows N. */
    double *x, *normed, *heads, *shares, *mixed, *middle, *normed2, *gate_up, *inner, *scores, *weights;
    int    *chosen;
    double *counts; /* of a step: rows of each expert */
} oracle_layer;

typedef struct {
    int n, counted, *tokens, *targets, *position,
        *first; /* rows; target -1: none; place in its document; its first row */
} oracle_batch;

typedef struct {
    double loss, norm, rate, validation, balance; /* validation: NAN if there was none */
} oracle_step;

typedef struct {
    const char *words;
    /* the model */
    bool   gpt, tied, sigmoid, normalise, per_sequence;
    int    vocab, dim, layers, heads, kv_heads, head, ffn, window, experts, top_k;
    double norm_eps, theta, expert_scale, balance, bias_rate;
    /* the training */
    int      steps, seq, rows, passes; /* rows: sequences of a micro-batch; passes: micro-batches of a step */
    uint64_t seed;
    double   lora_scale, dropout;
    bool     delayed, current, stochastic, recent, round_weights, separate;
    int      history, margin;
    /* state */
    oracle_parameter *parameters, *embedding, *positions, *norm, *norm_b, *output;
    int               n_parameters, step, micro, training;
    oracle_layer     *layer;
    double           *pool, *last, *final, *logits, balanced;
    size_t            used, size;
    int              *stream[2], length[2]; /* tokens of training and of validation */
} oracle;

typedef struct {
    const unsigned char *bytes;
    int                  size;
} oracle_text;

/* A key of the words, or its default. */
double oracle_number(const char *words, const char *key, double fallback);
bool   oracle_is(const char *words, const char *key, const char *value);

oracle           *oracle_open(const char *words, const oracle_text *texts, int n_texts);
void              oracle_close(oracle *o);
oracle_parameter *oracle_find(const oracle *o, const char *name);
/* The first weights to bfloat16. */
void oracle_round(oracle *o);
/* The next step, with its evaluation if one is due. */
oracle_step oracle_train(oracle *o);
/* Sample `index` of training (0) or validation (1) as row `row` of a batch. */
void         oracle_sample(const oracle *o, int split, long index, int row, oracle_batch *batch);
oracle_batch oracle_batch_make(const oracle *o);
void         oracle_batch_free(oracle_batch *batch);

/* model.c: the summed loss of a batch; what it leaves is there until the next one. Gradients of `scale` times the loss
 * (and of what balances experts) are added to those that are there. */
double  oracle_forward(oracle *o, const oracle_batch *batch, bool training);
void    oracle_backward(oracle *o, const oracle_batch *batch, double scale);
double *oracle_take(oracle *o, size_t n); /* zeros, until the next forward pass */

uint64_t oracle_random(uint64_t seed, uint64_t stream, uint64_t index);
uint64_t oracle_stream(const char *name);

#endif
