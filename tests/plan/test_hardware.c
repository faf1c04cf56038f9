/* SPDX-License-Identifier: Apache-2.0 */
/* Hardware files: those that are built in, a file written and read again, data sheets, and files that are wrong. */
#include "support/test.h"

#include "base/file.h"
#include "gpu/platform.h"
#include "plan/hardware.h"
#include "support/folder.h"

static tm_hardware read_good(tm_arena *arena, const char *name)
{
    tm_hardware hw;
    tm_error    err = { 0 };
    if (tm_hardware_read(arena, name, &hw, &err) != TM_OK) fail_msg("%s: %s", name, err.text);
    return hw;
}

/* Every number has a source; and the same numbers and sources again. */
TEST(all_files_are_read_and_printed)
{
    tm_arena   *arena = tm_arena_create();
    const char *name;
    size_t      n = 0;
    for (; (name = tm_hardware_name(arena, n)) != NULL; n++) {
        tm_hardware          hw = read_good(arena, name);
        tm_text              text = { 0 };
        const tm_hardware_op ops[] = { { "linear", 1.5, 0.1, 30, "measured" },
                                       { "gelu.bfloat16", 0, 0, 12.25, "a \"quoted\" one" } };
        assert_string_equal(hw.name, name);
        for (int i = 0; i < TM_HARDWARE_NUMBERS; i++)
            if ((hw.number[i] > 0) != (hw.source[i] != NULL)) fail_msg("%s: number %d lacks source or value", name, i);
        if (n % 2) hw.op = ops, hw.n_ops = 2;
        hw.source[TM_HARDWARE_MEMORY] = "a \"quoted\" \\ source: # no remark\n\tin two lines";
        tm_hardware_print(&hw, &text);
        const char *path = test_in_folder("again.yaml");
        assert_ok(tm_file_write(path, text.data, text.length, err));
        tm_hardware again = read_good(arena, path);
        assert_memory_equal(hw.number, again.number, sizeof hw.number);
        for (int i = 0; i < TM_HARDWARE_NUMBERS; i++)
            if (hw.source[i]) assert_string_equal(hw.source[i], again.source[i]);
        assert_int_equal(hw.n_ops, again.n_ops);
        for (size_t i = 0; i < hw.n_ops; i++) {
            assert_string_equal(again.op[i].name, ops[i].name);
            assert_string_equal(again.op[i].source, ops[i].source);
            assert_true(again.op[i].call == ops[i].call && again.op[i].flops == ops[i].flops);
            assert_true(again.op[i].bytes == ops[i].bytes);
        }
        assert_int_equal(hw.links, again.links);
        assert_int_equal(hw.cpu, again.cpu);
        tm_text_fini(&text);
    }
    assert_true(n >= 11);
    tm_arena_destroy(arena);
}

/* src/gpu/platform.c has the same data sheets. */
TEST(they_agree_with_data_sheets)
{
    tm_arena *arena = tm_arena_create();
    int       same = 0;
    for (size_t i = 0; tm_gpu_sheet_at(i); i++) {
        const tm_gpu_sheet *sheet = tm_gpu_sheet_at(i);
        tm_hardware         hw;
        tm_error            err = { 0 };
        if (tm_hardware_read(arena, sheet->name, &hw, &err) != TM_OK) continue;
        const double pairs[][2] = { { hw.number[TM_HARDWARE_PEAK_F32], sheet->tflops_f32 },
                                    { hw.number[TM_HARDWARE_PEAK_BF16], sheet->tflops_bf16 },
                                    { hw.number[TM_HARDWARE_PEAK_FP8], sheet->tflops_fp8 },
                                    { hw.number[TM_HARDWARE_PEAK_FP4], sheet->tflops_fp4 },
                                    { hw.number[TM_HARDWARE_MEMORY], (double)sheet->memory_bytes / 0x1p30 } };
        for (size_t k = 0; k < sizeof pairs / sizeof pairs[0]; k++)
            if (fabs(pairs[k][0] - pairs[k][1]) > 0.002 * pairs[k][1])
                fail_msg("%s: number %zu is %g, and %g in the data sheet", sheet->name, k, pairs[k][0], pairs[k][1]);
        if (sheet->mhz) assert_float_equal(hw.number[TM_HARDWARE_CLOCK], (double)sheet->mhz, 0);
        assert_string_equal(hw.arch, sheet->arch);
        same++;
    }
    assert_true(same >= 11);
    tm_arena_destroy(arena);
}

static const char good[] = "name: X\nmaker: Y\narch: gfx942\nkind: gpu\nlinks: mesh\n"
                           "units: { value: 4, source: s }\nmemory: { value: 4, source: s }\n"
                           "memory_rate: { value: 4, source: s }\nmemory_share: { value: 0.5, source: s }\n"
                           "peak_f32: { value: 4, source: s }\npeak_bf16: { value: 8, source: s }\n"
                           "product_bf16: { value: 4, source: s }\nhalf_depth: { value: 4, source: s }\n"
                           "tile_rows: { value: 4, source: s }\ntile_columns: { value: 4, source: s }\n"
                           "attention_forward: { value: 4, source: s }\nattention_backward: { value: 4, source: s }\n"
                           "launch: { value: 4, source: s }\nlink_devices: { value: 8, source: s }\n"
                           "link_rate: { value: 4, source: s }\nlink_share: { value: 0.5, source: s }\n"
                           "link_delay: { value: 4, source: s }\n";

/* The next part of a line, which ends at `mark`; "\\n" in it become line feeds. */
static char *part_of(char **rest, const char *mark)
{
    char *part = *rest, *end = strstr(part, mark), *to = part;
    if (!end) fail_msg("no '%s' in: %s", mark, part);
    *rest = end + strlen(mark);
    *end = '\0';
    for (char *at = part; *at; at++) {
        bool feed = at[0] == '\\' && at[1] == 'n';
        *to++ = feed ? '\n' : *at;
        at += feed;
    }
    *to = '\0';
    return part;
}

TEST(wrong_files_are_refused)
{
    tm_arena   *arena = tm_arena_create();
    const char *path = test_in_folder("wrong.yaml");
    tm_hardware hw;
    tm_text     table = { 0 };
    int         n = 0;
    assert_int_equal(tm_file_read("tests/plan/wrong_hardware.txt", 1 << 20, &table, NULL), TM_OK);
    for (char *lines = table.data, *line; (line = strsep(&lines, "\n"));) {
        if (*line == '#' || !*line) continue;
        tm_text     text = { 0 };
        tm_error    err = { 0 };
        const char *was = part_of(&line, " -> "), *is = part_of(&line, " ! "), *at = strstr(good, was);
        assert_non_null(at);
        tm_text_printf(&text, "%.*s%s%s", (int)(at - good), good, is, at + strlen(was));
        assert_int_equal(tm_file_write(path, text.data, text.length, &err), TM_OK);
        if (tm_hardware_read(arena, path, &hw, &err) != TM_FORMAT) fail_msg("'%s' is read", is);
        if (!strstr(err.text, line)) fail_msg("'%s' lacks '%s'", err.text, line);
        if (!strstr(err.text, path)) fail_msg("'%s' names no file", err.text);
        tm_text_fini(&text);
        n++;
    }
    assert_true(n > 35);
    tm_text_fini(&table);
    tm_error err = { 0 };
    assert_int_equal(tm_file_write(path, good, sizeof good - 1, &err), TM_OK);
    assert_int_equal(tm_hardware_read(arena, path, &hw, &err), TM_OK);
    assert_int_equal(tm_hardware_read(arena, "./nothing.yaml", &hw, &err), TM_INVALID);
    tm_arena_destroy(arena);
    test_folder_remove();
}

TEST(machines_are_counted)
{
    static const struct {
        const char *text;
        int         nodes, devices;
        const char *name;
        tm_status   status;
    } rows[] = {
        { "MI300X", 1, 1, "MI300X", TM_OK },
        { "8xmi300x", 1, 8, "MI300X", TM_OK },
        { "4x8xMI355X", 4, 8, "MI355X", TM_OK },
        { "18x72xGB200", 18, 72, "GB200", TM_OK },
        { "2xEPYC-9654", 1, 1, "2xEPYC-9654", TM_OK },
        { "4x1x2xEPYC-9654", 4, 1, "2xEPYC-9654", TM_OK },
        { "8xMI999", 0, 0, "", TM_INVALID },
        { "8x", 0, 0, "", TM_INVALID },
        { "0xMI300X", 0, 0, "", TM_USAGE },
        { "99xMI300X", 0, 0, "", TM_USAGE },
        { "1000000x8xMI300X", 0, 0, "", TM_USAGE },
        { "", 0, 0, "", TM_INVALID },
    };
    tm_arena *arena = tm_arena_create();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tm_machine_plan m;
        tm_error        err = { 0 };
        tm_status       st = tm_machine_plan_read(arena, rows[i].text, &m, &err);
        if (st != rows[i].status) fail_msg("'%s': status %d: %s", rows[i].text, (int)st, err.text);
        if (st != TM_OK) continue;
        assert_int_equal(m.nodes, rows[i].nodes);
        assert_int_equal(m.devices, rows[i].devices);
        assert_string_equal(m.device.name, rows[i].name);
    }
    tm_arena_destroy(arena);
}

/* A file that is being made lacks numbers; what is wrong in it is refused all the same. */
TEST(parts_are_read)
{
    static const char *const good_part = "name: X\nmaker: Y\nkind: cpu\nlinks: none\nunits: { value: 4, source: s }\n";
    static const char *const wrong_part = "name: X\nmaker: Y\nkind: cpu\nlinks: none\nunits: { value: 0, source: s }\n";
    tm_arena                *arena = tm_arena_create();
    const char              *path = test_in_folder("part.yaml");
    tm_hardware              hw;
    assert_int_equal(tm_file_write(path, good_part, strlen(good_part), NULL), TM_OK);
    assert_int_equal(tm_hardware_read_part(arena, path, &hw, NULL), TM_OK);
    assert_true(hw.number[TM_HARDWARE_UNITS] == 4 && hw.cpu);
    assert_int_equal(tm_hardware_read(arena, path, &hw, NULL), TM_FORMAT);
    assert_int_equal(tm_file_write(path, wrong_part, strlen(wrong_part), NULL), TM_OK);
    assert_int_equal(tm_hardware_read_part(arena, path, &hw, NULL), TM_FORMAT);
    tm_arena_destroy(arena);
}

/* --- the page -------------------------------------------------------------------------------------------------- */

typedef struct {
    const char *key, *unit, *help;
    bool        gpu, cpu;
} number_row;
static const number_row numbers[] = {
#define X(id, key, unit, gpu, cpu, help) { key, unit, help, gpu, cpu },
    TM_HARDWARE_LIST(X)
#undef X
};

static const char *needed(const number_row *row)
{
    return row->gpu && row->cpu ? "yes" : row->gpu ? "of a GPU" : row->cpu ? "of a CPU" : "";
}

/* docs/hardware-files.md ends with the table of the numbers. TM_UPDATE_DOCS=1 writes it. */
TEST(page)
{
    static const char title[] = "## Numbers\n";
    tm_text           have = { 0 }, want = { 0 };
    assert_int_equal(tm_file_read("docs/hardware-files.md", 1 << 20, &have, NULL), TM_OK);
    char *at = strstr(have.data, title);
    assert_non_null(at);
    tm_text_add(&want, title);
    tm_text_add(&want, "\n| key | unit | needed | |\n|---|---|---|---|\n");
    for (int i = 0; i < TM_HARDWARE_NUMBERS; i++)
        tm_text_printf(&want, "| `%s` | %s | %s | %s |\n", numbers[i].key, numbers[i].unit, needed(&numbers[i]),
                       numbers[i].help);
    if (getenv("TM_UPDATE_DOCS")) {
        tm_text whole = { 0 };
        tm_text_add_n(&whole, have.data, (size_t)(at - have.data));
        tm_text_add(&whole, want.data);
        assert_int_equal(tm_file_write("docs/hardware-files.md", whole.data, whole.length, NULL), TM_OK);
        tm_text_fini(&whole);
    } else if (strcmp(at, want.data) != 0) {
        fail_msg("docs/hardware-files.md is out of date; run this test with TM_UPDATE_DOCS=1");
    }
    tm_text_fini(&have);
    tm_text_fini(&want);
}

TEST_FIXTURE(NULL, test_folder_teardown)
