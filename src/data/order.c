/* SPDX-License-Identifier: Apache-2.0 */
#include "data/order.h"

#include "base/cpu.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

enum { MT_WORDS = 624, MT_SHIFT = 397, AHEAD = 64 };

void tm_mt19937_seed(tm_mt19937 *generator, uint32_t seed)
{
    generator->state[0] = seed;
    for (uint32_t i = 1; i < MT_WORDS; i++) {
        uint32_t before = generator->state[i - 1];
        generator->state[i] = 1812433253U * (before ^ before >> 30) + i;
    }
    generator->used = MT_WORDS;
}

static void twist(tm_mt19937 *generator)
{
    uint32_t *state = generator->state;
    for (int i = 0; i < MT_WORDS; i++) {
        uint32_t both = (state[i] & 0x80000000U) | (state[(i + 1) % MT_WORDS] & 0x7FFFFFFFU);
        state[i] = state[(i + MT_SHIFT) % MT_WORDS] ^ both >> 1 ^ (both & 1 ? 0x9908B0DFU : 0);
    }
    generator->used = 0;
}

uint32_t tm_mt19937_next(tm_mt19937 *generator)
{
    if (generator->used == MT_WORDS) twist(generator);
    uint32_t y = generator->state[generator->used++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9D2C5680U;
    y ^= y << 15 & 0xEFC60000U;
    return y ^ y >> 18;
}

/* Uniform in 0 .. i, i >= 1. */
static uint32_t draw(tm_mt19937 *generator, uint32_t i)
{
    uint32_t mask = UINT32_MAX >> __builtin_clz(i), j;
    do j = tm_mt19937_next(generator) & mask;
    while (j > i);
    return j;
}

/* Partners are drawn AHEAD at a time, so that a large array's memory is on its way when the swap comes. */
void tm_mt19937_shuffle(tm_mt19937 *generator, uint32_t *items, int64_t n)
{
    uint32_t partner[AHEAD];
    for (int64_t i = n - 1; i > 0; i -= AHEAD) {
        int64_t block = i < AHEAD ? i : AHEAD;
        for (int64_t k = 0; k < block; k++) {
            partner[k] = draw(generator, (uint32_t)(i - k));
            __builtin_prefetch(&items[partner[k]], 1);
        }
        for (int64_t k = 0; k < block; k++) {
            uint32_t item = items[i - k];
            items[i - k] = items[partner[k]];
            items[partner[k]] = item;
        }
    }
}

tm_status tm_order_plan_make(int64_t documents, int64_t tokens, int64_t seq, int64_t wanted, tm_order_plan *out,
                             tm_error *err)
{
    int64_t needed, all;
    if (tokens <= seq)
        return tm_fail(err, TM_INVALID,
                       "the data set has %lld tokens, a sample takes %lld (training.seq_len + 1); give more data or "
                       "lower training.seq_len",
                       (long long)tokens, (long long)seq + 1);
    bool    overflow = __builtin_mul_overflow(wanted, seq, &needed) || needed > INT64_MAX - tokens;
    int64_t epochs = overflow ? 0 : (needed + tokens) / tokens; /* least E with E N >= n T + 1 */
    overflow = overflow || __builtin_mul_overflow(epochs, documents, &all) || all > UINT32_MAX ||
               (epochs * tokens - 1) / seq > UINT32_MAX - 1;
    if (overflow)
        return tm_fail(err, TM_INVALID,
                       "%lld samples of %lld tokens from %lld documents of %lld tokens need tables of more than 2^32 "
                       "entries; lower training.steps",
                       (long long)wanted, (long long)seq, (long long)documents, (long long)tokens);
    *out = (tm_order_plan){ .documents = documents, .tokens = tokens, .seq = seq, .epochs = epochs };
    out->samples = (epochs * tokens - 1) / seq;
    if (epochs > 1) {
        int64_t before = ((epochs - 1) * tokens - 1) / seq, last = wanted - before;
        out->separate = last < 4 * ((tokens - 1) / seq) / 5; /* floor(0.8 x) */
        out->before_last = out->separate ? before : 0;
    }
    out->document_bytes = all * (int64_t)sizeof(uint32_t);
    out->sample_bytes = (out->samples + 1) * (int64_t)sizeof(tm_order_sample);
    out->shuffle_bytes = out->samples * (int64_t)sizeof(uint32_t);
    return TM_OK;
}

int64_t tm_order_plan_bytes(const tm_order_plan *plan)
{
    return plan->document_bytes + plan->sample_bytes + plan->shuffle_bytes;
}

static tm_status take_memory(tm_order *order, tm_error *err)
{
    const tm_order_plan *plan = &order->plan;
    int64_t              available = tm_memory_available_bytes("");
    char                 wanted[32], found[32];
    if (available == 0 || tm_order_plan_bytes(plan) <= available) {
        order->documents = malloc((size_t)plan->document_bytes);
        order->samples = malloc((size_t)plan->sample_bytes);
        order->shuffle = malloc((size_t)plan->shuffle_bytes);
    }
    if (order->documents && order->samples && order->shuffle) return TM_OK;
    return tm_fail(err, TM_NOMEM,
                   "the order of the samples (%lld epochs of %lld documents) takes %s, %s are available; lower "
                   "training.steps",
                   (long long)plan->epochs, (long long)plan->documents,
                   tm_format_bytes(wanted, (double)tm_order_plan_bytes(plan)),
                   tm_format_bytes(found, (double)available));
}

static void order_documents(tm_order *order, tm_mt19937 *generator)
{
    const tm_order_plan *plan = &order->plan;
    int64_t              all = plan->epochs * plan->documents, together = plan->separate ? all - plan->documents : all;
    for (int64_t e = 0, at = 0; e < plan->epochs; e++)
        for (int64_t d = 0; d < plan->documents; d++) order->documents[at++] = (uint32_t)d;
    tm_mt19937_shuffle(generator, order->documents, together);
    tm_mt19937_shuffle(generator, order->documents + together, all - together);
}

/* Tokens of the document at a position of the order; its length was asked for in time, the one AHEAD is now. */
static int64_t length_at(const tm_order *order, const uint8_t *lengths, int64_t position)
{
    int64_t all = order->plan.epochs * order->plan.documents;
    if (position + AHEAD < all) __builtin_prefetch(lengths + 4 * (int64_t)order->documents[position + AHEAD]);
    const uint8_t *p = lengths + 4 * (int64_t)order->documents[position];
    return (int64_t)((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
}

/* A sample takes T + 1 tokens and gives its last one back. */
static void order_samples(tm_order *order, const uint8_t *lengths)
{
    int64_t position = 0, offset = 0, length = length_at(order, lengths, 0);
    order->samples[0] = (tm_order_sample){ 0, 0 };
    for (int64_t k = 1; k <= order->plan.samples; k++) {
        for (int64_t missing = order->plan.seq + 1; missing > 0;) {
            if (length - offset >= missing) {
                offset += missing - 1;
                break;
            }
            missing -= length - offset;
            length = length_at(order, lengths, ++position);
            offset = 0;
        }
        order->samples[k] = (tm_order_sample){ (uint32_t)position, (int32_t)offset };
    }
}

static void order_shuffle(tm_order *order, tm_mt19937 *generator)
{
    const tm_order_plan *plan = &order->plan;
    int64_t              together = plan->separate ? plan->before_last : plan->samples;
    for (int64_t i = 0; i < plan->samples; i++) order->shuffle[i] = (uint32_t)i;
    tm_mt19937_shuffle(generator, order->shuffle, together);
    tm_mt19937_shuffle(generator, order->shuffle + together, plan->samples - together);
}

tm_status tm_order_build(const tm_order_plan *plan, const uint8_t *lengths, uint32_t seed, tm_order *out, tm_error *err)
{
    tm_mt19937 generator;
    *out = (tm_order){ .plan = *plan };
    tm_status st = take_memory(out, err);
    if (st != TM_OK) {
        tm_order_free(out);
        return st;
    }
    tm_mt19937_seed(&generator, seed);
    order_documents(out, &generator);
    order_samples(out, lengths);
    order_shuffle(out, &generator);
    return TM_OK;
}

void tm_order_free(tm_order *order)
{
    free(order->documents);
    free(order->samples);
    free(order->shuffle);
    *order = (tm_order){ 0 };
}
