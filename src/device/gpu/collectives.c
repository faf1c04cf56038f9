/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/collectives.c - what ranks do together, by NCCL or RCCL in the queue of the call (comm/coll/nccl.h). The
 * library is opened when the device is connected; the communicators of a plan, one for each set of axes, when it is
 * loaded, in the order of the mesh's groups. */
#include "device/gpu/ranks.h"

#include "base/arena.h"
#include "base/log.h"
#include "device/host/host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the library and its communicators ---------------------------------------------------------------------------- */

static tm_gpu_own *own_of(const tm_device *device)
{
    return device->own;
}

/* The library adds, too. */
static void name_sums(tm_device *device, tm_gpu_ranks *r)
{
    const tm_nccl_facts *f = tm_nccl_facts_of(r->nccl);
    for (int k = 0; k < 2; k++) {
        snprintf(r->sums[k], sizeof r->sums[k], "%.79s-%s-%s", r->alone[k], f->name, f->version);
        device->info.sums[k] = r->sums[k];
    }
}

tm_status tm_gpu_connect(tm_device *device, tm_error *err)
{
    tm_gpu_own   *own = own_of(device);
    tm_gpu_ranks *r = memset(tm_alloc(sizeof *r), 0, sizeof *r);
    tm_status     st = tm_nccl_open_on(device->groups->world, own->gpu, &r->nccl, err);
    if (st != TM_OK) {
        free(r);
        return st;
    }
    own->ranks = r;
    for (int k = 0; k < 2; k++) r->alone[k] = device->info.sums[k];
    name_sums(device, r);
    const tm_nccl_facts *f = tm_nccl_facts_of(r->nccl);
    tm_note("%s, sums by %s %s (%s)", tm_nccl_places(r->nccl), f->name, f->version, f->library);
    tm_note("%s", tm_nccl_near(r->nccl));
    return TM_OK;
}

void tm_gpu_disconnect(tm_gpu_own *own)
{
    if (!own->ranks) return;
    tm_gpu_lanes_settle(own->ranks);
    tm_nccl_close(own->ranks->nccl);
    tm_gpu_lanes_close(own);
    for (int i = 0; i < own->ranks->n; i++) free(own->ranks->all[i].counts);
    free(own->ranks->all);
    free(own->ranks->messages);
    free(own->ranks);
    own->ranks = NULL;
}

static tm_status open_group(tm_gpu_ranks *r, tm_comm *ranks, tm_nccl_group **out, tm_error *err)
{
    for (int i = 0; i < r->n_open; i++)
        if (r->open[i].ranks == ranks) {
            *out = r->open[i].group;
            return TM_OK;
        }
    TM_ASSERT(r->n_open < TM_MESH_GROUPS);
    TM_TRY(tm_nccl_group_open(r->nccl, ranks, out, err));
    r->open[r->n_open].ranks = ranks;
    r->open[r->n_open++].group = *out;
    return TM_OK;
}

/* In the order of the mesh's groups: that of plans may be another one on other stages of a pipeline. */
tm_status tm_gpu_ranks_prepared(tm_device *device, tm_error *err)
{
    tm_gpu_own   *own = own_of(device);
    tm_gpu_ranks *r = own->ranks;
    if (!r) return TM_OK;
    for (int g = 0; g < device->groups->n; g++)
        for (int i = r->known; i < r->n; i++) {
            tm_gpu_collective *c = &r->all[i];
            if (c->ranks != device->groups->comm[g] || c->group || c->lane >= 0) continue;
            TM_TRY(open_group(r, c->ranks, &c->group, err));
        }
    TM_TRY(tm_gpu_lanes_open(own, err));
    for (int i = r->known; i < r->n; i++) {
        tm_gpu_collective *c = &r->all[i];
        if (c->lane >= 0) c->group = r->lanes[c->lane].group;
        c->what.what = c->name; /* the list does not grow any more */
        c->number = tm_nccl_note(r->nccl, &c->what);
    }
    r->known = r->n;
    name_sums(device, r); /* products may be tuned ones now */
    return TM_OK;
}

void tm_gpu_ranks_give_up(const tm_device *device)
{
    const tm_gpu_own *own = device->own;
    if (own->ranks && device->failure.status != TM_OK) tm_nccl_give_up(own->ranks->nccl, &device->failure);
}

tm_status tm_gpu_ranks_wait(tm_gpu_own *own, void *stream, tm_error *err)
{
    return own->ranks ? tm_nccl_wait_for(own->ranks->nccl, stream, err) : tm_gpu_stream_wait(own->gpu, stream, err);
}

/* --- calls -------------------------------------------------------------------------------------------------------- */

static const tm_group_attr *attr_of(const tm_call *call)
{
    return call->attr;
}

static bool alone(const tm_call *call)
{
    return attr_of(call)->ranks == 1;
}

tm_status tm_gpu_note_call(const void *device, const tm_call *call, const tm_group_attr *attr,
                           const tm_collective *what, void **state, tm_error *err)
{
    tm_gpu_ranks *r = own_of(device)->ranks;
    tm_comm      *ranks;
    TM_TRY(tm_host_group(device, call->op->name, attr, &ranks, err));
    if (!r)
        return tm_fail(err, TM_INVALID, "%s '%.64s' takes %lld ranks, and the device was not connected with others",
                       call->op->name, attr->what, (long long)attr->ranks);
    if (r->n == r->room) {
        r->room = r->room ? 2 * r->room : 32;
        r->all = tm_realloc(r->all, (size_t)r->room * sizeof *r->all);
    }
    tm_gpu_collective *c = &r->all[r->n];
    *c = (tm_gpu_collective){ .ranks = ranks, .what = *what, .lane = -1 };
    snprintf(c->name, sizeof c->name, "%.63s", attr->what);
    ((tm_gpu_noted *)*state)->collective = ++r->n;
    return TM_OK;
}

static tm_status queue_call(const tm_call *call, const void *from, void *to, tm_error *err)
{
    const tm_gpu_collective *c = tm_gpu_noted_call(call);
    tm_collective            what = c->what;
    what.what = c->name;
    what.send = from;
    what.receive = to;
    return tm_nccl_queue(c->group, c->number, &what, tm_gpu_stream_of(call->queue), err);
}

static tm_status note_call(const void *device, const tm_call *call, const tm_collective *what, void **state,
                           tm_error *err)
{
    return tm_gpu_note_call(device, call, attr_of(call), what, state, err);
}

/* --- sums and gathers --------------------------------------------------------------------------------------------- */

static const char *refuse_sum(const tm_call *call)
{
    tm_dtype dtype = call->in[0].dtype;
    if (dtype != call->out[0].dtype) return "a collective keeps the format";
    if (dtype != TM_F32 && dtype != TM_BF16 && dtype != TM_F64) return "sums float32, bfloat16 and float64";
    if (call->accumulate && call->op == &tm_op_all_reduce) return "does not add to what is there";
    if (attr_of(call)->largest && !alone(call)) return "the library's maximum passes over NaN";
    return NULL;
}

static const char *refuse_gather(const tm_call *call)
{
    if (call->in[0].dtype != call->out[0].dtype) return "a collective keeps the format";
    return tm_host_whole_bytes(&call->in[0]) && !call->accumulate ? NULL : "needs whole bytes of each rank";
}

/* Sums of float32 that travel as bfloat16. */
static bool narrows(const tm_call *call)
{
    return attr_of(call)->narrow && !alone(call) && call->in[0].dtype == TM_F32;
}

/* What is added to what is there is received apart; so is what was rounded. */
static size_t sum_workspace(const tm_call *call)
{
    if (narrows(call)) return tm_tensor_bytes(call->in[0].shape, TM_BF16);
    return call->accumulate && !alone(call) ? tm_tensor_bytes(call->out[0].shape, call->out[0].dtype) : 0;
}

enum { ADDS, ROUNDS, WIDENS }; /* kernels */

static tm_status prepare_sum(const void *device, const tm_call *call, void **state, tm_error *err)
{
    bool           narrow = narrows(call);
    tm_dtype       dtype = call->in[0].dtype, travels = narrow ? TM_BF16 : dtype;
    tm_gpu_defines adds = { .n = 0 }, rounds = { .n = 0 }, widens = { .n = 0 };
    bool           scatters = call->op == &tm_op_reduce_scatter;
    tm_collective  what = { .kind = scatters ? TM_COMM_REDUCE_SCATTER : TM_COMM_ALL_REDUCE,
                            .format = travels == TM_F32    ? TM_COMM_FLOAT32
                                      : travels == TM_BF16 ? TM_COMM_BFLOAT16
                                                           : TM_COMM_FLOAT64,
                            .count = (size_t)tm_shape_elements(call->out[0].shape),
                            .step = -1 };
    if (dtype != TM_F64) { /* calls that add share it with those that do not */
        tm_gpu_define_format(&adds, "X", travels);
        tm_gpu_define_format(&adds, "Y", dtype);
        tm_gpu_note(device, "collectives", tm_gpu_text_collectives, &adds, "add_to", state);
    } else if (scatters) {
        tm_gpu_note(device, "collectives_wide", tm_gpu_text_collectives_wide, &adds, "add_wide", state);
    } else { /* never adds */
        tm_gpu_note_none(device, state);
    }
    if (narrow) {
        tm_gpu_define_format(&rounds, "X", TM_F32);
        tm_gpu_define_format(&rounds, "Y", TM_BF16);
        tm_gpu_note(device, "pointwise", tm_gpu_text_pointwise, &rounds, "cast", state);
        tm_gpu_define_format(&widens, "X", TM_BF16);
        tm_gpu_define_format(&widens, "Y", TM_F32);
        tm_gpu_note(device, "pointwise", tm_gpu_text_pointwise, &widens, "cast", state);
    }
    return alone(call) ? TM_OK : note_call(device, call, &what, state, err);
}

static tm_status each(const tm_call *call, int kernel, void *to, const void *from, int64_t n, tm_error *err)
{
    bool             wide = ((uintptr_t)to | (uintptr_t)from) % 16 == 0 && call->out[0].dtype != TM_F64;
    int              run = tm_gpu_run(narrows(call) ? TM_BF16 : call->in[0].dtype, call->out[0].dtype);
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, to);
    tm_gpu_pass(&a, from);
    tm_gpu_pass_i64(&a, n);
    tm_gpu_pass_int(&a, wide);
    return tm_gpu_start_each(call, kernel, tm_gpu_pieces(n, run, wide), &a, err);
}

/* This rank's result goes into what it has sent: where in-place sums have it. */
static tm_status sum_narrow(const tm_call *call, tm_error *err)
{
    const tm_gpu_collective *c = tm_gpu_noted_call(call);
    const tm_view           *x = &call->in[0], *y = &call->out[0];
    bool                     scatters = call->op == &tm_op_reduce_scatter;
    uint16_t                *half = call->workspace, *own = half;
    if (scatters) own += (size_t)tm_comm_rank(c->ranks) * c->what.count;
    TM_TRY(each(call, ROUNDS, half, x->data, tm_shape_elements(x->shape), err));
    TM_TRY(queue_call(call, half, own, err));
    return each(call, call->accumulate ? ADDS : WIDENS, y->data, own, tm_shape_elements(y->shape), err);
}

static tm_status copy_if_apart(const tm_call *call, tm_error *err)
{
    const tm_view *x = &call->in[0], *y = &call->out[0];
    size_t         bytes = tm_tensor_bytes(x->shape, x->dtype);
    if (x->data == y->data || bytes == 0) return TM_OK;
    return tm_gpu_copy_of(call, y->data, x->data, bytes, err);
}

static tm_status launch_sum(const tm_call *call, tm_error *err)
{
    const tm_view *x = &call->in[0], *y = &call->out[0];
    int64_t        n = tm_shape_elements(y->shape);
    if (n == 0) return TM_OK;
    if (narrows(call)) return sum_narrow(call, err);
    if (alone(call)) return call->accumulate ? each(call, ADDS, y->data, x->data, n, err) : copy_if_apart(call, err);
    TM_TRY(queue_call(call, x->data, call->accumulate ? call->workspace : y->data, err));
    return call->accumulate ? each(call, ADDS, y->data, call->workspace, n, err) : TM_OK;
}

static tm_status prepare_gather(const void *device, const tm_call *call, void **state, tm_error *err)
{
    tm_collective what = { .kind = TM_COMM_ALL_GATHER,
                           .format = TM_COMM_BYTES,
                           .count = tm_tensor_bytes(call->in[0].shape, call->in[0].dtype),
                           .step = -1 };
    tm_gpu_note_none(device, state);
    return alone(call) ? TM_OK : note_call(device, call, &what, state, err);
}

/* Of bytes that come from others as they are. */
static tm_status launch_bytes(const tm_call *call, tm_error *err)
{
    if (alone(call)) return copy_if_apart(call, err);
    if (tm_shape_elements(call->in[0].shape) == 0) return TM_OK;
    return queue_call(call, call->in[0].data, call->out[0].data, err);
}

/* One step round a ring: an exchange of all with all in which each has something for the next one only. */
static const char *refuse_pass_on(const tm_call *call)
{
    tm_dtype dtype = call->in[0].dtype;
    if (call->accumulate) return "does not add to what is there";
    if (dtype != call->out[0].dtype) return "what is passed on keeps its format";
    return tm_dtype_bits(dtype) % 8 == 0 ? NULL : "needs a format of whole bytes";
}

static tm_status prepare_pass_on(const void *device, const tm_call *call, void **state, tm_error *err)
{
    tm_collective what = { .kind = TM_COMM_ALL_TO_ALL, .format = TM_COMM_BYTES, .step = -1 };
    tm_gpu_note_none(device, state);
    if (alone(call)) return TM_OK;
    TM_TRY(note_call(device, call, &what, state, err));
    const tm_gpu_noted *p = *state;
    tm_gpu_collective  *c = &p->own->ranks->all[p->collective - 1];
    size_t              ranks = (size_t)tm_comm_size(c->ranks), rank = (size_t)tm_comm_rank(c->ranks);
    size_t              bytes = tm_tensor_bytes(call->in[0].shape, call->in[0].dtype);
    c->counts = memset(tm_alloc(2 * ranks * sizeof *c->counts), 0, 2 * ranks * sizeof *c->counts);
    c->counts[(rank + 1) % ranks] = bytes;
    c->counts[ranks + (rank + ranks - 1) % ranks] = bytes;
    c->what.send_counts = c->counts;
    c->what.receive_counts = c->counts + ranks;
    return TM_OK;
}

static const char *refuse_share(const tm_call *call)
{
    return call->in[0].dtype != call->out[0].dtype || call->accumulate ? "it keeps format and values" : NULL;
}

static tm_status prepare_share(const void *device, const tm_call *call, void **state, tm_error *err)
{
    (void)call;
    (void)err;
    tm_gpu_note_none(device, state);
    return TM_OK;
}

#define SUM(id)                                                                                                        \
    {                                                                                                                  \
        .op = TM_OP_##id, .name = #id "/gpu", .refuse = refuse_sum, .workspace = sum_workspace, .launch = launch_sum,  \
        .prepare = prepare_sum, .release = tm_gpu_forget                                                               \
    }
const tm_kernel tm_gpu_collectives[] = { SUM(all_reduce),
                                         SUM(reduce_scatter),
                                         { .op = TM_OP_all_gather,
                                           .name = "all_gather/gpu",
                                           .refuse = refuse_gather,
                                           .launch = launch_bytes,
                                           .prepare = prepare_gather,
                                           .release = tm_gpu_forget },
                                         { .op = TM_OP_pass_on,
                                           .name = "pass_on/gpu",
                                           .refuse = refuse_pass_on,
                                           .launch = launch_bytes,
                                           .prepare = prepare_pass_on,
                                           .release = tm_gpu_forget },
                                         { .op = TM_OP_share,
                                           .name = "share/gpu",
                                           .refuse = refuse_share,
                                           .launch = copy_if_apart,
                                           .prepare = prepare_share,
                                           .release = tm_gpu_forget },
                                         { .name = NULL } };
