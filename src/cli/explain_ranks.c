/* SPDX-License-Identifier: Apache-2.0 */
/* What `explain` and `--dry-run` say of several ranks: who shares what, what goes over the wire, and beside what. */
#include "cli/explain_ranks.h"

#include "cli/explain_hosts.h"

#include "base/arena.h"
#include "base/hash.h"
#include "base/plain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- collectives of a program ------------------------------------------------------------------------------------- */

typedef struct {
    const tm_op  *op;
    int64_t       calls, exposed;
    double        wire, exposed_wire;
    explain_moved moved;
} traffic;

/* FLOPs that are computed while collective `x` may run: those of the instructions between it and the first one of the
 * compute stream that waits for it, or for a later one. */
static double beside(const tm_program *program, size_t x)
{
    double flops = 0;
    for (size_t y = x + 1; y < program->count; y++) {
        const tm_instruction *i = &program->instructions[y];
        if (i->stream != TM_ON_COMPUTE) continue;
        if (i->waits[TM_ON_COMMUNICATION] >= (int32_t)x) break;
        flops += i->cost.flops;
    }
    return flops;
}

static size_t measure(const tm_program *program, explain_hosts *hosts, traffic out[TM_OP_COUNT])
{
    size_t n = 0;
    for (size_t x = 0; x < program->count; x++) {
        const tm_instruction *i = &program->instructions[x];
        size_t                at = 0;
        if (i->cost.wire <= 0) continue;
        while (at < n && out[at].op != i->call.op) at++;
        if (at == n) out[n++] = (traffic){ .op = i->call.op };
        bool exposed = beside(program, x) <= 0;
        out[at].calls++;
        out[at].wire += i->cost.wire;
        out[at].exposed += exposed;
        out[at].exposed_wire += exposed ? i->cost.wire : 0;
        explain_moved moved = explain_hosts_moved(hosts, i);
        out[at].moved.between += moved.between;
        out[at].moved.direct += moved.direct;
        out[at].moved.within += moved.within;
    }
    return n;
}

static const char *shared_text(const tm_step *step)
{
    static const char *const words[] = { [TM_SHARE_COPIES] = "nothing",
                                         [TM_SHARE_OPTIMIZER] = "the optimizer's state",
                                         [TM_SHARE_GRADIENTS] = "gradients and the optimizer's state",
                                         [TM_SHARE_ALL] = "weights, gradients and the optimizer's state" };
    return words[step->units.sharing];
}

/* The first exchange of rows among ranks that divide experts; NULL: there is none. */
static const tm_call *first_exchange(const tm_step *step)
{
    for (size_t p = 0; p < step->plan->n_programs; p++)
        for (size_t x = 0; x < step->plan->programs[p].count; x++)
            if (step->plan->programs[p].instructions[x].call.op == &tm_op_send_rows)
                return &step->plan->programs[p].instructions[x].call;
    return NULL;
}

/* Bytes of a rank's own rows, of a row for each of its experts: what an all-to-all moves. */
static double exchanged_bytes(const tm_call *call)
{
    const tm_exchange_attr *attr = call->attr;
    return (double)attr->pairs * (double)call->in[0].shape.n[1] * (double)tm_dtype_bytes(call->in[0].dtype);
}

static void explain_experts(const tm_step *step, tm_text *out)
{
    const tm_call *call = first_exchange(step);
    char           bytes[32];
    if (!call) return;
    const tm_exchange_attr *attr = call->attr;
    int64_t                 all = step->options.shape.moe.experts, ranks = attr->group.ranks;
    tm_text_printf(out,
                   "experts     %lld of %lld on each rank; an all-to-all moves %s, %lld/%lld of it to other ranks\n",
                   (long long)(all / ranks), (long long)all, tm_format_bytes(bytes, exchanged_bytes(call)),
                   (long long)(ranks - 1), (long long)ranks);
    tm_text_printf(out, "            room for %lld rows at a time, %.4g times the even share; %lld %s at most\n",
                   (long long)attr->rows, (double)attr->rows / (double)attr->pairs, (long long)attr->rounds,
                   attr->rounds == 1 ? "round" : "rounds");
}

static void explain_experts_json(const tm_step *step, tm_json *json)
{
    const tm_call *call = first_exchange(step);
    if (!call) return;
    const tm_exchange_attr *attr = call->attr;
    tm_json_open(json, "experts", '{');
    tm_json_i64(json, "all", step->options.shape.moe.experts);
    tm_json_i64(json, "on_a_rank", step->options.shape.moe.experts / attr->group.ranks);
    tm_json_f64(json, "all_to_all_bytes", exchanged_bytes(call));
    tm_json_i64(json, "even_rows", attr->pairs);
    tm_json_i64(json, "rows_at_a_time", attr->rows);
    tm_json_i64(json, "rounds", attr->rounds);
    tm_json_close(json, '}');
}

static explain_hosts hosts_of(const tm_step *step, int64_t per_host)
{
    const tm_layout *layout = &step->options.layout;
    return (explain_hosts){ .mesh = &layout->mesh, .rank = layout->rank, .each = (int)per_host };
}

/* Of an operation in a program: what goes from host to host. */
static void add_moved(const traffic *found, int64_t per_host, tm_text *out)
{
    char between[32], direct[32], within[32];
    if (per_host == 0) return;
    tm_text_printf(out,
                   "            of a rank, on average: %s to other hosts (%s from rank to rank), %s within its own\n",
                   tm_format_bytes(between, found->moved.between), tm_format_bytes(direct, found->moved.direct),
                   tm_format_bytes(within, found->moved.within));
}

void explain_ranks(const tm_step *step, int64_t per_host, tm_text *out)
{
    const tm_layout *layout = &step->options.layout;
    char             mesh[160], wire[32], exposed[32];
    traffic          found[TM_OP_COUNT];
    explain_hosts    hosts = hosts_of(step, per_host);
    if (tm_mesh_ranks(&layout->mesh) == 1) return;
    tm_text_printf(out, "ranks       %s: this is rank %d of %d, which share %s\n", tm_mesh_text(mesh, &layout->mesh),
                   layout->rank, tm_mesh_ranks(&layout->mesh), shared_text(step));
    for (int c = 0; c < step->model.parallel.chunks; c++) {
        const tm_stage *stage = &step->model.parallel.chunk[c];
        char            head[96] = "";
        if (stage->pieces > 0)
            snprintf(head, sizeof head, ", piece %d of %d of the head (classes %lld to %lld)", stage->piece + 1,
                     stage->pieces, (long long)stage->class_first, (long long)stage->class_end - 1);
        else if (stage->ends)
            snprintf(head, sizeof head, ", head");
        tm_text_printf(out, "  stage %-3d %s%d blocks from %d on%s; %d micro-batches at a time\n", stage->number,
                       stage->begins ? "embedding, " : "", stage->end - stage->first, stage->first, head,
                       step->graph->slots);
    }
    explain_experts(step, out);
    for (size_t p = 0; p < step->plan->n_programs; p++) {
        const tm_program *program = &step->plan->programs[p];
        for (size_t n = measure(program, &hosts, found), k = 0; k < n; k++) {
            tm_text_printf(
                out, "  %-9s %-15s %4lld calls, %10s on the wire; %lld with nothing to compute beside (%s)\n",
                program->name, found[k].op->name, (long long)found[k].calls, tm_format_bytes(wire, found[k].wire),
                (long long)found[k].exposed, tm_format_bytes(exposed, found[k].exposed_wire));
            add_moved(&found[k], per_host, out);
        }
    }
    explain_hosts_fini(&hosts);
}

/* Of this step: all ranks, as many stages each. */
static tm_pipeline pipeline_of(const tm_step *step)
{
    return tm_layout_pipeline(&step->options.layout, step->options.accumulation);
}

static void json_pipeline(const tm_step *step, tm_json *json)
{
    tm_pipeline       p = pipeline_of(step);
    tm_pipeline_times times;
    tm_pipeline_simulate(&p, &(tm_pipeline_costs){ 1, 1, 1 }, &times);
    tm_json_open(json, "pipeline", '{');
    tm_json_string(json, "schedule", tm_pipeline_title(&p));
    tm_json_i64(json, "stages_per_rank", p.chunks);
    tm_json_i64(json, "micro_batches", p.micro_batches);
    tm_json_i64(json, "slots", step->graph->slots);
    tm_json_f64(json, "idle_share", times.idle / times.end); /* stages alike, f = i = w */
    tm_json_close(json, '}');
    tm_pipeline_times_fini(&times);
}

void explain_ranks_json(const tm_step *step, int64_t per_host, tm_json *json)
{
    const tm_layout *layout = &step->options.layout;
    traffic          found[TM_OP_COUNT];
    explain_hosts    hosts = hosts_of(step, per_host);
    if (tm_mesh_ranks(&layout->mesh) == 1) return;
    tm_json_open(json, "ranks", '{');
    tm_json_i64(json, "count", tm_mesh_ranks(&layout->mesh));
    tm_json_i64(json, "rank", layout->rank);
    for (int a = 0; a < TM_AXES; a++) tm_json_i64(json, tm_axis_name((tm_axis)a), layout->mesh.degree[a]);
    tm_json_string(json, "shared", shared_text(step));
    if (layout->mesh.degree[TM_AXIS_PP] > 1) json_pipeline(step, json);
    tm_json_close(json, '}');
    explain_experts_json(step, json);
    tm_json_open(json, "communication", '[');
    for (size_t p = 0; p < step->plan->n_programs; p++)
        for (size_t n = measure(&step->plan->programs[p], &hosts, found), k = 0; k < n; k++) {
            tm_json_open(json, NULL, '{');
            tm_json_string(json, "program", step->plan->programs[p].name);
            tm_json_string(json, "op", found[k].op->name);
            tm_json_i64(json, "calls", found[k].calls);
            tm_json_f64(json, "wire_bytes", found[k].wire);
            tm_json_i64(json, "exposed_calls", found[k].exposed);
            tm_json_f64(json, "exposed_wire_bytes", found[k].exposed_wire);
            if (per_host > 0) {
                tm_json_f64(json, "between_hosts_bytes", found[k].moved.between);
                tm_json_f64(json, "between_hosts_direct_bytes", found[k].moved.direct);
                tm_json_f64(json, "within_hosts_bytes", found[k].moved.within);
            }
            tm_json_close(json, '}');
        }
    tm_json_close(json, ']');
    explain_hosts_fini(&hosts);
}

/* --- the plans of all ranks --------------------------------------------------------------------------------------- */

/* What a plan depends on of the rank's place among those that share: which parts of which members are its own. */
typedef struct {
    uint64_t parts; /* a hash of all of them: the same plan */
    uint64_t sums;  /* of what they add up to, however rounded up: the same bytes, but for what their update holds */
    int64_t  pieces, largest;
} place_kind;

/* So many powers of two that parts are rounded up to: elements of an aligned address, or of a scale. */
enum { ROUNDINGS = 9 };

static place_kind kind_of(const tm_step *step, int rank)
{
    tm_hasher *hasher = tm_hasher_create();
    int64_t    sum[ROUNDINGS + 1] = { 0 }; /* behind them, a hash of members with an owner */
    place_kind kind = { 0 };
    for (size_t u = 0; u < step->units.n_units; u++) {
        tm_unit unit = step->units.units[u];
        if (!tm_units_trained(&unit)) continue; /* what is gathered is a share of any place */
        if (unit.group.ranks > 1) unit.group.rank = tm_mesh_group_rank(&step->units.mesh, rank, unit.group.axes);
        for (size_t m = 0; m < unit.n_members; m++) {
            const tm_tensor *parameter = tm_graph_at(step->graph, unit.members[m].parameter);
            int64_t          begin, end;
            bool             dealt = unit.members[m].owner >= 0; /* all of it, or nothing */
            if (dealt) {
                begin = 0;
                end = unit.members[m].owner == unit.group.rank ? unit.members[m].count : 0;
            } else if (!tm_units_own(&unit, &unit.members[m], &begin, &end)) {
                continue;
            }
            int64_t part[] = { (int64_t)u, parameter->sums, parameter->cut ? parameter->cut->axes : 0, end - begin };
            tm_hasher_add(hasher, part, sizeof part);
            for (int k = 0; k < ROUNDINGS; k++) sum[k] += (end - begin + (1 << k) - 1) >> k;
            if (dealt) sum[ROUNDINGS] = (int64_t)tm_hasher_value(hasher);
            kind.pieces++;
            if (end - begin > kind.largest) kind.largest = end - begin;
        }
    }
    kind.parts = tm_hasher_value(hasher);
    tm_hasher_destroy(hasher);
    hasher = tm_hasher_create();
    tm_hasher_add(hasher, sum, sizeof sum);
    kind.sums = tm_hasher_value(hasher);
    tm_hasher_destroy(hasher);
    return kind;
}

static int rank_at(const tm_step_options *o, int part, int place)
{
    int at[TM_AXES] = { 0 };
    at[TM_AXIS_PP] = part;
    at[TM_AXIS_SHARD] = place / o->layout.mesh.degree[TM_AXIS_CP];
    at[TM_AXIS_CP] = place % o->layout.mesh.degree[TM_AXIS_CP];
    return tm_mesh_rank(&o->layout.mesh, at);
}

static void add_place(rank_plans *out, int part, int place, size_t bytes)
{
    const rank_plan *before = out->n > 0 ? &out->rows[out->n - 1] : NULL;
    bool             same = before && before->bytes == bytes && before->part == part;
    if (!same && out->n < MOST_RANK_PLANS) out->rows[out->n++] = (rank_plan){ place, place, part, bytes };
    rank_plan *row = &out->rows[out->n - 1];
    if (place > row->last) row->last = place;
    if (bytes > row->bytes) row->bytes = bytes; /* of the rest */
}

/* The places of one part of the pipeline. */
typedef struct {
    tm_step_options  *o;
    const tm_step    *first; /* of rank 0 */
    const tm_chooser *chooser;
    place_kind       *kind;  /* (n) of each place */
    size_t           *bytes; /* (n) 0: not known yet */
    int               part, n;
} part_places;

/* Plans a place, and says the same of all that are quite like it. */
static tm_status plan_place(part_places *p, int place, tm_error *err)
{
    tm_step       *own = NULL;
    const tm_step *step = p->first;
    if (p->bytes[place]) return TM_OK;
    p->o->layout.rank = rank_at(p->o, p->part, place);
    if (p->o->layout.rank > 0) {
        TM_TRY(tm_step_create(p->o, p->chooser, &own, err));
        step = own;
    }
    for (int k = 0; k < p->n && place == 0; k++) p->kind[k] = kind_of(step, rank_at(p->o, p->part, k));
    for (int k = 0; k < p->n; k++)
        if (p->kind[k].parts == p->kind[place].parts) p->bytes[k] = step->plan->arena_bytes;
    tm_step_destroy(own);
    return TM_OK;
}

/* Those whose parts add up to the same differ in the update at most: when the one with the largest part and the one
 * with the most of them need the same, all between them do. */
static tm_status plan_alike(part_places *p, int place, tm_error *err)
{
    int largest = place, most = place;
    for (int k = 0; k < p->n; k++) {
        if (p->kind[k].sums != p->kind[place].sums) continue;
        if (p->kind[k].largest > p->kind[largest].largest) largest = k;
        if (p->kind[k].pieces > p->kind[most].pieces) most = k;
    }
    TM_TRY(plan_place(p, place, err));
    TM_TRY(plan_place(p, largest, err));
    TM_TRY(plan_place(p, most, err));
    size_t bytes = p->bytes[place];
    bool   same = p->bytes[largest] == bytes && p->bytes[most] == bytes;
    for (int k = 0; k < p->n && same; k++)
        if (!p->bytes[k] && p->kind[k].sums == p->kind[place].sums) p->bytes[k] = bytes;
    return TM_OK;
}

static tm_status add_part(tm_step_options *o, int part, const tm_step *first_step, const tm_chooser *chooser,
                          rank_plans *out, tm_error *err)
{
    part_places p = { .o = o, .first = first_step, .chooser = chooser, .part = part };
    p.n = tm_layout_size(&o->layout, TM_AXES_FSDP);
    p.kind = tm_alloc((size_t)p.n * sizeof *p.kind);
    p.bytes = tm_alloc((size_t)p.n * sizeof *p.bytes);
    tm_status st = plan_place(&p, 0, err);
    for (int place = 0; place < p.n && st == TM_OK; place++) {
        st = p.bytes[place] && place > 0 ? TM_OK : plan_alike(&p, place, err);
        if (st == TM_OK) add_place(out, part, place, p.bytes[place]);
    }
    free(p.kind), free(p.bytes);
    return st;
}

/* A rank's plan depends on its part of the pipeline and its place among those that share: all others have the same. */
tm_status explain_each_rank(const tm_step_options *options, const tm_step *step, const tm_chooser *chooser,
                            rank_plans *out, tm_error *err)
{
    tm_step_options o = *options;
    int             parts = tm_layout_size(&o.layout, 1U << TM_AXIS_PP);
    *out = (rank_plans){ .rows = { { .bytes = step->plan->arena_bytes } }, .n = 1 };
    if (tm_layout_size(&o.layout, TM_AXES_FSDP | 1U << TM_AXIS_PP) == 1) return TM_OK;
    *out = (rank_plans){ .n = 0 };
    for (int part = 0; part < parts; part++) TM_TRY(add_part(&o, part, step, chooser, out, err));
    return TM_OK;
}

size_t explain_most(const rank_plans *plans)
{
    size_t most = 0;
    for (size_t i = 0; i < plans->n; i++)
        if (plans->rows[i].bytes > most) most = plans->rows[i].bytes;
    return most;
}

void explain_plans(const rank_plans *plans, const tm_mesh *mesh, tm_text *out)
{
    char bytes[32];
    bool piped = mesh->degree[TM_AXIS_PP] > 1;
    if (tm_mesh_ranks(mesh) == 1 || plans->n < 2) return;
    for (size_t i = 0; i < plans->n; i++) {
        const rank_plan *row = &plans->rows[i];
        char             places[48];
        snprintf(places, sizeof places, row->first == row->last ? "%d" : "%d-%d", row->first, row->last);
        tm_text_add(out, "  ");
        if (piped) tm_text_printf(out, "pipeline stage %d, ", row->part);
        tm_text_printf(out, "shard%s %s: %s each\n", row->first == row->last ? "" : "s", places,
                       tm_format_bytes(bytes, (double)row->bytes));
    }
}

/* --- the order of a step ------------------------------------------------------------------------------------------ */

void explain_schedule(const tm_step *step, tm_text *out)
{
    enum { COLUMNS = 120 };
    tm_pipeline p = pipeline_of(step);
    if (p.ranks > 1) {
        tm_pipeline_print(&p, COLUMNS, out);
        return;
    }
    tm_text_add(out, "schedule    ");
    for (size_t i = 0; i < step->training.n; i++) {
        const tm_work *work = &step->training.work[i];
        tm_text_add(out, i ? ", " : "");
        if (work->count > 1) tm_text_printf(out, "%lld x ", (long long)work->count);
        tm_text_add(out, work->program->name);
    }
    tm_text_add(out, "\n");
}
