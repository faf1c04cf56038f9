/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers by every kernel of the devices cuda and hip, in turns: all agree within rounding, and each leaves the
 * same bits every time. For a real GPU (tools/gpu_acceptance.sh): TM_TEST_SHAPES=medium, or large: those of models;
 * TM_TEST_RATES=FILE: bfloat16 only, and FILE gets a line for each product and kernel. */
#include "device/gpu/gpu.h"
#include "gpu/emulated.h"
#include "graph/value.h"

#include "support/test.h"

enum { ROUNDS = 5, MOST_KERNELS = 3, SAMPLE = 4096, BLOCK = 1 << 20 };

typedef struct {
    const char *name;
    int64_t     n, k, m; /* x (n, k), w (m, k) */
} shape;

/* Of Llama 3 8B with 4 x 4,096 tokens; the head in a chunk of the loss. */
static const shape large[] = { { "square", 8192, 8192, 8192 },
                               { "queries, keys, values", 16384, 4096, 6144 },
                               { "attention out", 16384, 4096, 4096 },
                               { "feed forward in", 16384, 4096, 28672 },
                               { "feed forward out", 16384, 14336, 4096 },
                               { "head", 2048, 4096, 128256 } };
/* The last one has rows that begin anywhere. */
static const shape medium[] = { { "square", 2048, 2048, 2048 }, { "odd", 1000, 1503, 701 } };
static const shape small[] = { { "square", 32, 32, 32 }, { "odd", 33, 25, 17 } };

typedef struct {
    const tm_kernel *kernel;
    tm_call          call;
    double           seconds[ROUNDS];
    unsigned char    first[SAMPLE], last[SAMPLE];
} run;

static tm_address at(const void *data)
{
    return (tm_address){ (uintptr_t)data };
}

static void must(tm_status st, const tm_error *err)
{
    if (st != TM_OK) fail_msg("%s", err->text);
}

static size_t bytes_of(const tm_view *view)
{
    return tm_tensor_bytes(view->shape, view->dtype);
}

static void take(tm_device *device, void **out, size_t bytes)
{
    tm_address memory = { 0 };
    tm_error   err = { 0 };
    if (bytes) must(tm_device_alloc(device, bytes, &memory, &err), &err);
    *out = (void *)memory.at; // NOLINT(performance-no-int-to-ptr)
}

/* A block of numbers in (-1, 1), again and again. */
static void fill(tm_device *device, const tm_view *view, uint64_t seed)
{
    static unsigned char block[BLOCK];
    tm_error             err = { 0 };
    uint64_t             x = seed;
    size_t               bytes = bytes_of(view), element = tm_dtype_bytes(view->dtype);
    for (size_t e = 0; e < BLOCK / element; e++) {
        x = x * 6364136223846793005U + 1442695040888963407U;
        tm_value_set(block, view->dtype, (int64_t)e, (double)(int32_t)(x >> 32) * 0x1p-31);
    }
    for (size_t done = 0; done < bytes; done += BLOCK)
        must(tm_device_write(device, tm_address_add(at(view->data), done), block,
                             bytes - done < BLOCK ? bytes - done : BLOCK, &err),
             &err);
    must(tm_device_wait(device, &err), &err);
}

/* in[0], in[1] and out[0] of a product; their memory is not there yet. */
static tm_call call_of(const tm_op *op, const shape *s, tm_dtype dtype, tm_device *device)
{
    tm_shape x = tm_shape_2(s->n, s->k), w = tm_shape_2(s->m, s->k), y = tm_shape_2(s->n, s->m);
    tm_call  call = { .op = op, .device = device, .threads = 1, .queue = device->queues[TM_ON_COMPUTE] };
    for (int i = 0; i < TM_MAX_IN; i++) call.in[i].shape.rank = -1;
    for (int i = 0; i < TM_MAX_OUT; i++) call.out[i].shape.rank = -1;
    call.in[0].shape = op == &tm_op_linear ? x : y;
    call.in[1].shape = op == &tm_op_linear_wgrad ? x : w;
    call.out[0].shape = op == &tm_op_linear ? y : op == &tm_op_linear_dgrad ? x : w;
    call.in[0].dtype = call.in[1].dtype = call.out[0].dtype = dtype;
    return call;
}

static void launch(tm_device *device, run *r, int round)
{
    const tm_backend *b = device->backend;
    tm_instant       *from, *to;
    tm_error          err = { 0 };
    must(b->instant_open(device, &from, &err), &err);
    must(b->instant_open(device, &to, &err), &err);
    must(tm_device_fill(device, at(r->call.out[0].data), 0xff, bytes_of(&r->call.out[0]), &err), &err);
    must(b->record(r->call.queue, from, &err), &err);
    must(r->kernel->launch(&r->call, &err), &err);
    must(b->record(r->call.queue, to, &err), &err);
    size_t bytes = bytes_of(&r->call.out[0]), sample = bytes < SAMPLE ? bytes : SAMPLE;
    must(tm_device_read(device, round ? r->last : r->first, tm_address_add(at(r->call.out[0].data), bytes - sample),
                        sample, &err),
         &err);
    must(tm_device_wait(device, &err), &err);
    must(b->time(from, to, &r->seconds[round], &err), &err);
    assert_true(r->seconds[round] > 0);
    b->instant_close(from);
    b->instant_close(to);
    if (round && memcmp(r->first, r->last, sample) != 0) fail_msg("%s: other bits in round %d", r->kernel->name, round);
}

static int by_time(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static void report(run *r, const shape *s, tm_dtype dtype, FILE *file)
{
    const double rate = 2e-12 * (double)s->n * (double)s->k * (double)s->m;
    qsort(r->seconds, ROUNDS, sizeof(double), by_time);
    if (!file) return;
    fprintf(file,
            "{\"product\": \"%s\", \"n\": %lld, \"k\": %lld, \"m\": %lld, \"format\": \"%s\", \"kernel\": \"%s\", "
            "\"seconds\": %.6g, \"tflops\": %.4g, \"least_tflops\": %.4g}\n",
            s->name, (long long)s->n, (long long)s->k, (long long)s->m, tm_dtype_name(dtype), r->kernel->name,
            r->seconds[ROUNDS / 2], rate / r->seconds[ROUNDS / 2], rate / r->seconds[ROUNDS - 1]);
    print_message("%-22s %-22s %8.1f TFLOP/s\n", s->name, r->kernel->name, rate / r->seconds[ROUNDS / 2]);
}

/* The last values of the result, beside those of the kernel that is last in the list. */
static void compare(const run *r, const run *own)
{
    double   difference = 0, size = 0;
    tm_dtype dtype = own->call.out[0].dtype;
    size_t   bytes = bytes_of(&own->call.out[0]), sample = bytes < SAMPLE ? bytes : SAMPLE;
    for (int64_t i = 0; i < (int64_t)(sample / tm_dtype_bytes(dtype)); i++) {
        double wanted = tm_value_get(own->last, dtype, i), d = tm_value_get(r->last, dtype, i) - wanted;
        difference += d * d, size += wanted * wanted;
    }
    assert_true(size > 0);
    if (!(sqrt(difference / size) < (dtype == TM_F32 ? 1e-5 : 5e-3)))
        fail_msg("%s and %s differ by %.3g", r->kernel->name, own->kernel->name, sqrt(difference / size));
}

/* All kernels that take it, in turns. `kernels`: how many at least. */
static void try_product(tm_device *device, const tm_op *op, const shape *s, tm_dtype dtype, int kernels, FILE *file)
{
    run      all[MOST_KERNELS], *own = all;
    tm_error err = { 0 };
    tm_call  call = call_of(op, s, dtype, device);
    tm_view *views[] = { &call.in[0], &call.in[1], &call.out[0] };
    int      n = 0;
    for (int i = 0; i < 3; i++) take(device, &views[i]->data, bytes_of(views[i]));
    for (int i = 0; i < 2; i++) fill(device, views[i], (uint64_t)i + 1);
    for (const tm_kernel *k = tm_gpu_product; k->name; k++) {
        if (tm_op_get(k->op) != op || k->refuse(&call) || (dtype == TM_BF16 && strstr(k->name, "/tiles"))) continue;
        run *r = &all[n++];
        *r = (run){ .kernel = k, .call = call };
        r->call.workspace_bytes = k->workspace ? k->workspace(&call) : 0;
        take(device, &r->call.workspace, r->call.workspace_bytes);
        must(k->prepare(device, &r->call, &r->call.state, &err), &err);
        own = r;
    }
    assert_true(n >= kernels);
    must(device->backend->prepared(device, &err), &err);
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < n; i++) launch(device, &all[i], round);
    for (int i = 0; i < n; i++) {
        compare(&all[i], own);
        report(&all[i], s, dtype, file);
        all[i].kernel->release(all[i].call.state);
        tm_device_release(device, at(all[i].call.workspace), all[i].call.workspace_bytes);
    }
    for (int i = 0; i < 3; i++) tm_device_release(device, at(views[i]->data), bytes_of(views[i]));
}

static void products_agree(const char *name)
{
    static const tm_op *const ops[] = { &tm_op_linear, &tm_op_linear_dgrad, &tm_op_linear_wgrad };
    const char               *path = getenv("TM_TEST_RATES");
    tm_device                *device;
    tm_error                  err = { 0 };
    if (!emulated_device(name)) skip();
    must(tm_device_open(name, 1, &device, &err), &err);
    const char  *size = getenv("TM_TEST_SHAPES");
    const shape *shapes = !size ? small : strcmp(size, "large") == 0 ? large : medium;
    int          n = shapes == large ? (int)(sizeof large / sizeof large[0]) : 2;
    FILE        *file = path ? fopen(path, "a") : NULL;
    assert_true(!path || file);
    for (int i = 0; i < n; i++)
        for (int o = 0; o < 3; o++)
            for (int p = 0; p < (path ? 1 : 2); p++)
                try_product(device, ops[o], &shapes[i], p == 0 ? TM_BF16 : TM_F32, gpu_is_real() ? 1 : 2, file);
    if (file) fclose(file);
    tm_device_close(device);
}

/* --- what the library does not take ----------------------------------------------------------------- */

static tm_gpu_product_of plain(void)
{
    return (tm_gpu_product_of){
        .c = TM_BF16, .a = TM_BF16, .b = TM_BF16, .rows = 4, .columns = 4, .depth = 4, .ld_a = 4, .ld_b = 4, .ld_c = 4
    };
}

TEST(the_library_refuses)
{
    static const char *const words[] = { "multiplies matrices of one format",
                                         "leaves a product of float32 in float32",
                                         "adds a bias in the result's format only",
                                         "adds one matrix to a product",
                                         "takes no empty matrix",
                                         "counts rows and columns in 32 bits" };
    tm_gpu_product_of        p[6];
    tm_device               *device;
    tm_error                 err = { 0 };
    if (!emulated_device("cuda")) skip();
    for (int i = 0; i < 6; i++) p[i] = plain();
    p[0].b = TM_F32;
    p[1].a = p[1].b = TM_F32;
    p[2].c = TM_F32, p[2].has_bias = true;
    p[3].has_residual = p[3].adds = true;
    p[4].depth = 0;
    p[5].rows = (int64_t)1 << 31;
    for (int planning = 0; planning < 2; planning++) {
        must(planning ? tm_device_open_planning("cuda", 1, &device, &err) : tm_device_open("cuda", 1, &device, &err),
             &err);
        tm_gpu_product_of good = plain();
        good.c = TM_F32, good.adds = true;
        assert_null(tm_gpu_by_library(device, &good));
        for (int i = 0; i < 6; i++) {
            const char *why = tm_gpu_by_library(device, &p[i]);
            if (!why || !strstr(why, words[i])) fail_msg("planning %d, product %d: '%s'", planning, i, why ? why : "");
        }
        tm_device_close(device);
    }
}

/* At most 32 MiB from Hopper on, 4 MiB before and of AMD; less for small products. */
TEST(workspace_is_by_rule)
{
    static const struct {
        const char *device, *arch;
        size_t      large;
    } all[] = { { "cuda", "sm_90", 32 << 20 },
                { "cuda", "sm_100", 32 << 20 },
                { "cuda", "sm_80", 4 << 20 },
                { "hip", "gfx942", 4 << 20 } };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        tm_gpu_product_of small_one = plain(), large_one = plain();
        tm_device        *device;
        tm_error          err = { 0 };
        large_one.rows = large_one.columns = large_one.depth = 8192;
        if (gpu_is_real() || !emulated_device(all[i].device)) skip();
        setenv("STANDIN_GPU_ARCH", all[i].arch, 1);
        must(tm_device_open(all[i].device, 1, &device, &err), &err);
        unsetenv("STANDIN_GPU_ARCH");
        assert_true(tm_gpu_library_bytes(device, &large_one) == all[i].large);
        assert_true(tm_gpu_library_bytes(device, &small_one) == (128 << 10)); /* a tile, and counters */
        tm_device_close(device);
    }
}

TEST_ON(cuda, TEST, products_agree, products_agree(on))
TEST_ON(hip, FULL_TEST, products_agree, products_agree(on))
