/* SPDX-License-Identifier: Apache-2.0 */
/* train/checkpoint/io.h - how checkpoints reach the disk. Private to checkpoints and their tests, which put a failing
 * disk, a power cut or plain memory in place of the system.
 */
#ifndef TM_TRAIN_CHECKPOINT_IO_H
#define TM_TRAIN_CHECKPOINT_IO_H

#include "base/arena.h"
#include "base/hash.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/format.h"

#include <sys/types.h>

#define TM_CHECKPOINT_DATA "tensors.safetensors" /* of a rank: tensors-00003.safetensors */
#define TM_CHECKPOINT_OLD_DATA "tensors.bin"     /* up to version 4 */
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

/* The name of a file of tensors: of a rank, or -1, of the only one. */
const char *tm_checkpoint_file_name(tm_arena *arena, int64_t writer, bool safetensors);

/* Which of several ranks checks what. */
typedef struct {
    int rank, ranks; /* files and pieces i with i mod ranks == rank */
} tm_checkpoint_share;

/* Checks completeness record, index and, of its share, file sizes of the checkpoint at `path`, not the tensors'
 * checksums. Everything lives in the arena. TM_FORMAT or TM_IO. */
TM_MUST_USE tm_status tm_checkpoint_open(const tm_checkpoint_io *io, tm_arena *arena, const char *path, int64_t step,
                                         tm_checkpoint_share share, tm_checkpoint_index *out, tm_error *err);
/* Loads one checkpoint as tm_checkpoint_load_newest does for a named step. *bytes: tensor bytes read. `world` as of
 * tm_checkpoint_load_together. */
TM_MUST_USE tm_status tm_checkpoint_read(const tm_checkpoint_io *io, tm_comm *world, const char *path, int64_t step,
                                         tm_checkpoint_state *state, const tm_checkpoint_tensor *tensors, size_t n,
                                         int64_t *bytes, tm_error *err);

/* --- reading pieces (fetch.c) ----------------------------------------------------------------------------------- */

/* The files of an open checkpoint, one of them open at a time. */
typedef struct {
    const tm_checkpoint_io    *io;
    tm_arena                  *arena;
    const char                *path; /* of the checkpoint */
    const tm_checkpoint_index *index;
    unsigned char             *buffer; /* TM_CHECKPOINT_CHUNK_BYTES */
    tm_hasher                 *hasher;
    int                        fd;
    uint32_t                   file; /* that is open */
} tm_checkpoint_reader;

enum { TM_CHECKPOINT_CHUNK_BYTES = 1 << 20 };

void tm_checkpoint_reader_open(tm_checkpoint_reader *reader, const tm_checkpoint_io *io, tm_arena *arena,
                               const char *path, const tm_checkpoint_index *index);
void tm_checkpoint_reader_close(tm_checkpoint_reader *reader);

/* The part as it is, or of the whole tensor; parts of whole rows as one row. */
tm_checkpoint_part tm_checkpoint_part_of(const tm_checkpoint_tensor *tensor);

/* Reads a piece and compares its checksum; its bytes go to `to`, if that is not NULL, which is exactly this piece. */
TM_MUST_USE tm_status tm_checkpoint_read_piece(tm_checkpoint_reader *reader, const tm_checkpoint_record *record,
                                               const tm_checkpoint_piece *piece, const tm_checkpoint_tensor *to,
                                               tm_error *err);
/* Reads the part of a tensor that `to` is out of the pieces that it lies in. */
TM_MUST_USE tm_status tm_checkpoint_fetch(tm_checkpoint_reader *reader, const tm_checkpoint_record *record,
                                          const tm_checkpoint_tensor *to, tm_error *err);
/* Are the bytes that `to` wants exactly a piece of the record? NULL: they are not. */
const tm_checkpoint_piece *tm_checkpoint_same_piece(const tm_checkpoint_index  *index,
                                                    const tm_checkpoint_record *record, const tm_checkpoint_tensor *to);

/* --- saving ------------------------------------------------------------------------------------------------------- */

/* The indices of what each rank has written, as one (merge.c). `parts[r]`: encoded, of rank r. TM_INTERNAL:
 * they are of different states, or are not whole tensors together. */
TM_MUST_USE tm_status tm_checkpoint_merge(unsigned char *const *parts, const size_t *lengths, int ranks,
                                          tm_arena *arena, tm_checkpoint_index *out, tm_error *err);

TM_MUST_USE tm_status tm_checkpoint_begin_with(const tm_checkpoint_io *io, const tm_checkpoint_target *target,
                                               const tm_checkpoint_state *state, const tm_checkpoint_tensor *tensors,
                                               size_t n, tm_checkpoint_saving **out, tm_error *err);
TM_MUST_USE tm_status tm_checkpoint_save_with(const tm_checkpoint_io *io, const char *folder,
                                              const tm_checkpoint_state *state, const tm_checkpoint_tensor *tensors,
                                              size_t n, int keep_latest, tm_error *err);
TM_MUST_USE tm_status tm_checkpoint_load_with(const tm_checkpoint_io *io, tm_comm *world, const char *folder,
                                              int64_t step, tm_checkpoint_state *state,
                                              const tm_checkpoint_tensor *tensors, size_t n,
                                              tm_checkpoint_report *report, tm_error *err);

#endif
