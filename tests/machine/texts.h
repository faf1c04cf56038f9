/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of a few lines of assembler for the tests of the interpreter. */
#ifndef TESTS_MACHINE_TEXTS_H
#define TESTS_MACHINE_TEXTS_H

#include "machine/machine.h"

/* A kernel "k": pointers as arguments, then words of 4 bytes, then hidden arguments. s[0:1] has the address of the
 * arguments, s2 the block; v0 the thread. 64 v, 64 a registers. */
typedef struct gcn_text {
    const char *arch; /* NULL: gfx942 */
    const char *body;
    int         lds, pointers, words;
    bool        hidden;        /* hidden_block_count_x, _y, _z and hidden_group_size_x, _y, _z behind the words */
    const char *more_metadata; /* lines of the kernel's metadata, in place of ".wavefront_size" */
    int         extra_bytes;   /* of the descriptor's size of arguments: a mistake if not 0 */
} gcn_text;

/* The whole text of a module; the caller frees it. */
char *gcn_text_of(const gcn_text *t);

/* A launch of it: buffers are written before, if `words` of them are given, and read back behind. */
typedef struct gcn_trial {
    uint32_t       blocks, threads; /* 0: 1, 64 */
    uint32_t       arguments[8];    /* the words */
    uint32_t      *buffers[3];      /* one for each pointer */
    size_t         count[3];        /* of 4 bytes */
    int            order;           /* 0 lazy, 1 eager, 2 lazy and waves reversed, 3 lazy and interleaved */
    size_t         argument_bytes;  /* 0: right */
    machine_counts counts;
} gcn_trial;

/* The error, "" if there is none; of the last call. */
const char *gcn_try(const gcn_text *t, gcn_trial *trial);

#endif
