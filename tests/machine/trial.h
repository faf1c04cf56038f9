/* SPDX-License-Identifier: Apache-2.0 */
/* Small texts in PTX, run by the interpreter. */
#ifndef TESTS_MACHINE_TRIAL_H
#define TESTS_MACHINE_TRIAL_H

#include "machine/machine.h"
#include "machine/tensor_map.h"
#include "support/test.h"

enum { TRIAL_WORDS = 8192, TRIAL_TEXT = 1 << 16 };

/* A kernel `k` with arrays `in` (%d0) and `out` (%d1) of TRIAL_WORDS words, a number (%r0) and a tensor map (%d2). %r1
 * is the thread; %r2 8 KiB of shared memory, %r3 four words of 64 bits of it for mbarriers; `dynamic` names the rest.
 */
typedef struct trial {
    machine_memory *memory;
    uint64_t        in, out;
    uint32_t        number, threads, blocks, dynamic;
    uint8_t         map[MACHINE_TENSOR_MAP_BYTES];
    machine_counts  counts;
    char            error[MACHINE_ERROR_ROOM];
} trial;

extern const machine_order trial_lazy;

trial trial_begin(uint32_t threads);
void  trial_end(trial *t);
void *trial_in_of(trial *t);
void *trial_out_of(trial *t);

/* Runs kernel k with a body; declarations may stand before its first instruction. False: t->error says why. */
bool trial_run(trial *t, const char *body, const machine_order *order);
void trial_must_run(trial *t, const char *body);

/* The text of the module; the caller frees it. */
char *trial_text(const char *body);

/* %d5: the thread's word of `out`. */
#define TRIAL_TO_OUT "mul.wide.u32 %d5, %r1, 4; add.s64 %d5, %d5, %d1;"

/* --- wgmma m64n64k16 by 128 threads: operands are stored in dynamic shared memory, swizzled, A first, 8 KiB each; 32
 * registers of each thread are 1, then the product (or its sum with them), then in `out`. The parts may be changed. */
trial trial_wgmma(int transposed);
char *trial_wgmma_body(const char *fence, const char *before, const char *add, const char *after, int transposed);

/* Copies 16 KiB from `in` to dynamic shared memory (%r80) by ordinary stores, 128 bytes a thread. */
#define TRIAL_FILL                                                                                                     \
    "mov.u32 %r80, dynamic; mul.wide.u32 %d4, %r1, 16; add.s64 %d4, %d4, %d0; mad.lo.s32 %r81, %r1, 16, %r80;"         \
    "mov.u32 %r82, 0; FILL: ld.global.v4.u32 {%r83,%r84,%r85,%r86}, [%d4]; st.shared.v4.u32 [%r81], "                  \
    "{%r83,%r84,%r85,%r86};"                                                                                           \
    "add.s64 %d4, %d4, 2048; add.s32 %r81, %r81, 2048; add.s32 %r82, %r82, 1; setp.lt.u32 %p1, %r82, 8; @%p1 bra "     \
    "FILL;"

#define TRIAL_WG_FENCE "wgmma.fence.sync.aligned;"
#define TRIAL_WG_DONE "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"

/* Small integers, and their codes in bf16. */
int      trial_small(int row, int column, int salt);
uint32_t trial_bf16(int v);

#endif
