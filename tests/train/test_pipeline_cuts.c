/* SPDX-License-Identifier: Apache-2.0 */
/* How models and output layers are cut into stages: blocks dealt out evenly, pieces that make ranks equal, and no other
 * cut that is better. */
#include "support/test.h"
#include "train/pipeline/pipeline.h"

static void check_cut(int64_t layers, int stages, int64_t first, int64_t last, const int *wanted)
{
    tm_stage out[16];
    int      at = 0;
    assert_ok(tm_pipeline_cut(layers, stages, first, last, out, err));
    for (int s = 0; s < stages; s++) {
        assert_int_equal(out[s].first, at);
        assert_int_equal(out[s].end - out[s].first, wanted[s]);
        assert_true(out[s].begins == (s == 0) && out[s].ends == (s == stages - 1) && out[s].number == s);
        at = out[s].end;
    }
    assert_int_equal(at, layers);
}

/* All that counts is dealt out, one block in turn; what is not a block is taken off again. */
static void look_at_cut(int64_t layers, int stages, int64_t first, int64_t last)
{
    tm_stage out[8], again[8];
    int64_t  own[8] = { 0 };
    int      wanted[8], begin[8];
    bool     possible = true;
    for (int64_t k = 0; k < layers + first + last; k++) own[k % stages]++;
    bool scarce = own[stages - 1] == 0;
    own[0] -= first, own[stages - 1] -= last;
    for (int s = 0; s < stages; s++) {
        possible = possible && own[s] >= 0 && !(scarce && own[s] == 0);
        wanted[s] = (int)own[s];
        begin[s] = s == 0 ? 0 : begin[s - 1] + wanted[s - 1];
    }
    if (possible) {
        check_cut(layers, stages, first, last, wanted);
        assert_ok(tm_pipeline_cut(layers, stages, first, last, out, err));
        tm_pipeline_cut_at(layers, stages, begin, again);
        assert_memory_equal(out, again, (size_t)stages * sizeof *out);
    } else {
        assert_refused(tm_pipeline_cut(layers, stages, first, last, out, err), TM_INVALID, "");
    }
}

TEST(blocks_are_dealt_out)
{
    for (int64_t layers = 1; layers <= 12; layers++)
        for (int stages = 1; stages <= 8; stages++)
            for (int64_t first = 0; first < 4; first++)
                for (int64_t last = 0; last < 4; last++) look_at_cut(layers, stages, first, last);
}

/* Blocks and their like of each rank; pieces follow one another through the vocabulary. */
static double look_at_pieces(const tm_pipeline *p, int64_t layers, int64_t less, const tm_pipeline_head *head,
                             const tm_stage *out)
{
    const int stages = p->ranks * p->chunks, from = stages - p->ranks;
    double    load[TM_PIPELINE_RANKS] = { (double)less }, most = 0;
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

/* What the rank with the most has where `behind` blocks lie in the stage of the first piece, and the largest stage;
 * false: some stage would be empty. Pieces fill the ranks from the emptiest on. */
static bool try_behind(const tm_pipeline *p, int64_t layers, int64_t less, const tm_pipeline_head *head, int64_t behind,
                       double *most, double *largest)
{
    const int    from = p->ranks * (p->chunks - 1);
    const double least = head->blocks * 16 / (double)head->vocabulary;
    double       load[8] = { 0 }, level = HUGE_VAL, stage = 0;
    int64_t      own[32] = { 0 };
    for (int64_t k = 0; k < layers - behind + less; k++) own[k % from]++;
    own[from] = behind;
    for (int s = 0; s <= from; s++) load[tm_pipeline_rank(p, s)] += (double)own[s];
    own[0] -= less;
    for (int s = 0; s < from; s++)
        if (own[s] < (s > 0)) return false;
    for (int k = 0; k < p->ranks; k++) { /* ranks with no more than rank k have share what the others leave */
        double sum = head->blocks;
        int    share = 0;
        for (int r = 0; r < p->ranks; r++)
            if (load[r] <= load[k])
                sum += load[r], share++;
            else
                sum -= least;
        if (sum / share >= load[k] + least) level = fmin(level, sum / share);
    }
    *most = 0;
    for (int r = 0; r < p->ranks; r++) *most = fmax(*most, fmax(level, load[r] + least));
    for (int s = 0; s <= from; s++) stage = fmax(stage, (double)own[s]);
    for (int s = from; s < from + p->ranks; s++) {
        const double has = load[tm_pipeline_rank(p, s)];
        stage = fmax(stage, (double)own[s] + fmax(least, level - has));
    }
    *largest = stage;
    return true;
}

static double largest_of(const tm_pipeline *p, const tm_pipeline_head *head, const tm_stage *out)
{
    double most = 0;
    for (int s = 0; s < p->ranks * p->chunks; s++)
        most =
            fmax(most, out[s].end - out[s].first +
                           (double)(out[s].class_end - out[s].class_first) / (double)head->vocabulary * head->blocks);
    return most;
}

/* No other number of blocks in front of the first piece gives the fullest rank less, nor, where that is equal, the
 * largest stage. */
TEST(no_other_cut_is_better)
{
    int found = 0;
    for (int chunks = 2; chunks <= 3; chunks++)
        for (int ranks = 2; ranks <= 4; ranks++)
            for (int64_t layers = 1; layers <= 14; layers++)
                for (int64_t less = 0; less < 3; less++)
                    for (double blocks = 0.3; blocks < 20; blocks *= 2.5)
                        for (int v = 0; v <= (chunks == 2); v++) {
                            const tm_pipeline p = { v ? TM_PIPELINE_ZBV : TM_PIPELINE_INTERLEAVED, ranks, chunks, 8,
                                                    NULL };
                            const tm_pipeline_head head = { 160000, blocks };
                            const double           rows = 16 * ranks / 160000.0 * blocks + 1e-6;
                            double                 best = HUGE_VAL, smallest = HUGE_VAL, most, largest, has = 0;
                            tm_stage               out[16];
                            tm_error               err = { 0 };
                            for (int64_t behind = 0; behind <= layers; behind++)
                                if (try_behind(&p, layers, less, &head, behind, &most, &largest) &&
                                    (most < best - 1e-9 || (most < best + 1e-9 && largest < smallest)))
                                    best = most, smallest = largest;
                            tm_status st = tm_pipeline_cut_head(&p, layers, less, &head, out, &err);
                            assert_int_equal(st, best < HUGE_VAL ? TM_OK : TM_INVALID);
                            if (st != TM_OK) continue;
                            has = look_at_pieces(&p, layers, less, &head, out);
                            if (fabs(has - best) > rows || fabs(largest_of(&p, &head, out) - smallest) > rows)
                                fail_msg("%d x %d, %d blocks less %d, %g: %g and %g, best %g and %g", ranks, chunks,
                                         (int)layers, (int)less, blocks, has, largest_of(&p, &head, out), best,
                                         smallest);
                            found++;
                        }
    assert_true(found > 500);
}
