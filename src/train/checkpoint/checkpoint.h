/* SPDX-License-Identifier: Apache-2.0 */
/* train/checkpoint/checkpoint.h - the state of a run on disk, so that a run stopped and resumed has the bits of one
 * never stopped.
 *
 * A checkpoint is a folder `step-00000042` with three files (docs/checkpoints.md has the layout): the bytes of the
 * tensors, an index with a checksum per tensor, and a completeness record, written last. It is made in a temporary
 * folder beside it, every file and folder is flushed to disk, then it is renamed: a crash at any moment leaves the
 * earlier checkpoints intact. What a tensor means is the caller's affair: dtype is a small number that is compared, not
 * understood.
 *
 * Ranks save together: each writes a file with what it holds, one index says what lies where. Tensors may lie on them
 * in parts; a checkpoint is loaded into any other parts, on any number of ranks.
 */
#ifndef TM_TRAIN_CHECKPOINT_H
#define TM_TRAIN_CHECKPOINT_H

#include "base/status.h"
#include "comm/comm.h"
#include "graph/tensor.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TM_CHECKPOINT_MAX_RANK = 4, TM_CHECKPOINT_MODEL_BYTES = 64, TM_CHECKPOINT_DESCRIPTION_BYTES = 8192 };
#define TM_CHECKPOINT_MAX_COUNT ((int64_t)1 << 53)                    /* of steps and samples */
enum { TM_CHECKPOINT_SCALARS = 32, TM_CHECKPOINT_SCALAR_BYTES = 40 }; /* at most; of a name, its NUL included */

/* How tensors are reached, wherever they are: copies of at most 1 MiB, done when the call returns. A failure ends the
 * saving or loading and is passed on. */
typedef struct tm_checkpoint_memory {
    tm_status (*read)(const struct tm_checkpoint_memory *memory, tm_address from, void *to, size_t bytes,
                      tm_error *err);
    tm_status (*write)(const struct tm_checkpoint_memory *memory, tm_address to, const void *from, size_t bytes,
                       tm_error *err);
    void *context;
} tm_checkpoint_memory;

/* Part of a tensor, whose bytes are seen as a matrix with rows of row_bytes: row_part bytes from first_byte on of each
 * of `rows` rows from first_row on. Of a tensor that is cut along its first axis, or anywhere, row_bytes is whole_bytes
 * and there is one row; of one that is cut along a later axis it is what the axes before that one step over. */
typedef struct {
    size_t whole_bytes; /* 0: the whole tensor, and nothing else here counts */
    size_t row_bytes;   /* divides whole_bytes; for all parts of a tensor, on all ranks, the same */
    size_t first_row, rows, first_byte, row_part;
} tm_checkpoint_part;

/* The bytes are read when saving and written when loading; how many belong to shape and dtype only the caller can
 * check. Names are unique within a checkpoint, but for several parts of a tensor. Axes beyond `rank` are ignored. */
typedef struct {
    const char                 *name;
    int                         dtype;                     /* 0 .. 65535 */
    int                         rank;                      /* 0 .. 4 */
    int64_t                     n[TM_CHECKPOINT_MAX_RANK]; /* of the whole tensor */
    size_t                      bytes; /* here: of a part, its rows x row_part, one row behind the other */
    tm_address                  at;
    const tm_checkpoint_memory *memory;    /* may be NULL when bytes is 0 */
    tm_checkpoint_part          part;      /* zeros: all of it */
    bool                        elsewhere; /* another rank saves these bytes, too: this one does not. It loads them */
} tm_checkpoint_tensor;

/* A number of the run that is no tensor. */
typedef struct {
    char   name[TM_CHECKPOINT_SCALAR_BYTES]; /* not empty; the rest of the field is zero */
    double value;                            /* kept bit for bit */
} tm_checkpoint_scalar;

typedef struct {
    int64_t  step;             /* finished optimizer steps, 0 .. TM_CHECKPOINT_MAX_COUNT; names the folder */
    int64_t  samples_consumed; /* 0 .. TM_CHECKPOINT_MAX_COUNT */
    uint64_t seed, config_hash;
    uint64_t content;                                      /* of the data (tm_source_facts); 0: not known */
    char     model[TM_CHECKPOINT_MODEL_BYTES];             /* NUL-terminated */
    char     description[TM_CHECKPOINT_DESCRIPTION_BYTES]; /* of the model, printable lines "name value",
                                                              NUL-terminated; "": not known */
    size_t               n_scalars;
    tm_checkpoint_scalar scalars[TM_CHECKPOINT_SCALARS]; /* names are unique */
} tm_checkpoint_state;

/* Adds a scalar. The name is new, and shorter than TM_CHECKPOINT_SCALAR_BYTES. */
void tm_checkpoint_add_scalar(tm_checkpoint_state *state, const char *name, double value);
/* values[i] becomes the scalar names[i]. TM_INVALID naming the first that is not there, or one that is there and not
 * among the names: what a run has kept is not to be dropped in silence. */
TM_MUST_USE tm_status tm_checkpoint_scalars(const tm_checkpoint_state *state, const char *const *names, double *values,
                                            size_t n, tm_error *err);

typedef struct {
    int64_t step;        /* the one that was loaded */
    int64_t bytes;       /* tensor bytes read into place */
    size_t  passed_over; /* newer ones that were not usable */
    char    text[1024];  /* "" when passed_over is 0; else for the log: which, why, and what was loaded instead */
} tm_checkpoint_report;

/* Makes folder/step-N (parents too), replacing an earlier one of that step, then removes all but the `keep_latest`
 * latest ones up to this step (0: keeps all; later steps are never touched). The tensors must not change meanwhile; no
 * memory in proportion to them is used. TM_IO (disk full, file-size limit, no permission, another process saving there)
 * with the way out: the temporary folder is gone and earlier checkpoints are as they were. An old one that cannot be
 * removed is a warning in the log. */
TM_MUST_USE tm_status tm_checkpoint_save(const char *folder, const tm_checkpoint_state *state,
                                         const tm_checkpoint_tensor *tensors, size_t n, int keep_latest, tm_error *err);

/* --- saving by several ranks, and behind the training's back ------------------------------------------------------ */

typedef struct tm_checkpoint_saving tm_checkpoint_saving;

typedef struct {
    tm_comm    *world;  /* all ranks of it save together, with the same state; NULL: this process alone */
    const char *folder; /* all ranks see the same one */
    int         keep_latest;
    bool        behind; /* the tensors are copied, and the copies written by a thread while training goes on */
} tm_checkpoint_target;

/* Begins to save, as tm_checkpoint_save: the parts that are not `elsewhere` are, of all ranks together, each tensor
 * once. Returns when the tensors may change again. Ranks fail together; after a failure *out is NULL. TM_NOMEM: no room
 * for copies. */
TM_MUST_USE tm_status tm_checkpoint_begin(const tm_checkpoint_target *target, const tm_checkpoint_state *state,
                                          const tm_checkpoint_tensor *tensors, size_t n, tm_checkpoint_saving **out,
                                          tm_error *err);
/* Has this rank written all that it has to write (well or not)? tm_checkpoint_commit would not wait for a disk. */
bool tm_checkpoint_written(const tm_checkpoint_saving *saving);
/* The checkpoint comes to be, or not; all ranks of the world call it. Until then, the one before is the newest. Ends
 * the saving. */
TM_MUST_USE tm_status tm_checkpoint_commit(tm_checkpoint_saving *saving, tm_error *err);
/* Ends it without a checkpoint, without the other ranks. NULL is fine. */
void tm_checkpoint_abandon(tm_checkpoint_saving *saving);

/* --- loading ------------------------------------------------------------------------------------------------------ */

/* Fills *state and the tensors' data from the newest usable checkpoint (step -1), or from that of `step`. The
 * checkpoint must hold exactly the given tensors, in any order. Everything is checked, checksums included, before the
 * first byte goes to a tensor.
 *     damaged or unreadable: with step -1 the next older one is tried, *report says so; a named step: TM_FORMAT, TM_IO
 *     intact, but other tensors than wanted: TM_INVALID naming tensor, found and wanted; older ones are not tried
 *     no usable one: TM_INVALID naming the folder and what was wrong with each
 * After a failure the tensors are as they were, unless a file changed between check and read. */
TM_MUST_USE tm_status tm_checkpoint_load_newest(const char *folder, int64_t step, tm_checkpoint_state *state,
                                                const tm_checkpoint_tensor *tensors, size_t n,
                                                tm_checkpoint_report *report, tm_error *err);

/* The same by all ranks of a world, each with the tensors, or parts of them, that it wants; what none of them wants
 * must not be there. All load the same checkpoint, or fail together. Each file is checked by one of the ranks. */
TM_MUST_USE tm_status tm_checkpoint_load_together(tm_comm *world, const char *folder, int64_t step,
                                                  tm_checkpoint_state *state, const tm_checkpoint_tensor *tensors,
                                                  size_t n, tm_checkpoint_report *report, tm_error *err);

/* *before: the latest step below `step` of which the folder holds a checkpoint, usable or not; 0: there is none. */
TM_MUST_USE tm_status tm_checkpoint_before(const char *folder, int64_t step, int64_t *before, tm_error *err);

/* Does the folder hold a checkpoint, usable or not? For "resume if there is something to resume". */
bool tm_checkpoint_present(const char *folder);

#endif
