/* SPDX-License-Identifier: Apache-2.0 */
/* Orders from files: those of PyTorch are read, what is wrong with a file is told with row and column. (They run in
 * tests/differential.) */
#include "support/test.h"
#include "ranks_fixture.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "train/pipeline/file.h"
#include "train/run/run.h"

#include <unistd.h>

#define FOLDER "tests/train/fixtures/schedules/"

static const tm_pipeline_list *read_list(const char *name, int ranks, tm_arena *arena)
{
    char                    path[200];
    tm_error                err = { 0 };
    const tm_pipeline_list *list;
    snprintf(path, sizeof path, FOLDER "%s.csv", name);
    if (pipeline_file_read(path, ranks, arena, &list, &err) != TM_OK) fail_msg("%s", err.text);
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

/* Blanks, line ends, empty cells and rows behind the last one mean nothing. */
TEST(spaces_do_not_count)
{
    const tm_pipeline_list *list;
    tm_arena               *arena = tm_arena_create();
    tm_error                err = { 0 };
    assert_int_equal(
        pipeline_file_parse(",0F0, 0F1 ,,0B0,\"0B1\",,\r\n1F0,\t( 1F1 ;\t1B0 )OVERLAP_F_B \t,,1B1\r\n\r\n \n", "x.csv",
                            2, arena, &list, &err),
        TM_OK);
    assert_string_equal(list->file, "x.csv");
    assert_int_equal(list->n[0], 4);
    assert_int_equal(list->n[1], 4);
    assert_int_equal(list->actions[1][1].micro_batch, 1);
    assert_int_equal(list->actions[1][2].kind, TM_DO_BACKWARD);
    const tm_pipeline_list *same, *other;
    assert_int_equal(pipeline_file_parse("0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n", "y.csv", 2, arena, &same, &err), TM_OK);
    assert_int_equal(pipeline_file_parse("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", "x.csv", 2, arena, &other, &err), TM_OK);
    assert_true(same->hash == list->hash && other->hash != list->hash);
    tm_arena_destroy(arena);
}

TEST(wrong_files_are_refused)
{
#define SECOND "1F0,1B0,1F1,1B1\n"
    static const char *const cases[][2] = {
        { "0F0,0X1\n" SECOND, "x.csv: row 1 (rank 0), column 2: '0X1' is not an action; wanted a stage, F, B, I or W" },
        { "0F0,0F1,0B0,0B\n" SECOND, "row 1 (rank 0), column 4: '0B' is not an action" },
        { "0F0,0F12345678\n" SECOND, "column 2: '0F12345678' is not an action" },
        { "0F0,0F1,0B0,0B1\n1F0,1B0,(1F1;1B1)\n", "row 2 (rank 1), column 3: '(1F1;1B1)' is not an action" },
        { "0F0,0F1,(0B0;0B)OVERLAP_F_B,0B1\n" SECOND, "column 3: '(0B0;0B)OVERLAP_F_B' is not an action" },
        { "0F0,\"0F1\n\",0B0,0B1\n" SECOND, "row 1 (rank 0), column 2: '0F1\n' is not an action" },
        { "0F0,F1\n" SECOND, "row 1 (rank 0), column 2: 'F1' is not an action" },
        { "0F0,12345678F1\n" SECOND, "row 1 (rank 0), column 2: '12345678F1' is not an action" },
        { "0F0,1\n" SECOND, "row 1 (rank 0), column 2: '1' is not an action" },
        { "0F0,(0F1;0B0xOVERLAP_F_B,0B1\n" SECOND, "column 2: '(0F1;0B0xOVERLAP_F_B' is not an action" },
        { "0F0,(0F1;0B0)OVERLAP_F_Bx,0B1\n" SECOND, "column 2: '(0F1;0B0)OVERLAP_F_Bx' is not an action" },
        { "0F0,2F0,2B0,0B0\n3F0,1F0,1B0,3B0\n",
          "row 2 (rank 1), column 1: '3F0' comes where rank 0 gives what '0F0' made (row 1, column 1)" },
        { "0F0,2F0,2B0,0B0\n1F0,3F0,1B0,3B0\n",
          "row 1 (rank 0), column 3: '2B0' comes where rank 1 gives what '1B0' made (row 2, column 3)" },
        { "0F0,0SEND_F0\n" SECOND, "column 2: '0SEND_F0' is an action of the format compute_comms; write the file" },
        { "0F0,(0F1;0B0)OVERLAP_X_B,0B1\n" SECOND, "column 2: '(0F1;0B0)OVERLAP_X_B' is not an action" },
        { "0RECV_F0\n" SECOND, "column 1: '0RECV_F0' is an action of the format compute_comms" },
        { "0UNSHARD\n" SECOND, "column 1: '0UNSHARD' is an action of the format compute_comms" },
        { "0RESHARD\n" SECOND, "column 1: '0RESHARD' is an action of the format compute_comms" },
        { "0REDUCE_GRAD\n" SECOND, "column 1: '0REDUCE_GRAD' is an action of the format compute_comms" },
        { "0F0,0F1,0B0,0B1\n", "x.csv has 1 rows, one for each rank, and the pipeline has 2 ranks" },
        { "0F0,0F1,0B0,0B1\n" SECOND "2F0\n", "x.csv: row 3: there is a row for each rank, and the pipeline has 2" },
        { ",,,\n" SECOND, "x.csv: row 1 (rank 0) has no actions" },
        { "0F0,0F1,0B0,0B1,2F0\n" SECOND, "column 5: '2F0' makes 3 stages, which 2 ranks cannot have equally many of" },
        { "2F0\n" SECOND, "row 1 (rank 0), column 1: '2F0' makes 3 stages" },
        { "0F0,0B0\n2F0,1F0\n", "row 2 (rank 1), column 1: '2F0' makes 3 stages" },
        { "0F0,12F345\n" SECOND, "row 1 (rank 0), column 2: '12F345' makes 13 stages" },
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
        { "0F1,0B1\n" SECOND, "row 1 (rank 0) lacks the forward of micro-batch 0 of stage 0 (0F0)" },
        { "0F0,0F1,0B0,0B1\n1F0,1B0,1F1\n", "row 2 (rank 1) lacks the backward of micro-batch 1 of stage 1 (1B1)" },
        { "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1,1B1\n", "row 2 (rank 1), column 5: '1B1' comes again" },
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
        tm_error                err = { 0 };
        assert_int_equal(pipeline_file_parse(cases[i][0], "x.csv", 2, arena, &list, &err), TM_INVALID);
        if (!strstr(err.text, cases[i][1])) fail_msg("%d: '%s' does not say '%s'", (int)i, err.text, cases[i][1]);
        tm_arena_destroy(arena);
    }
    assert_int_equal(tm_status_exit_code(TM_INVALID), 4);
}

/* One rank passes nothing to itself; among three each has two neighbours; most rows and micro-batches that there can be
 * take no more memory than their actions. */
TEST(files_of_other_ranks)
{
    tm_arena               *arena = tm_arena_create();
    const tm_pipeline_list *list;
    tm_error                err = { 0 };
    tm_text                 most = { 0 };
    assert_int_equal(pipeline_file_parse("0F0,0F1,1F1,1F0,1B1,1B0,0B1,0B0\n", "x.csv", 1, arena, &list, &err), TM_OK);
    assert_true(!list->v && list->chunks == 2 && list->micro_batches == 2 && list->n[0] == 8);
    assert_int_equal(
        pipeline_file_parse("0F0,0F1,0B1,0B0\n1F0,1F1,1B0,1B1\n2F0,2B0,2F1,2B1\n", "x.csv", 3, arena, &list, &err),
        TM_INVALID);
    assert_non_null(strstr(err.text, "column 3: '0B1' comes where rank 1 gives what '1B0' made (row 2, column 3)"));
    err = (tm_error){ 0 };
    assert_int_equal(
        pipeline_file_parse("0F0,0F1,0B0,0B1\n1F1,1F0,1B0,1B1\n2F1,2F0,2B0,2B1\n", "x.csv", 3, arena, &list, &err),
        TM_INVALID);
    assert_non_null(strstr(err.text, "column 1: '1F1' comes where rank 0 gives what '0F0' made (row 1, column 1)"));
    err = (tm_error){ 0 };
    for (int r = 0; r < TM_PIPELINE_RANKS; r++)
        tm_text_printf(&most, "%dF0,%dF9999999\n", r, 31 * TM_PIPELINE_RANKS + r);
    assert_int_equal(pipeline_file_parse(most.data, "x.csv", TM_PIPELINE_RANKS, arena, &list, &err), TM_INVALID);
    assert_string_equal(err.text, "x.csv: row 1 (rank 0) lacks the backward of micro-batch 0 of stage 0 (0B0)");
    tm_text_fini(&most);
    tm_arena_destroy(arena);
}

/* No text, and one byte more than may be read. */
TEST(other_files_are_refused)
{
    const off_t most = 64 << 20;
    tm_arena   *arena = tm_arena_create();
    char        path[400], words[700];
    snprintf(path, sizeof path, "%s/x.csv", test_folder());
    FILE *made = fopen(path, "w");
    assert_non_null(made);
    for (off_t bytes = most; bytes <= most + 1; bytes++) {
        tm_error                err = { 0 };
        const tm_pipeline_list *list;
        assert_int_equal(ftruncate(fileno(made), bytes), 0);
        assert_int_equal(pipeline_file_read(path, 2, arena, &list, &err), TM_INVALID);
        if (bytes == most)
            snprintf(words, sizeof words, "%s is not a text file: it has a byte 0", path);
        else
            snprintf(words, sizeof words,
                     "'%s' has 67108865 bytes, more than the limit of 67108864; name a shorter file", path);
        assert_string_equal(err.text, words);
    }
    tm_error                err = { 0 };
    const tm_pipeline_list *list;
    assert_int_equal(ftruncate(fileno(made), 0), 0);
    assert_int_equal(pipeline_file_read(path, 2, arena, &list, &err), TM_INVALID);
    snprintf(words, sizeof words,
             "%s has 0 rows, one for each rank, and the pipeline has 2 ranks "
             "(parallelism.pipeline_parallel_degree)",
             path);
    assert_string_equal(err.text, words);
    fclose(made);
    tm_arena_destroy(arena);
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
        tm_error                err = { 0 };
        assert_int_equal(pipeline_file_parse(cases[i].text, "x.csv", 2, arena, &list, &err), TM_OK);
        tm_pipeline p = { TM_PIPELINE_LISTED, list->ranks, list->chunks, list->micro_batches, list };
        tm_pipeline_simulate(&p, &(tm_pipeline_costs){ 1, 1, 1 }, &times);
        assert_float_equal(times.begin[0][1], cases[i].back, 1e-12);
        tm_pipeline_times_fini(&times);
        tm_arena_destroy(arena);
    }
}

/* --- by key ------------------------------------------------------------------------------------------------------- */

static tm_status read_words(const char *words, tm_run_options *out, tm_error *err)
{
    tm_config *config = test_full_config();
    assert_int_equal(tm_config_apply_preset(config, "tiny-llama", err), TM_OK);
    test_apply_words(config, "--model.n_layers 8 --parallelism.ranks 2 --parallelism.pipeline_parallel_degree 2");
    test_apply_words(config, words);
    tm_status st = tm_config_finish(config, err);
    if (st == TM_OK) st = tm_run_options_read(config, out, err);
    tm_step   *step = NULL;
    tm_device *device = test_device_open("cpu", 1);
    tm_chooser chooser = tm_device_chooser(device);
    if (st == TM_OK) st = tm_step_create(&out->step, &chooser, &step, err);
    tm_step_destroy(step);
    tm_device_close(device);
    tm_config_destroy(config);
    return st;
}

#define CSV "--parallelism.pipeline_parallel_schedule_csv=" FOLDER "DualPipeV-2x2-6.csv "
#define SIX "--training.grad_accumulation 6 "

TEST(keys_name_the_file)
{
    static const char *const good[] = { SIX CSV,
                                        SIX CSV "--parallelism.pipeline_parallel_schedule=PipelineScheduleMulti",
                                        SIX CSV "--parallelism.pipeline_parallel_layers_per_stage=2" };
    static const char *const bad[][2] = {
        { CSV "--training.grad_accumulation 4", "DualPipeV-2x2-6.csv has 6 micro-batches, and a step has 4" },
        { SIX CSV "--parallelism.pipeline_parallel_layers_per_stage=4",
          "has 2 stages on each rank, and the model is cut into 1" },
        { SIX CSV "--parallelism.pipeline_parallel_schedule=GPipe", "GPipe (command line) has no effect beside" },
        { SIX "--parallelism.pipeline_parallel_schedule=PipelineScheduleMulti", "takes its order from a file; give" },
        { SIX "--parallelism.pipeline_parallel_schedule_csv=nowhere.csv", "nowhere.csv" },
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        tm_run_options o;
        tm_error       err = { 0 };
        if (read_words(good[i], &o, &err) != TM_OK) fail_msg("%s: %s", good[i], err.text);
        assert_int_equal(o.step.layout.order, TM_PIPELINE_LISTED);
        assert_int_equal(o.step.layout.chunks, 2);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tm_run_options o;
        tm_error       err = { 0 };
        assert_int_equal(tm_status_exit_code(read_words(bad[i][0], &o, &err)), 4);
        if (!strstr(err.text, bad[i][1])) fail_msg("'%s' does not say '%s'", err.text, bad[i][1]);
    }
}

TEST_FIXTURE(NULL, test_folder_teardown)
