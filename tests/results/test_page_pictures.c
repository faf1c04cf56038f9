/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures that a run drew are in its page, those of its own directory and no others. */
#include "base/file.h"
#include "image/image.h"
#include "results/report.h"
#include "made_runs.h"
#include "support/folder.h"

#include "support/test.h"

#define RECORD(step, file, caption)                                                                                    \
    "{\"event\": \"picture\", \"step\": " #step ", \"number\": 0, \"file\": \"" file "\", \"caption\": " caption       \
    ", \"seconds\": 0.5}\n"

static void write_text(const char *name, const char *text, size_t bytes)
{
    tm_error err = { 0 };
    if (tm_folder_make(test_in_folder("pictures"), &err) != TM_OK) fail_msg("%s", err.text);
    if (tm_file_write(test_in_folder(name), text, bytes, &err) != TM_OK) fail_msg("%s", err.text);
}

/* The page of a run whose directory has result.json, these records and a picture. */
static tm_text page_of(const char *records)
{
    tm_error   err = { 0 };
    tm_text    json = changed(rich, NULL), html = { 0 };
    tm_result *run = NULL;
    write_text("result.json", json.data, json.length);
    write_text("metrics.jsonl", records, strlen(records));
    if (tm_result_load(test_folder(), NULL, &run, &err) != TM_OK) fail_msg("%s", err.text);
    const tm_result *one = run;
    if (tm_results_report(&one, 1, TM_REPORT_HTML, &html, &err) != TM_OK) fail_msg("%s", err.text);
    tm_result_destroy(run);
    tm_text_fini(&json);
    return html;
}

static int value_of(char c)
{
    const char *letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(letters, c) : NULL;
    return at ? (int)(at - letters) : -1;
}

/* The bytes of the first picture of the page. */
static tm_text first_picture(const tm_text *html)
{
    static const char before[] = "<img src=\"data:image/png;base64,";
    const char       *at = strstr(html->data, before);
    tm_text           out = { 0 };
    assert_non_null(at);
    for (at += strlen(before); *at != '"'; at += 4) {
        int v[4];
        for (int k = 0; k < 4; k++) v[k] = value_of(at[k]);
        tm_text_add_n(&out, &(char){ (char)(v[0] << 2 | v[1] >> 4) }, 1);
        if (at[2] != '=') tm_text_add_n(&out, &(char){ (char)(v[1] << 4 | v[2] >> 2) }, 1);
        if (at[3] != '=') tm_text_add_n(&out, &(char){ (char)(v[2] << 6 | v[3]) }, 1);
    }
    return out;
}

TEST(the_picture_is_in_the_page)
{
    for (int width = 1; width <= 3; width++) { /* all three ends of base64 */
        uint8_t  pixels[18] = { 255, 0, 0, 1, 2, 3, 250, 251, 252, 9, 8, 7, 0, 128, 255, 77, 78, 79 };
        tm_image drawn = { .width = width, .height = 2, .pixels = pixels };
        tm_text  file = { 0 };
        tm_error err = { 0 };
        assert_int_equal(tm_image_png(&drawn, &file, &err), TM_OK);
        tm_text html = page_of(RECORD(20, "pictures/a.png", "\"a <red> square\""));
        tm_text_fini(&html);
        write_text("pictures/a.png", file.data, file.length);
        html = page_of(RECORD(20, "pictures/a.png", "\"a <red> square\""));
        tm_text bytes = first_picture(&html);
        assert_int_equal(bytes.length, file.length);
        assert_memory_equal(bytes.data, file.data, file.length);
        assert_non_null(strstr(html.data, "step 20: a &lt;red&gt; square"));
        assert_non_null(strstr(html.data, "img-src data:"));
        tm_text_fini(&bytes);
        tm_text_fini(&file);
        tm_text_fini(&html);
    }
}

TEST(other_files_are_not_read)
{
    static const char *const records[] = {
        RECORD(1, "../result.json", "null"),
        RECORD(1, "pictures/../result.json", "null"),
        RECORD(1, "result.json", "null"),
        RECORD(1, "pictures/", "null"),
        RECORD(1, "pictures/none.png", "null"),
        RECORD(1, "../secret.png", "null"),
        RECORD(1, "pictures/../secret.png", "null"),
        RECORD(1, "pictures/below/../../secret.png", "null"),
        RECORD(1, "pictures/notes.txt", "null"),
    };
    uint8_t  pixels[3] = { 1, 2, 3 };
    tm_image secret = { .width = 1, .height = 1, .pixels = pixels };
    tm_text  file = { 0 };
    tm_error err = { 0 };
    assert_int_equal(tm_image_png(&secret, &file, &err), TM_OK);
    write_text("pictures/notes.txt", "not a picture", 13);
    write_text("secret.png", file.data, file.length);
    assert_int_equal(tm_folder_make(test_in_folder("pictures/below"), &err), TM_OK);
    tm_text_fini(&file);
    for (size_t i = 0; i < sizeof records / sizeof records[0]; i++) {
        tm_text html = page_of(records[i]);
        assert_null(strstr(html.data, "<img"));
        assert_non_null(strstr(html.data, "not there: "));
        tm_text_fini(&html);
    }
}

TEST(a_run_without_pictures_has_no_such_part)
{
    tm_text html = page_of("");
    assert_null(strstr(html.data, "<h2>Pictures"));
    tm_text_fini(&html);
}

TEST_FIXTURE(NULL, test_folder_teardown)
