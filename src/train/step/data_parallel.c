/* SPDX-License-Identifier: Apache-2.0 */
#include "train/step/data_parallel.h"

#include "train/step/owner_update.h"
#include "train/step/stages.h"

#include <string.h>

static int shards(const tm_step *step)
{
    return tm_layout_size(&step->options.layout, TM_AXES_FSDP);
}

/* Of the ranks that have a divided expert in common. */
static int expert_shards(const tm_step *step)
{
    bool divided = tm_layout_size(&step->options.layout, 1U << TM_AXIS_EP) > 1;
    return divided ? tm_layout_size(&step->options.layout, 1U << TM_AXIS_EFSDP) : 1;
}

/* Do ranks sum anything, or the parts of one? */
static bool sums(const tm_step *step);

static int64_t parts(const tm_step *step)
{
    return step->options.layout.parts > 1 ? step->options.layout.parts : 1;
}

static bool sums(const tm_step *step)
{
    return parts(step) > 1 || tm_layout_size(&step->options.layout, TM_AXES_WORLD) > 1;
}

static bool shared(const tm_step *step)
{
    bool several = shards(step) > 1 || expert_shards(step) > 1;
    return several && step->options.layout.sharing != TM_SHARE_COPIES;
}

/* Of stages weights stay gathered, and gradients are reduced once, unless they are to be let go. */
static tm_sharing sharing_of(const tm_step *step)
{
    const tm_layout *layout = &step->options.layout;
    if (!shared(step)) return TM_SHARE_COPIES;
    return stages_cut(step) && layout->sharing == TM_SHARE_ALL && !layout->let_go ? TM_SHARE_OPTIMIZER
                                                                                  : layout->sharing;
}

bool data_parallel_updates(const tm_step *step)
{
    return shared(step);
}

bool data_parallel_overlaps(const tm_step *step)
{
    const tm_layout *layout = &step->options.layout;
    return !shared(step) && tm_layout_sum_ranks(layout) > 1 && step->options.accumulation > 1 && !stages_cut(step);
}

void data_parallel_scales(const tm_layout *layout, int64_t accumulation, tm_quantize *quantize)
{
    int ranks = tm_layout_sum_ranks(layout), tensor = tm_layout_size(layout, 1U << TM_AXIS_TP);
    quantize->passes = accumulation;
    quantize->several = layout->parts > 1 || (quantize->experts.name && tm_layout_size(layout, 1U << TM_AXIS_EP) > 1);
    if (tensor > 1) {
        quantize->tensor_axes = 1U << TM_AXIS_TP;
        quantize->tensor_ranks = tensor;
        quantize->tensor_rank = tm_mesh_group_rank(&layout->mesh, layout->rank, 1U << TM_AXIS_TP);
    }
    if (ranks == 1) return;
    int64_t rank = tm_mesh_group_rank(&layout->mesh, layout->rank, TM_AXES_LOSS);
    quantize->axes = TM_AXES_LOSS;
    quantize->ranks = ranks;
    quantize->passes_before = rank * accumulation;
    quantize->passes_behind = (ranks - 1 - rank) * accumulation;
}

/* --- places ------------------------------------------------------------------------------------------------------- */

/* What programs count beside gradients, in float64: one sum of all. */
static void pack_counts(tm_step *step)
{
    const tm_model    *m = &step->model;
    const tm_tensor_id all[] = { step->loss, m->expert_counts, m->balance_loss, m->preferred };
    tm_tensor_id       there[4];
    size_t             n = 0;
    int64_t            elements = 0;
    for (size_t i = 0; i < 4; i++) {
        if (all[i] == TM_NONE) continue;
        elements += tm_shape_elements(tm_graph_at(step->graph, all[i])->shape);
        there[n++] = all[i];
    }
    step->counts = tm_graph_tensor(step->graph, "counts", TM_ROLE_SCALAR, tm_shape_1(elements));
    tm_units_pack(step->graph, step->counts, there, n);
}

/* Rewrites a segment that is there already. */
static void rewrite(tm_step *step, const char *name, bool add, bool *summed)
{
    tm_graph   *graph = step->graph;
    tm_segment *current = graph->segment;
    for (size_t s = 0; s < graph->n_segments; s++) {
        if (strcmp(graph->segments[s]->name, name) != 0) continue;
        graph->segment = graph->segments[s];
        tm_units_pass(graph, &step->units, add, summed);
    }
    graph->segment = current;
}

/* The programs of this rank's stages. Gradients of inputs and of weights may each have some of a unit's. */
static void rewrite_stages(tm_step *step)
{
    static const char *const kinds[] = { "forward", "backward", "input", "weight" };
    for (int first = 1; first >= 0; first--)
        for (int c = 0; c < step->model.parallel.chunks; c++) {
            bool *summed = tm_arena_take(step->graph->arena, step->units.n_units * sizeof *summed);
            for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
                rewrite(step, stages_program(step, kinds[k], first, c), !first, summed);
        }
}

/* The group that shares weights along `axes`, and `other` axes whose ranks have other tokens. */
static tm_unit_group group_of(const tm_step *step, unsigned axes, unsigned other)
{
    const tm_layout *layout = &step->options.layout;
    int              ranks = tm_layout_size(layout, axes);
    if (!shared(step)) return (tm_unit_group){ .ranks = 1, .data = axes | other };
    return (tm_unit_group){ .axes = axes,
                            .rank = ranks > 1 ? tm_mesh_group_rank(&layout->mesh, layout->rank, axes) : 0,
                            .ranks = ranks,
                            .data = other };
}

void data_parallel_begin(tm_step *step)
{
    const tm_layout *layout = &step->options.layout;
    if (stages_cut(step)) {
        pack_counts(step);
        stages_clear_counts(step);
    }
    if (!sums(step)) return;
    step->units = (tm_units){ .sharing = sharing_of(step),
                              .mesh = layout->mesh,
                              .group = group_of(step, TM_AXES_FSDP, 1U << TM_AXIS_REPLICATE),
                              .experts = group_of(step, 1U << TM_AXIS_EFSDP, 1U << TM_AXIS_REPLICATE),
                              .reshard = layout->reshard,
                              .prefetch = layout->prefetch,
                              .as_held = step->options.compared != NULL };
    if (!stages_cut(step)) pack_counts(step);
    tm_units_find(step->graph, step->graph->segments[0], &step->units);
    if (owner_update_wanted(&step->options)) owner_update_assign(&step->units);
    tm_units_place(step->graph, &step->units);
    rewrite(step, "first", false, NULL);
    rewrite(step, "further", true, NULL);
    rewrite(step, "last", true, NULL);
    if (stages_cut(step)) rewrite_stages(step);
    if (step->units.sharing != TM_SHARE_COPIES || parts(step) > 1 || stages_cut(step)) return;
    tm_segment *current = step->graph->segment;
    for (size_t s = 0; s < step->graph->n_segments; s++)
        if (strcmp(step->graph->segments[s]->name, data_parallel_overlaps(step) ? "last" : "first") == 0) {
            step->graph->segment = step->graph->segments[s];
            tm_units_reduce(step->graph, &step->units);
        }
    step->graph->segment = current;
}

void data_parallel_segment(tm_step *step)
{
    tm_units_pass(step->graph, &step->units, false, NULL);
}

void data_parallel_end(tm_step *step)
{
    tm_units_settle(step->graph, &step->units);
}

/* --- sums --------------------------------------------------------------------------------------------------------- */

/* This rank's part of a flat tensor of a unit. */
static tm_tensor_id own_share(tm_step *step, const tm_unit *unit, tm_tensor_id flat, int64_t first)
{
    int64_t     own = unit->group.rank * unit->share - first;
    const char *name = tm_graph_at(step->graph, flat)->name;
    if (unit->share == tm_shape_elements(tm_graph_at(step->graph, flat)->shape)) return flat;
    return tm_graph_run(step->graph, tm_arena_format(step->graph->arena, "share of %s", name), flat, own,
                        tm_shape_1(unit->share));
}

static void all_reduce(tm_step *step, unsigned axes, tm_tensor_id what)
{
    tm_graph *graph = step->graph;
    int       ranks = tm_layout_size(&step->options.layout, axes);
    if (ranks > 1)
        tm_units_call(graph, TM_OP_all_reduce, axes, ranks, tm_graph_at(graph, what)->name, what, what, false);
}

static void reduce_unit(tm_step *step, const tm_unit *unit)
{
    tm_graph *graph = step->graph;
    if (!tm_units_trained(unit)) return;
    const char  *name = tm_graph_at(graph, unit->gradients)->name;
    tm_tensor_id own = unit->gradients;
    graph->layer = unit->layer < INT32_MAX ? unit->layer : -1;
    if (unit->sharing < TM_SHARE_GRADIENTS && !unit->reduced)
        tm_units_sum(graph, &step->units, unit, unit->gradients, unit->gradients_first);
    if (unit->sharing == TM_SHARE_OPTIMIZER && owner_update_is(unit)) {
        all_reduce(step, unit->group.axes, unit->gradients); /* whole for whoever updates */
    } else if (unit->sharing == TM_SHARE_OPTIMIZER) {
        own = own_share(step, unit, unit->gradients, unit->gradients_first);
        tm_units_call(graph, TM_OP_reduce_scatter, unit->group.axes, unit->group.ranks, name, unit->gradients, own,
                      false);
    }
    if (!unit->reduced) all_reduce(step, unit->group.data, own);
}

/* Puts what the part summed to what those before it did: `to` becomes `from`, or is added to. */
static void add_part(tm_step *step, tm_tensor_id from, tm_tensor_id to, bool add)
{
    tm_units_call(step->graph, TM_OP_reduce_scatter, 0, 1, "separate sums", from, to, add);
}

/* All ranks that divide matrices have the same loss; what they count of rows of their own stands behind it. */
static void sum_own_rows(tm_step *step)
{
    int64_t counted = tm_shape_elements(tm_graph_at(step->graph, step->counts)->shape) - 1;
    if (step->model.preferred != TM_NONE) counted -= TM_PREFERRED_COUNT; /* the last, of the loss that all have */
    if (!tm_moe_own_rows(&step->model.parallel) || counted == 0) return;
    all_reduce(step, 1U << TM_AXIS_TP,
               tm_graph_run(step->graph, "counts of rows", step->counts, 1, tm_shape_1(counted)));
}

void data_parallel_reduce(tm_step *step)
{
    tm_graph *graph = step->graph;
    if (!sums(step)) return;
    graph->phase = TM_PHASE_UPDATE;
    graph->module = "ranks";
    stages_exchange(step);
    if (parts(step) > 1) {
        for (size_t u = 0; u < step->units.n_units; u++)
            add_part(step, step->part_gradients[u], step->units.units[u].gradients, true);
        add_part(step, step->part_counts, step->counts, true);
        stages_count(step);
        return;
    }
    for (size_t u = step->units.n_units; u-- > 0;) reduce_unit(step, &step->units.units[u]);
    graph->layer = -1;
    sum_own_rows(step);
    all_reduce(step, TM_AXES_LOSS, step->counts);
    stages_count(step);
}

static void add_part_segment(tm_step *step, const char *name, bool add)
{
    tm_graph *graph = step->graph;
    tm_graph_segment(graph, name);
    tm_lookup_join(graph);
    graph->phase = TM_PHASE_UPDATE;
    stages_exchange(step);
    graph->module = "parts";
    for (size_t u = 0; u < step->units.n_units; u++)
        add_part(step, step->units.units[u].gradients, step->part_gradients[u], add);
    add_part(step, step->counts, step->part_counts, add);
}

void data_parallel_parts(tm_step *step)
{
    tm_graph *graph = step->graph;
    if (parts(step) == 1) return;
    step->part_gradients = tm_arena_take(graph->arena, step->units.n_units * sizeof *step->part_gradients);
    for (size_t u = 0; u < step->units.n_units; u++) {
        tm_tensor like = *tm_graph_at(graph, step->units.units[u].gradients);
        step->part_gradients[u] = tm_graph_tensor_as(graph, tm_arena_format(graph->arena, "earlier %s", like.name),
                                                     TM_ROLE_GRADIENT, like.shape, like.dtype);
    }
    step->part_counts =
        tm_graph_tensor(graph, "earlier counts", TM_ROLE_SCALAR, tm_graph_at(graph, step->counts)->shape);
    add_part_segment(step, "part.first", false);
    if (parts(step) > 2) add_part_segment(step, "part.further", true);
}

/* --- the update of a share ---------------------------------------------------------------------------------------- */

/* Squares of gradients by classes, in a scalar. What is cut is summed over the ranks that cut it, what is shared over
 * those that share it; what all have counts once. */
typedef struct {
    tm_step     *step;
    tm_tensor_id sum;
    bool         any;
} squares;

static void add_squares(squares *s, int layer, tm_tensor_id of)
{
    tm_tensor_id in[TM_MAX_IN] = { of }, out[TM_MAX_OUT] = { s->sum };
    s->step->graph->layer = layer;
    tm_graph_add(s->step->graph, TM_OP_square_sum, NULL, 0, in, out, s->any);
    s->any = true;
}

/* Those of this rank's share of a run of a unit. */
static void add_run(squares *s, const tm_unit *unit, const tm_unit_run *run)
{
    tm_graph *graph = s->step->graph;
    int       layer = unit->layer < INT32_MAX ? unit->layer : -1;
    int64_t   own = unit->group.rank * unit->share, end = own + unit->share;
    int64_t   from = run->first > own ? run->first : own, to = run->first + run->count;
    if (to > end) to = end;
    if (from >= to || run->twin) return;
    bool         all = to - from == tm_shape_elements(tm_graph_at(graph, unit->gradients)->shape);
    const char  *name = tm_arena_format(graph->arena, "share of %s", tm_graph_at(graph, unit->gradients)->name);
    tm_tensor_id part =
        all ? unit->gradients
            : tm_graph_run(graph, name, unit->gradients, from - unit->gradients_first, tm_shape_1(to - from));
    add_squares(s, layer, part);
}

/* All of a class: of divided experts or of others, cut or not. Parameters are among the first `n` tensors. Returns the
 * axes that they are cut over. */
static unsigned add_class(squares *s, size_t n, bool experts, bool cut)
{
    const tm_graph *graph = s->step->graph;
    unsigned        axes = 0;
    for (size_t u = 0; data_parallel_updates(s->step) && u < s->step->units.n_units; u++) {
        const tm_unit *unit = &s->step->units.units[u];
        for (size_t i = 0; i < unit->n_runs && tm_units_trained(unit); i++) {
            if (tm_units_experts(unit->runs[i].cut) != experts || (unit->runs[i].cut != 0) != cut) continue;
            TM_ASSERT(axes == 0 || axes == unit->runs[i].cut);
            axes = unit->runs[i].cut;
            add_run(s, unit, &unit->runs[i]);
        }
    }
    for (size_t i = 0; !data_parallel_updates(s->step) && i < n; i++) {
        const tm_tensor *tensor = &graph->tensors[i];
        unsigned         own = tensor->cut ? tensor->cut->axes : 0;
        if (tensor->gradient == TM_NONE || tensor->twin) continue;
        if (tm_units_experts(own) != experts || (own != 0) != cut) continue;
        TM_ASSERT(axes == 0 || axes == own);
        axes = own;
        add_squares(s, tensor->layer, tensor->gradient);
    }
    s->step->graph->layer = -1;
    return axes;
}

/* Those of divided experts, if there are any. */
static void add_experts(squares *total, size_t n)
{
    tm_step     *step = total->step;
    tm_graph    *graph = step->graph;
    squares      own = { .step = step, .sum = TM_NONE };
    tm_tensor_id to = tm_graph_run(graph, "gradient_square_sum", total->sum, 0, tm_shape_1(1));
    own.sum = tm_graph_tensor(graph, "expert_square_sum", TM_ROLE_SCALAR, (tm_shape){ .rank = 0 });
    unsigned axes = add_class(&own, n, true, true);
    TM_ASSERT(own.any);
    all_reduce(step, axes, own.sum);
    if (data_parallel_updates(step)) all_reduce(step, step->units.experts.axes, own.sum);
    tm_tensor_id from = tm_graph_run(graph, "expert_square_sum", own.sum, 0, tm_shape_1(1));
    tm_units_call(graph, TM_OP_reduce_scatter, 0, 1, "squares of experts", from, to, total->any);
}

static bool has_experts(const tm_graph *graph, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (graph->tensors[i].gradient != TM_NONE && graph->tensors[i].cut &&
            tm_units_experts(graph->tensors[i].cut->axes))
            return true;
    return false;
}

void data_parallel_square_sum(tm_step *step, size_t n, tm_tensor_id square_sum)
{
    squares  all = { .step = step, .sum = square_sum };
    unsigned axes = add_class(&all, n, false, true);
    if (axes != 0) all_reduce(step, axes, square_sum);
    add_class(&all, n, false, false);
    if (!all.any) stages_clear(step, square_sum); /* experts alone, or a stage that trains nothing */
    all.any = true;
    if (data_parallel_updates(step)) all_reduce(step, TM_AXES_FSDP, square_sum);
    if (has_experts(step->graph, n)) add_experts(&all, n);
}

/* Marks the states of a member's part as such. */
static void mark_states(tm_graph *graph, size_t from, const tm_unit_member *member, int64_t begin, unsigned axes)
{
    tm_shared *shared = tm_arena_take(graph->arena, sizeof *shared);
    *shared = (tm_shared){ .flat = TM_NONE, .like = member->parameter, .first = begin, .axes = axes };
    for (size_t i = from; i < graph->n_tensors; i++)
        if (graph->tensors[i].role == TM_ROLE_MOMENT) graph->tensors[i].shared = shared;
}

static void update_member(tm_step *step, const tm_unit *unit, const tm_unit_member *member)
{
    tm_graph              *graph = step->graph;
    const tm_step_options *o = &step->options;
    tm_tensor              whole = *tm_graph_at(graph, member->parameter);
    int                    group = step->group_of[member->parameter];
    tm_hyper               hyper = o->groups[group].hyper;
    int64_t                begin, end;
    if (!tm_units_own(unit, member, &begin, &end)) return;
    hyper.weight_decay = tm_hyper_decay(&hyper, whole.shape);
    hyper.decay_matrices_only = false; /* the part is a vector whatever the whole is */
    tm_shape     part = tm_shape_1(end - begin);
    int64_t      first = member->first + begin;
    size_t       n = graph->n_tensors;
    const char  *name = tm_graph_at(graph, member->gradient)->name;
    tm_tensor_id gradient = tm_graph_run(graph, name, unit->gradients, first - unit->gradients_first, part);
    tm_tensor_id weights = tm_graph_run(graph, whole.name, unit->weights, first - unit->weights_first, part);
    tm_update    update = { .parameter = weights,
                            .gradient = gradient,
                            .scalars = step->group_scalars[group],
                            .clip = step->clip,
                            .first = begin };
    tm_graph_at(graph, weights)->layer = whole.layer;
    tm_optimizer_add(graph, o->optimizer, &hyper, update);
    mark_states(graph, n, member, begin, unit->group.axes);
}

/* A unit that this rank shares with none. */
static void update_whole(tm_step *step, const tm_unit_member *member)
{
    int       group = step->group_of[member->parameter];
    tm_update update = { .parameter = member->parameter,
                         .gradient = member->gradient,
                         .scalars = step->group_scalars[group],
                         .clip = step->clip };
    tm_optimizer_add(step->graph, step->options.optimizer, &step->options.groups[group].hyper, update);
}

void data_parallel_update(tm_step *step)
{
    tm_graph *graph = step->graph;
    for (size_t u = 0; u < step->units.n_units; u++) {
        const tm_unit *unit = &step->units.units[u];
        if (owner_update_is(unit)) {
            owner_update_emit(step, unit);
            continue;
        }
        for (size_t m = 0; m < unit->n_members && tm_units_trained(unit); m++)
            if (unit->sharing == TM_SHARE_COPIES)
                update_whole(step, &unit->members[m]);
            else
                update_member(step, unit, &unit->members[m]);
        if (unit->sharing == TM_SHARE_ALL || unit->sharing == TM_SHARE_COPIES) continue;
        graph->layer = unit->layer < INT32_MAX ? unit->layer : -1;
        tm_units_call(graph, TM_OP_all_gather, unit->group.axes, unit->group.ranks,
                      tm_graph_at(graph, unit->weights)->name,
                      own_share(step, unit, unit->weights, unit->weights_first), unit->weights, false);
    }
}
