/* SPDX-License-Identifier: Apache-2.0 */
#include "system/validity.h"

#include "base/arena.h"
#include "base/clock.h"
#include "stats/summary.h"
#include "system/judge.h"
#include "system/sample.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHARE = 2000, LEAST_GAP_NS = 100000000 };

/* --- facts -------------------------------------------------------------------------------------------------------- */

/* Change of the rate of the processor's own counter from the first to the second half of the samples, in percent of
 * the whole; NAN where a part is shorter than a quarter of a second. */
static double counter_change(const sample *s, int n)
{
    const sample *first = &s[0], *middle = first, *last = &s[n - 1];
    while (middle < last && middle->at < (first->at + last->at) / 2) middle++;
    double one = middle->at - first->at, two = last->at - middle->at;
    if (!(one >= 0.25 && two >= 0.25)) return (double)NAN;
    double before = (middle->cycles - first->cycles) / one, after = (last->cycles - middle->cycles) / two;
    return 100 * fabs(after - before) / ((last->cycles - first->cycles) / (one + two));
}

/* How far the wall clock runs from CLOCK_MONOTONIC, in percent: the median of the stretches between samples, so that a
 * clock that is set (once) does not count, but one that runs at another speed does. NAN below three stretches. */
static double wall_error(const sample *s, int n)
{
    double ratio[VALIDITY_ROOM];
    int    found = 0;
    for (int i = 1; i < n; i++)
        if (s[i].at - s[i - 1].at >= 0.05) ratio[found++] = (s[i].wall - s[i - 1].wall) / (s[i].at - s[i - 1].at);
    return found < 3 ? (double)NAN : 100 * fabs(tm_stats_median(ratio, found) - 1);
}

/* How far CLOCK_MONOTONIC, by which everything is timed, runs from the raw clock, the wall clock, the kernel's uptime
 * as a file tells it, or the processor's counter (by its own rate, and in its two halves): the worst of what is known.
 */
static double clock_error(const sample *s, int n)
{
    const sample *a = &s[0], *b = &s[n - 1];
    double        seconds = b->at - a->at, none = (double)NAN;
    double        raw = seconds < 1 ? none : 100 * fabs((b->raw - a->raw) / seconds - 1);
    double        counter = seconds < 1 ? none : 100 * fabs((b->counter - a->counter) / seconds - 1);
    double        off = fmax(0, fabs(b->uptime - a->uptime - seconds) - 0.02); /* hundredths, rounded down */
    double        uptime = seconds < 1 || isnan(a->uptime + b->uptime) ? none : 100 * off / seconds;
    return fmax(fmax(fmax(raw, counter), fmax(uptime, wall_error(s, n))), counter_change(s, n)); /* ignores a NAN */
}

/* Slow against fast, 95 against 5 % of the samples. */
static double frequency_change(const sample *s, int n)
{
    double spin[VALIDITY_ROOM];
    if (n < 3) return (double)NAN;
    for (int i = 0; i < n; i++) spin[i] = s[i].spin_ns;
    return 100 * (tm_stats_percentile(spin, n, 0.95) / tm_stats_percentile(spin, n, 0.05) - 1);
}

static double other_load(const sample *from, const sample *to, int processors)
{
    double others = to->busy - from->busy - (to->own - from->own);
    double share = 100 * others / ((to->at - from->at) * processors);
    return share < 0 ? 0 : share; /* a NAN stays */
}

/* Of all stretches between samples that are a second or a little longer. */
static double worst_second(const sample *s, int n, int processors)
{
    double worst = (double)NAN;
    for (int from = 0, to = 0; from < n; from++) {
        while (to < n && s[to].at - s[from].at < 1) to++;
        if (to == n) break;
        worst = fmax(worst, other_load(&s[from], &s[to], processors));
    }
    return worst;
}

/* Of the samples that know it. */
static double mean_of(const sample *s, int n, size_t at)
{
    double sum = 0;
    int    known = 0;
    for (int i = 0; i < n; i++) {
        double value = *(const double *)(const void *)((const char *)&s[i] + at);
        if (isnan(value)) continue;
        sum += value;
        known++;
    }
    return known ? sum / known : (double)NAN;
}

static void fill_gpu_facts(const sample *s, int n, double fact[TM_MACHINE_COUNT])
{
    const sample *a = &s[0], *b = &s[n - 1];
    double        percent = 100 / (b->gpu_time - a->gpu_time), hottest = (double)NAN;
    for (int i = 0; i < n; i++) hottest = fmax(hottest, s[i].gpu_temperature);
    fact[TM_MACHINE_GPU_HEAT] = percent * (b->gpu_heat - a->gpu_heat);
    fact[TM_MACHINE_GPU_CAPPED] = percent * (b->gpu_capped - a->gpu_capped);
    fact[TM_MACHINE_GPU_CLOCK] = mean_of(s, n, offsetof(sample, gpu_clock));
    fact[TM_MACHINE_GPU_POWER] = mean_of(s, n, offsetof(sample, gpu_power));
    fact[TM_MACHINE_GPU_TEMPERATURE] = hottest;
}

static void fill_facts(const sample *s, int n, int processors, double thermal, double fact[TM_MACHINE_COUNT])
{
    const sample *a = &s[0], *b = &s[n - 1];
    double        seconds = b->at - a->at, percent = 100 / seconds, of_processors = percent / processors;
    fact[TM_MACHINE_STEAL] = of_processors * (b->steal - a->steal);
    fact[TM_MACHINE_THROTTLED] = of_processors * (b->throttled - a->throttled);
    fact[TM_MACHINE_OTHER] = other_load(a, b, processors);
    fact[TM_MACHINE_OTHER_WORST] = worst_second(s, n, processors);
    fact[TM_MACHINE_FREQUENCY] = frequency_change(s, n);
    fact[TM_MACHINE_CLOCK] = clock_error(s, n);
    fact[TM_MACHINE_MAJOR] = (b->major_faults - a->major_faults) / seconds;
    fact[TM_MACHINE_MINOR] = (b->minor_faults - a->minor_faults) / seconds;
    fact[TM_MACHINE_SWITCHES] = (b->switches - a->switches) / seconds;
    fact[TM_MACHINE_MIGRATIONS] = (b->migrations - a->migrations) / seconds;
    fact[TM_MACHINE_THERMAL] = thermal;
    fact[TM_MACHINE_IOWAIT] = of_processors * (b->iowait - a->iowait);
    fact[TM_MACHINE_CPU_PRESSURE] = percent * (b->stalled_cpu - a->stalled_cpu);
    fact[TM_MACHINE_MEMORY_PRESSURE] = percent * (b->stalled_memory - a->stalled_memory);
    fact[TM_MACHINE_IO_PRESSURE] = percent * (b->stalled_io - a->stalled_io);
    fill_gpu_facts(s, n, fact);
}

/* --- verdict ------------------------------------------------------------------------------------------------------ */

/* One row of the list, for one value: the worst verdict counts, and the words of all that have it. */
static void weigh(tm_validity_report *r, double value, double noisy, double invalid, const char *words)
{
    tm_verdict verdict = value > invalid ? TM_VERDICT_INVALID : value > noisy ? TM_VERDICT_NOISY : TM_VERDICT_VALID;
    if (verdict == TM_VERDICT_VALID || verdict < r->verdict) return;
    size_t used = verdict == r->verdict ? strlen(r->reason) : 0;
    r->verdict = verdict;
    snprintf(r->reason + used, sizeof r->reason - used, "%s%s", used ? "; " : "", words);
}

void tm_validity_judge(tm_validity_report *r)
{
    bool known = false;
    char words[128];
    if (!(r->seconds >= 1)) {
        r->verdict = TM_VERDICT_NOT_JUDGED;
        snprintf(r->reason, sizeof r->reason, "%.2g s are too short to judge the machine by (1 s is needed)",
                 r->seconds);
        return;
    }
    r->verdict = TM_VERDICT_VALID;
    snprintf(r->reason, sizeof r->reason, "nothing disturbed the machine");
#define X(id, label, noisy, invalid, text)                                                                             \
    if (isfinite((double)(noisy)) && !isnan(r->facts[TM_MACHINE_##id].value)) {                                        \
        known = true;                                                                                                  \
        snprintf(words, sizeof words, text, r->facts[TM_MACHINE_##id].value);                                          \
        weigh(r, r->facts[TM_MACHINE_##id].value, (double)(noisy), (double)(invalid), words);                          \
    }
    TM_MACHINE_LIST(X)
#undef X
    if (known) return;
    r->verdict = TM_VERDICT_NOT_JUDGED;
    snprintf(r->reason, sizeof r->reason, "the system does not report what disturbs it");
}

void judge_samples(const sample *s, int n, int processors, double thermal, tm_validity_report *out)
{
    static const char *const names[] = {
#define X(id, name, noisy, invalid, text) name,
        TM_MACHINE_LIST(X)
#undef X
    };
    double fact[TM_MACHINE_COUNT];
    *out = (tm_validity_report){
        .samples = n, .seconds = s[n - 1].at - s[0].at, .processors = processors, .n_facts = TM_MACHINE_GPU
    };
    fill_facts(s, n, processors, thermal, fact);
    for (int i = 0; i < TM_MACHINE_COUNT; i++)
        out->facts[i] = (tm_named_f64){ names[i], isfinite(fact[i]) ? fact[i] : (double)NAN };
    tm_validity_judge(out);
}

/* --- samples through a measurement -------------------------------------------------------------------------------- */

/* Full: every second sample goes, and from now on they come half as often. */
static void thin(tm_validity *v)
{
    for (int i = 0; i < VALIDITY_ROOM / 2; i++) v->samples[i] = v->samples[2 * i];
    v->count = VALIDITY_ROOM / 2;
    v->gap_ns *= 2;
}

static void take(tm_validity *v, bool ends)
{
    if (v->count == VALIDITY_ROOM) thin(v);
    int64_t begin = tm_now_ns();
    sampler_take(&v->source, ends, &v->samples[v->count++]);
    int64_t now = tm_now_ns(), cost = (now - begin) * SHARE;
    v->next_ns = now + (cost > v->gap_ns ? cost : v->gap_ns);
}

tm_validity *tm_validity_start(const char *sysroot)
{
    tm_validity *v = tm_alloc(sizeof *v);
    memset(v, 0, sizeof *v);
    v->gap_ns = LEAST_GAP_NS;
    sampler_open(&v->source, sysroot);
    take(v, true);
    v->next_ns = 0; /* the end of the first step is worth a sample, however short it was */
    return v;
}

void tm_validity_watch(tm_validity *v, tm_gpu_sensors *gpu)
{
    v->source.gpu = gpu;
    v->count = 0;
    take(v, true);
    v->next_ns = 0;
}

void tm_validity_sample(tm_validity *v)
{
    if (tm_now_ns() >= v->next_ns) take(v, false);
}

void tm_validity_gpu(const tm_validity *v, double *clock_mhz, double *temperature_c)
{
    const sample *last = &v->samples[v->count - 1];
    *clock_mhz = v->source.gpu && last->gpu_clock > 0 ? last->gpu_clock : 0;
    *temperature_c = v->source.gpu && last->gpu_temperature > 0 ? last->gpu_temperature : 0;
}

void tm_validity_stop(tm_validity *v, int64_t from_ns, tm_validity_report *out)
{
    double before = v->samples[0].thermal;
    take(v, true);
    int first = 0;
    while (first < v->count - 2 && v->samples[first].at < (double)from_ns * 1e-9) first++;
    judge_samples(v->samples + first, v->count - first, v->source.processors, v->samples[v->count - 1].thermal - before,
                  out);
    if (v->source.gpu) out->n_facts = TM_MACHINE_COUNT;
}

void tm_validity_destroy(tm_validity *v)
{
    if (!v) return;
    sampler_close(&v->source);
    free(v);
}
