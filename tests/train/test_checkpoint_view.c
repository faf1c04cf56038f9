/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of a checkpoint one at a time: any run of their bytes, of the newest checkpoint or of a step, and what is
 * said of those that are not there or are damaged. */
#include "support/test.h"
#include "checkpoint_fixture.h"

#include "train/checkpoint/view.h"

#include <fcntl.h>

static const char *const names[N_TENSORS] = { "layers.0.wq.weight", "loss_scale", "nothing", "bytes" };

/* Every tensor is that of `step`, whatever part of it is asked for. */
static void check_tensors(const fixture *f, int64_t asked, int64_t step, uint64_t variant)
{
    static fixture      wanted;
    tm_checkpoint_view *view;
    tm_error            err = { 0 };
    size_t              at = 0;
    fill(&wanted, step, variant);
    set_tensors(&wanted);
    if (tm_checkpoint_view_open(f->folder, asked, &view, &err) != TM_OK) fail_msg("%s", err.text);
    for (int i = 0; i < N_TENSORS; i++) {
        unsigned char part[ROOM_BYTES + 1];
        int           dtype = -1;
        size_t        bytes = 77;
        if (tm_checkpoint_view_find(view, names[i], &dtype, &bytes, &err) != TM_OK) fail_msg("%s", err.text);
        assert_int_equal(dtype, wanted.tensors[i].dtype);
        assert_int_equal(bytes, wanted.tensors[i].bytes);
        for (size_t from = 0; from < bytes; from += from % 3 + 1)
            for (size_t n = 1; from + n <= bytes; n += n < 4 ? 1 : 13) {
                memset(part, 0xEE, sizeof part);
                if (tm_checkpoint_view_read(view, names[i], from, part, n, &err) != TM_OK) fail_msg("%s", err.text);
                assert_memory_equal(part, wanted.data + at + from, n);
                assert_int_equal(part[n], 0xEE);
            }
        at += bytes;
    }
    tm_checkpoint_view_close(view);
}

/* Says the words and the folder; `newest`: of which checkpoint the story is told, or NULL. */
static void refuses(const fixture *f, int64_t step, tm_status wanted, const char *words, const char *newest)
{
    tm_checkpoint_view *view = NULL;
    tm_error            err = { 0 };
    char                said[400];
    int                 n = snprintf(said, sizeof said, "%s '%s'", words, f->folder);
    if (newest) snprintf(said + n, sizeof said - (size_t)n, " is usable: '%s/%s': ", f->folder, newest);
    assert_int_equal(tm_checkpoint_view_open(f->folder, step, &view, &err), wanted);
    if (!strstr(err.text, said)) fail_msg("'%s' does not say '%s'", err.text, said);
    assert_null(view);
}

TEST(any_part_of_a_tensor_is_read)
{
    fixture f = new_fixture();
    refuses(&f, -1, TM_INVALID, "there is no checkpoint in", NULL);
    refuses(&f, 4, TM_INVALID, "there is no checkpoint of step 4 in", NULL);
    save(&f, 0, 3, 0);
    check_tensors(&f, -1, 0, 3);
    check_tensors(&f, 0, 0, 3);
    save(&f, 5, 1, 0);
    save(&f, 12, 2, 0);
    check_tensors(&f, -1, 12, 2);
    check_tensors(&f, 12, 12, 2);
    check_tensors(&f, 5, 5, 1);
    refuses(&f, 4, TM_INVALID, "there is no checkpoint of step 4 in", NULL);
    tm_checkpoint_view_close(NULL);
    clear(f.folder);
}

/* at < 0: counted from the end */
static void change(const fixture *f, const char *file, off_t at)
{
    char          path[400];
    unsigned char byte;
    snprintf(path, sizeof path, "%s/%s", f->folder, file);
    int fd = open(path, O_RDWR);
    if (at < 0) at += lseek(fd, 0, SEEK_END);
    assert_true(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    byte ^= 0x10;
    assert_true(pwrite(fd, &byte, 1, at) == 1 && close(fd) == 0);
}

TEST(what_is_not_there_or_damaged_is_named)
{
    fixture             f = new_fixture();
    tm_checkpoint_view *view;
    tm_error            err = { 0 };
    int                 dtype;
    size_t              bytes;
    char                said[500];
    save(&f, 7, 1, 0);
    refuses(&f, 0, TM_INVALID, "there is no checkpoint of step 0 in", NULL);
    change(&f, "step-00000007/" TM_CHECKPOINT_DATA, 5 - ROOM_BYTES); /* of the first tensor */
    assert_int_equal(tm_checkpoint_view_open(f.folder, -1, &view, &err), TM_OK);
    assert_int_equal(tm_checkpoint_view_find(view, "other", &dtype, &bytes, &err), TM_INVALID);
    snprintf(said, sizeof said, "checkpoint '%s/step-00000007' holds no tensor 'other'", f.folder);
    assert_string_equal(err.text, said);
    err = (tm_error){ 0 };
    assert_int_equal(tm_checkpoint_view_find(view, names[0], &dtype, &bytes, &err), TM_FORMAT);
    snprintf(said, sizeof said, "checkpoint '%s/step-00000007': ", f.folder);
    if (strncmp(err.text, said, strlen(said)) != 0 || !strstr(err.text, "checksum")) fail_msg("%s", err.text);
    err = (tm_error){ 0 };
    assert_int_equal(tm_checkpoint_view_find(view, names[3], &dtype, &bytes, &err), TM_OK); /* as it was */
    assert_true(dtype == 9 && bytes == 130);
    tm_checkpoint_view_close(view);
    /* An older one is taken where the newest is no checkpoint; where none is, the newest is told. */
    save(&f, 8, 2, 0);
    change(&f, "step-00000008/" TM_CHECKPOINT_INDEX, 40);
    change(&f, "step-00000007/" TM_CHECKPOINT_DATA, 5 - ROOM_BYTES);
    check_tensors(&f, -1, 7, 1);
    refuses(&f, 8, TM_FORMAT, "no checkpoint in", "step-00000008");
    change(&f, "step-00000007/" TM_CHECKPOINT_INDEX, 40);
    refuses(&f, -1, TM_FORMAT, "no checkpoint in", "step-00000008");
    refuses(&f, 7, TM_FORMAT, "no checkpoint in", "step-00000007");
    clear(f.folder);
}

/* A state is read by the name of what it is of, where there is one. */
TEST(a_state_stands_for_its_tensor)
{
    static const size_t wanted[] = { 60, 4 };
    fixture             f = new_fixture();
    tm_checkpoint_view *view;
    tm_error            err = { 0 };
    unsigned char       part[60];
    char                said[500];
    save(&f, 7, 1, 0);
    assert_int_equal(tm_checkpoint_view_open(f.folder, 7, &view, &err), TM_OK);
    assert_int_equal(tm_checkpoint_view_take(view, "ema", &err), TM_INVALID);
    snprintf(said, sizeof said, "checkpoint '%s/step-00000007' holds no tensor NAME.ema", f.folder);
    assert_string_equal(err.text, said);
    assert_int_equal(tm_checkpoint_view_take(view, "eight", &err), TM_INVALID);
    assert_int_equal(tm_checkpoint_view_take(view, "weight", &err), TM_OK);
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "loss_scale" : "layers.0.wq";
        int         dtype = -1;
        size_t      bytes = 0;
        if (tm_checkpoint_view_find(view, name, &dtype, &bytes, &err) != TM_OK) fail_msg("%s", err.text);
        assert_true(dtype == 1 && bytes == wanted[i]);
        if (tm_checkpoint_view_read(view, name, 0, part, bytes, &err) != TM_OK) fail_msg("%s", err.text);
        assert_memory_equal(part, f.data + (i ? wanted[0] : 0), bytes);
    }
    tm_checkpoint_view_close(view);
    clear(f.folder);
}
