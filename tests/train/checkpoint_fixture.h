/* SPDX-License-Identifier: Apache-2.0 */
/* What the checkpoint tests share: a scratch folder, a small set of tensors whose content follows from the step, and
 * the comparison of what was loaded with what was saved. */
#ifndef TM_TESTS_CHECKPOINT_FIXTURE_H
#define TM_TESTS_CHECKPOINT_FIXTURE_H

#include "support/test.h"
#include "base/random.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/io.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N_TENSORS = 4, ROOM_BYTES = 60 + 4 + 0 + 130 };

typedef struct {
    char                 folder[256];
    unsigned char        data[ROOM_BYTES];
    tm_checkpoint_tensor tensors[N_TENSORS];
    tm_checkpoint_state  state;
} fixture;

static inline int remove_one(const char *path, const struct stat *info, int type, struct FTW *where)
{
    (void)info;
    (void)type;
    (void)where;
    return remove(path);
}

static inline void clear(const char *folder)
{
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Tensors in the memory of the test. */
static inline tm_status host_read(const tm_checkpoint_memory *memory, tm_address from, void *to, size_t bytes,
                                  tm_error *err)
{
    (void)memory;
    (void)err;
    memcpy(to, (const void *)from.at, bytes);
    return TM_OK;
}

static inline tm_status host_write(const tm_checkpoint_memory *memory, tm_address to, const void *from, size_t bytes,
                                   tm_error *err)
{
    (void)memory;
    (void)err;
    memcpy((void *)to.at, from, bytes);
    return TM_OK;
}

static const tm_checkpoint_memory host_memory = { host_read, host_write, NULL };

static inline void place(tm_checkpoint_tensor *tensor, void *data)
{
    tensor->memory = data ? &host_memory : NULL;
    tensor->at = (tm_address){ (uintptr_t)data };
}

static inline void set_tensors(fixture *f)
{
    static const char *const   names[N_TENSORS] = { "layers.0.wq.weight", "loss_scale", "nothing", "bytes" };
    static const size_t        bytes[N_TENSORS] = { 60, 4, 0, 130 };
    const tm_checkpoint_tensor shapes[N_TENSORS] = {
        { .dtype = 1, .rank = 2, .n = { 3, 5 } },
        { .dtype = 1, .rank = 0 },
        { .dtype = 2, .rank = 2, .n = { 0, 7 } },
        { .dtype = 9, .rank = 4, .n = { 1, 13, 2, 5 } },
    };
    size_t offset = 0;
    for (size_t i = 0; i < N_TENSORS; i++) {
        f->tensors[i] = shapes[i];
        f->tensors[i].name = names[i];
        f->tensors[i].bytes = bytes[i];
        place(&f->tensors[i], bytes[i] ? f->data + offset : NULL);
        offset += bytes[i];
    }
}

/* The content of a step; `variant` tells two savings of one step apart. */
static inline void fill(fixture *f, int64_t step, uint64_t variant)
{
    for (size_t i = 0; i < sizeof f->data; i++) f->data[i] = (unsigned char)tm_random_u64((uint64_t)step, variant, i);
    f->state = (tm_checkpoint_state){ .step = step,
                                      .samples_consumed = 8 * step,
                                      .seed = UINT64_MAX - variant,
                                      .config_hash = 0x0123456789ABCDEFu,
                                      .model = "llama3.2_1B" };
    tm_checkpoint_add_scalar(&f->state, "first_loss", 0.1 * (double)step);
    tm_checkpoint_add_scalar(&f->state, "zero", -0.0);
    tm_checkpoint_add_scalar(&f->state, "tiny", 5e-324);
    tm_checkpoint_add_scalar(&f->state, "a_name_as_long_as_names_of_scalars_get", 1e308);
}

static inline bool holds(const fixture *f, int64_t step, uint64_t variant)
{
    fixture wanted;
    memset(&wanted, 0, sizeof wanted);
    fill(&wanted, step, variant);
    return memcmp(f->data, wanted.data, sizeof f->data) == 0 && f->state.step == step &&
           f->state.samples_consumed == wanted.state.samples_consumed && f->state.seed == wanted.state.seed &&
           f->state.config_hash == wanted.state.config_hash && strcmp(f->state.model, wanted.state.model) == 0 &&
           f->state.n_scalars == wanted.state.n_scalars &&
           memcmp(f->state.scalars, wanted.state.scalars, wanted.state.n_scalars * sizeof *wanted.state.scalars) == 0;
}

static inline fixture new_fixture(void)
{
    fixture     f;
    const char *parent = getenv("TMPDIR"); /* else in memory where possible: the tests flush thousands of times */
    if (!parent) parent = access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp";
    memset(&f, 0, sizeof f);
    snprintf(f.folder, sizeof f.folder, "%s/tm-checkpoint-XXXXXX", parent);
    assert_non_null(mkdtemp(f.folder));
    return f;
}

static inline void save(fixture *f, int64_t step, uint64_t variant, int keep)
{
    tm_error err = { 0 };
    set_tensors(f);
    fill(f, step, variant);
    if (tm_checkpoint_save(f->folder, &f->state, f->tensors, N_TENSORS, keep, &err) != TM_OK)
        fail_msg("saving step %lld: %s", (long long)step, err.text);
}

/* Tensors and state are filled with 0xEE first. */
static inline tm_status load(fixture *f, int64_t step, tm_checkpoint_report *report, tm_error *err)
{
    memset(f->data, 0xEE, sizeof f->data);
    memset(&f->state, 0xEE, sizeof f->state);
    memset(err, 0, sizeof *err);
    set_tensors(f);
    return tm_checkpoint_load_newest(f->folder, step, &f->state, f->tensors, N_TENSORS, report, err);
}

static inline bool untouched(const fixture *f)
{
    for (size_t i = 0; i < sizeof f->data; i++)
        if (f->data[i] != 0xEE) return false;
    const unsigned char *state = (const unsigned char *)&f->state;
    for (size_t i = 0; i < sizeof f->state; i++)
        if (state[i] != 0xEE) return false;
    return true;
}

static inline void load_and_expect(fixture *f, int64_t step, uint64_t variant)
{
    tm_checkpoint_report report;
    tm_error             err;
    if (load(f, -1, &report, &err) != TM_OK) fail_msg("loading: %s", err.text);
    assert_int_equal(report.step, step);
    assert_true(holds(f, step, variant));
}

static inline bool exists(const fixture *f, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", f->folder, name);
    return access(path, F_OK) == 0;
}

static inline size_t count_entries(const fixture *f, tm_checkpoint_kind kind)
{
    tm_arena            *arena = tm_arena_create();
    tm_checkpoint_entry *entries;
    size_t               count, found = 0;
    tm_error             err = { 0 };
    assert_int_equal(tm_checkpoint_list(f->folder, arena, &entries, &count, &err), TM_OK);
    for (size_t i = 0; i < count; i++) found += entries[i].kind == kind;
    tm_arena_destroy(arena);
    return found;
}

/* Where the tensors begin in a file of them. */
static inline long data_begins(const char *path)
{
    uint64_t length = 0;
    FILE    *file = fopen(path, "rb");
    assert_true(file && fread(&length, sizeof length, 1, file) == 1);
    fclose(file);
    return (long)(sizeof length + length);
}

static inline void assert_says(const tm_error *err, const char *words)
{
    if (!strstr(err->text, words)) fail_msg("'%s' lacks '%s'", err->text, words);
}

#endif
