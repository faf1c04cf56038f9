/* SPDX-License-Identifier: Apache-2.0 */
/* What `data preview` prints as JSON, whole: rows that are cut, pairs. */
#include "support/folder.h"

#include "base/file.h"
#include "data/preview.h"

#include <stdio.h>
#include <string.h>

#include "support/test.h"

static const char rows[] = "{\"prompt\": \"ab\", \"completion\": \"c\\u0001\"}\n"
                           "{\"prompt\": \"x\", \"completion\": \"yz\"}\n"
                           "{\"prompt\": \"p\", \"completion\": \"q\"}\n";
static const char pairs[] = "{\"prompt\": \"a\", \"chosen\": \"bcde\", \"rejected\": \"f\"}\n";

static tm_preview_options options_of(const char *text, tm_sft_format format)
{
    static char path[300];
    tm_error    err = { 0 };
    snprintf(path, sizeof path, "%s", test_in_folder("rows.jsonl"));
    assert_int_equal(tm_file_write(path, text, strlen(text), &err), TM_OK);
    return (tm_preview_options){ .path = path, .sft = { .format = format }, .first = 1, .n = 2 };
}

/* `wanted` with the path in the place of %s, as often as there is one. */
static void expect(const tm_preview_options *o, const char *wanted)
{
    tm_text  out = { 0 }, all = { 0 };
    tm_error err = { 0 };
    if (tm_data_preview(o, &out, &err) != TM_OK) fail_msg("%s", err.text);
    for (const char *c = wanted; *c; c++)
        if (c[0] == '%' && c[1] == 's')
            tm_text_add(&all, o->path), c++;
        else
            tm_text_add_n(&all, c, 1);
    assert_string_equal(out.data, all.data);
    tm_text_fini(&out);
    tm_text_fini(&all);
}

TEST(json_has_everything)
{
    tm_preview_options o = options_of(rows, TM_SFT_AUTO);
    o.json = true;
    expect(&o,
           "{\"samples\": [{\"place\": \"'%s', line 1\", \"tokens\": 5, \"targets\": 3, \"truncated\": 0, \"parts\": "
           "[{\"target\": false, \"text\": \"ab\"}, {\"target\": true, \"text\": \"c\\u0001<|end|>\"}], \"ids\": [97, "
           "98, 99, 1, 256], \"mask\": [0, 0, 1, 1, 1]}, {\"place\": \"'%s', line 2\", \"tokens\": 4, \"targets\": 3, "
           "\"truncated\": 0, \"parts\": [{\"target\": false, \"text\": \"x\"}, {\"target\": true, \"text\": "
           "\"yz<|end|>\"}], \"ids\": [120, 121, 122, 256], \"mask\": [0, 1, 1, 1]}], \"format\": \"completion\"}\n");
    o.seq = 3, o.n = 1;
    expect(&o, "{\"samples\": [{\"place\": \"'%s', line 1\", \"tokens\": 4, \"targets\": 2, \"truncated\": 1, "
               "\"parts\": [{\"target\": false, \"text\": \"ab\"}, {\"target\": true, \"text\": \"c\\u0001\"}], "
               "\"ids\": [97, 98, 99, 1], \"mask\": [0, 0, 1, 1]}], \"format\": \"completion\"}\n");
    o = options_of(pairs, TM_SFT_PREFERENCE);
    o.json = true, o.seq = 8;
    expect(&o, "{\"samples\": [{\"place\": \"'%s', line 1\", \"answer\": \"chosen\", \"tokens\": 5, \"targets\": 4, "
               "\"truncated\": 1, \"parts\": [{\"target\": false, \"text\": \"a\"}, {\"target\": true, \"text\": "
               "\"bcde\"}], \"ids\": [97, 98, 99, 100, 101], \"mask\": [0, 1, 1, 1, 1]}, {\"place\": \"'%s', line 1\", "
               "\"answer\": \"rejected\", \"tokens\": 3, \"targets\": 2, \"truncated\": 0, \"parts\": [{\"target\": "
               "false, \"text\": \"a\"}, {\"target\": true, \"text\": \"f<|end|>\"}], \"ids\": [97, 102, 256], "
               "\"mask\": [0, 1, 1]}], \"format\": \"preference\"}\n");
}

TEST_FIXTURE(NULL, test_folder_teardown)
