/* SPDX-License-Identifier: Apache-2.0 */
/* Written lines, byte by byte, and that what is written reads back. */
#include "apps/mlperf/writer.h"

#include "base/random.h"
#include "apps/mlperf/log.h"

#include "support/test.h"

static void prints(double value, const char *wanted)
{
    tm_text text = { 0 };
    tm_mllog_print_f64(value, &text);
    assert_string_equal(text.data, wanted);
    tm_text_fini(&text);
}

TEST(numbers_print_as_in_python)
{
    prints(0, "0.0");
    prints(-0.0, "-0.0");
    prints(0.0001, "0.0001");
    prints(1e-5, "1e-05");
    prints(8e-5, "8e-05");
    prints(1e15, "1000000000000000.0");
    prints(1e16, "1e+16");
    prints(9999999999999998, "9999999999999998.0");
    prints(-1.5e300, "-1.5e+300");
    prints(5e-324, "5e-324");
    prints(1.7976931348623157e308, "1.7976931348623157e+308");
    prints((double)3.287375f, "3.287374973297119");
    prints((double)NAN, "NaN");
    prints((double)INFINITY, "Infinity");
    prints(-(double)INFINITY, "-Infinity");
    /* powers of two, where the nearest decimal of 16 digits is another double */
    prints(0x1p-24, "5.960464477539063e-08");
}

/* The shortest text that reads back: it does, and no shorter one does. */
TEST(any_number_reads_back)
{
    for (uint64_t i = 0; i < 20000; i++) {
        uint64_t bits = tm_random_u64(1, 2, i);
        double   value, back;
        char     shorter[40];
        tm_text  text = { 0 };
        if (i % 3 == 0) bits &= 0xFFF0000000000000u; /* a power of two */
        memcpy(&value, &bits, sizeof value);
        if (!isfinite(value)) continue;
        tm_mllog_print_f64(value, &text);
        back = strtod(text.data, NULL);
        assert_memory_equal(&back, &value, sizeof back);
        int digits = 0;
        for (const char *c = text.data; *c && *c != 'e'; c++) digits += *c >= '0' && *c <= '9';
        if (strchr(text.data, 'e') && digits > 1) {
            snprintf(shorter, sizeof shorter, "%.*e", digits - 2, value);
            back = strtod(shorter, NULL);
            assert_memory_not_equal(&back, &value, sizeof back);
        }
        tm_text_fini(&text);
    }
}

TEST(lines_of_public_logs)
{
    const char *const    source = "/workspace/code/src/callbacks.py";
    const tm_mllog_field samples[] = { { "samples_count", tm_mllog_i64(0) } };
    const tm_mllog_field step[] = { { "step", tm_mllog_i64(12288) } };
    const tm_mllog_field throughput[] = { { "throughput", tm_mllog_f64(30.15030683672662) } };
    const tm_mllog_field end[] = { { "samples_count", tm_mllog_i64(172032) }, { "status", tm_mllog_text("success") } };
    const tm_mllog_field own[] = { { "lineno", tm_mllog_i64(7) },
                                   { "a", tm_mllog_bool(false) },
                                   { "file", tm_mllog_text("y.c") } };
    const struct {
        tm_mllog_event event;
        const char    *line;
    } cases[] = {
        { { 1759966206549, "block_start", tm_mllog_null(), source, 277, samples, 1 },
          ":::MLLOG {\"namespace\": \"\", \"time_ms\": 1759966206549, \"event_type\": \"INTERVAL_START\", \"key\": "
          "\"block_start\", \"value\": null, \"metadata\": {\"file\": \"/workspace/code/src/callbacks.py\", "
          "\"lineno\": 277, \"samples_count\": 0}}\n" },
        { { 1759966614209, "tracked_stats", tm_mllog_fields(throughput, 1), source, 350, step, 1 },
          ":::MLLOG {\"namespace\": \"\", \"time_ms\": 1759966614209, \"event_type\": \"POINT_IN_TIME\", \"key\": "
          "\"tracked_stats\", \"value\": {\"throughput\": 30.15030683672662}, \"metadata\": {\"file\": "
          "\"/workspace/code/src/callbacks.py\", \"lineno\": 350, \"step\": 12288}}\n" },
        { { 1, "run_stop", tm_mllog_null(), "x.c", 9, end, 2 },
          ":::MLLOG {\"namespace\": \"\", \"time_ms\": 1, \"event_type\": \"INTERVAL_END\", \"key\": \"run_stop\", "
          "\"value\": null, \"metadata\": {\"file\": \"x.c\", \"lineno\": 9, \"samples_count\": 172032, \"status\": "
          "\"success\"}}\n" },
        { { 1, "submission_org", tm_mllog_text("\"a\\b\"/\n\xc3\xa9\xf0\x9f\x98\x80"), "x.c", 9, own, 3 },
          ":::MLLOG {\"namespace\": \"\", \"time_ms\": 1, \"event_type\": \"POINT_IN_TIME\", \"key\": "
          "\"submission_org\", "
          "\"value\": \"\\\"a\\\\b\\\"/\\n\\u00e9\\ud83d\\ude00\", \"metadata\": {\"file\": \"y.c\", \"lineno\": 7, "
          "\"a\": false}}\n" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tm_text text = { 0 };
        tm_mllog_print(&cases[i].event, &text);
        assert_string_equal(text.data, cases[i].line);
        tm_text_fini(&text);
    }
}

/* Every line of the published logs: read, written again from what was read, the same bytes. */
static tm_mllog_value value_of(const tm_json_value *v, tm_mllog_field *room)
{
    switch (v->kind) {
    case TM_JSON_NULL:
        return tm_mllog_null();
    case TM_JSON_BOOL:
        return tm_mllog_bool(v->boolean);
    case TM_JSON_NUMBER:
        return v->integer ? tm_mllog_i64((int64_t)v->number) : tm_mllog_f64(v->number);
    case TM_JSON_TEXT:
        return tm_mllog_text(v->text);
    case TM_JSON_LIST:
    case TM_JSON_OBJECT:
        break;
    }
    size_t n = 0;
    for (const tm_json_value *m = v->first; m; m = m->next) room[n++] = (tm_mllog_field){ m->name, value_of(m, NULL) };
    return tm_mllog_fields(room, n);
}

static void same_again(const tm_mllog_record *r)
{
    tm_mllog_field metadata[16], value[16];
    tm_text        text = { 0 };
    tm_mllog_value fields = value_of(r->metadata, metadata);
    tm_mllog_event event = { .time_ms = (int64_t)r->time_ms,
                             .key = r->key,
                             .value = value_of(r->value, value),
                             .file = "",
                             .metadata = metadata,
                             .n_metadata = fields.n_fields };
    tm_mllog_print(&event, &text);
    assert_int_equal(text.length, r->text_bytes + sizeof TM_MLLOG_TOKEN);
    if (memcmp(text.data + sizeof TM_MLLOG_TOKEN - 1, r->text, r->text_bytes) != 0) fail_msg("%s", text.data);
    tm_text_fini(&text);
}

TEST(published_logs_are_written_alike)
{
    static const char *const cases[] = { "amd_mi300x_lora", "amd_mi355x_8b" };
    const char              *root = getenv("TRAINMARK_MLPERF_LOGS");
    for (size_t k = 0; k < 2; k++) {
        char            path[512];
        tm_mllog_folder folder;
        tm_error        err = { 0 };
        snprintf(path, sizeof path, "%s/%s", root ? root : "../shared/data/mlperf", cases[k]);
        if (tm_mllog_folder_list(path, &folder, &err) != TM_OK) {
            tm_mllog_folder_fini(&folder);
            print_message("SKIPPED: %s; TRAINMARK_MLPERF_LOGS names the folder with the published logs\n", err.text);
            skip();
        }
        for (size_t i = 0; i < folder.n; i++) {
            tm_mllog *log;
            size_t    n;
            assert_int_equal(tm_mllog_read(folder.files[i].path, &log, &err), TM_OK);
            const tm_mllog_record *records = tm_mllog_records(log, &n);
            for (size_t j = 0; j < n; j++) same_again(&records[j]);
            assert_true(n > 30);
            tm_mllog_free(log);
        }
        tm_mllog_folder_fini(&folder);
    }
}
