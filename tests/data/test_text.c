/* SPDX-License-Identifier: Apache-2.0 */
/* Text: windows, splits, decoding, and every kind of thing that can lie in a folder. */
#include "base/text.h"
#include "base/file.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "support/refusal.h"
#include "data/source.h"
#include "data/source_kind.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "support/test.h"

enum { NOBODY = 65534, PATH_BYTES = 256 };

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
    tm_source        *source = NULL;
    tm_error          err = { 0 };
    options.validation_fraction = fraction;
    if (tm_source_open(&options, &source, &err) != TM_OK) fail_msg("%s", err.text);
    return source;
}

static void expect_refusal(const char *path, int64_t seq, double fraction, const char *what, const char *cure)
{
    tm_source_options options = { .name = "text", .path = path, .seq = seq, .validation_fraction = fraction };
    tm_source        *source = NULL;
    tm_error          err = { 0 };
    assert_int_equal(tm_source_open(&options, &source, &err), TM_INVALID);
    assert_int_equal(tm_status_exit_code(err.status), 4);
    assert_null(source);
    refusal_is_sound(&err);
    if (!strstr(err.text, what) || !strstr(err.text, cure)) fail_msg("wanted '%s', '%s' in: %s", what, cure, err.text);
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
TEST_WITH(stream_is_the_sorted_documents, NULL, test_folder_teardown)
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
    expect_refusal(test_folder(), 23, 0, "has 23 tokens to train on, wanted at least 24", "lower training.seq_len");
}

/* Each line of the files is unique; no line that is whole in one split occurs in the other; all bytes are in one of
 * them. */
TEST_WITH(splits_share_no_byte, NULL, test_folder_teardown)
{
    enum { FILES = 30, SEQ = 16 };
    int64_t total = 0;
    for (int f = 0; f < FILES; f++) {
        tm_text text = { 0 };
        char    name[16];
        for (int i = 0; i < 3 + f * 7; i++) tm_text_printf(&text, "<%02d:%04d>", f, i);
        snprintf(name, sizeof name, "%02d", f);
        write_text(name, text.data);
        total += (int64_t)text.length;
        tm_text_fini(&text);
    }
    tm_source             *source = open_text(test_folder(), SEQ, 0.2);
    const tm_source_facts *facts = tm_source_describe(source);
    tm_text                part[2] = { { 0 }, { 0 } };
    int32_t                tokens[SEQ + 1];
    int64_t                windows[2] = { facts->train_samples, facts->validation_samples };
    for (int split = 0; split < 2; split++) {
        for (int64_t i = 0; i < windows[split]; i++) {
            tm_source_sample(source, (tm_split)split, i, tokens);
            tm_source_decode(source, tokens, SEQ, &part[split]);
            tm_text_add(&part[split], "\n"); /* train windows come shuffled: do not join them */
        }
    }
    int lines = 0;
    for (const char *s = part[1].data; (s = strchr(s, '<')) && strlen(s) >= 9; s++) {
        char line[10] = { 0 };
        memcpy(line, s, 9);
        if (line[8] != '>') continue;
        lines++;
        if (strstr(part[0].data, line)) fail_msg("%s is in both splits", line);
    }
    assert_true(lines > 100);
    assert_true(labs((long)(windows[1] * SEQ - total / 5)) < total / 20);
    assert_true((windows[0] + windows[1]) * SEQ > total - 2 * SEQ);
    tm_text_fini(&part[0]);
    tm_text_fini(&part[1]);
    tm_source_close(source);
}

TEST_WITH(unigram_entropy_is_of_the_validation_split, NULL, test_folder_teardown)
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

TEST_WITH(binary_bytes_come_back, NULL, test_folder_teardown)
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

TEST_WITH(missing_and_empty_paths, NULL, test_folder_teardown)
{
    expect_refusal(test_in_folder("nothing"), 4, 0, "cannot reach", "wanted a file or a directory of text");
    expect_refusal(test_folder(), 4, 0, "no text in", "give data.path a file or directory of text");
    write_text("empty", "");
    expect_refusal(test_folder(), 4, 0, "1 empty files", "give data.path");
    expect_refusal(test_in_folder("empty"), 4, 0, "1 empty files", "give data.path");
    write_text("tiny", "abc");
    expect_refusal(test_folder(), 4, 0, "has 4 tokens to train on, wanted at least 5", "give more text");
    write_text("small", "0123456789012345678901234567890123456789");
    expect_refusal(test_folder(), 16, 0.1, "too little to validate on, wanted at least 17 tokens",
                   "raise data.validation_fraction");
    expect_refusal(test_in_folder("small/under"), 4, 0, "cannot reach", "wanted a file or a directory of text");
}

/* An open that waits for the other end of the fifo never ends. */
TEST_WITH(fifos_sockets_and_devices_are_refused_without_waiting, NULL, test_folder_teardown)
{
    write_text("a", "some text that is long enough");
    assert_int_equal(mkfifo(test_in_folder("pipe"), 0644), 0);
    expect_refusal(test_in_folder("pipe"), 4, 0, "is a fifo, wanted a regular file", "remove it");
    expect_refusal(test_folder(), 4, 0, "is a fifo, wanted a regular file", "remove it");
    unlink(test_in_folder("pipe"));
    link_to("/dev/null", "device");
    expect_refusal(test_folder(), 4, 0, "is a device", "remove it");
    expect_refusal("/dev/zero", 4, 0, "is a device", "remove it");
    unlink(test_in_folder("device"));
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int                fd = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s/s", test_folder());
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    expect_refusal(test_folder(), 4, 0, "is a socket", "remove it");
    close(fd);
}

TEST_WITH(links_that_loop_or_dangle_are_refused, NULL, test_folder_teardown)
{
    make_folder("a");
    make_folder("a/b");
    write_text("a/b/f", "some text that is long enough");
    link_to("../../a", "a/b/up");
    expect_refusal(test_folder(), 4, 0, "a loop", "remove it");
    unlink(test_in_folder("a/b/up"));
    link_to("me", "me");
    expect_refusal(test_folder(), 4, 0, "leads back to itself", "remove it");
    unlink(test_in_folder("me"));
    link_to("nowhere", "lost");
    expect_refusal(test_folder(), 4, 0, "a dangling symbolic link", "fix its target");
}

/* More files than a first table of the seen ones has room for: each is found again. */
TEST_WITH(many_files_reached_twice_count_once, NULL, test_folder_teardown)
{
    char name[40], target[40], text[8];
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
}

TEST_WITH(unreadable_things_are_refused, NULL, test_folder_teardown)
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
    expect_refusal(test_folder(), 4, 0, "/f': Permission denied", "give read permission");
    if (is_root) assert_int_equal(seteuid(0), 0);
    assert_int_equal(chmod(test_in_folder("f"), 0644), 0);
    assert_int_equal(chmod(test_in_folder("d"), 0), 0);
    if (is_root) assert_int_equal(seteuid(NOBODY), 0);
    expect_refusal(test_folder(), 4, 0, "cannot read directory", "give read permission");
    expect_refusal(test_in_folder("d/g"), 4, 0, "cannot reach", "give read permission");
    if (is_root) assert_int_equal(seteuid(0), 0);
    assert_int_equal(chmod(test_in_folder("d"), 0755), 0);
}

TEST_WITH(depth_is_limited, NULL, test_folder_teardown)
{
    tm_text path = { 0 };
    tm_text_printf(&path, "%s", test_folder());
    for (int i = 0; i < 32; i++) {
        tm_text_add(&path, "/d");
        assert_int_equal(mkdir(path.data, 0755), 0);
    }
    tm_text file = { 0 };
    tm_text_printf(&file, "%s/f", path.data);
    FILE *f = fopen(file.data, "w");
    assert_non_null(f);
    assert_true(fputs("0123456", f) >= 0);
    assert_int_equal(fclose(f), 0);
    tm_source *source = open_text(test_folder(), 7, 0);
    expect_tokens(source, TM_SPLIT_TRAIN, 0, "0123456|");
    tm_source_close(source);
    tm_text_add(&path, "/d");
    assert_int_equal(mkdir(path.data, 0755), 0);
    expect_refusal(test_folder(), 7, 0, "more than 32 levels deep", "closer to the text");
    tm_text_fini(&path);
    tm_text_fini(&file);
}

static void sparse(const char *name, int64_t bytes)
{
    write_text(name, "");
    assert_int_equal(truncate(test_in_folder(name), bytes), 0);
}

/* Of an epoch of 129 windows, how many are refused for this file? */
static int refused_for(const tm_source *source, const char *name)
{
    int  n = 0;
    char said[2 * PATH_BYTES];
    snprintf(said, sizeof said, "'%s' was changed during the run; keep data.path unchanged", test_in_folder(name));
    for (int64_t i = 0; i < 129; i++) {
        tm_error err = { 0 };
        if (source->kind->check(source, TM_SPLIT_TRAIN, i, &err) == TM_OK) continue;
        assert_int_equal(err.status, TM_INVALID);
        n += strcmp(err.text, said) == 0;
    }
    return n;
}

/* Large files stay where they are: a window is refused when one of those that it touches was changed. */
TEST_WITH(files_that_change_meanwhile, NULL, test_folder_teardown)
{
    enum { SEQ = 1 << 20 };
    write_text("a", "small enough to be copied");
    sparse("b", 65LL * SEQ - 25 - 2); /* the next one begins with the last target of window 64 */
    sparse("c", 64LL * SEQ);
    tm_source *source = open_text(test_folder(), SEQ, 0);
    assert_int_equal(tm_source_describe(source)->train_samples, 129);
    write_text("a", "and may change as it will");
    assert_int_equal(refused_for(source, "a") + refused_for(source, "b") + refused_for(source, "c"), 0);
    for (int k = 0; k < 3; k++) {
        struct stat           info;
        const struct timespec before[2] = { { .tv_sec = 5 }, { .tv_sec = 7 } };
        const char           *name = k == 1 ? "c" : "b";
        assert_int_equal(stat(test_in_folder(name), &info), 0);
        const struct timespec was[2] = { info.st_atim, info.st_mtim };
        assert_int_equal(utimensat(AT_FDCWD, test_in_folder(name), before, 0), 0);
        assert_int_equal(refused_for(source, name), 65);
        assert_int_equal(refused_for(source, k == 1 ? "b" : "c"), 0);
        if (k < 2) assert_int_equal(utimensat(AT_FDCWD, test_in_folder(name), was, 0), 0);
    }
    assert_int_equal(utimensat(AT_FDCWD, test_in_folder("c"), NULL, 0), 0); /* both: b is looked at first */
    assert_int_equal(refused_for(source, "b"), 65);
    assert_int_equal(refused_for(source, "c"), 64);
    assert_int_equal(unlink(test_in_folder("c")), 0);
    assert_int_equal(refused_for(source, "c"), 64);
    tm_source_close(source);
}

TESTS_IN_ORDER
