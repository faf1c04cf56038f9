/* SPDX-License-Identifier: Apache-2.0 */
/* Scalar instructions: a wave's own registers, branches, waits, barriers. */
#include "machine/gcn.h"

/* --- arithmetic: name, operands, how it is done, result of a and b, what SCC becomes of the result q ---------------
 */

enum { OF_TWO, OF_OWN, COMPARE, SAVE_EXEC };

#define KEEP *scc
#define NOT_0 (q != 0)
#define NOT_0_32 ((u32)q != 0)
#define OVER_ADD (~(a ^ b) & (a ^ q)) >> 31 & 1
#define OVER_SUB ((a ^ b) & (a ^ q)) >> 31 & 1
#define LOW(x) ((i32)(u32)(x))

#define SCALARS_OF(X)                                                                                                  \
    X(s_mov_b32, "s z", OF_TWO, a, KEEP)                                                                               \
    X(s_mov_b64, "s2 z2", OF_TWO, a, KEEP)                                                                             \
    X(s_movk_i32, "s n", OF_TWO, (u64)(i64)(i16)a, KEEP)                                                               \
    X(s_not_b32, "s z", OF_TWO, ~a, NOT_0_32)                                                                          \
    X(s_abs_i32, "s z", OF_TWO, (u64)(LOW(a) < 0 ? -(i64)LOW(a) : LOW(a)), NOT_0_32)                                   \
    X(s_add_i32, "s z z", OF_TWO, a + b, OVER_ADD)                                                                     \
    X(s_addk_i32, "s n", OF_OWN, a + (b = (u32)(i32)(i16)b), OVER_ADD)                                                 \
    X(s_sub_i32, "s z z", OF_TWO, a - b, OVER_SUB)                                                                     \
    X(s_add_u32, "s z z", OF_TWO, a + b, q >> 32 & 1)                                                                  \
    X(s_addc_u32, "s z z", OF_TWO, a + b + *scc, q >> 32 & 1)                                                          \
    X(s_sub_u32, "s z z", OF_TWO, a - b, q >> 32 & 1)                                                                  \
    X(s_subb_u32, "s z z", OF_TWO, a - b - *scc, q >> 32 & 1)                                                          \
    X(s_mulk_i32, "s n", OF_OWN, (u64)(u32)a *(u32)(i32)(i16)b, KEEP)                                                  \
    X(s_mul_i32, "s z z", OF_TWO, a *b, KEEP)                                                                          \
    X(s_mul_hi_u32, "s z z", OF_TWO, a *b >> 32, KEEP)                                                                 \
    X(s_mul_hi_i32, "s z z", OF_TWO, (u64)((i64)LOW(a) * LOW(b)) >> 32, KEEP)                                          \
    X(s_and_b32, "s z z", OF_TWO, a &b, NOT_0)                                                                         \
    X(s_andn2_b32, "s z z", OF_TWO, a &(u32)~b, NOT_0)                                                                 \
    X(s_or_b32, "s z z", OF_TWO, a | b, NOT_0)                                                                         \
    X(s_xor_b32, "s z z", OF_TWO, a ^ b, NOT_0)                                                                        \
    X(s_lshl_b32, "s z z", OF_TWO, a << (b & 31), NOT_0_32)                                                            \
    X(s_lshr_b32, "s z z", OF_TWO, a >> (b & 31), NOT_0)                                                               \
    X(s_ashr_i32, "s z z", OF_TWO, (u64)(i64)(LOW(a) >> (b & 31)), NOT_0_32)                                           \
    X(s_bfe_u32, "s z z", OF_TWO, a >> (b & 31) & (((u64)1 << (b >> 16 & 63)) - 1), NOT_0)                             \
    X(s_min_i32, "s z z", OF_TWO, LOW(a) < LOW(b) ? a : b, LOW(a) < LOW(b))                                            \
    X(s_and_b64, "s2 z2 z2", OF_TWO, a &b, NOT_0)                                                                      \
    X(s_andn2_b64, "s2 z2 z2", OF_TWO, a & ~b, NOT_0)                                                                  \
    X(s_or_b64, "s2 z2 z2", OF_TWO, a | b, NOT_0)                                                                      \
    X(s_orn2_b64, "s2 z2 z2", OF_TWO, a | ~b, NOT_0)                                                                   \
    X(s_xor_b64, "s2 z2 z2", OF_TWO, a ^ b, NOT_0)                                                                     \
    X(s_lshl_b64, "s2 z2 z", OF_TWO, a << (b & 63), NOT_0)                                                             \
    X(s_cselect_b32, "s z z", OF_TWO, *scc ? a : b, KEEP)                                                              \
    X(s_cselect_b64, "s2 z2 z2", OF_TWO, *scc ? a : b, KEEP)                                                           \
    X(s_cmp_eq_u32, "z z", COMPARE, a == b, NOT_0)                                                                     \
    X(s_cmp_lg_u32, "z z", COMPARE, a != b, NOT_0)                                                                     \
    X(s_cmp_lt_u32, "z z", COMPARE, a < b, NOT_0)                                                                      \
    X(s_cmp_ge_u32, "z z", COMPARE, a >= b, NOT_0)                                                                     \
    X(s_cmp_lt_i32, "z z", COMPARE, LOW(a) < LOW(b), NOT_0)                                                            \
    X(s_cmp_le_i32, "z z", COMPARE, LOW(a) <= LOW(b), NOT_0)                                                           \
    X(s_cmp_gt_i32, "z z", COMPARE, LOW(a) > LOW(b), NOT_0)                                                            \
    X(s_cmp_ge_i32, "z z", COMPARE, LOW(a) >= LOW(b), NOT_0)                                                           \
    X(s_cmp_gt_u32, "z z", COMPARE, a > b, NOT_0)                                                                      \
    X(s_cmpk_eq_i32, "s n", COMPARE, (u32)a == (u32)(i32)(i16)b, NOT_0)                                                \
    X(s_cmpk_lg_i32, "s n", COMPARE, (u32)a != (u32)(i32)(i16)b, NOT_0)                                                \
    X(s_cmp_eq_u64, "z2 z2", COMPARE, a == b, NOT_0)                                                                   \
    X(s_cmp_lg_u64, "z2 z2", COMPARE, a != b, NOT_0)                                                                   \
    X(s_and_saveexec_b64, "s2 z2", SAVE_EXEC, a &b, NOT_0)                                                             \
    X(s_or_saveexec_b64, "s2 z2", SAVE_EXEC, a | b, NOT_0)                                                             \
    X(s_andn2_saveexec_b64, "s2 z2", SAVE_EXEC, a & ~b, NOT_0)

#define X(name, shape, kind, result, carry)                                                                            \
    static u64 do_##name(u64 a, u64 b, u32 *scc)                                                                       \
    {                                                                                                                  \
        u64 q = (result);                                                                                              \
        (void)b;                                                                                                       \
        *scc = (u32)(carry);                                                                                           \
        return q;                                                                                                      \
    }
SCALARS_OF(X)
#undef X

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
    u64            a = scalar_value(w, &o[first ? 0 : 1]), b = 0;
    if (first || x->n > 2) b = scalar_value(w, &o[first ? 1 : 2]);
    if (x->row->kind == SAVE_EXEC) b = scalar_pair(w, EXEC);
    u64 q = x->row->scalar(a, b, &w->scc);
    if (x->row->kind == COMPARE) return true;
    write_scalar(w, &o[0], x->row->kind == SAVE_EXEC ? b : q);
    if (x->row->kind == SAVE_EXEC) set_scalar_pair(w, EXEC, q);
    return true;
}

/* --- branches, waits, barriers -------------------------------------------------------------------------------------
 */

enum { ALWAYS, SCC_0, SCC_1, VCC_0, VCC_NOT_0, EXEC_0, EXEC_NOT_0 };

static bool step_branch(wave *w, const instruction *x)
{
    bool taken = true;
    switch (x->row->kind) {
    case SCC_0:
        taken = !w->scc;
        break;
    case SCC_1:
        taken = w->scc;
        break;
    case VCC_0:
        taken = scalar_pair(w, VCC) == 0;
        break;
    case VCC_NOT_0:
        taken = scalar_pair(w, VCC) != 0;
        break;
    case EXEC_0:
        taken = scalar_pair(w, EXEC) == 0;
        break;
    case EXEC_NOT_0:
        taken = scalar_pair(w, EXEC) != 0;
        break;
    default:
        break;
    }
    if (taken) w->pc = x->target;
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

static bool step_barrier(wave *w, const instruction *x)
{
    u64 missing = w->all & ~scalar_pair(w, EXEC);
    if (missing)
        return gcn_fail(w, x, "divergence: of wave %d, lane %d does not come to the barrier", w->number,
                        __builtin_ctzll(missing));
    w->at_barrier = true;
    return false;
}

static bool step_end(wave *w, const instruction *x)
{
    for (int i = 0; i < w->vm.count; i++) {
        const instruction *load = w->vm.of[(w->vm.first + i) % OUTSTANDING].x;
        if (load->row->kind == TO_LDS)
            return gcn_fail(w, x, "a wave ends while data is on its way to the LDS (line %d: %s)", load->line,
                            load->text);
    }
    if (gcn_complete(w, &w->vm, 0) && gcn_complete(w, &w->lgkm, 0)) w->ended = true;
    return false;
}

const row gcn_scalar_rows[] = {
#define X(name, shape, how, result, carry) { #name, shape, step_scalar, .kind = how, .scalar = do_##name },
    SCALARS_OF(X)
#undef X
        { "s_branch", "l", step_branch, .kind = ALWAYS },
    { "s_cbranch_scc0", "l", step_branch, .kind = SCC_0 },
    { "s_cbranch_scc1", "l", step_branch, .kind = SCC_1 },
    { "s_cbranch_vccz", "l", step_branch, .takes = READS_VCC, .kind = VCC_0 },
    { "s_cbranch_vccnz", "l", step_branch, .takes = READS_VCC, .kind = VCC_NOT_0 },
    { "s_cbranch_execz", "l", step_branch, .kind = EXEC_0 },
    { "s_cbranch_execnz", "l", step_branch, .kind = EXEC_NOT_0 },
    { "s_waitcnt", "w", step_wait, .takes = ORDERS },
    { "s_barrier", "", step_barrier, .takes = ORDERS },
    { "s_nop", "n", step_nothing, .takes = 0 },
    { "s_endpgm", "", step_end, .takes = 0 },
    { 0 },
};
