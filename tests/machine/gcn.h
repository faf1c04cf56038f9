/* SPDX-License-Identifier: Apache-2.0 */
/* AMD's machine code (CDNA3, CDNA4, waves of 64): what the files of the interpreter share.
 *
 *   gcn.def       the instructions, a line each
 *   gcn_text.c    lines of assembler become rows of instructions, checked against gcn.def
 *   gcn_kernel.c  descriptors and metadata; kernel arguments, hidden ones included
 *   gcn_scalar.c, gcn_vector.c, gcn_matrix.c, gcn_memory.c   what each does
 *   gcn_waits.c   waits that the code alone proves to be needless
 *   gcn.c         waves, blocks, launches; machine.h's functions
 *
 * Documents: AMD's "Instinct MI300" and "Instinct MI350 Instruction Set Architecture", LLVM's "User Guide for AMDGPU
 * Backend" (descriptors, hidden arguments, waits).
 */
#ifndef TESTS_MACHINE_GCN_H
#define TESTS_MACHINE_GCN_H

#include "machine/counts.h"
#include "machine/module.h"
#include "machine/races.h"

#include <string.h>

typedef uint8_t  u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int16_t  i16;
typedef int32_t  i32;
typedef int64_t  i64;

enum {
    LANES = 64,
    VECTORS = 512, /* of a lane: v0 to v255, then the accumulators a0 to a255 */
    ACCUMULATORS = 256,
    SCALARS = 128,
    VCC = 106,
    M0 = 124,
    EXEC = 126,
    OPERANDS = 6,
    OUTSTANDING = 64, /* of a wave and counter: more wait for the oldest */
    FILES = 64,
    SECTOR = 64, /* bytes */
};

/* --- instructions -------------------------------------------------------------------------------- */

typedef enum operand_kind { NO_OPERAND, VECTOR, SCALAR, NUMBER, OFF } operand_kind;

typedef struct operand {
    u8   kind, count;               /* registers of 32 bits */
    bool negate, absolute, decimal; /* decimal: a number written with a point */
    i16  at;
    u64  number;
} operand;

/* Modifiers behind the operands. Lists have two bits an entry. */
enum { AT_OFFSET, AT_OFFSET0, AT_OFFSET1, AT_OP_SEL, AT_OP_SEL_HI, AT_NEG_LO, AT_NEG_HI, AT_DST_SEL, AT_DST_UNUSED };
enum { AT_SRC0_SEL = AT_DST_UNUSED + 1, AT_SRC1_SEL, AT_QUAD_PERM, AT_ROW_ROR, AT_ROW_MASK, AT_BANK_MASK };
enum { AT_BITOP3 = AT_BANK_MASK + 1, AT_OFFEN, AT_CBSZ, AT_BLGP, MODIFIERS };
#define BIT(modifier) (1u << (modifier))

/* What a row says besides: operands may be negated (floats), VCC is read unsaid, the instruction orders others, only
 * gfx950 has it, the upper half of a register is stored, its offsets count 64 elements. */
enum {
    FLOATS = 1u << 24,
    READS_VCC = 1u << 25,
    FORMATS = 1u << 26, /* cbsz and blgp say which formats A and B have, and so how many registers */
    ORDERS = 1u << 27,
    GFX950 = 1u << 28,
    HIGH = 1u << 29,
    STRIDE64 = 1u << 30
};

typedef struct wave        wave;
typedef struct instruction instruction;
typedef bool               step_function(wave *w, const instruction *x); /* false: the wave stops here */
/* 64 results of a, b, c, bits of a mask, a table (gcn.def) */
typedef void lanes_function(const u32 *a, const u32 *b, const u32 *c, u32 *d, u64 mask, int table);
typedef void wide_function(u64 *a, const u64 *b, const u64 *c, u64 mask); /* in place of a */
typedef u64  scalar_function(u64 a, u64 b, u32 *scc);

/* What gcn.def says of an instruction. */
typedef struct row {
    const char      *name, *shape;
    step_function   *step;
    u32              takes;           /* modifiers and the flags above */
    int              kind;            /* which one of those that share `step` */
    u8               bytes, elements; /* of memory: of an element, elements of a lane */
    u8               flops;           /* of a lane */
    lanes_function  *lanes;
    wide_function   *wide;
    scalar_function *scalar;
} row;

extern const row gcn_scalar_rows[], gcn_vector_rows[], gcn_wide_rows[], gcn_matrix_rows[],
    gcn_memory_rows[]; /* end with a NULL name */

typedef struct registers {
    u64 bits[(VECTORS + SCALARS) / 64]; /* vectors, then scalars */
} registers;

struct instruction {
    const row  *row;
    operand     o[OPERANDS];
    registers   touched;
    i32         modifier[MODIFIERS];
    int         n, target, vmcnt, lgkmcnt; /* counts: -1 if not waited for */
    int         line, source_line, source_file;
    const char *text;
    u64         executed;
};

/* --- modules ------------------------------------------------------------------------------------- */

typedef struct argument {
    int  offset, size;
    char kind[32];
} argument;

typedef struct kernel {
    machine_kernel told;
    char           name[80];
    argument      *arguments;
    int            n_arguments, arguments_room, argument_bytes, descriptor_bytes, most_threads;
    int            lds_shift;    /* the smallest access to LDS has 1 << lds_shift bytes */
    int            global_shift; /* accesses to global memory begin and end at multiples of 1 << global_shift */
    int            group_ids[3], described; /* bits of what the text has: descriptor 1, metadata 2 */
} kernel;

typedef struct label {
    const char *name;
    int         at;
} label;

typedef struct gcn_module {
    machine_module head;
    char          *text; /* lines, ended by 0 */
    bool           gfx950;
    instruction   *code;
    int            n_code, code_room;
    kernel        *kernels;
    int            n_kernels, kernels_room;
    int            n_told; /* kernels whose metadata was read, the last one perhaps in part */
    label         *labels;
    int            n_labels, labels_room;
    char           files[FILES][48]; /* of the kernel's source, by number */
    char          *error;            /* of the caller of the moment */
} gcn_module;

/* Writes the module's error, unless it has one; false. */
__attribute__((format(printf, 2, 3))) bool gcn_refuse(gcn_module *m, const char *format, ...);
void                                      *gcn_grow(void *old, int n, int *room, size_t size); /* room for n + 1 */
bool                                       gcn_read_text(gcn_module *m);                       /* gcn_text.c */
bool                                       gcn_formats_fit(const instruction *x);              /* gcn_matrix.c */
kernel                                    *gcn_kernel_named(gcn_module *m, const char *name);  /* NULL: none */
/* A line of a descriptor (.amdhsa_...) of kernel k, and one of the metadata. */
bool gcn_descriptor_line(gcn_module *m, kernel *k, const char *line, int number);
bool gcn_metadata_line(gcn_module *m, const char *line, int number);
bool gcn_kernels_complete(gcn_module *m);

/* --- runs ---------------------------------------------------------------------------------------- */

/* How an instruction accesses memory (gcn.def's ACCESS): up to LOAD it brings registers. */
enum { SCALAR_LOAD = 1, LDS_PERMUTE, LDS_READ, SCRATCH_LOAD, LOAD, STORE, LDS_WRITE, SCRATCH_STORE };

/* An access that is under way. */
typedef struct pending {
    const instruction *x;
    u64                mask, base, outside; /* lanes beyond a buffer, which get zeros */
    bool               done;                /* memory was accessed; the counter does not say so yet */
    u64                address[LANES];
    u32                data[4][LANES]; /* of stores */
} pending;

typedef struct queue {
    pending *of;
    int      first, count;
} queue;

typedef struct run {
    gcn_module          *module;
    kernel              *k;
    machine_memory      *memory;
    const machine_order *order;
    machine_counts      *counts; /* NULL: not wanted */
    wave                *waves;
    int                  n_waves;
    u64                  arguments; /* where the kernel's arguments lie */
    u8                  *declared;  /* of each byte of them: has it an argument? */
    u32                  epoch, group_epoch;
    u8                  *lds;
    machine_shadow       shadow;
    u32                  lds_bytes;
    bool                 failed;
} run;

struct wave {
    _Alignas(64) u32 v[VECTORS][LANES];
    u32       s[SCALARS], scc;
    registers owed; /* by loads under way */
    queue     vm, lgkm;
    u32 (*scratch)[LANES]; /* what spilled registers are kept in */
    run *r;
    u64  all; /* EXEC at the start */
    int  number, pc, scalar_loads;
    bool at_barrier, ended;
};

/* Writes the run's error with the kernel, the lines and the instruction; false. */
__attribute__((format(printf, 3, 4))) bool gcn_fail(wave *w, const instruction *x, const char *format, ...);
bool                                       gcn_complete(wave *w, queue *q, int left); /* until `left` are under way */

bool gcn_needless(const machine_module *module, int at); /* machine_needless */

static inline u64 scalar_pair(const wave *w, int at)
{
    return w->s[at] | (u64)w->s[at + 1] << 32;
}
static inline void set_scalar_pair(wave *w, int at, u64 x)
{
    w->s[at] = (u32)x;
    w->s[at + 1] = (u32)(x >> 32);
}
/* A scalar operand or number, of one register or two. */
static inline u64 scalar_value(const wave *w, const operand *o)
{
    u64 x = o->kind == NUMBER ? o->number : o->count == 2 ? scalar_pair(w, o->at) : w->s[o->at];
    return o->count == 2 ? x : (u32)x;
}
static inline float float_of(u32 x)
{
    float f;
    memcpy(&f, &x, 4);
    return f;
}
static inline u32 bits_of(float f)
{
    u32 x;
    memcpy(&x, &f, 4);
    return x;
}

/* The same of an operand of an instruction on 64 bits: a number with a point is a double. */
static inline u64 wide_value(const wave *w, const operand *o)
{
    u64 x = scalar_value(w, o);
    if (o->kind != NUMBER || !o->decimal || o->count != 2) return x;
    double d = (double)float_of((u32)o->number);
    memcpy(&x, &d, 8);
    return x;
}

static inline u32 reversed_bits(u32 x)
{
    u32 d = 0;
    for (int i = 0; i < 32; i++) d |= (x >> i & 1) << (31 - i);
    return d;
}

#endif
