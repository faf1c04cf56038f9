/* SPDX-License-Identifier: Apache-2.0 */
/* Loaders that share batches: whatever the source and however many ranks there are, together they read what one loader
 * reads, in its order; a run may go on with another number of ranks. */
#include "data/source.h"
#include "support/folder.h"
#include "support/source_files.h"

#include <string.h>

#include "support/test.h"

enum { BATCH = 12, T = TEST_SOURCE_T, SETS = 12 };

/* --- one of every source ------------------------------------------------------------------------------------------ */

static tm_source_options options_of(int set)
{
    const tm_source_options sets[SETS] = {
        { .name = "synthetic", .vocab = 64, .seq = T, .seed = 8 },
        { .name = "mock", .vocab = 64, .seq = T, .seed = 8 },
        { .name = "text", .path = test_in_folder("text.txt"), .seq = T, .seed = 8, .validation_fraction = 0.2 },
        { .name = "text", .path = test_in_folder("text.txt"), .seq = T, .seed = 8, .separate = true },
        { .name = "reports", .vocab = 64, .seq = 4 * T, .seed = 8 },
        { .name = "govreport", .path = test_in_folder("train.npy"), .vocab = 50, .seq = T, .seed = 3, .pad_token = 9 },
        { .name = "megatron", .path = test_in_folder("set"), .vocab = 50, .seq = T, .seed = 3, .samples = 8 },
        { .name = "sft", .path = test_in_folder("rows.jsonl"), .seq = T, .vocab = 257, .seed = 3 },
        { .name = "sft", .path = test_in_folder("rows.jsonl"), .seq = T, .vocab = 257, .seed = 3, .sft.packed = true },
        { .name = "preference", .path = test_in_folder("pairs.jsonl"), .seq = 2 * T, .seed = 3, .sft.packed = true },
        { .name = "gaussians", .seq = 18, .seed = 7, .flow = test_source_flow },
        { .name = "latents", .path = test_in_folder("images"), .seq = 18, .seed = 7, .flow = test_source_flow },
    };
    return sets[set];
}

static tm_source *open_set(int set)
{
    const tm_source_options o = options_of(set);
    tm_source              *source = NULL;
    tm_error                err = { 0 };
    if (tm_source_open(&o, &source, &err) != TM_OK) fail_msg("%s: %s", o.name, err.text);
    return source;
}

static int write_files(void **state)
{
    (void)state;
    test_source_files_write();
    return 0;
}

/* Bytes of a sample by field; how many fields. */
static int fields_of(int set, size_t bytes[TM_MAX_FIELDS])
{
    const tm_source_options o = options_of(set);
    tm_field                fields[TM_MAX_FIELDS];
    int                     n = 0;
    tm_error                err = { 0 };
    assert_int_equal(tm_source_fields(&o, fields, &n, &err), TM_OK);
    for (int f = 0; f < n; f++) bytes[f] = tm_tensor_bytes(fields[f].shape, fields[f].dtype);
    return n;
}

/* --- tests -------------------------------------------------------------------------------------------------------- */

/* `batches` of all ranks' loaders beside those of one that reads all. */
static void compare(int set, tm_source *source, tm_split split, int64_t ranks, int64_t first, int batches)
{
    size_t     bytes[TM_MAX_FIELDS];
    int        n = fields_of(set, bytes);
    tm_loader *all = tm_loader_open(source, split, BATCH, first, 1), *own[BATCH];
    for (int64_t r = 0; r < ranks; r++)
        own[r] = tm_loader_open_part(source, split, BATCH, (tm_loader_part){ r, ranks }, first, (int)(r % 3));
    for (int i = 0; i < batches; i++) {
        tm_batch whole, part;
        int64_t  targets = 0, rows = BATCH / ranks;
        tm_loader_next(all, &whole);
        assert_null(whole.error);
        for (int64_t r = 0; r < ranks; r++) {
            tm_loader_next(own[r], &part);
            targets += part.target_tokens;
            for (int f = 0; f < n; f++)
                if (memcmp(part.field[f], (char *)whole.field[f] + (size_t)(r * rows) * bytes[f],
                           (size_t)rows * bytes[f]) != 0)
                    fail_msg("set %d, batch %d, field %d: rank %d of %d reads something else", set, i, f, (int)r,
                             (int)ranks);
            assert_int_equal(tm_loader_consumed(own[r]), tm_loader_consumed(all));
        }
        assert_int_equal(targets, whole.target_tokens);
    }
    for (int64_t r = 0; r < ranks; r++) tm_loader_close(own[r]);
    tm_loader_close(all);
}

TEST(ranks_together_read_what_one_reads)
{
    for (int set = 0; set < SETS; set++) {
        tm_source *source = open_set(set);
        for (int64_t ranks = 1; ranks <= BATCH; ranks++)
            if (BATCH % ranks == 0) compare(set, source, TM_SPLIT_TRAIN, ranks, ranks * BATCH, 3);
        if (tm_source_describe(source)->validation_samples > 0) compare(set, source, TM_SPLIT_VALIDATION, 4, 0, 6);
        tm_source_close(source);
    }
}

/* The hashes that a loader gives are those of its different samples: equal samples, equal hashes, on whichever rank. */
TEST(hashes_tell_samples_apart_on_all_ranks)
{
    static uint64_t      hashes[3][TM_LOADER_WATCHED];
    int64_t              seen[3], unique[3];
    tm_source           *source = open_set(0);
    const tm_loader_part parts[3] = { { 0, 2 }, { 1, 2 }, { 0, 1 } };
    for (int i = 0; i < 3; i++) {
        tm_batch   batch;
        tm_loader *loader = tm_loader_open_part(source, TM_SPLIT_TRAIN, BATCH, parts[i], 0, 0);
        for (int k = 0; k < 4; k++) tm_loader_next(loader, &batch);
        tm_loader_unique(loader, &seen[i], &unique[i], hashes[i]);
        tm_loader_close(loader);
    }
    assert_true(seen[0] == 2 * BATCH && seen[1] == 2 * BATCH && seen[2] == 4 * BATCH);
    assert_true(unique[0] == 2 * BATCH && unique[1] == 2 * BATCH && unique[2] == 4 * BATCH);
    for (int i = 0; i < 2; i++)
        for (int64_t k = 0; k < unique[i]; k++) {
            int found = 0, other = 0;
            for (int64_t m = 0; m < unique[2]; m++) found += hashes[2][m] == hashes[i][k];
            for (int64_t m = 0; m < unique[1 - i]; m++) other += hashes[1 - i][m] == hashes[i][k];
            assert_true(hashes[i][k] != 0 && found == 1 && other == 0);
        }
    tm_source_close(source);
}

TEST_FIXTURE(write_files, test_folder_teardown)
