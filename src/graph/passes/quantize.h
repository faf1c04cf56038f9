/* SPDX-License-Identifier: Apache-2.0 */
/* graph/passes/quantize.h - products in low precision, emulated: a pass puts `quantize` in front of the factors of
 * linear layers, of experts and of the output head, so that they hold only what the codes of a narrow format can say;
 * the products themselves stay as they are, exact and in float32, until passes/codes.h. Gradients are those of the
 * unquantized products (straight through).
 */
#ifndef TM_GRAPH_PASSES_QUANTIZE_H
#define TM_GRAPH_PASSES_QUANTIZE_H

#include "base/text.h"
#include "graph/graph.h"
#include "op/quantize.h"

/* The factors of y = x w^T, dx = dy w and dw = dy^T x. */
typedef enum {
    TM_FACTOR_X,
    TM_FACTOR_W,
    TM_FACTOR_DY, /* of dx */
    TM_FACTOR_W_DX,
    TM_FACTOR_DY_DW,
    TM_FACTOR_X_DW,
    TM_FACTORS
} tm_factor;
const char *tm_factor_name(tm_factor factor); /* "x", "w", "dy", "w.dx", "dy.dw", "x.dw" */

/* How each factor is quantized. */
typedef struct {
    const char  *name, *about;
    tm_quantizer factor[TM_FACTORS];
    int64_t      multiple; /* linears whose inputs or outputs are not multiples of this are left out; 0: refused if they
                            * do not fit */
} tm_quantize_recipe;

/* The table (graph/passes/recipes.c); NULL: there is none of that name, or number. */
const tm_quantize_recipe *tm_quantize_recipe_find(const char *name);
const tm_quantize_recipe *tm_quantize_recipe_at(int i);
/* "fp8_tensorwise, fp8_rowwise, ..." */
void tm_quantize_recipe_names(tm_text *out);

enum { TM_MAX_FILTERS = 32 };

/* Whose products a recipe is for. */
typedef enum { TM_QUANTIZE_LINEARS, TM_QUANTIZE_EXPERTS, TM_QUANTIZE_HEAD, TM_QUANTIZE_KINDS } tm_quantize_kind;

typedef struct {
    bool               on;                       /* anything is quantized */
    bool               by_device;                /* formats of 8 bits are OCP's until a device with others is known */
    tm_quantize_recipe recipe[2];                /* of linears; the second, of all, from switch_step on */
    tm_quantize_recipe experts, head;            /* of these until then. name NULL: they are not quantized */
    int64_t            switch_step;              /* steps done; < 0: never */
    const char        *left_out[TM_MAX_FILTERS]; /* linears whose name has one of these in it stay as they are */
    int                n_left_out;
    const char        *only[TM_MAX_FILTERS]; /* not empty: all others do, of linears */
    int                n_only;
    const char        *only_experts[TM_MAX_FILTERS]; /* and of experts */
    int                n_only_experts;
    bool               skip_small;             /* and those that torchao's auto_filter_small_kn takes out */
    int64_t            first_layer, end_layer; /* layers before and from these on do; end_layer 0: none */
    int64_t            history;                /* steps that a delayed scale looks back */
    bool               recent;                 /* at the last of them only */
    int64_t            margin;
    bool               frozen; /* a planted defect: scales stay what the first step made them */
    uint64_t           seed;   /* of stochastic rounding */
    /* Several ranks: those along these axes of the mesh have other tokens (0: there are none), and delayed scales go by
     * what is largest on any of them, as TransformerEngine reduces it over its amax_reduction_group. Random numbers go
     * by the micro-batches of all of them: so many does a step have on ranks before this one, and behind it. */
    unsigned axes;
    int      ranks;
    int64_t  passes_before, passes_behind;
    int64_t  passes; /* micro-batches of a step on this rank */
    /* Ranks along these axes divide matrices (0: there are none): scales are those of whole tensors. */
    unsigned tensor_axes;
    int      tensor_ranks, tensor_rank;
    bool     several; /* a step is several sums, each of which begins with a first program, or other ranks have some of
                       * the rows: programs add to a record that begins each step as zeros */
} tm_quantize;

/* The recipe of a kind, before or from switch_step on; NULL: it is not quantized. */
const tm_quantize_recipe *tm_quantize_recipe_of(const tm_quantize *policy, tm_quantize_kind kind, bool switched);
/* "fp8_rowwise", "fp8_rowwise+mxfp8 (experts)": the recipes before, or from the switch on. */
const char *tm_quantize_words(const tm_quantize *policy, bool switched, tm_arena *arena);

/* A row of the tables of records and scales: one factor of one linear, of one part of a fused one, of one expert. */
typedef struct {
    tm_tensor_id     weight;
    const char      *name; /* "layers.0.attention.wq", "layers.0.moe.experts.3.w1" */
    tm_factor        factor;
    tm_quantize_kind kind;
    bool             elsewhere; /* of an expert that another rank has: nothing here writes it */
} tm_quantized_row;

typedef struct {
    tm_tensor_id ticks;        /* (2) steps and passes done; TM_NONE: nothing depends on them */
    tm_tensor_id record;       /* (R, 4) of the last step; TM_NONE: nothing is quantized */
    tm_tensor_id found;        /* (R, 4) what programs add to, with tm_quantize.several; at the end of a step it becomes
                                * the record, and zeros again. TM_NONE: the record itself */
    tm_tensor_id      history; /* (R, H) */
    tm_tensor_id      largest; /* (R) of the formats */
    tm_tensor_id      scale;   /* (R) delayed scales; with history and largest TM_NONE: there are none */
    tm_quantized_row *rows;
    size_t            n_rows, rows_capacity;
    int32_t (*first)[TM_FACTORS]; /* (weights) the first row of each factor, -1: it has none */
    size_t n_first, first_capacity;
    size_t n_linears, n_left; /* weights that are quantized, and that are left */
    /* Of a part of a model (tm_quantize_take): the rows of the whole model's tables, of which `rows` are those numbered
     * places[], and this one's micro-batch in the step, () float64, from 1: what lies between the forward and the
     * backward pass of one counts no passes. all NULL, number TM_NONE: this is the whole. */
    tm_quantized_row *all;
    size_t            n_all;
    size_t           *places;
    tm_tensor_id      number;
} tm_quantized;

/* Before the pass. */
static inline tm_quantized tm_quantized_none(void)
{
    return (tm_quantized){ .ticks = TM_NONE,
                           .record = TM_NONE,
                           .found = TM_NONE,
                           .history = TM_NONE,
                           .largest = TM_NONE,
                           .scale = TM_NONE,
                           .number = TM_NONE };
}

/* The rows of the whole model's tables. */
static inline const tm_quantized_row *tm_quantized_all(const tm_quantized *made, size_t *n)
{
    *n = made->all ? made->n_all : made->n_rows;
    return made->all ? made->all : made->rows;
}

/* On the current segment, before the precision pass. The first call makes the tables, later ones use them: training
 * segments come first. training: it records. accumulate: on top of what micro-batches before it found. TM_UNSUPPORTED
 * for a linear that the recipe does not fit, or a filter that takes only some parts of a fused weight. */
TM_MUST_USE tm_status tm_quantize_pass(tm_graph *graph, const tm_quantize *policy, tm_quantized *made, bool training,
                                       bool accumulate, tm_error *err);
/* A part of a model, before its first program: its tables have those rows of `of`, which the pass made of `whole`, a
 * graph of all of the model, whose weights `graph` has; checkpoints know them by their numbers there. */
void tm_quantize_take(tm_graph *graph, const tm_quantize *policy, const tm_graph *whole, const tm_quantized *of,
                      tm_quantized *made);
/* A part of a model: its programs add to the record in any order; in front of all of them it becomes zeros. */
void tm_quantize_clear(tm_graph *graph, const tm_quantized *made);
/* At the end of the update: counters, histories, delayed scales. */
void tm_quantize_update(tm_graph *graph, const tm_quantize *policy, tm_quantized *made);
void tm_quantized_fini(tm_quantized *made);

#endif
