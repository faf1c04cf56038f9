/* SPDX-License-Identifier: Apache-2.0 */
/* Text: windows, splits, decoding, and every kind of thing that can lie in a folder. */
#include "data/opened.h"
#include "data/text_files.h"
#include "base/text.h"
#include "base/file.h"
#include "support/folder.h"
#include "support/full_config.h"

#include <sys/socket.h>
#include <sys/un.h>

enum { NOBODY = 65534 };

static void write_text(const char *name, const char *text)
{
    test_file_write(test_folder(), name, text);
}

static void make_folder(const char *name)
{
    assert_int_equal(mkdir(test_in_folder(name), 0755), 0);
}

static void link_to(const char *target, const char *name)
{
    assert_int_equal(symlink(target, test_in_folder(name)), 0);
}

static tm_source *open_text(const char *path, int64_t seq, double fraction)
{
    tm_source_options options = { .name = "text", .path = path, .vocab = 300, .seq = seq, .seed = 4 };
    options.validation_fraction = fraction;
    return open_source(&options);
}

static void expect_no_text(const char *path, int64_t seq, double fraction, const char *what, const char *cure)
{
    expect_refusal(&(tm_source_options){ .name = "text", .path = path, .seq = seq, .validation_fraction = fraction },
                   what, cure);
}

static void expect_tokens(const tm_source *source, tm_split split, int64_t index, const char *wanted) /* '|' ends */
{
    int32_t tokens[256]; /* every T here is less */
    char    found[65] = { 0 };
    size_t  n = strlen(wanted);
    assert_true(n < 64);
    tm_source_sample(source, split, index, tokens);
    for (size_t i = 0; i < n; i++) found[i] = (char)(tokens[i] == 256 ? '|' : tokens[i]);
    assert_string_equal(found, wanted);
}

/* Documents in name order, depth first, an end token after each; windows of T + 1 that share one token. */
TEST(stream_is_the_sorted_documents)
{
    write_text("b", "BBBBB");
    write_text("c", "");
    make_folder("a");
    write_text("a/2", "second");
    write_text("a/10", "tenth.");
    write_text("d", "dd");
    write_text(".hidden", "xxxxxxxxxxxx");
    tm_source             *source = open_text(test_folder(), 22, 0);
    const tm_source_facts *facts = tm_source_describe(source);
    expect_tokens(source, TM_SPLIT_TRAIN, 0, "tenth.|second|BBBBB|dd|");
    assert_int_equal(facts->train_samples, 1);
    assert_int_equal(facts->validation_samples, 0);
    assert_int_equal(facts->vocab_needed, 257);
    assert_int_equal(facts->end_token, 256);
    assert_true(isnan(facts->unigram_entropy) && isnan(facts->floor));
    assert_true(fabs(facts->bytes_per_token - 19.0 / 23) < 1e-12);
    tm_source_close(source);
    expect_no_text(test_folder(), 23, 0, "has 23 tokens to train on, wanted at least 24", "lower training.seq_len");
}

TEST(unigram_entropy_is_of_the_validation_split)
{
    char bytes[1000];
    memset(bytes, 'x', sizeof bytes);
    for (int i = 900; i < 1000; i++) bytes[i] = "aaab"[i % 4];
    assert_int_equal(tm_file_write(test_in_folder("f"), bytes, sizeof bytes, NULL), TM_OK);
    tm_source *source = open_text(test_folder(), 100, 0.101); /* 101 bytes: "x", 75 "a", 25 "b"; one window */
    const tm_source_facts *facts = tm_source_describe(source);
    double                 p[] = { 1 / 101.0, 75 / 101.0, 25 / 101.0 }, entropy = 0;
    for (int i = 0; i < 3; i++) entropy -= p[i] * log(p[i]);
    assert_int_equal(facts->validation_samples, 1);
    assert_true(fabs(facts->unigram_entropy - entropy) < 1e-12);
    assert_true(fabs(facts->bytes_per_token - 101.0 / 102) < 1e-12);
    expect_tokens(source, TM_SPLIT_VALIDATION, 0, "xaaabaaab");
    tm_source_close(source);
}

TEST(binary_bytes_come_back)
{
    uint8_t bytes[256];
    int32_t tokens[257];
    tm_text out = { 0 };
    for (int i = 0; i < 256; i++) bytes[i] = (uint8_t)i;
    assert_int_equal(tm_file_write(test_in_folder("f"), bytes, sizeof bytes, NULL), TM_OK);
    tm_source *source = open_text(test_folder(), 256, 0);
    tm_source_sample(source, TM_SPLIT_TRAIN, 0, tokens);
    assert_string_equal(tm_source_decode(source, (const int32_t[]){ 256 }, 1, &out), ""); /* nothing, not no text */
    const char *decoded = tm_source_decode(source, tokens, 257, &out);
    assert_ptr_equal(decoded, out.data);
    assert_int_equal(out.length, 256);
    assert_memory_equal(out.data, bytes, 256);
    tm_source_decode(source, (const int32_t[]){ 'a', 299, -100, 256, 'b' }, 5, &out);
    assert_string_equal(out.data + 256, "a??b");
    assert_true(isnan(tm_source_nats(source, tokens)));
    tm_text_fini(&out);
    tm_source_close(source);
}

/* Makes what is told: "f NAME TEXT", a file; "d NAME", a folder; "l NAME TARGET", a link; "p NAME", a fifo; "s NAME", a
 * socket; "n N", N folders in one another. */
static void make(const char *things)
{
    char list[400], *rest = list, name[40], text[80];
    snprintf(list, sizeof list, "%s", things);
    for (char *one; (one = strsep(&rest, ","));) {
        int depth = 0;
        *name = *text = '\0';
        sscanf(one + strspn(one, " ") + 1, "%39s %79[^,]", name, text);
        one += strspn(one, " ");
        if (*one == 'f') write_text(name, text);
        if (*one == 'd') make_folder(name);
        if (*one == 'l') link_to(text, name);
        if (*one == 'p') assert_int_equal(mkfifo(test_in_folder(name), 0644), 0);
        if (*one == 'n') depth = atoi(name);
        if (*one == 's') {
            struct sockaddr_un address = { .sun_family = AF_UNIX };
            int                fd = socket(AF_UNIX, SOCK_STREAM, 0);
            snprintf(address.sun_path, sizeof address.sun_path, "%s", test_in_folder(name));
            assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
            close(fd);
        }
        char deep[100] = "";
        while (depth-- > 0) make_folder(strcat(deep, *deep ? "/d" : "d"));
    }
}

/* An open that waits for the other end of a fifo would never end. */
TEST(other_things_are_refused_with_the_cure)
{
    static const struct {
        const char *things, *path, *says, *cure;
        int64_t     seq;
        double      fraction;
    } cases[] = {
        { "", "nothing", "cannot reach", "wanted a file or a directory of text", 4, 0 },
        { "", "", "no text in", "give data.path a file or directory of text", 4, 0 },
        { "f empty", "", "1 empty files", "give data.path", 4, 0 },
        { "f empty", "empty", "1 empty files", "give data.path", 4, 0 },
        { "f tiny abc", "", "has 4 tokens to train on, wanted at least 5", "give more text", 4, 0 },
        { "f small 0123456789012345678901234567890123456789", "",
          "too little to validate on, wanted at least 17 tokens", "raise data.validation_fraction", 16, 0.1 },
        { "f small x", "small/under", "cannot reach", "wanted a file or a directory of text", 4, 0 },
        { "f a enough text, p pipe", "pipe", "is a fifo, wanted a regular file", "remove it", 4, 0 },
        { "f a enough text, p pipe", "", "is a fifo, wanted a regular file", "remove it", 4, 0 },
        { "f a enough text, l device /dev/null", "", "is a device", "remove it", 4, 0 },
        { "f a enough text, s socket", "", "is a socket", "remove it", 4, 0 },
        { "d a, d a/b, f a/b/f enough text, l a/b/up ../../a", "", "a loop", "remove it", 4, 0 },
        { "f a enough text, l me me", "", "leads back to itself", "remove it", 4, 0 },
        { "f a enough text, l lost nowhere", "", "a dangling symbolic link", "fix its target", 4, 0 },
        { "f a enough text, n 33", "", "more than 32 levels deep", "closer to the text", 4, 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        make(cases[i].things);
        expect_no_text(*cases[i].path ? test_in_folder(cases[i].path) : test_folder(), cases[i].seq, cases[i].fraction,
                       cases[i].says, cases[i].cure);
        test_folder_remove();
    }
    make("f a 01234567, n 32");
    tm_source_close(open_text(test_folder(), 8, 0));
}

/* More files than a first table of the seen ones has room for: each is found again. All bytes together decide what is
 * copied: the last file has one too many. */
TEST(many_files_reached_twice_count_once)
{
    char          name[40], target[40], text[8];
    tm_text_files files;
    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof name, "f%03d", i);
        snprintf(text, sizeof text, "%06d", i);
        write_text(name, text);
        snprintf(target, sizeof target, "z%03d", i);
        link_to(name, target);
    }
    tm_source *source = open_text(test_folder(), 7, 0);
    assert_int_equal(tm_source_describe(source)->train_samples, 299); /* 2,100 tokens */
    tm_source_close(source);
    write_text("last", "x");
    assert_int_equal(truncate(test_in_folder("last"), TM_TEXT_COPY_BYTES - 1800 + 1), 0);
    assert_ok(tm_text_files_open(test_folder(), &files, err));
    assert_true(files.count == 301 && files.copied == 1800);
    tm_text_files_close(&files);
}

TEST(unreadable_things_are_refused)
{
    write_text("f", "some text that is long enough");
    make_folder("d");
    write_text("d/g", "some text that is long enough");
    assert_int_equal(chmod(test_folder(), 0755), 0);
    bool is_root = geteuid() == 0;
    if (is_root && seteuid(NOBODY) != 0) {
        print_message("skipped: root reads everything and cannot become another user here\n");
        skip();
    }
    if (is_root) assert_int_equal(seteuid(0), 0);
    assert_int_equal(chmod(test_in_folder("f"), 0), 0);
    if (is_root) assert_int_equal(seteuid(NOBODY), 0);
    expect_no_text(test_folder(), 4, 0, "/f': Permission denied", "give read permission");
    if (is_root) assert_int_equal(seteuid(0), 0);
    assert_int_equal(chmod(test_in_folder("f"), 0644), 0);
    assert_int_equal(chmod(test_in_folder("d"), 0), 0);
    if (is_root) assert_int_equal(seteuid(NOBODY), 0);
    expect_no_text(test_folder(), 4, 0, "cannot read directory", "give read permission");
    expect_no_text(test_in_folder("d/g"), 4, 0, "cannot reach", "give read permission");
    if (is_root) assert_int_equal(seteuid(0), 0);
    assert_int_equal(chmod(test_in_folder("d"), 0755), 0);
}

TEST_FIXTURE(NULL, test_folder_teardown)
