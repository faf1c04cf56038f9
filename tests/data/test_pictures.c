/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of pictures with captions: folders with metadata files or texts, parts, parquet and tar
 * (tools/make_picture_fixtures.py). "Pictures" are short texts: nothing decodes them here. */
#include "data/pictures.h"

#include "base/file.h"
#include "base/text.h"
#include "support/folder.h"
#include "support/test.h"
#include "support/refusal.h"

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
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    assert_ok(tm_folder_make(path, err));
    *slash = '/';
    assert_ok(tm_file_write(path, bytes, n, err));
}

static void put(const char *name, const char *text)
{
    put_bytes(name, text, strlen(text));
}

static void put_copy(const char *from, const char *name)
{
    char    path[256];
    tm_text bytes = { 0 };
    snprintf(path, sizeof path, PARQUET "%s%s", from, strchr(from, '.') ? "" : ".parquet");
    assert_ok(tm_file_read(path, 1 << 20, &bytes, err));
    put_bytes(name, bytes.data, bytes.length);
    tm_text_fini(&bytes);
}

/* "name=caption=bytes;" of each, then how many files were ignored. */
static void lists(const char *path, const tm_picture_options *options, const char *wanted)
{
    tm_pictures *p;
    tm_text      all = { 0 }, bytes = { 0 };
    assert_ok(tm_pictures_open(path, options, &p, err));
    for (int64_t i = 0; i < tm_pictures_count(p); i++) {
        tm_picture picture = tm_pictures_at(p, i);
        assert_ok(tm_pictures_read(p, i, &bytes, err));
        tm_text_printf(&all, "%s=%s=%s;", picture.name, picture.caption, bytes.data);
    }
    tm_text_printf(&all, " %lld", (long long)tm_pictures_ignored(p));
    assert_string_equal(all.data, wanted);
    tm_pictures_close(p);
    tm_text_fini(&all);
    tm_text_fini(&bytes);
}

static const tm_picture_options plain = { 0 };

TEST_WITH(parts_by_number_are_the_whole, make_folder, remove_folder)
{
    tm_pictures *all, *parts[2];
    for (int i = 0; i < 11; i++) {
        char name[32];
        snprintf(name, sizeof name, "train/%02d.png", i);
        put(name, "x");
        snprintf(name, sizeof name, "train/%02d.txt", i);
        put(name, name);
    }
    assert_ok(tm_pictures_open(folder, &plain, &all, err));
    for (int64_t held_out = 1; held_out < 11; held_out++) {
        int64_t at[2] = { 0, 0 }, last = -1, gap = 0;
        for (int k = 0; k < 2; k++) {
            tm_picture_options o = { .split = k ? TM_SPLIT_VALIDATION : TM_SPLIT_TRAIN, .held_out = held_out };
            assert_ok(tm_pictures_open(folder, &o, &parts[k], err));
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
    assert_ok(tm_pictures_open(path, &plain, &p, err));
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

/* --- lists --- */

/* Files of a folder, "NAME=CONTENT|NAME=CONTENT" ("@x": that fixture); what of it is opened; what is listed, or what
 * the refusal says. */
typedef struct {
    const char        *files, *path, *wanted, *says;
    tm_picture_options o;
} a_case;

#define PARTS "train-1-of-2.parquet=@both|train-2-of-2.parquet=@both|validation.parquet=@both|test.parquet=@paths"
#define CSV                                                                                                            \
    "1.png=1|2.png=2|sub/3.gif=3|metadata.csv=\xEF\xBB\xBFid,text,file_name\r\n1,\"a \"\"cat\"\", or\r\ntwo\",2.png"   \
    "\r\n\r\n2,dog,./1.png\n3,=bird,sub/3.gif"

static const a_case cases[] = {
    { .files = "b.JPG=2|b.txt=\xEF\xBB\xBF  a dog,\nrunning \r\n|a.png=1|a.txt=a c\xC3\xA4t|deep/er/a.b.webp=3|"
               "deep/er/a.b.txt=three|deep/README.txt=x|notes.md=x|.hidden.png=x|.cache/a.png=x",
      .wanted = "a.png=a c\xC3\xA4t=1;b.JPG=a dog,\nrunning=2;deep/er/a.b.webp=three=3; 4" },
    { .files = "a.png=1|a.txt=x", .path = "//", .wanted = "a.png=x=1; 0" },
    { .files = CSV, .wanted = "1.png=dog=1;2.png=a \"cat\", or\r\ntwo=2;sub/3.gif==bird=3; 0" },
    { .files = CSV, .wanted = "1.png=2=1;2.png=1=2;sub/3.gif=3=3; 0", .o.caption = "id" },
    { .files =
          "1.png=1|2.png=2|3.png=3|sub/4.png=4|metadata.jsonl={\"file_name\":\"2.png\",\"caption\":\"two\",\"n\":1}"
          "\n\n{\"caption\":\"\xC3\xA4\",\"file_name\":\"1.png\"}\n{\"file_name\":\"3.png\",\"caption\":null}\n|"
          "sub/metadata.jsonl={\"file_name\":\"4.png\",\"text\":\"four\"}\n",
      .wanted = "1.png=\xC3\xA4=1;2.png=two=2;3.png=a thing=3;sub/4.png=four=4; 0",
      .o.otherwise = "a thing" },
    { .files = "x.parquet=@flat", .says = "has no column image of pictures" },
    { .files = "x.parquet=@flat",
      .wanted = "x.parquet, row 1=caption 0=picture 0;x.parquet, row 2=caption 1=picture 1; 0",
      .o.file = "photo" },
    { .files = "x.parquet=@both", .wanted = "x.parquet, row 1=caption 1=picture 0; 0", .o.caption = "caption" },
    { .files = "x.parquet=@no_caption|README.md=x",
      .wanted = "x.parquet, row 1=caption 0=picture 0;x.parquet, row 2=a=picture 1; 1",
      .o.otherwise = "a" },
    { .files = "x.parquet=@only",
      .wanted = "x.parquet, row 1=a=picture 0;x.parquet, row 2=a=picture 1; 0",
      .o.otherwise = "a" },
    { .files = PARTS,
      .wanted = "train-1-of-2.parquet, row 1=caption 0=picture 0;train-2-of-2.parquet, row 1=caption 0=picture 0; 1",
      .o.caption = "text" },
    { .files = PARTS,
      .wanted = "validation.parquet, row 1=caption 1=picture 0; 1",
      .o = { .split = TM_SPLIT_VALIDATION, .otherwise = "a", .caption = "caption" } },
    { .files = "train-1.tar=@silent.tar|train-2.tar=@pax.tar|validation-1.tar=@wrong.tar",
      .wanted = "train-1.tar, 0.jpg=x=0;train-2.tar, a/000.jpg=caption 0=picture 0; 7",
      .o = { .file = "jpg", .otherwise = "x" } },
    { .files = "notes.txt=x", .says = "has no pictures; wanted .png" },
    { .files = "1.png=1", .says = "1.png' (there is no '" },
    { .files = "1.png=1|metadata.csv=file_name,text\n1.png,\n", .says = "line 2) has no caption" },
    { .files = "1.png=1|1.txt=one|metadata.csv=file_name,text\n1.png,one\n", .says = "has two captions, of" },
    { .files = "1.png=1|metadata.csv=x|metadata.jsonl=x", .says = "remove one of both" },
    { .files = "1.png=1|metadata.csv=file_name,text\n1.png,one\n1.png,two\n",
      .says = "line 3: '1.png' has a caption already, of '" },
    { .files = "1.png=1|metadata.csv=file_name,text\na/../1.png,x\n", .says = "leads out of the folder" },
    { .files = "metadata.jsonl={\"file_name\":\"1.png\",\"words\":\"x\"}\n",
      .says = "has no column text or caption of captions; it has file_name, words" },
    { .files = "metadata.csv=file_name,text\n1.png,\"a\n", .says = "line 2: a quoted cell of this row does not end" },
    { .files = "metadata.csv=file_name,text\n1.png,caf\xe9\n", .says = "line 2: not UTF-8" },
    { .files = "metadata.jsonl={\"file_name\":\"1.png\",\"text\":[\"x\"]}\n", .says = "line 1: text is no text" },
    { .files = "1.png=1|1.txt=caf\xe9", .says = "1.txt' is not UTF-8 (byte 3)" },
    { .files = "train/1.png=1|2.png=2", .says = "2.png' is not in train/, validation/ or test/" },
    { .files = "validation/1.png=1", .says = "but there is no train/ beside it" },
    { .files = "train/1.png=1|validation/1.png=1",
      .says = "is for validation, and 1 pictures are to be held out",
      .o = { .held_out = 1, .otherwise = "x" } },
    { .files = "1.png=1|2.parquet=2", .says = "as files and in parquet; leave one" },
    { .files = "x.parquet=@flat",
      .says = "has no column image of captions",
      .o = { .file = "photo", .caption = "image" } },
    { .files = "x.parquet=@paths", .says = "column image holds no pictures" },
    { .files = "x.parquet=@both", .says = "a column text and a column caption" },
    { .files = "x.parquet=@no_caption", .says = "x.parquet', row 2, has no caption" },
    { .files = "x.parquet=@latin1", .says = "row 1, has a caption that is not UTF-8" },
    { .files = "a.tar=@twice.tar", .says = "a.tar" },
    { .files = "a.tar=@silent.tar", .says = "a.tar" },
    { .files = "a.tar=@wrong.tar", .says = "a.tar" },
    { .files = "a.tar=@latin1.tar", .says = "a.tar" },
    { .files = "a.c=1", .path = "/a.c", .says = "a.c" },
    { .files = "a.c=1", .path = "/none", .says = "none" },
};

static void is_listed(const a_case *c)
{
    char         path[512], list[1000], *rest = list;
    tm_pictures *p;
    tm_error     err = { 0 };
    snprintf(list, sizeof list, "%s", c->files);
    for (char *name; (name = strsep(&rest, "|"));) {
        char *content = strchr(name, '=');
        *content++ = '\0';
        if (*content == '@')
            put_copy(content + 1, name);
        else
            put(name, content);
    }
    snprintf(path, sizeof path, "%s%s", folder, c->path ? c->path : "");
    if (c->wanted) {
        lists(path, &c->o, c->wanted);
        return;
    }
    assert_int_not_equal(tm_pictures_open(path, &c->o, &p, &err), TM_OK);
    refusal_is_sound(&err);
    if (!strstr(err.text, c->says)) fail_msg("%s: wanted '%s' in: %s", c->files, c->says, err.text);
}

TEST(folders_are_listed_or_refused)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        folder = test_tree_make();
        is_listed(&cases[i]);
        test_tree_remove(folder);
    }
}

/* As Python's tarfile writes them: names in two parts, in a member of GNU tar, in one of pax; and both codecs. */
TEST_WITH(files_of_many_are_listed, make_folder, remove_folder)
{
    static const char *const names[] = { "ustar.tar", "gnu.tar", "pax.tar", "gzip.parquet", "plain.parquet" };
    for (size_t i = 0; i < 5; i++) {
        char    path[64], b[122];
        tm_text wanted = { 0 };
        memset(b, 'b', 121);
        b[60] = '/';
        b[121] = '\0';
        snprintf(path, sizeof path, PARQUET "%s", names[i]);
        for (int row = 0; row < 9 && i > 2; row++)
            tm_text_printf(&wanted, "%s, row %d=caption %d=picture %d;", names[i], row + 1, row, row);
        if (i < 3)
            tm_text_printf(&wanted, "%s, a/000.jpg=caption 0=picture 0;%s, a/001.PNG=caption 1=", names[i], names[i]);
        for (int k = 0; k < 100 && i < 3; k++) tm_text_add(&wanted, "picture 1");
        if (i < 3) tm_text_printf(&wanted, ";%s, long/%s.webp=caption 2=picture 2;", names[i], b);
        tm_text_add(&wanted, i < 3 ? " 3" : " 0");
        lists(path, &plain, wanted.data);
        tm_text_fini(&wanted);
    }
}

TESTS_IN_ORDER
