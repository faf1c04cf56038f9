/* SPDX-License-Identifier: Apache-2.0 */
/* Which layouts there are: parts of matrices, stages, parts of sequences, experts, copies and shards of weights,
 * micro-batches, recomputation, and, where it hardly fits without, what lies with the host. Each gets a bound of its
 * time (plan/bound.h), and for the order in which they are looked at an estimate by the model of other trainers
 * (plan/theirs.h), which takes microseconds. */
#include "cli/plan_layouts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    int         chunks;
    double      idle; /* tm_sketch.idle, by docs/parallelism.md */
} orders[] = { { "1F1B", 1, 1 }, { "Interleaved1F1B", 2, 1. / 2 }, { "ZBVZeroBubble", 2, 1. / 6 } };

static const struct {
    const char *mode;
    tm_again    again;
} modes[] = { { "none", TM_AGAIN_NONE }, { "selective", TM_AGAIN_PER_OP }, { "full", TM_AGAIN_FULL } };

static const struct {
    const char *name;
    bool        moments, activations;
} offloads[] = {
    { "none", false, false }, { "optimizer", true, false }, { "activations", false, true }, { "all", true, true }
};

static const double TIGHT = 0.8; /* of the room: with less, nothing is moved to the host */
enum { OFFLOADS = sizeof offloads / sizeof offloads[0] };
enum { ORDERS = sizeof orders / sizeof orders[0], MODES = sizeof modes / sizeof modes[0], MOST_STAGES = 64 };
enum { LARGEST_MICRO_BATCH = 64, LEAST_PART = 2048 /* tokens of a part of a sequence */ };

static const char *share_of(const tm_sketch *s)
{
    return s->shares_all ? "optim_grads_params" : "optim";
}

/* Returns about the bytes that lie with the host. */
static double estimate(const plan_layouts *a, plan_layout *l, tm_again again, int chunks, int offload)
{
    const tm_sketch *s = &l->of;
    tm_their_job     j = { .trainer = tm_trainer_row_find("megatron"), .device = &a->given->cli.machine->device };
    j.shape = a->given->run.step.shape;
    j.sharing = s->shares_all ? TM_THEY_SHARE_ALL : TM_THEY_SHARE_OPTIMIZER;
    j.fusion = TM_THEY_FUSE;
    j.format = a->given->run.step.quantize.on ? TM_RATE_FP8 : TM_RATE_BF16;
    j.devices = a->devices;
    j.dp = s->replicate * s->shard;
    j.tp = s->tp;
    j.pp = s->pp;
    j.vp = chunks;
    j.cp = s->cp;
    j.ep = s->ep;
    j.bubble = s->idle * chunks;
    j.micro_batch = (double)s->micro;
    j.accumulation = (double)s->accumulation;
    j.seq = (double)a->given->run.step.seq;
    j.again = again;
    double time = tm_their_time_of(&j, &a->known).step, room = plan_one_room(a->given);
    double kept = tm_their_memory_of(&j, again, &a->known).bytes[TM_THEIRS_ACTIVATIONS];
    double host = a->given->machine.device.number[TM_HARDWARE_HOST_RATE] * 1e9;
    l->need = tm_bound_bytes(&a->bound, s) + (offloads[offload].activations ? 0 : kept);
    double activations = offloads[offload].activations ? kept : 0;
    double moments = offloads[offload].moments ? a->bound.moments / (s->shard * s->cp * s->tp) / s->pp : 0;
    if (activations > 0) time = fmax(time, 2 * activations * (double)s->accumulation / host);
    if (moments > 0) time += 2 * moments / host;
    double over = l->need / room - 0.9;
    l->estimate = over > 0 ? time * (1 + 4 * over) : time; /* what will hardly fit comes later */
    return activations + moments;
}

/* False: it needs too much for certain. */
static bool add_one(plan_layouts *a, plan_layout l, int mode, int chunks, int offload)
{
    if (tm_bound_bytes(&a->bound, &l.of) > plan_one_room(a->given)) {
        a->too_large++;
        return false;
    }
    if (a->n == a->room) {
        a->room = a->room ? 2 * a->room : 1024;
        a->all = tm_realloc(a->all, a->room * sizeof *a->all);
    }
    l.least = tm_bound_seconds(&a->bound, &l.of);
    double away = estimate(a, &l, modes[mode].again, chunks, offload);
    if (away > plan_host_room(a->given)) {
        a->too_large++;
        return false;
    }
    a->all[a->n++] = l;
    return true;
}

double plan_host_room(const plan_one *given)
{
    return given->machine.device.number[TM_HARDWARE_MEMORY] * 0x1p30;
}

/* What lies with the host costs time, so only where there is hardly room without. */
static void add(plan_layouts *a, plan_layout l, int mode, int chunks)
{
    bool host = a->given->machine.device.number[TM_HARDWARE_HOST_RATE] > 0 && !a->given->machine.device.cpu;
    l.again = modes[mode].mode;
    l.of.full = strcmp(l.again, "full") == 0;
    l.offload = offloads[0].name;
    bool fits = add_one(a, l, mode, chunks, 0) && a->all[a->n - 1].need < TIGHT * plan_one_room(a->given);
    for (int k = 1; k < OFFLOADS && host && !fits; k++) {
        if (offloads[k].moments && a->bound.moments <= 0) continue;
        l.offload = offloads[k].name;
        l.of.moments_away = offloads[k].moments;
        add_one(a, l, mode, chunks, k);
    }
}

static void add_batches(plan_layouts *a, plan_layout l, int chunks)
{
    int64_t own = a->global / (l.of.replicate * l.of.shard);
    for (l.of.micro = 1; l.of.micro <= own && l.of.micro <= LARGEST_MICRO_BATCH; l.of.micro *= 2) {
        if (own % l.of.micro != 0) continue;
        l.of.accumulation = own / l.of.micro;
        for (int m = 0; m < MODES; m++) add(a, l, m, chunks);
    }
}

static void add_orders(plan_layouts *a, plan_layout l)
{
    int64_t layers = a->given->run.step.shape.n_layers;
    for (int k = 0; k < (l.of.pp > 1 ? ORDERS : 1); k++) {
        l.schedule = orders[k].name;
        l.of.idle = orders[k].idle;
        if (layers >= l.of.pp * orders[k].chunks) add_batches(a, l, orders[k].chunks);
    }
}

/* All ranks share what a node's ranks do not; or each node, or each rank, has a copy. With one sharing rank, or stages,
 * which keep weights for a whole step, sharing all is sharing the optimizer's state. */
static void add_sharing(plan_layouts *a, plan_layout l)
{
    int dp = a->devices / (l.of.tp * l.of.pp * l.of.cp), devices = a->given->cli.machine->devices;
    int of_node = devices / (l.of.tp * l.of.cp), before = 0;
    for (int k = 0; k < 3; k++) {
        l.of.shard = k == 0 ? dp : k == 1 ? of_node : 1;
        if (l.of.shard < 1 || l.of.shard > dp || dp % l.of.shard != 0 || l.of.shard == before) continue;
        if (l.of.shard * l.of.cp * l.of.tp % l.of.ep != 0) continue;
        before = l.of.shard;
        l.of.replicate = dp / l.of.shard;
        bool shares = l.of.shard * l.of.cp > 1 && l.of.pp == 1;
        for (int all = 0; all <= shares; all++) {
            l.of.shares_all = all;
            add_orders(a, l);
        }
    }
}

static void add_experts(plan_layouts *a, plan_layout l)
{
    int64_t experts = a->given->run.step.shape.moe.experts;
    int     ranks = a->devices / l.of.pp;
    for (l.of.ep = 1; l.of.ep <= ranks && (l.of.ep == 1 || l.of.ep <= experts); l.of.ep *= 2)
        if (ranks % l.of.ep == 0 && (l.of.ep == 1 || experts % l.of.ep == 0)) add_sharing(a, l);
}

/* Parts of matrices within a node, stages up to one for each layer. */
static void enumerate(plan_layouts *a)
{
    const tm_model_shape *shape = &a->given->run.step.shape;
    int64_t seq = a->given->run.step.seq, heads = shape->mla.kv_rank > 0 ? shape->n_heads : shape->n_kv_heads;
    for (int tp = 1; tp <= a->given->cli.machine->devices && tp <= heads; tp *= 2)
        for (int pp = 1; tp * pp <= a->devices && pp <= shape->n_layers && pp <= MOST_STAGES; pp *= 2)
            for (int cp = 1; tp * pp * cp <= a->devices && (cp == 1 || seq / cp >= LEAST_PART); cp *= 2) {
                int all = tp * pp * cp;
                if (a->devices % all != 0 || a->global % (a->devices / all) != 0 || heads % tp != 0) continue;
                add_experts(a, (plan_layout){ .of = { .tp = tp, .pp = pp, .cp = cp } });
            }
}

static int by_estimate(const void *a, const void *b)
{
    double x = ((const plan_layout *)a)->estimate, y = ((const plan_layout *)b)->estimate;
    return (x > y) - (x < y);
}

static int by_need(const void *a, const void *b)
{
    double x = ((const plan_layout *)a)->need, y = ((const plan_layout *)b)->need;
    return (x > y) - (x < y);
}

void plan_layouts_by_need(plan_layouts *layouts, size_t from)
{
    if (from < layouts->n) qsort(layouts->all + from, layouts->n - from, sizeof *layouts->all, by_need);
}

tm_status plan_layouts_find(const plan_one *given, int64_t global, plan_layouts *out, tm_error *err)
{
    tm_device     *device;
    tm_run_options run = given->run;
    *out = (plan_layouts){ .given = given, .global = global, .known = tm_parameters_fitted() };
    out->devices = given->cli.machine->nodes * given->cli.machine->devices;
    if (tm_model_images(&given->run.step.shape))
        return tm_fail(err, TM_UNSUPPORTED, "--search: layouts of models of images are not searched; give one");
    TM_TRY(tm_cli_open_device(&given->cli, &run, true, &device, err));
    tm_chooser chooser = tm_device_chooser(device);
    tm_status  st = tm_bound_of(&run.step, global, &given->machine, &chooser, &out->bound, err);
    tm_device_close(device);
    TM_TRY(st);
    enumerate(out);
    if (out->n) qsort(out->all, out->n, sizeof *out->all, by_estimate);
    return TM_OK;
}

void plan_layouts_fini(plan_layouts *layouts)
{
    free(layouts->all);
    *layouts = (plan_layouts){ 0 };
}

int plan_layout_words(const plan_layouts *a, const plan_layout *l, char text[PLAN_WORDS][PLAN_WORD],
                      char *words[PLAN_WORDS])
{
    const tm_sketch *s = &l->of;
    int              n = 0;
#define WORD(...) (snprintf(text[n], sizeof text[n], __VA_ARGS__), words[n] = text[n], n++)
    WORD("--parallelism.tensor_parallel_degree=%d", s->tp);
    WORD("--parallelism.pipeline_parallel_degree=%d", s->pp);
    WORD("--parallelism.context_parallel_degree=%d", s->cp);
    WORD("--parallelism.data_parallel_shard_degree=%d", s->shard);
    WORD("--parallelism.data_parallel_replicate_degree=%d", s->replicate);
    WORD("--parallelism.data_parallel_shard_strategy=%s", share_of(s));
    if (a->given->run.step.shape.moe.experts > 0) WORD("--parallelism.expert_parallel_degree=%d", s->ep);
    if (s->pp > 1) WORD("--parallelism.pipeline_parallel_schedule=%s", l->schedule);
    WORD("--activation_checkpoint.mode=%s", l->again);
    WORD("--training.offload=%s", l->offload);
    WORD("--training.local_batch_size=%lld", (long long)s->micro);
    WORD("--training.global_batch_size=%lld", (long long)a->global);
#undef WORD
    return n;
}
