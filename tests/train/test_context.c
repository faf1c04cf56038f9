/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that share each sequence: they follow one rank that has all of it, have its gradients in float64, and no token
 * reaches what stands before it. */
#include "support/test.h"
#include "ranks_fixture.h"
#include "train/step/sequence.h"
#include "train/run/run.h"

/* `context` ranks share a sequence. */
static job run_context(tm_step_options o, int replicate, int shard, int context, tm_sharing sharing, int steps)
{
    job j = { .o = o, .replicate = replicate, .shard = shard, .context = context, .steps = steps };
    j.rate = 2e-3, j.max_norm = 1;
    j.o.layout.sharing = sharing;
    run_job(&j);
    return j;
}

static void check_follows(const job *j, const job *alone, const char *what)
{
    double far = apart(j, alone);
    if (!(far <= 1e-5)) fail_msg("%s, cp %d: losses are %.3g apart", what, j->context, far);
    for (int t = 0; t < alone->steps; t++)
        if (!(fabs(j->norm[t] - alone->norm[t]) <= 2e-5 * alone->norm[t]))
            fail_msg("%s, cp %d: step %d: norm %.9g, wanted %.9g", what, j->context, t + 1, j->norm[t], alone->norm[t]);
    if (!(fabs(j->evaluation[0] - alone->evaluation[0]) <= 1e-5 * alone->evaluation[0]))
        fail_msg("%s, cp %d: evaluation %.9g, wanted %.9g", what, j->context, j->evaluation[0], alone->evaluation[0]);
}

/* Two sequences in each micro-batch: chunks of one are not neighbours of each other. */
static tm_step_options two_sequences(int k)
{
    tm_step_options o = shareable(k);
    o.micro_batch = 2;
    return o;
}

static const char *const models[] = { "llama",           "gpt",           "mixture",          "flux",
                                      "llama in a ring", "gpt in a ring", "mixture in a ring" };

/* The models with gathered keys, then those of languages with keys that go round. */
static tm_step_options one_way(int k)
{
    tm_step_options o = two_sequences(k % MODELS);
    o.layout.ring = k >= MODELS;
    return o;
}

static void parts_follow_one_rank(void **state)
{
    (void)state;
    for (int k = 0; k < MODELS + 3; k++)
        for (int context = 2; context <= 4; context += 2) {
            int             steps = context == 2 ? MOST_STEPS : 8;
            tm_step_options o = one_way(k);
            o.layout.reshard = true;
            o.layout.prefetch = 1;
            job alone = run_alone(o, 1, 1, steps);
            job together = run_context(o, 1, 1, context, TM_SHARE_ALL, steps);
            print_message("# %s, cp %d: losses %.3g apart, %.4g -> %.4g\n", models[k], context,
                          apart(&together, &alone), alone.loss[0], alone.loss[steps - 1]);
            check_follows(&together, &alone, models[k]);
        }
}

static void layouts_compose(void **state)
{
    (void)state;
    static const struct {
        int        replicate, shard;
        tm_sharing sharing;
    } beside[] = { { 1, 1, TM_SHARE_COPIES },    { 2, 1, TM_SHARE_COPIES }, { 2, 1, TM_SHARE_ALL },
                   { 1, 2, TM_SHARE_OPTIMIZER }, { 1, 2, TM_SHARE_ALL },    { 1, 2, TM_SHARE_GRADIENTS } };
    for (int k = 0; k < MODELS + 3; k++)
        for (size_t i = 0; i < sizeof beside / sizeof beside[0]; i++) {
            tm_step_options o = shareable(k % MODELS);
            int             ranks = beside[i].replicate * beside[i].shard;
            o.accumulation = 2;
            o.layout.ring = k >= MODELS;
            if (i % 2 && k % MODELS < 3) o = with_documents(o);
            o.recompute = (tm_recompute){ .cheap = i % 2 == 0, .every_n = i == 1 };
            job alone = run_alone(o, ranks, 1, 3);
            job j = run_context(o, beside[i].replicate, beside[i].shard, 2, beside[i].sharing, 3);
            check_follows(&j, &alone, models[k]);
        }
}

/* Matrices in parts, too: a rank has some heads of some tokens. */
static void heads_and_sequences_are_divided(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++)
        for (int whole_rows = 0; whole_rows < 2; whole_rows++) {
            tm_step_options o = one_way(k + (whole_rows ? MODELS : 0));
            o.shape.n_kv_heads = 2;
            job alone = run_alone(o, 1, 1, 4);
            job j = { .o = o, .replicate = 1, .shard = 1, .context = 2, .tensor = 2, .steps = 4, .rate = 2e-3 };
            j.max_norm = 1;
            j.o.layout.sharing = TM_SHARE_ALL;
            j.o.layout.whole_rows = whole_rows;
            run_job(&j);
            check_follows(&j, &alone, models[k]);
        }
}

static void the_same_bits_every_time(void **state)
{
    (void)state;
    for (int ring = 0; ring < 2; ring++) {
        tm_step_options o = one_way(2 + ring * MODELS);
        job once = run_context(o, 1, 1, 4, TM_SHARE_ALL, 3), twice = run_context(o, 1, 1, 4, TM_SHARE_ALL, 3);
        assert_true(once.weights[0] == twice.weights[0] && once.losses[0] == twice.losses[0]);
        o = one_way(ring * MODELS);
        o.precision = &tm_precision_bf16;
        once = run_context(o, 1, 1, 2, TM_SHARE_ALL, 5), twice = run_context(o, 1, 1, 2, TM_SHARE_ALL, 5);
        job alone = run_alone(o, 1, 1, 5);
        assert_true(once.weights[0] == twice.weights[0]);
        assert_true(apart(&once, &alone) < 5e-3);
    }
}

/* --- gradients ---------------------------------------------------------------------------------------------------- */

/* The gradients of all parameters, one after the other. */
typedef struct {
    double *values;
    size_t  n;
} gradients;

static void take_gradients(job *j, const tm_trainer *trainer)
{
    gradients      *g = j->taken;
    const tm_graph *graph = tm_trainer_step_of(trainer)->graph;
    for (size_t i = 0; i < graph->n_tensors; i++) {
        if (graph->tensors[i].role != TM_ROLE_PARAMETER || graph->tensors[i].gradient == TM_NONE) continue;
        size_t  n = (size_t)tm_shape_elements(graph->tensors[i].shape);
        double *values = test_values_read(trainer, graph->tensors[i].gradient);
        g->values = realloc(g->values, (g->n + n) * sizeof *g->values);
        memcpy(g->values + g->n, values, n * sizeof *values);
        g->n += n;
        free(values);
    }
}

/* In float64, of the last of some steps. */
static job gradients_of(tm_step_options o, int context, gradients *out)
{
    job j = { .o = o, .replicate = 1, .shard = 1, .context = context, .max_norm = -1, .device = "reference" };
    j.steps = tm_model_images(&o.shape) ? 3 : 1; /* its last layer begins as zeros, and learns first */
    j.rate = 1e-2;
    *out = (gradients){ 0 };
    j.o.precision = &tm_precision_f64;
    j.look = take_gradients;
    j.taken = out;
    if (context == 1)
        rank_body(NULL, &j);
    else
        run_job(&j);
    return j;
}

static void check_gradients(const char *what, tm_step_options o)
{
    gradients whole, parts;
    job       alone = gradients_of(o, 1, &whole);
    for (int way = 0; way < (tm_model_images(&o.shape) ? 2 : 4); way++) {
        int context = way % 2 ? 4 : 2;
        o.layout.ring = way >= 2;
        job    j = gradients_of(o, context, &parts);
        double apart = 0, size = 0;
        assert_int_equal(parts.n, whole.n);
        for (size_t i = 0; i < whole.n; i++) {
            apart = fmax(apart, fabs(parts.values[i] - whole.values[i]));
            size = fmax(size, fabs(whole.values[i]));
        }
        if (!(size > 1e-4 && apart <= 1e-12 * size))
            fail_msg("%s, cp %d, ring %d: gradients are %g apart, of %g", what, context, way / 2, apart, size);
        if (!(fabs(j.loss[0] - alone.loss[0]) <= 1e-13 * alone.loss[0]))
            fail_msg("%s, cp %d: loss %.17g, wanted %.17g", what, context, j.loss[0], alone.loss[0]);
        free(parts.values);
    }
    free(whole.values);
}

static void gradients_are_those_of_whole_sequences(void **state)
{
    static const struct {
        const char *what, *more;
    } families[] = {
        { "llama", "--model.n_kv_heads=1" },
        { "gpt", "--model.family=gpt" },
        { "mistral", "--model.family=mistral --model.sliding_window=5" },
        { "qwen3", "--model.family=qwen3 --model.qk_norm=true" },
        { "mixtral", "--model.family=mixtral --model.n_experts=4 --model.n_experts_per_token=2 "
                     "--model.moe_aux_loss=0.01" },
        { "mixtral, one balance", "--model.family=mixtral --model.n_experts=4 --model.n_experts_per_token=2 "
                                  "--model.moe_aux_loss=0.01 --model.moe_aux_loss_per_sequence=false" },
        { "gpt_oss", "--model.family=gpt_oss --model.n_experts=4 --model.n_experts_per_token=2 "
                     "--model.sliding_window=5 --model.sliding_window_every=2" },
        { "deepseek", "--model.family=deepseek --model.kv_lora_rank=16 --model.qk_nope_head_dim=8 "
                      "--model.qk_rope_head_dim=4 --model.v_head_dim=6 --model.n_kv_heads=2 --model.n_experts=4 "
                      "--model.n_experts_per_token=2 --model.n_shared_experts=1 --model.n_dense_layers=1" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        char            more[600];
        tm_step_options o = test_llama_options();
        snprintf(more, sizeof more,
                 "%s --model.dim=16 --model.n_layers=2 --model.n_heads=2 --model.ffn_dim=24 --model.vocab_size=32%s",
                 families[i].more, strstr(families[i].more, "experts") ? " --model.moe_ffn_dim=12" : "");
        o.shape = test_shape_preset("tiny-llama", more);
        o.seq = 16;
        check_gradients(families[i].what, o);
        check_gradients(families[i].what, with_documents(o));
    }
    check_gradients("flux", two_sequences(3));
}

/* --- what stands before ------------------------------------------------------------------------------------------- */

enum { SEQ = 32, CONTEXT = 2, ALL = 2 * SEQ };

/* The losses of all tokens, as the ranks have them, of a batch whose token `changed` of each sequence is another. */
typedef struct {
    tm_step_options o;
    int64_t         changed; /* -1: none */
    double          losses[ALL];
} seen;

static void look_at_losses(tm_comm *comm, void *context)
{
    seen           *s = context;
    tm_step_options o = s->o;
    tm_ranks        ranks;
    tm_device      *device;
    tm_trainer     *trainer;
    double          loss;
    test_batch      batch = test_batch_random(o.micro_batch, SEQ, o.shape.vocab_size, 3);
    for (int64_t b = 0; b < o.micro_batch && s->changed >= 0; b++) batch.tokens[b * SEQ + s->changed] ^= 1;
    o.layout.mesh = tm_mesh_one();
    o.layout.mesh.degree[TM_AXIS_CP] = CONTEXT;
    o.layout.rank = tm_comm_rank(comm);
    CHECK_OK(tm_ranks_open(&o.layout.mesh, comm, &ranks, err));
    CHECK_OK(tm_device_open("cpu", 1, &device, err));
    tm_device_join(device, &ranks.groups);
    CHECK_OK(tm_trainer_open(device, &o, 7, &trainer, err));
    tm_micro_batch micro = { .field = { batch.tokens, batch.targets } };
    CHECK_OK(tm_trainer_evaluate(trainer, &micro, &loss, err));
    double       *rows = test_values_read(trainer, tm_trainer_step_of(trainer)->row_losses);
    tm_division   own = { .rank = o.layout.rank, .ranks = CONTEXT };
    const int64_t length = SEQ / (2 * CONTEXT);
    for (int64_t i = 0; i < ALL / CONTEXT; i++) {
        int64_t chunk = i / length, b = chunk % o.micro_batch, h = chunk / o.micro_batch;
        s->losses[b * SEQ + tm_chunk_of(own, (int)h) * length + i % length] = rows[i];
    }
    free(rows);
    test_batch_fini(&batch);
    tm_trainer_close(trainer);
    tm_device_close(device);
    tm_ranks_close(&ranks);
}

static void no_token_reaches_what_stands_before_it(void **state)
{
    (void)state;
    for (int way = 0; way < 6; way++) {
        int  k = way % 3;
        seen before = { .o = model_options(k), .changed = -1 };
        before.o.layout.ring = way >= 3;
        before.o.seq = SEQ;
        before.o.micro_batch = 2;
        if (k == 2) before.o.shape.window = 9;
        run_world(CONTEXT, NULL, 60, false, look_at_losses, &before);
        for (int64_t changed = 1; changed < SEQ; changed += 6) {
            seen after = before;
            after.changed = changed;
            run_world(CONTEXT, NULL, 60, false, look_at_losses, &after);
            for (int64_t i = 0; i < ALL; i++) {
                bool same = memcmp(&after.losses[i], &before.losses[i], sizeof(double)) == 0;
                if (i % SEQ < changed && !same)
                    fail_msg("%s: token %d changes the loss of token %d", models[k], (int)changed, (int)i);
                if (i % SEQ == changed && same) fail_msg("%s: token %d changes nothing", models[k], (int)changed);
            }
        }
    }
}

/* --- plans, checkpoints, refusals --------------------------------------------------------------------------------- */

static size_t count_calls(const tm_step *step, const char *program, const tm_op *op, unsigned axes)
{
    const tm_program *p = tm_plan_program(step->plan, program);
    size_t            n = 0;
    for (size_t x = 0; x < p->count; x++) {
        const tm_call *call = &p->instructions[x].call;
        n += call->op == op && (unsigned)((const tm_group_attr *)call->attr)->axes == axes;
    }
    return n;
}

/* Once a layer forward and once backward; no pair of a query and a key is computed twice, and ranks share them alike.
 */
static void work_is_shared_alike(void **state)
{
    (void)state;
    tm_device *device = test_device_open("cpu", 1);
    tm_chooser chooser = tm_device_chooser(device);
    double     pairs[4] = { 0 }, whole = 0;
    for (int rank = -1; rank < 4; rank++) {
        tm_step_options o = two_sequences(0);
        o.layout.mesh = tm_mesh_one();
        if (rank >= 0) o.layout.mesh.degree[TM_AXIS_CP] = 4, o.layout.rank = rank;
        tm_step          *step = test_step_plan(&o, &chooser);
        const tm_program *p = step->first;
        for (size_t x = 0; x < p->count; x++)
            if (p->instructions[x].call.op == &tm_op_attention)
                *(rank < 0 ? &whole : &pairs[rank]) += p->instructions[x].cost.flops;
        if (rank >= 0) {
            const unsigned cp = 1U << TM_AXIS_CP;
            assert_int_equal(count_calls(step, "first", &tm_op_all_gather, cp), o.shape.n_layers);
            assert_int_equal(count_calls(step, "first", &tm_op_reduce_scatter, cp), o.shape.n_layers);
            assert_int_equal(count_calls(step, "evaluate", &tm_op_all_reduce, cp), 1);
        }
        tm_step_destroy(step);
    }
    for (int r = 0; r < 4; r++) assert_true(pairs[r] == whole / 4);
    tm_device_close(device);
}

/* Rounds of keys and values forward, of these and their gradients backward, one more to their owner; no rank has more
 * of them than two ranks' at a time, whatever the number of ranks, and all have as many pairs. */
static void keys_go_round(void **state)
{
    (void)state;
    enum { RANKS = 8 };
    tm_device *device = test_device_open("cpu", 1);
    tm_chooser chooser = tm_device_chooser(device);
    double     pairs[RANKS] = { 0 };
    size_t     arena[2] = { 0 };
    for (int ring = 0; ring < 2; ring++)
        for (int rank = 0; rank < RANKS; rank++) {
            const unsigned  cp = 1U << TM_AXIS_CP;
            tm_step_options o = one_way(ring * MODELS);
            o.seq = 512, o.micro_batch = 1;
            o.shape.max_seq_len = 512;
            o.shape.n_kv_heads = o.shape.n_heads;
            o.layout.mesh = tm_mesh_one();
            o.layout.mesh.degree[TM_AXIS_CP] = RANKS, o.layout.rank = rank;
            tm_step          *step = test_step_plan(&o, &chooser);
            const tm_program *p = step->first;
            int64_t           rows = o.seq / RANKS, most = 0, columns = 2 * o.shape.n_kv_heads * o.shape.head_dim;
            for (size_t x = 0; x < p->count && ring; x++) {
                const tm_call *call = &p->instructions[x].call;
                if (call->op == &tm_op_attention || call->op == &tm_op_attention_grad)
                    pairs[rank] += p->instructions[x].cost.flops;
                for (int k = 0; k < TM_MAX_IN + TM_MAX_OUT; k++) {
                    const tm_view *view = k < TM_MAX_IN ? &call->in[k] : &call->out[k - TM_MAX_IN];
                    bool           keys = view->shape.rank == 2 && view->shape.n[1] == columns;
                    if (keys && view->shape.n[0] > most) most = view->shape.n[0];
                }
            }
            if (ring) {
                assert_int_equal(most, rows);
                assert_true(pairs[rank] == pairs[0] && pairs[0] > 0);
                assert_int_equal(count_calls(step, "first", &tm_op_pass_on, cp), (3 * RANKS - 2) * o.shape.n_layers);
                assert_int_equal(count_calls(step, "evaluate", &tm_op_pass_on, cp), (RANKS - 1) * o.shape.n_layers);
                assert_int_equal(count_calls(step, "first", &tm_op_all_gather, cp), 0);
            }
            if (step->plan->arena_bytes > arena[ring]) arena[ring] = step->plan->arena_bytes;
            tm_step_destroy(step);
        }
    if (arena[1] >= arena[0]) fail_msg("a ring takes %zu bytes, gathered keys %zu", arena[1], arena[0]);
    tm_device_close(device);
}

/* One layout saves, another goes on. */
static void any_layout_goes_on(void **state)
{
    (void)state;
    static const struct {
        int shard, context;
    } layouts[] = { { 1, 1 }, { 1, 2 }, { 2, 1 }, { 2, 2 }, { 1, 4 } };
    enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };
    job alone = run_alone(two_sequences(2), 2, 1, 5);
    for (int a = 0; a < LAYOUTS; a++) {
        char *folder = test_tree_make();
        job saved = { .o = two_sequences(2), .replicate = 1, .steps = 3, .rate = 2e-3, .max_norm = 1, .save = folder };
        job goes_on = { .o = two_sequences(2), .replicate = 1, .begin = 3, .steps = 5, .load = folder };
        int b = (a + 1) % LAYOUTS;
        saved.shard = layouts[a].shard, saved.context = layouts[a].context, saved.o.accumulation = 2 / saved.shard;
        goes_on.shard = layouts[b].shard, goes_on.context = layouts[b].context;
        goes_on.o.accumulation = 2 / goes_on.shard, goes_on.rate = 2e-3, goes_on.max_norm = 1;
        saved.o.layout.sharing = goes_on.o.layout.sharing = TM_SHARE_ALL;
        goes_on.o.layout.ring = true;
        run_job(&saved);
        run_job(&goes_on);
        for (int t = 3; t < 5; t++)
            if (!(fabs(goes_on.loss[t] - alone.loss[t]) <= 1e-5 * alone.loss[t]))
                fail_msg("layout %d goes on from %d: step %d: loss %.9g, wanted %.9g", b, a, t + 1, goes_on.loss[t],
                         alone.loss[t]);
        test_tree_remove(folder);
    }
}

static void refused(tm_step_options o, tm_status status, const char *says)
{
    tm_error   err = { 0 };
    tm_device *device = test_device_open("cpu", 1);
    tm_chooser chooser = tm_device_chooser(device);
    tm_step   *step = NULL;
    o.layout.mesh = tm_mesh_one();
    o.layout.mesh.degree[TM_AXIS_CP] = 4;
    assert_int_equal(tm_step_create(&o, &chooser, &step, &err), status);
    if (!strstr(err.text, says)) fail_msg("'%s' does not say '%s'", err.text, says);
    tm_device_close(device);
}

static void what_cannot_be_shared_is_refused(void **state)
{
    (void)state;
    tm_step_options o = model_options(0);
    o.seq = 20;
    refused(o, TM_INVALID, "8 equal chunks, and training.seq_len is 20; set it to 16 or 24");
    o.seq = 4;
    refused(o, TM_INVALID, "training.seq_len is 4; set it to 8");
    o = two_sequences(3);
    o.layout.ring = true;
    refused(o, TM_UNSUPPORTED, "(parallelism.context_parallel_rotate_method alltoall) cannot be combined with images");
    o = with_documents(model_options(0));
    memcpy(o.validation_fields, o.fields, sizeof o.fields);
    o.validation_batch = 1, o.validation_seq = 12;
    refused(o, TM_INVALID, "validation.seq_len is 12; set it to 8 or 16");
}

/* The fields of a sample that ranks have parts of: of a text those of its length, of images those of several tokens. */
static void fields_of_tokens_are_cut(void **state)
{
    static const struct {
        int      model, ranks;
        tm_shape shape;
        bool     cut;
    } cases[] = {
        { 0, 2, { 1, { 32 } }, true },    { 0, 2, { 2, { 32, 4 } }, true },  { 0, 1, { 1, { 32 } }, false },
        { 0, 2, { 1, { 31 } }, false },   { 0, 2, { 1, { 1 } }, false },     { 0, 2, { 0, { 32 } }, false },
        { 3, 2, { 2, { 2, 16 } }, true }, { 3, 2, { 1, { 5 } }, true },      { 3, 2, { 2, { 1, 16 } }, false },
        { 3, 2, { 0, { 5 } }, false },    { 3, 1, { 2, { 2, 16 } }, false },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tm_step_options o = model_options(cases[i].model);
        const tm_field  field = { "x", TM_F32, cases[i].shape, 0 };
        o.layout.mesh = tm_mesh_one();
        o.layout.mesh.degree[TM_AXIS_CP] = cases[i].ranks;
        if (context_cuts(&o, &field, 32) != cases[i].cut) fail_msg("row %zu", i);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(parts_follow_one_rank),
    cmocka_unit_test(layouts_compose),
    cmocka_unit_test(heads_and_sequences_are_divided),
    cmocka_unit_test(the_same_bits_every_time),
    cmocka_unit_test(gradients_are_those_of_whole_sequences),
    cmocka_unit_test(no_token_reaches_what_stands_before_it),
    cmocka_unit_test(work_is_shared_alike),
    cmocka_unit_test(keys_go_round),
    cmocka_unit_test(any_layout_goes_on),
    cmocka_unit_test(what_cannot_be_shared_is_refused),
    cmocka_unit_test(fields_of_tokens_are_cut),
};

TM_TESTS(tests, NULL, NULL)
