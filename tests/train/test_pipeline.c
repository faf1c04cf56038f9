/* SPDX-License-Identifier: Apache-2.0 */
/* Orders of pipelines: complete, possible, as idle as theory says, with as many micro-batches alive. */
#include "train/pipeline/pipeline.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include "support/test.h"
/* clang-format on */

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
        int64_t done[4][TM_MAX_CHUNKS] = { 0 };
        for (size_t k = 0; k < t.n[r]; k++) {
            const tm_pipeline_action *a = &t.actions[r][k];
            assert_in_range(a->chunk, 0, p->chunks - 1);
            int64_t whole = done[TM_DO_BACKWARD][a->chunk], back = whole + done[TM_DO_INPUT][a->chunk];
            assert_int_equal(a->micro_batch, a->kind == TM_DO_FORWARD  ? done[TM_DO_FORWARD][a->chunk]
                                             : a->kind == TM_DO_WEIGHT ? done[TM_DO_WEIGHT][a->chunk] + whole
                                                                       : back);
            done[a->kind][a->chunk]++;
            if (a->kind != TM_DO_FORWARD) assert_true(done[TM_DO_FORWARD][a->chunk] > a->micro_batch);
            if (a->kind == TM_DO_WEIGHT) assert_true(back > a->micro_batch);
        }
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

static void orders_are_complete(void **state)
{
    (void)state;
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

static void idle_times_are_those_of_theory(void **state)
{
    (void)state;
    looked = 0;
    sweep(look_at_idle_time);
    assert_true(looked > 1000);
}

/* --- DualPipeV as published -------------------------------------------------------------------------------------- */

/* Is action k a forward with a whole backward of the other chunk beside it? (PyTorch leaves the first ones of the last
 * rank one after the other.) */
static bool is_pair(const tm_pipeline_times *t, int r, size_t k, bool last)
{
    const tm_pipeline_action *a = &t->actions[r][k];
    return k + 1 < t->n[r] && a->kind == TM_DO_FORWARD && a[1].kind == TM_DO_BACKWARD && a[1].chunk != a->chunk &&
           !(last && a[1].micro_batch == 0 && a[1].chunk == 1);
}

/* When what the action needs is there: NAN, not yet. done: (stages, micro-batches, forward and backward). */
static double there(const tm_pipeline *p, const double *done, int r, const tm_pipeline_action *a)
{
    int64_t stage = tm_pipeline_stage(p, r, a->chunk), last = 2 * p->ranks - 1;
    int64_t own = (stage * p->micro_batches + a->micro_batch) * 2, next = p->micro_batches * 2;
    if (a->kind == TM_DO_FORWARD) return stage == 0 ? 0 : done[own - next];
    if (a->kind == TM_DO_WEIGHT) return done[own + 1];
    return stage == last ? done[own] : done[own + next + 1];
}

/* Idle time where such a pair is one piece of work: begun when the inputs of both are there, and what both give is sent
 * at its end. */
static double idle_in_pairs(const tm_pipeline *p, const tm_pipeline_costs *c)
{
    tm_pipeline_times t;
    const size_t      n = (size_t)(2 * p->ranks * p->micro_batches * 2);
    double           *done = malloc(n * sizeof *done), now[8] = { 0 }, end = 0;
    size_t            next[8] = { 0 };
    tm_pipeline_simulate(p, c, &t);
    for (size_t k = 0; k < n; k++) done[k] = (double)NAN;
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < p->ranks; r++)
            while (next[r] < t.n[r]) {
                const tm_pipeline_action *a = &t.actions[r][next[r]];
                const size_t              both = is_pair(&t, r, next[r], r == p->ranks - 1) ? 2 : 1;
                double                    begin = now[r], cost = 0;
                bool                      waits = false;
                for (size_t k = 0; k < both; k++) {
                    double when = there(p, done, r, &a[k]);
                    waits = waits || isnan(when);
                    begin = fmax(begin, when);
                    cost += a[k].kind == TM_DO_FORWARD  ? c->forward
                            : a[k].kind == TM_DO_INPUT  ? c->input
                            : a[k].kind == TM_DO_WEIGHT ? c->weight
                                                        : c->input + c->weight;
                }
                if (waits) break;
                now[r] = begin + cost;
                for (size_t k = 0; k < both; k++)
                    if (a[k].kind != TM_DO_WEIGHT)
                        done[(tm_pipeline_stage(p, r, a[k].chunk) * p->micro_batches + a[k].micro_batch) * 2 +
                             (a[k].kind != TM_DO_FORWARD)] = now[r];
                next[r] += both;
                moved = true;
            }
    }
    for (int r = 0; r < p->ranks; r++) {
        assert_int_equal(next[r], t.n[r]);
        end = fmax(end, now[r]);
    }
    tm_pipeline_times_fini(&t);
    free(done);
    return end - (double)(2 * p->micro_batches) * (c->forward + c->input + c->weight);
}

/* (p - 1)(F&B + B - 3 W) with F&B = F + B: nothing is gained by the pairs themselves. Table of DeepSeek's DualPipe. */
static void pairs_are_as_idle_as_published(void **state)
{
    static const tm_pipeline_costs costs[] = { { 1, 1, 1 }, { 2, 2, 1 }, { 3, 3, 2 } };
    (void)state;
    for (int ranks = 1; ranks <= 8; ranks++)
        for (int64_t m = 2 * ranks; m < 4 * ranks; m++)
            for (size_t c = 0; c < sizeof costs / sizeof costs[0]; c++) {
                tm_pipeline p = { TM_PIPELINE_DUAL_V, ranks, 2, m, NULL };
                double      f = costs[c].forward, b = costs[c].input + costs[c].weight, w = costs[c].weight;
                double      idle = idle_in_pairs(&p, &costs[c]), wanted = (ranks - 1) * (f + b + b - 3 * w);
                if (!(fabs(idle - wanted) < 1e-9))
                    fail_msg("%d ranks, %d micro-batches: idle %g, published %g", ranks, (int)m, idle, wanted);
            }
}

/* An order that is no good has another idle time: 1F1B with its input gradients late. */
static void a_worse_order_is_told(void **state)
{
    (void)state;
    tm_pipeline_times one, gpipe, zero;
    tm_pipeline       p = { TM_PIPELINE_1F1B, 4, 1, 8, NULL }, g = { TM_PIPELINE_GPIPE, 4, 1, 8, NULL },
                z = { TM_PIPELINE_INTERLEAVED_ZERO, 4, 1, 8, NULL };
    tm_pipeline_simulate(&p, &alike, &one);
    tm_pipeline_simulate(&g, &alike, &gpipe);
    tm_pipeline_simulate(&z, &alike, &zero);
    assert_true(one.idle == gpipe.idle && one.idle == 9);
    assert_true(zero.idle == 3);
    tm_pipeline_times_fini(&one);
    tm_pipeline_times_fini(&gpipe);
    tm_pipeline_times_fini(&zero);
}

/* Stages in turn: as many forwards before the first backward as in Megatron-LM, two for each rank behind this one, so
 * that what comes back has a step of another rank's time to travel. */
static void ranks_begin_with_as_many_forwards_as_published(void **state)
{
    (void)state;
    tm_pipeline_times t;
    tm_pipeline       p = { TM_PIPELINE_INTERLEAVED, 4, 2, 8, NULL };
    tm_pipeline_simulate(&p, &alike, &t);
    for (int r = 0; r < 4; r++) {
        size_t first = 0;
        while (t.actions[r][first].kind == TM_DO_FORWARD) first++;
        assert_int_equal(first, 4 + 2 * (3 - r) + 1);
    }
    tm_pipeline_times_fini(&t);
}

static void as_many_micro_batches_live_as_stated(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 8; ranks *= 2)
        for (int64_t m = ranks; m <= 16; m++) {
            tm_pipeline_times t;
            tm_pipeline gpipe = { TM_PIPELINE_GPIPE, ranks, 1, m, NULL }, one = { TM_PIPELINE_1F1B, ranks, 1, m, NULL };
            tm_pipeline_simulate(&gpipe, &alike, &t);
            for (int r = 0; r < ranks; r++) assert_int_equal(t.live[r], m);
            tm_pipeline_times_fini(&t);
            tm_pipeline_simulate(&one, &alike, &t);
            for (int r = 0; r < ranks; r++) assert_int_equal(t.live[r], ranks - r);
            tm_pipeline_times_fini(&t);
        }
    tm_pipeline_times t;
    tm_pipeline       v = { TM_PIPELINE_ZBV, 4, 2, 16, NULL };
    tm_pipeline_simulate(&v, &alike, &t);
    for (int r = 0; r < 4; r++) assert_true(t.live[r] <= 2 * 4);
    tm_pipeline_times_fini(&t);
    tm_pipeline dual = { TM_PIPELINE_DUAL_V, 4, 2, 16, NULL };
    tm_pipeline_simulate(&dual, &alike, &t);
    for (int r = 0; r < 4; r++) assert_int_equal(t.live[r], 2 * 4 + 1);
    tm_pipeline_times_fini(&t);
}

/* Every stage is on one rank. */
static void look_at_places(const tm_pipeline *p)
{
    for (int r = 0; r < p->ranks; r++)
        for (int c = 0; c < p->chunks; c++) {
            assert_int_equal(tm_pipeline_rank(p, tm_pipeline_stage(p, r, c)), r);
            if (c > 0) assert_true(tm_pipeline_stage(p, r, c) > tm_pipeline_stage(p, r, c - 1));
        }
}

static void stages_lie_on_one_rank(void **state)
{
    (void)state;
    sweep(look_at_places);
    tm_pipeline v = { TM_PIPELINE_ZBV, 4, 2, 8, NULL };
    assert_int_equal(tm_pipeline_stage(&v, 3, 1), 4);
    assert_int_equal(tm_pipeline_stage(&v, 0, 1), 7);
}

static void check_cut(int64_t layers, int stages, int64_t first, int64_t last, const int *wanted)
{
    tm_stage out[16];
    tm_error err = { 0 };
    int      at = 0;
    assert_int_equal(tm_pipeline_cut(layers, stages, first, last, out, &err), TM_OK);
    for (int s = 0; s < stages; s++) {
        assert_int_equal(out[s].first, at);
        assert_int_equal(out[s].end - out[s].first, wanted[s]);
        assert_true(out[s].begins == (s == 0) && out[s].ends == (s == stages - 1) && out[s].number == s);
        at = out[s].end;
    }
    assert_int_equal(at, layers);
}

/* By hand, from the rule. */
static void models_are_cut_evenly(void **state)
{
    (void)state;
    tm_stage out[16];
    tm_error err = { 0 };
    check_cut(32, 4, 1, 1, (const int[]){ 8, 9, 8, 7 });
    check_cut(32, 4, 0, 0, (const int[]){ 8, 8, 8, 8 });
    check_cut(12, 2, 1, 1, (const int[]){ 6, 6 });
    check_cut(6, 4, 1, 1, (const int[]){ 1, 2, 2, 1 });
    check_cut(2, 2, 1, 1, (const int[]){ 1, 1 });
    check_cut(4, 4, 1, 1, (const int[]){ 1, 2, 1, 0 });
    /* The stage that has none is told: the first with the embedding alone, or the third. */
    for (int less = 0; less < 2; less++) {
        char wanted[400];
        err = (tm_error){ 0 };
        assert_int_equal(tm_pipeline_cut(2, 8, less, less, out, &err), TM_INVALID);
        snprintf(
            wanted, sizeof wanted,
            "2 blocks cannot be cut into 8 stages of a pipeline, the embedding counted as %d and the head as %d blocks "
            "(parallelism.pipeline_parallel_first_stage_less_layers, _last_stage_less_layers): stage %d would have 0; "
            "take fewer stages (parallelism.pipeline_parallel_degree) or count them less",
            less, less, less ? 0 : 2);
        assert_string_equal(err.text, wanted);
    }
    assert_int_equal(tm_pipeline_cut(8, 8, 0, 0, out, &err), TM_OK);
    err = (tm_error){ 0 };
    assert_int_equal(tm_pipeline_cut(9, 8, 3, 0, out, &err), TM_INVALID); /* 2 less 3 */
    assert_non_null(strstr(err.text, "stage 0 would have -1;"));
}

/* Blocks and their like of each rank; pieces follow one another through the vocabulary. */
static double look_at_pieces(const tm_pipeline *p, int64_t layers, const tm_pipeline_head *head, const tm_stage *out)
{
    const int stages = p->ranks * p->chunks, from = stages - p->ranks;
    double    load[TM_PIPELINE_RANKS] = { 0 }, most = 0;
    int64_t   block = 0, class = 0;
    for (int s = 0; s < stages; s++) {
        const int r = tm_pipeline_rank(p, s);
        assert_true(out[s].begins == (s == 0) && out[s].ends == (s == stages - 1) && out[s].number == s);
        assert_int_equal(out[s].first, block);
        assert_true(out[s].end >= out[s].first && (s <= from || out[s].end == layers));
        load[r] += (double)(out[s].end - out[s].first);
        block = out[s].end;
        assert_int_equal(out[s].pieces, s < from ? 0 : p->ranks);
        if (s < from) continue;
        assert_int_equal(out[s].piece, s - from);
        assert_int_equal(out[s].class_first, class);
        assert_true(class % 16 == 0 && out[s].class_end > class);
        load[r] += (double)(out[s].class_end - class) / (double)head->vocabulary * head->blocks;
        class = out[s].class_end;
    }
    assert_int_equal(block, layers);
    assert_int_equal(class, head->vocabulary);
    for (int r = 0; r < p->ranks; r++) most = fmax(most, load[r]);
    return most;
}

/* Ranks are equal to a few rows, wherever there is enough of the output layer to make up for uneven blocks. */
static void pieces_make_ranks_equal(void **state)
{
    (void)state;
    tm_stage out[64];
    tm_error err = { 0 };
    int      equal = 0, all = 0;
    for (int order = TM_PIPELINE_1F1B; order <= TM_PIPELINE_ZBV; order++)
        for (int ranks = 2; ranks <= 8; ranks++)
            for (int chunks = 1; chunks <= 4; chunks++)
                for (int64_t layers = 1; layers <= 40; layers += 3)
                    for (double blocks = 0.25; blocks < 40; blocks *= 3) {
                        tm_pipeline      p = { (tm_pipeline_order)order, ranks, chunks, 8, NULL };
                        tm_pipeline_head head = { 50257, blocks };
                        if ((order == TM_PIPELINE_ZBV && chunks != 2) || (chunks == 1 && ranks > 2)) continue;
                        tm_status st = tm_pipeline_cut_head(&p, layers, 0, &head, out, &err);
                        assert_int_equal(st, layers < ranks * (chunks - 1) - 1 ? TM_INVALID : st);
                        if (st != TM_OK) continue;
                        double most = look_at_pieces(&p, layers, &head, out);
                        double mean = ((double)layers + blocks) / ranks, rows = 16 * ranks / 50257.0 * blocks;
                        all++;
                        equal += most <= mean + rows;
                        double blocks_alone = (double)(chunks > 1 ? layers / ranks + chunks : layers);
                        assert_true(most <= fmax(mean, blocks_alone) + rows + 1e-9);
                    }
    assert_true(all > 500 && equal > all / 3);
}

/* gpt-small by hand: six blocks, and the output layer as 9.8 of them, 7.9 for each of two ranks. */
static void a_large_head_is_cut_in_two(void **state)
{
    (void)state;
    tm_stage         out[8];
    tm_error         err = { 0 };
    tm_pipeline      plain = { TM_PIPELINE_1F1B, 2, 1, 8, NULL }, turns = { TM_PIPELINE_INTERLEAVED, 2, 2, 8, NULL };
    tm_pipeline_head head = { 50257, 9.8 };
    assert_int_equal(tm_pipeline_cut_head(&plain, 6, 0, &head, out, &err), TM_OK);
    assert_true(out[0].first == 0 && out[0].end == 6 && out[0].class_end == 9744); /* 1.9 / 9.8 of 50,257 */
    assert_true(out[1].first == 6 && out[1].end == 6 && out[1].class_end == 50257);
    assert_int_equal(tm_pipeline_cut_head(&turns, 6, 0, &head, out, &err), TM_OK);
    assert_true(out[0].end == 3 && out[1].end == 6 && out[0].pieces == 0 && out[1].pieces == 0);
    assert_true(out[2].class_first == 0 && out[2].class_end == 25136 && out[3].class_end == 50257);
    /* An embedding that counts: the first rank has a block less, and no more of the output layer for it. */
    assert_int_equal(tm_pipeline_cut_head(&turns, 6, 2, &head, out, &err), TM_OK);
    assert_true(out[0].end == 2 && out[1].end == 6 && out[2].class_end == 25136);
    /* Of a small one some blocks lie in front: 10, 10, 4 and next to nothing, 4.1, not 12, 12, 2.05, 2.05. */
    const tm_pipeline_head small = { 50257, 4.1 };
    assert_int_equal(tm_pipeline_cut_head(&turns, 24, 0, &small, out, &err), TM_OK);
    assert_true(out[0].end == 10 && out[1].end == 20 && out[2].end == 24 && out[2].class_end == 608);
    err = (tm_error){ 0 };
    assert_int_equal(tm_pipeline_cut_head(&turns, 6, 40, &head, out, &err), TM_INVALID);
    assert_non_null(strstr(err.text, "in front of the pieces of the output layer"));
    head.vocabulary = 16;
    err = (tm_error){ 0 };
    assert_int_equal(tm_pipeline_cut_head(&plain, 6, 0, &head, out, &err), TM_INVALID);
    assert_non_null(strstr(err.text, "a vocabulary of 16 cannot be divided among 2 ranks"));
}

static void names_are_those_of_others(void **state)
{
    (void)state;
    tm_pipeline_order order;
    tm_error          err = { 0 };
    assert_int_equal(tm_pipeline_find("interleaved1f1b", "here", &order, &err), TM_OK);
    assert_int_equal(order, TM_PIPELINE_INTERLEAVED);
    assert_int_equal(tm_pipeline_find("zbv-formatted", "here", &order, &err), TM_OK);
    assert_int_equal(order, TM_PIPELINE_ZBV);
    assert_int_equal(tm_pipeline_find("DualPipeV", "here", &order, &err), TM_OK);
    assert_int_equal(order, TM_PIPELINE_DUAL_V);
    assert_int_equal(tm_pipeline_find("LoopedBFS", "here", &order, &err), TM_UNSUPPORTED);
    assert_string_equal(err.text,
                        "parallelism.pipeline_parallel_schedule (here): 'LoopedBFS' is not built; these are: GPipe, "
                        "1F1B, Interleaved1F1B, InterleavedZeroBubble, ZBVZeroBubble, DualPipeV");
    err = (tm_error){ 0 };
    assert_int_equal(tm_pipeline_find("", "here", &order, &err), TM_UNSUPPORTED);
}

static void pipelines_that_cannot_be_are_refused(void **state)
{
    (void)state;
    tm_error    err = { 0 };
    tm_pipeline chunks = { TM_PIPELINE_1F1B, 4, 2, 8, NULL }, one = { TM_PIPELINE_INTERLEAVED, 4, 1, 8, NULL },
                odd = { TM_PIPELINE_INTERLEAVED, 2, 2, 7, NULL },
                most = { TM_PIPELINE_1F1B, TM_PIPELINE_RANKS, 1, 1, NULL };
    assert_int_equal(tm_pipeline_check(&most, &err), TM_OK);
    most.ranks++;
    assert_int_equal(tm_pipeline_check(&most, &err), TM_INVALID);
    assert_string_equal(err.text, "parallelism.pipeline_parallel_degree is 257; there may be 256");
    err = (tm_error){ 0 };
    assert_int_equal(tm_pipeline_check(&chunks, &err), TM_INVALID);
    assert_non_null(strstr(err.text, "1F1B has 1 stages on each rank, found 2"));
    err = (tm_error){ 0 };
    assert_int_equal(tm_pipeline_check(&one, &err), TM_INVALID);
    err = (tm_error){ 0 };
    assert_int_equal(tm_pipeline_check(&odd, &err), TM_INVALID);
    assert_non_null(strstr(err.text, "a multiple of 3 micro-batches on 2 ranks, found 7"));
}

static void the_grid_is_printed(void **state)
{
    (void)state;
    tm_text     text = { 0 };
    tm_pipeline p = { TM_PIPELINE_1F1B, 2, 1, 3, NULL };
    tm_pipeline_print(&p, 120, &text);
    assert_non_null(strstr(text.data, "1F1B: 2 ranks x 1 stage, 3 micro-batches; idle 25.0 % of a step\n"));
    assert_non_null(strstr(text.data, "  rank 0 F1 F2       B1    F3 B2       B3\n"));
    assert_non_null(strstr(text.data, "  rank 1    F1 B1    F2 B2    F3 B3\n"));
    text.length = 0;
    tm_pipeline_print(&p, 44, &text); /* just wide enough */
    assert_non_null(strstr(text.data, "  rank 0 F1 F2       B1    F3 B2       B3\n"));
    text.length = 0;
    tm_pipeline_print(&p, 43, &text);
    if (!strstr(text.data, "  rank 0 F1 F2       B1    F3 B2     ...\n")) fail_msg("%s", text.data);
    assert_non_null(strstr(text.data, "  rank 1    F1 B1    F2 B2    F3 B3\n"));
    tm_text_fini(&text);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(ranks_begin_with_as_many_forwards_as_published),
    cmocka_unit_test(orders_are_complete),
    cmocka_unit_test(idle_times_are_those_of_theory),
    cmocka_unit_test(pairs_are_as_idle_as_published),
    cmocka_unit_test(a_worse_order_is_told),
    cmocka_unit_test(as_many_micro_batches_live_as_stated),
    cmocka_unit_test(stages_lie_on_one_rank),
    cmocka_unit_test(models_are_cut_evenly),
    cmocka_unit_test(pieces_make_ranks_equal),
    cmocka_unit_test(a_large_head_is_cut_in_two),
    cmocka_unit_test(names_are_those_of_others),
    cmocka_unit_test(pipelines_that_cannot_be_are_refused),
    cmocka_unit_test(the_grid_is_printed),
};

TM_TESTS(tests, NULL, NULL)
