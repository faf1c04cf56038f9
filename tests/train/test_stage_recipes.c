/* SPDX-License-Identifier: Apache-2.0 */
/* Products in low precision in the stages of a pipeline: every recipe has the bits of one rank, and what goes on from
 * step to step (scales, histories, counters) is that of one rank, whichever layout wrote it. */
#include "support/test.h"
#include "graph/value.h"
#include "forms_fixture.h"
#include "ranks_fixture.h"
#include "train/pipeline/file.h"

enum { LINEARS, HEAD, TIED, EXPERTS, SHARED, GPT, SWITCH, EDGES, ADAPTED, IMAGES, KINDS };
static const char *const kinds[] = { "linears", "head",   "tied",  "experts",  "shared experts",
                                     "GPT",     "switch", "edges", "adapters", "images" };

static tm_step_options options_of(int kind, const char *recipe)
{
    const tm_quantize_recipe *of = tm_quantize_recipe_find(recipe);
    tm_step_options           o = kind == SHARED ? mixture_options(DEEPSEEK)
                                                 : model_options(kind == GPT       ? 1
                                                                 : kind == EXPERTS ? 2
                                                                 : kind == IMAGES  ? 3
                                                                                   : 0);
    if (kind == EXPERTS) o.shape.moe.ffn_dim = 64;
    if (kind != SHARED && kind != IMAGES)
        o.shape.dim = 64, o.shape.ffn_dim = 96, o.shape.head_dim = 32; /* whole blocks */
    o.shape.n_layers = 4;
    if (kind == IMAGES) o.shape.n_layers = o.shape.flux.n_single = 2;
    o.shape.tied = kind == TIED || kind == GPT;
    if (kind != IMAGES) o.seq = 32;
    o.accumulation = 4;
    o.layout.reshard = true;
    o.quantize = (tm_quantize){ .on = true, .switch_step = -1, .history = 4, .seed = 1 };
    o.quantize.recipe[0] = *of;
    if (kind == EXPERTS || kind == SHARED) o.quantize.experts = *of;
    if (kind == HEAD || kind == TIED) o.quantize.head = *of;
    if (kind == ADAPTED) {
        o.adapters = (tm_adapters){ .rank = 2, .alpha = 4, .base = TM_DTYPE_COUNT, .place = "test", .seed = 1 };
        o.adapters.dropout = 0.25;
        snprintf(o.adapters.targets, sizeof o.adapters.targets, "wq,w2");
        o.quantize.left_out[0] = "lora_", o.quantize.n_left_out = 1;
    }
    if (kind == EDGES) o.quantize.first_layer = 1, o.quantize.end_layer = 3; /* by numbers of the whole model */
    if (kind == SWITCH) o.quantize.switch_step = 2, o.quantize.recipe[1] = *tm_quantize_recipe_find("fp8_delayed");
    return o;
}

/* Nothing is clipped: the norm is added by stages. */
static job job_of(tm_step_options o, int steps)
{
    job j = { .o = o, .replicate = 1, .shard = 1, .steps = steps, .rate = 2e-3 };
    return j;
}

static job alone_with(tm_step_options o, int steps)
{
    job j = job_of(o, steps);
    j.whole = 1;
    rank_body(NULL, &j);
    return j;
}

static job begin_stages(tm_step_options o, const form *f, int steps)
{
    job j = job_of(o, steps);
    j.stages = f->stages;
    j.o.layout.order = f->order;
    j.o.layout.chunks = f->chunks;
    j.o.layout.first_blocks = f->first_blocks;
    return j;
}

static void same(const job *a, const job *b, const char *what, const char *recipe)
{
    for (int t = a->begin > b->begin ? a->begin : b->begin; t < a->steps; t++)
        if (!(a->loss[t] == b->loss[t]))
            fail_msg("%s, %s: step %d: loss %.17g, wanted %.17g", recipe, what, t + 1, a->loss[t], b->loss[t]);
    if (a->weights[0] != b->weights[0]) fail_msg("%s, %s: other weights", recipe, what);
    if (!(a->evaluation[0] == b->evaluation[0])) fail_msg("%s, %s: another evaluation", recipe, what);
}

static void every_recipe_has_the_bits_of_one_rank(void **state)
{
    (void)state;
    for (int i = 0; tm_quantize_recipe_at(i); i++) {
        const char     *recipe = tm_quantize_recipe_at(i)->name;
        tm_step_options o = options_of(i % 2 ? HEAD : LINEARS, recipe);
        if (i % 3 == 0) o.precision = &tm_precision_bf16;
        job alone = alone_with(o, 4), staged = begin_stages(o, &forms[i % FORMS], 4);
        run_job(&staged);
        assert_true(alone.loss[3] != alone.loss[0]);
        same(&staged, &alone, kinds[i % 2 ? HEAD : LINEARS], recipe);
    }
}

/* Scales of earlier steps, and random numbers by micro-batch, in every order. */
static void every_order_has_the_bits_of_one_rank(void **state)
{
    static const char *const recipes[] = { "fp8_delayed", "nvfp4" };
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        const char     *recipe = recipes[kind == LINEARS || kind == EXPERTS || kind == SWITCH || kind == ADAPTED];
        tm_step_options o = options_of(kind, recipe);
        job             alone = alone_with(o, 4);
        for (int f = 0; f < FORMS; f++) {
            job staged = begin_stages(o, &forms[f], 4);
            run_job(&staged);
            same(&staged, &alone, kinds[kind], recipe);
        }
    }
}

/* Ranks of a stage that have other samples: as ranks of the whole model with other samples. */
static void copies_and_shards_of_stages(void **state)
{
    static const char *const recipes[] = { "fp8_delayed", "nvfp4", "mxfp8" };
    static const struct {
        int        replicate, shard, context, experts;
        tm_sharing sharing;
    } others[] = { { 2, 1, 1, 1, TM_SHARE_COPIES },    { 1, 2, 1, 1, TM_SHARE_OPTIMIZER },
                   { 1, 1, 2, 1, TM_SHARE_OPTIMIZER }, { 1, 2, 1, 2, TM_SHARE_OPTIMIZER },
                   { 1, 2, 1, 1, TM_SHARE_ALL },       { 1, 2, 1, 2, TM_SHARE_ALL } };
    (void)state;
    for (size_t r = 0; r < sizeof recipes / sizeof recipes[0]; r++)
        for (size_t k = 0; k < sizeof others / sizeof others[0]; k++) {
            bool            divided = others[k].experts > 1;
            tm_step_options o = options_of(divided ? EXPERTS : LINEARS, recipes[r]);
            o.accumulation = 2;
            if (others[k].context > 1) o.seq = 64; /* 32 rows on each rank */
            if (divided) o.quantize.experts = (tm_quantize_recipe){ 0 }, o.shape.moe.aux_loss = 0;
            job whole = job_of(o, 4), staged = begin_stages(o, &forms[k % 2 ? 2 : 0], 4);
            whole.replicate = staged.replicate = others[k].replicate;
            whole.shard = staged.shard = others[k].shard;
            whole.context = staged.context = others[k].context;
            whole.experts = staged.experts = others[k].experts;
            whole.o.layout.sharing = staged.o.layout.sharing = others[k].sharing;
            staged.o.layout.let_go = true;
            run_job(&whole);
            run_job(&staged);
            char what[64];
            snprintf(what, sizeof what, "other ranks %d", (int)k);
            same(&staged, &whole, what, recipes[r]);
        }
}

/* With clipping; 50 steps. */
static void stages_follow_one_rank(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        tm_step_options o = options_of(kind ? EXPERTS : LINEARS, kind ? "mxfp8" : "fp8_delayed");
        job             alone = job_of(o, MOST_STEPS), staged = begin_stages(o, &forms[0], MOST_STEPS);
        alone.whole = 1;
        alone.max_norm = staged.max_norm = 1e9; /* which nothing reaches: a norm's last bit would turn codes over */
        rank_body(NULL, &alone);
        run_job(&staged);
        check_follows_one(&staged, &alone, kinds[kind ? EXPERTS : LINEARS], 1e-6);
    }
}

/* Parts of a step that are summed apart: scales of the next step go by what was largest in all of them. */
static void parts_have_the_bits_of_one_rank(void **state)
{
    static const char *const recipes[] = { "fp8_delayed", "nvfp4" };
    (void)state;
    for (int k = 0; k < 4; k++) {
        tm_step_options o = options_of(k / 2 ? EXPERTS : LINEARS, recipes[k % 2]);
        o.layout.parts = 2;
        job alone = alone_with(o, 4), staged = begin_stages(o, &forms[k % 2 ? 2 : 0], 4);
        run_job(&staged);
        same(&staged, &alone, "two parts", recipes[k % 2]);
    }
}

/* All that goes on to the next step: one table behind the other. */
typedef struct {
    double *values;
    size_t  n;
} tables;

static void take_tables(job *j, const tm_trainer *trainer)
{
    const tm_step      *step = tm_trainer_step_of(trainer);
    const tm_quantized *q = &step->quantized;
    const tm_tensor_id  all[] = { q->record, q->ticks, q->history, q->scale };
    tables             *to = j->taken;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (all[i] == TM_NONE) continue;
        size_t  n = (size_t)tm_shape_elements(tm_graph_at(step->graph, all[i])->shape);
        double *values = test_values_read(trainer, all[i]);
        to->values = realloc(to->values, (to->n + n) * sizeof *to->values);
        memcpy(to->values + to->n, values, n * sizeof *values);
        to->n += n;
        free(values);
    }
}

/* What stages save is, in one rank that reads it, what one rank has. */
static void check_tables(job alone, job staged, const char *what)
{
    char  *folder = test_tree_make();
    tables own = { 0 }, read = { 0 };
    job    reader = alone;
    alone.look = reader.look = take_tables;
    alone.taken = &own, reader.taken = &read;
    rank_body(NULL, &alone);
    staged.save = folder;
    run_job(&staged);
    reader.load = folder, reader.begin = reader.steps;
    rank_body(NULL, &reader);
    assert_true(own.n == read.n && own.n > 0);
    for (size_t i = 0; i < own.n; i++)
        if (!(own.values[i] == read.values[i]))
            fail_msg("%s: number %d of the tables is %.9g, wanted %.9g", what, (int)i, read.values[i], own.values[i]);
    free(own.values);
    free(read.values);
    test_tree_remove(folder);
}

static void tables_are_those_of_one_rank(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (int f = 0; f < FORMS; f += 2) {
            tm_step_options o = options_of(kind, kind == LINEARS || kind == SWITCH ? "nvfp4" : "fp8_delayed");
            job             alone = job_of(o, 3);
            alone.whole = 1;
            check_tables(alone, begin_stages(o, &forms[f], 3), kinds[kind]);
        }
}

/* Micro-batches that come back in another order than they went: gradients have other last bits, the largest numbers of
 * the first step none. */
static void tables_do_not_depend_on_the_order(void **state)
{
    (void)state;
    tm_arena               *arena = tm_arena_create();
    const tm_pipeline_list *list;
    tm_error                err = { 0 };
    if (pipeline_file_read("tests/train/fixtures/schedules/LoopedBFS-2x2-4.csv", 2, arena, &list, &err) != TM_OK)
        fail_msg("%s", err.text);
    tm_step_options o = options_of(EXPERTS, "fp8_delayed");
    const form      f = { 2, list->chunks, TM_PIPELINE_LISTED, NULL };
    job             alone = job_of(o, 1), staged = begin_stages(o, &f, 1);
    alone.whole = 1;
    staged.o.layout.list = list;
    check_tables(alone, staged, "LoopedBFS");
    tm_arena_destroy(arena);
}

/* Two stages save, four go on, then one rank, then stages again: the bits of a run that nobody stopped. */
static void checkpoints_fit_other_layouts(void **state)
{
    static const char *const recipes[] = { "fp8_delayed", "nvfp4", "mxfp4" };
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        tm_step_options o =
            options_of(kind, kind == SHARED || kind == IMAGES ? "fp8_delayed" : recipes[kind == SWITCH ? 2 : kind % 2]);
        char *first = test_tree_make(), *second = test_tree_make(), *third = test_tree_make();
        job   whole = alone_with(o, 5), two = begin_stages(o, &forms[0], 1), four = begin_stages(o, &forms[1], 2);
        job   one = job_of(o, 4), again = begin_stages(o, &forms[4], 5);
        two.save = first;
        run_job(&two);
        four.begin = 1, four.load = first, four.save = second;
        run_job(&four);
        one.whole = 1, one.begin = 2, one.load = second, one.save = third;
        rank_body(NULL, &one);
        again.begin = 4, again.load = third;
        run_job(&again);
        same(&again, &whole, "goes on", kinds[kind]);
        test_tree_remove(first);
        test_tree_remove(second);
        test_tree_remove(third);
    }
}

/* A rank has rows of its own linears only; the record of a run has those of all. */
static void ranks_have_the_rows_of_their_stages(void **state)
{
    tm_device *device = test_device_open("cpu", 1);
    tm_chooser chooser = tm_device_chooser(device);
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        tm_step_options o = options_of(kind, "fp8_delayed");
        tm_step        *alone = test_step_plan(&o, &chooser);
        size_t          rows = 0, all;
        for (int rank = 0; rank < 4; rank++) {
            o.layout.mesh = tm_mesh_one();
            o.layout.mesh.degree[TM_AXIS_PP] = 4;
            o.layout.rank = rank;
            tm_step                *step = test_step_plan(&o, &chooser);
            const tm_quantized     *q = &step->quantized;
            const tm_quantized_row *row = tm_quantized_all(q, &all);
            assert_int_equal(all, alone->quantized.n_rows);
            for (size_t i = 0; i < all; i++) assert_string_equal(row[i].name, alone->quantized.rows[i].name);
            for (size_t i = 0; i < q->n_rows; i++) {
                assert_string_equal(q->rows[i].name, row[q->places[i]].name);
                assert_true(q->rows[i].factor == alone->quantized.rows[q->places[i]].factor);
            }
            if (kind == EDGES) assert_true((q->record != TM_NONE) == (rank == 1 || rank == 2));
            rows += q->n_rows;
            tm_step_destroy(step);
        }
        if (rows != alone->quantized.n_rows)
            fail_msg("%s: %d rows in stages, %d in one rank", kinds[kind], (int)rows, (int)alone->quantized.n_rows);
        tm_step_destroy(alone);
    }
    tm_device_close(device);
}

/* What a recipe leaves is judged by the whole model: also where a stage has none of it. */
static void words_are_those_of_the_whole_model(void **state)
{
    tm_device *device = test_device_open("cpu", 1);
    tm_chooser chooser = tm_device_chooser(device);
    (void)state;
    for (int wrong = 0; wrong < 2; wrong++)
        for (int rank = 0; rank < 2; rank++) {
            tm_step_options o = options_of(LINEARS, "fp8_rowwise");
            tm_step        *step = NULL;
            tm_error        err = { 0 };
            o.layout.mesh = tm_mesh_one();
            o.layout.mesh.degree[TM_AXIS_PP] = 2;
            o.layout.rank = rank;
            o.quantize.only[0] = wrong ? "layers.4." : "layers.3.", o.quantize.n_only = 1;
            assert_int_equal(tm_step_create(&o, &chooser, &step, &err), wrong ? TM_UNSUPPORTED : TM_OK);
            if (wrong) assert_non_null(strstr(err.text, "'layers.4.' in quantize.fqns is in the name of no linear"));
            if (!wrong) assert_true((step->quantized.record != TM_NONE) == (rank == 1));
            tm_step_destroy(step);
        }
    tm_device_close(device);
}

static const struct CMUnitTest tests[] = {
    full_test(every_recipe_has_the_bits_of_one_rank),
    full_test(every_order_has_the_bits_of_one_rank),
    full_test(copies_and_shards_of_stages),
    full_test(stages_follow_one_rank),
    full_test(tables_are_those_of_one_rank),
    cmocka_unit_test(tables_do_not_depend_on_the_order),
    full_test(checkpoints_fit_other_layouts),
    cmocka_unit_test(ranks_have_the_rows_of_their_stages),
    cmocka_unit_test(words_are_those_of_the_whole_model),
    cmocka_unit_test(parts_have_the_bits_of_one_rank),
};

TM_TESTS(tests, NULL, NULL)
