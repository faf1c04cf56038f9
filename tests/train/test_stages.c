/* SPDX-License-Identifier: Apache-2.0 */
/* Stages of a pipeline train as one rank does: the same bits where sums have the same order. */
#include "support/test.h"
#include "data/source.h"
#include "ranks_fixture.h"
#include "support/full_config.h"
#include "train/generate/generate.h"

#include <sys/stat.h>
#include <unistd.h>

enum { IMAGES = 3 }; /* the last of model_options */

typedef struct {
    int               model, stages, chunks;
    tm_pipeline_order order;
    int64_t           micro_batches;
    int               steps;
    double            max_norm;
} layout;

static tm_step_options options_of(const layout *l)
{
    tm_step_options o = model_options(l->model);
    int             blocks = l->stages * l->chunks + (l->stages * l->chunks > 2);
    if (l->model == IMAGES) o.shape.flux.n_single = blocks / 2;
    o.shape.n_layers = blocks - (l->model == IMAGES ? blocks / 2 : 0);
    o.accumulation = l->micro_batches;
    o.layout.order = l->order;
    o.layout.chunks = l->chunks;
    o.layout.first_less = o.layout.last_less = l->stages * l->chunks > blocks - 2 ? 0 : 1;
    return o;
}

static job begin_job(const layout *l, int replicate, int shard)
{
    job j = { .o = options_of(l), .replicate = replicate, .shard = shard, .steps = l->steps, .rate = 2e-3 };
    j.max_norm = l->max_norm;
    return j;
}

/* One rank with the samples of `whole`. */
static job alone_with(const layout *l, int whole)
{
    job j = begin_job(l, 1, 1);
    j.whole = whole;
    rank_body(NULL, &j);
    return j;
}

static job run_stages(const layout *l, int replicate, int shard, tm_sharing sharing)
{
    job j = begin_job(l, replicate, shard);
    j.stages = l->stages;
    j.o.layout.sharing = sharing;
    run_world(ranks_of(&j), NULL, 120, false, rank_body, &j);
    for (int r = 1; r < ranks_of(&j); r++) {
        if (j.losses[r] != j.losses[0]) fail_msg("rank %d tells another loss than rank 0", r);
        assert_true(j.evaluation[r] == j.evaluation[0]);
        if (j.weights[r] != j.weights[0]) fail_msg("rank %d tells other weights than rank 0", r);
    }
    return j;
}

/* Without clipping nothing is added in another order: not almost, but the same bits. */
static void stages_have_the_bits_of_one_rank(void **state)
{
    static const layout layouts[] = {
        { 0, 2, 1, TM_PIPELINE_1F1B, 4, 6, 0 },
        { 1, 2, 1, TM_PIPELINE_GPIPE, 2, 6, 0 },
        { 0, 4, 1, TM_PIPELINE_1F1B, 8, 4, 0 },
        { 1, 4, 1, TM_PIPELINE_1F1B, 4, 4, 0 },
        { 2, 2, 1, TM_PIPELINE_1F1B, 2, 4, 0 },
        { 0, 2, 2, TM_PIPELINE_INTERLEAVED, 4, 4, 0 },
        { 1, 2, 3, TM_PIPELINE_INTERLEAVED, 8, 3, 0 },
        { 0, 4, 2, TM_PIPELINE_INTERLEAVED, 8, 3, 0 },
        { 0, 2, 1, TM_PIPELINE_INTERLEAVED_ZERO, 4, 4, 0 },
        { 2, 2, 2, TM_PIPELINE_INTERLEAVED_ZERO, 4, 3, 0 },
        { 1, 4, 1, TM_PIPELINE_INTERLEAVED_ZERO, 8, 3, 0 },
        { 0, 2, 1, TM_PIPELINE_1F1B, 1, 3, 0 },
        { 0, 2, 2, TM_PIPELINE_ZBV, 4, 4, 0 },
        { 2, 4, 2, TM_PIPELINE_ZBV, 8, 3, 0 },
        { 1, 2, 2, TM_PIPELINE_ZBV, 4, 4, 0 },
        { 1, 4, 2, TM_PIPELINE_ZBV, 1, 3, 0 },
        { 0, 2, 2, TM_PIPELINE_DUAL_V, 4, 4, 0 },
        { 2, 3, 2, TM_PIPELINE_DUAL_V, 7, 3, 0 },
        { 1, 4, 2, TM_PIPELINE_DUAL_V, 8, 3, 0 },
        { IMAGES, 2, 1, TM_PIPELINE_1F1B, 2, 6, 0 },
        { IMAGES, 4, 1, TM_PIPELINE_GPIPE, 4, 4, 0 },
        { IMAGES, 2, 2, TM_PIPELINE_INTERLEAVED_ZERO, 4, 4, 0 },
        { IMAGES, 2, 2, TM_PIPELINE_ZBV, 4, 4, 0 },
        { IMAGES, 3, 2, TM_PIPELINE_DUAL_V, 6, 4, 0 },
    };
    (void)state;
    for (size_t i = getenv("ONLY") ? (size_t)atoi(getenv("ONLY")) : 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        const layout *l = &layouts[i];
        job           alone = alone_with(l, 1), staged = run_stages(l, 1, 1, TM_SHARE_COPIES);
        for (int t = 0; t < l->steps; t++)
            if (alone.loss[t] != staged.loss[t])
                fail_msg("layout %d, step %d: loss %.17g alone, %.17g in stages", (int)i, t + 1, alone.loss[t],
                         staged.loss[t]);
        if (alone.weights[0] != staged.weights[0]) fail_msg("layout %d: other weights than those of one rank", (int)i);
        assert_true(alone.evaluation[0] == staged.evaluation[0]);
    }
}

static void stages_follow_one_rank(void **state)
{
    (void)state;
    for (int model = 0; model <= IMAGES; model++) {
        layout l = { model, 2, 1, TM_PIPELINE_1F1B, 4, MOST_STEPS, 1 };
        if (model == 2) continue; /* tests/train/test_stage_layouts.c */
        job    alone = alone_with(&l, 1), staged = run_stages(&l, 1, 1, TM_SHARE_COPIES);
        job    again = run_stages(&l, 1, 1, TM_SHARE_COPIES);
        double far = apart(&staged, &alone);
        print_message("# model %d: losses %.3g apart over %d steps\n", model, far, l.steps);
        assert_true(far <= 1e-5);
        assert_true(again.weights[0] == staged.weights[0]);
        for (int t = 0; t < l.steps; t++)
            assert_true(fabs(staged.norm[t] - alone.norm[t]) <= 1e-6 * alone.norm[t] && alone.norm[t] > 0);
    }
}

/* Sums of parts of a step: those of one rank that sums as they do, and of so many copies of the stages. */
static void parts_are_pipelines_one_after_the_other(void **state)
{
    static const layout layouts[] = {
        { 0, 2, 1, TM_PIPELINE_1F1B, 4, 4, 0 },   { 1, 2, 1, TM_PIPELINE_GPIPE, 6, 4, 0 },
        { 1, 4, 1, TM_PIPELINE_1F1B, 8, 3, 0 },   { 2, 2, 2, TM_PIPELINE_INTERLEAVED, 4, 3, 0 },
        { 0, 2, 2, TM_PIPELINE_ZBV, 6, 3, 0 },    { 1, 2, 2, TM_PIPELINE_ZBV, 4, 3, 0 },
        { 1, 2, 2, TM_PIPELINE_DUAL_V, 8, 3, 0 }, { IMAGES, 2, 2, TM_PIPELINE_INTERLEAVED_ZERO, 4, 3, 0 },
        { 0, 2, 1, TM_PIPELINE_1F1B, 2, 3, 0 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        const layout *l = &layouts[i];
        int           parts = l->micro_batches == 6 ? 3 : 2;
        job           alone = begin_job(l, 1, 1), staged = begin_job(l, 1, 1), copies = begin_job(l, parts, 1);
        alone.whole = 1;
        staged.stages = copies.stages = l->stages;
        alone.o.layout.parts = staged.o.layout.parts = parts;
        copies.o.accumulation /= parts;
        rank_body(NULL, &alone);
        run_job(&staged);
        run_job(&copies);
        for (int t = 0; t < l->steps; t++)
            if (alone.loss[t] != staged.loss[t] || alone.loss[t] != copies.loss[t])
                fail_msg("layout %d, step %d: loss %.17g alone, %.17g in stages, %.17g in copies of them", (int)i,
                         t + 1, alone.loss[t], staged.loss[t], copies.loss[t]);
        if (alone.weights[0] != staged.weights[0]) fail_msg("layout %d: other weights than those of one rank", (int)i);
        if (alone.weights[0] != copies.weights[0]) fail_msg("layout %d: other weights than those of copies", (int)i);
        job together = alone_with(l, 1);
        assert_true(l->micro_batches == parts || together.weights[0] != alone.weights[0]); /* parts show */
    }
}

static void stages_have_copies_and_shards(void **state)
{
    (void)state;
    for (int model = 0; model < 2; model++) {
        layout l = { model, 2, 1, TM_PIPELINE_1F1B, 2, 8, 1 };
        job    alone = alone_with(&l, 2), copies = run_stages(&l, 2, 1, TM_SHARE_COPIES);
        assert_true(apart(&copies, &alone) <= 1e-5);
    }
    layout l = { 0, 2, 1, TM_PIPELINE_1F1B, 2, 8, 1 };
    job    alone = alone_with(&l, 2);
    for (int sharing = TM_SHARE_OPTIMIZER; sharing <= TM_SHARE_ALL; sharing++) {
        if (sharing == TM_SHARE_GRADIENTS) continue;
        job shards = run_stages(&l, 1, 2, (tm_sharing)sharing);
        assert_true(apart(&shards, &alone) <= 1e-5);
    }
}

/* Two parts of each matrix in two parts of the model. */
static void stages_have_divided_matrices(void **state)
{
    (void)state;
    for (int model = 0; model <= IMAGES; model++) {
        layout l = { model, 2, 1, TM_PIPELINE_1F1B, 2, 8, 1 };
        job    j = begin_job(&l, 1, 1), one = begin_job(&l, 1, 1);
        if (model == 2) continue;
        j.stages = j.tensor = 2;
        if (model == 0) j.o.shape.n_kv_heads = one.o.shape.n_kv_heads = j.o.shape.n_heads;
        one.whole = 1;
        rank_body(NULL, &one);
        run_world(4, NULL, 120, false, rank_body, &j);
        for (int r = 1; r < 4; r++) assert_true(j.losses[r] == j.losses[0] && j.weights[r] == j.weights[0]);
        assert_true(apart(&j, &one) <= 1e-5);
    }
}

static void remove_folder(const char *folder)
{
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%.256s'", folder);
    if (system(command) != 0) print_message("# %s stays\n", folder);
}

/* Two stages save, four go on, then one rank: the bits of a run that nobody stopped. */
static void checkpoints_fit_other_layouts(void **state)
{
    char folder[] = "/tmp/tm-stages-XXXXXX", second[] = "/tmp/tm-stages-XXXXXX";
    (void)state;
    assert_non_null(mkdtemp(folder));
    assert_non_null(mkdtemp(second));
    for (int model = 0; model < 2; model++) {
        layout l = { model, 4, 1, TM_PIPELINE_1F1B, 4, 6, 0 };
        job whole = alone_with(&l, 1), two = begin_job(&l, 1, 1), four = begin_job(&l, 1, 1), one = begin_job(&l, 1, 1);
        two.stages = 2;
        two.steps = four.begin = 2;
        two.save = folder;
        run_world(2, NULL, 120, false, rank_body, &two);
        four.stages = 4;
        four.load = folder;
        four.steps = one.begin = 4;
        four.save = second;
        run_world(4, NULL, 120, false, rank_body, &four);
        one.load = second;
        one.whole = 1;
        rank_body(NULL, &one);
        assert_true(one.weights[0] == whole.weights[0]);
        assert_true(one.loss[5] == whole.loss[5]);
        remove_folder(folder);
        remove_folder(second);
        assert_int_equal(mkdir(folder, 0700) + mkdir(second, 0700), 0);
    }
    remove_folder(folder);
    remove_folder(second);
}

/* Every stage writes the same, and what one rank writes. */
static void stages_write_what_one_rank_writes(void **state)
{
    static const layout layouts[] = { { 0, 2, 1, TM_PIPELINE_1F1B, 2, 1, 0 },
                                      { 1, 4, 1, TM_PIPELINE_GPIPE, 4, 1, 0 },
                                      { 2, 2, 2, TM_PIPELINE_INTERLEAVED, 4, 1, 0 },
                                      { 1, 2, 2, TM_PIPELINE_ZBV, 4, 1, 0 } };
    (void)state;
    char *path = test_tree_make();
    test_file_write(path, "a.txt", "the quick brown fox jumps over the lazy dog, and the dog sleeps on in the sun");
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        job j = begin_job(&layouts[i], 1, 1), one;
        j.o.shape.vocab_size = 258, j.o.sample = true;
        if (i == 0) j.o.shape.n_kv_heads = j.o.shape.n_heads;
        one = j;
        one.whole = 1;
        j.stages = layouts[i].stages, j.tensor = i == 0 ? 2 : 1;
        check_same_writes(j, one, path);
    }
    test_tree_remove(path);
}

/* A rank has its blocks' parameters only, and memory for as many micro-batches as its order keeps. */
static void plans_have_the_parts_of_their_stage(void **state)
{
    (void)state;
    tm_device *device = test_device_open("cpu", 1);
    tm_chooser chooser = tm_device_chooser(device);
    layout     l = { 0, 4, 1, TM_PIPELINE_1F1B, 8, 1, 1 };
    int64_t    elements = 0;
    for (int rank = 0; rank < 4; rank++) {
        tm_step_options o = options_of(&l);
        tm_error        err = { 0 };
        tm_step        *step;
        assert_int_equal(plan_stage(o, &chooser, 4, rank, &step, &err), TM_OK);
        assert_int_equal(step->graph->slots, 4 - rank);
        assert_true((step->model.embedding != TM_NONE) == (rank == 0));
        assert_true((step->model.head != TM_NONE) == (rank == 3));
        size_t sends = 0, receives = 0;
        for (size_t i = 0; i < step->graph->n_tensors; i++)
            if (step->graph->tensors[i].role == TM_ROLE_PARAMETER)
                elements += tm_shape_elements(step->graph->tensors[i].shape);
        for (size_t w = 0; w < step->training.n; w++)
            for (size_t x = 0; x < step->training.work[w].program->count; x++) {
                const tm_instruction *i = &step->training.work[w].program->instructions[x];
                sends += i->call.op == &tm_op_send;
                receives += i->call.op == &tm_op_receive;
                if (i->call.op == &tm_op_send)
                    assert_true(i->cost.wire == (double)(o.micro_batch * o.seq * o.shape.dim * 4));
                if (i->call.op == &tm_op_send) assert_int_equal(i->stream, TM_ON_COMMUNICATION);
            }
        assert_int_equal(sends, 8 * (rank == 0 || rank == 3 ? 1 : 2));
        assert_int_equal(receives, sends);
        assert_int_equal(step->training.n, 17);
        tm_step_destroy(step);
    }
    tm_step_options o = options_of(&l);
    assert_true(elements == tm_model_parameters(&o.shape));
    tm_device_close(device);
}

/* Orders without idle time leave the gradients of weights for later: half of the products of a backward pass. */
static void weights_have_their_own_programs(void **state)
{
    (void)state;
    tm_device      *device = test_device_open("cpu", 1);
    tm_chooser      chooser = tm_device_chooser(device);
    layout          l = { 0, 4, 1, TM_PIPELINE_INTERLEAVED_ZERO, 8, 1, 1 };
    tm_step_options o = options_of(&l);
    tm_error        err = { 0 };
    tm_step        *step;
    double          input = 0, weight = 0;
    assert_int_equal(plan_stage(o, &chooser, 4, 1, &step, &err), TM_OK);
    for (size_t w = 0; w < step->training.n; w++) {
        const tm_program *program = step->training.work[w].program;
        for (size_t x = 0; x < program->count; x++) {
            if (strstr(program->name, "input")) input += program->instructions[x].cost.flops;
            if (strstr(program->name, "weight")) weight += program->instructions[x].cost.flops;
        }
    }
    assert_true(weight > 0.5 * input && weight < input); /* attention has no weights */
    tm_step_destroy(step);
    tm_device_close(device);
}

/* The stage after that one is never there. */
static void absent_body(tm_comm *comm, void *context)
{
    tm_step_options o = *(const tm_step_options *)context;
    tm_ranks        ranks = { 0 };
    tm_device      *device;
    tm_trainer     *trainer;
    tm_error        err_of_step = { 0 };
    void           *field[2][TM_MAX_FIELDS];
    o.layout.mesh = tm_mesh_one();
    o.layout.mesh.degree[TM_AXIS_PP] = 2;
    o.layout.rank = tm_comm_rank(comm);
    CHECK_OK(tm_ranks_open(&o.layout.mesh, comm, &ranks, err));
    CHECK_OK(tm_device_open("cpu", 1, &device, err));
    tm_device_join(device, &ranks.groups);
    CHECK_OK(tm_trainer_open(device, &o, 7, &trainer, err));
    if (tm_comm_rank(comm) == 0) {
        CHECK_OK(tm_trainer_begin(trainer, 1, 1e-3, 1, 64, err));
        for (int m = 0; m < 2; m++) make_batch(&o, 1, m, field[m]);
        tm_micro_batch all = join_batches(&o, field);
        CHECK(tm_trainer_gradients(trainer, &all, NULL, &err_of_step) != TM_OK);
        CHECK(strstr(err_of_step.text, "rank 1"));
        CHECK(strstr(err_of_step.text, "'gradients of stage 1, micro-batch 1'"));
        for (int f = 0; f < 2; f++) free((void *)all.field[f]);
        for (int m = 0; m < 2; m++) free_batch(&o, field[m]);
    } else {
        while (tm_comm_failed(comm, &err_of_step) == TM_OK) usleep(1000);
    }
    tm_trainer_close(trainer);
    tm_device_close(device);
    tm_ranks_close(&ranks);
}

static void a_stage_that_is_late_is_named(void **state)
{
    layout          l = { 0, 2, 1, TM_PIPELINE_1F1B, 2, 1, 1 };
    tm_step_options o = options_of(&l);
    (void)state;
    run_world(2, NULL, 0.3, false, absent_body, &o);
}

static int64_t class_bytes(const tm_plan *plan, const char *name)
{
    for (size_t i = 0; i < plan->n_classes; i++)
        if (strcmp(plan->by_class[i].name, name) == 0) return plan->by_class[i].value;
    return 0;
}

/* What lies in slots is told by what it is, whatever program is the largest; padding is what placement loses. */
static void memory_of_slots_is_told_by_what_it_is(void **state)
{
    static const layout layouts[] = { { 0, 2, 1, TM_PIPELINE_1F1B, 4, 1, 1 },
                                      { 1, 2, 2, TM_PIPELINE_INTERLEAVED, 4, 1, 1 },
                                      { 0, 2, 2, TM_PIPELINE_ZBV, 4, 1, 1 },
                                      { 1, 4, 2, TM_PIPELINE_DUAL_V, 8, 1, 1 } };
    tm_device          *device = test_device_open("cpu", 1);
    tm_chooser          chooser = tm_device_chooser(device);
    (void)state;
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++)
        for (int rank = 0; rank < layouts[i].stages; rank++) {
            tm_step_options o = options_of(&layouts[i]);
            tm_step        *step = NULL;
            tm_error        err = { 0 };
            o.seq = 64;
            if (plan_stage(o, &chooser, layouts[i].stages, rank, &step, &err) != TM_OK) fail_msg("%s", err.text);
            int64_t sum = 0, padding = class_bytes(step->plan, "padding");
            int64_t slots = (int64_t)step->graph->slots * (int64_t)step->plan->spaces[TM_SPACE_DEVICE].slot_bytes;
            for (size_t c = 0; c < step->plan->n_classes; c++) sum += step->plan->by_class[c].value;
            print_message("# layout %d, rank %d: %lld bytes, %lld in slots, %lld of padding\n", (int)i, rank,
                          (long long)sum, (long long)slots, (long long)padding);
            assert_int_equal(sum, step->plan->arena_bytes);
            assert_true(padding < sum / 50);
            assert_true(class_bytes(step->plan, "activations") >= slots * 9 / 10);
            tm_step_destroy(step);
        }
    tm_device_close(device);
}

static void what_cannot_be_cut_is_refused(void **state)
{
    (void)state;
    tm_device *device = test_device_open("cpu", 1);
    tm_chooser chooser = tm_device_chooser(device);
    layout     l = { 0, 2, 1, TM_PIPELINE_1F1B, 2, 1, 1 };
    tm_step   *step;
    for (int k = 0; k < 2; k++) {
        static const char *const words[] = { "training.separate_sums is 3", "stages" };
        tm_step_options          o = options_of(&l);
        tm_error                 err = { 0 };
        if (k == 0) o.layout.parts = 3, o.accumulation = 4;
        if (k == 1) o.layout.last_less = 9;
        assert_int_not_equal(plan_stage(o, &chooser, 2, 0, &step, &err), TM_OK);
        if (!strstr(err.text, words[k])) fail_msg("'%s' is not in: %s", words[k], err.text);
    }
    tm_device_close(device);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(stages_have_the_bits_of_one_rank),
    cmocka_unit_test(stages_follow_one_rank),
    cmocka_unit_test(parts_are_pipelines_one_after_the_other),
    cmocka_unit_test(stages_have_copies_and_shards),
    cmocka_unit_test(stages_have_divided_matrices),
    cmocka_unit_test(checkpoints_fit_other_layouts),
    cmocka_unit_test(stages_write_what_one_rank_writes),
    cmocka_unit_test(plans_have_the_parts_of_their_stage),
    cmocka_unit_test(weights_have_their_own_programs),
    cmocka_unit_test(a_stage_that_is_late_is_named),
    cmocka_unit_test(memory_of_slots_is_told_by_what_it_is),
    cmocka_unit_test(what_cannot_be_cut_is_refused),
};

TM_TESTS(tests, NULL, NULL)
