/* SPDX-License-Identifier: Apache-2.0 */
/* train/optimizer/optimizer.h - the table of optimizers: one row in optimizers.def, one file in train/optimizer/ each.
 * The arithmetic is an op of its own (op/); a row says which tensors the op wants beside a parameter and what changes
 * from step to step.
 */
#ifndef TM_TRAIN_OPTIMIZER_H
#define TM_TRAIN_OPTIMIZER_H

#include "graph/graph.h"
#include "op/attrs.h"

/* Who wrote down the rule, where there are several. */
typedef enum { TM_DEFINED_TORCHAO, TM_DEFINED_BITSANDBYTES, TM_DEFINED_TORCH, TM_DEFINED_MEGATRON } tm_definition;

/* The numbers of an optimizer, constant over a run; each row of the table says which of them it reads (`keys`). */
typedef struct {
    double weight_decay;
    bool   decay_matrices_only; /* no weight decay on vectors (norms, biases) */
    double beta1, beta2, eps;   /* AdamW */
    double momentum;            /* SGD, Muon */
    bool   nesterov;
    double beta2_decay, eps1, eps2, clip_threshold; /* Adafactor; eps1 NAN: the weight format's distance from 1 to the
                                                     * next number */
    bool          stochastic;                       /* what is stored in bfloat16 is rounded by chance */
    bool          kahan;        /* AdamW: what rounding takes from a weight is kept, in the weight's format */
    bool          bf16_moments; /* AdamW: moments in bfloat16 whatever the precision says */
    tm_definition definition;   /* of AdamW8bit and Muon */
    tm_muon_scale scale;        /* Muon */
    double        ema_decay;    /* > 0: a moving average of the weights is kept, in the format of statistics */
    bool          in_block;     /* filled in for each parameter: it is one of a block, not embedding or head */
} tm_hyper;

enum { TM_MAX_STATES = 4 };
#define TM_EMA "ema" /* NAME.ema: the average of a parameter, in checkpoints */

/* MOMENT: as the precision says; WIDE: of statistics; PARAMETER: as the parameter is stored. */
typedef enum { TM_STATE_MOMENT, TM_STATE_WIDE, TM_STATE_BF16, TM_STATE_BYTE, TM_STATE_PARAMETER } tm_state_format;

/* A tensor that an optimizer keeps for a parameter; role MOMENT, named after the parameter: "norm.weight.exp_avg". */
typedef struct {
    const char     *name; /* "exp_avg": the name in checkpoints */
    tm_shape        shape;
    tm_state_format format;
} tm_optimizer_state;

/* The published formula that the certificate works an update out by (train/certify/formulas.h). NONE: there is none,
 * and runs say that their updates were not worked out. CODED: AdamW with moments of 8 bits. */
typedef enum {
    TM_FORMULA_NONE,
    TM_FORMULA_ADAMW,
    TM_FORMULA_CODED,
    TM_FORMULA_SGD,
    TM_FORMULA_ADAFACTOR,
    TM_FORMULA_MUON
} tm_formula;

/* What an update works on. */
typedef struct {
    tm_tensor_id parameter, gradient;
    tm_tensor_id states[TM_MAX_STATES]; /* in the order of the row's `states`; TM_NONE beyond them */
    tm_tensor_id scalars;               /* (TM_SCALAR_COUNT) of the parameter's group */
    tm_tensor_id clip;                  /* (2) */
    int64_t      rounding;              /* of op/attrs.h: 0, or the parameter's stream; tm_optimizer_add fills it in */
    int64_t      first;                 /* of a part of a parameter: the element that is the first one here */
} tm_update;

typedef struct {
    const char *name;     /* "AdamW": the value of optimizer.name */
    const char *log_name; /* "adamw": in logs and results */
    const char *keys;     /* "beta1,beta2": members of the section optimizer.* that only some rows read, of this one */
    const char *definitions;  /* "torchao|bitsandbytes": values of optimizer.definition, the first is the default; NULL:
                                 no such */
    const char *weight_decay; /* default of optimizer.weight_decay */
    tm_formula  formula;
    bool elementwise; /* an element's update depends on nothing but that element: parts of tensors can be updated */
    /* Fills out[] with what is kept for a parameter of this shape and returns how many there are. */
    int (*states)(const tm_hyper *hyper, tm_shape parameter, tm_optimizer_state out[TM_MAX_STATES]);
    /* Appends the nodes of the update; hyper->weight_decay is what this parameter decays by. */
    void (*emit)(tm_graph *graph, const tm_hyper *hyper, const tm_update *update);
    /* Writes this row's own scalars of step t (from 1) at learning rate `rate`: those of op/attrs.h behind
     * TM_SCALAR_LEARNING_RATE that are not the step's. */
    void (*scalars)(const tm_hyper *hyper, int64_t t, double rate, double row[TM_SCALAR_COUNT]);
} tm_optimizer;

#define TM_OPTIMIZER(id, name) extern const tm_optimizer tm_optimizer_##id;
#include "train/optimizer/optimizers.def"
#undef TM_OPTIMIZER

/* The i-th row, NULL behind the last; the row of a name (letter case ignored), or NULL. */
const tm_optimizer *tm_optimizer_at(int i);
const tm_optimizer *tm_optimizer_find(const char *name);
/* Does the row read optimizer.KEY, a key that not all rows read? */
bool tm_optimizer_reads(const tm_optimizer *optimizer, const char *key);
/* Is there optimizer.definition WHOSE? Its number; NULL and unknown ones: the first. */
bool          tm_optimizer_defines(const tm_optimizer *optimizer, const char *whose);
tm_definition tm_definition_find(const char *whose);

/* What a parameter of this shape decays by. */
double tm_hyper_decay(const tm_hyper *hyper, tm_shape parameter);
/* Makes the state tensors of a parameter and appends its update; with ema_decay also NAME.ema and its op (op/ema.c),
 * behind the update. The average begins as tm_optimizer_copy leaves it. */
void tm_optimizer_add(tm_graph *graph, const tm_optimizer *optimizer, const tm_hyper *hyper, tm_update update);
/* Appends ema = weights for each average that the nodes of `update` keep; what these gather is gathered. */
void tm_optimizer_copy(tm_graph *graph, const tm_segment *update);
/* The state tensor of a parameter by name ("exp_avg"), TM_NONE if it has none. */
tm_tensor_id tm_optimizer_state_of(const tm_graph *graph, tm_tensor_id parameter, const char *name);

/* The scalars of AdamW: rate and corrections of both moments; for rows that share its form. */
void tm_adamw_scalars(const tm_hyper *hyper, int64_t t, double rate, double row[TM_SCALAR_COUNT]);

#endif
