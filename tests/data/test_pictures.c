/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of pictures with captions: folders with metadata files or texts, parts, parquet
 * (tools/make_picture_fixtures.py). "Pictures" are short texts: nothing decodes them here. */
#include "data/pictures.h"

#include "base/file.h"
#include "base/text.h"
#include "support/folder.h"
#include "support/test.h"
#include "support/refusal.h"

#include <stdio.h>
#include <string.h>

#define PARQUET "tests/data/pictures/"

static char *folder; /* of the test */

static int make_folder(void **state)
{
    (void)state;
    folder = test_tree_make();
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    test_tree_remove(folder);
    return 0;
}

static void put_bytes(const char *name, const char *bytes, size_t n)
{
    char     path[512];
    tm_error err = { 0 };
    snprintf(path, sizeof path, "%s/%s", folder, name);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    if (tm_folder_make(path, &err) != TM_OK) fail_msg("%s", err.text);
    *slash = '/';
    if (tm_file_write(path, bytes, n, &err) != TM_OK) fail_msg("%s", err.text);
}

static void put(const char *name, const char *text)
{
    put_bytes(name, text, strlen(text));
}

static void put_copy(const char *from, const char *name)
{
    char     path[256];
    tm_text  bytes = { 0 };
    tm_error err = { 0 };
    snprintf(path, sizeof path, PARQUET "%s%s", from, strchr(from, '.') ? "" : ".parquet");
    if (tm_file_read(path, 1 << 20, &bytes, &err) != TM_OK) fail_msg("%s", err.text);
    put_bytes(name, bytes.data, bytes.length);
    tm_text_fini(&bytes);
}

/* "name=caption=bytes;" of each, then how many files were ignored. */
static void lists(const char *path, const tm_picture_options *options, const char *wanted)
{
    tm_pictures *p;
    tm_error     err = { 0 };
    tm_text      all = { 0 }, bytes = { 0 };
    if (tm_pictures_open(path, options, &p, &err) != TM_OK) fail_msg("%s", err.text);
    for (int64_t i = 0; i < tm_pictures_count(p); i++) {
        tm_picture picture = tm_pictures_at(p, i);
        if (tm_pictures_read(p, i, &bytes, &err) != TM_OK) fail_msg("%s", err.text);
        tm_text_printf(&all, "%s=%s=%s;", picture.name, picture.caption, bytes.data);
    }
    tm_text_printf(&all, " %lld", (long long)tm_pictures_ignored(p));
    assert_string_equal(all.data, wanted);
    tm_pictures_close(p);
    tm_text_fini(&all);
    tm_text_fini(&bytes);
}

static const tm_picture_options plain = { 0 };

TEST_WITH(texts_beside_pictures, make_folder, remove_folder)
{
    put("b.JPG", "2");
    put("b.txt", "\xEF\xBB\xBF  a dog,\nrunning \r\n");
    put("a.png", "1");
    put("a.txt", "a c\xC3\xA4t");
    put("deep/er/a.b.webp", "3");
    put("deep/er/a.b.txt", "three");
    put("deep/README.txt", "nothing");
    put("notes.md", "nothing");
    put(".hidden.png", "nothing");
    put(".cache/a.png", "nothing");
    lists(folder, &plain, "a.png=a c\xC3\xA4t=1;b.JPG=a dog,\nrunning=2;deep/er/a.b.webp=three=3; 4");
    char slashes[512];
    snprintf(slashes, sizeof slashes, "%s//", folder);
    lists(slashes, &plain, "a.png=a c\xC3\xA4t=1;b.JPG=a dog,\nrunning=2;deep/er/a.b.webp=three=3; 4");
}

TEST_WITH(rows_of_csv, make_folder, remove_folder)
{
    put("1.png", "1");
    put("2.png", "2");
    put("sub/3.gif", "3");
    put("metadata.csv", "\xEF\xBB\xBFid,text,file_name\r\n1,\"a \"\"cat\"\", or\r\ntwo\",2.png\r\n\r\n2,dog,./1.png\n"
                        "3,=bird,sub/3.gif");
    lists(folder, &plain, "1.png=dog=1;2.png=a \"cat\", or\r\ntwo=2;sub/3.gif==bird=3; 0");
    lists(folder, &(tm_picture_options){ .caption = "id" }, "1.png=2=1;2.png=1=2;sub/3.gif=3=3; 0");
}

TEST_WITH(rows_of_json_lines, make_folder, remove_folder)
{
    put("1.png", "1");
    put("2.png", "2");
    put("3.png", "3");
    put("sub/4.png", "4");
    put("metadata.jsonl",
        "{\"file_name\":\"2.png\",\"caption\":\"two\",\"n\":1}\n\n{\"caption\":\"\xC3\xA4\",\"file_name\":"
        "\"1.png\"}\n{\"file_name\":\"3.png\",\"caption\":null}\n");
    put("sub/metadata.jsonl", "{\"file_name\":\"4.png\",\"text\":\"four\"}\n");
    lists(folder, &(tm_picture_options){ .otherwise = "a thing" },
          "1.png=\xC3\xA4=1;2.png=two=2;3.png=a thing=3;sub/4.png=four=4; 0");
}

TEST_WITH(parts_by_number_are_the_whole, make_folder, remove_folder)
{
    tm_pictures *all, *parts[2];
    tm_error     err = { 0 };
    for (int i = 0; i < 11; i++) {
        char name[32];
        snprintf(name, sizeof name, "train/%02d.png", i);
        put(name, "x");
        snprintf(name, sizeof name, "train/%02d.txt", i);
        put(name, name);
    }
    assert_int_equal(tm_pictures_open(folder, &plain, &all, &err), TM_OK);
    for (int64_t held_out = 1; held_out < 11; held_out++) {
        int64_t at[2] = { 0, 0 }, last = -1, gap = 0;
        for (int k = 0; k < 2; k++) {
            tm_picture_options o = { .split = k ? TM_SPLIT_VALIDATION : TM_SPLIT_TRAIN, .held_out = held_out };
            if (tm_pictures_open(folder, &o, &parts[k], &err) != TM_OK) fail_msg("%s", err.text);
        }
        assert_int_equal(tm_pictures_count(parts[0]), 11 - held_out);
        assert_int_equal(tm_pictures_count(parts[1]), held_out);
        for (int64_t i = 0; i < 11; i++) {
            const char *name = tm_pictures_at(all, i).name;
            int         k = at[1] < held_out && strcmp(tm_pictures_at(parts[1], at[1]).name, name) == 0;
            assert_string_equal(tm_pictures_at(parts[k], at[k]++).name, name);
            if (!k) continue;
            if (last >= 0 && i - last > gap) gap = i - last;
            last = i;
        }
        assert_true(gap <= 11 / held_out + 1); /* evenly spread */
        for (int k = 0; k < 2; k++) tm_pictures_close(parts[k]);
    }
    tm_pictures_close(all);
}

TEST_WITH(rows_of_parquet, make_folder, remove_folder)
{
    tm_text all = { 0 };
    for (int file = 0; file < 2; file++)
        for (int i = 0; i < 9; i++)
            tm_text_printf(&all, "%s.parquet, row %d=caption %d=picture %d;", file ? "plain" : "gzip", i + 1, i, i);
    put_copy("gzip", "gzip.parquet");
    put_copy("plain", "plain.parquet");
    put("README.md", "nothing");
    tm_text_add(&all, " 1");
    lists(folder, &plain, all.data);
    lists(PARQUET "flat.parquet", &(tm_picture_options){ .file = "photo" },
          "flat.parquet, row 1=caption 0=picture 0;flat.parquet, row 2=caption 1=picture 1; 0");
    lists(PARQUET "both.parquet", &(tm_picture_options){ .caption = "caption" },
          "both.parquet, row 1=caption 1=picture 0; 0");
    lists(PARQUET "no_caption.parquet", &(tm_picture_options){ .otherwise = "a" },
          "no_caption.parquet, row 1=caption 0=picture 0;no_caption.parquet, row 2=a=picture 1; 0");
    lists(PARQUET "only.parquet", &(tm_picture_options){ .otherwise = "a" },
          "only.parquet, row 1=a=picture 0;only.parquet, row 2=a=picture 1; 0");
    tm_text_fini(&all);
}

TEST_WITH(parts_of_parquet, make_folder, remove_folder)
{
    const tm_picture_options validation = { .split = TM_SPLIT_VALIDATION, .otherwise = "a" };
    put_copy("both", "data/train-00000-of-00002.parquet");
    put_copy("both", "data/train-00001-of-00002.parquet");
    put_copy("both", "data/validation-00000-of-00001.parquet");
    put_copy("paths", "data/test-00000-of-00001.parquet");
    lists(
        folder, &(tm_picture_options){ .caption = "text" },
        "data/train-00000-of-00002.parquet, row 1=caption 0=picture 0;data/train-00001-of-00002.parquet, row 1=caption "
        "0=picture 0; 1");
    tm_picture_options o = validation;
    o.caption = "caption";
    lists(folder, &o, "data/validation-00000-of-00001.parquet, row 1=caption 1=picture 0; 1");
}

TEST_WITH(pictures_that_are_not_there_are_told_one_by_one, make_folder, remove_folder)
{
    static const tm_status wanted[] = { TM_OK, TM_UNSUPPORTED, TM_FORMAT, TM_OK };
    tm_pictures           *p;
    tm_error               err = { 0 };
    tm_text                bytes = { 0 };
    assert_int_equal(tm_pictures_open(PARQUET "holes.parquet", &plain, &p, &err), TM_OK);
    for (int64_t i = 0; i < 4; i++) {
        err = (tm_error){ 0 };
        assert_int_equal(tm_pictures_read(p, i, &bytes, &err), wanted[i]);
        refusal_is_sound(&err);
    }
    assert_string_equal(bytes.data, "picture 3");
    tm_pictures_close(p);
    put("1.png", "1");
    put("1.txt", "one");
    assert_int_equal(tm_pictures_open(folder, &plain, &p, &err), TM_OK);
    put("1.png", "12");
    err = (tm_error){ 0 };
    assert_int_equal(tm_pictures_read(p, 0, &bytes, &err), TM_INVALID);
    refusal_is_sound(&err);
    tm_pictures_close(p);
    tm_text_fini(&bytes);
}

/* As Python's tarfile writes them: names in two parts, in a member of GNU tar, in one of pax. */
TEST_WITH(samples_of_tar, make_folder, remove_folder)
{
    static const char *const names[] = { "ustar", "gnu", "pax" };
    tm_text                  hundred = { 0 };
    for (int i = 0; i < 100; i++) tm_text_add(&hundred, "picture 1");
    for (size_t i = 0; i < 3; i++) {
        char    path[64], b[122];
        tm_text wanted = { 0 };
        memset(b, 'b', 121);
        b[60] = '/';
        b[121] = '\0';
        snprintf(path, sizeof path, PARQUET "%s.tar", names[i]);
        tm_text_printf(&wanted,
                       "%s.tar, a/000.jpg=caption 0=picture 0;%s.tar, a/001.PNG=caption 1=%s;%s.tar, long/%s.webp="
                       "caption 2=picture 2; 3",
                       names[i], names[i], hundred.data, names[i], b);
        lists(path, &plain, wanted.data);
        tm_text_fini(&wanted);
    }
    put_copy("silent.tar", "train-1.tar");
    put_copy("pax.tar", "train-2.tar");
    put_copy("wrong.tar", "validation-1.tar");
    const tm_picture_options options = { .file = "jpg", .otherwise = "x" };
    lists(folder, &options, "train-1.tar, 0.jpg=x=0;train-2.tar, a/000.jpg=caption 0=picture 0; 7");
    tm_text_fini(&hundred);
}

/* Cut anywhere it is refused, but where members end: archives need no end. */
TEST_WITH(a_tar_that_is_cut_is_refused, make_folder, remove_folder)
{
    tm_text  whole = { 0 };
    tm_error err = { 0 };
    int      whole_ones = 0;
    if (tm_file_read(PARQUET "gnu.tar", 1 << 20, &whole, &err) != TM_OK) fail_msg("%s", err.text);
    for (size_t n = 100; n < whole.length; n += 100 + 12 * (n % 512 == 500)) {
        const tm_picture_options options = { .otherwise = "x" };
        tm_pictures             *p;
        err = (tm_error){ 0 };
        put_bytes("x.tar", whole.data, n);
        tm_status st = tm_pictures_open(folder, &options, &p, &err);
        if (st == TM_OK) {
            whole_ones++;
            assert_true(n % 512 == 0 || n > whole.length - 512); /* two headers of zeros are the end */
            tm_pictures_close(p);
        } else {
            assert_true(strstr(err.text, "cut short") || strstr(err.text, "less than a header at byte") ||
                        strstr(err.text, "has no pictures"));
        }
    }
    assert_in_range(whole_ones, 1, 12);
    whole.data[3] ^= 1;
    put_bytes("x.tar", whole.data, whole.length);
    tm_pictures *p;
    err = (tm_error){ 0 };
    assert_int_equal(tm_pictures_open(folder, &plain, &p, &err), TM_FORMAT);
    refusal_is_sound(&err);
    tm_text_fini(&whole);
}

static uint64_t hash_of(const char *path)
{
    tm_pictures *p;
    tm_error     err = { 0 };
    if (tm_pictures_open(path, &plain, &p, &err) != TM_OK) fail_msg("%s", err.text);
    uint64_t hash = tm_pictures_hash(p);
    tm_pictures_close(p);
    return hash;
}

TEST_WITH(names_sizes_and_captions_are_in_the_hash, make_folder, remove_folder)
{
    put("a/1.png", "1");
    put("a/1.txt", "one");
    put("b/1.png", "7");
    put("b/1.txt", " one\n");
    put("b/notes", "");
    char a[512], b[512];
    snprintf(a, sizeof a, "%s/a", folder);
    snprintf(b, sizeof b, "%s/b", folder);
    uint64_t same = hash_of(a);
    assert_true(same == hash_of(b));
    put("b/1.txt", "two");
    assert_true(same != hash_of(b));
    put("b/1.txt", "one");
    put("b/1.png", "12");
    assert_true(same != hash_of(b));
    put("b/1.png", "1");
    assert_true(same == hash_of(b));
    put("b/2.png", "1");
    put("b/2.txt", "one");
    assert_true(same != hash_of(b));
    assert_true(hash_of(PARQUET "plain.parquet") != hash_of(PARQUET "gzip.parquet"));
}

/* --- what is refused --------------------------------------------------------------------------------------------- */

enum { FILES = 8 };

TEST(what_is_refused_is_named)
{
    static const struct {
        const char        *says;
        tm_status          status;
        const char        *files[FILES]; /* name and content in turn */
        tm_picture_options options;
    } cases[] = {
        { "has no pictures; wanted .png", TM_INVALID, { "notes.txt", "x" }, { 0 } },
        { "1.png' (there is no '", TM_INVALID, { "1.png", "1" }, { 0 } },
        { "line 2) has no caption", TM_INVALID, { "1.png", "1", "metadata.csv", "file_name,text\n1.png,\n" }, { 0 } },
        { "has two captions, of",
          TM_INVALID,
          { "1.png", "1", "1.txt", "one", "metadata.csv", "file_name,text\n1.png,one\n" },
          { 0 } },
        { "remove one of both", TM_INVALID, { "1.png", "1", "metadata.csv", "x", "metadata.jsonl", "x" }, { 0 } },
        { "line 3: '1.png' has a caption already, of '",
          TM_INVALID,
          { "1.png", "1", "metadata.csv", "file_name,text\n1.png,one\n1.png,two\n" },
          { 0 } },
        { "leads out of the folder",
          TM_INVALID,
          { "1.png", "1", "metadata.csv", "file_name,text\na/../1.png,x\n" },
          { 0 } },
        { "has no column text or caption of captions; it has file_name, words",
          TM_INVALID,
          { "metadata.jsonl", "{\"file_name\":\"1.png\",\"words\":\"x\"}\n" },
          { 0 } },
        { "line 2: a quoted cell of this row does not end",
          TM_FORMAT,
          { "metadata.csv", "file_name,text\n1.png,\"a\n" },
          { 0 } },
        { "line 2: not UTF-8", TM_FORMAT, { "metadata.csv", "file_name,text\n1.png,caf\xe9\n" }, { 0 } },
        { "line 1: text is no text",
          TM_FORMAT,
          { "metadata.jsonl", "{\"file_name\":\"1.png\",\"text\":[\"x\"]}\n" },
          { 0 } },
        { "1.txt' is not UTF-8 (byte 3)", TM_FORMAT, { "1.png", "1", "1.txt", "caf\xe9" }, { 0 } },
        { "2.png' is not in train/, validation/ or test/", TM_INVALID, { "train/1.png", "1", "2.png", "2" }, { 0 } },
        { "but there is no train/ beside it", TM_INVALID, { "validation/1.png", "1" }, { 0 } },
        { "is for validation, and 1 pictures are to be held out",
          TM_INVALID,
          { "train/1.png", "1", "validation/1.png", "1" },
          { .held_out = 1, .otherwise = "x" } },
        { "as files and in parquet; leave one", TM_INVALID, { "1.png", "1", "2.parquet", "2" }, { 0 } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tm_pictures *p;
        tm_error     err = { 0 };
        folder = test_tree_make();
        for (size_t k = 0; k < FILES && cases[i].files[k]; k += 2) put(cases[i].files[k], cases[i].files[k + 1]);
        assert_int_equal(tm_pictures_open(folder, &cases[i].options, &p, &err), cases[i].status);
        refusal_is_sound(&err);
        if (!strstr(err.text, cases[i].says)) fail_msg("%zu: %s", i, err.text);
        test_tree_remove(folder);
    }
}

TEST(other_parquet_and_tar_are_refused)
{
    static const struct {
        const char        *file, *says;
        tm_picture_options options;
    } cases[] = {
        { "flat", "has no column image of pictures; it has caption, photo", { 0 } },
        { "flat", "has no column image of captions", { .file = "photo", .caption = "image" } },
        { "paths", "column image holds no pictures", { 0 } },
        { "both", "a column text and a column caption", { 0 } },
        { "no_caption", "no_caption.parquet', row 2, has no caption", { 0 } },
        { "latin1", "row 1, has a caption that is not UTF-8", { 0 } },
    };
    tm_pictures *p;
    tm_error     err = { 0 };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[256];
        err = (tm_error){ 0 };
        snprintf(path, sizeof path, PARQUET "%s.parquet", cases[i].file);
        assert_int_not_equal(tm_pictures_open(path, &cases[i].options, &p, &err), TM_OK);
        refusal_is_sound(&err);
        if (!strstr(err.text, cases[i].says)) fail_msg("%zu: %s", i, err.text);
    }
    static const char *const tars[] = { "twice", "silent", "wrong", "latin1" };
    for (size_t i = 0; i < sizeof tars / sizeof tars[0]; i++) {
        char path[256];
        err = (tm_error){ 0 };
        snprintf(path, sizeof path, PARQUET "%s.tar", tars[i]);
        assert_int_not_equal(tm_pictures_open(path, &plain, &p, &err), TM_OK);
        refusal_is_sound(&err);
    }
    err = (tm_error){ 0 };
    assert_int_equal(tm_pictures_open("tests/data/test_pictures.c", &plain, &p, &err), TM_INVALID);
    refusal_is_sound(&err);
    err = (tm_error){ 0 };
    assert_int_equal(tm_pictures_open("tests/data/no such folder", &plain, &p, &err), TM_INVALID);
    refusal_is_sound(&err);
}

TESTS_IN_ORDER
