/* SPDX-License-Identifier: Apache-2.0 */
/* train/checkpoint/saving.h - a checkpoint that is being saved (checkpoint.c), and what of it reaches the disk
 * (disk.c). Private to checkpoints. */
#ifndef TM_TRAIN_CHECKPOINT_SAVING_H
#define TM_TRAIN_CHECKPOINT_SAVING_H

#include "base/text.h"
#include "train/checkpoint/io.h"

#include <pthread.h>
#include <stdatomic.h>

struct tm_checkpoint_saving {
    const tm_checkpoint_io *io;
    tm_checkpoint_target    target;
    int                     rank, ranks;
    tm_arena               *arena;
    tm_hasher              *hasher;
    void                   *buffer; /* CHUNK_BYTES */
    const char             *folder, *temporary, *final, *old;
    int                     lock; /* of rank 0; -2: none */
    bool                    began;
    tm_checkpoint_tensor   *tensors;   /* that this rank writes */
    tm_checkpoint_index     index;     /* of them */
    const char             *data;      /* their file; NULL: none */
    bool                    in_pieces; /* else rank 0 alone writes all tensors, whole */
    void                   *copies;
    pthread_t               thread;
    bool                    threaded;
    atomic_bool             written;
    tm_status               status; /* of the writing */
    tm_error                own, *err;
};
typedef tm_checkpoint_saving saver;

/* TM_IO: what could not be done, and the way out. */
TM_MUST_USE tm_status saving_failed_to(saver *s, const char *verb, const char *path, int cause);
/* mkdir -p whose new entries survive a crash. */
TM_MUST_USE tm_status saving_make_folder(saver *s);
/* Removes what dead processes left. Without locks only our own leftovers are known to be dead. */
void saving_sweep(const saver *s, bool locked);
/* What stands in front of the tensors of this rank's file, but for its length (header.c). Adds to *out. */
void saving_header(saver *s, tm_text *out);
/* The file of this rank, if it has one; fills the pieces' places and checksums. */
TM_MUST_USE tm_status saving_write_data(saver *s);
/* Index and completeness record, of all ranks. */
TM_MUST_USE tm_status saving_write_index(saver *s, const tm_checkpoint_index *index);
/* From its temporary to its final name. */
TM_MUST_USE tm_status saving_publish(saver *s, int64_t step);
/* Removes old checkpoints. Damaged ones do not count as kept: they go when enough good ones are later. */
void saving_prune(const saver *s, int64_t step, int keep_latest);
/* Removes a checkpoint; what cannot be removed is a warning in the log. */
void saving_remove(const saver *s, const char *path);

#endif
