/* SPDX-License-Identifier: Apache-2.0 */
/* The certificate of the gradients: losses in float32 beside those of a narrow step, what may change a loss, and
 * names of groups. */
#include "support/test.h"
#include "support/training.h"

#include "train/certify/certificate.h"
#include "train/certify/perturb.h"
#include "train/certify/leak_probe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static tm_micro_batch micro_batches(const test_batch *b)
{
    return (tm_micro_batch){ .field = { b->tokens, b->targets }, .target_tokens = b->target_tokens };
}

/* 4 experts, two of them for each token, and a loss that balances them. */
static tm_step_options mixture_options(void)
{
    tm_step_options o = test_llama_options();
    o.shape.moe =
        (tm_moe_shape){ .experts = 4, .top_k = 2, .ffn_dim = 64, .normalise = true, .scale = 1, .aux_loss = 0.01 };
    return o;
}

static tm_step_options options_of(int kind)
{
    tm_step_options o = kind == 0 ? test_llama_options() : kind == 1 ? test_gpt_options() : mixture_options();
    if (kind == 3) {
        o = test_llama_options();
        o.shape.tied = true;
        o.accumulation = 2;
        o.recompute.every_n = 1;
    }
    return o;
}

/* Adapters that drop something: losses are those of the step's own rows. */
static tm_step_options dropping_options(void)
{
    tm_step_options o = test_llama_options();
    o.accumulation = 2;
    o.adapters = (tm_adapters){ .rank = 4, .alpha = 8, .dropout = 0.25, .seed = 3, .base = TM_DTYPE_COUNT };
    strcpy(o.adapters.targets, "all-linear");
    return o;
}

/* The weights of one trainer into another of the same model. */
static void copy_weights(const tm_trainer *from, tm_trainer *to)
{
    const tm_graph *a = tm_trainer_step_of(from)->graph, *b = tm_trainer_step_of(to)->graph;
    for (size_t i = 0; i < a->n_tensors; i++) {
        if (a->tensors[i].role != TM_ROLE_PARAMETER) continue;
        size_t k = 0;
        while (b->tensors[k].role != TM_ROLE_PARAMETER || strcmp(a->tensors[i].name, b->tensors[k].name) != 0) k++;
        double *values = test_values_read(from, (tm_tensor_id)i);
        test_values_write(to, (tm_tensor_id)k, values);
        free(values);
    }
}

/* The program "exact" of a step in bfloat16 computes what a step in float32 does with the same weights, bit for bit,
 * with what that drops of the same micro-batch; and it takes no memory. */
TEST(exact_losses_are_those_of_float32)
{
    static const tm_precision *const precisions[] = { &tm_precision_bf16, &tm_precision_bf16_pure };
    for (int kind = 0; kind < 5; kind++)
        for (int p = 0; p < 2; p++) {
            if (kind == 2) continue; /* experts */
            tm_step_options o = kind < 4 ? options_of(kind) : dropping_options(), plain, wide;
            o.micro_batch = 4, o.seq = 64, o.loss_chunk = 32;
            if (p == 1) o.recompute.every_n = 0; /* with it the copies of weights would take more */
            plain = wide = o;
            o.precision = plain.precision = precisions[p];
            o.exact = wide.precision = &tm_precision_f32;
            tm_device     *device = test_device_open("cpu", 1);
            tm_trainer    *a = test_trainer_open(device, &o, 7), *b = test_trainer_open(device, &wide, 7);
            tm_trainer    *c = test_trainer_open(device, &plain, 7);
            test_batch     rows = test_batch_random(o.micro_batch * o.accumulation, o.seq, o.shape.vocab_size, 7);
            tm_micro_batch batch = micro_batches(&rows);
            assert_string_equal(tm_trainer_step_of(a)->inexact, "");
            copy_weights(a, b);
            test_begin(a, 3, 0, 0, rows.target_tokens);
            test_begin(b, 3, 0, 0, rows.target_tokens);
            for (int64_t m = 0; m < o.accumulation; m++) {
                double   exact, coarse, wanted;
                tm_error err = { 0 };
                if (tm_trainer_exact(a, &batch, m, &exact, &err) != TM_OK ||
                    tm_trainer_forward(a, &batch, m, &coarse, &err) != TM_OK ||
                    tm_trainer_forward(b, &batch, m, &wanted, &err) != TM_OK)
                    fail_msg("%s", err.text);
                assert_memory_equal(&exact, &wanted, sizeof exact);
                assert_true(fabs(coarse - wanted) > 0);
            }
            assert_int_equal(tm_trainer_step_of(a)->plan->arena_bytes, tm_trainer_step_of(c)->plan->arena_bytes);
            test_batch_fini(&rows);
            tm_trainer_close(a);
            tm_trainer_close(b);
            tm_trainer_close(c);
            tm_device_close(device);
        }
}

enum { SAMPLES = 3, LONGEST = 36, VOCABULARY = 5 };

typedef struct {
    tm_step_options o;
    int32_t         tokens[SAMPLES * LONGEST], targets[SAMPLES * LONGEST], first_key[SAMPLES * LONGEST];
    tm_micro_batch  batch;
    int ends[LONGEST], backs[LONGEST], lengths[LONGEST], others[VOCABULARY], places[3]; /* how often each was there */
} probed;

/* Samples of documents of so many tokens. */
static void fill_probed(probed *b, int seq, int document)
{
    *b = (probed){ .o = test_llama_options() };
    b->o.micro_batch = SAMPLES, b->o.seq = seq, b->o.n_fields = 3, b->o.shape.vocab_size = VOCABULARY;
    b->o.fields[0] = (tm_field){ .name = "tokens" };
    b->o.fields[1] = (tm_field){ .name = "targets" };
    b->o.fields[2] = (tm_field){ .name = "first_key" };
    for (int i = 0; i < SAMPLES * seq; i++) {
        b->tokens[i] = i % VOCABULARY;
        b->targets[i] = i % 5 == 0 ? TM_IGNORED_TARGET : i;
        b->first_key[i] = i % seq / document * document;
    }
    b->batch = (tm_micro_batch){ .field = { b->tokens, b->targets, b->first_key } };
}

/* Other tokens in the last quarter; of samples 0 and 2 also in a short run before the middle half's place `back`, if a
 * token there sees one before it. */
static void look_at_replaced(probed *b, const int32_t *tokens, const int32_t *was, const int32_t *first_key, bool runs)
{
    int seq = (int)b->o.seq, quarter = seq / 4, end = seq, run = 0;
    while (end > 0 && tokens[end - 1] != was[end - 1]) end--;
    assert_in_range(end, seq - quarter, seq - 1);
    b->ends[end]++;
    bool fits = false;
    for (int back = 1 + quarter; runs && back <= 3 * quarter && back < end; back++)
        fits = fits || first_key[back] < back;
    while (run < end && tokens[run] == was[run]) run++;
    assert_true((run < end) == fits);
    if (!fits) return;
    int back = run;
    while (tokens[back] != was[back]) back++;
    assert_in_range(back, 1 + quarter, 3 * quarter);
    assert_in_range(back - run, 1, seq / 8 + 1);
    assert_true(first_key[back] < back);
    b->backs[back]++, b->lengths[back - run]++;
    for (int t = back; t < end; t++) assert_int_equal(tokens[t], was[t]);
}

static void look_at_probe(probed *b, uint64_t seed)
{
    const int seq = (int)b->o.seq;
    double    before[SAMPLES * LONGEST], after[SAMPLES * LONGEST];
    tm_probe  probe;
    int       count[3] = { 0 };
    tm_probe_make(&b->o, &b->batch, seed, &probe);
    assert_int_equal(probe.rows, SAMPLES * seq);
    assert_true(probe.replaced.field[0] == probe.tokens && probe.replaced.field[1] == b->targets);
    for (int s = 0; s < SAMPLES; s++)
        look_at_replaced(b, probe.tokens + s * seq, b->tokens + s * seq, b->first_key + s * seq, s % 2 == 0);
    for (int i = 0; i < SAMPLES * seq; i++) before[i] = after[i] = i;
    assert_int_equal(tm_probe_leak(&probe, before, after), -1);
    assert_false(tm_probe_looks(&probe, before, after));
    for (int i = 0; i < SAMPLES * seq; i++) {
        bool sees = false; /* other tokens before its own */
        for (int j = i / seq * seq + b->first_key[i]; j < i; j++) sees = sees || probe.tokens[j] != b->tokens[j];
        bool other = probe.tokens[i] != b->tokens[i] || b->targets[i] == TM_IGNORED_TARGET;
        assert_in_range(probe.tokens[i], 0, VOCABULARY - 1);
        assert_int_equal(probe.places[i], other ? TM_PROBE_FREE : sees ? TM_PROBE_LOOKS : TM_PROBE_STAYS);
        after[i] = before[i] + 0.5;
        assert_int_equal(tm_probe_leak(&probe, before, after), probe.places[i] == TM_PROBE_STAYS ? i : -1);
        assert_int_equal(tm_probe_looks(&probe, before, after), probe.places[i] == TM_PROBE_LOOKS);
        after[i] = before[i];
        count[probe.places[i]]++;
    }
    assert_true(probe.possible == (count[TM_PROBE_STAYS] > 0) && probe.context == (count[TM_PROBE_LOOKS] > 0));
    b->others[probe.tokens[seq - 1]]++;
    for (int k = 0; k < 3; k++) b->places[k] += count[k];
    tm_probe_fini(&probe);
}

TEST(probes_say_what_a_loss_may_see)
{
    static const int lengths[] = { 4, 5, 8, 14, LONGEST };
    probed           b;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        for (int document = 1; document <= 2 * lengths[i]; document = document < 4 ? document + 1 : document * 2 - 1) {
            fill_probed(&b, lengths[i], document);
            for (uint64_t seed = 1; seed <= 20; seed++) look_at_probe(&b, seed);
            assert_true(document > 1 || b.places[TM_PROBE_LOOKS] == 0);
        }
    /* Every place, length and token that can be is drawn. */
    fill_probed(&b, LONGEST, LONGEST);
    for (uint64_t seed = 1; seed <= 400; seed++) look_at_probe(&b, seed);
    for (int end = 27; end <= 35; end++) assert_true(b.ends[end] > 50);
    for (int back = 10; back <= 27; back++) assert_true(b.backs[back] > (back < 27 ? 10 : 0));
    for (int length = 1; length <= 5; length++) assert_true(b.lengths[length] > 50);
    for (int token = 0; token < VOCABULARY; token++)
        assert_true((b.others[token] > 40) == (token != b.tokens[LONGEST - 1]));
}

TEST(groups_have_names)
{
    static const char *const names[][2] = {
        { "layers.3.attention.wo.weight", "layers.3 attention" },
        { "layers.12.attention_norm.weight", "layers.12 norms" },
        { "layers.12.ffn_norm.weight", "layers.12 norms" },
        { "layers.0.feed_forward.w2.weight", "layers.0 feed_forward" },
        { "h.7.attn.c_proj.bias", "h.7 attn" },
        { "layers.0.moe.router.gate.weight", "layers.0 moe.router" },
        { "layers.0.moe.experts.w13.weight", "layers.0 moe.experts" },
        { "h.7.ln_1.weight", "h.7 norms" },
        { "tok_embeddings.weight", "tok_embeddings" },
        { "output.weight", "output" },
        { "norm.weight", "norm" },
#define TEN "abcdefghij"
        { "layers.0." TEN TEN TEN TEN "abcdefghi.w", "layers.0 " TEN TEN TEN TEN "abcdefghi" },
        { "layers.0." TEN TEN TEN TEN TEN ".w", "layers.0 " TEN TEN TEN TEN TEN },
        { "layers.0." TEN TEN TEN TEN TEN "k.w", "layers.0 " TEN TEN TEN TEN TEN },
        { TEN TEN TEN TEN TEN TEN TEN TEN "abcdefghi.w", TEN TEN TEN TEN TEN TEN TEN TEN "abcdefghi" },
        { TEN TEN TEN TEN TEN TEN TEN TEN TEN "k.w", TEN TEN TEN TEN TEN TEN TEN TEN TEN },
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char group[96];
        tm_motion_group_of(names[i][0], group);
        assert_string_equal(group, names[i][1]);
    }
}
