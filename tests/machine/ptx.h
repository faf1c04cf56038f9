/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the interpreter of PTX share: ptx_load.c reads a module into rows of resolved instructions, ptx.c
 * runs warps, ptx_alu.c, ptx_memory.c, ptx_matrix.c and ptx_async.c hold the instructions, each file with a table of
 * rows.
 *
 * A warp's registers lie in one array of words: 32 words for a register of up to 32 bits, 64 for one of 64 bits, one
 * word (a bit for each lane) for a predicate. Immediate values and special registers have places there, too: a source
 * operand is always a place.
 */
#ifndef TESTS_MACHINE_PTX_H
#define TESTS_MACHINE_PTX_H

#include "machine/clocks.h"
#include "machine/module.h"

#include <string.h>

enum { LANES = 32, MAX_OPERANDS = 8, MAX_PICKS = 8, FILES = 16, SHARED_FIRST = 1024, SHARED_MOST = 227 * 1024 };

#define SHARED_BASE 0x0200000000000000u /* generic addresses of shared memory: the block's own */
#define PARAM_BASE 0x0300000000000000u  /* and of parameters */

/* Registers are looked at as several types. */
typedef uint32_t __attribute__((may_alias)) u32;
typedef uint64_t __attribute__((may_alias)) u64;
typedef int32_t __attribute__((may_alias)) i32;
typedef int64_t __attribute__((may_alias)) i64;
typedef float __attribute__((may_alias)) f32;
typedef double __attribute__((may_alias)) f64;

#define UNUSED __attribute__((unused))

/* --- what a module is made of */

typedef struct ptx_operand {
    int     at;           /* the register's place; -1: none (an address without a register, `_`) */
    int     first, count; /* of a vector: its places in the module's list */
    int64_t offset;       /* of an address; a branch's target; the value of an immediate */
    bool    wide;         /* 64 bits */
    bool    immediate;
} ptx_operand;

typedef struct ptx_block       ptx_block;
typedef struct ptx_warp        ptx_warp;
typedef struct ptx_instruction ptx_instruction;

/* Executes an instruction in the lanes `on`, of which there is at least one. */
typedef void ptx_handler(ptx_block *b, ptx_warp *w, const ptx_instruction *x, u32 on);

#define PTX_HANDLER(name)                                                                                              \
    static void name(UNUSED ptx_block *b, UNUSED ptx_warp *w, UNUSED const ptx_instruction *x, UNUSED u32 on)

/* A form of an instruction: a line of ptx.def. */
typedef struct ptx_row {
    const char  *pattern, *operands;
    ptx_handler *run;
    int          flops; /* of a lane: floating-point operations on vectors */
    enum {
        ORDERS = 1, /* orders others: what an audit leaves out */
        SYNC = 2,   /* all lanes of the warp at once */
        MASKED = 4, /* the lanes of its last operand at once */
        BRANCH = 8, /* moves lanes by itself */
        MATRIX = 16 /* wgmma: its registers are owed or lent until it is waited for */
    } flags;
} ptx_row;

struct ptx_instruction {
    const ptx_row *row;
    int            guard; /* the place of its predicate; -1: none */
    bool           unless;
    uint8_t        picks[MAX_PICKS];
    char           letters[MAX_OPERANDS]; /* of its operands */
    int            n;
    ptx_operand    o[MAX_OPERANDS];
    int            touched, n_touched; /* registers of its operands, in the module's list */
    int            written, n_written; /* and those it writes that a wgmma uses */
    int            line, source_file, source;
    char          *text;
    uint64_t       executed;
};

typedef struct ptx_constant {
    int      at;
    uint64_t value;
    int      special; /* 1 + which special register; 0: an immediate value */
    bool     wide, predicate;
} ptx_constant;

typedef struct ptx_kernel {
    machine_kernel info;
    char          *name;
    int            parameter_bytes;
    int            words;     /* of a warp's registers */
    int            registers; /* those that may be written lie in the first of these words */
    ptx_constant  *constants;
    int            n_constants;
    int            dynamic_at;  /* where dynamic shared memory begins */
    int            max_threads; /* 0: not said */
    int            unit;        /* shared memory is traced in units of 1 << unit bytes: no access is smaller */
    int            global_unit; /* the same for global memory */
} ptx_kernel;

typedef struct ptx_module {
    machine_module   base;
    ptx_kernel      *kernels;
    int              n_kernels, kernel_room;
    ptx_instruction *code;
    int              n, room;
    int             *list;
    int              n_list, list_room;
    char             files[FILES][48]; /* of the source, by number */
} ptx_module;

extern const machine_interpreter ptx_interpreter;
extern const ptx_row ptx_alu_rows[], ptx_memory_rows[], ptx_matrix_rows[], ptx_async_rows[], ptx_control_rows[];

/* --- a launch */

typedef struct ptx_group { /* lanes at one place */
    int  pc;
    u32  lanes;
    bool held, spun; /* waits for lanes that are elsewhere; looked at a barrier in vain */
} ptx_group;

typedef struct ptx_copy { /* cp.async of a lane */
    uint64_t from;
    uint32_t to, bytes, some, group; /* `some` of the bytes are copied, the others are zeros */
    int      lane;
} ptx_copy;

typedef struct ptx_product { /* wgmma in flight */
    const ptx_instruction *x;
    uint64_t               a, b;
    bool                   add;
    int                    group;
} ptx_product;

enum { MOST_PRODUCTS = 64, MOST_BARRIERS = 32, MOST_BULK = 64 };

struct ptx_warp {
    u32                   *file;
    int                    number, n_groups;
    ptx_group              groups[LANES];
    u32                    alive;
    bool                   waits; /* at barrier `barrier` of `expected` threads (0: all) */
    int                    barrier;
    uint32_t               expected;
    bool                   spun;
    int                    looked_at; /* the mbarrier at which it looked in vain */
    int                    spins;     /* how often it looked in vain, since `events` */
    uint64_t               events;
    bool                   learned; /* a lane knows more than bar.sync told */
    bool                   begun;   /* its constants have their values */
    const ptx_instruction *at;
    /* cp.async */
    ptx_copy *copies;
    int       n_copies, copy_room;
    uint32_t  copy_group[LANES];
    /* wgmma; by registers: how many products will write or read it; was it written since wgmma.fence */
    uint8_t    *owed, *lent, *dirty;
    ptx_product products[MOST_PRODUCTS];
    int         n_products, product_group;
    bool        fenced;
    uint64_t    done_products;
};

typedef struct ptx_barrier { /* an mbarrier */
    uint32_t  at, expected, pending, phase;
    int64_t   bytes; /* still expected */
    uint32_t  thread, clock;
    bool      fenced;
    uint32_t *arriving, *done; /* what those who arrived knew */
} ptx_barrier;

typedef struct ptx_bulk { /* a bulk or tensor copy in flight */
    uint32_t               to, barrier, bytes, clock;
    uint64_t               from;
    int                    thread;
    bool                   tensor;
    uint8_t                map[128];
    int32_t                coordinates[5];
    const ptx_instruction *x;
} ptx_bulk;

struct ptx_block {
    ptx_module           *module;
    const ptx_kernel     *kernel;
    machine_memory       *memory;
    const machine_launch *launch;
    const machine_order  *order;
    machine_counts       *counts;
    char                 *error;
    bool                  failed, counted;
    uint32_t              at[3], seed;
    int                   n_warps, threads;
    ptx_warp             *warps;
    uint8_t              *parameters;
    uint64_t              events; /* what may end somebody's wait */
    uint64_t              executed;
    int                   skip;
    ptx_group            *group; /* whose instruction runs */
    /* shared memory; its bytes are [SHARED_FIRST, shared_end) */
    uint8_t             *shared;
    uint32_t             shared_end;
    machine_trace       *traces;      /* of units */
    uint8_t             *owed, *lent; /* by units: copies that will write it, products that will read it */
    uint32_t             n_owed, n_lent;
    machine_reader_lists shared_readers, global_readers;
    /* What happened before what. Agents are the threads, behind them the warps' products, and last the copies. */
    machine_clocks time;
    uint32_t      *scratch;
    /* asynchronous */
    ptx_barrier barriers[MOST_BARRIERS];
    int         n_barriers;
    ptx_bulk    bulk[MOST_BULK];
    int         n_bulk;
};

/* Notes the first error of a launch, with kernel, lines and text of `x`. Returns false. */
__attribute__((format(printf, 4, 5))) bool ptx_fail(ptx_block *b, const ptx_warp *w, const ptx_instruction *x,
                                                    const char *format, ...);

static inline void *ptx_place(const ptx_warp *w, int at)
{
    return w->file + at;
}

/* Writes a register of the lanes `on`. */
static inline void ptx_put32(ptx_warp *w, int at, u32 on, const u32 *value)
{
    u32 *d = w->file + at;
    for (int i = 0; i < LANES; i++) d[i] = on >> i & 1 ? value[i] : d[i];
}

static inline void ptx_put64(ptx_warp *w, int at, u32 on, const u64 *value)
{
    u64 *d = ptx_place(w, at);
    for (int i = 0; i < LANES; i++) d[i] = on >> i & 1 ? value[i] : d[i];
}

static inline float ptx_from_f16(u32 h)
{
    u32   u = (h & 0x7fff) << 13;
    float f;
    memcpy(&f, &u, sizeof f);
    f *= 0x1p112f; /* the difference of the biases */
    memcpy(&u, &f, sizeof u);
    if ((h & 0x7c00) == 0x7c00) u |= 0x7f800000;
    u |= (h & 0x8000) << 16;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline int ptx_first(u32 lanes)
{
    return __builtin_ctz(lanes);
}

/* --- memory (ptx_memory.c)
 * Each checks an access of lane `lane` to `bytes` (a power of two up to 16, aligned) and traces it; NULL: the launch
 * has failed. */
uint8_t *ptx_global(ptx_block *b, ptx_warp *w, const ptx_instruction *x, int lane, uint64_t at, uint32_t bytes,
                    machine_deed how);
uint8_t *ptx_shared(ptx_block *b, ptx_warp *w, const ptx_instruction *x, int lane, uint32_t at, uint32_t bytes,
                    machine_deed how);

/* The same for accesses of an asynchronous agent, which knows what `lane` knows. */
uint8_t *ptx_global_async(ptx_block *b, ptx_warp *w, const ptx_instruction *x, int lane, uint64_t at, uint32_t bytes);
uint8_t *ptx_shared_async(ptx_block *b, ptx_warp *w, const ptx_instruction *x, int lane, uint32_t at, uint32_t bytes,
                          uint32_t agent, uint32_t clock, machine_deed how);

/* The addresses of an operand in all lanes. */
void ptx_addresses(const ptx_warp *w, const ptx_operand *o, u64 at[LANES]);

/* Counts the cycles of an access to shared memory. */
void ptx_count_shared(ptx_block *b, const u64 *at, u32 on, int bytes);

/* --- asynchronous work (ptx_async.c) */

/* The end of a block: nothing may be in flight. */
void ptx_async_end(ptx_block *b);

#endif
