/* SPDX-License-Identifier: Apache-2.0 */
/* What certificates say of honest steps of many kinds, and of some whose gradients, masks, context, loss or adapters
 * are wrong; the losses in float32 that they compare; and what a loss may see. */
#include "support/test.h"
#include "op/attrs.h"
#include "step_cases.h"
#include "train/certify/certificate.h"
#include "train/certify/leak_probe.h"
#include "train/certify/perturb.h"

/* --- steps -------------------------------------------------------------------------------------------------------- */

typedef enum {
    LLAMA,
    ROW,
    GPT,
    TIED,
    SHORT,
    EXPERTS,
    NARROW_EXPERTS,
    EXACT_EXPERTS,
    ADAPTERS,
    DORA,
    EXACT,
    PURE_EXACT,
    NARROW,
    TABLE,
    ODD,
    FOUR
} kind;

static tm_step_options options_of(kind k)
{
    tm_step_options o = k == GPT ? test_gpt_options() : test_llama_options();
    if (k == ROW) o.micro_batch = 1;
    if (k == TIED || k == SHORT) o.shape.tied = true, o.accumulation = 2, o.recompute.every_n = 1;
    if (k == SHORT) o.seq = 3; /* for a probe */
    if (k == EXPERTS || k == NARROW_EXPERTS || k == EXACT_EXPERTS)
        o.shape.moe = four_experts(), o.shape.moe.normalise = true;
    if (k == ADAPTERS || k == DORA) {
        o.accumulation = 2;
        o.adapters = (tm_adapters){ .rank = 4, .alpha = 8, .dropout = 0.25, .seed = 3, .base = TM_DTYPE_COUNT };
        strcpy(o.adapters.targets, k == DORA ? "all-linear" : "all-linear,lm_head");
        o.adapters.dora = k == DORA;
    }
    if (k == EXACT || k == PURE_EXACT || k == NARROW)
        o.micro_batch = 4, o.seq = 64; /* losses in float32 take no memory */
    if (k == EXACT || k == NARROW || k == NARROW_EXPERTS || k == EXACT_EXPERTS) o.precision = &tm_precision_bf16;
    if (k == PURE_EXACT) o.precision = &tm_precision_bf16_pure;
    if (k == EXACT || k == PURE_EXACT || k == EXACT_EXPERTS) o.exact = &tm_precision_f32;
    if (k == TABLE) o.shape.vocab_size = 1000; /* 64,000 elements, which are moved in two pieces */
    if (k == ODD)                              /* sizes that no block fits */
        o.shape.dim = 76, o.shape.head_dim = 38, o.shape.ffn_dim = 101, o.shape.vocab_size = 97;
    if (k == FOUR) o.accumulation = 4;
    return o;
}

/* What is wrong: gradients of the groups with these words in their names ("": all) are multiplied, not a number, or
 * missing; attention sees all, or its own alone; the loss is of a micro-batch less, of another target, no number;
 * adapters have another factor, or the same elements left out in every micro-batch. */
typedef enum {
    NOTHING,
    FACTOR,
    NOT_A_NUMBER,
    NO_GRADIENT,
    SEES_ALL,
    SEES_NOTHING,
    DROPPED,
    OTHERS,
    NO_LOSS,
    SCALED,
    FIXED
} defect;

/* Honest: each direction says so, or that experts change too often to compare. Wrong: some direction says it. */
typedef enum { HOLDS, SEEN, HIDDEN, LOOKS_AHEAD, USES_NOTHING, OTHER_LOSS } outcome;

typedef struct {
    kind        of;
    defect      is;
    const char *groups;
    double      factor;
    int         warm, seeds; /* updates before; directions */
    outcome     wanted;
    const char *says;
} row;

static bool is_wrong(const row *r, const tm_tensor *t)
{
    char group[96];
    if (t->role != TM_ROLE_PARAMETER || t->gradient == TM_NONE) return false;
    tm_motion_group_of(t->name, group);
    return strstr(group, r->groups) != NULL;
}

/* In the part of each tensor that one of `ranks` has. */
static void plant_in_gradients(tm_trainer *trainer, const row *r, int ranks)
{
    const tm_graph *graph = tm_trainer_step_of(trainer)->graph;
    for (size_t i = 0; i < graph->n_tensors && (r->is == FACTOR || r->is == NOT_A_NUMBER || r->factor < 0); i++) {
        const tm_tensor *t = &graph->tensors[i];
        if (!is_wrong(r, t)) continue;
        double *g = test_values_read(trainer, t->gradient);
        for (int64_t k = 0; k < tm_shape_elements(t->shape) / ranks; k++) g[k] *= r->factor;
        if (r->is == NOT_A_NUMBER) g[0] = (double)NAN;
        test_values_write(trainer, t->gradient, g);
        free(g);
    }
    const double nan = (double)NAN;
    if (r->is == NO_LOSS)
        assert_ok(tm_trainer_write(trainer, tm_trainer_step_of(trainer)->loss, 0, &nan, sizeof nan, err));
}

static void plant_in_step(tm_trainer *trainer, const row *r)
{
    tm_step *step = (tm_step *)(uintptr_t)tm_trainer_step_of(trainer);
    for (size_t i = 0; i < step->graph->n_tensors && r->is == NO_GRADIENT; i++) {
        tm_tensor *t = (tm_tensor *)(uintptr_t)&step->graph->tensors[i];
        if (is_wrong(r, t)) t->gradient = TM_NONE;
    }
    if (r->is == FIXED) step->first_row = step->evaluation_loss; /* which is written anew by every program */
    if (r->is == DROPPED) step->training.work[1].count--;
    for (size_t p = 0; p < step->plan->n_programs; p++)
        for (size_t k = 0; k < step->plan->programs[p].count; k++) {
            const tm_node     *node = step->plan->programs[p].instructions[k].node;
            tm_attention_attr *attention = (tm_attention_attr *)(uintptr_t)node->attr;
            bool               attends = node->op == TM_OP_attention || node->op == TM_OP_attention_grad;
            if (attends && r->is == SEES_ALL) attention->causal = 0;
            if (attends && r->is == SEES_NOTHING) attention->window = 1;
            if (node->op == TM_OP_low_rank && r->is == SCALED)
                ((tm_low_rank_attr *)(uintptr_t)node->attr)->scale *= r->factor;
        }
}

/* --- what is said ------------------------------------------------------------------------------------------------- */

static bool tells_losses(const row *r, const tm_certificate *c)
{
    double said = 0, found = 0;
    if (!c->done || !c->evaluated || c->loss_agrees || c->gradients) return false;
    if (r->is == NO_LOSS) return true;
    return sscanf(c->reason, "the step's loss, %lg", &said) == 1 &&
           sscanf(strstr(c->reason, "give "), "give %lg", &found) == 1 && fabs(said - c->step_loss) < 1e-7 &&
           fabs(found - c->evaluated_loss) < 1e-7 && (r->is == OTHERS || said < 0.8 * found);
}

/* `probe`: tokens can be hidden. */
static bool is_as_wanted(const row *r, const tm_certificate *c, const tm_step_options *o)
{
    const bool probe = o->seq > 3, rows = c->causal == probe && c->context == probe;
    if (r->wanted != HOLDS && !strstr(c->reason, r->says)) return false;
    switch (r->wanted) {
    case LOOKS_AHEAD:
        return c->done && c->looked_ahead && !c->causal && c->context && c->gradients;
    case USES_NOTHING:
        return c->done && c->causal && !c->context;
    case SEEN:
        return c->done && !c->gradients;
    case HIDDEN:
        return !c->done && !c->gradients;
    case OTHER_LOSS:
        return tells_losses(r, c);
    case HOLDS:
        break;
    }
    if (o->shape.moe.experts > 0 && !c->done)
        return strstr(c->reason, "experts of tokens change too often for a comparison") != NULL;
    return c->done && c->gradients && rows && c->looked_ahead == probe && !c->reason[0] && c->evaluated &&
           c->loss_agrees && c->rows == (o->micro_batch > 1) && fabs(c->measured - c->expected) <= c->band &&
           fabs(c->measured) > 0;
}

/* Steps of `warm` updates, then certificates along `seeds` directions, which leave no trace; returns how many of them
 * are as wanted. */
static int look_along(const row *r, int ranks)
{
    const tm_step_options o = options_of(r->of);
    tm_device            *device = test_device_open("cpu", 1);
    int                   right = 0;
    assert_ok(tm_device_limit_isa(device, "base", err));
    tm_trainer    *trainer = test_trainer_open(device, &o, 7);
    test_batch     b = test_batch_random(o.micro_batch * o.accumulation, o.seq, o.shape.vocab_size, 7);
    tm_micro_batch batch = { .field = { b.tokens, b.targets }, .target_tokens = b.target_tokens };
    for (int t = 1; t <= r->warm; t++) test_step(trainer, t, 1e-2, 1, &b);
    const int seeds = r->wanted == HOLDS && !test_is_full() ? 1 : r->seeds; /* each says so */
    for (int seed = 1; seed <= seeds; seed++) {
        tm_certificate c;
        const int32_t  target = b.targets[5];
        test_begin(trainer, 1, 0, 0, b.target_tokens);
        if (seed == 1) plant_in_step(trainer, r);
        if (r->is == OTHERS) b.targets[5] = (target + 1) % (int32_t)o.shape.vocab_size;
        assert_ok(tm_trainer_gradients(trainer, &batch, NULL, err));
        b.targets[5] = target;
        plant_in_gradients(trainer, r, ranks);
        uint64_t before = test_state_hash(trainer), gradients = test_gradients_hash(trainer);
        assert_ok(tm_certify(trainer, &batch, (uint64_t)seed, &c, err));
        assert_true(before == test_state_hash(trainer) && gradients == test_gradients_hash(trainer));
        bool is = is_as_wanted(r, &c, &o);
        if (!is && r->wanted == HOLDS)
            fail_msg("kind %d, direction %d: done %d, %g beside %g (%g), gradients %d, causal %d, context %d: %s",
                     (int)r->of, seed, c.done, c.measured, c.expected, c.band, c.gradients, c.causal, c.context,
                     c.reason);
        right += is;
        if (strcmp(c.losses, "float32") != 0)
            assert_true(o.precision != &tm_precision_f32 && !o.exact == !c.inexact[0]);
    }
    test_batch_fini(&b);
    tm_trainer_close(trainer);
    tm_device_close(device);
    return right;
}

static const char apart[] = "is not that of the loss", lost[] = "is trained, but nothing computes its gradient",
                  layer0[] = "the gradient of layers.0 ", hides[] = "rounding hides what the gradients say",
                  another[] = "is not that of its batch: the same weights and samples give ";
static const row steps[] = {
    { LLAMA, NOTHING, "", 1, 3, 2, HOLDS, "" },
    { LLAMA, FACTOR, "layers.1 attention", 2, 0, 2, SEEN, "the gradient of layers.1 attention is not that of the" },
    { LLAMA, FACTOR, "tok_embeddings", -1, 3, 2, SEEN, "the gradient of tok_embeddings " },
    { LLAMA, FACTOR, "output", 0.5, 0, 2, SEEN, "the gradient of output " },
    { LLAMA, FACTOR, "attention", 3, 3, 2, SEEN, "the gradient of layers." },
    { LLAMA, FACTOR, "", -1, 0, 2, SEEN, apart },
    { LLAMA, FACTOR, "", 1.06, 3, 2, SEEN, apart },
    { LLAMA, FACTOR, "", 0, 0, 2, SEEN, "" },
    { LLAMA, NOT_A_NUMBER, "layers.0 norms", 1, 3, 2, SEEN, "" },
    { LLAMA, NO_GRADIENT, "layers.1 norms", 1, 0, 2, SEEN, lost },
    { LLAMA, SEES_ALL, "", 1, 3, 2, LOOKS_AHEAD, ": later tokens or other rows leak" },
    { LLAMA, SEES_NOTHING, "", 1, 0, 2, USES_NOTHING, "the model uses no context" },
    { ROW, NOTHING, "", 1, 0, 1, HOLDS, "" },
    { ROW, SEES_ALL, "", 1, 3, 2, LOOKS_AHEAD, ": later tokens leak" },
    { FOUR, DROPPED, "", 1, 0, 1, OTHER_LOSS, another }, /* a band as wide as the loss is wrong would hide the rest */
    { FOUR, DROPPED, "", -1, 0, 1, OTHER_LOSS, another },
    { LLAMA, OTHERS, "", 1, 0, 1, OTHER_LOSS, another },
    { LLAMA, OTHERS, "", -1, 0, 1, OTHER_LOSS, another },
    { LLAMA, NO_LOSS, "", 1, 0, 1, OTHER_LOSS, another },
    { GPT, NOTHING, "", 1, 2, 2, HOLDS, "" },
    { GPT, NOTHING, "", 1, 20, 2, HOLDS, "" },
    { TIED, NOTHING, "", 1, 2, 2, HOLDS, "" },
    { TIED, FACTOR, "layers.0", 2, 2, 2, SEEN, layer0 },
    { SHORT, NOTHING, "", 1, 0, 1, HOLDS, "" },
    { EXPERTS, NOTHING, "", 1, 0, 3, HOLDS, "" },
    { EXPERTS, NOTHING, "", 1, 6, 3, HOLDS, "" },
    { EXPERTS, FACTOR, "layers.0", 2, 0, 3, SEEN, layer0 },
    { EXPERTS, FACTOR, "", 3, 0, 4, SEEN, apart },
    { EXPERTS, FACTOR, "router", -2, 3, 2, SEEN, "router" },
    { NARROW_EXPERTS, NOTHING, "", 1, 2, 3, HOLDS, "" },
    { EXACT_EXPERTS, NOTHING, "", 1, 2, 1, HOLDS, "" },
    { ADAPTERS, NOTHING, "", 1, 3, 2, HOLDS, "" },
    { ADAPTERS, SCALED, "", 1.01, 0, 1, SEEN, "an adapter of rank 4 is multiplied by 2.02, wanted 2 (lora.alpha 8)" },
    { ADAPTERS, FIXED, "", 1, 3, 1, SEEN, "lora.dropout leaves out the same elements in different" },
    { DORA, NOTHING, "", 1, 3, 1, HIDDEN, "DoRA" },
    { EXACT, NOTHING, "", 1, 0, 2, HOLDS, "" },
    { EXACT, NOTHING, "", 1, 20, 2, HOLDS, "" },
    { EXACT, FACTOR, "layers.0", 2, 0, 2, SEEN, layer0 },
    { PURE_EXACT, NOTHING, "", 1, 0, 2, HOLDS, "" },
    { PURE_EXACT, NOTHING, "", 1, 20, 2, HOLDS, "" },
    { PURE_EXACT, FACTOR, "layers.0", 2, 0, 2, SEEN, layer0 },
    { NARROW, NOTHING, "", 1, 0, 2, HOLDS, "" },
    { NARROW, FACTOR, "", -1, 0, 2, SEEN, apart },
    { NARROW, FACTOR, "", 0, 0, 2, HIDDEN, hides },
    { NARROW, NOTHING, "", 1, 40, 6, HIDDEN, hides }, /* learnt by heart */
    { TABLE, NOTHING, "", 1, 1, 1, HOLDS, "" },
    { TABLE, FACTOR, "tok_embeddings", -1, 1, 1, SEEN, "of tok_embeddings " },
    { ODD, NOTHING, "", 1, 1, 1, HOLDS, "" },
};
static void tell(bool large)
{
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        if ((steps[i].of >= ADAPTERS) != large || (steps[i].warm >= 20 && !test_is_full())) continue;
        if (look_along(&steps[i], 1) == 0) fail_msg("row %zu: no direction says '%s'", i, steps[i].says);
    }
}

TEST(small_steps_are_told)
{
    tell(false);
}

TEST(kinds_of_steps_are_told)
{
    tell(true);
}

/* The table of docs/certificate.md, with TM_LONG=1 (and TM_VERBOSE=1, which prints it). */
TEST(how_often_a_factor_shows)
{
    enum { MANY = 24, GROUPS = 5 };
    static const char *const groups[] = { "layers.0 attention", "layers.1 feed_forward", "layers.0 norms",
                                          "tok_embeddings", "output" };
    static const double      factors[] = { 2, 0.5, -1, 0, 1.25, 1.1 };
    static const kind        ways[] = { LLAMA, EXACT, PURE_EXACT, NARROW };
    for (int n = 0; getenv("TM_LONG") && n < 2 * 4 * 6 * 3; n++) {
        const int ranks[] = { 1, 2, 8 }, on = ranks[n % 3];
        row       r = { ways[n / 18 % 4], FACTOR, "", factors[n / 3 % 6], n / 72 * 20, MANY, SEEN, "" };
        int       one = 0, least = MANY, all = look_along(&r, on);
        for (int g = 0; g < GROUPS; g++) {
            r.groups = groups[g];
            int shows = look_along(&r, on);
            one += shows;
            least = shows < least ? shows : least;
        }
        print_message("# %s%s, %d steps, x %g on one of %d ranks: one group %.2f (least %.2f), all %.2f\n",
                      options_of(r.of).precision->name, options_of(r.of).exact ? " (losses float32)" : "", r.warm,
                      r.factor, on, (double)one / (MANY * GROUPS), (double)least / MANY, (double)all / MANY);
    }
}

/* --- losses in float32 -------------------------------------------------------------------------------------------- */

/* The program "exact" of a step in bfloat16 computes what a step in float32 does with the same weights, bit for bit,
 * with what that drops of the same micro-batch; and it takes no memory. */
TEST(exact_losses_are_those_of_float32)
{
    static const kind kinds[] = { LLAMA, GPT, TIED, ADAPTERS };
    for (int n = 0; n < 8; n++) {
        tm_step_options o = options_of(kinds[n / 2]), plain, wide;
        o.micro_batch = 4, o.seq = 64, o.loss_chunk = 32;
        if (n % 2) o.recompute.every_n = 0; /* with it the copies of weights would take more */
        plain = wide = o;
        o.precision = plain.precision = n % 2 ? &tm_precision_bf16_pure : &tm_precision_bf16;
        o.exact = wide.precision = &tm_precision_f32;
        tm_device      *device = test_device_open("cpu", 1);
        tm_trainer     *a = test_trainer_open(device, &o, 7), *b = test_trainer_open(device, &wide, 7);
        tm_trainer     *c = test_trainer_open(device, &plain, 7);
        test_batch      rows = test_batch_random(o.micro_batch * o.accumulation, o.seq, o.shape.vocab_size, 7);
        tm_micro_batch  batch = { .field = { rows.tokens, rows.targets }, .target_tokens = rows.target_tokens };
        const tm_graph *in_a = tm_trainer_step_of(a)->graph, *in_b = tm_trainer_step_of(b)->graph;
        for (size_t i = 0, k = 0; i < in_a->n_tensors; i++) {
            if (in_a->tensors[i].role != TM_ROLE_PARAMETER) continue;
            for (k = 0; strcmp(in_a->tensors[i].name, in_b->tensors[k].name) != 0;) k++;
            double *values = test_values_read(a, (tm_tensor_id)i);
            test_values_write(b, (tm_tensor_id)k, values);
            free(values);
        }
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
        tm_trainer_close(a), tm_trainer_close(b), tm_trainer_close(c);
        tm_device_close(device);
    }
}

/* --- what a loss may see ------------------------------------------------------------------------------------------ */

/* Samples of documents of so many tokens: other tokens end the last quarter; who sees one of its own document before it
 * may change, and all others stay. */
static void look_at_probe(int seq, int document, uint64_t seed, int n_looks[2])
{
    enum { SAMPLES = 3, LONGEST = 36, VOCABULARY = 5 };
    static const tm_field fields[] = { { .name = "tokens" }, { .name = "targets" }, { .name = "first_key" } };
    tm_step_options       o = test_llama_options();
    int32_t               tokens[SAMPLES * LONGEST], targets[SAMPLES * LONGEST], first_key[SAMPLES * LONGEST];
    double                before[SAMPLES * LONGEST], after[SAMPLES * LONGEST];
    int                   count[3] = { 0 };
    tm_probe              probe;
    o.micro_batch = SAMPLES, o.seq = seq, o.n_fields = 3, o.shape.vocab_size = VOCABULARY;
    memcpy(o.fields, fields, sizeof fields);
    for (int i = 0; i < SAMPLES * seq; i++) {
        tokens[i] = i % VOCABULARY;
        targets[i] = i % 5 == 0 ? TM_IGNORED_TARGET : i;
        first_key[i] = i % seq / document * document;
        before[i] = after[i] = i;
    }
    tm_probe_make(&o, &(tm_micro_batch){ .field = { tokens, targets, first_key } }, seed, &probe);
    assert_int_equal(probe.rows, SAMPLES * seq);
    assert_true(probe.replaced.field[0] == probe.tokens && probe.replaced.field[1] == targets);
    assert_int_equal(tm_probe_leak(&probe, before, after), -1);
    assert_false(tm_probe_looks(&probe, before, after));
    for (int i = 0; i < SAMPLES * seq; i++) {
        bool sees = false, other = probe.tokens[i] != tokens[i];
        for (int j = i / seq * seq + first_key[i]; j < i; j++) sees = sees || probe.tokens[j] != tokens[j];
        assert_in_range(probe.tokens[i], 0, VOCABULARY - 1);
        if (i % seq == seq - 1) assert_true(other);
        if (i % seq < seq - seq / 4 && i / seq % 2) assert_false(other); /* of every second sample nothing in front */
        n_looks[1] += other && i % seq < seq - seq / 4;
        other = other || targets[i] == TM_IGNORED_TARGET;
        assert_int_equal(probe.places[i], other ? TM_PROBE_FREE : sees ? TM_PROBE_LOOKS : TM_PROBE_STAYS);
        after[i] = before[i] + 0.5;
        assert_int_equal(tm_probe_leak(&probe, before, after), probe.places[i] == TM_PROBE_STAYS ? i : -1);
        assert_int_equal(tm_probe_looks(&probe, before, after), probe.places[i] == TM_PROBE_LOOKS);
        after[i] = before[i];
        count[probe.places[i]]++;
    }
    assert_true(probe.possible == (count[TM_PROBE_STAYS] > 0) && probe.context == (count[TM_PROBE_LOOKS] > 0));
    n_looks[0] += count[TM_PROBE_LOOKS];
    tm_probe_fini(&probe);
}

TEST(probes_say_what_a_loss_may_see)
{
    static const int lengths[] = { 4, 5, 8, 14, 36 };
    for (int i = 0; i < 5; i++)
        for (int document = 1; document <= 2 * lengths[i]; document = document < 4 ? document + 1 : document * 2 - 1) {
            int looks[2] = { 0 };
            for (uint64_t seed = 1; seed <= 20; seed++) look_at_probe(lengths[i], document, seed, looks);
            if (document == 1) assert_int_equal(looks[0], 0);
            if (lengths[i] == 36 && document >= 36) assert_true(looks[0] > 20 * 20 && looks[1] > 20 * 2);
        }
}
