/* SPDX-License-Identifier: Apache-2.0 */
/* The certificate of several ranks, also of those that divide the model: in float64 its numbers are those of one rank;
 * a defect on one rank fails it, on all ranks, with the name of the group. (Honest runs: test_rank_events.c.) */
#include "support/test.h"
#include "ranks_fixture.h"
#include "train/certify/certificate.h"
#include "train/certify/perturb.h"

enum { LLAMA, GPT, MIXTURE, LATENT };
static const char *const models[] = { "llama", "gpt", "mixtral", "deepseek" };

typedef struct {
    int               model, replicate, shard, context, tensor, stages, experts, chunks;
    tm_pipeline_order order;
    int               micro_batches;
    bool              whole_rows;
    tm_sharing        sharing;
    bool              pieces; /* stages divide the output layer */
} layout;

#define V TM_PIPELINE_ZBV
#define TURNS TM_PIPELINE_INTERLEAVED
#define PLAIN TM_PIPELINE_1F1B
static const layout layouts[] = {
    { LLAMA, 1, 1, 1, 2, 0, 1, 1, PLAIN, 1, false, TM_SHARE_COPIES, false },
    { GPT, 1, 1, 1, 2, 0, 1, 1, PLAIN, 2, true, TM_SHARE_COPIES, false },
    { LLAMA, 1, 2, 1, 2, 0, 1, 1, PLAIN, 1, false, TM_SHARE_ALL, false },
    { GPT, 2, 1, 1, 2, 0, 1, 1, PLAIN, 2, false, TM_SHARE_COPIES, false },
    { LLAMA, 1, 2, 1, 2, 0, 1, 1, PLAIN, 2, false, TM_SHARE_OPTIMIZER, false },
    { MIXTURE, 1, 1, 1, 2, 0, 1, 1, PLAIN, 1, false, TM_SHARE_COPIES, false },
    { LLAMA, 1, 1, 1, 1, 2, 1, 1, PLAIN, 2, false, TM_SHARE_ALL, false },
    { GPT, 1, 1, 1, 1, 2, 1, 2, TURNS, 4, false, TM_SHARE_ALL, false },
    { LLAMA, 1, 2, 1, 1, 2, 1, 2, V, 4, false, TM_SHARE_ALL, false },
    { GPT, 2, 1, 1, 2, 2, 1, 1, PLAIN, 2, false, TM_SHARE_COPIES, false },
    { MIXTURE, 1, 1, 1, 1, 2, 1, 1, PLAIN, 2, false, TM_SHARE_COPIES, false },
    { MIXTURE, 1, 2, 1, 1, 0, 2, 1, PLAIN, 1, false, TM_SHARE_ALL, false },
    { LATENT, 2, 2, 1, 1, 0, 2, 1, PLAIN, 2, false, TM_SHARE_ALL, false },
    { MIXTURE, 1, 2, 1, 2, 0, 2, 1, PLAIN, 1, false, TM_SHARE_ALL, false },
    { MIXTURE, 1, 2, 1, 1, 2, 2, 1, PLAIN, 2, false, TM_SHARE_ALL, false },
    { LLAMA, 1, 1, 2, 2, 0, 1, 1, PLAIN, 1, false, TM_SHARE_ALL, false },
    { LLAMA, 1, 1, 1, 1, 2, 1, 2, TURNS, 4, false, TM_SHARE_ALL, true },
    { GPT, 1, 1, 1, 1, 2, 1, 1, PLAIN, 4, false, TM_SHARE_ALL, true },
    { LLAMA, 2, 1, 1, 1, 0, 1, 1, PLAIN, 1, false, TM_SHARE_COPIES, false },
    { GPT, 1, 3, 1, 1, 0, 1, 1, PLAIN, 2, false, TM_SHARE_GRADIENTS, false },
    { MIXTURE, 2, 2, 1, 1, 0, 1, 1, PLAIN, 1, false, TM_SHARE_ALL, false },
    { GPT, 2, 1, 2, 1, 0, 1, 1, PLAIN, 1, false, TM_SHARE_ALL, false },
    { GPT, 1, 2, 1, 1, 2, 1, 2, V, 4, false, TM_SHARE_ALL, true },
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

static tm_step_options options_of(const layout *l)
{
    tm_step_options o =
        l->model < MIXTURE ? model_options(l->model) : mixture_options(l->model == LATENT ? DEEPSEEK : MIXTRAL);
    o.shape.n_heads = o.shape.n_kv_heads = 2;
    if (l->stages > 0) o.shape.n_layers = 4;
    o.accumulation = l->micro_batches;
    o.layout.order = l->order;
    o.layout.chunks = l->chunks;
    o.layout.sharing = l->sharing;
    o.layout.reshard = true;
    o.layout.whole_rows = l->whole_rows;
    o.layout.expert_capacity = 2;
    o.layout.divide_head = l->pieces;
    o.layout.head_blocks = 2;
    return o;
}

static void describe(char out[160], const layout *l)
{
    snprintf(out, 160, "%s, %d x %d, cp %d, tp %d, pp %d (%d each), ep %d, %d micro-batches", models[l->model],
             l->replicate, l->shard, l->context, l->tensor, l->stages, l->chunks, l->experts, l->micro_batches);
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
    unsigned       ahead;         /* bits of ranks whose attention sees later tokens */
    unsigned       blind;         /* and of those whose attention sees its own alone */
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

/* Its attention sees later tokens from now on, or no other. */
static void look(tm_trainer *trainer, bool ahead)
{
    const tm_plan *plan = tm_trainer_step_of(trainer)->plan;
    for (size_t p = 0; p < plan->n_programs; p++)
        for (size_t k = 0; k < plan->programs[p].count; k++) {
            const tm_node     *node = plan->programs[p].instructions[k].node;
            tm_attention_attr *attr = (tm_attention_attr *)(uintptr_t)node->attr;
            if (node->op != TM_OP_attention && node->op != TM_OP_attention_grad) continue;
            if (ahead)
                attr->causal = 0;
            else
                attr->window = 1;
        }
}

/* A parameter of rank 1 that nothing computes a gradient for; NULL: it is another rank, or none is to be lost. */
static tm_tensor *find_lost(const tm_trainer *trainer, const char *name, int rank)
{
    const tm_graph *graph = tm_trainer_step_of(trainer)->graph;
    size_t          i = 0;
    if (!name || rank != 1) return NULL;
    while (strcmp(graph->tensors[i].name, name) != 0) i++;
    return &graph->tensors[i];
}

/* In a step of its own; every rank does it. */
static void certify(const job *j, tm_trainer *trainer)
{
    const tm_step_options *o = &tm_trainer_step_of(trainer)->options;
    certified             *to = j->taken;
    int                    rank = o->layout.mesh.degree[0] == 0 ? 0 : o->layout.rank;
    int64_t                first = tm_layout_data_rank(&o->layout) * o->accumulation, targets = 0;
    void                  *field[16][TM_MAX_FIELDS] = { { NULL } };
    CHECK(o->accumulation <= 16);
    for (int64_t m = 0; m < o->accumulation; m++) targets += make_batch(o, 1, first + m, field[m]);
    tm_micro_batch joined = join_batches(o, field);
    joined.target_tokens = targets;
    if (to->ahead >> rank & 1) look(trainer, true);
    if (to->blind >> rank & 1) look(trainer, false);
    tm_tensor         *lost = find_lost(trainer, to->lost, rank);
    const tm_tensor_id gradient = lost ? lost->gradient : TM_NONE;
    if (lost) lost->gradient = TM_NONE;
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
    job j = { .o = options_of(l), .replicate = l->replicate, .shard = l->shard, .steps = 2, .rate = 2e-3 };
    j.context = l->context;
    j.tensor = l->tensor;
    j.stages = l->stages;
    j.experts = l->experts;
    j.max_norm = 1;
    j.taken = to;
    if (to) j.change = certify;
    return j;
}

/* The direction is that of the whole model, whoever has which part of it. */
TEST(numbers_are_those_of_one_rank)
{
    for (int i = 0; i < LAYOUTS; i++) {
        const layout *l = &layouts[i];
        char          what[160];
        certified     divided = { .planted = NULL }, alone = { .planted = NULL };
        job           j = job_of(l, &divided), one = { .steps = 1 };
        describe(what, l);
        j.o.precision = &tm_precision_f64;
        j.device = "reference";
        j.steps = 1;
        one = j;
        one.replicate = one.shard = one.context = one.tensor = one.experts = 1;
        one.stages = 0;
        one.whole = l->replicate * l->shard;
        one.taken = &alone;
        run_job(&j);
        rank_body(NULL, &one);
        const tm_certificate *a = &divided.found[0], *b = &alone.found[0];
        double                far = fabs(a->expected - b->expected) + fabs(a->measured - b->measured);
        print_message("# %s: %d groups, expected %.9g, %.3g from one rank's\n", what, a->groups, a->expected, far);
        if (!a->done || !a->gradients || a->groups != b->groups || !(far <= 1e-6 * fabs(b->expected)))
            fail_msg("%s: %d groups, expected %.12g, measured %.12g; one rank: %d, %.12g, %.12g (%s)", what, a->groups,
                     a->expected, a->measured, b->groups, b->expected, b->measured, a->reason);
    }
}

static const struct {
    layout l;
    defect d;
} defects[] = {
    /* a divided weight of one rank counts twice, or the other way round */
    { { LLAMA, 1, 1, 1, 2, 0, 1, 1, PLAIN, 1, false, TM_SHARE_COPIES, false }, { 1, "layers.0 attention", true, 2 } },
    { { LLAMA, 1, 1, 1, 4, 0, 1, 1, PLAIN, 1, true, TM_SHARE_COPIES, false },
      { 3, "layers.1 feed_forward", true, -1 } },
    { { GPT, 1, 1, 1, 2, 0, 1, 1, PLAIN, 2, false, TM_SHARE_COPIES, false }, { 1, "wte", true, 2 } },
    { { LLAMA, 1, 1, 1, 2, 0, 1, 1, PLAIN, 1, false, TM_SHARE_COPIES, false }, { 0, "layers.1 norms", false, -1 } },
    /* of a stage: one group, and all that it has */
    { { LLAMA, 1, 1, 1, 1, 2, 1, 1, PLAIN, 2, false, TM_SHARE_ALL, false }, { 1, "layers.2 attention", false, 2 } },
    { { LLAMA, 1, 1, 1, 1, 2, 1, 1, PLAIN, 2, false, TM_SHARE_ALL, false }, { 1, "", false, 2 } },
    { { LLAMA, 1, 1, 1, 1, 4, 1, 1, PLAIN, 4, false, TM_SHARE_ALL, false }, { 2, "", false, 0.5 } },
    { { GPT, 1, 1, 1, 1, 2, 1, 1, PLAIN, 2, false, TM_SHARE_ALL, false }, { 1, "wte", false, 0 } },
    { { GPT, 1, 1, 1, 1, 2, 1, 2, TURNS, 4, false, TM_SHARE_ALL, false }, { 0, "h.2 mlp", false, -1 } },
    { { LLAMA, 1, 1, 1, 1, 2, 1, 1, PLAIN, 2, false, TM_SHARE_ALL, true }, { 1, "output", true, 2 } },
    /* experts of one rank */
    { { MIXTURE, 1, 2, 1, 1, 0, 2, 1, PLAIN, 1, false, TM_SHARE_ALL, false }, { 1, "layers.0 moe.experts", true, 2 } },
    { { MIXTURE, 1, 4, 1, 1, 0, 4, 1, PLAIN, 1, false, TM_SHARE_ALL, false }, { 2, "layers.1 moe.experts", true, -1 } },
};
#undef V
#undef TURNS
#undef PLAIN

TEST(a_defect_on_one_rank_is_named)
{
    for (size_t i = 0; i < sizeof defects / sizeof defects[0]; i++) {
        certified to = { .planted = &defects[i].d };
        char      what[160], named[96] = "";
        job       j = job_of(&defects[i].l, &to);
        if (defects[i].l.tensor == 4) j.o.shape.n_heads = j.o.shape.n_kv_heads = 4;
        run_world(ranks_of(&j), NULL, 120, false, rank_body, &j); /* their weights may go apart now */
        describe(what, &defects[i].l);
        for (int r = 0; r < ranks_of(&j); r++) {
            const tm_certificate *c = &to.found[r];
            if (!c->done || c->gradients) fail_msg("%s, '%s': rank %d sees nothing", what, defects[i].d.group, r);
            if (sscanf(c->reason, "the gradient of %95[^:]", named) != 1) fail_msg("%s: %s", what, c->reason);
            char *end = strstr(named, " is not that of the loss"), *others = strstr(named, " and others");
            if (end) *end = '\0';
            if (others && others[0]) *others = '\0';
            if (!strstr(to.touched, named)) fail_msg("%s, '%s': %s", what, defects[i].d.group, c->reason);
            if (defects[i].d.group[0]) assert_string_equal(named, defects[i].d.group);
            assert_string_equal(c->reason, to.found[0].reason);
        }
        print_message("# %s: %s\n", what, to.found[0].reason);
    }
}

/* All stages hear of a weight that no gradient is computed for, but for its name. */
TEST(a_weight_of_a_stage_without_a_gradient_fails_all)
{
    certified to = { .lost = "layers.2.ffn_norm.weight" };
    job       j = job_of(&layouts[6], &to);
    j.steps = 0;
    run_world(2, NULL, 120, false, rank_body, &j);
    for (int r = 0; r < 2; r++) assert_true(to.found[r].done && !to.found[r].gradients && to.found[r].causal);
    assert_string_equal(to.found[0].reason, "a weight of another stage is trained, but nothing computes its gradient");
    assert_string_equal(to.found[1].reason, "layers.2.ffn_norm.weight is trained, but nothing computes its gradient");
}
