/* SPDX-License-Identifier: Apache-2.0 */
#include "train/checkpoint/description.h"

#include <stddef.h>
#include <string.h>

/* A member of tm_model_shape is a row (tests/train/test_description_rows.sh). */
static const struct {
    const char *name;
    enum { I64, F64, FLAG, NUMBER, WORD } kind; /* NUMBER: of an enumeration; WORD: text without blanks */
    size_t at;
} rows[] = {
#define ROW(kind, member)                                                                                              \
    {                                                                                                                  \
#member, kind, offsetof(tm_model_shape, member)                                                                \
    }
    ROW(I64, vocab_size),
    ROW(I64, dim),
    ROW(I64, n_layers),
    ROW(I64, n_heads),
    ROW(I64, n_kv_heads),
    ROW(I64, head_dim),
    ROW(I64, ffn_dim),
    ROW(F64, norm_eps),
    ROW(F64, rope_theta),
    ROW(FLAG, rope_scaled),
    ROW(F64, rope_scaling_factor),
    ROW(F64, rope_low_freq_factor),
    ROW(F64, rope_high_freq_factor),
    ROW(I64, rope_original_max_seq_len),
    ROW(FLAG, rope_linear),
    ROW(I64, rope_dynamic_from),
    ROW(FLAG, rope_interleaved),
    ROW(FLAG, tied),
    ROW(I64, window),
    ROW(FLAG, qk_norm),
    ROW(NUMBER, bias),
    ROW(I64, window_every),
    ROW(FLAG, sinks),
    ROW(FLAG, clamped),
    ROW(I64, mla.q_rank),
    ROW(I64, mla.kv_rank),
    ROW(I64, mla.nope),
    ROW(I64, mla.rope),
    ROW(I64, mla.v),
    ROW(FLAG, yarn.on),
    ROW(FLAG, yarn.truncate),
    ROW(F64, yarn.beta_fast),
    ROW(F64, yarn.beta_slow),
    ROW(F64, yarn.mscale),
    ROW(F64, yarn.mscale_all_dim),
    ROW(F64, yarn.attention_factor),
    ROW(I64, moe.experts),
    ROW(I64, moe.top_k),
    ROW(I64, moe.ffn_dim),
    ROW(I64, moe.shared),
    ROW(I64, moe.dense_layers),
    ROW(WORD, moe.pattern),
    ROW(FLAG, moe.sigmoid),
    ROW(FLAG, moe.normalise),
    ROW(FLAG, moe.uniform),
    ROW(F64, moe.scale),
    ROW(I64, moe.groups),
    ROW(I64, moe.top_groups),
    ROW(I64, moe.group_best),
    ROW(FLAG, moe.biased),
    ROW(I64, flux.n_single),
    ROW(I64, flux.text_len),
    ROW(I64, flux.rows),
    ROW(I64, flux.columns),
    ROW(I64, flux.text_dim),
    ROW(I64, flux.vector_dim),
    ROW(I64, flux.channels),
    ROW(I64, flux.time_dim),
    ROW(I64, flux.axes[0]),
    ROW(I64, flux.axes[1]),
    ROW(FLAG, flux.guidance),
    ROW(F64, flux.guidance_scale),
#undef ROW
};

void tm_description_print(const tm_model_shape *shape, tm_text *out)
{
    tm_text_printf(out, "family %s\n", tm_model_family_name(shape));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *at = (const char *)shape + rows[i].at;
        char        text[32];
        if (rows[i].kind == WORD) {
            if (*at) tm_text_printf(out, "%s %s\n", rows[i].name, at);
            continue;
        }
        double value = rows[i].kind == I64    ? (double)*(const int64_t *)at
                       : rows[i].kind == F64  ? *(const double *)at
                       : rows[i].kind == FLAG ? (double)*(const bool *)at
                                              : (double)*(const tm_model_bias *)at;
        if (value < 0 || value > 0) tm_text_printf(out, "%s %s\n", rows[i].name, tm_format_double(text, value));
    }
}

/* The value behind the line's name, "0" if there is no such line; its length. */
static const char *value_of(const char *text, const char *name, size_t length, int *n)
{
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n')
        if (strncmp(line, name, length) == 0 && line[length] == ' ') {
            *n = (int)strcspn(line + length + 1, "\n");
            return line + length + 1;
        }
    *n = 1;
    return "0";
}

/* Every line of `from` against the other text. */
static tm_status compare(const char *from, const char *found, const char *wanted, tm_error *err)
{
    for (const char *line = from; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        size_t      length = strcspn(line, " \n");
        int         a, b;
        const char *was = value_of(found, line, length, &a), *is = value_of(wanted, line, length, &b);
        if (a != b || memcmp(was, is, (size_t)a) != 0)
            return tm_fail(err, TM_INVALID, "its model has %.*s %.*s, this run's has %.*s", (int)length, line, a, was,
                           b, is);
    }
    return TM_OK;
}

tm_status tm_description_check(const char *found, const char *wanted, tm_error *err)
{
    if (!*found) return TM_OK;
    TM_TRY(compare(wanted, found, wanted, err));
    return compare(found, found, wanted, err);
}
