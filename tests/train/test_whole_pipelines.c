/* SPDX-License-Identifier: Apache-2.0 */
/* Pipelines as a whole, to the letter: the order of every rank's work, how long it takes and what it keeps, how models
 * and output layers are cut, the grids that are printed, and what is refused. After a change that is meant:
 *     TM_RECORD=1 build/release/tests/train/test_whole_pipelines; git diff tests/train/whole-pipelines.txt
 */
#include "base/hash.h"
#include "base/text.h"
#include "support/whole.h"
#include "train/pipeline/pipeline.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

/* What all ranks do, as a checksum; the short ones in full. */
static void add_actions(tm_text *out, const tm_pipeline *p, const tm_pipeline_times *t)
{
    tm_text all = { 0 };
    size_t  n = 0;
    for (int r = 0; r < p->ranks; n += t->n[r++]) {
        tm_text_add(&all, r ? " |" : "");
        for (size_t k = 0; k < t->n[r]; k++)
            tm_text_printf(&all, " %c%lld.%d@%g", "FBIW"[t->actions[r][k].kind],
                           (long long)t -> actions[r][k].micro_batch, t->actions[r][k].chunk, t->begin[r][k]);
    }
    if (n <= 24)
        tm_text_printf(out, ":%s", all.data);
    else
        tm_text_printf(out, ": %zu, %016llx", n, (unsigned long long)tm_hash(all.data, all.length));
    tm_text_fini(&all);
}

static void add_pipeline(tm_text *out, const tm_pipeline *p)
{
    static const tm_pipeline_costs costs[] = { { 1, 1, 1 }, { 3, 5, 2 }, { 2, 1, 4 } };
    tm_error                       err = { 0 };
    tm_status                      st = tm_pipeline_check(p, &err);
    tm_text_printf(out, "%s of %d x %d x %lld, parted %d, v %d", tm_pipeline_title(p), p->ranks, p->chunks,
                   (long long)p->micro_batches, tm_pipeline_parts(p), tm_pipeline_is_v(p));
    if (st != TM_OK) {
        tm_text_printf(out, ": %d, %s\n", (int)st, err.text);
        return;
    }
    for (size_t c = 0; c < sizeof costs / sizeof costs[0]; c++) {
        tm_pipeline_times t;
        tm_pipeline_simulate(p, &costs[c], &t);
        tm_text_printf(out, "%s ends %g, idle %g", c ? ";" : ":", t.end, t.idle);
        if (c == 0) {
            tm_text_add(out, ", keeps");
            for (int r = 0; r < p->ranks; r++) tm_text_printf(out, " %lld", (long long)t.live[r]);
            tm_text_add(out, ", first");
            for (int r = 0; r < p->ranks; r++)
                for (int k = 0; k < p->chunks; k++)
                    tm_text_printf(out, " %lld", (long long)tm_pipeline_first(t.actions[r], t.n[r], k));
        }
        if (c == 1) add_actions(out, p, &t);
        tm_pipeline_times_fini(&t);
    }
    tm_text_add(out, "\n");
}

static void orders_are_as_recorded(void **state)
{
    static const int     ranks[] = { 1, 2, 3, 4, 7 }, chunks[] = { 1, 2, 3 };
    static const int64_t micro_batches[] = { 1, 2, 3, 4, 5, 6, 8, 9, 14, 17 };
    tm_text              out = { 0 };
    (void)state;
    for (int order = 0; order < TM_PIPELINE_LISTED; order++)
        for (size_t r = 0; r < sizeof ranks / sizeof ranks[0]; r++)
            for (size_t c = 0; c < sizeof chunks / sizeof chunks[0]; c++)
                for (size_t m = 0; m < sizeof micro_batches / sizeof micro_batches[0]; m++) {
                    tm_pipeline p = { (tm_pipeline_order)order, ranks[r], chunks[c], micro_batches[m], NULL };
                    tm_error    err = { 0 };
                    if (p.ranks == 1 && p.micro_batches > 3) continue;
                    if (m > 0 && tm_pipeline_check(&p, &err) != TM_OK && p.chunks != 2) continue;
                    add_pipeline(&out, &p);
                }
    whole_is("tests/train/whole-pipelines.txt", &out);
}

static void grids_are_as_recorded(void **state)
{
    static const struct {
        tm_pipeline p;
        int         columns;
    } grids[] = { { { TM_PIPELINE_GPIPE, 3, 1, 4, NULL }, 100 },
                  { { TM_PIPELINE_1F1B, 1, 1, 3, NULL }, 100 },
                  { { TM_PIPELINE_1F1B, 4, 1, 10, NULL }, 120 },
                  { { TM_PIPELINE_1F1B, 11, 1, 2, NULL }, 70 },
                  { { TM_PIPELINE_INTERLEAVED, 2, 2, 4, NULL }, 160 },
                  { { TM_PIPELINE_INTERLEAVED, 2, 9, 2, NULL }, 200 },
                  { { TM_PIPELINE_INTERLEAVED, 2, 10, 2, NULL }, 200 },
                  { { TM_PIPELINE_INTERLEAVED_ZERO, 4, 1, 6, NULL }, 160 },
                  { { TM_PIPELINE_INTERLEAVED_ZERO, 2, 3, 4, NULL }, 160 },
                  { { TM_PIPELINE_ZBV, 3, 2, 6, NULL }, 160 },
                  { { TM_PIPELINE_ZBV, 4, 2, 2, NULL }, 61 },
                  { { TM_PIPELINE_DUAL_V, 2, 2, 4, NULL }, 160 },
                  { { TM_PIPELINE_DUAL_V, 4, 2, 9, NULL }, 300 } };
    tm_text out = { 0 };
    (void)state;
    for (size_t i = 0; i < sizeof grids / sizeof grids[0]; i++) {
        tm_pipeline_print(&grids[i].p, grids[i].columns, &out);
        tm_text_add(&out, "\n");
    }
    whole_is("tests/train/whole-pipeline-grids.txt", &out);
}

static void add_stages(tm_text *out, const tm_stage *stages, int n)
{
    for (int s = 0; s < n; s++) {
        const tm_stage *stage = &stages[s];
        tm_text_printf(out, " %d-%d%s%s%s", stage->first, stage->end, stage->begins ? "b" : "", stage->ends ? "e" : "",
                       stage->number == s ? "" : "?");
        if (stage->pieces > 0)
            tm_text_printf(out, "(%d/%d %lld-%lld)", stage->piece, stage->pieces, (long long)stage->class_first,
                           (long long)stage->class_end);
    }
    tm_text_add(out, "\n");
}

static void add_cuts(tm_text *out)
{
    for (int64_t layers = 1; layers <= 9; layers += 2)
        for (int stages = 1; stages <= 5; stages++)
            for (int less = 0; less < 9; less += 2) {
                tm_stage  cut[8] = { { 0 } };
                tm_error  err = { 0 };
                tm_status st = tm_pipeline_cut(layers, stages, less % 3, less / 3, cut, &err);
                tm_text_printf(out, "%lld blocks in %d less %d, %d:%s%s", (long long)layers, stages, less % 3, less / 3,
                               st == TM_OK ? "" : " ", err.text);
                add_stages(out, cut, st == TM_OK ? stages : 0);
            }
}

static void add_cuts_of_heads(tm_text *out)
{
    static const tm_stage         none;
    static const tm_pipeline_head heads[] = { { 301, 0.5 }, { 1000, 3 }, { 50257, 9.8 }, { 33, 2 },
                                              { 64, 0 },    { 32, 2 },   { 40, 7 },      { 50, 0.25 } };
    for (int order = TM_PIPELINE_1F1B; order <= TM_PIPELINE_ZBV; order++)
        for (int ranks = 2; ranks <= 4; ranks++)
            for (int64_t layers = 1; layers <= 13; layers += 4)
                for (size_t h = 0; h < sizeof heads / sizeof heads[0]; h++)
                    for (int64_t less = 0; less < 3; less += 2) {
                        int         chunks = order == TM_PIPELINE_1F1B ? 1 : order == TM_PIPELINE_INTERLEAVED ? 3 : 2;
                        tm_pipeline p = { (tm_pipeline_order)order, ranks, chunks, 8, NULL };
                        tm_stage    cut[16] = { { 0 } };
                        tm_error    err = { 0 };
                        tm_status   st = tm_pipeline_cut_head(&p, layers, less, &heads[h], cut, &err);
                        tm_text_printf(out, "%d x %d %s, %lld blocks less %lld, %lld as %g:%s%s", ranks, chunks,
                                       tm_pipeline_name(p.order), (long long)layers, (long long)less,
                                       (long long)heads[h].vocabulary, heads[h].blocks, st == TM_OK ? "" : " ",
                                       err.text);
                        add_stages(out, cut, st == TM_OK ? ranks * chunks : 0);
                        for (int s = ranks * chunks; s < 16; s++) assert_memory_equal(&cut[s], &none, sizeof none);
                    }
}

static void cuts_are_as_recorded(void **state)
{
    static const int first[] = { 0, 0, 3, 7 };
    tm_stage         cut[4];
    tm_text          out = { 0 };
    (void)state;
    add_cuts(&out);
    tm_pipeline_cut_at(9, 4, first, cut);
    add_stages(&out, cut, 4);
    add_cuts_of_heads(&out);
    whole_is("tests/train/whole-pipeline-cuts.txt", &out);
}

static const struct CMUnitTest tests[] = { cmocka_unit_test(orders_are_as_recorded),
                                           cmocka_unit_test(grids_are_as_recorded),
                                           cmocka_unit_test(cuts_are_as_recorded) };

TM_TESTS(tests, NULL, NULL)
