/* SPDX-License-Identifier: Apache-2.0 */
/* The microscope of several ranks: what it tells is what one rank sees of the same micro-batches, one after the other,
 * also of tensors that ranks have in parts; training keeps its bits. */
#include "support/test.h"
#include "step_cases.h"
#include "ranks_fixture.h"
#include "train/trainer/microscope.h"

typedef struct {
    double *record;
    size_t  n;
    double  losses[2];
    int64_t elements; /* of the first tensor */
    int64_t alone;    /* micro-batches that one rank looks at; 0: the rank's first one */
    char   *names;
} seen;

/* Returns its targets. */
static int64_t look_at(tm_trainer *trainer, const tm_step_options *o, int64_t number, int64_t targets, tm_looked *out)
{
    void          *field[TM_MAX_FIELDS];
    tm_micro_batch micro = { 0 };
    micro.target_tokens = make_batch(o, 1, number, field);
    for (int f = 0; f < (o->n_fields > 2 ? o->n_fields : 2); f++) micro.field[f] = field[f];
    CHECK_OK(tm_trainer_begin(trainer, 1, 0, 0, targets, err));
    CHECK_OK(tm_looked_take(out, trainer, &micro, 1, 0.1, err));
    free_batch(o, field);
    return micro.target_tokens;
}

/* All add up what they see; one rank's looks are added up here. */
static void look(const job *j, tm_trainer *trainer)
{
    const tm_step_options *o = &tm_trainer_step_of(trainer)->options;
    seen                  *to = j->taken;
    int                    rank = o->layout.mesh.degree[0] == 0 ? 0 : o->layout.rank;
    int64_t                ranks = to->alone ? to->alone : tm_layout_data_ranks(&o->layout);
    int64_t                each = to->alone ? o->accumulation / to->alone : o->accumulation;
    int64_t                targets = count_targets(o, 1, ranks * each), all_seen = 0;
    tm_looked              looked = { 0 };
    for (int64_t m = 0; m < (to->alone ? to->alone : 1); m++) {
        int64_t here = look_at(trainer, o, (to->alone ? m : tm_layout_data_rank(&o->layout)) * each, targets, &looked);
        if (rank > 0) continue;
        size_t n = looked.look.n_tensors, all = n * TM_COMPARED;
        if (!to->record) to->record = calloc(all, sizeof *to->record), to->names = calloc(n, 120);
        for (size_t i = 0; i < n; i++) {
            snprintf(to->names + i * 120, 120, "%s %s", looked.look.tensors[i].kind, looked.look.tensors[i].name);
            for (size_t k = 0; k < TM_COMPARED; k++) {
                double *sum = &to->record[i * TM_COMPARED + k], own = looked.record[i * TM_COMPARED + k];
                *sum = k == TM_COMPARED_MOST || k == TM_COMPARED_OWN_MOST ? fmax(*sum, own) : *sum + own;
            }
        }
        to->n = n;
        to->losses[0] += looked.look.loss * (double)here;
        to->losses[1] += looked.look.reference_loss * (double)here;
        all_seen += here;
        to->elements += looked.look.tensors[0].elements;
    }
    for (int k = 0; k < 2; k++) to->losses[k] /= all_seen > 0 ? (double)all_seen : 1; /* means over the targets */
    tm_looked_fini(&looked);
}

static void forget(seen *s)
{
    free(s->record);
    free(s->names);
    *s = (seen){ 0 };
}

static bool close_to(double a, double b, double slack)
{
    return fabs(a - b) <= slack * fabs(b);
}

/* Of a table that is looked up and multiplied with, too, shares have one gradient and others two; two stages have one
 * each. */
static bool of_table(const char *name)
{
    return strncmp(name, "gradient wte", 12) == 0;
}

static const char *name_of(const seen *s, size_t i)
{
    return i < s->n ? s->names + i * 120 : "none";
}

/* Rows of the same names, one by one. Returns how many. */
static size_t check_same(const char *what, const seen *got, const seen *wanted, bool stages, double slack)
{
    size_t rows = 0;
    bool   other = stages || got->n != wanted->n;
    for (size_t i = 0, k = 0; i < got->n || k < wanted->n; i++, k++, rows++) {
        while (other && i < got->n && of_table(name_of(got, i))) i++;
        while (other && k < wanted->n && of_table(name_of(wanted, k))) k++;
        bool received =
            stages && strncmp(name_of(got, i), "factor received", 15) == 0; /* not called as where it was made */
        if (!received && strcmp(name_of(got, i), name_of(wanted, k)) != 0)
            fail_msg("%s: tensor %d is %s, wanted %s", what, (int)i, name_of(got, i), name_of(wanted, k));
        const double *a = got->record + i * TM_COMPARED, *b = wanted->record + k * TM_COMPARED;
        for (int c = 0; c < TM_COMPARED && i < got->n; c++)
            if (!close_to(a[c], b[c], slack))
                fail_msg("%s: %s: column %d is %.12g, wanted %.12g", what, name_of(got, i), c, a[c], b[c]);
    }
    assert_int_equal(got->elements, wanted->elements);
    for (int k = 0; k < 2; k++)
        if (!close_to(got->losses[k], wanted->losses[k], 1e-6))
            fail_msg("%s: loss %.9g, wanted %.9g", what, got->losses[k], wanted->losses[k]);
    return rows;
}

enum { QUANTIZED = 3 };

static job job_of(int model, int replicate, int shard, tm_sharing sharing, bool compared, seen *to)
{
    job j = ranks_job(model_options(model == QUANTIZED ? 0 : model), replicate, shard, sharing, 3);
    j.o.precision = &tm_precision_bf16;
    if (model == QUANTIZED) {
        j.o.seq = 32;
        j.o.quantize = quantize_with("fp8_rowwise");
    }
    j.o.accumulation = 2;
    j.o.layout.reshard = true;
    j.o.layout.prefetch = 1;
    if (compared) j.o.compared = &tm_precision_f32;
    j.taken = to;
    if (to) j.change = look;
    return j;
}

static const struct {
    int        replicate, shard;
    tm_sharing sharing;
} layouts[] = { { 2, 1, TM_SHARE_COPIES },
                { 1, 2, TM_SHARE_OPTIMIZER },
                { 1, 2, TM_SHARE_GRADIENTS },
                { 1, 4, TM_SHARE_ALL },
                { 2, 2, TM_SHARE_ALL } };

/* Llama, GPT, a mixture of experts, products in low precision. */
TEST(ranks_see_what_one_sees)
{
    for (int model = 0; model <= QUANTIZED; model++)
        for (size_t l = 0; l < sizeof layouts / sizeof layouts[0]; l++) {
            char what[80];
            seen together = { 0 }, alone = { 0 };
            int  ranks = layouts[l].replicate * layouts[l].shard;
            job  j = job_of(model, layouts[l].replicate, layouts[l].shard, layouts[l].sharing, true, &together);
            job  one = job_of(model, 1, 1, TM_SHARE_COPIES, true, &alone);
            snprintf(what, sizeof what, "model %d, %d x %d, sharing %d", model, layouts[l].replicate, layouts[l].shard,
                     (int)layouts[l].sharing);
            one.whole = alone.alone = ranks;
            one.steps = 1;
            run_job(&j);
            rank_body(NULL, &one);
            assert_true(check_same(what, &together, &alone, false, 1e-9) > 40);
            job plain = job_of(model, layouts[l].replicate, layouts[l].shard, layouts[l].sharing, false, NULL);
            run_job(&plain);
            if (j.loss[2] != plain.loss[2] || j.weights[0] != plain.weights[0]) fail_msg("%s: other bits", what);
            forget(&together);
            forget(&alone);
        }
}

/* --- ranks that have parts of tensors ----------------------------------------------------------------------------- */

enum { MOST_ROWS = 400 };
typedef struct {
    size_t n;
    struct {
        char    name[120];
        int64_t elements;
        double  size, error; /* of the other format: the sum of squares; relative */
    } row[MOST_ROWS];
} figures;

static void note_figures(const job *j, tm_trainer *trainer)
{
    const tm_step_options *o = &tm_trainer_step_of(trainer)->options;
    bool                   first = o->layout.mesh.degree[0] == 0 || o->layout.rank == 0;
    figures               *to = j->taken;
    tm_looked              looked = { 0 };
    look_at(trainer, o, 0, count_targets(o, 1, 1), &looked);
    for (size_t i = 0; first && i < looked.look.n_tensors; i++) {
        const tm_look_tensor *t = &looked.look.tensors[i];
        CHECK(to->n < MOST_ROWS);
        snprintf(to->row[to->n].name, sizeof to->row[to->n].name, "%s %s", t->kind, t->name);
        to->row[to->n].elements = t->elements;
        to->row[to->n].size = looked.record[i * TM_COMPARED + TM_COMPARED_REFERENCE];
        to->row[to->n++].error = t->error;
    }
    tm_looked_fini(&looked);
}

/* Terms of sums over the ranks, before they are added. */
static bool is_term(const char *name)
{
    return strstr(name, "embedding") || strstr(name, "attention.linear.2") || strstr(name, "feed_forward.linear.2");
}

/* What all ranks have of a tensor is that of one rank, or as many copies of it as have it whole: as large, and as far
 * from the other format. Those of one kind; returns how many. */
static int check_figures(const char *what, const figures *got, const figures *wanted, const char *kind)
{
    int same = 0;
    for (size_t i = 0; i < wanted->n; i++)
        for (size_t k = 0; k < got->n; k++) {
            if (strcmp(got->row[k].name, wanted->row[i].name) != 0) continue;
            if (strncmp(got->row[k].name, kind, strlen(kind)) != 0 || is_term(got->row[k].name)) continue;
            double copies = (double)got->row[k].elements / (double)wanted->row[i].elements;
            if (copies < 1) continue; /* of a chunk of the sequences */
            if (!close_to(got->row[k].size / copies, wanted->row[i].size, 1e-4))
                fail_msg("%s: %s: %.9g x %g, wanted %.9g", what, got->row[k].name, got->row[k].size / copies, copies,
                         wanted->row[i].size);
            if (!close_to(got->row[k].error, wanted->row[i].error, 0.25))
                fail_msg("%s: %s: error %.3g, wanted %.3g", what, got->row[k].name, got->row[k].error,
                         wanted->row[i].error);
            same++;
        }
    return same;
}

typedef struct {
    int  tensor, context, experts;
    bool whole_rows, quantized;
} parted;

static job parted_job(parted p, bool mixture, bool compared, figures *to)
{
    job j = job_of(mixture ? 2 : 0, 1, 1, TM_SHARE_ALL, compared, NULL);
    j.o.shape.n_heads = j.o.shape.n_kv_heads = 4;
    j.o.shape.dim = 64, j.o.seq = 32;
    j.tensor = p.tensor, j.context = p.context, j.experts = p.experts;
    j.o.layout.whole_rows = p.whole_rows;
    j.o.layout.expert_capacity = p.quantized ? 0 : 0.7; /* several rounds */
    if (p.quantized) {
        j.o.quantize = quantize_with("fp8_tensorwise");
        if (mixture) j.o.quantize.experts = j.o.quantize.recipe[0];
    }
    j.taken = to;
    if (to) j.change = note_figures;
    return j;
}

TEST(parts_of_tensors_are_seen_together)
{
    static const parted layouts_of_parts[] = { { 2, 1, 1, false, false }, { 4, 1, 1, true, false },
                                               { 1, 2, 1, false, false }, { 2, 2, 1, false, false },
                                               { 2, 1, 2, false, false }, { 2, 1, 1, true, true },
                                               { 2, 1, 2, false, true } };
    for (size_t l = 0; l < sizeof layouts_of_parts / sizeof layouts_of_parts[0]; l++) {
        const parted   p = layouts_of_parts[l], whole = { 1, 1, 1, false, p.quantized };
        static figures together, alone;
        char           what[80];
        memset(&together, 0, sizeof together), memset(&alone, 0, sizeof alone);
        job one = parted_job(whole, p.experts > 1, true, &alone);
        job j = parted_job(p, p.experts > 1, true, &together);
        snprintf(what, sizeof what, "tp %d, cp %d, ep %d", p.tensor, p.context, p.experts);
        one.steps = 1;
        rank_body(NULL, &one);
        run_job(&j);
        int forward = check_figures(what, &together, &alone, "forward");
        int gradients = p.context == 1 && p.whole_rows /* else parts of sums over tokens */
                            ? check_figures(what, &together, &alone, "gradient layers.0.attention.wqkv")
                            : 1;
        int factors = p.quantized ? check_figures(what, &together, &alone, "factor") : 1;
        print_message("# %s: %d tensors of the forward pass, %d gradients, %d factors\n", what, forward, gradients,
                      factors);
        assert_true(factors >= (p.quantized ? 10 : 1));
        assert_true(forward >= 12 && gradients > 0);
        for (size_t i = 0; i < together.n && p.experts > 1; i++) assert_null(strstr(together.row[i].name, "send_rows"));
        job plain = parted_job(p, p.experts > 1, false, NULL);
        run_job(&plain);
        if (j.loss[2] != plain.loss[2] || j.weights[0] != plain.weights[0]) fail_msg("%s: other bits", what);
    }
}

static const struct {
    int               stages, chunks, shard;
    tm_pipeline_order order;
} pipelines[] = { { 2, 1, 1, TM_PIPELINE_1F1B },        { 4, 1, 1, TM_PIPELINE_1F1B },
                  { 2, 2, 1, TM_PIPELINE_INTERLEAVED }, { 2, 2, 1, TM_PIPELINE_INTERLEAVED_ZERO },
                  { 2, 2, 1, TM_PIPELINE_ZBV },         { 2, 1, 2, TM_PIPELINE_1F1B } };

static job staged_job(int model, size_t p, bool compared, seen *to)
{
    job j = job_of(model, 1, pipelines[p].shard, TM_SHARE_OPTIMIZER, compared, to);
    j.o.shape.n_layers = 4;
    j.o.layout.order = pipelines[p].order;
    j.o.layout.chunks = pipelines[p].chunks;
    j.stages = pipelines[p].stages;
    return j;
}

/* Every rank has what all stages saw, in the order in which one rank would see it. */
FULL_TEST(stages_see_what_one_sees)
{
    for (int model = 0; model <= QUANTIZED; model++)
        for (size_t p = 0; p < sizeof pipelines / sizeof pipelines[0]; p++) {
            char what[80];
            seen together = { 0 }, alone = { 0 };
            job  j = staged_job(model, p, true, &together), one = staged_job(model, p, true, &alone);
            job  plain = staged_job(model, p, false, NULL);
            snprintf(what, sizeof what, "model %d, pipeline %d", model, (int)p);
            one.stages = 0, one.shard = 1;
            one.whole = alone.alone = pipelines[p].shard;
            one.steps = 1;
            run_job(&j);
            rank_body(NULL, &one);
            assert_true(check_same(what, &together, &alone, true, 1e-9) > 80);
            run_job(&plain);
            for (int t = 0; t < j.steps; t++)
                if (j.loss[t] != plain.loss[t] || j.weights[0] != plain.weights[0])
                    fail_msg("%s: other bits in step %d", what, t + 1);
            forget(&together);
            forget(&alone);
        }
}
