/* SPDX-License-Identifier: Apache-2.0 */
/* Scalar instructions: a wave's own registers, branches, waits, barriers. */
#include "machine/gcn.h"

/* How the rows SCALAR of gcn.def are done, and words of theirs. */
enum { OF_TWO, OF_OWN, COMPARE, SAVE_EXEC };
#define KEEP *scc
#define NOT_0 (q != 0)
#define NOT_0_32 ((u32)q != 0)
#define OVER_ADD (~(a ^ b) & (a ^ q)) >> 31 & 1
#define OVER_SUB ((a ^ b) & (a ^ q)) >> 31 & 1
#define LOW(x) ((i32)(u32)(x))

/* Bits of x with their sign: from a bit on, so many (`which`, as bfe has them). */
static u64 signed_bits(u32 x, u32 which)
{
    u32 width = which >> 16 & 127, from = which & 31;
    if (width == 0) return 0;
    u64 bits = (u64)x >> from & (((u64)1 << width) - 1);
    return bits >> (width - 1) & 1 ? bits | ~(u64)0 << width : bits;
}

#define SCALAR(name, shape, how, result, carry)                                                                        \
    static u64 do_##name(u64 a, u64 b, u32 *scc)                                                                       \
    {                                                                                                                  \
        u64 q = (result);                                                                                              \
        (void)b;                                                                                                       \
        *scc = (u32)(carry);                                                                                           \
        return q;                                                                                                      \
    }
#include "machine/gcn.def"

static void write_scalar(wave *w, const operand *o, u64 x)
{
    if (o->count == 2)
        set_scalar_pair(w, o->at, x);
    else
        w->s[o->at] = (u32)x;
}

static bool step_scalar(wave *w, const instruction *x)
{
    const operand *o = x->o;
    bool           first = x->row->kind == OF_OWN || x->row->kind == COMPARE;
    u64            a = wide_value(w, &o[first ? 0 : 1]), b = 0;
    if (first || x->n > 2) b = wide_value(w, &o[first ? 1 : 2]);
    if (x->row->kind == SAVE_EXEC) b = scalar_pair(w, EXEC);
    u64 q = x->row->scalar(a, b, &w->scc);
    if (x->row->kind == COMPARE) return true;
    write_scalar(w, &o[0], x->row->kind == SAVE_EXEC ? b : q);
    if (x->row->kind == SAVE_EXEC) set_scalar_pair(w, EXEC, q);
    return true;
}

/* --- branches, waits, barriers ------------------------------------------------------------------- */

enum { ALWAYS, SCC_0, SCC_1, VCC_0, VCC_NOT_0, EXEC_0, EXEC_NOT_0 };

static bool step_branch(wave *w, const instruction *x)
{
    u64        vcc = scalar_pair(w, VCC), exec = scalar_pair(w, EXEC);
    const bool taken[] = { true, !w->scc, w->scc, vcc == 0, vcc != 0, exec == 0, exec != 0 };
    if (taken[x->row->kind]) w->pc = x->target;
    return true;
}

static bool step_nothing(wave *w, const instruction *x)
{
    (void)w, (void)x;
    return true;
}

/* Scalar loads come in any order: only a wait for all covers them. */
static bool step_wait(wave *w, const instruction *x)
{
    if (x->vmcnt >= 0 && !gcn_complete(w, &w->vm, x->vmcnt)) return false;
    if (x->lgkmcnt < 0 || (w->scalar_loads && x->lgkmcnt)) return true;
    return gcn_complete(w, &w->lgkm, x->lgkmcnt);
}

/* A barrier does not wait for the LDS: what was written must have landed. */
static bool step_barrier(wave *w, const instruction *x)
{
    for (int i = 0; i < w->lgkm.count; i++) {
        const instruction *write = w->lgkm.of[(w->lgkm.first + i) % OUTSTANDING].x;
        if (write->row->kind == LDS_WRITE)
            return gcn_fail(w, x, "no wait before it for what is written to the LDS (line %d: %s)", write->line,
                            write->text);
    }
    u64 missing = w->all & ~scalar_pair(w, EXEC);
    if (missing)
        return gcn_fail(w, x, "divergence: of wave %d, lane %d does not come to the barrier", w->number,
                        __builtin_ctzll(missing));
    w->at_barrier = true;
    return false;
}

static bool step_end(wave *w, const instruction *x)
{
    (void)x;
    if (gcn_complete(w, &w->vm, 0) && gcn_complete(w, &w->lgkm, 0)) w->ended = true;
    return false;
}

const row gcn_scalar_rows[] = {
#define SCALAR(name, shape, how, result, carry) { #name, shape, step_scalar, .kind = how, .scalar = do_##name },
#define CONTROL(name, shape, step, of, flags) { #name, shape, step, .kind = of, .takes = flags },
#include "machine/gcn.def"
    { 0 },
};
