/* SPDX-License-Identifier: Apache-2.0 */
/* train/adapter/keys.c - lora.* */
#include "train/adapter/adapters.h"

#include "base/arena.h"
#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is(const tm_config *config, const char *key, const char *value)
{
    const char *text = tm_config_text(config, key);
    return text && strcmp(text, value) == 0;
}

/* NULL: nothing is given. */
static const char *given(const tm_config *config, const char *key)
{
    const char *text = tm_config_text(config, key);
    return text && *text ? text : NULL;
}

/* "PATTERN=NUMBER,PATTERN=NUMBER": an item ends at a comma (or the end) that a number stands in front of, so patterns
 * may have commas. */
static tm_status read_values(const tm_config *config, const char *key, double least, const tm_pattern_value **out,
                             size_t *n, tm_error *err)
{
    const char *text = given(config, key);
    if (!text) return TM_OK;
    tm_arena         *arena = tm_config_arena(config);
    tm_pattern_value *all = tm_arena_take(arena, (strlen(text) / 2 + 1) * sizeof *all);
    char              where[200];
    snprintf(where, sizeof where, "%s (%.120s)", key, tm_config_place(config, key));
    for (const char *at = text; *at;) {
        const char *equals = NULL, *end = NULL;
        double      value = 0;
        for (const char *p = strchr(at, '='); p && !end; p = strchr(p + 1, '=')) {
            char *behind;
            value = strtod(p + 1, &behind);
            if (behind > p + 1 && (*behind == ',' || !*behind)) equals = p, end = behind;
        }
        if (!end || equals == at)
            return tm_fail(err, TM_INVALID, "%s has '%.120s', wanted PATTERN=NUMBER,PATTERN=NUMBER", where, at);
        tm_pattern_value *item = &all[(*n)++];
        *item = (tm_pattern_value){ tm_arena_text_n(arena, at, (size_t)(equals - at)), value };
        TM_TRY(tm_pattern_check(item->pattern, where, err));
        if (!(value >= least) || value > (least > 0 ? 65536 : 1e6) || (least > 0 && value > floor(value)))
            return tm_fail(err, TM_INVALID, "%s: '%s' has %.*s, wanted %s", where, item->pattern,
                           (int)(end - equals - 1), equals + 1,
                           least > 0 ? "a rank: a whole number from 1 to 65536" : "a number from 0 to 1000000");
        at = end + (*end == ',');
    }
    *out = all;
    return TM_OK;
}

/* "0,2,4-7" */
static tm_status read_layers(const tm_config *config, tm_adapters *out, tm_error *err)
{
    const char *text = given(config, "lora.layers");
    if (!text) return TM_OK;
    int64_t(*runs)[2] = tm_arena_take(tm_config_arena(config), (strlen(text) / 2 + 1) * sizeof *runs);
    for (const char *at = text; *at;) {
        char   *end;
        int64_t first = strtoll(at, &end, 10), last = first;
        bool    good = *at >= '0' && *at <= '9';
        if (good && *end == '-') {
            const char *behind = end + 1;
            last = strtoll(behind, &end, 10);
            good = *behind >= '0' && *behind <= '9';
        }
        if (!good || (*end && *end != ',') || last < first || last > INT32_MAX)
            return tm_fail(err, TM_INVALID,
                           "lora.layers (%s) has '%.60s', wanted numbers of blocks and runs of them: "
                           "0,2,4-7",
                           tm_config_place(config, "lora.layers"), at);
        runs[out->n_layers][0] = first;
        runs[out->n_layers++][1] = last;
        at = end + (*end == ',');
    }
    out->layers = (const int64_t(*)[2])runs;
    return TM_OK;
}

/* Which modules. */
static tm_status read_targets(const tm_config *config, tm_adapters *out, tm_error *err)
{
    const char *targets = given(config, "lora.targets");
    out->pattern = given(config, "lora.target_pattern");
    out->exclude = given(config, "lora.exclude");
    if (out->pattern) {
        char where[200];
        snprintf(where, sizeof where, "lora.target_pattern (%.120s)", tm_config_place(config, "lora.target_pattern"));
        out->place = tm_config_place(config, "lora.target_pattern");
        TM_TRY(tm_pattern_check(out->pattern, where, err));
        if (targets)
            return tm_fail(err, TM_INVALID, "%s and lora.targets (%s) both say which modules have adapters; give one",
                           where, tm_config_place(config, "lora.targets"));
    } else if (!targets) {
        targets = "all-linear";
    }
    if (targets && strlen(targets) >= sizeof out->targets)
        return tm_fail(err, TM_INVALID, "lora.targets (%s) has %zu characters, at most %zu are read; use patterns",
                       out->place, strlen(targets), sizeof out->targets - 1);
    if (out->exclude && strlen(out->exclude) >= sizeof out->targets)
        return tm_fail(err, TM_INVALID, "lora.exclude (%s) has %zu characters, at most %zu are read; use patterns",
                       tm_config_place(config, "lora.exclude"), strlen(out->exclude), sizeof out->targets - 1);
    snprintf(out->targets, sizeof out->targets, "%s", targets ? targets : "");
    return read_layers(config, out, err);
}

tm_status tm_adapters_read(const tm_config *config, uint64_t seed, tm_adapters *out, tm_error *err)
{
    *out = (tm_adapters){ .rank = tm_config_i64(config, "lora.rank"), .base = TM_DTYPE_COUNT, .seed = seed };
    if (out->rank == 0) return TM_OK;
    out->alpha = tm_config_text(config, "lora.alpha") ? tm_config_f64(config, "lora.alpha") : (double)out->rank;
    out->dropout = tm_config_f64(config, "lora.dropout");
    out->rslora = tm_config_bool(config, "lora.rslora");
    out->dora = tm_config_bool(config, "lora.dora");
    out->shared = is(config, "lora.experts", "shared");
    out->by_matrix = out->shared || is(config, "lora.experts", "each");
    out->no_experts = is(config, "lora.experts", "none");
    out->gaussian = is(config, "lora.init", "gaussian");
    out->xavier = is(config, "lora.init", "xavier");
    out->place = tm_config_place(config, tm_config_is_set(config, "lora.targets") ? "lora.targets" : "lora.rank");
    if (is(config, "lora.base_format", "float32")) out->base = TM_F32;
    if (is(config, "lora.base_format", "bfloat16")) out->base = TM_BF16;
    if (is(config, "lora.base_format", "nf4")) out->base = TM_NF4_BLOCKS;
    if (is(config, "lora.base_format", "float8_e4m3")) out->base = TM_E4M3_BLOCKS;
    TM_TRY(read_targets(config, out, err));
    TM_TRY(read_values(config, "lora.rank_pattern", 1, &out->ranks, &out->n_ranks, err));
    return read_values(config, "lora.alpha_pattern", 0, &out->alphas, &out->n_alphas, err);
}

double tm_adapters_scale_of(const tm_adapters *adapters, int64_t rank, double alpha)
{
    return alpha / (adapters->rslora ? sqrt((double)rank) : (double)rank);
}

double tm_adapters_scale(const tm_adapters *adapters)
{
    return tm_adapters_scale_of(adapters, adapters->rank, adapters->alpha);
}

static void print_values(const char *name, const tm_pattern_value *all, size_t n, tm_text *out)
{
    char value[32];
    for (size_t i = 0; i < n; i++)
        tm_text_printf(out, "%s %s %s\n", name, all[i].pattern, tm_format_double(value, all[i].value));
}

void tm_adapters_print(const tm_adapters *a, tm_text *out)
{
    char scale[32], dropout[32];
    tm_text_printf(out, "lora.rank %lld\nlora.scale %s\n", (long long)a->rank,
                   tm_format_double(scale, tm_adapters_scale(a)));
    print_values("lora.rank_pattern", a->ranks, a->n_ranks, out);
    print_values("lora.alpha_pattern", a->alphas, a->n_alphas, out);
    if (a->dora) tm_text_printf(out, "lora.dora true\n");
    if (a->shared) tm_text_printf(out, "lora.experts shared\n");
    if (a->dropout > 0) tm_text_printf(out, "lora.dropout %s\n", tm_format_double(dropout, a->dropout));
}
