/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that divide the matrices of FLUX: heads and MLP of double and single blocks. They follow one rank with the same
 * samples, beside copies, shards and parts of samples, have its gradients in float64 and the same bits every time, and
 * begin and go on with the weights of any other layout. */
#include "support/test.h"
#include "hf/layout.h"
#include "ranks_fixture.h"

typedef struct {
    int tensor, replicate, shard, context, steps;
} layout;

static tm_step_options options_of(void)
{
    return shareable(3);
}

static job job_of(layout l)
{
    job j = { .o = options_of(), .replicate = l.replicate, .shard = l.shard, .steps = l.steps, .rate = 2e-3 };
    j.tensor = l.tensor;
    j.context = l.context;
    j.max_norm = 1;
    j.o.layout.sharing = TM_SHARE_ALL;
    j.o.layout.reshard = true;
    return j;
}

static void describe(char out[60], layout l)
{
    snprintf(out, 60, "tp %d, %d x %d, cp %d", l.tensor, l.replicate, l.shard, l.context);
}

static const layout layouts[] = {
    { 2, 1, 1, 1, MOST_STEPS }, { 2, 2, 1, 1, 6 }, { 2, 1, 2, 1, MOST_STEPS }, { 2, 1, 1, 2, 6 }, { 2, 1, 2, 2, 6 }
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

static void divided_images_follow_one_rank(void **state)
{
    (void)state;
    for (int i = 0; i < LAYOUTS; i++) {
        char what[60];
        job  alone = run_alone(options_of(), layouts[i].replicate * layouts[i].shard, 1, layouts[i].steps);
        job  j = job_of(layouts[i]);
        run_job(&j);
        double far = apart(&j, &alone);
        for (int t = 0; t < j.steps; t++) far = fmax(far, fabs(j.norm[t] - alone.norm[t]) / alone.norm[t] / 10);
        describe(what, layouts[i]);
        print_message("# %s: %.3g apart, %.4g -> %.4g\n", what, far, alone.loss[0], alone.loss[alone.steps - 1]);
        if (!(far <= 1e-5)) fail_msg("%s: losses or norms are %.3g apart", what, far);
    }
}

static void gradients_are_those_of_one_rank(void **state)
{
    (void)state;
    for (int i = 0; i < LAYOUTS; i++) {
        char what[60];
        describe(what, layouts[i]);
        check_sgd_step(job_of(layouts[i]), layouts[i].replicate * layouts[i].shard, what);
    }
}

static void bits_are_the_same_every_time(void **state)
{
    (void)state;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        job once = job_of((layout){ 2, 1, 2, 1, 6 }), twice;
        if (bf16) once.o.precision = &tm_precision_bf16;
        twice = once;
        run_job(&once);
        run_job(&twice);
        job alone = run_alone(once.o, 2, 1, once.steps);
        assert_true(once.weights[0] == twice.weights[0]);
        assert_true(apart(&once, &alone) < (bf16 ? 5e-3 : 1e-5));
    }
}

/* Two runs of a matrix's columns are one matrix: in checksums and in checkpoints. */
static void any_layout_goes_on(void **state)
{
    static const layout all[] = { { 2, 1, 1, 1, 4 }, { 1, 1, 2, 1, 4 }, { 2, 1, 2, 1, 4 }, { 1, 1, 1, 1, 4 } };
    enum { ALL = sizeof all / sizeof all[0] };
    (void)state;
    job whole = run_alone(options_of(), 2, 1, 4), begin = run_alone(options_of(), 1, 1, 0);
    for (int a = 0; a < ALL; a++) {
        char    *folder = test_tree_make();
        uint64_t saved = 0;
        for (int k = 0; k < 4; k++) { /* its beginning; what it saves; the same read by the next one, which goes on */
            job j = job_of(all[(a + (k > 1)) % ALL]);
            j.o.accumulation = 2 / j.shard;
            j.begin = k > 1 ? 2 : 0, j.steps = k == 0 ? 0 : k < 3 ? 2 : 4;
            j.load = k > 1 ? folder : NULL, j.save = k == 1 ? folder : NULL;
            run_job(&j);
            if (k == 0 && j.weights[0] != begin.weights[0]) fail_msg("layout %d begins with other weights", a);
            if (k == 1) saved = j.weights[0];
            if (k == 2 && j.weights[0] != saved) fail_msg("layout %d of %d: other weights", (a + 1) % ALL, a);
            for (int t = j.begin; t < j.steps; t++)
                if (!(fabs(j.loss[t] - whole.loss[t]) <= 1e-5 * whole.loss[t]))
                    fail_msg("layout %d goes on from %d: step %d: loss %.9g, wanted %.9g", (a + 1) % ALL, a, t + 1,
                             j.loss[t], whole.loss[t]);
        }
        test_tree_remove(folder);
    }
}

/* Every element of a file's tensors is read by one rank of two, or, of what is whole everywhere, by both. */
static void files_are_read_in_parts(void **state)
{
    (void)state;
    tm_step_options   o = options_of();
    int64_t           whole = tm_model_parameters(&o.shape), cut = 0, all = 0;
    tm_device        *device = test_device_open("cpu", 1);
    tm_chooser        chooser = tm_device_chooser(device);
    const tm_hf_form *form = tm_hf_form_named("FluxTransformer2DModel");
    assert_non_null(form);
    for (int r = 0; r < 2; r++) {
        tm_error      err = { 0 };
        tm_hf_layout *part;
        o.layout.mesh = tm_mesh_one();
        o.layout.mesh.degree[TM_AXIS_TP] = 2;
        o.layout.rank = r;
        tm_step *step = test_step_plan(&o, &chooser);
        assert_int_equal(tm_hf_part_layout_create(step->graph, &o.shape, form, &part, &err), TM_OK);
        for (size_t e = 0; e < part->n; e++)
            for (size_t k = 0; k < part->entries[e].n_slices; k++) {
                const tm_hf_slice *s = &part->entries[e].slices[k];
                bool               divided = tm_graph_at(step->graph, s->parameter)->cut != NULL;
                *(divided ? &cut : &all) += s->rows * s->columns;
            }
        tm_hf_layout_destroy(part);
        tm_step_destroy(step);
    }
    assert_true(cut + all / 2 == whole && cut > whole / 2);
    tm_device_close(device);
}

static void what_does_not_divide_is_refused(void **state)
{
    (void)state;
    tm_step_options o = options_of();
    tensor_refused(o, 3, TM_INVALID, "does not divide model.n_heads");
    o.shape.ffn_dim += 1;
    tensor_refused(o, 2, TM_INVALID, "does not divide model.ffn_dim");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(divided_images_follow_one_rank), cmocka_unit_test(gradients_are_those_of_one_rank),
    cmocka_unit_test(bits_are_the_same_every_time),   cmocka_unit_test(any_layout_goes_on),
    cmocka_unit_test(files_are_read_in_parts),        cmocka_unit_test(what_does_not_divide_is_refused),
};

TM_TESTS(tests, NULL, NULL)
