/* SPDX-License-Identifier: Apache-2.0 */
#include "record/report.h"

#include "record/look.h"
#include "stats/sampling.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH = 96, LABEL = 42, COLUMN = 16 };

/* Right-aligned in `width` columns, two spaces at least behind what stands before. */
static void add_cell(tm_text *out, int width, const char *text)
{
    bool wide = (int)strlen(text) + 2 > width;
    tm_text_printf(out, wide ? "  %*s" : "%*s", wide ? 0 : width, text);
}

static void end_row(tm_text *out)
{
    while (out->data[out->length - 1] == ' ') out->data[--out->length] = '\0';
    tm_text_add(out, "\n");
}

static void heading(tm_text *out, const char *title, const char *a, const char *b, const char *c)
{
    tm_text_printf(out, "\n  %-*s%*s%*s%*s", LABEL, title, COLUMN, a, COLUMN, b, COLUMN, c);
    end_row(out);
}

/* A row of up to three columns under a heading. */
static void row(tm_text *out, const char *label, const char *a, const char *b, const char *c)
{
    tm_text_printf(out, "    %-*.*s", LABEL - 2, LABEL - 3, label);
    add_cell(out, COLUMN, a);
    add_cell(out, COLUMN, b);
    add_cell(out, COLUMN, c);
    end_row(out);
}

/* "1,234", or with decimals where that would lose digits; "-" for NAN. */
static const char *rate_text(char out[40], double value)
{
    if (!isfinite(value)) return "-";
    if (fabs(value) >= 1000) return tm_format_grouped(out, llround(value));
    snprintf(out, 40, "%.4g", value);
    return out;
}

/* 12.3 with the unit that keeps what is shown between 1 and 1000: "123.4 GFLOP/s". */
static const char *flops_text(char out[40], double value, const char *unit)
{
    static const char *const prefix[] = { "", "K", "M", "G", "T", "P", "E" };
    size_t                   i = 0;
    if (!isfinite(value)) return "-";
    while (value >= 999.95 && i + 1 < sizeof prefix / sizeof prefix[0]) {
        value /= 1000;
        i++;
    }
    snprintf(out, 40, "%.4g %s%s", value, prefix[i], unit);
    return out;
}

static const char *seconds_text(char out[40], double seconds)
{
    if (!isfinite(seconds)) return "-";
    if (seconds >= 99.995)
        snprintf(out, 40, "%.0f s", seconds);
    else if (seconds >= 0.99995)
        snprintf(out, 40, "%.2f s", seconds);
    else
        snprintf(out, 40, "%.4g ms", seconds * 1e3);
    return out;
}

/* Words that a caller gave, in lines of at most `width` columns; lines after the first are indented. */
static void wrapped(tm_text *out, const char *text, int indent, int width)
{
    int column = indent;
    for (const char *word = text; *word;) {
        size_t n = strcspn(word, " \n");
        if (n > 0) {
            if (column > indent && column + 1 + (int)n > width) {
                tm_text_printf(out, "\n%*s", indent, "");
                column = indent;
            } else if (column > indent) {
                tm_text_add(out, " ");
                column++;
            }
            tm_text_add_n(out, word, n);
            column += (int)n;
        }
        word += n + (word[n] != '\0');
    }
    tm_text_add(out, "\n");
}

/* Text that a model wrote can hold any bytes; what could command a terminal becomes '?'. */
static void print_sample(tm_text *out, const char *sample)
{
    tm_text harmless = { 0 };
    tm_text_add(&harmless, "");
    for (const unsigned char *s = (const unsigned char *)sample; *s;) {
        size_t n = tm_utf8_length(s);
        bool   control = n == 0 || (n == 1 && *s < 0x20 && *s != '\n') || *s == 0x7f || (*s == 0xc2 && s[1] < 0xa0);
        tm_text_add_n(&harmless, !control ? (const char *)s : *s == '\t' ? " " : "?", control ? 1 : n);
        s += n ? n : 1;
    }
    tm_text_add(out, "\n  sample of the trained model\n    ");
    wrapped(out, harmless.data, 4, WIDTH);
    tm_text_fini(&harmless);
}

static void verdict_line(tm_text *out, const char *label, tm_verdict verdict, const char *reason, bool colour)
{
    static const char *const paint[] = { "\033[1;32m", "\033[1;33m", "\033[1;31m", "\033[1;33m" };
    char                     line[64];
    snprintf(line, sizeof line, "%-12s", tm_verdict_name(verdict));
    tm_text_printf(out, "  %-12s%s%s%s", label, colour ? paint[verdict] : "", line, colour ? "\033[0m" : "");
    wrapped(out, reason, 26, WIDTH);
}

/* Of updates: that they are those asked for, or that one is not. */
static void print_update(tm_text *out, const tm_update_certificate *u)
{
    char line[TM_REASON_BYTES + sizeof u->partly + 80];
    int  n = 0;
    if (u->n_steps == 0) return;
    if (!u->agrees)
        snprintf(line, sizeof line, "%s", u->reason);
    else
        n = snprintf(line, sizeof line, "%lld weights of step%s %lld", (long long)u->elements,
                     u->n_steps > 1 ? "s" : "", (long long)u->steps[0]);
    for (int i = 1; i < u->n_steps && u->agrees; i++)
        n += snprintf(line + n, sizeof line - (size_t)n, " and %lld", (long long)u->steps[i]);
    if (u->agrees)
        snprintf(line + n, sizeof line - (size_t)n, " worked out again, within %.2g of their rounding%s%s; %.3g s",
                 u->largest, u->partly[0] ? "; " : "", u->partly, u->seconds);
    tm_text_printf(out, "  %-12s%-12s", "update", u->agrees ? "holds" : "failed");
    wrapped(out, line, 26, WIDTH);
}

static void print_certificate(tm_text *out, const char *label, const tm_certificate *c)
{
    char line[TM_REASON_BYTES + sizeof c->inexact + 40];
    int  n = 0;
    if (!c->done && !c->reason[0]) return;
    if (!c->done || c->reason[0])
        n = snprintf(line, sizeof line, "%s", c->reason);
    else
        n = snprintf(line, sizeof line,
                     "gradients of %d groups: %.6g by the gradient, %.6g by the loss, band %.1g%s%s%s; %.3g s",
                     c->groups, c->expected, c->measured, c->band, c->causal ? "; no look-ahead" : "",
                     c->causal && c->rows ? ", rows independent" : "", c->context ? ", context counts" : "",
                     c->seconds);
    if (c->inexact[0])
        snprintf(line + n, sizeof line - (size_t)n, "; losses in %s, not float32: %s", c->losses, c->inexact);
    tm_text_printf(out, "  %-12s%-12s", label, !c->done ? "none" : c->reason[0] ? "failed" : "holds");
    wrapped(out, line, 26, WIDTH);
}

static void print_data(tm_text *out, const tm_data_certificate *c)
{
    char line[TM_REASON_BYTES + 160], files[64] = "";
    if (!c->done && !c->reason[0]) return;
    if (c->compared > 0) snprintf(files, sizeof files, ", %lld tokens from their files", (long long)c->compared);
    if (c->reason[0])
        snprintf(line, sizeof line, "%s", c->reason);
    else
        snprintf(line, sizeof line, "%lld batches of training and %lld held out were read again%s%s",
                 (long long)c->batches, (long long)c->held_out, files,
                 c->apart ? "" : "; data.validation_path names data that is trained on");
    tm_text_printf(out, "  %-12s%-12s", "data", !c->done ? "none" : c->reason[0] ? "failed" : "as defined");
    wrapped(out, line, 26, WIDTH);
}

static void print_verdict(tm_text *out, const tm_run_ended *end, bool colour)
{
    tm_text_add(out, "\n");
    verdict_line(out, "verdict", end->verdict, end->reason, colour);
    print_certificate(out, "certificate", &end->certificate);
    print_update(out, &end->update);
    print_certificate(out, "and after", &end->certificate_after);
    print_data(out, &end->data);
    if (end->curve.steps > 0)
        tm_text_printf(out, "  %-12s%-12s%lld step%s of the main job\n", "losses",
                       end->curve.equal ? "as stored" : "in the band", (long long)end->curve.steps,
                       end->curve.steps == 1 ? "" : "s");
    if (end->machine.reason) verdict_line(out, "machine", end->machine.verdict, end->machine.reason, colour);
}

static void loss_row(tm_text *out, const char *label, double value)
{
    char text[40];
    if (!isfinite(value)) return;
    snprintf(text, sizeof text, "%.4f", value);
    row(out, label, text, "", "");
}

static void print_loss(tm_text *out, const tm_run_ended *end)
{
    heading(out, "loss",
            end->n_measures > 0     ? "nats per pair"
            : end->image_tokens > 0 ? "mean square error"
                                    : "nats per token",
            "", "");
    loss_row(out, "first step", end->loss_first);
    loss_row(out, "last step", end->loss_last);
    loss_row(out, "validation", end->loss_validation);
    loss_row(out, end->image_tokens > 0 ? "floor: the least possible loss" : "floor: the entropy of the data",
             end->loss_floor);
    loss_row(out, "validation above the floor", end->loss_validation - end->loss_floor);
    loss_row(out, "validation, bits per byte", end->bits_per_byte);
    for (size_t i = 0; i < end->n_measures; i++) loss_row(out, end->measures[i].name, end->measures[i].value);
}

static void interval_row(tm_text *out, const char *label, double value, double lo, double hi, const char *steps)
{
    char a[40], b[40], c[40], both[88] = "-";
    if (isfinite(lo)) snprintf(both, sizeof both, "%s .. %s", rate_text(b, lo), rate_text(c, hi));
    tm_text_printf(out, "    %-*s", LABEL - 2, label);
    add_cell(out, COLUMN, rate_text(a, value));
    add_cell(out, COLUMN + 8, both);
    add_cell(out, COLUMN - 8, steps);
    end_row(out);
}

/* How much the steps are worth, and whether they stand still. */
static void print_steady(tm_text *out, const tm_sample_summary *rate)
{
    char a[40], both[40] = "-", steps[40];
    row(out, "steps far from the median, counted", tm_format_grouped(a, rate->outliers), "", "");
    snprintf(a, sizeof a, "%.0f of %s", rate->effective_n, tm_format_grouped(steps, rate->n));
    row(out, "equivalent number of independent steps", a, "", "");
    if (rate->n > 1 && isnan(rate->rate_lo))
        tm_text_printf(out, "    %s\n",
                       rate->n < 6 ? "no interval: fewer than 6 steps"
                       : isfinite(rate->steady.drift) && !rate->steady.reached
                           ? "no interval: the speed changed during these steps"
                           : "no interval: steps too correlated; run longer");
    if (isnan(rate->steady.drift)) return;
    snprintf(both, sizeof both, "%+.1f .. %+.1f %%", rate->steady.drift_lo, rate->steady.drift_hi);
    snprintf(a, sizeof a, "%+.1f %%", rate->steady.drift);
    tm_text_printf(out, "    %-*s", LABEL - 2, "drift over these steps");
    add_cell(out, COLUMN, a);
    add_cell(out, COLUMN + 8, both);
    end_row(out);
    row(out, "steady state", rate->steady.reached ? "reached" : "not reached", "", "");
}

static void print_speed(tm_text *out, const tm_run_ended *end)
{
    char                     n[40], a[40], b[40];
    const tm_sample_summary *rate = end->speed;
    tm_text_printf(out, "\n  %-*s%*s%*s%*s\n", LABEL, "speed, one device", COLUMN, "", COLUMN + 8, "95 %, this start",
                   COLUMN - 8, "steps");
    interval_row(out, "tokens/s, median step", rate->median_rate, rate->median_rate_lo, rate->median_rate_hi,
                 tm_format_grouped(n, rate->n));
    interval_row(out, "tokens/s, all tokens / all seconds", rate->rate, rate->rate_lo, rate->rate_hi,
                 tm_format_grouped(n, rate->n));
    double image = (double)end->image_tokens;
    if (image > 0)
        interval_row(out, "images/s, median step", rate->median_rate / image, rate->median_rate_lo / image,
                     rate->median_rate_hi / image, tm_format_grouped(n, rate->n));
    if (rate->n > 0) {
        row(out, "step time, median", seconds_text(a, rate->median), "", "");
        row(out, "step time, 5 and 95 % of steps", seconds_text(a, rate->p5), seconds_text(b, rate->p95), "");
        snprintf(a, sizeof a, "%.1f %%", 100 * rate->variation);
        row(out, "step time, variation", a, "", "");
        print_steady(out, rate);
    }
    row(out, "steps left out as warm-up", tm_format_grouped(n, rate->warmup), "", "");
    row(out, "program start to end of first step", seconds_text(a, end->first_step_seconds), "", "");
    row(out, "whole run", seconds_text(a, end->seconds), "", "");
}

/* Of several ranks: the one that works longest, and who holds up the others. */
static void print_ranks(tm_text *out, const tm_run_ended *end, int devices)
{
    const tm_rank_told *most = end->ranks, *least = end->ranks;
    char                n[40], a[40], b[80];
    if (end->n_ranks < 2) return;
    for (size_t i = 1; i < end->n_ranks; i++) {
        if (end->ranks[i].busy_seconds > most->busy_seconds) most = &end->ranks[i];
        if (end->ranks[i].busy_seconds < least->busy_seconds) least = &end->ranks[i];
    }
    snprintf(n, sizeof n, "%zu ranks", end->n_ranks);
    heading(out, n, "own work", "waiting", "rank");
    snprintf(n, sizeof n, "%d", most->rank);
    row(out, "works longest in a step", seconds_text(a, most->busy_seconds), seconds_text(b, most->wait_seconds), n);
    snprintf(n, sizeof n, "%d", least->rank);
    row(out, "works shortest in a step", seconds_text(a, least->busy_seconds), seconds_text(b, least->wait_seconds), n);
    if (isfinite(end->speed->median_rate))
        row(out, "tokens/s of all ranks, median step",
            tm_format_grouped(a, (int64_t)llround(end->speed->median_rate * devices)), "", "");
    for (size_t i = 0; i < end->n_ranks; i++)
        if (end->ranks[i].slow)
            tm_text_printf(out,
                           "    rank %d on %s holds up the others: its own work takes %.1f %% longer than theirs\n",
                           end->ranks[i].rank, end->ranks[i].host, 100 * end->ranks[i].behind);
}

static void print_flops(tm_text *out, const run_record *run, const tm_run_ended *end)
{
    if (run->start.n_flops_per_token == 0) return;
    heading(out, "arithmetic, by convention", "per token", "per second", "of peak (MFU)");
    for (size_t i = 0; i < run->start.n_flops_per_token; i++) {
        const tm_named_f64 *flops = &run->start.flops_per_token[i];
        char                a[40], b[40], c[40] = "N/A";
        double              rate = flops->value * end->speed->median_rate;
        if (run->start.peak_flops > 0 && isfinite(rate))
            snprintf(c, sizeof c, "%.2f %%", 100 * rate / run->start.peak_flops);
        row(out, flops->name, flops_text(a, flops->value, "FLOP"), flops_text(b, rate, "FLOP/s"), c);
    }
}

static void ledger_line(tm_text *out, const char *label, double seconds, double whole)
{
    char a[40], b[40], bar[25];
    int  length = whole > 0 ? (int)lround(24 * seconds / whole) : 0;
    length = length < 0 ? 0 : length > 24 ? 24 : length;
    memset(bar, '#', (size_t)length);
    bar[length] = '\0';
    snprintf(a, sizeof a, "%.3f", seconds * 1e3);
    snprintf(b, sizeof b, "%.1f %%", whole > 0 ? 100 * seconds / whole : 0);
    tm_text_printf(out, "    %-*.*s", LABEL - 2, LABEL - 3, label);
    add_cell(out, COLUMN, a);
    add_cell(out, COLUMN / 2 + 2, b);
    tm_text_printf(out, *bar ? "  %s\n" : "\n", bar);
}

static void print_ledger(tm_text *out, const run_ledger *ledger)
{
    if (ledger->steps == 0 || ledger->count == 0) return;
    char   title[64];
    double whole = ledger->step_seconds / (double)ledger->steps;
    snprintf(title, sizeof title, "where the step time went");
    tm_text_printf(out, "\n  %-*s%*s%*s\n", LABEL, title, COLUMN, "mean ms", COLUMN / 2 + 2, "share");
    for (int i = 0; i < ledger->count; i++)
        ledger_line(out, ledger->names[i], ledger->seconds[i] / (double)ledger->steps, whole);
    ledger_line(out, "unaccounted", run_ledger_unaccounted(ledger), whole);
    char a[40], b[40];
    snprintf(a, sizeof a, "%.3f", whole * 1e3);
    snprintf(title, sizeof title, "whole step, mean of %s", tm_format_grouped(b, ledger->steps));
    tm_text_printf(out, "    %-*s", LABEL - 2, title);
    add_cell(out, COLUMN, a);
    add_cell(out, COLUMN / 2 + 2, "100.0 %");
    end_row(out);
}

static void print_memory(tm_text *out, const run_record *run, const tm_run_ended *end)
{
    char a[40], b[40];
    heading(out, "memory", "planned", "used", "");
    for (size_t i = 0; i < run->start.n_memory; i++)
        row(out, run->start.memory[i].name, tm_format_bytes(a, (double)run->start.memory[i].value), "", "");
    row(out, "arena", tm_format_bytes(a, (double)end->planned_bytes), tm_format_bytes(b, (double)end->used_bytes),
        end->planned_bytes == end->used_bytes ? "equal" : "differ");
    row(out, "outside the arena, libraries", "", tm_format_bytes(b, (double)end->outside_arena_bytes), "");
    if (run->stepped) row(out, "resident, whole process", "", tm_format_bytes(b, (double)run->last.resident_bytes), "");
    row(out, "limit", tm_format_bytes(a, (double)run->start.memory_limit_bytes), "", "");
}

/* The last look of the microscope. */
static void print_looks(tm_text *out, const run_looks *looks)
{
    char a[40];
    if (looks->looks == 0) return;
    tm_text_printf(out, "\n  numbers, %s look%s, the last before step %lld\n", tm_format_grouped(a, looks->looks),
                   looks->looks == 1 ? "" : "s", (long long)looks->last.step);
    if (looks->first_step > 0 && looks->first_step < looks->last.step)
        tm_text_printf(out, "  beyond the bound for the first time before step %lld: %s\n",
                       (long long)looks->first_step, looks->first_name);
    tm_look_print_table(&looks->last, 8, out);
}

void report_print(tm_text *out, const run_record *run, const tm_run_ended *end, bool colour)
{
    char                  a[40], b[40], title[256];
    const tm_run_started *start = &run->start;
    snprintf(title, sizeof title, "%s%s, %s, %s%s", colour ? "\033[1m" : "", start->model, start->precision,
             start->device, colour ? "\033[0m" : "");
    tm_text_add(out, "\n  ");
    for (int i = 2; i < WIDTH; i++) tm_text_add_n(out, "-", 1);
    tm_text_printf(out, "\n  %s\n", title);
    tm_text_printf(out, "  %s parameters, %s target tokens per step, %d device%s, %d thread%s, data %s\n",
                   tm_format_grouped(a, start->parameters), tm_format_grouped(b, start->batch_tokens), start->devices,
                   start->devices == 1 ? "" : "s", start->threads, start->threads == 1 ? "" : "s", start->data_source);
    print_verdict(out, end, colour);
    print_loss(out, end);
    print_speed(out, end);
    print_ranks(out, end, run->start.devices);
    print_flops(out, run, end);
    print_ledger(out, &run->ledger);
    print_memory(out, run, end);
    print_looks(out, &run->looks);
    if (end->sample) print_sample(out, end->sample);
    tm_text_add(out, "\n");
}
