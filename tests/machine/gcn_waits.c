/* SPDX-License-Identifier: Apache-2.0 */
/* Waits that nothing can miss, whatever the data, by the code alone.
 *
 * A wait matters for what may be under way in front of it. Accesses go along all paths, each with the least number of
 * younger ones of its counter, until a wait must have completed it. Twice, both without the wait in question: first
 * all accesses from the beginning; then those that reach the wait, from there on. It is needless if the second pass
 * ends without an instruction that touches a register of a load under way, and without a barrier that others than
 * scalar loads reach, or an end that direct loads into LDS reach. Paths are all that branches allow: what is not proved
 * here may still be needless. */
#include "machine/gcn.h"

#include <stdlib.h>

enum { ABSENT = OUTSTANDING }; /* with so many younger ones an access is complete (gcn_memory.c) */

typedef struct flow {
    const instruction *code;           /* of the kernel */
    int                first, n, wait; /* where it begins; instructions; the one of them that is left out */
    int               *accesses;       /* where they are */
    int                n_accesses;
    bool               all;     /* accesses begin; else only those are followed that are under way at the start */
    u8                *younger; /* in front of each instruction, of each access: the least number, or ABSENT */
    bool              *scalars; /* in front of each instruction: may a scalar load be under way? */
    bool              *reached; /* does a path lead there? */
    int               *todo;    /* instructions whose state has changed */
    bool              *listed;  /* there */
    int                n_todo;
} flow;

static void *need(size_t count, size_t size)
{
    void *got = calloc(count + 1, size);
    if (!got) abort();
    return got;
}

static bool is_access(const instruction *x)
{
    return x->row->bytes > 0;
}

static bool counts_global(const instruction *x)
{
    return x->row->kind >= SCRATCH_LOAD && x->row->kind != LDS_WRITE;
}

static bool is_scalar(const instruction *x)
{
    return is_access(x) && x->row->kind == SCALAR_LOAD;
}

static const instruction *access_at(const flow *f, int a)
{
    return &f->code[f->accesses[a]];
}

static u8 *state_at(const flow *f, int at)
{
    return f->younger + (size_t)at * (size_t)f->n_accesses;
}

/* Does x touch what `load` brings? One of global memory may bring it anew: they come in order. */
static bool touches(const instruction *x, const instruction *load)
{
    const operand *result = &load->o[0];
    bool           in_order = is_access(x) && x->row->kind == LOAD && load->row->kind == LOAD;
    int            from = result->at + (result->kind == SCALAR ? VECTORS : 0);
    for (int at = from; at < from + result->count; at++) {
        if (!(x->touched.bits[at / 64] >> at % 64 & 1)) continue;
        if (!in_order) return true;
        for (int i = 1; i < x->n; i++)
            if (x->o[i].kind == VECTOR && at >= x->o[i].at && at < x->o[i].at + x->o[i].count) return true;
    }
    return false;
}

/* May x come while this access is under way? */
static bool may_pass(const instruction *x, const instruction *access)
{
    int kind = access->row->kind;
    if (strcmp(x->row->name, "s_barrier") == 0) return kind == SCALAR_LOAD;
    if (strcmp(x->row->name, "s_endpgm") == 0) return true;
    return kind > LOAD || !touches(x, access);
}

/* Into `after`: what is under way behind instruction `at`. False: an access may be that it must not meet. */
static bool step(const flow *f, int at, u8 *after)
{
    const instruction *x = &f->code[at];
    const u8          *before = state_at(f, at);
    for (int a = 0; a < f->n_accesses; a++) {
        const instruction *access = access_at(f, a);
        bool               global = counts_global(access);
        int                left = at == f->wait ? -1 : global ? x->vmcnt : x->lgkmcnt;
        bool               begins = f->all && access == x;
        after[a] = begins ? 0 : before[a];
        if (begins || before[a] == ABSENT) continue;
        if (!f->all && !may_pass(x, access)) return false;
        if (left >= 0 && before[a] >= left && (global || left == 0 || !f->scalars[at])) after[a] = ABSENT;
        if (is_access(x) && counts_global(x) == global && !is_scalar(access)) after[a]++;
    }
    return true;
}

/* `state` may also be in front of instruction `at`. */
static void join(flow *f, int at, const u8 *state)
{
    u8  *there = state_at(f, at);
    bool more = !f->reached[at];
    f->reached[at] = true;
    for (int a = 0; a < f->n_accesses; a++) {
        if (state[a] >= there[a]) continue;
        there[a] = state[a];
        more = true;
        if (f->all && is_scalar(access_at(f, a))) f->scalars[at] = true;
    }
    if (more && !f->listed[at]) f->listed[f->todo[f->n_todo++] = at] = true;
}

/* All paths from instruction `at`, in front of which is `state`. False: as of step(). */
static bool follow(flow *f, bool all, int at, const u8 *state)
{
    u8  *after = need((size_t)f->n_accesses, 1);
    bool well = true;
    f->all = all;
    f->n_todo = 0;
    memset(f->younger, ABSENT, (size_t)f->n * (size_t)f->n_accesses);
    memset(f->reached, 0, (size_t)f->n * sizeof *f->reached);
    memset(f->listed, 0, (size_t)f->n * sizeof *f->listed);
    join(f, at, state);
    while (well && f->n_todo) {
        int                from = f->todo[--f->n_todo];
        const instruction *x = &f->code[from];
        f->listed[from] = false;
        well = step(f, from, after);
        if (well && x->target >= 0) join(f, x->target - f->first, after);
        bool goes_on = strcmp(x->row->name, "s_branch") != 0 && strcmp(x->row->name, "s_endpgm") != 0;
        if (well && goes_on && from + 1 < f->n) join(f, from + 1, after);
    }
    free(after);
    return well;
}

/* Of the accesses in front of the wait only those that it waits for. */
static void keep_waited(const flow *f, u8 *state)
{
    const instruction *wait = &f->code[f->wait];
    memcpy(state, state_at(f, f->wait), (size_t)f->n_accesses);
    for (int a = 0; a < f->n_accesses; a++)
        if ((counts_global(access_at(f, a)) ? wait->vmcnt : wait->lgkmcnt) < 0) state[a] = ABSENT;
}

static bool proves(flow *f)
{
    u8 *state = need((size_t)f->n_accesses, 1);
    memset(state, ABSENT, (size_t)f->n_accesses);
    follow(f, true, 0, state);
    keep_waited(f, state);
    bool well = follow(f, false, f->wait + 1, state);
    free(state);
    return well;
}

bool gcn_needless(const machine_module *module, int at)
{
    const gcn_module     *m = (const gcn_module *)module;
    const machine_kernel *k = NULL;
    for (int i = 0; i < m->n_kernels; i++)
        if (at >= m->kernels[i].told.first && at < m->kernels[i].told.end) k = &m->kernels[i].told;
    if (!k || strcmp(m->code[at].row->name, "s_waitcnt") != 0 || at + 1 >= k->end) return false;
    size_t n = (size_t)(k->end - k->first);
    flow   f = { .code = m->code + k->first, .first = k->first, .n = (int)n, .wait = at - k->first };
    f.accesses = need(n, sizeof *f.accesses);
    for (int i = 0; i < f.n; i++)
        if (is_access(&f.code[i])) f.accesses[f.n_accesses++] = i;
    f.younger = need(n, (size_t)f.n_accesses);
    f.scalars = need(n, sizeof *f.scalars);
    f.reached = need(n, sizeof *f.reached);
    f.listed = need(n, sizeof *f.listed);
    f.todo = need(n, sizeof *f.todo);
    bool        well = proves(&f);
    void *const taken[] = { f.accesses, f.younger, f.scalars, f.reached, f.listed, f.todo };
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) free(taken[i]);
    return well;
}
