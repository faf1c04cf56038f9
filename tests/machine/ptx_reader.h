/* SPDX-License-Identifier: Apache-2.0 */
/* What reads a module in PTX: ptx_load.c has its statements, ptx_resolve.c their registers, operands and instructions.
 */
#ifndef TESTS_MACHINE_PTX_READER_H
#define TESTS_MACHINE_PTX_READER_H

#include "machine/ptx.h"

enum { NAME = 128, MOST_NAMES = 256, MOST = 1 << 20 }; /* MOST: registers of a kind, bytes of a variable */

typedef struct range { /* .reg .b32 %r<10>; or a name alone */
    char name[NAME];
    int  first, count, bits;
} range;

typedef struct symbol { /* a variable or label, and its address or instruction; -1 - i: instruction i wants this label
                         */
    char name[NAME];
    int  at;
} symbol;

/* Where code is from, and where that was put in line. */
typedef struct place {
    int file, line, column;
} place;

typedef struct reader {
    ptx_module *m;
    ptx_kernel *k; /* NULL: outside */
    char       *text, *at;
    char        statement[8192];
    int         line, begun, source_file, source, shared_bytes; /* begun: the statement's first line */
    range       ranges[MOST_NAMES];
    symbol      symbols[MOST_NAMES], *labels;
    int         n_ranges, n_symbols, n_labels, label_room;
    place       inlined[MOST_NAMES][2]; /* and the place in which it was put in line, of the last few */
    int         n_inlined;
    char        dynamic[NAME]; /* the name of dynamic shared memory, and its alignment */
    int         dynamic_align;
    int         isa, target; /* .version 8.4 is 84, .target sm_90 is 90 */
    char       *error;
} reader;

/* The first error stays. Returns false. */
__attribute__((format(printf, 2, 3))) bool ptx_wrong(reader *r, const char *format, ...);

/* An array with room for one more than `n`. */
void *ptx_grown(void *array, int n, int *room, size_t size);

/* .reg: the same name in another scope is the same register, if it has the same size. */
bool ptx_declare(reader *r);

/* An instruction becomes one of a row. */
bool ptx_resolve(reader *r);

/* A label is here, or wanted. */
void ptx_add_label(reader *r, const char *name, int at);

/* 1 to 64; 0: not a type. */
int ptx_bits_of(const char *type);

#endif
