/* SPDX-License-Identifier: Apache-2.0 */
/* Where initial values go: every byte of what a rank has is written once, and no other; all ranks together write every
 * byte of a whole, in every format, however it is divided. What formats of blocks hold is what float32 would. */
#include "support/test.h"
#include "device/backend.h"
#include "support/training.h"
#include "graph/blocks.h"
#include "graph/nf4.h"
#include "train/trainer/init.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- a device that notes what is written --------------------------------------------------------------- */

static unsigned char *times;  /* how often each byte of the arena was written */
static uintptr_t      begins; /* the arena */
static size_t         arena_bytes;

static tm_status note_write(tm_queue *queue, tm_address to, const void *from, size_t bytes, tm_error *err)
{
    size_t at = (size_t)(to.at - begins);
    if (to.at < begins || at > arena_bytes || bytes > arena_bytes - at)
        fail_msg("%zu bytes at %zu of %zu", bytes, at, arena_bytes);
    for (size_t i = at; i < at + bytes; i++) times[i]++;
    return tm_backend_cpu.write(queue, to, from, bytes, err);
}

typedef struct {
    size_t here, divided, constants; /* bytes that were written: of tensors that are whole here; of shares */
} written;

static size_t count_once(size_t at, size_t bytes, const char *name)
{
    for (size_t i = at; i < at + bytes; i++) {
        if (times[i] != 1) fail_msg("byte %zu of '%s' is written %d times", i - at, name, times[i]);
        times[i] = 0;
    }
    return bytes;
}

/* Takes what it has counted away: nothing may be left. */
static written count_written(const tm_plan *plan, bool parameters)
{
    written w = { 0 };
    for (size_t i = 0; i < plan->graph->n_tensors; i++) {
        const tm_tensor *t = &plan->graph->tensors[i];
        const tm_place   place = tm_plan_place(plan, (tm_tensor_id)i);
        bool             constant = t->role == TM_ROLE_CONSTANT;
        bool             view = t->base != TM_NONE && tm_graph_at(plan->graph, t->base)->role != TM_ROLE_UNIT;
        if (!constant && !(parameters && t->role == TM_ROLE_PARAMETER)) continue;
        if (view || tm_graph_elsewhere(t)) continue;
        size_t bytes = count_once(place.offset, tm_tensor_bytes(t->shape, t->dtype), t->name);
        *(constant ? &w.constants : &w.here) += bytes;
    }
    for (size_t i = 0; i < plan->graph->n_tensors; i++) {
        const tm_tensor *t = &plan->graph->tensors[i];
        const tm_place   place = tm_plan_place(plan, (tm_tensor_id)i);
        if (t->role != TM_ROLE_UNIT || t->base != TM_NONE) continue;
        for (size_t k = place.offset; k < place.offset + place.bytes; k++) { /* there are gaps between tensors */
            if (times[k] > 1) fail_msg("byte %zu of '%s' is written %d times", k - place.offset, t->name, times[k]);
            w.divided += times[k];
            times[k] = 0;
        }
    }
    for (size_t k = 0; k < arena_bytes; k++)
        if (times[k]) fail_msg("byte %zu is written, and belongs to no tensor", k);
    return w;
}

static written fill(const tm_step_options *o)
{
    tm_backend backend = tm_backend_cpu;
    tm_device *device;
    tm_error   err = { 0 };
    backend.write = note_write;
    assert_int_equal(tm_device_open_backend(&backend, 1, false, &device, &err), TM_OK);
    tm_chooser chooser = tm_device_chooser(device);
    tm_step   *step = test_step_plan(o, &chooser);
    arena_bytes = step->plan->arena_bytes;
    char *arena = aligned_alloc(4096, (arena_bytes + 4095) / 4096 * 4096);
    times = calloc(arena_bytes, 1);
    assert_true(arena && times);
    begins = (uintptr_t)arena;
    tm_arenas memory = { .base = { { begins } } };
    if (tm_init_fill(step->plan, device, &memory, 1, 1, &err) != TM_OK) fail_msg("%s", err.text);
    written all = count_written(step->plan, true);
    if (tm_init_constants(step->plan, device, &memory, 1, &err) != TM_OK) fail_msg("%s", err.text);
    written constants = count_written(step->plan, false);
    assert_true(constants.constants == all.constants && constants.here + constants.divided == 0);
    free(arena);
    free(times);
    tm_step_destroy(step);
    tm_device_close(device);
    return all;
}

/* --- layouts -------------------------------------------------------------------------------------------- */

static tm_step_options options_of(int model, tm_dtype base, const tm_precision *precision)
{
    tm_step_options o = model == 1 ? test_gpt_options() : test_llama_options();
    if (model == 2) {
        o.shape.family = TM_FAMILY_MIXTRAL;
        o.shape.moe = (tm_moe_shape){ .experts = 4, .top_k = 2, .ffn_dim = 96, .scale = 1, .normalise = true };
    }
    o.precision = precision;
    o.shape.n_layers = 1;
    o.shape.n_kv_heads = o.shape.n_heads;
    if (base == TM_DTYPE_COUNT) return o;
    /* One matrix of more blocks than are quantized at once. */
    o.shape.dim = 1088, o.shape.n_heads = 4, o.shape.n_kv_heads = 4, o.shape.head_dim = 256, o.shape.ffn_dim = 128;
    o.adapters = (tm_adapters){ .rank = 2, .alpha = 4, .base = base, .place = "test", .seed = 1 };
    snprintf(o.adapters.targets, sizeof o.adapters.targets, "all-linear");
    return o;
}

static written fill_rank(tm_step_options o, tm_axis axis, int ranks, int rank)
{
    tm_error err = { 0 };
    o.layout.mesh = tm_mesh_one();
    o.layout.mesh.degree[axis] = ranks;
    o.layout.sharing = TM_SHARE_ALL;
    o.layout.rank = rank;
    if (tm_mesh_fill(&o.layout.mesh, ranks, &err) != TM_OK) fail_msg("%s", err.text);
    return fill(&o);
}

FULL_TEST(every_byte_is_written_once)
{
    static const struct {
        int                 model;
        tm_dtype            base;
        const tm_precision *precision;
    } rows[] = { { 0, TM_DTYPE_COUNT, &tm_precision_f32 }, { 1, TM_DTYPE_COUNT, &tm_precision_bf16 },
                 { 2, TM_DTYPE_COUNT, &tm_precision_f32 }, { 0, TM_DTYPE_COUNT, &tm_precision_bf16_pure },
                 { 0, TM_NF4_BLOCKS, &tm_precision_bf16 }, { 0, TM_E4M3_BLOCKS, &tm_precision_bf16 } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tm_step_options o = options_of(rows[i].model, rows[i].base, rows[i].precision);
        written         alone = fill(&o);
        assert_true(alone.divided == 0 && alone.here > 1000);
        for (int ranks = 2; ranks <= 3; ranks++) {
            size_t bytes = 0;
            for (int rank = 0; rank < ranks; rank++) {
                written part = fill_rank(o, TM_AXIS_SHARD, ranks, rank);
                assert_true(part.here == 0 && part.constants == alone.constants);
                bytes += part.divided;
            }
            if (bytes != alone.here) fail_msg("row %zu: %d ranks write %zu of %zu bytes", i, ranks, bytes, alone.here);
        }
        for (int rank = 0; rank < 2; rank++) {
            written part = fill_rank(o, TM_AXIS_TP, 2, rank);
            assert_true(part.divided == 0 && part.here < alone.here && part.here * 2 >= alone.here);
        }
    }
}

/* --- values of blocks ----------------------------------------------------------------------------------- */

typedef struct {
    const double *values;
    int64_t       begin; /* of the run */
    size_t        at;    /* its first byte */
    char         *bytes;
} quantized;

static void give(void *context, int64_t first, int64_t n, float *out)
{
    const quantized *q = context;
    for (int64_t i = 0; i < n; i++) out[i] = (float)q->values[q->begin + first + i];
}

static tm_status keep(void *context, size_t offset, const void *bytes, size_t n, tm_error *err)
{
    const quantized *q = context;
    (void)err;
    memcpy(q->bytes + q->at + offset, bytes, n);
    return TM_OK;
}

/* A tensor is what becomes of the whole one of a model in float32. */
static void is_quantized(const tm_trainer *trainer, tm_tensor_id id, const double *values)
{
    const tm_tensor *t = tm_graph_at(tm_trainer_step_of(trainer)->graph, id);
    size_t           size = tm_tensor_bytes(t->shape, t->dtype);
    char            *found = malloc(size), *wanted = malloc(size);
    tm_error         err = { 0 };
    int64_t          all = tm_shape_elements(t->shape);
    for (int64_t begin = 0; begin < all;) {
        int64_t   end = tm_nf4_run_end(t, begin);
        quantized q = { values, begin, tm_blocked_bytes(t->dtype, begin), wanted };
        tm_nf4_io io = { give, keep, &q, 1 };
        assert_int_equal(tm_blocked_store(t->dtype, &io, end - begin, &err), TM_OK);
        begin = end;
    }
    assert_int_equal(tm_trainer_read(trainer, id, 0, found, size, &err), TM_OK);
    if (memcmp(found, wanted, size) != 0) fail_msg("'%s' has other values", t->name);
    free(found);
    free(wanted);
}

/* Pieces that begin anywhere among those that are made at a time. */
TEST(blocks_have_the_values_of_the_whole)
{
    static const int64_t  widths[] = { 390, 97, 4097 }; /* the last one is made in two parts */
    static const tm_dtype formats[] = { TM_NF4_BLOCKS, TM_E4M3_BLOCKS, TM_E4M3_BLOCKS };
    for (int i = 0; i < 3; i++) {
        tm_device      *device = test_device_open("cpu", 2);
        tm_step_options o = options_of(0, formats[i], &tm_precision_f32);
        int             seen = 0;
        o.shape.dim = 128, o.shape.n_heads = 4, o.shape.n_kv_heads = 2, o.shape.head_dim = 32;
        o.shape.ffn_dim = widths[i], o.shape.n_layers = 1;
        tm_trainer *narrow = test_trainer_open(device, &o, 5);
        o.adapters.base = TM_DTYPE_COUNT;
        tm_trainer     *wide = test_trainer_open(device, &o, 5);
        const tm_graph *a = tm_trainer_step_of(narrow)->graph, *b = tm_trainer_step_of(wide)->graph;
        for (size_t k = 0; k < a->n_tensors; k++) {
            size_t like = 0;
            if (a->tensors[k].role != TM_ROLE_PARAMETER || a->tensors[k].dtype != formats[i]) continue;
            while (b->tensors[like].role != TM_ROLE_PARAMETER || strcmp(a->tensors[k].name, b->tensors[like].name) != 0)
                like++;
            double *values = test_values_read(wide, (tm_tensor_id)like);
            is_quantized(narrow, (tm_tensor_id)k, values);
            free(values);
            seen++;
        }
        assert_true(seen >= 4);
        tm_trainer_close(narrow);
        tm_trainer_close(wide);
        tm_device_close(device);
    }
}
