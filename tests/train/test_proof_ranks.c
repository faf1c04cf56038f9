/* SPDX-License-Identifier: Apache-2.0 */
/* What a part of a matrix has no gradient of is not taken for dead. Certificates of runs of ranks: test_rank_events.c.
 */
#include "support/test.h"
#include "ranks_fixture.h"
#include "train/certify/dead_attention.h"

typedef struct {
    double ratios[4][2]; /* of each layer on each rank: gradients of wq and wk in units of what rounding makes there */
    char   found[2][40];
} attention;

/* Weights of 0.1, gradients of wv of 1: what is found of all ranks' parts. */
static void find_dead(const job *j, tm_trainer *trainer)
{
    const tm_step *step = tm_trainer_step_of(trainer);
    attention     *a = j->taken;
    const int      rank = step->options.layout.rank;
    const double   head = (double)step->options.shape.head_dim;
    tm_comm       *world = tm_device_group(tm_trainer_device(trainer), TM_AXES_WORLD);
    tm_text        layers = { 0 };
    for (size_t i = 0; i < step->graph->n_tensors; i++) {
        const tm_tensor *t = &step->graph->tensors[i];
        if (t->role != TM_ROLE_PARAMETER || !strstr(t->name, "attention.wqkv")) continue;
        double *w = test_values_read(trainer, (tm_tensor_id)i), *g = test_values_read(trainer, t->gradient);
        int64_t columns = t->shape.n[1], of_v = t->pieces[2].rows * columns;
        double  rounding = 2 * head * 0x1p-24 * sqrt(head) * 0.1 * 0.1 * (double)columns * sqrt((double)of_v);
        CHECK(t->n_pieces == 3);
        for (int p = 0; p < 3; p++)
            for (int64_t k = 0, n = t->pieces[p].rows * columns; k < n; k++) {
                w[t->pieces[p].row * columns + k] = 0.1;
                g[t->pieces[p].row * columns + k] = p == 2 ? 1 : a->ratios[t->layer][rank] * rounding / sqrt((double)n);
            }
        test_values_write(trainer, (tm_tensor_id)i, w);
        test_values_write(trainer, t->gradient, g);
        free(w), free(g);
    }
    CHECK_OK(dead_attention_find(trainer, &j->o.shape, world, &layers, err));
    snprintf(a->found[rank], sizeof a->found[rank], "%s", layers.data ? layers.data : "");
    tm_text_fini(&layers);
}

/* Ranks that divide a matrix add up what they have of it; each stage has layers of its own. All say the same. */
TEST(attention_is_dead_on_all_ranks_or_none)
{
    attention matrices = { .ratios = { { 1.2, 0.2 }, { 0.9, 1.3 }, { 0.9, 0.9 }, { 0.2, 1.45 } } },
              stages = { .ratios = { { 0.9 }, { 1.1 }, { 1.1, 1.1 }, { 1.1, 0.9 } } };
    for (int pipeline = 0; pipeline < 2; pipeline++) {
        attention *a = pipeline ? &stages : &matrices;
        job j = { .o = model_options(0), .replicate = 1, .shard = 1, .steps = 0, .change = find_dead, .taken = a };
        j.o.shape.n_layers = 4;
        j.o.shape.n_kv_heads = j.o.shape.n_heads = 2;
        j.o.accumulation = 2;
        j.o.layout.chunks = 1;
        j.tensor = pipeline ? 1 : 2, j.stages = pipeline ? 2 : 0;
        run_world(2, NULL, 120, false, rank_body, &j);
        for (int r = 0; r < 2; r++) assert_string_equal(a->found[r], pipeline ? "0, 3" : "0, 2");
    }
}
