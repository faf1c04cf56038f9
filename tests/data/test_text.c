/* SPDX-License-Identifier: Apache-2.0 */
/* Text: windows, splits, order, decoding, and every kind of thing that can lie in a folder. */
#include "base/text.h"
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

static char root[32]; /* a fresh folder for each test */

static int make_root(void **state)
{
    (void)state;
    strcpy(root, "/tmp/tm_text_XXXXXX");
    return mkdtemp(root) && chmod(root, 0755) == 0 ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    char command[PATH_BYTES + 32];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

static const char *in_root(const char *name)
{
    static char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", root, name);
    return path;
}

static void write_file(const char *name, const void *bytes, size_t size)
{
    FILE *f = fopen(in_root(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

static void write_text(const char *name, const char *text)
{
    write_file(name, text, strlen(text));
}

static void make_folder(const char *name)
{
    assert_int_equal(mkdir(in_root(name), 0755), 0);
}

static void link_to(const char *target, const char *name)
{
    assert_int_equal(symlink(target, in_root(name)), 0);
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
static void stream_is_the_sorted_documents(void **state)
{
    (void)state;
    write_text("b", "BBBBB");
    write_text("c", "");
    make_folder("a");
    write_text("a/2", "second");
    write_text("a/10", "tenth.");
    write_text("d", "dd");
    write_text(".hidden", "xxxxxxxxxxxx");
    tm_source             *source = open_text(root, 22, 0);
    const tm_source_facts *facts = tm_source_describe(source);
    expect_tokens(source, TM_SPLIT_TRAIN, 0, "tenth.|second|BBBBB|dd|");
    assert_int_equal(facts->train_samples, 1);
    assert_int_equal(facts->validation_samples, 0);
    assert_int_equal(facts->vocab_needed, 257);
    assert_int_equal(facts->end_token, 256);
    assert_true(isnan(facts->unigram_entropy) && isnan(facts->floor));
    assert_true(fabs(facts->bytes_per_token - 19.0 / 23) < 1e-12);
    tm_source_close(source);
    expect_refusal(root, 23, 0, "has 23 tokens to train on, wanted at least 24", "lower training.seq_len");
}

/* Each line of the files is unique; no line that is whole in one split occurs in the other; all bytes are in one of
 * them. */
static void splits_share_no_byte(void **state)
{
    (void)state;
    enum { FILES = 30, SEQ = 16 };
    int64_t total = 0;
    for (int f = 0; f < FILES; f++) {
        tm_text text = { 0 };
        char    name[16];
        for (int i = 0; i < 3 + f * 7; i++) tm_text_printf(&text, "<%02d:%04d>", f, i);
        snprintf(name, sizeof name, "%02d", f);
        write_file(name, text.data, text.length);
        total += (int64_t)text.length;
        tm_text_fini(&text);
    }
    tm_source             *source = open_text(root, SEQ, 0.2);
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

static void unigram_entropy_is_of_the_validation_split(void **state)
{
    (void)state;
    char bytes[1000];
    memset(bytes, 'x', sizeof bytes);
    for (int i = 900; i < 1000; i++) bytes[i] = "aaab"[i % 4];
    write_file("f", bytes, sizeof bytes);
    tm_source             *source = open_text(root, 100, 0.101); /* 101 bytes: "x", 75 "a", 25 "b"; one window */
    const tm_source_facts *facts = tm_source_describe(source);
    double                 p[] = { 1 / 101.0, 75 / 101.0, 25 / 101.0 }, entropy = 0;
    for (int i = 0; i < 3; i++) entropy -= p[i] * log(p[i]);
    assert_int_equal(facts->validation_samples, 1);
    assert_true(fabs(facts->unigram_entropy - entropy) < 1e-12);
    assert_true(fabs(facts->bytes_per_token - 101.0 / 102) < 1e-12);
    expect_tokens(source, TM_SPLIT_VALIDATION, 0, "xaaabaaab");
    tm_source_close(source);
}

static void binary_bytes_come_back(void **state)
{
    (void)state;
    uint8_t bytes[256];
    int32_t tokens[257];
    tm_text out = { 0 };
    for (int i = 0; i < 256; i++) bytes[i] = (uint8_t)i;
    write_file("f", bytes, sizeof bytes);
    tm_source *source = open_text(root, 256, 0);
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

static void missing_and_empty_paths(void **state)
{
    (void)state;
    expect_refusal(in_root("nothing"), 4, 0, "cannot reach", "wanted a file or a directory of text");
    expect_refusal(root, 4, 0, "no text in", "give data.path a file or directory of text");
    write_text("empty", "");
    expect_refusal(root, 4, 0, "1 empty files", "give data.path");
    expect_refusal(in_root("empty"), 4, 0, "1 empty files", "give data.path");
    write_text("tiny", "abc");
    expect_refusal(root, 4, 0, "has 4 tokens to train on, wanted at least 5", "give more text");
    write_text("small", "0123456789012345678901234567890123456789");
    expect_refusal(root, 16, 0.1, "too little to validate on, wanted at least 17 tokens",
                   "raise data.validation_fraction");
    expect_refusal(in_root("small/under"), 4, 0, "cannot reach", "wanted a file or a directory of text");
}

/* An open that waits for the other end of the fifo never ends. */
static void fifos_sockets_and_devices_are_refused_without_waiting(void **state)
{
    (void)state;
    write_text("a", "some text that is long enough");
    assert_int_equal(mkfifo(in_root("pipe"), 0644), 0);
    expect_refusal(in_root("pipe"), 4, 0, "is a fifo, wanted a regular file", "remove it");
    expect_refusal(root, 4, 0, "is a fifo, wanted a regular file", "remove it");
    unlink(in_root("pipe"));
    link_to("/dev/null", "device");
    expect_refusal(root, 4, 0, "is a device", "remove it");
    expect_refusal("/dev/zero", 4, 0, "is a device", "remove it");
    unlink(in_root("device"));
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int                fd = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s/s", root);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    expect_refusal(root, 4, 0, "is a socket", "remove it");
    close(fd);
}

static void links_that_loop_or_dangle_are_refused(void **state)
{
    (void)state;
    make_folder("a");
    make_folder("a/b");
    write_text("a/b/f", "some text that is long enough");
    link_to("../../a", "a/b/up");
    expect_refusal(root, 4, 0, "a loop", "remove it");
    unlink(in_root("a/b/up"));
    link_to("me", "me");
    expect_refusal(root, 4, 0, "leads back to itself", "remove it");
    unlink(in_root("me"));
    link_to("nowhere", "lost");
    expect_refusal(root, 4, 0, "a dangling symbolic link", "fix its target");
}

/* More files than a first table of the seen ones has room for: each is found again. */
static void many_files_reached_twice_count_once(void **state)
{
    (void)state;
    char name[40], target[40], text[8];
    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof name, "f%03d", i);
        snprintf(text, sizeof text, "%06d", i);
        write_text(name, text);
        snprintf(target, sizeof target, "z%03d", i);
        link_to(name, target);
    }
    tm_source *source = open_text(root, 7, 0);
    assert_int_equal(tm_source_describe(source)->train_samples, 299); /* 2,100 tokens */
    tm_source_close(source);
}

static void unreadable_things_are_refused(void **state)
{
    (void)state;
    write_text("f", "some text that is long enough");
    make_folder("d");
    write_text("d/g", "some text that is long enough");
    bool is_root = geteuid() == 0;
    if (is_root && seteuid(NOBODY) != 0) {
        print_message("skipped: root reads everything and cannot become another user here\n");
        skip();
    }
    if (is_root) assert_int_equal(seteuid(0), 0);
    assert_int_equal(chmod(in_root("f"), 0), 0);
    if (is_root) assert_int_equal(seteuid(NOBODY), 0);
    expect_refusal(root, 4, 0, "/f': Permission denied", "give read permission");
    if (is_root) assert_int_equal(seteuid(0), 0);
    assert_int_equal(chmod(in_root("f"), 0644), 0);
    assert_int_equal(chmod(in_root("d"), 0), 0);
    if (is_root) assert_int_equal(seteuid(NOBODY), 0);
    expect_refusal(root, 4, 0, "cannot read directory", "give read permission");
    expect_refusal(in_root("d/g"), 4, 0, "cannot reach", "give read permission");
    if (is_root) assert_int_equal(seteuid(0), 0);
    assert_int_equal(chmod(in_root("d"), 0755), 0);
}

static void depth_is_limited(void **state)
{
    (void)state;
    tm_text path = { 0 };
    tm_text_printf(&path, "%s", root);
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
    tm_source *source = open_text(root, 7, 0);
    expect_tokens(source, TM_SPLIT_TRAIN, 0, "0123456|");
    tm_source_close(source);
    tm_text_add(&path, "/d");
    assert_int_equal(mkdir(path.data, 0755), 0);
    expect_refusal(root, 7, 0, "more than 32 levels deep", "closer to the text");
    tm_text_fini(&path);
    tm_text_fini(&file);
}

static void sparse(const char *name, int64_t bytes)
{
    write_text(name, "");
    assert_int_equal(truncate(in_root(name), bytes), 0);
}

/* Of an epoch of 129 windows, how many are refused for this file? */
static int refused_for(const tm_source *source, const char *name)
{
    int  n = 0;
    char said[2 * PATH_BYTES];
    snprintf(said, sizeof said, "'%s' was changed during the run; keep data.path unchanged", in_root(name));
    for (int64_t i = 0; i < 129; i++) {
        tm_error err = { 0 };
        if (source->kind->check(source, TM_SPLIT_TRAIN, i, &err) == TM_OK) continue;
        assert_int_equal(err.status, TM_INVALID);
        n += strcmp(err.text, said) == 0;
    }
    return n;
}

/* Large files stay where they are: a window is refused when one of those that it touches was changed. */
static void files_that_change_meanwhile(void **state)
{
    enum { SEQ = 1 << 20 };
    (void)state;
    write_text("a", "small enough to be copied");
    sparse("b", 65LL * SEQ - 25 - 2); /* the next one begins with the last target of window 64 */
    sparse("c", 64LL * SEQ);
    tm_source *source = open_text(root, SEQ, 0);
    assert_int_equal(tm_source_describe(source)->train_samples, 129);
    write_text("a", "and may change as it will");
    assert_int_equal(refused_for(source, "a") + refused_for(source, "b") + refused_for(source, "c"), 0);
    for (int k = 0; k < 3; k++) {
        struct stat           info;
        const struct timespec before[2] = { { .tv_sec = 5 }, { .tv_sec = 7 } };
        const char           *name = k == 1 ? "c" : "b";
        assert_int_equal(stat(in_root(name), &info), 0);
        const struct timespec was[2] = { info.st_atim, info.st_mtim };
        assert_int_equal(utimensat(AT_FDCWD, in_root(name), before, 0), 0);
        assert_int_equal(refused_for(source, name), 65);
        assert_int_equal(refused_for(source, k == 1 ? "b" : "c"), 0);
        if (k < 2) assert_int_equal(utimensat(AT_FDCWD, in_root(name), was, 0), 0);
    }
    assert_int_equal(utimensat(AT_FDCWD, in_root("c"), NULL, 0), 0); /* both: b is looked at first */
    assert_int_equal(refused_for(source, "b"), 65);
    assert_int_equal(refused_for(source, "c"), 64);
    assert_int_equal(unlink(in_root("c")), 0);
    assert_int_equal(refused_for(source, "c"), 64);
    tm_source_close(source);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_root, remove_root)

static const struct CMUnitTest tests[] = {
    IN_FOLDER(stream_is_the_sorted_documents),
    IN_FOLDER(splits_share_no_byte),
    IN_FOLDER(unigram_entropy_is_of_the_validation_split),
    IN_FOLDER(binary_bytes_come_back),
    IN_FOLDER(missing_and_empty_paths),
    IN_FOLDER(fifos_sockets_and_devices_are_refused_without_waiting),
    IN_FOLDER(links_that_loop_or_dangle_are_refused),
    IN_FOLDER(many_files_reached_twice_count_once),
    IN_FOLDER(unreadable_things_are_refused),
    IN_FOLDER(depth_is_limited),
    IN_FOLDER(files_that_change_meanwhile),
};

TEST_TABLE(tests)
TESTS_IN_ORDER
