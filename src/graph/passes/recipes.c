/* SPDX-License-Identifier: Apache-2.0 */
/* graph/passes/recipes.c - the published recipes of low precision: formats, what shares a scale, rule of the scale,
 * rotation, of each factor. Sources: docs/low-precision.md. */
#include "graph/passes/quantize.h"

#include "base/text.h"

#include <string.h>

#define AS_IS                                                                                                          \
    {                                                                                                                  \
        .scaled = TM_SCALED_NOT                                                                                        \
    }
#define TENSOR(dtype, how, eps)                                                                                        \
    {                                                                                                                  \
        .format = TM_##dtype, .scaled = TM_SCALED_TENSOR, .rule = TM_RULE_##how, .least = eps                          \
    }
#define DELAYED(dtype)                                                                                                 \
    {                                                                                                                  \
        .format = TM_##dtype, .scaled = TM_SCALED_DELAYED, .rule = TM_RULE_RATIO                                       \
    }
#define LINE(dtype, how, eps)                                                                                          \
    {                                                                                                                  \
        .format = TM_##dtype, .scaled = TM_SCALED_LINE, .rule = TM_RULE_##how, .least = eps                            \
    }
#define BLOCK(dtype, how, size)                                                                                        \
    {                                                                                                                  \
        .format = TM_##dtype, .scaled = TM_SCALED_BLOCK, .rule = TM_RULE_##how, .block = size                          \
    }
#define SQUARE(dtype, how, size)                                                                                       \
    {                                                                                                                  \
        .format = TM_##dtype, .scaled = TM_SCALED_SQUARE, .rule = TM_RULE_##how, .block = size                         \
    }
#define BLOCK_WITH(dtype, how, size, ...)                                                                              \
    {                                                                                                                  \
        .format = TM_##dtype, .scaled = TM_SCALED_BLOCK, .rule = TM_RULE_##how, .block = size, __VA_ARGS__             \
    }
#define SQUARE_WITH(dtype, how, size, ...)                                                                             \
    {                                                                                                                  \
        .format = TM_##dtype, .scaled = TM_SCALED_SQUARE, .rule = TM_RULE_##how, .block = size, __VA_ARGS__            \
    }
#define EMPTY_ONE .empty_one = 1
#define H16 .rotation = TM_ROTATE_16
#define SIGNED_H16 .rotation = TM_ROTATE_16_SIGNED

/* Factors in the order of tm_factor: x, w; dy, w; dy, x. */
static const tm_quantize_recipe recipes[] = {
    { .name = "fp8_tensorwise",
      .about = "torchao tensorwise: e4m3, gradients e5m2, one scale of this step per tensor",
      .factor = { TENSOR(E4M3, RATIO, 1e-12f), TENSOR(E4M3, RATIO, 1e-12f), TENSOR(E5M2, RATIO, 1e-12f),
                  TENSOR(E4M3, RATIO, 1e-12f), TENSOR(E5M2, RATIO, 1e-12f), TENSOR(E4M3, RATIO, 1e-12f) },
      .multiple = 16 },
    { .name = "fp8_rowwise",
      .about = "torchao rowwise: e4m3, a power of two per line of each product",
      .factor = { LINE(E4M3, RATIO_POW2, 1e-12f), LINE(E4M3, RATIO_POW2, 1e-12f), LINE(E4M3, RATIO_POW2, 1e-12f),
                  LINE(E4M3, RATIO_POW2, 1e-12f), LINE(E4M3, RATIO_POW2, 1e-12f), LINE(E4M3, RATIO_POW2, 1e-12f) },
      .multiple = 16 },
    { .name = "fp8_rowwise_with_gw_hp",
      .about = "torchao rowwise_with_gw_hp: as rowwise, w of dx with one scale, dw not quantized",
      .factor = { LINE(E4M3, RATIO_POW2, 1e-12f), LINE(E4M3, RATIO_POW2, 1e-12f), LINE(E4M3, RATIO_POW2, 1e-12f),
                  TENSOR(E4M3, RATIO_POW2, 1e-12f), AS_IS, AS_IS },
      .multiple = 16 },
    { .name = "fp8_delayed",
      .about = "TransformerEngine delayed: e4m3, gradients e5m2, scales of earlier steps",
      .factor = { DELAYED(E4M3), DELAYED(E4M3), DELAYED(E5M2), DELAYED(E4M3), DELAYED(E5M2), DELAYED(E4M3) },
      .multiple = 16 },
    { .name = "fp8_current",
      .about = "TransformerEngine current: e4m3, gradients e5m2, one scale of this step per tensor",
      .factor = { TENSOR(E4M3, RATIO, 0), TENSOR(E4M3, RATIO, 0), TENSOR(E5M2, RATIO, 0), TENSOR(E4M3, RATIO, 0),
                  TENSOR(E5M2, RATIO, 0), TENSOR(E4M3, RATIO, 0) },
      .multiple = 16 },
    { .name = "fp8_blockwise",
      .about = "TransformerEngine blockwise: e4m3, powers of two, x and dy 1 x 128, w 128 x 128",
      .factor = { BLOCK(E4M3, RATIO_POW2, 128), SQUARE(E4M3, RATIO_POW2, 128), BLOCK(E4M3, RATIO_POW2, 128),
                  SQUARE(E4M3, RATIO_POW2, 128), BLOCK(E4M3, RATIO_POW2, 128), BLOCK(E4M3, RATIO_POW2, 128) },
      .multiple = 16 },
    { .name = "fp8_blockwise_turbo",
      .about = "Primus-Turbo blockwise: as above, float32 scales of at least 1e-4",
      .factor = { BLOCK_WITH(E4M3, RATIO, 128, .least = 1e-4f), SQUARE_WITH(E4M3, RATIO, 128, .least = 1e-4f),
                  BLOCK_WITH(E4M3, RATIO, 128, .least = 1e-4f), SQUARE_WITH(E4M3, RATIO, 128, .least = 1e-4f),
                  BLOCK_WITH(E4M3, RATIO, 128, .least = 1e-4f), BLOCK_WITH(E4M3, RATIO, 128, .least = 1e-4f) },
      .multiple = 16 },
    { .name = "mxfp8",
      .about = "torchao and TransformerEngine MXFP8: e4m3, 1 x 32, scales rounded up",
      .factor = { BLOCK(E4M3, UP, 32), BLOCK(E4M3, UP, 32), BLOCK(E4M3, UP, 32), BLOCK(E4M3, UP, 32),
                  BLOCK(E4M3, UP, 32), BLOCK(E4M3, UP, 32) } },
    { .name = "mxfp8_turbo",
      .about = "Primus-Turbo MXFP8: e4m3, x and dy 1 x 32, w 32 x 32, scales rounded to even",
      .factor = { BLOCK(E4M3, EVEN, 32), SQUARE(E4M3, EVEN, 32), BLOCK(E4M3, EVEN, 32), SQUARE(E4M3, EVEN, 32),
                  BLOCK(E4M3, EVEN, 32), BLOCK(E4M3, EVEN, 32) } },
    { .name = "mxfp6_e3m2",
      .about = "OCP MX 1.0, MXFP6: e3m2, 1 x 32, scales by its rule (floor)",
      .factor = { BLOCK(E3M2, FLOOR, 32), BLOCK(E3M2, FLOOR, 32), BLOCK(E3M2, FLOOR, 32), BLOCK(E3M2, FLOOR, 32),
                  BLOCK(E3M2, FLOOR, 32), BLOCK(E3M2, FLOOR, 32) } },
    { .name = "mxfp6_e2m3",
      .about = "OCP MX 1.0, MXFP6: e2m3, 1 x 32, scales by its rule (floor)",
      .factor = { BLOCK(E2M3, FLOOR, 32), BLOCK(E2M3, FLOOR, 32), BLOCK(E2M3, FLOOR, 32), BLOCK(E2M3, FLOOR, 32),
                  BLOCK(E2M3, FLOOR, 32), BLOCK(E2M3, FLOOR, 32) } },
    { .name = "mxfp4",
      .about = "MLPerf Training 6.0 MXFP4: e2m1, 1 x 32, scales rounded to even, all factors rotated",
      .factor = { BLOCK_WITH(E2M1, EVEN, 32, EMPTY_ONE, H16), BLOCK_WITH(E2M1, EVEN, 32, EMPTY_ONE, H16),
                  BLOCK_WITH(E2M1, EVEN, 32, EMPTY_ONE, H16), BLOCK_WITH(E2M1, EVEN, 32, EMPTY_ONE, H16),
                  BLOCK_WITH(E2M1, EVEN, 32, EMPTY_ONE, H16), BLOCK_WITH(E2M1, EVEN, 32, EMPTY_ONE, H16) } },
    { .name = "mxfp4_turbo",
      .about = "Primus-Turbo MXFP4: e2m1, x and dy 1 x 32, w 32 x 32, scales rounded to even, factors of dw rotated",
      .factor = { BLOCK(E2M1, EVEN, 32), SQUARE(E2M1, EVEN, 32), BLOCK(E2M1, EVEN, 32), SQUARE(E2M1, EVEN, 32),
                  BLOCK_WITH(E2M1, EVEN, 32, H16), BLOCK_WITH(E2M1, EVEN, 32, H16) } },
    { .name = "nvfp4",
      .about =
          "NVFP4: e2m1, e4m3 scales of 1 x 16 (w 16 x 16) and one of the tensor, factors of dw rotated with signs, "
          "dy rounded stochastically",
      .factor = { BLOCK(E2M1, TWO_LEVEL, 16), SQUARE(E2M1, TWO_LEVEL, 16),
                  BLOCK_WITH(E2M1, TWO_LEVEL, 16, .stochastic = 1), SQUARE(E2M1, TWO_LEVEL, 16),
                  BLOCK_WITH(E2M1, TWO_LEVEL, 16, .stochastic = 1, SIGNED_H16),
                  BLOCK_WITH(E2M1, TWO_LEVEL, 16, SIGNED_H16) } },
};
enum { RECIPES = sizeof recipes / sizeof recipes[0] };

const tm_quantize_recipe *tm_quantize_recipe_at(int i)
{
    return i >= 0 && i < RECIPES ? &recipes[i] : NULL;
}

const tm_quantize_recipe *tm_quantize_recipe_find(const char *name)
{
    for (int i = 0; i < RECIPES; i++)
        if (strcmp(recipes[i].name, name) == 0) return &recipes[i];
    return NULL;
}

void tm_quantize_recipe_names(tm_text *out)
{
    for (int i = 0; i < RECIPES; i++) tm_text_printf(out, "%s%s", i ? ", " : "", recipes[i].name);
}

const tm_quantize_recipe *tm_quantize_recipe_of(const tm_quantize *policy, tm_quantize_kind kind, bool switched)
{
    const tm_quantize_recipe *of[] = { [TM_QUANTIZE_LINEARS] = &policy->recipe[0],
                                       [TM_QUANTIZE_EXPERTS] = &policy->experts,
                                       [TM_QUANTIZE_HEAD] = &policy->head };
    if (!of[kind]->name) return NULL;
    return switched && policy->switch_step >= 0 ? &policy->recipe[1] : of[kind];
}

const char *tm_quantize_words(const tm_quantize *policy, bool switched, tm_arena *arena)
{
    static const char *const whose[] = { "", " (experts)", " (output head)" };
    const char              *words = "";
    if (switched) return policy->recipe[1].name;
    for (int k = 0; k < TM_QUANTIZE_KINDS; k++) {
        const tm_quantize_recipe *recipe = tm_quantize_recipe_of(policy, (tm_quantize_kind)k, false);
        if (recipe) words = tm_arena_format(arena, "%s%s%s%s", words, *words ? "+" : "", recipe->name, whose[k]);
    }
    return words;
}

const char *tm_factor_name(tm_factor factor)
{
    static const char *const names[TM_FACTORS] = { "x", "w", "dy", "w.dx", "dy.dw", "x.dw" };
    return names[factor];
}
