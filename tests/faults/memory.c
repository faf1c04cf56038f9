/* SPDX-License-Identifier: Apache-2.0 */
/* tests/faults/memory.c - faults of the host's memory, where a test of it writes and reads (apps/node/memory_words.h):
 * each processor has bad words of its own. A fill is an event of a flip. By the made-up clock a word takes its bytes at
 * `gigabytes` a second. */
#include "faults.h"

#include "apps/node/memory_words.h"

#include <math.h>
#include <string.h>

enum { PROCESSORS = 1024 };

/* Of the processor that this thread is bound to, whichever thread it is; those that are not bound have one. */
static fault_place *place_of_core(void)
{
    static fault_place all[PROCESSORS + 1];
    static unsigned    times[PROCESSORS + 1];
    int                i = fault_core() + 1;
    if (i > PROCESSORS) i = 0;
    if (times[i] != faults_planted()->times) all[i] = (fault_place){ .number = FAULT_DEVICES + i };
    times[i] = faults_planted()->times;
    return &all[i];
}

static bool flips(const fault *f)
{
    return f->kind == FAULT_FLIP && strcmp(f->where, "memory") == 0 && fault_is_here(f) && fault_turn(f);
}

static void change(const fault *f, uint64_t *words, size_t n)
{
    for (int k = 0; k < (f->kind == FAULT_FLIP ? 1 : (int)f->words); k++) {
        uint64_t word = fault_draw(f, 2 * k, n), drawn = fault_draw(f, 2 * k + 1, 64), old = words[word];
        uint64_t bit = f->bit >= 0 ? (uint64_t)f->bit : drawn, mask = (uint64_t)1 << bit;
        words[word] = f->kind == FAULT_FLIP ? old ^ mask : f->to ? old | mask : old & ~mask;
        if (words[word] != old)
            fault_tell(f, "\"where\": \"host\", \"core\": %d, \"word\": %llu, \"bit\": %llu", fault_core(),
                       (unsigned long long)word, (unsigned long long)bit);
    }
}

static void take_time(size_t n)
{
    const faults *all = faults_planted();
    double        percent = 0;
    if (!faults_rank()->made) return;
    for (int i = 0; i < all->n; i++) {
        const fault *f = &all->all[i];
        if (f->kind == FAULT_SLOW && !f->op[0] && !f->shape[0] && fault_is_here(f)) percent += f->percent;
    }
    clock_work(llround((double)clock_copy_ns(8 * n) * (1 + percent / 100)));
}

void __real_tm_memory_fill(uint64_t *words, size_t n, int pattern, uint64_t seed);
void __wrap_tm_memory_fill(uint64_t *words, size_t n, int pattern, uint64_t seed);
void __wrap_tm_memory_fill(uint64_t *words, size_t n, int pattern, uint64_t seed)
{
    const faults *all = faults_planted();
    __real_tm_memory_fill(words, n, pattern, seed);
    take_time(n);
    faults_rank()->place = place_of_core();
    for (int i = 0; i < all->n && n > 0; i++)
        if ((all->all[i].kind == FAULT_STUCK && fault_is_here(&all->all[i])) || flips(&all->all[i]))
            change(&all->all[i], words, n);
    faults_rank()->place = NULL;
}

size_t __real_tm_memory_check(const uint64_t *words, size_t n, int pattern, uint64_t seed, size_t *first_bad);
size_t __wrap_tm_memory_check(const uint64_t *words, size_t n, int pattern, uint64_t seed, size_t *first_bad);
size_t __wrap_tm_memory_check(const uint64_t *words, size_t n, int pattern, uint64_t seed, size_t *first_bad)
{
    take_time(n);
    return __real_tm_memory_check(words, n, pattern, seed, first_bad);
}

uint64_t __real_tm_memory_read(const uint64_t *words, size_t n);
uint64_t __wrap_tm_memory_read(const uint64_t *words, size_t n);
uint64_t __wrap_tm_memory_read(const uint64_t *words, size_t n)
{
    take_time(n);
    return __real_tm_memory_read(words, n);
}
