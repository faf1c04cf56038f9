/* SPDX-License-Identifier: Apache-2.0 */
/* The probes of the machine: the stream kernels compute what they say, in every set of instructions and at every size;
 * the peak of the arithmetic is neither below nor far above what the matrix product reaches. */

#include "support/test.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "device/backend.h"
#include "support/fake_clock.h"
#include "support/training.h"
#include "device/ceilings.h"
#include "device/cpu/gemm.h"
#include "device/cpu/simd/kernels.h"
#include "device/cpu/simd/probes.h"

enum { GUARD = 8 };

static size_t probes_here(const tm_cpu_probe *out[3])
{
    size_t n = 0;
    out[n++] = &tm_cpu_probe_base;
#if defined(__x86_64__)
    tm_cpu_isa isa = tm_cpu_isa_probe();
    if (isa.avx2 && &tm_cpu_probe_avx2) out[n++] = &tm_cpu_probe_avx2;
    if (isa.avx512 && &tm_cpu_probe_avx512) out[n++] = &tm_cpu_probe_avx512;
#endif
    return n;
}

/* The arrays a[i] = i, b[i] = 2 i + 1, c[i] = 3 - i: sums and products of integers are exact. */
static void fill(double *a, double *b, double *c, int64_t n)
{
    for (int64_t i = 0; i < n; i++) a[i] = (double)i, b[i] = 2. * (double)i + 1, c[i] = 3. - (double)i;
}

/* What element i of the written array must be. */
static double wanted(tm_stream_kernel kernel, int64_t i, double s)
{
    double a = (double)i, b = 2. * (double)i + 1, c = 3. - (double)i;
    switch (kernel) {
    case TM_STREAM_COPY:
        return a;
    case TM_STREAM_MUL:
        return s * c;
    case TM_STREAM_ADD:
        return a + b;
    default:
        return b + s * c;
    }
}

static void check_kernel(const tm_cpu_probe *probe, tm_stream_kernel kernel, bool streaming, int64_t n)
{
    double *memory = aligned_alloc(64, (size_t)(n + 2 * GUARD + 64) / 8 * 8 * sizeof(double) * 3);
    int64_t span = (n + GUARD + 7) / 8 * 8;
    double *arrays[3] = { memory, memory + span, memory + 2 * span };
    fill(arrays[0], arrays[1], arrays[2], n);
    for (int k = 0; k < 3; k++)
        for (int64_t i = n; i < span; i++) arrays[k][i] = -77;
    double sum = probe->stream(kernel, streaming, 2, arrays[0], arrays[1], arrays[2], n);
    int    written = kernel == TM_STREAM_MUL ? 1 : kernel == TM_STREAM_TRIAD ? 0 : 2;
    double dot = 0;
    for (int64_t i = 0; i < n; i++) {
        dot += (double)i * (2. * (double)i + 1);
        if (kernel != TM_STREAM_DOT) assert_true(arrays[written][i] == wanted(kernel, i, 2));
    }
    assert_true(sum == (kernel == TM_STREAM_DOT ? dot : 0));
    for (int k = 0; k < 3; k++)
        for (int64_t i = n; i < span; i++) assert_true(arrays[k][i] == -77);
    free(memory);
}

static void stream_kernels_compute_what_they_say(void **state)
{
    (void)state;
    static const int64_t sizes[] = { 0, 1, 7, 8, 9, 31, 32, 33, 65, 1000 };
    const tm_cpu_probe  *probes[3];
    size_t               n = probes_here(probes);
    for (size_t p = 0; p < n; p++)
        for (int kernel = 0; kernel < TM_STREAM_COUNT; kernel++)
            for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
                check_kernel(probes[p], (tm_stream_kernel)kernel, false, sizes[i]);
                if (probes[p]->streams) check_kernel(probes[p], (tm_stream_kernel)kernel, true, sizes[i]);
            }
}

/* All threads together cover every element once, also where the parts are uneven or empty. */
static void threads_share_the_arrays(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 5; threads += 2)
        for (int64_t n = 1; n < 200; n += 37) {
            tm_device *device;
            assert_ok(tm_device_open("cpu", threads, &device, err));
            double *a = aligned_alloc(64, 256 * sizeof(double)), *b = aligned_alloc(64, 256 * sizeof(double));
            double *c = aligned_alloc(64, 256 * sizeof(double));
            tm_device_stream_fill(device, a, 1, b, 2, c, 3, n);
            assert_true(tm_device_stream(device, TM_STREAM_DOT, false, 0, a, b, c, n) == 2. * (double)n);
            (void)tm_device_stream(device, TM_STREAM_TRIAD, tm_device_streams(device), 4, a, b, c, n);
            for (int64_t i = 0; i < n; i++) assert_true(a[i] == 14 && b[i] == 2 && c[i] == 3);
            free(a), free(b), free(c);
            tm_device_close(device);
        }
}

/* FLOPs of a round: 64 steps of every chain, an addition and a multiplication each where they are fused. */
static void peaks_count_what_they_compute(void **state)
{
    (void)state;
    static const struct {
        const char *isa;
        int         lanes, chains;
        bool        fused;
    } rows[] = { { "base", 4, 12, false }, { "avx2", 8, 12, true }, { "avx512", 16, 24, true } };
    const tm_cpu_probe *probes[3];
    size_t              n = probes_here(probes);
    tm_cpu_isa          isa = tm_cpu_isa_probe();
    for (size_t p = 0; p < n; p++) {
        int    chains = probes[p]->chains, lanes = probes[p]->lanes;
        size_t row = 0;
        while (strcmp(rows[row].isa, probes[p]->isa)) assert_true(++row < 3);
        if (lanes != rows[row].lanes || chains != rows[row].chains || probes[p]->fused != rows[row].fused)
            fail_msg("%s: %d lanes, %d chains, fused %d", rows[row].isa, lanes, chains, probes[p]->fused);
        for (int64_t rounds = 0; rounds < 4; rounds++) {
            double steps = (double)rounds * 64;
            assert_true(probes[p]->multiply_add(rounds) == steps * chains * lanes * (rows[row].fused ? 2 : 1));
            if (isa.avx512_bf16 && probes[p]->multiply_add_bf16)
                assert_true(probes[p]->multiply_add_bf16(rounds) == steps * chains * lanes * 4);
            if (isa.amx && probes[p]->multiply_add_tiles && tm_cpu_allow_tiles())
                assert_true(probes[p]->multiply_add_tiles(rounds) == (double)rounds * 6 * 16 * 16 * 32 * 2);
        }
    }
    static const char *const names[] = { "copy", "mul", "add", "triad", "dot" };
    static const int64_t     bytes[] = { 16, 16, 24, 24, 16 };
    for (int k = 0; k < TM_STREAM_COUNT; k++) {
        assert_string_equal(tm_stream_name((tm_stream_kernel)k), names[k]);
        assert_int_equal(tm_stream_bytes((tm_stream_kernel)k), bytes[k]);
    }
}

/* Processors by what their CPUID says: vendor, EAX of leaf 1; instruction sets: none, AVX2, AVX-512, too. */
static void data_sheets_tell_widths(void **state)
{
    (void)state;
    static const struct {
        const char  *vendor;
        unsigned     signature;
        tm_fma_width with[3];
    } rows[] = {
        { "AuthenticAMD", 0x00600f12, { { 0, 0 }, { 0, 0 }, { 0, 0 } } },  /* Bulldozer: family 15h */
        { "AuthenticAMD", 0x00800f12, { { 2, 4 }, { 2, 4 }, { 2, 4 } } },  /* Zen: 17h, model 01h */
        { "AuthenticAMD", 0x00820ff1, { { 2, 4 }, { 2, 4 }, { 2, 4 } } },  /* 2fh: the last before Zen 2 */
        { "AuthenticAMD", 0x00830f00, { { 2, 8 }, { 2, 8 }, { 2, 8 } } },  /* Zen 2: 30h */
        { "AuthenticAMD", 0x00a10f11, { { 2, 8 }, { 2, 8 }, { 2, 8 } } },  /* Zen 4: 19h */
        { "AuthenticAMD", 0x00b00f21, { { 0, 0 }, { 0, 0 }, { 2, 16 } } }, /* Zen 5: 1ah */
        { "AuthenticAMD", 0x000606a6, { { 0, 0 }, { 0, 0 }, { 0, 0 } } },  /* Intel's number is no one's of AMD */
        { "GenuineIntel", 0x00830f10, { { 0, 0 }, { 0, 0 }, { 0, 0 } } },
        { "GenuineIntel", 0x000606a6, { { 0, 0 }, { 2, 8 }, { 2, 16 } } }, /* Ice Lake of servers */
        { "GenuineIntel", 0x000606c1, { { 0, 0 }, { 2, 8 }, { 2, 16 } } },
        { "GenuineIntel", 0x000806f8, { { 0, 0 }, { 2, 8 }, { 2, 16 } } }, /* Sapphire Rapids */
        { "GenuineIntel", 0x000c06f2, { { 0, 0 }, { 2, 8 }, { 2, 16 } } },
        { "GenuineIntel", 0x000a06d0, { { 0, 0 }, { 2, 8 }, { 2, 16 } } },
        { "GenuineIntel", 0x000a06e0, { { 0, 0 }, { 2, 8 }, { 2, 16 } } },
        { "GenuineIntel", 0x00050654, { { 0, 0 }, { 2, 8 }, { 0, 0 } } }, /* Skylake of servers: one unit or two */
        { "GenuineIntel", 0x000306c3, { { 0, 0 }, { 2, 8 }, { 0, 0 } } }, /* Haswell */
        { "GenuineIntel", 0x00000f43, { { 0, 0 }, { 0, 0 }, { 0, 0 } } }, /* Pentium 4 */
        { "CentaurHauls", 0x000306c3, { { 0, 0 }, { 0, 0 }, { 0, 0 } } },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int s = 0; s < 3; s++) {
            tm_cpu_isa   isa = { .avx2 = s > 0, .avx512 = s > 1 };
            tm_fma_width w = tm_datasheet_width(rows[i].vendor, rows[i].signature, isa);
            if (w.units != rows[i].with[s].units || w.lanes != rows[i].with[s].lanes)
                fail_msg("%s %08x, set %d: %d x %d", rows[i].vendor, rows[i].signature, s, w.units, w.lanes);
        }
}

/* How long each pattern takes in each of the three rounds: [reading, rewriting, copying, triad]. */
enum { ROUNDS = 3, PATTERNS = 4, READ_NS = 1000000 };
static struct {
    uint64_t first; /* the regions before: touching the memory, arithmetic */
    int64_t  ns[ROUNDS][PATTERNS];
} told;

static int64_t time_told(uint64_t region)
{
    return region < told.first ? 0 : told.ns[(region - told.first) / PATTERNS][(region - told.first) % PATTERNS];
}

/* By a clock that is told how long each sample takes: what is best of them, of which pattern, and how far off the
 * median of its samples is. Rewriting moves each byte twice. */
static void the_best_sample_of_the_best_pattern_counts(void **state)
{
    (void)state;
    static const struct {
        int64_t     ms[ROUNDS][PATTERNS], best, median;
        double      passes;
        const char *name;
    } rows[] = {
        { { { 50, 70, 60, 60 }, { 21, 70, 60, 60 }, { 23, 70, 60, 60 } }, 21, 23, 1, "reading" },
        { { { 50, 70, 30, 60 }, { 50, 70, 29, 60 }, { 50, 39, 26, 60 } }, 39, 70, 2, "rewriting in place" },
        { { { 50, 90, 50, 17 }, { 50, 90, 50, 90 }, { 50, 90, 50, 15 } }, 15, 17, 1, "triad past the caches" },
        { { { 30, 90, 30, 30 }, { 30, 90, 40, 50 }, { 40, 90, 50, 60 } },
          30,
          30,
          1,
          "reading" }, /* the first of equals */
    };
    const tm_cpu_probe *probes[3], *probe = probes[probes_here(probes) - 1];
    int64_t             cache = tm_cpu_last_level_bytes(""), bytes = 4 * (cache > 0 ? cache : (int64_t)64 << 20);
    if (bytes > (int64_t)1 << 30) bytes = (int64_t)1 << 30;
    bytes = bytes / 64 * 64;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tm_device  *device = test_device_open("cpu", 1);
        tm_ceilings c;
        char        how[128];
        for (int k = 0; k < ROUNDS * PATTERNS; k++)
            told.ns[k / PATTERNS][k % PATTERNS] = rows[i].ms[k / PATTERNS][k % PATTERNS] * 1000000;
        fake_clock_start(READ_NS, 0);
        tm_device_arithmetic(device, 0, 0, &c);
        told.first = 1 + fake_clock.regions;
        fake_clock_start(READ_NS, 0);
        fake_clock.takes = time_told;
        assert_ok(tm_device_ceilings(device, 0, &c, err));
        assert_int_equal(fake_clock.regions, told.first + ROUNDS * PATTERNS);
        fake_clock_stop();
        double best = rows[i].passes * (double)bytes / (double)(rows[i].best + 1) * 1e3; /* and a reading */
        double off = 1 - (double)(rows[i].best + 1) / (double)(rows[i].median + 1);
        snprintf(how, sizeof how, "%s, %lld MiB, 1 thread", rows[i].name, (long long)(bytes >> 20));
        assert_string_equal(c.bytes_how, how);
        assert_true(fabs(c.bytes / best - 1) < 1e-12 && fabs(c.bytes_spread - off) < 1e-12);
        /* 100 rounds of the first look took a millisecond: samples of 2 ms, and one, as each lasts no longer */
        double flops = 201. * 64 * probe->chains * probe->lanes * (probe->fused ? 2 : 1) * 1e3;
        assert_true(fabs(c.flops / flops - 1) < 1e-12 && c.flops_spread == 0);
        tm_device_close(device);
    }
}

static int64_t processor_ns(void)
{
    struct timespec now;
    assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now), 0);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* FLOP/s of the fastest of some products; and of a processor, whoever else has it meanwhile. */
static double product_rate(const tm_device *device, double *of_a_processor)
{
    enum { SIDE = 768, TRIES = 20 };
    size_t  elements = (size_t)SIDE * SIDE;
    float  *a = tm_alloc(elements * 4), *b = tm_alloc(elements * 4), *c = tm_alloc(elements * 4);
    tm_gemm g = { .m = SIDE,
                  .n = SIDE,
                  .k = SIDE,
                  .a = { a, SIDE, false, TM_F32 },
                  .b = { b, SIDE, false, TM_F32 },
                  .c = c,
                  .ldc = SIDE,
                  .c_dtype = TM_F32,
                  .threads = device->info.threads };
    g.workspace = tm_alloc(TM_GEMM_WORKSPACE_MAX);
    double best = 0;
    *of_a_processor = 0;
    for (int i = 0; i < TRIES; i++) {
        int64_t start = tm_now_ns(), start_cpu = processor_ns();
        if (tm_cpu_kernel_tables("avx512"))
            tm_gemm_run_avx512(&g);
        else if (tm_cpu_kernel_tables("avx2"))
            tm_gemm_run_avx2(&g);
        else
            tm_gemm_run_base(&g);
        best = fmax(best, 2. * SIDE * SIDE * SIDE / ((double)(tm_now_ns() - start) * 1e-9));
        *of_a_processor =
            fmax(*of_a_processor, 2. * SIDE * SIDE * SIDE / ((double)(processor_ns() - start_cpu) * 1e-9));
    }
    free(a), free(b), free(c), free(g.workspace);
    return best;
}

static void nothing_beats_the_ceilings(void **state)
{
    (void)state;
    tm_device  *device;
    tm_ceilings ceilings, alone;
    assert_ok(tm_device_open("cpu", 0, &device, err));
    assert_ok(tm_device_ceilings(device, 0.1, &ceilings, err));
    double of_a_processor, rate = product_rate(device, &of_a_processor);
    tm_device_arithmetic(device, 1, 0.1, &alone);
    assert_true(alone.flops > 0 && alone.bytes == 0);
    printf("# %.1f GFLOP/s (%s), product %.1f, %.1f of a processor, %.1f GB/s (%s)\n", ceilings.flops * 1e-9,
           ceilings.flops_how, rate * 1e-9, of_a_processor * 1e-9, ceilings.bytes * 1e-9, ceilings.bytes_how);
    /* The margins are for a machine that others use at the same time; errors of counting are factors of two. */
    assert_true(rate <= 1.1 * fmax(ceilings.flops, alone.flops * device->info.threads));
    assert_true(of_a_processor >= ceilings.flops / device->info.threads / 8);
    assert_true(ceilings.flops_bf16 == 0 || ceilings.flops_bf16 >= ceilings.flops);
    assert_true(ceilings.bytes > 1e8 && ceilings.bytes < 1e13);
    assert_true(strlen(ceilings.flops_how) > 0 && strlen(ceilings.bytes_how) > 0);
    tm_device_close(device);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(stream_kernels_compute_what_they_say),
    cmocka_unit_test(threads_share_the_arrays),
    cmocka_unit_test(peaks_count_what_they_compute),
    cmocka_unit_test(data_sheets_tell_widths),
    cmocka_unit_test(the_best_sample_of_the_best_pattern_counts),
    cmocka_unit_test(nothing_beats_the_ceilings),
};

TEST_TABLE(tests)
TESTS_ALONE
