/* SPDX-License-Identifier: Apache-2.0 */
/* How long the order of the 8-billion benchmark's batch-32 run takes to build (docs/data-mlperf.md): 15 epochs of
 * 45,608,611 documents, 38,441,516 samples, 2.98 GiB besides the lengths. The documents here have 460 or 461 tokens;
 * every sample is checked to begin where the one before it ends. `make build/release/bench/order_probe &&
 * build/release/bench/order_probe` */
#include "base/arena.h"
#include "base/clock.h"
#include "data/order.h"

#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    const int64_t documents = 45608611, tokens = 20994193570, seq = 8192, wanted = 38400000;
    tm_order_plan plan;
    tm_order      order;
    tm_error      err = { 0 };
    int32_t      *lengths = tm_alloc((size_t)documents * sizeof *lengths);
    for (int64_t d = 0; d < documents; d++) lengths[d] = 460 + (d < tokens - 460 * documents);
    int64_t begin = tm_now_ns();
    if (tm_order_plan_make(documents, tokens, seq, wanted, &plan, &err) != TM_OK ||
        tm_order_build(&plan, (const uint8_t *)lengths, 1234, &order, &err) != TM_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    printf("%lld samples of %lld entries: %.1f s\n", (long long)plan.samples, (long long)(plan.epochs * documents),
           (double)(tm_now_ns() - begin) * 1e-9);
    int64_t wrong = 0, at = 0;
    for (int64_t position = 0, k = 0; k <= plan.samples; position++) {
        for (; k <= plan.samples && order.samples[k].position == position; k++)
            wrong += at + order.samples[k].offset != k * seq;
        at += lengths[order.documents[position]];
    }
    printf("%lld samples begin in a wrong place\n", (long long)wrong);
    tm_order_free(&order);
    free(lengths);
    return wrong != 0;
}
