/* SPDX-License-Identifier: Apache-2.0 */
/* cli/explain_hosts.c - see cli/explain_hosts.h. */
#include "cli/explain_hosts.h"

#include "base/arena.h"
#include "op/attrs.h"

#include <stdlib.h>

/* The hosts of the ranks of a group, in its order. */
static const tm_comm_hosts *group_of(explain_hosts *hosts, unsigned axes)
{
    for (int k = 0; k < hosts->n; k++)
        if (hosts->axes[k] == axes) return hosts->groups[k];
    int  ranks = tm_mesh_ranks(hosts->mesh), color = tm_mesh_group_color(hosts->mesh, hosts->rank, axes);
    int *host = tm_alloc((size_t)ranks * sizeof *host), n = 0;
    for (int r = 0; r < ranks; r++)
        if (tm_mesh_group_color(hosts->mesh, r, axes) == color) host[n++] = r / hosts->each;
    TM_ASSERT(hosts->n < TM_MESH_GROUPS);
    hosts->axes[hosts->n] = axes;
    hosts->groups[hosts->n] = tm_comm_hosts_make(host, n);
    free(host);
    return hosts->groups[hosts->n++];
}

/* What device/collectives.c calls. */
static tm_collective sum_or_gather(const tm_call *call)
{
    const tm_group_attr *attr = call->attr;
    const tm_view       *x = &call->in[0];
    tm_collective        what = { .kind = TM_COMM_ALL_GATHER, .format = TM_COMM_BYTES };
    what.count = tm_tensor_bytes(x->shape, x->dtype);
    if (call->op == &tm_op_all_gather) return what;
    bool scatters = call->op == &tm_op_reduce_scatter;
    what.kind = scatters ? TM_COMM_REDUCE_SCATTER : TM_COMM_ALL_REDUCE;
    what.format = x->dtype == TM_F64 ? TM_COMM_FLOAT64 : x->dtype == TM_F32 ? TM_COMM_FLOAT32 : TM_COMM_BFLOAT16;
    if (attr->narrow) what.format = TM_COMM_BFLOAT16;
    what.count = (size_t)tm_shape_elements(scatters ? call->out[0].shape : x->shape);
    return what;
}

/* Of a message: from this rank to another, or round a ring. */
static explain_moved message(explain_hosts *hosts, const tm_instruction *i)
{
    const tm_message_attr *attr = i->call.attr;
    const tm_comm_hosts   *h = group_of(hosts, (unsigned)attr->axes);
    double                 apart = 0;
    if (i->call.op == &tm_op_send) {
        int own = tm_mesh_group_rank(hosts->mesh, hosts->rank, (unsigned)attr->axes);
        apart = h->host[own] != h->host[attr->peer];
    } else {
        for (int r = 0; r < h->size; r++) apart += (h->host[r] != h->host[(r + 1) % h->size]) / (double)h->size;
    }
    return (explain_moved){ i->cost.wire * apart, i->cost.wire * apart, i->cost.wire * (1 - apart) };
}

/* Of what every rank has a part for every other one. */
static explain_moved exchange(const tm_comm_hosts *h, double wire)
{
    tm_collective one = { .kind = TM_COMM_ALL_TO_ALL, .format = TM_COMM_BYTES, .count = 1 };
    tm_comm_moved pairs = tm_comm_hosts_moved(h, &one, false);
    double        apart = pairs.between / (pairs.between + pairs.within);
    return (explain_moved){ wire * apart, wire * apart, wire * (1 - apart) };
}

explain_moved explain_hosts_moved(explain_hosts *hosts, const tm_instruction *i)
{
    const tm_op *op = i->call.op;
    if (hosts->each == 0 || i->cost.wire <= 0) return (explain_moved){ 0 };
    if (op == &tm_op_send || op == &tm_op_pass_on) return message(hosts, i);
    const tm_group_attr *attr = i->call.attr; /* the first member of that of exchanges */
    const tm_comm_hosts *h = group_of(hosts, (unsigned)attr->axes);
    if (op != &tm_op_all_reduce && op != &tm_op_reduce_scatter && op != &tm_op_all_gather)
        return exchange(h, i->cost.wire);
    tm_collective what = sum_or_gather(&i->call);
    tm_comm_moved direct = tm_comm_hosts_moved(h, &what, false);
    tm_comm_moved goes = tm_comm_hosts_moved(h, &what, tm_comm_hosts_share(h, &what));
    return (explain_moved){ goes.between / h->size, direct.between / h->size, goes.within / h->size };
}

void explain_hosts_fini(explain_hosts *hosts)
{
    for (int k = 0; k < hosts->n; k++) tm_comm_hosts_free(hosts->groups[k]);
    hosts->n = 0;
}
