/* SPDX-License-Identifier: Apache-2.0 */
#include "support/source_files.h"

#include "support/test.h"

#include "data/indexed.h"
#include "data/packed.h"
#include "data/safetensors.h"
#include "support/folder.h"
#include "support/full_config.h"

const tm_flow_options test_source_flow = TEST_SOURCE_FLOW;

static void write_text(void)
{
    tm_text text = { 0 };
    for (int i = 0; i < 300; i++) tm_text_printf(&text, "line %d of a text that is long enough\n", i * i);
    test_file_write(test_folder(), "text.txt", text.data);
    text.length = 0;
    for (int i = 0; i < 23; i++)
        tm_text_printf(&text, "{\"prompt\": \"%d+%d=\", \"completion\": \"%d\"}\n", i, i * i, i + i * i);
    test_file_write(test_folder(), "rows.jsonl", text.data);
    text.length = 0;
    for (int i = 0; i < 23; i++)
        tm_text_printf(&text, "{\"prompt\": \"%d+%d=\", \"chosen\": \"%d\", \"rejected\": \"%d\"}\n", i, i, 2 * i, i);
    test_file_write(test_folder(), "pairs.jsonl", text.data);
    tm_text_fini(&text);
}

static void write_packed(void)
{
    int32_t ids[TEST_SOURCE_ROWS * TEST_SOURCE_T];
    uint8_t masks[TEST_SOURCE_ROWS * TEST_SOURCE_T];
    for (int i = 0; i < TEST_SOURCE_ROWS * TEST_SOURCE_T; i++) ids[i] = i % 50;
    for (int i = 0; i < TEST_SOURCE_ROWS * TEST_SOURCE_T; i++) masks[i] = i % 5 != 0;
    assert_ok(tm_packed_write(test_in_folder("train.npy"), TEST_SOURCE_ROWS, TEST_SOURCE_T, ids, masks, err));
}

static void write_indexed(void)
{
    tm_indexed_writer writer;
    assert_ok(tm_indexed_begin(test_in_folder("set"), false, &writer, err));
    for (int32_t d = 0, token = 0; d < 9; d++) {
        for (int32_t t = 0; t < 20 + 7 * d; t++, token++) tm_indexed_add(&writer, &(int32_t){ token % 50 }, 1);
        tm_indexed_end_document(&writer);
    }
    assert_ok(tm_indexed_finish(&writer, err));
}

static void write_latents(void)
{
    const tm_tensor_heading headings[] = {
        { .name = "latents", .dtype = TM_F32, .rank = 3, .n = { TEST_SOURCE_ROWS, 16, 8 } },
        { .name = "pooled", .dtype = TM_F32, .rank = 2, .n = { TEST_SOURCE_ROWS, 5 } },
        { .name = "text", .dtype = TM_F32, .rank = 3, .n = { TEST_SOURCE_ROWS, 2, 6 } },
    };
    tm_safetensors_writer *writer;
    assert_int_equal(mkdir(test_in_folder("images"), 0700), 0);
    assert_ok(tm_safetensors_create(test_in_folder("images/a.safetensors"), headings, 3, NULL, &writer, err));
    for (int i = 0; i < TEST_SOURCE_ROWS * (128 + 5 + 12); i++)
        tm_safetensors_write(writer, &(float){ (float)i / 100 }, 4);
    assert_ok(tm_safetensors_finish(writer, err));
}

/* Orders of two stages, or four, and three micro-batches: a loop whose backwards are whole and parted in turn, and a V
 * of whole ones. */
static void write_orders(void)
{
    test_file_write(test_folder(), "loop.csv", "0F0,0F1,,0I0,0W0,0B1,0F2,0B2\n1F0,1B0,1F1,1I1,1W1,1F2,1B2\n");
    test_file_write(
        test_folder(), "v.csv",
        "0F0,0F1,3F0,3B0,3F1,3B1,0B0,0B1,0F2,3F2,3B2,0B2\n1F0,2F0,1F1,2F1,2B0,1B0,2B1,1B1,1F2,2F2,2B2,1B2\n");
}

void test_source_files_write(void)
{
    write_orders();
    write_text();
    write_packed();
    write_indexed();
    write_latents();
}
