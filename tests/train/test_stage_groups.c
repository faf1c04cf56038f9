/* SPDX-License-Identifier: Apache-2.0 */
/* Parameter groups in the stages of a pipeline: patterns go by the names of the whole model, frozen weights stop
 * gradients where they stop in one rank, and the bits are those of one rank. */
#include "support/test.h"
#include "forms_fixture.h"
#include "ranks_fixture.h"

enum { RATES, TABLE, HEAD, LATE, EARLY, FRONT, FORMATS, BIASES, ROUTERS, ADAPTERS, KINDS };
static const char *const kinds[] = { "rates",           "a frozen table", "the head alone", "the last block",
                                     "the first block", "the embedding",  "formats",        "GPT",
                                     "experts",         "adapters" };

static tm_group *add(tm_step_options *o, const char *patterns)
{
    tm_group *group = &o->groups[o->n_groups++];
    *group = (tm_group){ .place = "test", .lr_scale = 1, .hyper = o->hyper, .format = TM_DTYPE_COUNT };
    snprintf(group->patterns, sizeof group->patterns, "%s", patterns);
    return group;
}

static tm_group *freeze(tm_step_options *o, const char *patterns)
{
    tm_group *group = add(o, patterns);
    group->frozen = true;
    return group;
}

static void add_groups(tm_step_options *o, int kind)
{
    static const char *const trained[] = {
        [HEAD] = "output.weight|norm.weight", [LATE] = "layers.3.*", [EARLY] = "layers.0.*", [FRONT] = "tok_*"
    };
    add(o, "");
    if (kind == RATES || kind == BIASES) {
        tm_group *norms = add(o, kind == BIASES ? "*ln_*|*.bias" : "*norm*");
        norms->hyper.weight_decay = 0.25, norms->hyper.decay_matrices_only = false, norms->lr_scale = 0.5;
        add(o, kind == BIASES ? "h.3.*" : "layers.3.*")->lr_scale = 2;
        add(o, kind == BIASES ? "wte.weight" : "tok_embeddings.weight")->hyper.beta2 = 0.5;
    } else if (kind == TABLE) {
        freeze(o, "tok_embeddings.weight");
    } else if (kind == HEAD || kind == LATE || kind == EARLY || kind == FRONT) {
        add(o, trained[kind]);
        freeze(o, "*");
    } else if (kind == FORMATS) {
        freeze(o, "layers.0.*|layers.1.*|tok_embeddings.weight")->format = TM_BF16;
        freeze(o, "layers.2.feed_forward.*")->format = TM_E4M3;
    } else if (kind == ROUTERS) {
        freeze(o, "layers.2.moe.experts.*");
        add(o, "*gate*")->lr_scale = 0.25;
    } else {
        freeze(o, "layers.0.*");
        add(o, "*lora_B*")->lr_scale = 4;
    }
}

static tm_step_options options_of(int kind)
{
    tm_step_options o = model_options(kind == BIASES ? 1 : kind == ROUTERS ? 2 : 0);
    o.shape.n_layers = 4;
    o.shape.tied = kind == TABLE || kind == RATES || kind == BIASES;
    o.accumulation = 4;
    add_groups(&o, kind);
    if (kind != ADAPTERS) return o;
    o.adapters = (tm_adapters){ .rank = 2, .alpha = 4, .base = TM_DTYPE_COUNT, .place = "test", .seed = 1 };
    snprintf(o.adapters.targets, sizeof o.adapters.targets, "all-linear");
    return o;
}

static job job_of(int kind, int steps, double max_norm)
{
    job j = { .o = options_of(kind), .replicate = 1, .shard = 1, .steps = steps, .rate = 2e-3 };
    j.max_norm = max_norm;
    return j;
}

static job alone_with(int kind, int steps, double max_norm)
{
    job j = job_of(kind, steps, max_norm);
    j.whole = 1;
    rank_body(NULL, &j);
    return j;
}

static job begin_stages(int kind, const form *f, int steps, double max_norm)
{
    job j = job_of(kind, steps, max_norm);
    j.stages = f->stages;
    j.o.layout.order = f->order;
    j.o.layout.chunks = f->chunks;
    j.o.layout.first_blocks = f->first_blocks;
    return j;
}

static void stages_have_the_bits_of_one_rank(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        job one = alone_with(kind, 4, 0);
        assert_true(one.loss[3] != one.loss[0]);
        for (int f = 0; f < FORMS; f++) {
            job staged = begin_stages(kind, &forms[f], 4, 0);
            run_job(&staged);
            for (int t = 0; t < 4; t++)
                if (one.loss[t] != staged.loss[t])
                    fail_msg("%s, form %d, step %d: loss %.17g alone, %.17g in stages", kinds[kind], f, t + 1,
                             one.loss[t], staged.loss[t]);
            if (one.weights[0] != staged.weights[0]) fail_msg("%s, form %d: other weights", kinds[kind], f);
            if (one.evaluation[0] != staged.evaluation[0]) fail_msg("%s, form %d: evaluation", kinds[kind], f);
        }
    }
}

/* With clipping, whose norm is added by stages; shards of stages, divided matrices in stages. */
static void stages_follow_one_rank(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        job alone = alone_with(kind, MOST_STEPS, 1), staged = begin_stages(kind, &forms[0], MOST_STEPS, 1);
        run_job(&staged);
        check_follows_one(&staged, &alone, kinds[kind], 1e-4);
        job both = begin_stages(kind, &forms[2], 8, 1), one = job_of(kind, 8, 1);
        both.shard = 2, both.o.accumulation = 2, both.o.layout.sharing = TM_SHARE_ALL;
        one.whole = 1;
        run_job(&both);
        rank_body(NULL, &one);
        check_follows_one(&both, &one, kinds[kind], 1e-4);
        if (kind == BIASES || kind == ROUTERS) continue;
        job divided = begin_stages(kind, &forms[0], 8, 1);
        divided.tensor = 2;
        divided.o.shape.n_kv_heads = one.o.shape.n_kv_heads = divided.o.shape.n_heads;
        run_job(&divided);
        rank_body(NULL, &one);
        check_follows_one(&divided, &one, kinds[kind], 1e-4);
    }
}

/* Two stages save, four go on, then one rank: the bits of a run that nobody stopped. */
static void checkpoints_fit_other_layouts(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        char *first = test_tree_make(), *second = test_tree_make();
        job   whole = alone_with(kind, 4, 0), two = begin_stages(kind, &forms[0], 1, 0);
        job   four = begin_stages(kind, &forms[1], 2, 0), one = job_of(kind, 4, 0);
        two.save = first;
        run_job(&two);
        four.begin = 1, four.load = first, four.save = second;
        run_job(&four);
        one.whole = 1, one.begin = 2, one.load = second;
        rank_body(NULL, &one);
        if (one.weights[0] != whole.weights[0] || one.loss[3] != whole.loss[3])
            fail_msg("%s: other bits than those of a run that was not stopped", kinds[kind]);
        test_tree_remove(first);
        test_tree_remove(second);
    }
}

static size_t count_sends(const tm_step *step, tm_phase phase)
{
    size_t n = 0;
    for (size_t i = 0; i < step->training.n; i++) {
        const tm_program *program = step->training.work[i].program;
        for (size_t x = 0; x < program->count; x++)
            n += program->instructions[x].call.op == &tm_op_send && program->instructions[x].node->phase == phase;
    }
    return n;
}

/* Gradients go as far back as something is trained, in whichever stage that is. */
static void nothing_goes_below_what_is_trained(void **state)
{
    static const struct {
        int kind, below; /* the first rank that gives no gradient back */
    } wanted[] = {
        { RATES, 0 }, { EARLY, 0 }, { FRONT, 0 }, { LATE, 3 }, { HEAD, 3 }, { FORMATS, 2 }, { ADAPTERS, 1 }
    };
    tm_device *device = test_device_open("cpu", 1);
    tm_chooser chooser = tm_device_chooser(device);
    (void)state;
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        for (int rank = 0; rank < 4; rank++) {
            tm_step *step;
            tm_error err = { 0 };
            if (plan_stage(options_of(wanted[i].kind), &chooser, 4, rank, &step, &err) != TM_OK)
                fail_msg("%s", err.text);
            size_t back = rank > wanted[i].below ? 4 : 0;
            if (count_sends(step, TM_PHASE_BACKWARD) != back)
                fail_msg("%s: rank %d sends %d gradients, wanted %d", kinds[wanted[i].kind], rank,
                         (int)count_sends(step, TM_PHASE_BACKWARD), (int)back);
            assert_int_equal(count_sends(step, TM_PHASE_FORWARD), rank < 3 ? 4 : 0);
            tm_step_destroy(step);
        }
    tm_device_close(device);
}

/* Every rank says the same, also of what other stages have. */
static void names_are_those_of_the_whole_model(void **state)
{
    static const char *const wrong[][2] = { { "layers.4.*", "no parameter is called 'layers.4.*'" },
                                            { "layers.0.attention.wq.weight", "are rows of one matrix" },
                                            { "*", "no parameter is left to be trained" } };
    tm_device               *device = test_device_open("cpu", 1);
    tm_chooser               chooser = tm_device_chooser(device);
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        for (int rank = 0; rank < 2; rank++) {
            tm_step_options o = options_of(LATE);
            tm_step        *step = NULL;
            tm_error        err = { 0 };
            o.n_groups = 1;
            freeze(&o, wrong[i][0]);
            assert_int_equal(plan_stage(o, &chooser, 2, rank, &step, &err), TM_INVALID);
            if (!strstr(err.text, wrong[i][1])) fail_msg("'%s' does not say '%s'", err.text, wrong[i][1]);
        }
    tm_device_close(device);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(stages_have_the_bits_of_one_rank),   full_test(stages_follow_one_rank),
    cmocka_unit_test(checkpoints_fit_other_layouts),      cmocka_unit_test(nothing_goes_below_what_is_trained),
    cmocka_unit_test(names_are_those_of_the_whole_model),
};

TM_TESTS(tests, NULL, NULL)
