/* SPDX-License-Identifier: Apache-2.0 */
/* Orders of pipelines: complete, possible, as idle as theory says. (Those of PyTorch: test_pipeline_file.c.) */
#include "support/test.h"
#include "train/pipeline/pipeline.h"

static const tm_pipeline_costs alike = { 1, 1, 1 }, uneven = { 1, 1.5, 0.5 }, large = { 2, 2, 1 },
                               quick = { 1e-3, 1e-3, 1e-3 };

static bool possible(const tm_pipeline *p)
{
    tm_error err = { 0 };
    return tm_pipeline_check(p, &err) == TM_OK;
}

static double theory(const tm_pipeline *p, const tm_pipeline_costs *c)
{
    return (p->ranks - 1) * (c->forward + c->input + (tm_pipeline_parts(p) ? -c->weight : c->weight));
}

/* Calls `look` for many pipelines. */
static void sweep(void (*look)(const tm_pipeline *p))
{
    for (int order = 0; order < TM_PIPELINE_COUNT; order++)
        for (int ranks = 1; ranks <= 8; ranks++)
            for (int chunks = 1; chunks <= 4; chunks++)
                for (int64_t m = 1; m <= 24; m++) {
                    tm_pipeline p = { (tm_pipeline_order)order, ranks, chunks, m, NULL };
                    if (possible(&p)) look(&p);
                }
}

/* Every micro-batch of every chunk once forward and once backward, weights behind inputs behind forwards, each chunk's
 * micro-batches in ascending order; nobody waits for ever. */
static void look_at_completeness(const tm_pipeline *p)
{
    tm_pipeline_times t;
    tm_pipeline_simulate(p, &alike, &t);
    if (isnan(t.end))
        fail_msg("%s, %d ranks x %d, %d micro-batches: some wait for ever", tm_pipeline_name(p->order), p->ranks,
                 p->chunks, (int)p->micro_batches);
    for (int r = 0; r < p->ranks; r++) {
        int64_t done[4][TM_MAX_CHUNKS] = { 0 }, kept = 0, most = 0;
        for (size_t k = 0; k < t.n[r]; k++) {
            const tm_pipeline_action *a = &t.actions[r][k];
            assert_in_range(a->chunk, 0, p->chunks - 1);
            int64_t whole = done[TM_DO_BACKWARD][a->chunk], back = whole + done[TM_DO_INPUT][a->chunk];
            assert_int_equal(a->micro_batch, a->kind == TM_DO_FORWARD  ? done[TM_DO_FORWARD][a->chunk]
                                             : a->kind == TM_DO_WEIGHT ? done[TM_DO_WEIGHT][a->chunk] + whole
                                                                       : back);
            done[a->kind][a->chunk]++;
            kept += a->kind == TM_DO_FORWARD;
            most = kept > most ? kept : most;
            kept -= a->kind == TM_DO_BACKWARD || a->kind == TM_DO_WEIGHT;
            if (a->kind != TM_DO_FORWARD) assert_true(done[TM_DO_FORWARD][a->chunk] > a->micro_batch);
            if (a->kind == TM_DO_WEIGHT) assert_true(back > a->micro_batch);
        }
        assert_int_equal(t.live[r], most);
        for (int c = 0; c < p->chunks; c++) {
            assert_int_equal(done[TM_DO_FORWARD][c], p->micro_batches);
            assert_int_equal(done[TM_DO_BACKWARD][c] + done[TM_DO_INPUT][c], p->micro_batches);
            assert_int_equal(done[TM_DO_WEIGHT][c], done[TM_DO_INPUT][c]);
            if (p->order != TM_PIPELINE_DUAL_V)
                assert_int_equal(done[TM_DO_WEIGHT][c], tm_pipeline_parts(p) ? p->micro_batches : 0);
        }
    }
    tm_pipeline_times_fini(&t);
}

TEST(orders_are_complete)
{
    sweep(look_at_completeness);
}

static int looked;

static void look_at_idle_time(const tm_pipeline *p)
{
    const tm_pipeline_costs *const costs[] = { &alike, &quick, &uneven, &large };
    bool                           v = p->order == TM_PIPELINE_ZBV;
    if (p->micro_batches < (v ? 2 * p->ranks - 1 : p->ranks)) return; /* there is no steady state */
    for (int c = 0; c < (v ? 2 : 4); c++) {
        tm_pipeline_times t;
        if (p->order == TM_PIPELINE_DUAL_V && costs[c] == &uneven) continue; /* inputs longer than forward */
        tm_pipeline_simulate(p, costs[c], &t);
        if (!(fabs(t.idle - theory(p, costs[c])) < 1e-9))
            fail_msg("%s, %d ranks x %d, %d micro-batches: idle %g, theory %g", tm_pipeline_name(p->order), p->ranks,
                     p->chunks, (int)p->micro_batches, t.idle, theory(p, costs[c]));
        tm_pipeline_times_fini(&t);
        looked++;
    }
}

TEST(idle_times_are_those_of_theory)
{
    looked = 0;
    sweep(look_at_idle_time);
    assert_true(looked > 1000);
}

TEST(pipelines_that_cannot_be_are_refused)
{
    static const struct {
        tm_pipeline p;
        const char *says;
    } rows[] = {
        { { TM_PIPELINE_1F1B, TM_PIPELINE_RANKS + 1, 1, 1, NULL }, "is 257; there may be 256" },
        { { TM_PIPELINE_1F1B, 4, 2, 8, NULL }, "1F1B has 1 stages on each rank, found 2" },
        { { TM_PIPELINE_INTERLEAVED, 4, 1, 8, NULL }, "has at least 2 stages on each rank, found 1" },
        { { TM_PIPELINE_INTERLEAVED, 2, 2, 7, NULL }, "a multiple of 3 micro-batches on 2 ranks, found 7" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_refused(tm_pipeline_check(&rows[i].p, err), TM_INVALID, rows[i].says);
    }
}

/* --- messages ----------------------------------------------------------------------------------------------------- */

enum { STAGES = 12, BATCHES = 12, RANKS = 4 };

typedef struct {
    bool sent[2][STAGES][BATCHES], taken[2][STAGES][BATCHES]; /* forward, back; by the stage that made it */
} letters;

/* The stage `next` from this one, if it is another rank's; else -1. */
static int neighbour(const tm_pipeline *p, int stage, int next)
{
    int other = stage + next;
    if (other < 0 || other >= p->ranks * p->chunks) return -1;
    return tm_pipeline_rank(p, other) == tm_pipeline_rank(p, stage) ? -1 : other;
}

/* Letters of this stage's rank to that of `to` that are on their way. */
static int64_t on_their_way(const tm_pipeline *p, const letters *l, bool back, int stage, int to)
{
    int64_t n = 0;
    for (int s = 0; s < p->ranks * p->chunks; s++) {
        int other = neighbour(p, s, back ? -1 : 1);
        if (other < 0 || tm_pipeline_rank(p, s) != tm_pipeline_rank(p, stage) ||
            tm_pipeline_rank(p, other) != tm_pipeline_rank(p, to))
            continue;
        for (int64_t m = 0; m < p->micro_batches; m++) n += l->sent[back][s][m] && !l->taken[back][s][m];
    }
    return n;
}

/* Do all ranks come to their ends if so many letters of a kind may be on their way between two of them? */
static bool ends(const tm_pipeline *p, int64_t most)
{
    static letters l;
    size_t         at[RANKS] = { 0 }, n[RANKS], left = 0;
    memset(&l, 0, sizeof l);
    tm_pipeline_action *actions[RANKS];
    for (int r = 0; r < p->ranks; r++) actions[r] = tm_pipeline_actions(p, r, &n[r]), left += n[r];
    for (bool any = true; any;) {
        any = false;
        for (int r = 0; r < p->ranks; r++) {
            if (at[r] == n[r]) continue;
            const tm_pipeline_action *a = &actions[r][at[r]];
            const bool                back = a->kind != TM_DO_FORWARD, none = a->kind == TM_DO_WEIGHT;
            const int                 stage = tm_pipeline_stage(p, r, a->chunk);
            const int                 from = none ? -1 : neighbour(p, stage, back ? 1 : -1),
                      to = none ? -1 : neighbour(p, stage, back ? -1 : 1);
            if (from >= 0 && !l.sent[back][from][a->micro_batch]) continue;
            if (from >= 0 && !l.taken[back][from][a->micro_batch]) any = l.taken[back][from][a->micro_batch] = true;
            if (to >= 0 && on_their_way(p, &l, back, stage, to) == most) continue;
            if (to >= 0) l.sent[back][stage][a->micro_batch] = true;
            any = true, at[r]++, left--;
        }
    }
    for (int r = 0; r < p->ranks; r++) free(actions[r]);
    return left == 0;
}

static int64_t most_waiting;

static void look_at_letters(const tm_pipeline *p)
{
    if (p->ranks > RANKS || p->ranks * p->chunks > STAGES || p->micro_batches > BATCHES) return;
    int64_t waiting = tm_pipeline_waiting(p);
    most_waiting = waiting > most_waiting ? waiting : most_waiting;
    if (!ends(p, waiting) || (waiting > 1 && ends(p, waiting - 1)))
        fail_msg("%s, %d ranks x %d, %d micro-batches: not %d letters", tm_pipeline_name(p->order), p->ranks, p->chunks,
                 (int)p->micro_batches, (int)waiting);
}

/* Not fewer than the ranks need, and not more. */
TEST(so_many_letters_wait_as_must)
{
    most_waiting = 0;
    sweep(look_at_letters);
    assert_true(most_waiting > 1);
}

/* --- the grid ----------------------------------------------------------------------------------------------------- */

/* Each cell stands where it begins in time, and the line ends where the next one would not be whole. */
static void look_at_grid(const tm_pipeline *p)
{
    enum { COLUMNS = 70, TITLE = 9 };
    const int         width = (p->micro_batches > 9 ? 4 : 3) + (p->chunks > 1 ? 2 : 0), most = (COLUMNS - 8) / width;
    tm_text           text = { 0 };
    tm_pipeline_times t;
    if (p->ranks > RANKS || p->chunks > 2 || p->micro_batches > BATCHES) return;
    tm_pipeline_print(p, COLUMNS, &text);
    tm_pipeline_simulate(p, &alike, &t);
    const char *line = strchr(strchr(text.data, '\n') + 1, '\n') + 1;
    for (int r = 0; r < p->ranks; r++, line = strchr(line, '\n') + 1) {
        char   wanted[COLUMNS + 40];
        int    end = TITLE;
        size_t k = 0;
        memset(wanted, ' ', sizeof wanted);
        for (; k < t.n[r]; k++) {
            const tm_pipeline_action *a = &t.actions[r][k];
            char                      cell[16];
            int                       begin = (int)t.begin[r][k], takes = a->kind == TM_DO_BACKWARD ? 2 : 1;
            if (begin + takes > most) break;
            int n = snprintf(cell, sizeof cell, p->chunks > 1 ? "%c%d.%d" : "%c%d", "FBIW"[a->kind],
                             (int)a -> micro_batch + 1, a -> chunk + 1);
            memcpy(wanted + TITLE + begin * width, cell, (size_t)n);
            end = TITLE + begin * width + (k + 1 < t.n[r] ? takes * width : n);
        }
        if (k < t.n[r]) memcpy(wanted + end + 1, "...", 3), end += 4;
        wanted[end] = '\n';
        if (strncmp(line + TITLE, wanted + TITLE, (size_t)(end + 1 - TITLE)) != 0)
            fail_msg("%s: rank %d, not%.*s", text.data, r, end + 1, wanted);
    }
    assert_true(*line == '\0');
    tm_pipeline_times_fini(&t);
    tm_text_fini(&text);
}

TEST(cells_stand_at_their_times)
{
    sweep(look_at_grid);
}
