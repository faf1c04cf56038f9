/* SPDX-License-Identifier: Apache-2.0 */
#include "train/probe.h"

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

/* The first place whose target counts: one that sees the token before it, if the documents of the row have such a place
 * in its first quarter. */
static int64_t choose_from(int64_t seq, const int32_t *first_key, uint64_t seed, int64_t row, bool *context)
{
    int64_t quarter = seq / 4, from = 1 + (int64_t)tm_random_below(seed, 77, (uint64_t)row, (uint64_t)quarter);
    for (int64_t i = 0; i < quarter; i++, from = from % quarter + 1) {
        if (first_key && first_key[from] >= from) continue;
        *context = true;
        return from;
    }
    return from;
}

void tm_probe_make(const tm_step_options *o, const tm_micro_batch *batch, uint64_t seed, tm_probe *out)
{
    int tokens = field_named(o, "tokens"), targets = field_named(o, "targets"), first = field_named(o, "first_key");
    *out = (tm_probe){ .counted = *batch };
    if (tokens < 0 || targets < 0 || o->seq < 4 || o->shape.vocab_size < 2) return;
    size_t bytes = (size_t)(o->micro_batch * o->seq) * sizeof(int32_t);
    for (int k = 0; k < 3; k++) {
        out->memory[k] = tm_alloc(bytes);
        memcpy(out->memory[k], batch->field[k == 0 ? targets : tokens], bytes);
    }
    int32_t *counted = out->memory[0];
    int64_t  n = 0;
    for (int64_t row = 0; row < o->micro_batch; row++) {
        const int32_t *first_key = first < 0 ? NULL : (const int32_t *)batch->field[first] + row * o->seq;
        int64_t        from = choose_from(o->seq, first_key, seed, row, &out->context);
        int64_t        to = o->seq - 1 - (int64_t)tm_random_below(seed, 79, (uint64_t)row, (uint64_t)(o->seq / 4));
        for (int64_t t = 0; t < o->seq; t++) {
            int64_t at = row * o->seq + t;
            int32_t token = ((const int32_t *)batch->field[tokens])[at];
            /* another one for certain */
            token = (int32_t)((token + 1 +
                               (int64_t)tm_random_below(seed, 78, (uint64_t)at, (uint64_t)(o->shape.vocab_size - 1))) %
                              o->shape.vocab_size);
            if (t >= to) out->memory[1][at] = token;
            if (t < from) out->memory[2][at] = token;
            if (t < from || t >= to) counted[at] = TM_IGNORED_TARGET;
            n += counted[at] != TM_IGNORED_TARGET;
        }
    }
    out->possible = n > 0; /* else all that counts is at the edges: no probe */
    if (!out->possible) return;
    out->counted.field[targets] = counted;
    out->counted.target_tokens = n;
    out->later = out->earlier = out->counted;
    out->later.field[tokens] = out->memory[1];
    out->earlier.field[tokens] = out->memory[2];
}

void tm_probe_fini(tm_probe *probe)
{
    for (int k = 0; k < 3; k++) free(probe->memory[k]);
}
