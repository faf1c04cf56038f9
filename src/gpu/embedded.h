/* SPDX-License-Identifier: Apache-2.0 */
/* gpu/embedded.h - machine code of kernels that a release has inside: the very code that the tests have executed and
 * judged. Code objects of AMD's GPUs by architecture; PTX, of which NVIDIA's driver makes machine code.
 *
 * The set is one block of bytes (tools/embed_kernels.py):
 *     "TMKSET1", 0; hash of all that follows; bytes of the content; the content, compressed by zstd.
 * The content: how many entries; the entries, as below; their code. A key is the hash of architecture, definitions and
 * text, so code never belongs to another text.
 */
#ifndef TM_GPU_EMBEDDED_H
#define TM_GPU_EMBEDDED_H

#include "gpu/compile.h"

typedef struct tm_gpu_embedded tm_gpu_embedded;

/* The block, in memory of the program; NULL: this build has none. Made by make (KERNELS). */
const void *tm_gpu_embedded_set(size_t *bytes);

/* Of the set what this GPU may load; *out NULL: nothing, or there is no set. TM_INTERNAL: the set is damaged. */
TM_MUST_USE tm_status tm_gpu_embedded_open(const tm_gpu_facts *gpu, tm_gpu_embedded **out, tm_error *err);
void                  tm_gpu_embedded_close(tm_gpu_embedded *embedded);       /* NULL is fine */
int                   tm_gpu_embedded_count(const tm_gpu_embedded *embedded); /* modules; of NULL: 0 */
/* The architecture that the code is for: "gfx942", or of PTX the oldest: "sm_80". Beside that PTX there may be some for
 * this GPU's architecture alone. */
const char *tm_gpu_embedded_arch(const tm_gpu_embedded *embedded);

/* The code of this source if it is there, and if its kernel of this name was judged; else, and of NULL, NULL.
 * source->arch is not looked at. */
const void *tm_gpu_embedded_find(const tm_gpu_embedded *embedded, const tm_gpu_source *source, const char *kernel);

#endif
