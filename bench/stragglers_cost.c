/* SPDX-License-Identifier: Apache-2.0 */
/* bench/stragglers_cost.c - processor time of the straggler ledger (docs/stragglers.md) in one block of steps, without
 * the exchange: the test of rank 0 for several numbers of ranks, and the question of how long a thread was delayed.
 *
 *   cc -O2 -Isrc -o stragglers_cost bench/stragglers_cost.c build/release/libtrainmark.a -lm -lpthread -ldl
 */
#define _GNU_SOURCE
#include "base/clock.h"
#include "stats/stragglers.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BLOCKS = 5000, ROUNDS = 6, MOST = 256 };

static double processor_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static double judge(int ranks)
{
    static int           role[MOST];
    static tm_rank_times times[MOST];
    static tm_straggler  named[MOST];
    tm_stragglers       *s = tm_stragglers_open(ranks, role);
    double               sum = 0;
    for (int i = 1; i <= BLOCKS; i++) {
        for (int r = 0; r < ranks; r++) {
            for (int p = 0; p < TM_RANK_PHASES; p++) times[r].busy[p] = 0.003 * (1 + 0.02 * (drand48() - 0.5));
            times[r].seconds = 0.02;
        }
        double begun = processor_us();
        (void)tm_stragglers_feed(s, i, times, named);
        sum += processor_us() - begun;
    }
    tm_stragglers_close(s);
    return sum / BLOCKS;
}

int main(void)
{
    static const int ranks[] = { 2, 16, 64, 256 };
    for (int round = 0; round < ROUNDS; round++) {
        double  begun = processor_us();
        int64_t sum = 0;
        for (int i = 0; i < BLOCKS; i++) sum += tm_thread_delayed_ns();
        printf("delay %.2f us%s", (processor_us() - begun) / BLOCKS, sum < 0 ? "!" : "");
        for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++)
            printf(", %d ranks %.2f us", ranks[i], judge(ranks[i]));
        printf("\n");
    }
}
