/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/shapes.h"

#include "op/attrs.h"
#include "op/describe.h"
#include "op/quantize.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* --- attention */

typedef struct {
    int64_t           batch;
    tm_attention_attr attr;
    int64_t           first_keys; /* > 0: a first key below it for each query */
    bool              sinks;
    int64_t           gap;
    bool              quick;
} attention_shape;

static const attention_shape attentions[] = {
#define OF(Q, K, OFFSET, H, J, DQK, DV)                                                                                \
    .seq_q = Q, .seq_k = K, .q_offset = OFFSET, .heads = H, .kv_heads = J, .dim_qk = DQK, .dim_v = DV
    { 1, { OF(70, 90, 20, 2, 1, 64, 64), .scale = 0.125, .causal = 1, .window = 50 }, 60, false, 8, true },
    { 1, { OF(77, 77, 0, 2, 1, 128, 128), .scale = 0.09, .causal = 1 }, 0, true, 16, true },
    { 2, { OF(150, 150, 0, 4, 2, 64, 64), .scale = 0.125, .causal = 1 }, 0, false, 128, false },
    { 1, { OF(300, 300, 0, 2, 1, 128, 128), .scale = 0.09, .causal = 1, .window = 70 }, 200, true, 8, false },
    { 2, { OF(131, 197, 66, 2, 2, 96, 96), .scale = 0.1, .causal = 1, .key0 = 9 }, 180, false, 24, false },
    { 1, { OF(200, 130, 7, 3, 1, 72, 104), .scale = 0.1, .causal = 0 }, 130, false, 8, false },
    { 1, { OF(260, 260, 0, 2, 1, 128, 128), .scale = 3.0, .causal = 1 }, 0, false, 0, false }, /* one key has it all */
    { 1, { OF(40, 330, 290, 2, 1, 32, 24), .scale = 0.2, .causal = 1, .window = 33 }, 0, false, 40, false },
    { 1, { OF(1100, 70, 0, 1, 1, 8, 8), .scale = 0.3, .causal = 0 }, 60, true, 0, false },
    { 1, { OF(1900, 9, 0, 1, 1, 8, 8), .scale = 0.3, .causal = 0 }, 6, true, 0, false },
    { 1, { OF(20, 40, 20, 2, 1, 72, 104), .scale = 0.1, .causal = 1, .window = 30 }, 25, true, 3, false },
    { 1, { OF(12, 80, 0, 2, 1, 72, 104), .scale = 0.1, .causal = 1 }, 0, true, 0, false }, /* keys that nobody sees */
    { 1, { OF(80, 24, -70, 2, 1, 4, 4), .scale = 0.4, .causal = 1 }, 0, true, 0, false },  /* queries without keys */
    { 1, { OF(200, 24, -190, 2, 1, 16, 8), .scale = 0.4, .causal = 1 }, 0, false, 8, false },
    { 1, { OF(200, 24, -190, 1, 1, 64, 64), .scale = 0.1, .causal = 1 }, 0, false, 8, false }, /* the same of wgmma's */
    { 1, { OF(12, 200, 0, 2, 1, 128, 128), .scale = 0.1, .causal = 1 }, 0, false, 0, false },
    { 1, { OF(200, 200, 0, 1, 1, 64, 64), .scale = 0.1, .causal = 1, .window = 70 }, 0, false, 8, false },
    { 1, { OF(1900, 9, 0, 1, 1, 64, 64), .scale = 0.1, .causal = 0 }, 6, false, 0, false },
    { 1, { OF(20, 1200, 1180, 2, 1, 64, 64), .scale = 0.1, .causal = 1 }, 0, true, 8, false }, /* many tiles of keys */
    { 1, { OF(20, 700, 638, 2, 1, 128, 128), .scale = 0.1, .causal = 1 }, 0, true, 0, false },
    { 1, { OF(300, 300, 0, 11, 11, 8, 8), .scale = 0.3, .causal = 1, .window = 9 }, 0, false, 0, false }, /* sections */
    { 1, { OF(130, 130, 0, 1, 1, 96, 96), .scale = 0.1, .causal = 0 }, 0, false, 8, false }, /* tiles without an edge */
    { 1, { OF(150, 150, 0, 4, 4, 192, 128), .scale = 0.07, .causal = 1 }, 0, false, 8, false }, /* DeepSeek's */
    { 2, { OF(77, 120, 43, 2, 1, 192, 128), .scale = 0.07, .causal = 1, .window = 50 }, 60, true, 16, false },
    { 1, { OF(200, 130, 7, 2, 1, 136, 192), .scale = 0.07, .causal = 0 }, 130, false, 8, false },
    { 1, { OF(140, 140, 0, 2, 1, 192, 192), .scale = 0.07, .causal = 1 }, 0, false, 8, false },
    { 1, { OF(10, 20, 10, 2, 2, 136, 200), .scale = 0.1, .causal = 1 }, 0, true, 0, false },
    { 2, { OF(20, 30, 0, 2, 1, 264, 300), .scale = 0.06, .causal = 0 }, 0, false, 8, false }, /* scores are stored */
    { 1, { OF(12, 20, 0, 1, 1, 512, 512), .scale = 0.05, .causal = 0 }, 0, false, 0, false },
};

static void make_attention(gpu_shape *s, const attention_shape *of, bool gradients)
{
    const tm_attention_attr *t = &of->attr;
    tm_example              *example = &s->example;
    int                      first = gradients ? 1 : 0, extras = gradients ? 6 : 3;
    int64_t                  rows = of->batch * t->seq_q, keys = of->batch * t->seq_k;
    *s = (gpu_shape){ .gap = of->gap, .quick = of->quick };
    tm_example_begin(example, t, sizeof *t);
    tm_example_in(example, first, TM_ROLE_ACTIVATION, tm_shape_2(rows, t->heads * t->dim_qk), 0, 1);
    tm_example_in(example, first + 1, TM_ROLE_ACTIVATION, tm_shape_2(keys, t->kv_heads * t->dim_qk), 0, 1);
    tm_example_in(example, first + 2, TM_ROLE_ACTIVATION, tm_shape_2(keys, t->kv_heads * t->dim_v), 0, 1);
    if (of->first_keys) tm_example_int(example, extras, tm_shape_1(rows), of->first_keys);
    if (of->sinks) tm_example_in(example, extras + 1, TM_ROLE_PARAMETER, tm_shape_1(t->heads), 0.5, 1);
    if (!gradients) return;
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, tm_shape_2(rows, t->heads * t->dim_v), 0, 1);
    tm_example_in(example, 4, TM_ROLE_ACTIVATION, tm_shape_2(rows, t->heads * t->dim_v), 0, 0.5);
    tm_example_in(example, 5, TM_ROLE_STATISTIC, tm_shape_3(of->batch, t->heads, t->seq_q), log((double)t->seq_k) + 1,
                  0.2);
    if (of->sinks) example->out[3] = tm_shape_1(t->heads);
}

bool gpu_usual_heads(const tm_op *op, int64_t size, gpu_shape *out)
{
    const attention_shape of = { 1,  { OF(70, 90, 20, 2, 1, size, size), .scale = 0.1, .causal = 1, .window = 50 },
                                 60, false,
                                 8,  true };
    if (op != &tm_op_attention && op != &tm_op_attention_grad) return false;
    make_attention(out, &of, op == &tm_op_attention_grad);
    return true;
}

/* --- other ops: an example of theirs whose dimensions are others */

/* Of each op: "EXAMPLE:FROM>TO,FROM>TO", and behind slashes seq and from of embedding_grad, or parts. The quick suite
 * has those with a "!": rows that are multiples of 16 bytes. */
static const struct {
    const tm_op *op;
    const char  *shapes;
} stretched[] = {
    { &tm_op_rope, "!8:391>392 !4:24>8 8: 12:" },
    { &tm_op_rmsnorm, "!1:7>1032 1:7>8400 " /* more than lanes keep */
                      "1:7>1300 1:7>1900 1:7>1301" /* elements one by one, and more than lanes keep of them */ },
    { &tm_op_rmsnorm_grad,
      "!1:7>1032 !1:7>1027 " /* and one that lanes do not keep: sums by a kernel of their own */
      "1:7>8400 1:7>1300 1:7>1900 3:65>1300 3:65>1900 1:3>150 3:65>1301 1:7>301 " /* which a wave does not */
      "3:65>301 1:7>151 " /* three of four runs of a wave; two; those of a block */
      "1:7>101 1:7>601 1:7>8401" },
    { &tm_op_layernorm, "!1:7>1032 1:7>8400 1:7>1300 1:7>1900 2:8>1300 2:8>1900 1:7>1301 2:8>1301" },
    { &tm_op_layernorm_grad, "!1:7>1032 1:7>8400 1:7>1300 1:7>1900 3:65>1300 3:65>1900 1:7>1301 3:65>1301 1:7>301 "
                             "3:65>301 1:7>151 1:7>101 1:7>601 1:7>8401" },
    { &tm_op_bias_grad, "!1:7>24,3>33 1:3>1300 1:3>1475" },
    { &tm_op_cross_entropy,
      "!4:33>2100 " /* several runs of a row for a thread */
      "4:33>1300 4:33>1900 0:1>1300,2>3" /* more rows than a block that sums them has threads */ },
    { &tm_op_cross_entropy_grad, "!4:33>2100 4:33>1300 4:33>1900" },
    { &tm_op_scaled_mm, "!7:50>131,64>330,32>140 " /* more than 128 k, which ends within a run */
                        "!11:32>150,20>277,36>131 0:3>130,5>1,7>1 9:64>300,512>1040,80>264 10:16>129,32>128 "
                        "6:16>258,32>192 8:18>150,144>500,16>20 "
                        "!22:20>150,96>352,36>140 23:36>300,160>480,132>140 20:16>140,128>640,48>130" },
    { &tm_op_linear, "5:70>200,20>136,40>72 5:20>70 5:20>70,40>45 1:3>70,7>70,9>40 2:8>70,9>70,7>40 4:8>70" },
    { &tm_op_linear_dgrad, "5:70>200,20>136,40>136 5:20>45,40>70" },
    { &tm_op_linear_wgrad, "5:70>45,20>70 5:70>72,20>200,40>136" },
    { &tm_op_linear_cross_entropy,
      "3:65>1300 14:100>1300 14:100>1900 9:9>8300,8>3,16>2" /* more rows than a grid has threads */ },
    { &tm_op_linear_cross_entropy_grad, "2:7>1300 2:7>1900" },
    { &tm_op_embedding, "1:9>1300 1:9>1900 3:20>1300 13:19>1300 13:19>1900" },
    { &tm_op_embedding_grad,
      "2:27>1300,5>6000 2:5>8000 3:18>2100 13:40>1300 14:63>1475 13:40>2100,20>2000 " /* parts of positions as long as
                                                                                         the rows */
      "14:63>2100,31>2090 1:6>7,7>1,3>1/1 "                  /* all rows are of one token and of one position */
      "12:500>7,5>1,2>1/1 3:18>7,5>1,4>1 13:40>32,20>10/10 " /* the last rows have no position */
      "13:40>8,20>7/1/1 13:40>1300,20>200/0/1100 "           /* and the first ones */
      "14:63>1300,31>200/0/1100 14:63>3,31>1 14:63>7,40>1 11:200>20,768>300" },
    { &tm_op_adamw, "8: 8:40001>60000 8:40001>51000" },
    { &tm_op_sgd, "6:40001>51000" },
    { &tm_op_ema, "5:40001>60000" },
    { &tm_op_adafactor,
      "8:40001>60000 6:200>130,65>300 5:5>70,13>260 10:3>1030,16>2" /* more matrices than a grid has blocks */ },
    { &tm_op_quantize, "3:300>140 " /* squares of 128, in two tiles of a line */
                       "0:3>64/8 "  /* as many parts as there may be */
                       "2:40>64/8" },
    { &tm_op_quantize_largest, "0:3>64/8 0:3>17000 " /* more tiles than a block has threads */
                               "2:40>64/8 19:60>64/8" },
    { &tm_op_scale_history, "1:3>2" /* nothing but zeros */ },
    { &tm_op_square_sum, "10: 3:1030>1060000" },
    { &tm_op_cast, "9:200>60 9:200>80" },
    { &tm_op_add, "9:200>150,768>300" },
    { &tm_op_fill, "3:65>150" },
    { &tm_op_gelu, "10:200>60 10:200>80" },
    { &tm_op_gelu_grad, "10:200>60 10:200>80" },
    { &tm_op_swiglu, "5:65>150" },
    { &tm_op_swiglu_grad, "5:65>150" },
    { &tm_op_adapted_norm, "2:16>1300 4:70>2100" },
    { &tm_op_rescale, "2: " /* rows of zeros: norms of 0 */
                      "1:5>300" /* more rows than a grid has */ },
    { &tm_op_rescale_wgrad, "2: 1:5>1300 3:70>197" },
    { &tm_op_rescale_add, "3:70>200" },
    { &tm_op_dropout, "2:9>150,65>300 3:33>1300" },
    { &tm_op_scale, "7:200>60 7:200>80" },
    { &tm_op_add_bias, "5:63>150" },
    { &tm_op_joined_norm, "4:2060>24000" },
    { &tm_op_low_rank, "3:70>300 4:65>130" },
    { &tm_op_low_rank_dgrad, "3:70>300" },
    { &tm_op_low_rank_wgrad, "3:70>300 4:65>130" },
    { &tm_op_relu, "10:200>60 10:200>80" },
    { &tm_op_relu_grad, "10:200>60 10:200>80" },
    { &tm_op_silu, "7:200>60 7:200>80" },
    { &tm_op_silu_grad, "7:200>60 7:200>80" },
    { &tm_op_quick_gelu, "7:77>60 7:77>80" },
    { &tm_op_geglu, "4:65>150 4:66>80,33>40" },
    { &tm_op_modulate, "3:65>2100" },
    { &tm_op_swiglu_clamped, "4:65>150 4:66>80,33>40" },
    { &tm_op_swiglu_clamped_grad, "4:65>150 4:66>80,33>40" },
    { &tm_op_latent_keys, "3:33>150" },
    { &tm_op_latent_keys_grad, "3:33>150" },
    { &tm_op_join, "5: 6: 7:" },
    { &tm_op_split, "6: 7:" },
    { &tm_op_put_rows, "2: 2:33>40" },
    { &tm_op_head_norm, "1:7>700,19>1405 " /* and the size of a head */
                        "1:7>300,19>1800 2:9>300 2:8>300,64>1816,16>600 3:" },
    { &tm_op_head_norm_grad, "1:7>700,19>1405 1:7>300,19>1800 2:9>300 2:8>300,64>1816,16>600 3:" },
    { &tm_op_linear_token_losses, "3:65>1300" },
    { &tm_op_linear_token_losses_grad, "2:7>1300" },
    { &tm_op_compare, "1:7>700" },
    { &tm_op_rope_grad, "12:" },
};

typedef struct {
    long example, from[3], to[3], more[2]; /* what is behind the slashes; 0: nothing */
    bool quick;
} stretching;

/* Number k of an op's; false: there are no more. */
static bool stretching_of(const tm_op *op, int k, stretching *out)
{
    const char *text = "";
    for (int row = 0; row < TM_COUNT_OF(stretched); row++)
        if (stretched[row].op == op) text = stretched[row].shapes;
    for (; k > 0; k--) text += strcspn(text, " "), text += *text == ' ';
    if (!*text) return false;
    char *at = (char *)(uintptr_t)text + (*text == '!');
    *out = (stretching){ .quick = *text == '!', .example = strtol(at, &at, 10) };
    for (int i = 0; i < 3 && (*at == ':' || *at == ',') && at[1] != ' ' && at[1]; i++) {
        out->from[i] = strtol(at + 1, &at, 10);
        out->to[i] = strtol(at + 1, &at, 10);
    }
    for (int i = 0; i < 2 && *at == '/'; i++) out->more[i] = strtol(at + 1, &at, 10);
    return true;
}

static void stretch(int64_t *n, const stretching *by)
{
    for (int i = 0; i < 3; i++)
        if (by->from[i] && *n == by->from[i]) {
            *n = by->to[i];
            return;
        }
}

static void stretch_shape(tm_shape *shape, const stretching *by)
{
    for (int d = 0; d < shape->rank; d++) stretch(&shape->n[d], by);
}

/* Its lines in so many parts. */
static void divide(tm_example *example, int64_t parts)
{
    tm_quantize_attr *attr = (void *)example->attr;
    int64_t           lines = example->in[0].n[0];
    attr->n_parts = (int32_t)parts;
    for (int64_t i = 0; i < parts; i++) attr->end[i] = (int32_t)(lines * (i + 1) / parts);
    if (example->out[1].rank > 0) example->out[1].n[0] = parts;
}

static void make_stretched(gpu_shape *s, const tm_op *op, const stretching *by)
{
    tm_example *e = &s->example;
    *s = (gpu_shape){ .quick = by->quick };
    if (!op->example((int)by->example, e)) abort();
    for (int k = 0; k < op->n_in; k++) stretch_shape(&e->in[k], by), stretch(&e->limit[k], by);
    for (int k = 0; k < op->n_out; k++) stretch_shape(&e->out[k], by);
    if (op == &tm_op_head_norm || op == &tm_op_head_norm_grad)
        stretch(&((tm_head_norm_attr *)(void *)e->attr)->head_dim, by);
    if ((op == &tm_op_rescale || op == &tm_op_rescale_wgrad) && !by->from[0])
        e->offset[2] = 0, e->scale[2] = 1e-300; /* 0 in float32 */
    if (op == &tm_op_quantize_largest && by->to[0] > 64) divide(e, 1);
    if ((op == &tm_op_quantize || op == &tm_op_quantize_largest) && by->more[0]) divide(e, by->more[0]);
    for (int k = 1; k < 3 && op == &tm_op_scale_history; k++) e->offset[k] = e->scale[k] = 0;
    for (int side = 0; side < 2 && op == &tm_op_scaled_mm; side++) {
        int kind = tm_scaled_kind(e->attr, side);
        if (kind > TM_CODES_PLAIN) e->in[2 + side].n[0] = tm_codes_scales(kind, e->in[side].n[0], e->in[side].n[1]);
    }
    if (op == &tm_op_scaled_mm && e->in[5].rank < 0 && e->dtype[0] != TM_E2M1)
        s->gap = 16; /* a matrix is added to a whole one; of codes of 4 bits rows would begin between bytes */
    if (op == &tm_op_embedding_grad) {
        tm_embedding_attr *attr = (void *)e->attr;
        stretch(&attr->rows, by);
        if (by->more[0]) attr->seq = by->more[0];
        if (by->more[1]) attr->from = by->more[1];
    }
}

/* --- updates that round by chance: float32, where that is nothing; bfloat16 has a CPU's bits (test_optimizers.c) */

static const struct {
    const tm_op *op;
    int          number; /* of the example */
    size_t       rounding;
} by_chance[] = {
    { &tm_op_adamw, 3, offsetof(tm_adamw_attr, rounding) },
    { &tm_op_adamw8, 2, offsetof(tm_adamw8_attr, rounding) },
    { &tm_op_sgd, 3, offsetof(tm_sgd_attr, rounding) },
    { &tm_op_sgd, 2, offsetof(tm_sgd_attr, rounding) },
    { &tm_op_muon, 1, offsetof(tm_muon_attr, rounding) },
    { &tm_op_adafactor, 1, offsetof(tm_adafactor_attr, rounding) },
    { &tm_op_adafactor, 2, offsetof(tm_adafactor_attr, rounding) },
};

static void make_by_chance(gpu_shape *s, int row)
{
    const tm_rounding_stream stream = 0x123456789abc;
    *s = (gpu_shape){ .quick = true, .f32 = true };
    if (!by_chance[row].op->example(by_chance[row].number, &s->example)) abort();
    memcpy(s->example.attr + by_chance[row].rounding, &stream, sizeof stream);
}

bool gpu_shape_of(const tm_op *op, int k, gpu_shape *out)
{
    bool gradients = op == &tm_op_attention_grad;
    if (gpu_expert_shape_of(op, k, out)) return true;
    for (int row = 0; row < TM_COUNT_OF(attentions) && (gradients || op == &tm_op_attention); row++) {
        if (gradients && attentions[row].attr.scale > 1) continue; /* of random lse: probabilities beyond float32 */
        make_attention(out, &attentions[row], gradients);
        if (k-- == 0) return true;
    }
    stretching by;
    int        n = 0;
    while (n <= k && stretching_of(op, n, &by)) n++;
    if (n > k) {
        make_stretched(out, op, &by);
        return true;
    }
    k -= n;
    for (int row = 0; row < TM_COUNT_OF(by_chance); row++) {
        if (by_chance[row].op != op || k-- > 0) continue;
        make_by_chance(out, row);
        return true;
    }
    static const long elements[] = { 40001, 60000, 51000 };
    if (op != &tm_op_adamw || k >= TM_COUNT_OF(elements)) return false;
    *out = (gpu_shape){ .f32 = true }; /* what weights of bfloat16 lose is kept beside them: in float32 there is none */
    if (!op->example(8, &out->example)) abort();
    for (int i = 0; i < TM_MAX_IN; i++)
        stretch_shape(&out->example.in[i], &(stretching){ .from = { 40001 }, .to = { elements[k] } });
    for (int i = 0; i < 3; i++) out->example.out[i] = out->example.in[0];
    tm_example_in(&out->example, 6, TM_ROLE_PARAMETER, out->example.in[0], 0, 0.01);
    out->example.out[3] = out->example.in[0];
    return true;
}
