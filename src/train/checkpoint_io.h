/* SPDX-License-Identifier: Apache-2.0 */
/* train/checkpoint_io.h - how checkpoints reach the disk. Private to checkpoints and their tests, which put a failing
 * disk, a power cut or plain memory in place of the system.
 */
#ifndef TM_TRAIN_CHECKPOINT_IO_H
#define TM_TRAIN_CHECKPOINT_IO_H

#include "base/arena.h"
#include "train/checkpoint.h"
#include "train/checkpoint_format.h"

#include <sys/types.h>

#define TM_CHECKPOINT_DATA "tensors.bin"
#define TM_CHECKPOINT_INDEX "index.bin"
#define TM_CHECKPOINT_SEAL "complete"

/* All as in POSIX: -1 and errno when they fail. Descriptors belong to the table that gave them. */
typedef struct {
    void *context;
    int   lock_wait_ms; /* how long a save waits for another process that saves to the same folder */
    int (*create)(void *context, const char *path); /* a new file for writing; fails if it exists */
    ssize_t (*write)(void *context, int fd, const void *data, size_t bytes);
    int (*sync)(void *context, int fd);
    int (*close)(void *context, int fd);
    int (*make_folder)(void *context, const char *path);
    int (*sync_folder)(void *context, const char *path);
    int (*rename)(void *context, const char *from, const char *to);
    int (*remove_file)(void *context, const char *path);
    int (*remove_folder)(void *context, const char *path);
    int (*open)(void *context, const char *path); /* for reading; fails with EINVAL if it is not a regular file */
    int64_t (*size)(void *context, int fd);
    ssize_t (*read_at)(void *context, int fd, void *data, size_t bytes, int64_t offset);
} tm_checkpoint_io;

extern const tm_checkpoint_io tm_checkpoint_system_io;

typedef enum { TM_CHECKPOINT_FINAL, TM_CHECKPOINT_OLD, TM_CHECKPOINT_TEMPORARY } tm_checkpoint_kind;

/* An entry of a checkpoint folder. OLD is the earlier checkpoint of a step that is being replaced. */
typedef struct {
    int64_t            step;
    tm_checkpoint_kind kind;
    int64_t            process; /* that makes the temporary one */
    const char        *path;    /* folder included */
} tm_checkpoint_entry;

/* All entries, latest step first, FINAL before OLD before TEMPORARY; other files are not listed. TM_INVALID if the
 * folder is missing or cannot be read. */
TM_MUST_USE tm_status tm_checkpoint_list(const char *folder, tm_arena *arena, tm_checkpoint_entry **out, size_t *count,
                                         tm_error *err);

/* "folder/step-00000042" with the suffix of the kind. */
const char *tm_checkpoint_path(tm_arena *arena, const char *folder, int64_t step, tm_checkpoint_kind kind);

/* Holds folder/lock so that one process saves at a time; waits up to wait_ms. >= 0: pass it to unlock. -1: held by
 * another, or no permission (errno). -2: this file system has no locks. */
int  tm_checkpoint_lock(const char *folder, int wait_ms);
void tm_checkpoint_unlock(int lock);

/* Checks completeness record, index and file sizes of the checkpoint at `path`, not the tensors' checksums. Everything
 * lives in the arena. data_fd may be NULL. TM_FORMAT or TM_IO. */
TM_MUST_USE tm_status tm_checkpoint_open(const tm_checkpoint_io *io, tm_arena *arena, const char *path, int64_t step,
                                         tm_checkpoint_index *out, int *data_fd, tm_error *err);
/* Loads one checkpoint as tm_checkpoint_load_newest does for a named step. *bytes: tensor bytes read. */
TM_MUST_USE tm_status tm_checkpoint_read(const tm_checkpoint_io *io, const char *path, int64_t step,
                                         tm_checkpoint_state *state, const tm_checkpoint_tensor *tensors, size_t n,
                                         int64_t *bytes, tm_error *err);

TM_MUST_USE tm_status tm_checkpoint_save_with(const tm_checkpoint_io *io, const char *folder,
                                              const tm_checkpoint_state *state, const tm_checkpoint_tensor *tensors,
                                              size_t n, int keep_latest, tm_error *err);
TM_MUST_USE tm_status tm_checkpoint_load_with(const tm_checkpoint_io *io, const char *folder, int64_t step,
                                              tm_checkpoint_state *state, const tm_checkpoint_tensor *tensors, size_t n,
                                              tm_checkpoint_report *report, tm_error *err);

#endif
