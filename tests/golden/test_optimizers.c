/* SPDX-License-Identifier: Apache-2.0 */
/* What published optimizers make of the same weights and gradients: tests/golden/fixtures/optimizers.bin, made by
 * tools/make_optimizer_fixture.py. The kernels of the machine take the same steps. */
#include "base/random.h"
#include "graph/value.h"
#include "op/dynamic.h"
#include "support/golden.h"
#include "support/training.h"

#include "support/test.h"

enum { STEPS = 8, NAME = 32 };

/* The bytes of a record of that size. */
static const void *record(const char *name, size_t bytes)
{
    static unsigned char file[1 << 20];
    static size_t        file_bytes;
    FILE                *f = file_bytes ? NULL : fopen("tests/golden/fixtures/optimizers.bin", "rb");
    if (f) file_bytes = fread(file, 1, sizeof file, f);
    if (f) fclose(f);
    assert_true(file_bytes > 0 && file_bytes < sizeof file);
    for (size_t at = 0; at + NAME + 4 <= file_bytes;) {
        uint32_t size;
        memcpy(&size, file + at + NAME, 4);
        if (strncmp((const char *)file + at, name, NAME) == 0) {
            if (size != bytes) fail_msg("'%s' has %u bytes, wanted %zu", name, size, bytes);
            return file + at + NAME + 4;
        }
        at += NAME + 4 + size;
    }
    fail_msg("the fixture has no '%s'", name);
    return NULL;
}

/* --- the numbers of the script: those of support/golden.h, of some size ---------------------------------------------
 */

static void fill(float *out, int64_t n, const char *name, double size)
{
    for (int64_t i = 0; i < n; i++) out[i] = (float)(golden_unit(name, (uint32_t)i) * size);
}

static void fill_gradient(float *out, tm_shape shape, const char *name, int step)
{
    char    text[64];
    int64_t n = tm_shape_elements(shape), columns = shape.n[shape.rank - 1];
    snprintf(text, sizeof text, "%s gradient %d", name, step);
    fill(out, n, text, 1. / (1 + step));
    for (int64_t i = 0; i < n; i++) out[i] *= (float)exp2((double)-(i % columns % 11));
}

/* --- an optimizer on one tensor ----------------------------------------------------------------------------------- */

typedef struct {
    tm_device   *device;
    tm_graph    *graph;
    tm_plan     *plan;
    tm_arenas    memory;
    tm_loaded   *loaded;
    tm_tensor_id p, g, scalars, clip;
} bench;

static void put(bench *b, tm_tensor_id id, const void *from)
{
    tm_error err = { 0 };
    size_t   bytes = tm_plan_place(b->plan, id).bytes;
    assert_int_equal(tm_device_write(b->device, tm_plan_address(b->plan, &b->memory, id), from, bytes, &err), TM_OK);
    assert_int_equal(tm_device_wait(b->device, &err), TM_OK);
}

static void *get(bench *b, tm_tensor_id id)
{
    tm_error err = { 0 };
    size_t   bytes = tm_plan_place(b->plan, id).bytes;
    void    *to = malloc(bytes + 1);
    assert_int_equal(tm_device_read(b->device, to, tm_plan_address(b->plan, &b->memory, id), bytes, &err), TM_OK);
    assert_int_equal(tm_device_wait(b->device, &err), TM_OK);
    return to;
}

static void open_bench(bench *b, const tm_optimizer *optimizer, const tm_hyper *hyper, tm_shape shape)
{
    tm_error err = { 0 };
    tm_piece piece = { .name = "w", .rows = shape.n[0] };
    *b = (bench){ .device = test_device_open("cpu", 2), .graph = tm_graph_create(&tm_precision_f32) };
    tm_chooser chooser = tm_device_chooser(b->device);
    b->p = tm_graph_parameter(b->graph, "w", shape, &piece, 1);
    b->g = tm_graph_tensor(b->graph, "g", TM_ROLE_GRADIENT, shape);
    b->scalars = tm_graph_tensor(b->graph, "scalars", TM_ROLE_SCALAR, tm_shape_1(TM_SCALAR_COUNT));
    b->clip = tm_graph_tensor(b->graph, "clip", TM_ROLE_SCALAR, tm_shape_1(2));
    tm_graph_at(b->graph, b->p)->layer = 0;
    tm_graph_segment(b->graph, "update");
    tm_optimizer_add(b->graph, optimizer, hyper,
                     (tm_update){ .parameter = b->p, .gradient = b->g, .scalars = b->scalars, .clip = b->clip });
    assert_int_equal(tm_plan_create(b->graph, &chooser, &b->plan, &err), TM_OK);
    assert_int_equal(tm_device_alloc(b->device, b->plan->arena_bytes, &b->memory.base[TM_SPACE_DEVICE], &err), TM_OK);
    assert_int_equal(tm_device_fill(b->device, b->memory.base[TM_SPACE_DEVICE], 0, b->plan->persistent_bytes, &err),
                     TM_OK);
    assert_int_equal(tm_device_load(b->device, b->plan, &b->memory, &b->loaded, &err), TM_OK);
}

static void close_bench(bench *b)
{
    tm_device_unload(b->loaded);
    tm_device_release(b->device, b->memory.base[TM_SPACE_DEVICE], b->plan->arena_bytes);
    tm_plan_destroy(b->plan);
    tm_graph_destroy(b->graph);
    tm_device_close(b->device);
}

/* All steps from the weights of that name. */
static void train(bench *b, const tm_optimizer *optimizer, const tm_hyper *hyper, double rate, const char *name)
{
    tm_error err = { 0 };
    tm_shape shape = tm_graph_at(b->graph, b->p)->shape;
    int64_t  n = tm_shape_elements(shape);
    float   *values = malloc((size_t)n * sizeof *values);
    double   clip[2] = { 1, 1 };
    fill(values, n, name, .25);
    put(b, b->p, values);
    put(b, b->clip, clip);
    for (int t = 0; t < STEPS; t++) {
        double row[TM_SCALAR_COUNT] = { 0 };
        row[TM_SCALAR_LEARNING_RATE] = rate;
        optimizer->scalars(hyper, t + 1, rate, row);
        fill_gradient(values, shape, name, t);
        put(b, b->g, values);
        put(b, b->scalars, row);
        assert_int_equal(tm_device_run(b->device, tm_plan_program(b->plan, "update"), NULL, &err), TM_OK);
        assert_int_equal(tm_device_wait(b->device, &err), TM_OK);
    }
    free(values);
}

static double farthest(const float *a, const float *b, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, isnan(a[i]) ? HUGE_VAL : fabs((double)a[i] - (double)b[i]));
    return most;
}

static void expect_weights(bench *b, const char *name, double bound)
{
    int64_t n = tm_shape_elements(tm_graph_at(b->graph, b->p)->shape);
    float  *p = get(b, b->p);
    double  off = farthest(p, record(name, (size_t)n * sizeof *p), n);
    if (!(off <= bound)) fail_msg("'%s': a weight is off by %.3g, at most %.3g was wanted", name, off, bound);
    free(p);
}

/* --- 8 bits ------------------------------------------------------------------------------------------------------- */

static const tm_hyper adam = { .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1 };

TEST(maps_are_the_published_ones)
{
    for (int v = 0; v < 2; v++) {
        float        map[TM_DYNAMIC_CODES], least[TM_DYNAMIC_CODES - 1];
        const float *wanted = record(v ? "map exp_avg_sq" : "map exp_avg", sizeof map);
        tm_dynamic_map(!v, map);
        for (int c = 0; c < TM_DYNAMIC_CODES; c++)
            if (!(fabsf(map[c] - wanted[c]) <= 2.4e-7f * fabsf(wanted[c])))
                fail_msg("map %d, code %d: %.9g, wanted %.9g", v, c, (double)map[c], (double)wanted[c]);
        for (int up = 0; up < 2; up++) {
            tm_dynamic_bounds(map, up, least);
            for (int c = 0; c + 1 < TM_DYNAMIC_CODES; c++) assert_true(map[c] < least[c] && least[c] <= map[c + 1]);
        }
    }
}

static void expect_codes(bench *b, const char *library, const char *moment, int64_t n)
{
    char name[NAME];
    snprintf(name, sizeof name, "%s %s", library, moment);
    tm_tensor_id         id = tm_optimizer_state_of(b->graph, b->p, moment);
    unsigned char       *codes = get(b, id);
    const unsigned char *wanted = record(name, (size_t)n);
    int64_t              other = 0;
    for (int64_t i = 0; i < n; i++) {
        other += codes[i] != wanted[i];
        assert_true(abs((int)codes[i] - (int)wanted[i]) <= 1);
    }
    if (other > n / 1000) fail_msg("'%s': %lld of %lld codes are others", name, (long long)other, (long long)n);
    free(codes);
    snprintf(name, sizeof name, "%s_absmax", moment);
    float *scales = get(b, tm_optimizer_state_of(b->graph, b->p, name));
    snprintf(name, sizeof name, "%s %s_absmax", library, moment);
    const float *given = record(name, (size_t)n / 256 * sizeof *scales);
    for (int64_t i = 0; i < n / 256; i++) assert_true(fabsf(scales[i] - given[i]) <= 1e-5f * given[i]);
    free(scales);
}

static void eight_bits(const char *library, tm_definition definition)
{
    char     name[NAME];
    tm_hyper hyper = adam;
    tm_shape shape = tm_shape_2(48, 128);
    bench    b;
    hyper.definition = definition;
    open_bench(&b, &tm_optimizer_adamw8bit, &hyper, shape);
    train(&b, &tm_optimizer_adamw8bit, &hyper, 1e-2, "coded");
    expect_codes(&b, library, "exp_avg", 48 * 128);
    expect_codes(&b, library, "exp_avg_sq", 48 * 128);
    snprintf(name, sizeof name, "%s coded", library);
    expect_weights(&b, name, 1e-5);
    close_bench(&b);
}

TEST(torchao_is_met)
{
    eight_bits("torchao", TM_DEFINED_TORCHAO);
    bench b;
    open_bench(&b, &tm_optimizer_adamw8bit, &adam, tm_shape_1(30)); /* too small for codes */
    assert_int_equal(tm_optimizer_state_of(b.graph, b.p, "exp_avg_absmax"), TM_NONE);
    train(&b, &tm_optimizer_adamw8bit, &adam, 1e-2, "short");
    expect_weights(&b, "torchao short", 1e-6);
    close_bench(&b);
}

TEST(bitsandbytes_is_met)
{
    eight_bits("bitsandbytes", TM_DEFINED_BITSANDBYTES);
}

/* --- Muon --------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    int64_t     rows, columns;
} matrices[] = { { "wide", 24, 56 }, { "tall", 56, 24 }, { "square", 32, 32 } };
enum { MATRICES = sizeof matrices / sizeof matrices[0] };

static void muon(int i, const tm_hyper *hyper, const char *library, const char *rule, double bound)
{
    char  name[64];
    bench b;
    open_bench(&b, &tm_optimizer_muon, hyper, tm_shape_2(matrices[i].rows, matrices[i].columns));
    train(&b, &tm_optimizer_muon, hyper, 1e-3, matrices[i].name);
    snprintf(name, sizeof name, "%s %s%s%s", library, matrices[i].name, *rule ? " " : "", rule);
    expect_weights(&b, name, bound);
    close_bench(&b);
}

TEST(muon_of_torch_is_met)
{
    tm_hyper hyper = { .momentum = 0.95, .nesterov = true, .weight_decay = 0.1, .definition = TM_DEFINED_TORCH };
    for (int i = 0; i < MATRICES; i++) {
        hyper.scale = TM_MUON_ORIGINAL;
        muon(i, &hyper, "torch32", "", 1e-6);
        muon(i, &hyper, "torch", "original", 8 * 1e-5); /* its iterations are rounded to bfloat16; of eight steps */
        hyper.scale = TM_MUON_MATCH_RMS;
        muon(i, &hyper, "torch", "match_rms_adamw", 8 * 1e-5);
    }
}

TEST(muon_of_megatron_is_met)
{
    tm_hyper hyper = {
        .momentum = 0.95, .weight_decay = 0.1, .definition = TM_DEFINED_MEGATRON, .scale = TM_MUON_SPECTRAL
    };
    for (int i = 0; i < MATRICES; i++) muon(i, &hyper, "megatron", "", 1e-5);
}
