/* SPDX-License-Identifier: Apache-2.0 */
#include "record/step_line.h"

#include <math.h>
#include <stdio.h>

static const char *const red = "\033[31m", *const green = "\033[32m", *const yellow = "\033[33m",
                         *const blue = "\033[34m", *const magenta = "\033[35m", *const cyan = "\033[36m",
                         *const plain = "\033[39m";

/* Whole tokens per second with thousands separators: one parser reads "14440" as 144. */
static const char *grouped(char out[40], double value)
{
    if (!isfinite(value)) return "0";
    return tm_format_grouped(out, llround(value));
}

/* TFLOP/s with `decimals`, or as many more as three significant digits take; no exponent. */
static const char *teraflops(char out[32], double flops, int decimals)
{
    double value = flops / 1e12;
    while (value > 0 && decimals < 15 && value * pow(10, decimals) < 99.5) decimals++;
    snprintf(out, 32, "%.*f", decimals, value);
    return out;
}

static void memory_text(char out[64], const line_figures *f)
{
    double percent = f->limit_bytes > 0 ? 100.0 * (double)f->used_bytes / (double)f->limit_bytes : 0.0;
    snprintf(out, 64, "memory: %5.2fGiB(%.2f%%)", (double)f->used_bytes / (1 << 30), percent);
}

static void mfu_text(char out[32], const line_figures *f, double flops)
{
    if (f->peak_flops > 0)
        snprintf(out, 32, "mfu: %.2f%%", 100 * flops / f->peak_flops);
    else
        snprintf(out, 32, "mfu: N/A");
}

void line_torchtitan(tm_text *out, const line_figures *f, bool colour)
{
    char   number[40], memory[64], mfu[32];
    double flops = f->flops_per_token * f->tokens_per_second;
    memory_text(memory, f);
    mfu_text(mfu, f, flops);
    tm_text_printf(out, "%sstep: %2lld  ", colour ? red : "", (long long)f->step);
    tm_text_printf(out, "%sloss: %8.5f  ", colour ? green : "", f->loss);
    tm_text_printf(out, "%sgrad_norm: %7.4f  ", colour ? yellow : "", f->grad_norm);
    tm_text_printf(out, "%s%s  ", colour ? cyan : "", memory);
    tm_text_printf(out, "%stps: %s  ", colour ? blue : "", grouped(number, f->tokens_per_second));
    tm_text_printf(out, "%stflops: %s  ", colour ? cyan : "", teraflops(number, flops, 2));
    tm_text_printf(out, "%s%s%s\n", colour ? magenta : "", mfu, colour ? plain : "");
}

void line_validation(tm_text *out, const line_figures *f, bool colour)
{
    char number[40], memory[64];
    memory_text(memory, f);
    tm_text_printf(out, "%svalidate step: %2lld  ", colour ? yellow : "", (long long)f->step);
    tm_text_printf(out, "%sloss: %7.4f  ", colour ? green : "", f->loss);
    tm_text_printf(out, "%s%s  ", colour ? cyan : "", memory);
    tm_text_printf(out, "%stps: %s%s\n", colour ? blue : "", grouped(number, f->tokens_per_second),
                   colour ? plain : "");
}

void line_megatron(tm_text *out, const line_figures *f)
{
    char now[32], average[32];
    teraflops(now, f->flops_per_token * f->tokens_per_second, 1);
    teraflops(average, f->flops_per_token * f->tokens_per_second_average, 1);
    tm_text_printf(out, " [%s] iteration %8lld/%8lld | consumed samples: %12lld |", f->date, (long long)f->step,
                   (long long)f->steps, (long long)f->samples);
    tm_text_printf(out, " elapsed time per iteration (ms): %.1f/%.1f |", f->step_seconds * 1e3,
                   f->step_seconds_average * 1e3);
    tm_text_printf(out, " throughput per GPU (TFLOP/s/GPU): %s/%s |", now, average);
    tm_text_printf(out, " tokens per GPU (tokens/s/GPU): %.1f/%.1f |", f->tokens_per_second,
                   f->tokens_per_second_average);
    tm_text_printf(out, " learning rate: %.6E | global batch size: %5lld |", f->learning_rate, (long long)f->sequences);
    tm_text_printf(out, " lm loss: %.6E | loss scale: 1.0 | grad norm: %.3f |", f->loss, f->grad_norm);
    tm_text_printf(out, " number of skipped iterations: 0 | number of nan iterations: %lld |\n",
                   (long long)f->nan_steps);
}

void line_peak(tm_text *out, double peak_flops)
{
    if (peak_flops > 0)
        tm_text_printf(out, "Peak FLOPS used for computing MFU: %.3e\n", peak_flops);
    else
        tm_text_add(out, "Peak FLOPS used for computing MFU: N/A\n");
}

void line_performance(tm_text *out, double value, const char *metric)
{
    tm_text_printf(out, value >= 1000 ? "performance: %.1f %s\n" : "performance: %.5g %s\n", value, metric);
}
