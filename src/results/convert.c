/* SPDX-License-Identifier: Apache-2.0 */
#include "results/convert.h"

#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *const lora_names[] = { "lora", "lora-causal" };

const char *tm_convention_name(size_t i)
{
    if (i < TM_FLOPS_COUNT) return tm_flops_convention_name((tm_flops_convention)i);
    return i < TM_FLOPS_COUNT + 2 ? lora_names[i - TM_FLOPS_COUNT] : NULL;
}

/* 12 L H hd T: what titan counts beside 6 (N - N_embedding). */
static double full_attention(const tm_speed_basis *b)
{
    double weights = (double)(tm_model_parameters_active(&b->shape) - tm_model_parameters_embedding(&b->shape));
    return tm_model_flops_per_token(&b->shape, TM_FLOPS_TITAN, b->seq) - 6 * weights;
}

double tm_convention_flops(const tm_speed_basis *b, const char *convention)
{
    for (size_t i = 0; tm_convention_name(i); i++) {
        if (!tm_names_equal(convention, tm_convention_name(i))) continue;
        if (i < TM_FLOPS_COUNT) return tm_model_flops_per_token(&b->shape, (tm_flops_convention)i, b->seq);
        double share = i == TM_FLOPS_COUNT ? 1 : 0.5;
        return 4 * (double)tm_model_parameters_matmul(&b->shape) + share * full_attention(b) + 6 * b->lora_parameters;
    }
    return (double)NAN;
}

/* "TFLOP/s", "GFLOPS", "pflop/s/gpu": the factor, 0 if it is no such unit. */
static double flops_unit(const char *unit)
{
    static const struct {
        char   letter;
        double factor;
    } prefixes[] = { { 'K', 1e3 }, { 'M', 1e6 }, { 'G', 1e9 }, { 'T', 1e12 }, { 'P', 1e15 }, { 'E', 1e18 } };
    char first = (char)(*unit & ~0x20);
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (first == prefixes[i].letter && strncasecmp(unit + 1, "FLOP", 4) == 0) return prefixes[i].factor;
    return strncasecmp(unit, "FLOP", 4) == 0 ? 1 : 0;
}

static bool is_unit(const char *unit, const char *word)
{
    size_t n = strlen(word);
    return strncasecmp(unit, word, n) == 0 && (!unit[n] || unit[n] == '/' || unit[n] == 's');
}

static tm_status rate_of(const tm_speed_basis *b, double value, const char *unit, const char *convention,
                         double *tokens_per_second, tm_error *err)
{
    double factor = flops_unit(unit), step = is_unit(unit, "ms/step") ? 1e-3 : is_unit(unit, "s/step") ? 1 : 0;
    if (factor > 0) {
        double flops = convention ? tm_convention_flops(b, convention) : (double)NAN;
        if (!convention)
            return tm_fail(err, TM_USAGE,
                           "%g %s by which convention? --from titan, matmul, megatron, 6n, ... (docs/flops.md)", value,
                           unit);
        if (isnan(flops))
            return tm_fail(err, TM_USAGE, "unknown convention '%.60s'; docs/flops.md lists them, and lora, lora-causal",
                           convention);
        *tokens_per_second = value * factor / flops;
        return TM_OK;
    }
    if (is_unit(unit, "token") || is_unit(unit, "tok") || is_unit(unit, "tps")) {
        *tokens_per_second = value;
        return TM_OK;
    }
    if (is_unit(unit, "sample") || is_unit(unit, "sequence") || is_unit(unit, "image") || is_unit(unit, "img")) {
        *tokens_per_second = value * (double)b->seq;
        return TM_OK;
    }
    if (step > 0 && b->batch <= 0)
        return tm_fail(err, TM_INVALID, "%g %s is the time of how many sequences? --batch N, of all devices", value,
                       unit);
    if (step > 0) {
        *tokens_per_second = (double)(b->batch * b->seq) / (value * step) / (double)b->devices;
        return TM_OK;
    }
    return tm_fail(
        err, TM_USAGE,
        "unknown unit '%.60s'; there are TFLOP/s (and other prefixes), tokens/s, samples/s, images/s, s/step, "
        "ms/step",
        unit);
}

tm_status tm_speed_of(const tm_speed_basis *b, double value, const char *unit, const char *convention, bool all,
                      double *tokens_per_second, tm_error *err)
{
    TM_TRY(rate_of(b, value, unit, convention, tokens_per_second, err));
    if (all && !is_unit(unit, "s/step") && !is_unit(unit, "ms/step")) *tokens_per_second /= (double)b->devices;
    return TM_OK;
}

/* --- every way to say it ------------------------------------------------------------------------------------------ */

static void add(tm_table *table, const char *quantity, const char *unit, double device, double all)
{
    tm_table_row(table);
    tm_table_text(table, "quantity", quantity);
    tm_table_text(table, "unit", unit);
    tm_table_f64(table, "per_device", device);
    tm_table_f64(table, "all_devices", all);
}

static void add_flops(tm_table *table, const tm_speed_basis *b, double rate)
{
    char quantity[80];
    for (size_t i = 0; tm_convention_name(i); i++) {
        const char *name = tm_convention_name(i);
        double      flops = tm_convention_flops(b, name);
        if (i >= TM_FLOPS_COUNT && b->lora_parameters <= 0) continue;
        snprintf(quantity, sizeof quantity, "tflops_%s", name);
        add(table, quantity, "TFLOP/s", rate * flops / 1e12, rate * flops / 1e12 * (double)b->devices);
        tm_table_f64(table, "flops_per_token", flops);
        if (b->peak_flops > 0) tm_table_f64(table, "mfu_percent", 100 * rate * flops / b->peak_flops);
    }
}

tm_table *tm_speed_table(const tm_speed_basis *b, double rate, double tokens)
{
    static const tm_column columns[] = {
        { "quantity", 0 }, { "unit", 0 }, { "per_device", 6 }, { "all_devices", 6 }, { "flops_per_token", 6 }
    };
    tm_table *table = tm_table_create("convert");
    double    all = rate * (double)b->devices, none = (double)NAN;
    tm_table_columns(table, columns, sizeof columns / sizeof columns[0]);
    if (b->peak_flops > 0) tm_table_column(table, "mfu_percent", 4);
    add(table, "tokens_per_second", "tokens/s", rate, all);
    add(table, tm_model_length(&b->shape) > 0 ? "images_per_second" : "samples_per_second", "1/s",
        rate / (double)b->seq, all / (double)b->seq);
    if (b->batch > 0) add(table, "step_seconds", "s", none, (double)(b->batch * b->seq) / all);
    add_flops(table, b, rate);
    if (tokens > 0) {
        add(table, "tokens", "tokens", none, tokens);
        add(table, "time", "days", tokens / rate / 86400, tokens / all / 86400);
        add(table, "device_time", "device hours", none, tokens / rate / 3600);
    }
    return table;
}

double tm_token_count(const char *text)
{
    static const char letters[] = "KMBT";
    char              plain[64], *end;
    size_t            n = 0;
    for (; *text && n + 1 < sizeof plain; text++)
        if (*text != ',' && *text != '_') plain[n++] = *text;
    plain[n] = '\0';
    double      value = strtod(plain, &end);
    const char *letter = *end ? strchr(letters, *end & ~0x20) : NULL;
    if (end == plain || *text || (*end && (!letter || end[1]))) return (double)NAN;
    if (letter) value *= pow(1000, (double)(letter - letters) + 1);
    return value > 0 && isfinite(value) ? value : (double)NAN;
}
