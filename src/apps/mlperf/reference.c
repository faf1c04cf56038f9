/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/mlperf/reference.h"

#include "stats/summary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const tm_reference_kind *tm_reference_kind_find(const char *name)
{
    /* A benchmark without a row counts epochs. */
    static const tm_reference_kind rows[] = {
        { "llama31_8b", 10, "samples_count", 0 },
        { "llama2_70b_lora", 10, "samples_count", 0 },
        { "llama31_405b", 3, "samples_count", 46080 },
        { "trainmark_tiny", 10, "samples_count", 0 },
        { "flux1", 10, "samples_count", 0 },
        { "gpt_oss_20b", 10, "samples_count", 0 },
        { "trainmark_tiny_lora", 10, "samples_count", 0 },
        { "trainmark_tiny_flux", 10, "samples_count", 0 },
        { "deepseekv3_671b", 3, "samples_count", 0 },
        { "qwen35_397b_grpo", 3, "samples_count", 0 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].name, name) == 0) return &rows[i];
    return NULL;
}

/* --- statistics --------------------------------------------------------------------------------------------------- */

double tm_numpy_sum(const double *x, size_t n)
{
    if (n < 8) {
        double sum = 0;
        for (size_t i = 0; i < n; i++) sum += x[i];
        return sum;
    }
    if (n > 128) {
        size_t half = n / 2;
        half -= half % 8;
        return tm_numpy_sum(x, half) + tm_numpy_sum(x + half, n - half);
    }
    double r[8];
    size_t i = 8;
    memcpy(r, x, sizeof r);
    for (; i + 8 <= n; i += 8)
        for (size_t k = 0; k < 8; k++) r[k] += x[i + k];
    double sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
    for (; i < n; i++) sum += x[i];
    return sum;
}

/* P(|T| < t) with t = sqrt(degrees) tan(angle). */
static long double within(int degrees, long double angle)
{
    long double c = cosl(angle), s = sinl(angle), power = degrees % 2 ? c : 1, sum = 0, factor = 1;
    for (int k = degrees % 2 ? 3 : 2; k <= degrees; k += 2) {
        sum += factor * power; /* odd: c + 2/3 c^3 + ..., even: 1 + 1/2 c^2 + ... */
        factor *= (long double)(k - 1) / k;
        power *= c * c;
    }
    return degrees % 2 ? (angle + s * sum) * 2 / acosl(-1.0L) : s * sum;
}

double tm_student_quantile_95(int degrees)
{
    long double lo = 0, hi = acosl(-1.0L) / 2;
    for (int i = 0; i < 80; i++) {
        long double middle = (lo + hi) / 2;
        if (within(degrees, middle) < 0.9L)
            lo = middle;
        else
            hi = middle;
    }
    return (double)(sqrtl(degrees) * tanl((lo + hi) / 2));
}

/* Population standard deviation as numpy computes it. */
static double deviation_of(const double *x, size_t n)
{
    double  mean = tm_numpy_sum(x, n) / (double)n;
    double *squares = tm_alloc(n * sizeof *squares);
    for (size_t i = 0; i < n; i++) squares[i] = (x[i] - mean) * (x[i] - mean);
    double sum = tm_numpy_sum(squares, n);
    free(squares);
    return sqrt(sum / (double)n);
}

/* The smallest mean of a submission that the t-test accepts. */
static double minimum_of(double mean, double deviation, int n_reference, int n_submission)
{
    if (!(deviation > 0)) return mean;
    double quantile = tm_student_quantile_95(n_reference + n_submission - 2);
    double threshold = mean - quantile * deviation * sqrt(1.0 / n_reference + 1.0 / n_submission);
    double lo = 0, hi = mean, middle = (lo + hi) / 2;
    while (hi - lo > 0.0001 && lo < middle && middle < hi) { /* large means have no doubles that close */
        if (middle > threshold)
            hi = middle;
        else
            lo = middle;
        middle = (lo + hi) / 2;
    }
    return middle;
}

static int by_batch(const void *a, const void *b)
{
    int64_t x = ((const tm_reference_record *)a)->batch, y = ((const tm_reference_record *)b)->batch;
    return (x > y) - (x < y);
}

static void set_speedup(tm_reference_record *r, const tm_reference_kind *kind)
{
    double limit = r->minimum - kind->relief;
    r->max_speedup = limit > 0 ? r->mean / limit : (double)INFINITY; /* any mean will do */
}

static void compute(tm_reference_record *r, const tm_reference_kind *kind)
{
    tm_stats_sort(r->samples, (int64_t)r->n);
    r->mean = tm_numpy_sum(r->samples + 1, r->n - 2) / (double)(r->n - 2);
    r->deviation = deviation_of(r->samples, r->n);
    r->minimum = minimum_of(r->mean, r->deviation, (int)r->n - 2, kind->runs - 2);
    set_speedup(r, kind);
}

static double at(int64_t batch, int64_t low, double v_low, int64_t high, double v_high)
{
    return (v_high - v_low) / (double)(high - low) * (double)(batch - low) + v_low;
}

tm_reference_record tm_reference_between(const tm_reference *reference, int64_t batch, const tm_reference_record *low,
                                         const tm_reference_record *high)
{
    TM_ASSERT(low->batch < batch && batch < high->batch);
    tm_reference_record r = { .batch = batch, .hyper = "{}" };
    int                 runs = reference->kind->runs;
    r.mean = at(batch, low->batch, low->mean, high->batch, high->mean);
    r.deviation = at(batch, low->batch, low->deviation, high->batch, high->deviation);
    r.minimum = minimum_of(r.mean, r.deviation, 2 * runs, runs - 2);
    set_speedup(&r, reference->kind);
    return r;
}

/* One forward pass, not a convex hull: what survived is not looked at again. */
static void prune(tm_reference *reference)
{
    tm_reference_record *r = reference->records;
    size_t               fastest = 0, n = 0, *kept = tm_alloc(reference->n * sizeof *kept);
    for (size_t i = 1; i < reference->n; i++)
        if (r[i].mean < r[fastest].mean) fastest = i;
    for (size_t i = 0; i < reference->n; i++) {
        r[i].pruned = i < fastest;
        if (i >= fastest) kept[n++] = i;
    }
    for (size_t i = 1; i + 1 < n;) {
        const tm_reference_record *low = &r[kept[i - 1]], *high = &r[kept[i + 1]];
        if (r[kept[i]].mean > at(r[kept[i]].batch, low->batch, low->mean, high->batch, high->mean)) {
            r[kept[i]].pruned = true;
            memmove(&kept[i], &kept[i + 1], (--n - i) * sizeof *kept);
        } else {
            i++;
        }
    }
    free(kept);
}

void tm_reference_finish(tm_reference *reference)
{
    TM_ASSERT(reference->kind->runs >= 3);
    qsort(reference->records, reference->n, sizeof *reference->records, by_batch);
    for (size_t i = 0; i < reference->n; i++) compute(&reference->records[i], reference->kind);
    prune(reference);
}

/* --- choice ------------------------------------------------------------------------------------------------------- */

tm_reference_choice tm_reference_choose(const tm_reference *reference, int64_t batch, bool full,
                                        tm_reference_record *record)
{
    const tm_reference_record *low = NULL, *high = NULL;
    for (size_t i = 0; i < reference->n; i++) {
        const tm_reference_record *r = &reference->records[i];
        if (r->pruned && !full) continue;
        if (r->batch == batch) {
            *record = *r;
            return TM_REFERENCE_FOUND;
        }
        if (r->batch < batch) low = r;
        if (r->batch > batch && !high) high = r;
    }
    if (low && high) {
        *record = tm_reference_between(reference, batch, low, high);
        return TM_REFERENCE_INTERPOLATED;
    }
    if (low) return TM_REFERENCE_MISSING;
    if (!high) return TM_REFERENCE_NONE;
    *record = *high;
    return TM_REFERENCE_SMALLEST;
}

/* --- tables ------------------------------------------------------------------------------------------------------- */

/* Value and count pairs end with a count of 0. */
typedef struct {
    const char *benchmark;
    int64_t     batch;
    const char *hyper;
    struct {
        double value;
        int    count;
    } samples[10];
    unsigned only; /* bits 1 << tm_ruleset; ALL: every one */
} table_row;

enum { ALL = 0, R510 = 1 << TM_RULESET_5_1_0, R6 = 1 << TM_RULESET_6_0_0 | 1 << TM_RULESET_6_1_0 };

#define HYPER_8B(rate, warmup, accumulation)                                                                           \
    "{'opt_base_learning_rate': " rate ", 'opt_learning_rate_warmup_samples': " warmup                                 \
    ", 'gradient_accumulation_steps': " accumulation "}"
#define HYPER_LORA(rate)                                                                                               \
    "{'opt_base_learning_rate': " rate ", 'opt_max_grad_norm': 0.3, 'opt_learning_rate_warmup_epochs': 0, "            \
    "'opt_learning_rate_decay_boundary_epochs': [], 'gradient_accumulation_steps': 1, 'lora_r': 16, 'lora_alpha': "    \
    "32, 'max_steps': 1024}"

#define HYPER_FLUX(rate, warmup)                                                                                       \
    "{'opt_adamw_beta_1': 0.9, 'opt_adamw_beta_2': 0.95, 'opt_adamw_epsilon': 1e-08, 'opt_adamw_weight_decay': 0.1, "  \
    "'opt_base_learning_rate': " rate ", 'opt_learning_rate_warmup_steps': " warmup ", 'opt_gradient_clip_norm': 1.0}"
#define HYPER_TINY(rate, warmup, accumulation)                                                                         \
    "{'opt_base_learning_rate': " rate ", 'opt_learning_rate_warmup_steps': " warmup                                   \
    ", 'gradient_accumulation_steps': " accumulation "}"

/* The public reference records, and our own. */
static const table_row table[] = {
#include "apps/mlperf/records.def"
};

static void fill(tm_reference_record *r, const table_row *row, tm_arena *arena)
{
    size_t n = 0;
    for (int i = 0; row->samples[i].count > 0; i++) n += (size_t)row->samples[i].count;
    double *samples = tm_arena_take(arena, n * sizeof *samples);
    for (int i = 0; row->samples[i].count > 0; i++)
        for (int k = 0; k < row->samples[i].count; k++) samples[r->n++] = row->samples[i].value;
    r->batch = row->batch;
    r->hyper = row->hyper;
    r->samples = samples;
    r->whole = true;
}

const tm_reference *tm_reference_built_in(const char *benchmark, tm_ruleset ruleset, tm_arena *arena)
{
    tm_reference *reference = tm_arena_take(arena, sizeof *reference);
    size_t        rows = sizeof table / sizeof table[0];
    reference->kind = tm_reference_kind_find(benchmark);
    reference->records = tm_arena_take(arena, rows * sizeof *reference->records);
    for (size_t i = 0; i < rows; i++)
        if (strcmp(table[i].benchmark, benchmark) == 0 && (!table[i].only || table[i].only >> ruleset & 1))
            fill(&reference->records[reference->n++], &table[i], arena);
    if (reference->n == 0) return NULL;
    TM_ASSERT(reference->kind);
    tm_reference_finish(reference);
    return reference;
}
