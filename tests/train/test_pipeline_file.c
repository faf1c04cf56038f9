/* SPDX-License-Identifier: Apache-2.0 */
/* Orders from files: those of PyTorch are read, what is wrong with a file is told with row and column. (They run in
 * tests/differential.) */
#include "support/test.h"
#include "base/arena.h"
#include "train/pipeline/file.h"

#define FOLDER "tests/train/fixtures/schedules/"

static const tm_pipeline_list *read_list(const char *name, int ranks, tm_arena *arena)
{
    char                    path[200];
    const tm_pipeline_list *list;
    snprintf(path, sizeof path, FOLDER "%s.csv", name);
    assert_ok(pipeline_file_read(path, ranks, arena, &list, err));
    return list;
}

/* What torch.distributed.pipelining writes (tools/make_schedule_fixtures.py) is read, and is what the same name gives
 * here (but a loop of several stages with fewer forwards ahead, and breadth first). */
TEST(files_of_pytorch_are_read)
{
    static const struct {
        const char       *name;
        int               ranks, chunks;
        int64_t           micro_batches;
        bool              v, parts;
        tm_pipeline_order order; /* TM_PIPELINE_LISTED: none of ours */
    } files[] = {
        { "Interleaved1F1B-2x2-4", 2, 2, 4, false, false, TM_PIPELINE_INTERLEAVED },
        { "Interleaved1F1B-4x2-8", 4, 2, 8, false, false, TM_PIPELINE_INTERLEAVED },
        { "InterleavedZeroBubble-2x2-4", 2, 2, 4, false, true, TM_PIPELINE_LISTED },
        { "InterleavedZeroBubble-4x1-8", 4, 1, 8, false, true, TM_PIPELINE_INTERLEAVED_ZERO },
        { "LoopedBFS-2x2-4", 2, 2, 4, false, false, TM_PIPELINE_LISTED },
        { "LoopedBFS-3x1-5", 3, 1, 5, false, false, TM_PIPELINE_LISTED },
        { "ZBVZeroBubble-2x2-4", 2, 2, 4, true, true, TM_PIPELINE_ZBV },
        { "ZBVZeroBubble-4x2-8", 4, 2, 8, true, true, TM_PIPELINE_ZBV },
        { "DualPipeV-2x2-6", 2, 2, 6, true, true, TM_PIPELINE_DUAL_V },
        { "DualPipeV-3x2-7", 3, 2, 7, true, true, TM_PIPELINE_DUAL_V },
        { "DualPipeV-4x2-10", 4, 2, 10, true, true, TM_PIPELINE_DUAL_V },
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        tm_arena               *arena = tm_arena_create();
        const tm_pipeline_list *list = read_list(files[i].name, files[i].ranks, arena);
        tm_pipeline             own = { files[i].order, list->ranks, list->chunks, list->micro_batches, NULL };
        assert_int_equal(list->chunks, files[i].chunks);
        assert_int_equal(list->micro_batches, files[i].micro_batches);
        assert_true(list->v == files[i].v && list->parts == files[i].parts);
        for (int r = 0; r < list->ranks && own.order != TM_PIPELINE_LISTED; r++) {
            size_t              n;
            tm_pipeline_action *actions = tm_pipeline_actions(&own, r, &n);
            assert_int_equal(n, list->n[r]);
            for (size_t k = 0; k < n; k++)
                if (actions[k].kind != list->actions[r][k].kind || actions[k].chunk != list->actions[r][k].chunk ||
                    actions[k].micro_batch != list->actions[r][k].micro_batch)
                    fail_msg("%s: rank %d, action %d differs", files[i].name, r, (int)k + 1);
            free(actions);
        }
        tm_arena_destroy(arena);
    }
}

TEST(wrong_files_are_refused)
{
#define SECOND "1F0,1B0,1F1,1B1\n"
    static const char *const cases[][2] = {
        { "0F0,0X1\n" SECOND, "x.csv: row 1 (rank 0), column 2: '0X1' is not an action; wanted a stage, F, B, I or W" },
        { "0F0,0F12345678\n" SECOND, "column 2: '0F12345678' is not an action" },
        { "0F0,0F1,0B0,0B1\n1F0,1B0,(1F1;1B1)\n", "row 2 (rank 1), column 3: '(1F1;1B1)' is not an action" },
        { "0F0,0F1,(0B0;0B)OVERLAP_F_B,0B1\n" SECOND, "column 3: '(0B0;0B)OVERLAP_F_B' is not an action" },
        { "0F0,\"0F1\n\",0B0,0B1\n" SECOND, "row 1 (rank 0), column 2: '0F1\n' is not an action" },
        { "0F0,(0F1;0B0xOVERLAP_F_B,0B1\n" SECOND, "column 2: '(0F1;0B0xOVERLAP_F_B' is not an action" },
        { "0F0,2F0,2B0,0B0\n3F0,1F0,1B0,3B0\n",
          "row 2 (rank 1), column 1: '3F0' comes where rank 0 gives what '0F0' made (row 1, column 1)" },
        { "0F0,2F0,2B0,0B0\n1F0,3F0,1B0,3B0\n",
          "row 1 (rank 0), column 3: '2B0' comes where rank 1 gives what '1B0' made (row 2, column 3)" },
        { "0F0,0SEND_F0\n" SECOND, "column 2: '0SEND_F0' is an action of the format compute_comms; write the file" },
        { "0REDUCE_GRAD\n" SECOND, "column 1: '0REDUCE_GRAD' is an action of the format compute_comms" },
        { "0F0,0F1,0B0,0B1\n", "x.csv has 1 rows, one for each rank, and the pipeline has 2 ranks" },
        { "0F0,0F1,0B0,0B1\n" SECOND "2F0\n", "x.csv: row 3: there is a row for each rank, and the pipeline has 2" },
        { ",,,\n" SECOND, "x.csv: row 1 (rank 0) has no actions" },
        { "0F0,0F1,0B0,0B1,2F0\n" SECOND, "column 5: '2F0' makes 3 stages, which 2 ranks cannot have equally many of" },
        { "0F0,0B0\n2F0,1F0\n", "row 2 (rank 1), column 1: '2F0' makes 3 stages" },
        { "65F0\n" SECOND, "column 1: '65F0' makes 66 stages, which 2 ranks cannot have equally many of, 32 at most" },
        { "63F0\n" SECOND, "row 1 (rank 0), column 1: '63F0' is of stage 63, which lies on rank 1" },
        { SECOND "0F0,0F1,0B0,0B1\n",
          "row 1 (rank 0), column 1: '1F0' is of stage 1, which lies on rank 1: stages lie in a loop" },
        { "0F0,1F0,1B0,0B0\n2F0,3F0,3B0,2B0\n", "row 1 (rank 0), column 2: '1F0' is of stage 1, which lies on rank 1: "
                                                "stages lie in a V" },
        { "0F0,0F0,0B0,0B1\n" SECOND, "column 2: '0F0' comes again: what it does is done in column 1" },
        { "0F0,0F1,0B0,0B1,0I1\n" SECOND, "column 5: '0I1' comes again: what it does is done in column 4" },
        { "0F0,0F1,0I0,0W0,0B1,0W1\n" SECOND, "column 6: '0W1' comes again: what it does is done in column 5" },
        { "0F0,0F1,0I0,0B0,0W0,0B1\n" SECOND, "column 4: '0B0' comes again: what it does is done in column 3" },
        { "0F0,0B0,0B1\n" SECOND, "column 3: '0B1' comes before the forward of its micro-batch (0F1)" },
        { "0F0,0F1,0W0,0I0,0B1\n" SECOND, "column 3: '0W0' comes before the gradients of the inputs (0I0)" },
        { "0F0,0B0\n" SECOND, "row 1 (rank 0) lacks the forward of micro-batch 1 of stage 0 (0F1)" },
        { "0F0,0F1,0B0\n" SECOND, "row 1 (rank 0) lacks the backward of micro-batch 1 of stage 0 (0B1)" },
        { "0F0,0F1,0I0,0I1,0W0\n" SECOND, "lacks the gradients of weights of micro-batch 1 of stage 0 (0W1)" },
        { "0F0,0F1,0B0,0B1\n1F9\n", "row 1 (rank 0) lacks the forward of micro-batch 2 of stage 0 (0F2)" },
        { "0F0,0F1,0B0,0B1\n1F0,1B0,1F1\n", "row 2 (rank 1) lacks the backward of micro-batch 1 of stage 1 (1B1)" },
        { "0F0,0F1,0B0,0B1\n1F0,1I0,1F1,1I1,1W1,1W0\n", "row 2 (rank 1), column 5: '1W1' are the first gradients of "
                                                        "weights of stage 1; they must be of micro-batch 0" },
        { "0F0,0F9999999,0B0\n" SECOND, "row 1 (rank 0) lacks the forward of micro-batch 1 of stage 0 (0F1)" },
        { "0F0,0F1,0I0,0I1,0W1,0W0\n" SECOND,
          "column 5: '0W1' are the first gradients of weights of stage 0; they must be of micro-batch 0" },
        { "0F0,0F1,0B0,0B1\n1F1,1F0,1B0,1B1\n",
          "row 2 (rank 1), column 1: '1F1' comes where rank 0 gives what '0F0' made (row 1, column 1)" },
        { "0F0,0F1,0B1,0B0\n" SECOND,
          "row 1 (rank 0), column 3: '0B1' comes where rank 1 gives what '1B0' made (row 2, column 2)" },
        { "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n",
          "row 1 (rank 0), column 2: '0B0' waits for ever for stage 1, whose rank waits for this one" },
        { "3F0,0F0,0B0,3B0\n1F0,2F0,2B0,1B0\n", "row 1 (rank 0), column 1: '3F0' waits for ever for stage 2" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tm_arena               *arena = tm_arena_create();
        const tm_pipeline_list *list;
        assert_refused(pipeline_file_parse(cases[i][0], "x.csv", 2, arena, &list, err), TM_INVALID, cases[i][1]);
        tm_arena_destroy(arena);
    }
}

/* Where any backward is parted, a whole one gives the gradients of its inputs before those of its weights. */
TEST(parted_backwards_are_sent_early)
{
    static const struct {
        const char *text;
        double      back; /* when the first rank begins with its backward */
    } cases[] = { { "0F0,0B0\n1F0,1B0\n", 4 }, { "0F0,0I0,0W0\n1F0,1B0\n", 3 } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tm_arena               *arena = tm_arena_create();
        const tm_pipeline_list *list;
        tm_pipeline_times       times;
        assert_ok(pipeline_file_parse(cases[i].text, "x.csv", 2, arena, &list, err));
        tm_pipeline p = { TM_PIPELINE_LISTED, list->ranks, list->chunks, list->micro_batches, list };
        tm_pipeline_simulate(&p, &(tm_pipeline_costs){ 1, 1, 1 }, &times);
        assert_float_equal(times.begin[0][1], cases[i].back, 1e-12);
        tm_pipeline_times_fini(&times);
        tm_arena_destroy(arena);
    }
}
