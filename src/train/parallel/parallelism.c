/* SPDX-License-Identifier: Apache-2.0 */
/* train/parallel/parallelism.c - from parallelism.* to a layout. */
#include "train/settings/keys.h"
#include "train/parallel/layout.h"
#include "train/pipeline/file.h"
#include "train/pipeline/names.h"

#include <math.h>
#include <string.h>
#include <strings.h>

static const struct {
    tm_axis     axis;
    const char *key;
} degrees[] = {
#define X(id, name, key) { TM_AXIS_##id, key },
    TM_AXIS_LIST(X)
#undef X
};
enum { DEGREES = sizeof degrees / sizeof degrees[0] };

/* A plan for no number of ranks, whose shards are what is left: the least that experts can be divided among. */
static int64_t least_shards(const tm_mesh *mesh)
{
    int64_t shards = 1, others = (int64_t)mesh->degree[TM_AXIS_CP] * mesh->degree[TM_AXIS_TP];
    if (mesh->degree[TM_AXIS_SHARD] > 0) return 1;
    while (shards < mesh->degree[TM_AXIS_EP] && shards * others % mesh->degree[TM_AXIS_EP] != 0) shards++;
    return shards;
}

tm_status tm_train_mesh(const tm_config *config, tm_mesh *out, tm_error *err)
{
    int64_t ranks = tm_config_i64(config, "parallelism.ranks"), product = 1;
    tm_mesh mesh = tm_mesh_one();
    bool    plans = tm_config_plans(config);
    for (int i = 0; i < DEGREES; i++) {
        if (!degrees[i].key[0]) continue;
        mesh.degree[degrees[i].axis] = (int)tm_config_i64(config, degrees[i].key);
        bool multiplies = degrees[i].axis != TM_AXIS_EP && mesh.degree[degrees[i].axis] > 0;
        if (multiplies && product < 1 << 20) product *= mesh.degree[degrees[i].axis];
    }
    if (plans && ranks == 1 && !tm_config_is_set(config, "parallelism.ranks")) ranks = product * least_shards(&mesh);
    TM_TRY(tm_mesh_fill(&mesh, ranks, err));
    *out = mesh;
    return TM_OK;
}

/* The rows of an expert are quantized together, so they come in one round. */
static double capacity_of(const tm_config *config)
{
    static const char key[] = "parallelism.expert_parallel_capacity";
    const char       *recipe = tm_config_text(config, "quantize.experts_recipe");
    if (tm_config_text(config, key)) return tm_config_f64(config, key);
    return recipe && strcmp(recipe, "none") != 0 ? 0 : 2;
}

tm_status tm_layout_read(const tm_config *config, tm_layout *out, tm_error *err)
{
    const char *shared = tm_config_text(config, "parallelism.data_parallel_shard_strategy");
    const char *reshard = tm_config_text(config, "parallelism.fsdp_reshard_after_forward");
    const char *rotate = tm_config_text(config, "parallelism.context_parallel_rotate_method");
    *out = (tm_layout){ .sharing = strcmp(shared, "optim") == 0         ? TM_SHARE_OPTIMIZER
                                   : strcmp(shared, "optim_grads") == 0 ? TM_SHARE_GRADIENTS
                                                                        : TM_SHARE_ALL,
                        .reshard = strcmp(reshard, "never") != 0,
                        .whole_rows = !tm_config_bool(config, "parallelism.enable_sequence_parallel"),
                        .prefetch = 1,
                        .narrow = strcmp(tm_config_text(config, "training.mixed_precision_reduce"), "bfloat16") == 0,
                        .parts = tm_config_i64(config, "training.separate_sums"),
                        .expert_capacity = capacity_of(config),
                        .ring = strcmp(rotate, "alltoall") == 0 };
    TM_TRY(tm_train_mesh(config, &out->mesh, err));
    if (tm_config_bool(config, "parallelism.exact") &&
        tm_layout_size(out, TM_AXES_WORLD) > tm_layout_size(out, 1U << TM_AXIS_REPLICATE))
        return tm_fail(err, TM_UNSUPPORTED,
                       "parallelism.exact (%s) is for copies of the model: ranks that divide it add in another order "
                       "than one rank; set parallelism.data_parallel_replicate_degree -1 and the other degrees 1",
                       tm_config_place(config, "parallelism.exact"));
    if (tm_config_bool(config, "parallelism.exact") && out->narrow)
        return tm_fail(err, TM_UNSUPPORTED,
                       "parallelism.exact (%s) needs sums of float32 gradients as they are; set "
                       "training.mixed_precision_reduce (%s) to float32",
                       tm_config_place(config, "parallelism.exact"),
                       tm_config_place(config, "training.mixed_precision_reduce"));
    return TM_OK;
}

/* As many blocks as the head's product is worth, by weights that a token is multiplied with; fewer, where the last
 * stage would have less than none. Looking up what lies before the blocks takes no time. */
static int64_t head_in_blocks(const tm_model_shape *shape, int64_t stages, int64_t first_less)
{
    int64_t head = shape->vocab_size * shape->dim, layers = tm_model_blocks(shape);
    int64_t blocks = tm_model_parameters_active(shape) - (shape->tied ? 1 : 2) * head;
    int64_t less = blocks > 0 ? (head * layers + blocks / 2) / blocks : 0;
    while (less > 0 && (layers + first_less + less) / stages < less) less--;
    return less;
}

/* The same of one that may be cut: by all FLOPs of a token. */
static double whole_head_in_blocks(const tm_model_shape *shape, int64_t seq)
{
    const double head = 6 * (double)(shape->vocab_size * shape->dim);
    const double blocks = tm_model_flops_per_token(shape, TM_FLOPS_EXACT_CAUSAL, seq) - head;
    return blocks > 0 ? head / blocks * (double)tm_model_blocks(shape) : 0;
}

static void read_weights(const tm_config *config, const tm_model_shape *shape, int64_t stages, tm_layout *out)
{
    const char *const        first = "parallelism.pipeline_parallel_first_stage_less_layers",
                      *const last = "parallelism.pipeline_parallel_last_stage_less_layers";
    out->first_less = tm_config_text(config, first) ? tm_config_i64(config, first) : 0;
    out->last_less =
        tm_config_text(config, last) ? tm_config_i64(config, last) : head_in_blocks(shape, stages, out->first_less);
    if (out->divide_head && tm_config_text(config, last)) out->head_blocks = (double)out->last_less;
}

/* The order of a step: by its name, or from a file, which PyTorch's names of its base classes ask for. */
static tm_status read_order(const tm_config *config, tm_layout *out, tm_error *err)
{
    static const char *const bases[] = { "PipelineScheduleSingle", "PipelineScheduleMulti",
                                         "_PipelineScheduleRuntime" };
    const char *const key = "parallelism.pipeline_parallel_schedule", *const csv =
                                                                          "parallelism.pipeline_parallel_schedule_csv";
    const char *name = tm_config_text(config, key), *path = tm_config_text(config, csv);
    int         ranks = tm_layout_size(out, 1U << TM_AXIS_PP);
    bool        base = false, given = path && *path;
    for (size_t i = 0; i < sizeof bases / sizeof bases[0]; i++) base = base || strcasecmp(name, bases[i]) == 0;
    if (base && !given)
        return tm_fail(err, TM_INVALID, "%s %s (%s) takes its order from a file; give %s, or another schedule", key,
                       name, tm_config_place(config, key), csv);
    if (!given) return tm_pipeline_find(name, tm_config_place(config, key), &out->order, err);
    if (!base && tm_config_is_set(config, key))
        return tm_fail(
            err, TM_INVALID,
            "%s %s (%s) has no effect beside %s (%s), which is the order; leave one of them out, or set it to "
            "%s",
            key, name, tm_config_place(config, key), csv, tm_config_place(config, csv), bases[1]);
    if (ranks > TM_PIPELINE_RANKS) return TM_OK; /* refused below */
    out->order = TM_PIPELINE_LISTED;
    return pipeline_file_read(path, ranks, tm_config_arena(config), &out->list, err);
}

/* Stages whose modules are named. */
static tm_status read_names(const tm_config *config, const tm_model_shape *shape, tm_layout *out, tm_error *err)
{
    const char *const key = "parallelism.module_fqns_per_model_part";
    int               ranks = tm_layout_size(out, 1U << TM_AXIS_PP), stages;
    TM_TRY(stage_names_read(tm_config_text(config, key), tm_config_place(config, key), shape, tm_config_arena(config),
                            &stages, &out->first_blocks, err));
    if (stages % ranks != 0 || stages / ranks > TM_MAX_CHUNKS)
        return tm_fail(err, TM_INVALID,
                       "%s (%s) has %d stages, which the %d ranks of parallelism.pipeline_parallel_degree cannot have "
                       "equally many of, %d at most; make it a multiple of %d",
                       key, tm_config_place(config, key), stages, ranks, TM_MAX_CHUNKS, ranks);
    out->chunks = stages / ranks;
    return TM_OK;
}

tm_status tm_layout_read_pipeline(const tm_config *config, const tm_model_shape *shape, int64_t seq, tm_layout *out,
                                  tm_error *err)
{
    const char *const per_stage = "parallelism.pipeline_parallel_layers_per_stage";
    int64_t           ranks = tm_layout_size(out, 1U << TM_AXIS_PP);
    if (ranks == 1) return TM_OK;
    out->let_go = strcmp(tm_config_text(config, "parallelism.fsdp_reshard_after_forward"), "always") == 0;
    out->divide_head = tm_config_bool(config, "parallelism.pipeline_parallel_divide_head");
    if (out->divide_head) out->head_blocks = whole_head_in_blocks(shape, seq);
    TM_TRY(read_order(config, out, err));
    const char *names = tm_config_text(config, "parallelism.module_fqns_per_model_part");
    if (names && *names) return read_names(config, shape, out, err);
    out->chunks = out->list                                                           ? out->list->chunks
                  : out->order == TM_PIPELINE_GPIPE || out->order == TM_PIPELINE_1F1B ? 1
                                                                                      : 2;
    read_weights(config, shape, ranks * out->chunks, out);
    if (!tm_config_text(config, per_stage)) return TM_OK;
    int64_t behind = out->divide_head ? llround(out->head_blocks) : out->last_less;
    int64_t each = tm_config_i64(config, per_stage), all = tm_model_blocks(shape) + out->first_less + behind;
    int64_t stages = (all + each - 1) / each;
    if (stages % ranks != 0 || stages / ranks > TM_MAX_CHUNKS)
        return tm_fail(err, TM_INVALID,
                       "%s %lld (%s) makes %lld stages of %lld blocks (embedding and head counted), which %lld ranks "
                       "cannot have %d or fewer each of; %lld makes %lld",
                       per_stage, (long long)each, tm_config_place(config, per_stage), (long long)stages,
                       (long long)all, (long long)ranks, TM_MAX_CHUNKS, (long long)((all + ranks - 1) / ranks),
                       (long long)ranks);
    out->chunks = (int)(stages / ranks);
    read_weights(config, shape, stages, out);
    return TM_OK;
}

static tm_division division(const tm_layout *layout, tm_axis axis)
{
    unsigned axes = 1U << axis;
    int      ranks = tm_layout_size(layout, axes);
    return (tm_division){ axes, ranks > 1 ? tm_mesh_group_rank(&layout->mesh, layout->rank, axes) : 0, ranks };
}

tm_parallel tm_layout_parallel(const tm_layout *layout)
{
    return (tm_parallel){ .tensor = division(layout, TM_AXIS_TP),
                          .rows = tm_layout_size(layout, 1U << TM_AXIS_TP) > 1 && !layout->whole_rows,
                          .context = division(layout, TM_AXIS_CP),
                          .ring = layout->ring,
                          .experts = division(layout, TM_AXIS_EP),
                          .expert_capacity = layout->expert_capacity,
                          .stages = division(layout, TM_AXIS_PP) };
}
