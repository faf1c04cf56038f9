/* SPDX-License-Identifier: Apache-2.0 */
#include "train/certify/leak_probe.h"

#include "base/arena.h"
#include "base/random.h"
#include "op/attrs.h"

#include <stdlib.h>
#include <string.h>

static int field_named(const tm_step_options *o, const char *name)
{
    for (int f = 0; f < o->n_fields; f++)
        if (strcmp(o->fields[f].name, name) == 0) return f;
    return -1;
}

/* Places of a sample: other tokens are in [run, back) and from `end` on; run == back: only there. */
typedef struct {
    int64_t run, back, end;
} layout;

/* `back`: in the middle half, and not where a document begins, which sees nothing before it. */
static layout lay_out(int64_t seq, const int32_t *first_key, uint64_t seed, int64_t sample)
{
    int64_t quarter = seq / 4, eighth = seq / 8 + 1;
    int64_t end = seq - 1 - (int64_t)tm_random_below(seed, 79, (uint64_t)sample, (uint64_t)quarter);
    int64_t step = (int64_t)tm_random_below(seed, 77, (uint64_t)sample, (uint64_t)(2 * quarter));
    int64_t length = 1 + (int64_t)tm_random_below(seed, 80, (uint64_t)sample, (uint64_t)eighth);
    for (int64_t i = 0; i < 2 * quarter && sample % 2 == 0; i++) {
        int64_t back = 1 + quarter + (step + i) % (2 * quarter);
        if (back < end && (!first_key || first_key[back] < back))
            return (layout){ back - length, back, end }; /* a quarter lies before it, and length is an eighth */
    }
    return (layout){ end, end, end };
}

/* Another token for certain. */
static int32_t other_token(int32_t token, int64_t vocab, uint64_t seed, int64_t at)
{
    return (int32_t)((token + 1 + (int64_t)tm_random_below(seed, 78, (uint64_t)at, (uint64_t)(vocab - 1))) % vocab);
}

void tm_probe_make(const tm_step_options *o, const tm_micro_batch *batch, uint64_t seed, tm_probe *out)
{
    int tokens = field_named(o, "tokens"), targets = field_named(o, "targets"), first = field_named(o, "first_key");
    *out = (tm_probe){ .replaced = *batch, .rows = o->micro_batch * o->seq };
    if (tokens < 0 || targets < 0 || o->seq < 4 || o->shape.vocab_size < 2) return;
    const int32_t *was = batch->field[tokens], *target = batch->field[targets];
    out->tokens = tm_alloc((size_t)out->rows * sizeof *out->tokens);
    out->places = tm_alloc((size_t)out->rows * sizeof *out->places);
    for (int64_t sample = 0; sample < o->micro_batch; sample++) {
        int64_t        from = sample * o->seq;
        const int32_t *first_key = first < 0 ? NULL : (const int32_t *)batch->field[first] + from;
        layout         l = lay_out(o->seq, first_key, seed, sample);
        for (int64_t t = 0; t < o->seq; t++) {
            int64_t        at = from + t;
            bool           other = (t >= l.run && t < l.back) || t >= l.end;
            bool           looks = t >= l.back && !(first_key && first_key[t] >= l.back); /* no document of its own */
            tm_probe_place place = other ? TM_PROBE_FREE : looks ? TM_PROBE_LOOKS : TM_PROBE_STAYS;
            if (target[at] == TM_IGNORED_TARGET) place = TM_PROBE_FREE;
            out->tokens[at] = other ? other_token(was[at], o->shape.vocab_size, seed, at) : was[at];
            out->places[at] = place;
            out->possible = out->possible || place == TM_PROBE_STAYS;
            out->context = out->context || place == TM_PROBE_LOOKS;
        }
    }
    out->replaced.field[tokens] = out->tokens;
}

int64_t tm_probe_leak(const tm_probe *probe, const double *before, const double *after)
{
    for (int64_t i = 0; i < probe->rows; i++)
        if (probe->places[i] == TM_PROBE_STAYS && memcmp(&before[i], &after[i], sizeof before[i]) != 0) return i;
    return -1;
}

bool tm_probe_looks(const tm_probe *probe, const double *before, const double *after)
{
    for (int64_t i = 0; i < probe->rows; i++)
        if (probe->places[i] == TM_PROBE_LOOKS && memcmp(&before[i], &after[i], sizeof before[i]) != 0) return true;
    return false;
}

void tm_probe_fini(tm_probe *probe)
{
    free(probe->tokens);
    free(probe->places);
}
