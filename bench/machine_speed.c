/* SPDX-License-Identifier: Apache-2.0 */
/* bench/machine_speed.c - the rate of tests/machine/'s interpreters beside that of another emulator, launch by launch
 * in turns, on one core, by processor time. Both run the same text with all of their checks, in the lazy order; they
 * must leave the same numbers, and execute as many instructions (the other one of PTX may count those whose lanes are
 * all off).
 *
 *   machine_speed gcn|ptx LIBRARY TEXT [rounds [kernel]]
 *
 * LIBRARY has emu_load, emu_run and emu_error (ptx: ptx_...), TEXT the kernels below. Kernels that TEXT does not have
 * are left out. A line a kernel: instructions of waves a second of both, the median of the ratios of pairs of launches,
 * the lowest and the highest; of products also floating-point operations. bench/machine_speed.sh makes all of them.
 */
#include "machine/machine.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BUFFERS = 8, ROUNDS = 99 };

/* --- kernels ------------------------------------------------------------------------------------- */

/* Arguments, a letter each: b, f buffers of bfloat16 and float32, in capitals what is written; i, q a number of 32 or
 * 64 bits, e a small float32. */
typedef struct work {
    const char *kernel, *arguments;
    int         blocks[3], threads;
    long        sizes[BUFFERS]; /* elements of buffers, or the number */
    double      flops;          /* of a product */
} work;

static const work works[] = {
    { "gemm_mfma", "Bbbiii", { 4, 4, 1 }, 256, { 262144, 131072, 131072, 512, 512, 256 }, 2.0 * 512 * 512 * 256 },
    { "gemm_mma", "Bbbiii", { 4, 4, 1 }, 128, { 262144, 131072, 131072, 512, 512, 256 }, 2.0 * 512 * 512 * 256 },
    { "flash_mfma", "BFbbbie", { 2, 2, 1 }, 256, { 32768, 512, 32768, 32768, 32768, 256 }, 0 },
    { "rmsnorm_fwd", "BFbbie", { 16, 1, 1 }, 256, { 65536, 16, 65536, 4096, 4096 }, 0 },
    { "xent", "BFtiie", { 16, 1, 1 }, 256, { 65536, 16, 16, 4096, 4096 }, 0 },
    { "swiglu_fwd", "Bbbq", { 64, 1, 1 }, 256, { 65536, 65536, 65536, 65536 }, 0 },
    { "gemm_tn", "Bbbiii", { 2, 2, 1 }, 256, { 16384, 8192, 8192, 128, 128, 64 }, 0 },
};

static int bytes_of(char kind)
{
    return kind == 'b' || kind == 'B' ? 2 : 4;
}

/* An element of a buffer: numbers between -1 and 1, of a target a class. */
static void fill(uint8_t *to, char kind, long n, uint32_t seed)
{
    for (long i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        float    x = (float)(int32_t)seed * 0x1p-31f;
        uint32_t bits;
        memcpy(&bits, &x, 4);
        if (kind == 't') bits = (uint32_t)i * 7;
        if (bytes_of(kind) == 2) bits >>= 16;
        memcpy(to + i * bytes_of(kind), &bits, (size_t)bytes_of(kind));
    }
}

/* --- both sides ---------------------------------------------------------------------------------- */

typedef struct their_buffer {
    uint64_t base, bytes;
    void    *shadow;
} their_buffer;
typedef struct their_options {
    int lazy, order, skip, races;
} their_options;

typedef struct theirs {
    void *module;
    void *(*load)(const char *path);
    int (*run)(void *module, const char *kernel, const int *grid, const int *block, const void *arguments, int bytes,
               their_buffer *buffers, int n, their_options *options, uint64_t *executed);
    const char *(*error)(void *module);
} theirs;

typedef struct side {
    uint8_t  arguments[256];
    int      bytes;
    uint8_t *at[BUFFERS]; /* where the host has the buffers */
    uint64_t executed;
    double   seconds;
} side;

static void stop(const char *what, const char *why)
{
    fprintf(stderr, "machine_speed: %s: %s\n", what, why);
    exit(1);
}

static double processor_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void append(side *s, const void *x, int bytes)
{
    s->bytes = (s->bytes + bytes - 1) / bytes * bytes;
    memcpy(s->arguments + s->bytes, x, (size_t)bytes);
    s->bytes += bytes;
}

/* The arguments of a launch, with buffers in memory of the module's, or in the host's. */
static int place(side *s, const work *w, machine_memory *memory, their_buffer *buffers)
{
    int n = 0;
    *s = (side){ 0 };
    for (int i = 0; w->arguments[i]; i++) {
        char     kind = w->arguments[i];
        int      number = (int)w->sizes[i];
        int64_t  wide = w->sizes[i];
        float    small = 0.125f;
        uint64_t bytes = (uint64_t)w->sizes[i] * (uint64_t)bytes_of(kind), address;
        if (kind == 'i') append(s, &number, 4);
        if (kind == 'q') append(s, &wide, 8);
        if (kind == 'e') append(s, &small, 4);
        if (strchr("iqe", kind)) continue;
        if (memory) {
            address = machine_alloc(memory, bytes);
            s->at[n] = machine_at(memory, address, bytes);
        } else {
            s->at[n] = aligned_alloc(256, (bytes + 255) / 256 * 256);
            if (!s->at[n]) abort();
            address = (uint64_t)(uintptr_t)s->at[n];
            buffers[n] = (their_buffer){ address, bytes, NULL };
        }
        append(s, &address, 8);
        n++;
    }
    return n;
}

/* Inputs as they were, results all NaN. */
static void reset(const side *s, const work *w)
{
    for (int i = 0, n = 0; w->arguments[i]; i++) {
        char kind = w->arguments[i];
        if (strchr("iqe", kind)) continue;
        memset(s->at[n], 0xff, (size_t)w->sizes[i] * (size_t)bytes_of(kind));
        if (kind >= 'a' || strcmp(w->kernel, "xent") == 0) fill(s->at[n], kind, w->sizes[i], (uint32_t)i + 1);
        n++;
    }
}

static uint64_t executed(const machine_module *m, const char *kernel)
{
    uint64_t sum = 0;
    for (int k = 0; k < machine_kernels(m); k++) {
        const machine_kernel *it = machine_kernel_at(m, k);
        for (int i = it->first; strcmp(it->name, kernel) == 0 && i < it->end; i++)
            sum += machine_instruction_at(m, i).executed;
    }
    return sum;
}

static void run_ours(machine_module *m, const work *w, side *s, machine_memory *memory)
{
    char           error[MACHINE_ERROR_ROOM];
    machine_launch l = { .kernel = w->kernel, .arguments = s->arguments, .argument_bytes = (size_t)s->bytes };
    machine_order  lazy = { .skip = -1 };
    for (int i = 0; i < 3; i++) l.blocks[i] = (uint32_t)w->blocks[i], l.threads[i] = i ? 1 : (uint32_t)w->threads;
    uint64_t before = executed(m, w->kernel);
    double   start = processor_seconds();
    if (!machine_run(m, memory, &l, &lazy, NULL, error)) stop(w->kernel, error);
    s->seconds = processor_seconds() - start;
    s->executed = executed(m, w->kernel) - before;
}

static void run_theirs(theirs *t, const work *w, side *s, their_buffer *buffers, int n)
{
    int           block[3] = { w->threads, 1, 1 };
    their_options lazy = { 1, 0, -1, 1 };
    double        start = processor_seconds();
    if (t->run(t->module, w->kernel, w->blocks, block, s->arguments, s->bytes, buffers, n, &lazy, &s->executed))
        stop(w->kernel, t->error(t->module));
    s->seconds = processor_seconds() - start;
}

/* The largest difference of results, over the largest result. */
static double difference(const work *w, const side *a, const side *b)
{
    double most = 0, large = 0;
    for (int i = 0, n = 0; w->arguments[i]; i++) {
        char kind = w->arguments[i];
        if (strchr("iqe", kind)) continue;
        for (long k = 0; kind < 'a' && k < w->sizes[i]; k++) {
            float x[2];
            for (int side_of = 0; side_of < 2; side_of++) {
                const uint8_t *at = (side_of ? b : a)->at[n] + k * bytes_of(kind);
                uint32_t       bits = 0;
                memcpy((uint8_t *)&bits + 4 - bytes_of(kind), at, (size_t)bytes_of(kind));
                memcpy(&x[side_of], &bits, 4);
            }
            if (!isfinite(x[0]) || !isfinite(x[1])) return NAN;
            most = fmax(most, fabs((double)x[0] - (double)x[1]));
            large = fmax(large, fabs((double)x[0]));
        }
        n++;
    }
    return most / large;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, ascending);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

/* One kernel by both in turns, and its line. */
static void compare(machine_module *m, theirs *t, const work *w, int rounds)
{
    double          ratio[ROUNDS], ours[ROUNDS], other[ROUNDS], apart = 0;
    machine_memory *memory = machine_memory_new();
    their_buffer    buffers[BUFFERS];
    side            a, b;
    int             n = place(&b, w, NULL, buffers);
    place(&a, w, memory, NULL);
    for (int r = -1; r < rounds; r++) { /* the first is not counted */
        reset(&a, w);
        reset(&b, w);
        for (int turn = 0; turn < 2; turn++) {
            if ((r & 1) == turn)
                run_ours(m, w, &a, memory);
            else
                run_theirs(t, w, &b, buffers, n);
        }
        if (b.executed < a.executed || b.executed > a.executed + a.executed / 50)
            stop(w->kernel, "the two executed different numbers of instructions");
        double d = difference(w, &a, &b);
        if (!(d < 0.01)) stop(w->kernel, "the two computed different numbers");
        apart = fmax(apart, d);
        if (r >= 0) {
            ours[r] = (double)a.executed / a.seconds * 1e-6;
            other[r] = (double)a.executed / b.seconds * 1e-6;
            ratio[r] = ours[r] / other[r];
        }
    }
    for (int i = 0; i < n; i++) free(b.at[i]);
    machine_memory_free(memory);
    uint64_t count = executed(m, w->kernel) / (uint64_t)(rounds + 1);
    double   middle = median(ratio, rounds), mine = median(ours, rounds), yours = median(other, rounds);
    printf("| %s | %.2f | %.2f | %.2f | %.2f .. %.2f |", w->kernel, mine, yours, middle, ratio[0], ratio[rounds - 1]);
    if (w->flops > 0)
        printf(" %.2f | %.2f |", w->flops * 1e-3 * mine / (double)count, w->flops * 1e-3 * yours / (double)count);
    else
        printf(" | |");
    printf(" %.0e |\n", apart);
    fflush(stdout);
}

static char *read_file(const char *path)
{
    FILE *f = fopen(path, "r");
    if (!f) stop(path, "cannot be read");
    fseek(f, 0, SEEK_END);
    long  n = ftell(f);
    char *text = calloc((size_t)n + 1, 1);
    rewind(f);
    if (!text || fread(text, 1, (size_t)n, f) != (size_t)n) stop(path, "cannot be read");
    fclose(f);
    return text;
}

static void *symbol(void *library, const char *prefix, const char *name)
{
    char whole[32];
    snprintf(whole, sizeof whole, "%s_%s", prefix, name);
    void *got = dlsym(library, whole);
    if (!got) stop(whole, "not in the library");
    return got;
}

int main(int n, char **words)
{
    if (n < 4 || (strcmp(words[1], "gcn") && strcmp(words[1], "ptx"))) {
        fprintf(stderr, "machine_speed gcn|ptx LIBRARY TEXT [rounds [kernel]]\n");
        return 2;
    }
    char            error[MACHINE_ERROR_ROOM];
    bool            amd = strcmp(words[1], "gcn") == 0;
    const char     *prefix = amd ? "emu" : "ptx";
    int             rounds = n > 4 ? atoi(words[4]) : 7;
    char           *text = read_file(words[3]);
    machine_module *m = (amd ? machine_load_gcn : machine_load_ptx)(text, error);
    if (!m) stop(words[3], error);
    void *library = dlopen(words[2], RTLD_NOW);
    if (!library) stop(words[2], dlerror());
    theirs t = { NULL, symbol(library, prefix, "load"), symbol(library, prefix, "run"),
                 symbol(library, prefix, "error") };
    t.module = t.load(words[3]);
    if (rounds < 1 || rounds > ROUNDS) rounds = 7;
    for (size_t i = 0; i < sizeof works / sizeof *works; i++)
        for (int k = 0; k < machine_kernels(m); k++)
            if (strcmp(machine_kernel_at(m, k)->name, works[i].kernel) == 0 &&
                (n < 6 || strcmp(words[5], works[i].kernel) == 0))
                compare(m, &t, &works[i], rounds);
    machine_unload(m);
    free(text);
    return 0;
}
