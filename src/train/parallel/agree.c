/* SPDX-License-Identifier: Apache-2.0 */
#include "train/parallel/agree.h"

#include <string.h>

int agree_rank(const tm_comm *world)
{
    return world ? tm_comm_rank(world) : 0;
}

int agree_ranks(const tm_comm *world)
{
    return world ? tm_comm_size(world) : 1;
}

static tm_status broadcast(tm_comm *world, const char *what, int from, void *data, size_t n, tm_error *err)
{
    const tm_collective call = { .kind = TM_COMM_BROADCAST,
                                 .format = TM_COMM_BYTES,
                                 .send = data,
                                 .receive = data,
                                 .count = n,
                                 .peer = from,
                                 .what = what,
                                 .step = -1 };
    return tm_comm_run(world, &call, err);
}

tm_status agree_bytes(tm_comm *world, const char *what, void *data, size_t n, tm_error *err)
{
    if (agree_ranks(world) == 1) return TM_OK;
    return broadcast(world, what, 0, data, n, err);
}

static tm_status reduce(tm_comm *world, const char *what, tm_comm_op op, int64_t *values, size_t n, tm_error *err)
{
    const tm_collective call = { .kind = TM_COMM_ALL_REDUCE,
                                 .op = op,
                                 .format = TM_COMM_INT64,
                                 .send = values,
                                 .receive = values,
                                 .count = n,
                                 .what = what,
                                 .step = -1 };
    return agree_ranks(world) == 1 ? TM_OK : tm_comm_run(world, &call, err);
}

tm_status agree_max(tm_comm *world, const char *what, int64_t *values, size_t n, tm_error *err)
{
    return reduce(world, what, TM_COMM_MAX, values, n, err);
}

tm_status agree_sum(tm_comm *world, const char *what, int64_t *values, size_t n, tm_error *err)
{
    return reduce(world, what, TM_COMM_SUM, values, n, err);
}

tm_status agree_gather(tm_comm *world, const char *what, const void *values, size_t bytes, void *all, tm_error *err)
{
    const tm_collective call = { .kind = TM_COMM_ALL_GATHER,
                                 .format = TM_COMM_BYTES,
                                 .send = values,
                                 .receive = all,
                                 .count = bytes,
                                 .what = what,
                                 .step = -1 };
    if (agree_ranks(world) > 1) return tm_comm_run(world, &call, err);
    memcpy(all, values, bytes);
    return TM_OK;
}

/* The message of a rank on its way to the others. */
typedef struct {
    int64_t status;
    char    text[sizeof((tm_error *)0)->text];
} told;

tm_status agree_status(tm_comm *world, const char *what, tm_status st, tm_error *err)
{
    int rank = agree_rank(world), ranks = agree_ranks(world);
    if (ranks == 1) return st;
    int64_t   first = st == TM_OK ? 0 : ranks - rank;
    tm_error  own = { 0 };
    tm_status reached = agree_max(world, what, &first, 1, &own);
    if (reached != TM_OK) return st != TM_OK ? st : tm_fail(err, reached, "%s", own.text);
    if (first == 0) return TM_OK;
    int  from = ranks - (int)first;
    told message = { .status = st };
    if (from == rank && err) memcpy(message.text, err->text, sizeof message.text);
    reached = broadcast(world, what, from, &message, sizeof message, &own);
    if (st != TM_OK) return reached == TM_OK ? (tm_status)message.status : st; /* its own story stays */
    if (reached != TM_OK) return tm_fail(err, reached, "%s", own.text);
    return tm_fail(err, (tm_status)message.status, "rank %d: %s", from, message.text);
}
