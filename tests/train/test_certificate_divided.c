/* SPDX-License-Identifier: Apache-2.0 */
/* The certificate of several ranks, also of those that divide the model: in float64 its numbers are those of one rank;
 * a defect on one rank fails it on all, with the name of the group; attention is dead on all or none. */
#include "support/test.h"
#include "ranks_fixture.h"
#include "train/certify/certificate.h"
#include "train/certify/dead_attention.h"
#include "train/certify/perturb.h"

enum { LLAMA, GPT, MIXTURE, LATENT };

/* 0: 1 rank, 1 micro-batch, 1 chunk; stages 0: no pipeline */
typedef struct {
    int               model, replicate, shard, context, tensor, stages, experts, micro_batches, chunks;
    tm_pipeline_order order;
    tm_sharing        sharing;
    bool              whole_rows, pieces; /* stages divide the output layer */
} layout;

#define ZBV TM_PIPELINE_ZBV
#define TURNS TM_PIPELINE_INTERLEAVED
#define ALL TM_SHARE_ALL
static const layout layouts[] = {
    { GPT, .tensor = 2, .micro_batches = 2, .whole_rows = true },
    { GPT, .replicate = 2, .tensor = 2, .micro_batches = 2 },
    { LLAMA, .shard = 2, .tensor = 2, .micro_batches = 2, .sharing = TM_SHARE_OPTIMIZER },
    { MIXTURE, .tensor = 2 },
    { LLAMA, .shard = 2, .stages = 2, .chunks = 2, .order = ZBV, .micro_batches = 4, .sharing = ALL },
    { GPT, .replicate = 2, .tensor = 2, .stages = 2, .micro_batches = 2 },
    { LATENT, .replicate = 2, .shard = 2, .experts = 2, .micro_batches = 2, .sharing = ALL },
    { MIXTURE, .shard = 2, .tensor = 2, .experts = 2, .sharing = ALL },
    { MIXTURE, .shard = 2, .stages = 2, .experts = 2, .micro_batches = 2, .sharing = ALL },
    { LLAMA, .context = 2, .tensor = 2, .sharing = ALL },
    { LLAMA, .stages = 2, .chunks = 2, .order = TURNS, .micro_batches = 4, .sharing = ALL, .pieces = true },
    { GPT, .shard = 3, .micro_batches = 2, .sharing = TM_SHARE_GRADIENTS },
    { MIXTURE, .replicate = 2, .shard = 2, .sharing = ALL },
    { GPT, .replicate = 2, .context = 2, .sharing = ALL },
    { GPT, .shard = 2, .stages = 2, .chunks = 2, .order = ZBV, .micro_batches = 4, .sharing = ALL, .pieces = true },
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

static int least_one(int n)
{
    return n > 0 ? n : 1;
}

static tm_step_options options_of(const layout *l)
{
    tm_step_options o =
        l->model < MIXTURE ? model_options(l->model) : mixture_options(l->model == LATENT ? DEEPSEEK : MIXTRAL);
    o.shape.n_heads = o.shape.n_kv_heads = l->tensor > 2 ? l->tensor : 2;
    if (l->stages > 0) o.shape.n_layers = 4;
    o.accumulation = least_one(l->micro_batches);
    o.layout.order = l->stages > 0 && l->chunks == 0 ? TM_PIPELINE_1F1B : l->order;
    o.layout.chunks = least_one(l->chunks);
    o.layout.sharing = l->sharing;
    o.layout.reshard = true;
    o.layout.whole_rows = l->whole_rows;
    o.layout.expert_capacity = 2;
    o.layout.divide_head = l->pieces;
    o.layout.head_blocks = 2;
    return o;
}

/* What one rank does to its gradients: those of the groups whose names begin with `group` become `factor` times what
 * they are; `divided`: only what ranks have parts of. */
typedef struct {
    int         rank;
    const char *group;
    bool        divided;
    double      factor;
} defect;

typedef struct {
    tm_certificate found[MOST_RANKS];
    const defect  *planted;
    const char    *lost;          /* the parameter of rank 1 without a gradient; NULL: none */
    char           touched[2000]; /* names of groups, each behind a '|' */
} certified;

static void plant(tm_trainer *trainer, const defect *d, certified *to)
{
    const tm_graph *graph = tm_trainer_step_of(trainer)->graph;
    for (size_t i = 0; i < graph->n_tensors; i++) {
        const tm_tensor *t = &graph->tensors[i];
        char             name[96];
        tm_motion_group_of(t->name, name);
        if (t->role != TM_ROLE_PARAMETER || t->gradient == TM_NONE || strncmp(name, d->group, strlen(d->group)) != 0)
            continue;
        if (d->divided && !t->cut) continue;
        CHECK(!tm_graph_elsewhere(tm_graph_at(graph, t->gradient))); /* nobody else takes part */
        double *values = test_values_read(trainer, t->gradient);
        for (int64_t k = 0; k < tm_shape_elements(t->shape); k++) values[k] *= d->factor;
        test_values_write(trainer, t->gradient, values);
        free(values);
        strcat(strcat(to->touched, "|"), name);
    }
    CHECK(to->touched[0]);
}

/* In a step of its own; every rank does it. */
static void certify(const job *j, tm_trainer *trainer)
{
    const tm_step_options *o = &tm_trainer_step_of(trainer)->options;
    const tm_graph        *graph = tm_trainer_step_of(trainer)->graph;
    certified             *to = j->taken;
    int                    rank = o->layout.mesh.degree[0] == 0 ? 0 : o->layout.rank;
    int64_t                first = tm_layout_data_rank(&o->layout) * o->accumulation, targets = 0;
    void                  *field[16][TM_MAX_FIELDS] = { { NULL } };
    tm_tensor             *lost = NULL;
    tm_tensor_id           gradient = TM_NONE;
    CHECK(o->accumulation <= 16);
    for (int64_t m = 0; m < o->accumulation; m++) targets += make_batch(o, 1, first + m, field[m]);
    tm_micro_batch joined = join_batches(o, field);
    joined.target_tokens = targets;
    for (size_t i = 0; to->lost && rank == 1 && i < graph->n_tensors; i++)
        if (strcmp(graph->tensors[i].name, to->lost) == 0) lost = &graph->tensors[i];
    if (lost) gradient = lost->gradient, lost->gradient = TM_NONE;
    if (to->planted) {
        int64_t micro_batches = tm_layout_data_ranks(&o->layout) * o->accumulation;
        CHECK_OK(tm_trainer_begin(trainer, 1, 0, 0, count_targets(o, 1, micro_batches), err));
        CHECK_OK(tm_trainer_gradients(trainer, &joined, NULL, err));
        if (rank == to->planted->rank) plant(trainer, to->planted, to);
        CHECK_OK(tm_certify(trainer, &joined, 11, &to->found[rank], err));
    } else {
        CHECK_OK(tm_certify_anew(trainer, &joined, 11, &to->found[rank], err));
    }
    if (lost) lost->gradient = gradient;
    for (int64_t m = 0; m < o->accumulation; m++) free_batch(o, field[m]);
    for (int f = 0; f < 2; f++) free((void *)joined.field[f]);
}

static job job_of(const layout *l, certified *to)
{
    return (job){ .o = options_of(l),
                  .replicate = least_one(l->replicate),
                  .shard = least_one(l->shard),
                  .context = l->context,
                  .tensor = l->tensor,
                  .stages = l->stages,
                  .experts = l->experts,
                  .steps = 1,
                  .rate = 2e-3,
                  .max_norm = 1,
                  .change = certify,
                  .taken = to };
}

/* The direction is that of the whole model, whoever has which part of it. */
TEST(numbers_are_those_of_one_rank)
{
    for (int i = 0; i < LAYOUTS; i++) {
        certified divided = { .planted = NULL }, alone = { .planted = NULL };
        job       j = job_of(&layouts[i], &divided), one;
        j.o.precision = &tm_precision_f64;
        j.device = "reference";
        one = j;
        one.replicate = one.shard = 1;
        one.context = one.tensor = one.experts = one.stages = 0;
        one.whole = j.replicate * j.shard;
        one.taken = &alone;
        run_job(&j);
        rank_body(NULL, &one);
        const tm_certificate *a = &divided.found[0], *b = &alone.found[0];
        double                far = fabs(a->expected - b->expected) + fabs(a->measured - b->measured);
        if (!a->done || !a->gradients || a->groups != b->groups || !(far <= 1e-6 * fabs(b->expected)))
            fail_msg("layout %d: %d groups, expected %.12g, measured %.12g; one rank: %d, %.12g, %.12g (%s)", i,
                     a->groups, a->expected, a->measured, b->groups, b->expected, b->measured, a->reason);
    }
}

/* Steps in bfloat16, whose losses are looked at in float32, are honest on all ranks. */
TEST(honest_steps_hold_in_bfloat16)
{
    for (int i = 0; i < LAYOUTS; i++) {
        certified to = { .planted = NULL };
        job       j = job_of(&layouts[i], &to);
        if (layouts[i].model >= MIXTURE || i % 2) continue; /* experts of tokens may change */
        j.o.precision = &tm_precision_bf16;
        j.o.exact = &tm_precision_f32;
        run_job(&j);
        for (int r = 0; r < ranks_of(&j); r++) {
            const tm_certificate *c = &to.found[r];
            if (!c->done || !c->gradients || !(fabs(c->measured - c->expected) <= c->band) || c->reason[0])
                fail_msg("layout %d, rank %d: %g beside %g: %s", i, r, c->measured, c->expected, c->reason);
            assert_true(c->causal == c->looked_ahead && (c->looked_ahead || layouts[i].context > 1));
        }
    }
}

static const struct {
    layout l;
    defect d;
} defects[] = {
    /* a divided weight of one rank counts twice, or the other way round */
    { { LLAMA, .tensor = 2 }, { 1, "layers.0 attention", true, 2 } },
    { { LLAMA, .tensor = 4, .whole_rows = true }, { 3, "layers.1 feed_forward", true, -1 } },
    { { GPT, .tensor = 2, .micro_batches = 2 }, { 1, "wte", true, 2 } },
    { { LLAMA, .tensor = 2 }, { 0, "layers.0 norms", false, -1 } },
    /* of a stage: one group, and all that it has */
    { { LLAMA, .stages = 2, .micro_batches = 2, .sharing = ALL }, { 1, "layers.2 attention", false, 2 } },
    { { LLAMA, .stages = 4, .micro_batches = 4, .sharing = ALL }, { 2, "", false, 0.5 } },
    { { GPT, .stages = 2, .micro_batches = 2, .sharing = ALL }, { 1, "wte", false, 0 } },
    { { GPT, .stages = 2, .chunks = 2, .order = TURNS, .micro_batches = 4, .sharing = ALL },
      { 0, "h.2 mlp", false, -1 } },
    { { LLAMA, .stages = 2, .micro_batches = 2, .sharing = ALL, .pieces = true }, { 1, "output", true, 2 } },
    /* experts of one rank */
    { { MIXTURE, .shard = 2, .experts = 2, .sharing = ALL }, { 1, "layers.0 moe.experts", true, 2 } },
    { { MIXTURE, .shard = 4, .experts = 4, .sharing = ALL }, { 2, "layers.1 moe.experts", true, -1 } },
};

TEST(a_defect_on_one_rank_is_named)
{
    for (size_t i = 0; i < sizeof defects / sizeof defects[0]; i++) {
        certified to = { .planted = &defects[i].d };
        char      named[96] = "";
        job       j = job_of(&defects[i].l, &to);
        run_world(ranks_of(&j), NULL, 120, false, rank_body, &j); /* their weights may go apart now */
        for (int r = 0; r < ranks_of(&j); r++) {
            const tm_certificate *c = &to.found[r];
            if (!c->done || c->gradients) fail_msg("defect %zu: rank %d sees nothing", i, r);
            if (sscanf(c->reason, "the gradient of %95[^:]", named) != 1) fail_msg("defect %zu: %s", i, c->reason);
            char *end = strstr(named, " is not that of the loss"), *others = strstr(named, " and others");
            if (end) *end = '\0';
            if (others && others[0]) *others = '\0';
            if (!strstr(to.touched, named)) fail_msg("defect %zu: %s", i, c->reason);
            if (defects[i].d.group[0]) assert_string_equal(named, defects[i].d.group);
            assert_string_equal(c->reason, to.found[0].reason);
        }
    }
}

/* All stages hear of a weight that no gradient is computed for, but for its name. */
TEST(a_weight_of_a_stage_without_a_gradient_fails_all)
{
    certified to = { .lost = "layers.2.ffn_norm.weight" };
    job       j = job_of(&defects[4].l, &to);
    j.steps = 0;
    run_world(2, NULL, 120, false, rank_body, &j);
    for (int r = 0; r < 2; r++) assert_true(to.found[r].done && !to.found[r].gradients && to.found[r].causal);
    assert_string_equal(to.found[0].reason, "a weight of another stage is trained, but nothing computes its gradient");
    assert_string_equal(to.found[1].reason, "layers.2.ffn_norm.weight is trained, but nothing computes its gradient");
}

/* --- dead attention ----------------------------------------------------------------------------------------------- */

/* Of a layer: elements of wq, wk, wv and of wv's gradient; gradients of wq and wk on each rank, in units of what
 * rounding makes there, by the sizes of the values and of the other of the two. */
typedef struct {
    double wq, wk, wv, v, q, k, other_q, other_k; /* other: on rank 1 */
} attention;

typedef struct {
    layout      l;
    bool        normal; /* queries and keys have their own norms */
    attention   of[4];
    const char *wanted; /* layers */
} dying;

typedef struct {
    const dying *row;
    char         found[2][40];
} died;

static void find_dead(const job *j, tm_trainer *trainer)
{
    const tm_step *step = tm_trainer_step_of(trainer);
    died          *to = j->taken;
    const int      rank = ranks_of(j) > 1 ? step->options.layout.rank : 0;
    tm_comm       *world = ranks_of(j) > 1 ? tm_device_group(tm_trainer_device(trainer), TM_AXES_WORLD) : NULL;
    tm_text        layers = { 0 };
    for (size_t i = 0; i < step->graph->n_tensors; i++) {
        const tm_tensor *t = &step->graph->tensors[i];
        if (t->role != TM_ROLE_PARAMETER || !strstr(t->name, "attention.wqkv")) continue;
        const attention *a = &to->row->of[t->layer];
        double          *w = test_values_read(trainer, (tm_tensor_id)i), *g = test_values_read(trainer, t->gradient);
        int64_t          columns = t->shape.n[1];
        double           row = sqrt((double)columns), norm_v = a->v * sqrt((double)(t->pieces[2].rows * columns));
        double           unit = 2 * pow((double)step->options.shape.head_dim, 1.5) * 0x1p-24 * a->wv * row * norm_v;
        double           of_wq = unit * (rank ? a->other_q : a->q) * (to->row->normal ? 1 : a->wk * row);
        double           of_wk = unit * (rank ? a->other_k : a->k) * (to->row->normal ? 1 : a->wq * row);
        double           weights[] = { a->wq, a->wk, a->wv }, norms[] = { of_wq, of_wk, norm_v };
        CHECK(t->n_pieces == 3);
        for (int p = 0; p < 3; p++)
            for (int64_t e = 0, n = t->pieces[p].rows * columns; e < n; e++) {
                w[t->pieces[p].row * columns + e] = weights[p];
                g[t->pieces[p].row * columns + e] = norms[p] / sqrt((double)n);
            }
        test_values_write(trainer, (tm_tensor_id)i, w);
        test_values_write(trainer, t->gradient, g);
        free(w), free(g);
    }
    CHECK_OK(dead_attention_find(trainer, &j->o.shape, world, &layers, err));
    snprintf(to->found[rank], sizeof to->found[rank], "%s", layers.data ? layers.data : "");
    tm_text_fini(&layers);
}

/* Of wq and wk both, and never more than 1/256 of wv's. Ranks that divide a matrix add up what they have of it; each
 * stage has layers of its own. All say the same. */
TEST(attention_is_dead_up_to_what_rounding_makes)
{
    const attention below = { 0.1, 0.3, 0.2, 3, 0.98, 0.98, 0, 0 };
    const attention q = { 0.1, 0.3, 0.2, 3, 1.02, 0.98, 0, 0 }, k = { 0.1, 0.3, 0.2, 3, 0.98, 1.02, 0, 0 };
    const attention none = { 0.1, 0.3, 0.2, 3, 0, 0, 0, 0 }, all = { 0.1, 0.3, 0.2, 0, 0, 0, 0, 0 };
    const dying     rows[] = {
            { { LLAMA }, false, { below, q, k, below }, "0, 3" },
            { { LLAMA }, true, { below, q, k, below }, "0, 3" },
            { { LLAMA }, false, { q, none, all, k }, "1" },
            { { LLAMA }, /* rounding of such weights would reach further: 0.01 of it is the 256th */
              false,
              { { 40, 40, 40, 1, 0.0098, 0.0098, 0, 0 },
                { 40, 40, 40, 1, 0.0103, 0.0098, 0, 0 },
                { 40, 40, 40, 1, 0.0098, 0.0103, 0, 0 },
                { 40, 40, 40, 1, 0.005, 0.0098, 0, 0 } },
              "0, 3" },
            { { LLAMA, .tensor = 2 },
              false,
              { { 0.1, 0.1, 0.1, 1, 1.2, 1.2, 0.2, 0.2 },
                { 0.1, 0.1, 0.1, 1, 0.9, 0.9, 1.3, 1.3 },
                { 0.1, 0.1, 0.1, 1, 0.9, 0.9, 0.9, 0.9 },
                { 0.1, 0.1, 0.1, 1, 0.2, 0.2, 1.45, 1.45 } },
              "0, 2" },
            { { LLAMA, .stages = 2, .micro_batches = 2 },
              false,
              { { 0.1, 0.1, 0.1, 1, 0.9, 0.9, 0, 0 },
                { 0.1, 0.1, 0.1, 1, 1.1, 1.1, 0, 0 },
                { 0.1, 0.1, 0.1, 1, 0, 0, 1.1, 1.1 },
                { 0.1, 0.1, 0.1, 1, 0, 0, 0.9, 0.9 } },
              "0, 3" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        died to = { .row = &rows[i] };
        job  j = job_of(&rows[i].l, NULL);
        j.steps = 0, j.change = find_dead, j.taken = &to;
        j.o.shape.n_layers = 4;
        j.o.shape.qk_norm = rows[i].normal;
        if (ranks_of(&j) > 1)
            run_world(ranks_of(&j), NULL, 120, false, rank_body, &j);
        else
            rank_body(NULL, &j);
        for (int r = 0; r < ranks_of(&j); r++)
            if (strcmp(to.found[r], rows[i].wanted) != 0) fail_msg("row %zu: '%s'", i, to.found[r]);
    }
}
