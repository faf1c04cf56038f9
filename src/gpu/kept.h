/* SPDX-License-Identifier: Apache-2.0 */
/* gpu/kept.h - what compilers and libraries of GPUs made, kept in a folder that its owner alone may use:
 * TRAINMARK_KERNELS, else trainmark/kernels in XDG_CACHE_HOME or ~/.cache. The name of a file there is a hash of all
 * that it depends on, so many processes may fill the folder at once. Where there is no such folder nothing is kept.
 */
#ifndef TM_GPU_KEPT_H
#define TM_GPU_KEPT_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    char folder[PATH_MAX]; /* "": none */
} tm_gpu_kept;

/* The folder, if it is the user's own and nobody else may write there; it is made if it is not there. */
void tm_gpu_kept_find(tm_gpu_kept *kept);

/* False: it is not there, or damaged. *data is released with free(). */
bool tm_gpu_kept_recall(const tm_gpu_kept *kept, uint64_t key, void **data, size_t *bytes);

/* As far as that can be done. */
void tm_gpu_kept_store(const tm_gpu_kept *kept, uint64_t key, const void *data, size_t bytes);

#endif
