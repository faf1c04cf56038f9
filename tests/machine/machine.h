/* SPDX-License-Identifier: Apache-2.0 */
/* GPU machine code executed on the CPU, as a judge: what the interpreters of AMD's (gcn.c) and NVIDIA's (ptx.c) code
 * share.
 *
 * A module is the text that a compiler writes (AMD: clang -S; NVIDIA: PTX). A launch runs one kernel over a grid, to
 * its end, on device memory that is known by allocation. Nothing here uses trainmark's library: stand-ins of drivers
 * link it as well.
 *
 * Time is modelled as harshly as the documents allow (`machine_order`): what a load delivers and a store writes happens
 * when something waits for it, and touching what is still owed is an error. The first error ends a launch; it names the
 * kernel, the line of its source and of the text, and the addresses or registers that are concerned.
 */
#ifndef TESTS_MACHINE_MACHINE_H
#define TESTS_MACHINE_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MACHINE_ERROR_ROOM = 600 };

/* --- device memory (memory.c)
 * ---------------------------------------------------------------------------------------------- */

/* A device's memory: allocations at addresses that the host cannot use, each with a guard behind it. */
typedef struct machine_memory machine_memory;

machine_memory *machine_memory_new(void);
void            machine_memory_free(machine_memory *memory);

/* `bytes` of new memory, aligned to 256; every byte is 0xff (a NaN in every float format). 0: no memory. */
uint64_t machine_alloc(machine_memory *memory, uint64_t bytes);

/* False: no allocation begins at `address`. */
bool machine_release(machine_memory *memory, uint64_t address);

/* Where `bytes` at `address` lie on the host; NULL unless all of them are inside one allocation. */
uint8_t *machine_at(machine_memory *memory, uint64_t address, uint64_t bytes);
/* The same for the host, while another thread may launch. */
uint8_t *machine_host_at(machine_memory *memory, uint64_t address, uint64_t bytes);

/* Sub-allocations: from now on an access that crosses the end of a piece is an error, although the allocation goes on.
 * Pieces of an arena, as a plan places them; later ones replace earlier ones where they overlap. */
bool machine_piece(machine_memory *memory, uint64_t address, uint64_t bytes);

/* What a launch remembers of bytes of global memory, to find races: `writer` and `reader` are the interpreter's own
 * numbers of who did it and when (0: nobody in this launch). An entry for each unit of 1 << shift bytes; those that
 * `bytes` at `address` touch are adjacent. NULL: not inside one allocation and one page of 4,096. The entries of
 * earlier launches are empty again after `machine_memory_launch`, which says how large units are: no access may begin
 * or end inside of one. */
typedef struct machine_trace {
    uint32_t writer, reader;
} machine_trace;

machine_trace *machine_traces(machine_memory *memory, uint64_t address, uint64_t bytes);

/* Allocation i, in ascending order of addresses. False: there are no more. */
bool machine_allocation(const machine_memory *memory, int i, uint64_t *address, uint64_t *bytes);

/* What all allocations hold, as one array (machine_memory_bytes of it): kept, put back, compared. */
size_t machine_memory_bytes(const machine_memory *memory);
void   machine_memory_keep(const machine_memory *memory, uint8_t *to);
void   machine_memory_put(machine_memory *memory, const uint8_t *from);
bool   machine_memory_is(const machine_memory *memory, const uint8_t *bytes);

/* What launches that are counted (machine_run) have asked for in an allocation: by lanes, and by scalar loads of AMD's
 * waves. A lane's access has up to 16 bytes; neighbors with the same address count once. */
typedef struct machine_use {
    uint64_t read_bytes, reads, written_bytes, writes;
} machine_use;

machine_use machine_use_of(machine_memory *memory, uint64_t address); /* since the last machine_use_clear */
void        machine_use_clear(machine_memory *memory);
/* For interpreters: each lane of `mask` accesses `bytes` at its address. */
void machine_use_note(machine_memory *memory, const uint64_t *address, uint64_t mask, uint64_t bytes, bool write);

void machine_memory_launch(machine_memory *memory, int shift);
int  machine_memory_shift(const machine_memory *memory);

/* --- modules and launches
 * --------------------------------------------------------------------------------------------------- */

typedef struct machine_module machine_module;

/* Reads the text of a module for AMD GPUs ("gfx942", "gfx950": as the text says) or NVIDIA GPUs (PTX). NULL: `error`
 * says what is not known, with its line: no instruction is ignored. */
machine_module *machine_load_gcn(const char *text, char error[MACHINE_ERROR_ROOM]);
machine_module *machine_load_ptx(const char *text, char error[MACHINE_ERROR_ROOM]);
void            machine_unload(machine_module *module);

/* Who runs when. Kernels must give the same bits in all of them. */
typedef struct machine_order {
    bool eager; /* memory is accessed at once; else as late as the waits allow */
    int  waves; /* 0: in order; 1: reversed; otherwise a seed: interleaved at random, after a few instructions each */
    bool blind; /* no search for races: faster */
    int  skip;  /* the instruction (machine_find) that is left out; -1: none */
} machine_order;

typedef struct machine_launch {
    const char *kernel;
    uint32_t    blocks[3], threads[3]; /* of the grid; of a block */
    uint32_t    dynamic_shared;        /* bytes, behind the kernel's own */
    const void *arguments;             /* the explicit ones, placed as the kernel's ABI places them */
    size_t      argument_bytes;
} machine_launch;

/* What a launch did. Bytes are those that lanes asked for; sectors are the units of 32 bytes (AMD: 64) that their wave
 * touched per access: bytes / (sectors x unit) tells how well accesses coalesce. */
typedef struct machine_counts {
    uint64_t instructions;               /* of waves (warps) */
    uint64_t lanes;                      /* instructions x active lanes */
    uint64_t matrix_flops, vector_flops; /* two per multiply-add */
    uint64_t read_bytes, written_bytes;  /* global memory */
    uint64_t read_sectors, written_sectors;
    uint64_t shared_cycles,
        shared_least; /* cycles of accesses to LDS or shared memory; what they would be without conflicts */
} machine_counts;

/* Runs a launch to its end. Counts are added to `counts` (NULL: not wanted). False: `error` says what went wrong,
 * where. */
bool machine_run(machine_module *module, machine_memory *memory, const machine_launch *launch,
                 const machine_order *order, machine_counts *counts, char error[MACHINE_ERROR_ROOM]);

/* --- what audits and reports ask
 * --------------------------------------------------------------------------------------------- */

/* Resources of a kernel, from its metadata. */
typedef struct machine_kernel {
    const char *name;
    int         registers, accumulators, scalars; /* per lane; AMD's accumulation registers; scalar registers */
    int         shared_bytes, spilled_bytes;      /* LDS or shared; scratch or .local */
    int         first, end;                       /* its instructions: [first, end) */
} machine_kernel;

int                   machine_kernels(const machine_module *module);
const machine_kernel *machine_kernel_at(const machine_module *module, int i);

/* An instruction's text, its line in the module's text, how often it ran; file and line of its source (0: not told). Of
 * what is inlined from other files that is the line that asks for it in the kernel's own file. */
typedef struct machine_instruction {
    const char *text;
    int         line;
    const char *source_file;
    int         source_line;
    uint64_t    executed;
} machine_instruction;

machine_instruction machine_instruction_at(const machine_module *module, int at);

/* The next instruction of [from, end) that orders others (waits, barriers, fences, commits): what an audit leaves out,
 * one at a time. -1: none. */
int machine_find(const machine_module *module, int from, int end);

/* The count of a wait becomes `by` higher. It may have two: 0 and 1. False: it has no such one. */
bool machine_loosen(machine_module *module, int at, int count, int by);

/* Proved by the code alone: no launch can notice when this wait is left out (gcn_waits.c). Of PTX nothing is. */
bool machine_needless(const machine_module *module, int at);

#endif
