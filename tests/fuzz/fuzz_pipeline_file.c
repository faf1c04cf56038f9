/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the order of a pipeline in a file: what is accepted has every micro-batch of every stage once each way, and
 * can be run by ranks that wait for each other. */
#include "fuzz.h"

#include "train/pipeline/file.h"

#include <math.h>

static void check(const tm_pipeline_list *list)
{
    tm_pipeline       p = { .order = TM_PIPELINE_LISTED,
                            .ranks = list->ranks,
                            .chunks = list->chunks,
                            .micro_batches = list->micro_batches,
                            .list = list };
    tm_pipeline_times times;
    tm_error          err = { 0 };
    tm_text           grid = { 0 };
    int64_t           all = list->chunks * list->micro_batches;
    TM_ASSERT(tm_pipeline_check(&p, &err) == TM_OK);
    tm_pipeline_simulate(&p, &(tm_pipeline_costs){ 1, 1, 1 }, &times);
    TM_ASSERT(!isnan(times.end));
    for (int r = 0; r < list->ranks; r++) {
        int64_t done[4] = { 0 };
        for (size_t k = 0; k < list->n[r]; k++) {
            TM_ASSERT(list->actions[r][k].chunk < list->chunks);
            TM_ASSERT(list->actions[r][k].micro_batch < list->micro_batches);
            done[list->actions[r][k].kind]++;
        }
        TM_ASSERT(done[TM_DO_FORWARD] == all && done[TM_DO_BACKWARD] + done[TM_DO_INPUT] == all);
        TM_ASSERT(done[TM_DO_INPUT] == done[TM_DO_WEIGHT]);
    }
    tm_pipeline_times_fini(&times);
    tm_pipeline_print(&p, 100, &grid);
    TM_ASSERT(strstr(grid.data, "rank 0"));
    tm_text_fini(&grid);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (int ranks = 1; ranks <= 4; ranks++) {
        const tm_pipeline_list *list;
        tm_text                 text = { 0 };
        tm_arena               *arena = tm_arena_create();
        tm_error                err = { 0 };
        tm_text_add(&text, "");
        tm_text_add_n(&text, (const char *)data, size);
        tm_status st = pipeline_file_parse(text.data, "x.csv", ranks, arena, &list, &err);
        fuzz_told(st, &err, "x.csv");
        if (st == TM_OK) check(list);
        tm_arena_destroy(arena);
        tm_text_fini(&text);
    }
    return 0;
}
