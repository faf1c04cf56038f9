/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/memory.c - all memory that is free, written and read with patterns, and how fast each NUMA node gives it.
 *
 * Threads bound to the processors of a NUMA node take blocks of its memory until the time for it is over or little is
 * left. Every pattern is written to all blocks before the first is read again. The seed of a block is its own, so a
 * word that is at two addresses is seen.
 */
#include "apps/node/checks.h"
#include "apps/node/memory.h"
#include "apps/node/memory_words.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/root.h"
#include "stats/summary.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 64 << 20, WORDS = BLOCK / 8, NODES = 64, ROUNDS = 8, TOLD = 3 };

typedef enum { TAKE, FILL, CHECK, READ } work;

typedef struct {
    int     node; /* of NUMA; -1: the system shows none */
    int64_t left; /* bytes that may still be taken; shared by its threads */
    double  rates[ROUNDS];
    int     rounds;
} bank;

typedef struct {
    pthread_t  thread;
    int        cpu;
    bank      *bank;
    work       work;
    int        pattern;
    uint64_t   seed;
    int64_t    until_ns;
    uint64_t **blocks; /* of this thread */
    size_t     n, room;
    double     seconds; /* of its processor's time that the last work took */
    uint64_t   sum;
    size_t     bad; /* words */
    struct {
        size_t   block, word;
        uint64_t read, wrote;
        int      pattern;
    } told[TOLD];
    int n_told;
} hand;

static double processor_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static uint64_t seed_of(const hand *h, size_t block)
{
    return h->seed + ((uint64_t)h->cpu << 40) + ((uint64_t)block << 24);
}

static bool take_block(hand *h)
{
    static const int bind = 2; /* MPOL_BIND of mbind(2) */
    unsigned long    mask[NODES / (8 * sizeof(unsigned long))] = { 0 };
    if (__atomic_fetch_sub(&h->bank->left, BLOCK, __ATOMIC_RELAXED) < BLOCK) return false;
    void *at = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return false;
    if (h->bank->node >= 0) {
        mask[(size_t)h->bank->node / (8 * sizeof *mask)] |= 1UL << (size_t)h->bank->node % (8 * sizeof *mask);
        (void)syscall(SYS_mbind, at, (size_t)BLOCK, bind, mask, NODES + 1UL, 0U); /* refused: wherever it is */
    }
    h->blocks = tm_grow(h->blocks, &h->room, h->n, sizeof(uint64_t *));
    h->blocks[h->n++] = at;
    return true;
}

static void check_block(hand *h, size_t block)
{
    size_t first = 0, bad = tm_memory_check(h->blocks[block], WORDS, h->pattern, seed_of(h, block), &first);
    h->bad += bad;
    if (bad == 0 || h->n_told == TOLD) return;
    h->told[h->n_told].block = block, h->told[h->n_told].word = first;
    h->told[h->n_told].read = h->blocks[block][first];
    h->told[h->n_told].wrote = tm_memory_word(first, h->pattern, seed_of(h, block));
    h->told[h->n_told++].pattern = h->pattern;
}

static void *do_work(void *data)
{
    hand     *h = data;
    cpu_set_t mask;
    CPU_ZERO(&mask);
    if (h->cpu < CPU_SETSIZE) CPU_SET(h->cpu, &mask);
    (void)sched_setaffinity(0, sizeof mask, &mask);
    double begun = processor_seconds();
    if (h->work == TAKE)
        while (tm_now_ns() < h->until_ns && take_block(h))
            tm_memory_fill(h->blocks[h->n - 1], WORDS, h->pattern, seed_of(h, h->n - 1));
    for (size_t i = 0; i < h->n && h->work != TAKE; i++) {
        if (h->work == FILL) tm_memory_fill(h->blocks[i], WORDS, h->pattern, seed_of(h, i));
        if (h->work == CHECK) check_block(h, i);
        if (h->work == READ) h->sum ^= tm_memory_read(h->blocks[i], WORDS);
    }
    h->seconds = processor_seconds() - begun;
    return NULL;
}

static tm_status all_work(hand *hands, int n, work what, int pattern, tm_error *err)
{
    int started = 0;
    for (; started < n; started++) {
        hands[started].work = what, hands[started].pattern = pattern;
        if (pthread_create(&hands[started].thread, NULL, do_work, &hands[started]) != 0) break;
    }
    for (int i = 0; i < started; i++) pthread_join(hands[i].thread, NULL);
    return started == n ? TM_OK : tm_fail(err, TM_UNSUPPORTED, "the system gives no thread for each processor");
}

/* --- what there is ----------------------------------------------------------------------------- */

/* Bytes of a NUMA node that are free, or hold what can be dropped. */
static int64_t free_of_node(const char *sysroot, int node)
{
    char    path[96];
    tm_text text = { 0 };
    double  kib[3] = { 0 };
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d/meminfo", node);
    bool read = tm_root_read(sysroot, path, 1 << 16, &text);
    for (int i = 0; i < 3 && read; i++) {
        static const char *const names[] = { "MemFree:", "FilePages:", "Shmem:" };
        const char              *at = strstr(text.data, names[i]);
        if (at) kib[i] = strtod(at + strlen(names[i]), NULL);
    }
    tm_text_fini(&text);
    return read ? (int64_t)(1024 * (kib[0] + 0.8 * fmax(kib[1] - kib[2], 0))) : 0;
}

static int node_of_cpu(const char *sysroot, int cpu, const bool there[NODES])
{
    char path[96];
    for (int node = 0; node < NODES; node++) {
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/node%d", cpu, node);
        if (there[node] && tm_root_exists(sysroot, path)) return node;
    }
    return -1;
}

/* A thread for each processor that this process may use. banks[NODES + 1]: the last one is of no node. */
static int make_hands(const tm_node_task *task, bank *banks, hand *hands, int most)
{
    const char *sysroot = task->options->sysroot;
    cpu_set_t   mask;
    bool        there[NODES];
    int         n = 0;
    char        path[96];
    for (int node = 0; node < NODES; node++) {
        snprintf(path, sizeof path, "/sys/devices/system/node/node%d", node);
        there[node] = tm_root_exists(sysroot, path);
        banks[node] = (bank){ .node = node };
        if (there[node]) banks[node].left = (int64_t)(0.9 * (double)free_of_node(sysroot, node));
    }
    banks[NODES] = (bank){ .node = -1, .left = INT64_MAX };
    if (sched_getaffinity(0, sizeof mask, &mask) != 0) return 0;
    for (int cpu = 0; cpu < CPU_SETSIZE && n < most; cpu++) {
        if (!CPU_ISSET((size_t)cpu, &mask)) continue;
        int node = node_of_cpu(sysroot, cpu, there);
        hands[n++] = (hand){ .cpu = cpu, .bank = &banks[node >= 0 ? node : NODES], .seed = task->options->seed };
    }
    return n;
}

/* All of it is at most 0.9 of what the machine, or the control group, has left: of the nodes, each its share, and of
 * the ranks of a host, each the same. */
static void limit_banks(const tm_node_task *task, bank *banks)
{
    double most = 0.9 * (double)tm_memory_available_bytes(task->options->sysroot) / task->on_host, sum = 0;
    for (int i = 0; i < NODES; i++) sum += (double)banks[i].left;
    for (int i = 0; i < NODES && sum > most; i++) banks[i].left = (int64_t)((double)banks[i].left * most / sum);
    if (banks[NODES].left > (int64_t)most) banks[NODES].left = (int64_t)most;
}

/* --- what was found ------------------------------------------------------------------------------ */

static void place_of(const bank *b, char place[TM_NODE_PLACE])
{
    if (b->node < 0)
        snprintf(place, TM_NODE_PLACE, "memory");
    else
        snprintf(place, TM_NODE_PLACE, "memory of NUMA node %d", b->node);
}

/* ", physical address 0x..." where the system tells (only root may ask). */
static void physical(const void *at, char *text, size_t size)
{
    uint64_t  entry = 0;
    long      page = sysconf(_SC_PAGESIZE);
    int       fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    uintptr_t address = (uintptr_t)at;
    text[0] = '\0';
    if (fd < 0) return;
    const uint64_t frame = (UINT64_C(1) << 55) - 1;
    if (pread(fd, &entry, sizeof entry, (off_t)(address / (uintptr_t)page * sizeof entry)) == sizeof entry &&
        (entry & frame))
        snprintf(text, size, ", physical address 0x%llx",
                 (unsigned long long)((entry & frame) * (uint64_t)page + address % (uintptr_t)page));
    close(fd);
}

static void tell(const hand *h, tm_node_outcome *out)
{
    char place[TM_NODE_PLACE], where[64];
    place_of(h->bank, place);
    for (int i = 0; i < h->n_told; i++) {
        physical(h->blocks[h->told[i].block] + h->told[i].word, where, sizeof where);
        tm_node_find(out, -1, place,
                     "a word reads 0x%016llx where 0x%016llx was written (pattern %d)%s; the thread of "
                     "processor %d saw %zu such words",
                     (unsigned long long)h->told[i].read, (unsigned long long)h->told[i].wrote, h->told[i].pattern,
                     where, h->cpu, h->bad);
    }
}

/* GB/s of a node for each of its processors, while all of them read, by their own time. */
static void rate(hand *hands, int n, bank *banks)
{
    for (int b = 0; b <= NODES; b++) {
        double bytes = 0, seconds = 0;
        for (int i = 0; i < n; i++)
            if (hands[i].bank == &banks[b]) bytes += (double)hands[i].n * BLOCK, seconds += hands[i].seconds;
        if (seconds > 0 && banks[b].rounds < ROUNDS) banks[b].rates[banks[b].rounds++] = bytes / seconds * 1e-9;
    }
}

static void add_figures(const bank *banks, tm_node_outcome *out)
{
    for (int b = 0; b <= NODES; b++) {
        const bank    *k = &banks[b];
        tm_node_figure f = { .name = "memory read by a processor",
                             .unit = "GB/s",
                             .sense = TM_NODE_SPEED,
                             .low = (double)NAN,
                             .high = (double)NAN,
                             .floor = (double)NAN };
        if (k->rounds == 0) continue;
        place_of(k, f.place);
        f.value = tm_stats_median(k->rates, k->rounds);
        if (k->rounds >= 6) {
            tm_interval i = tm_stats_median_interval(k->rates, k->rounds);
            double      first = tm_stats_median(k->rates, k->rounds / 2);
            double      second = tm_stats_median(k->rates + k->rounds / 2, k->rounds - k->rounds / 2);
            f.low = i.lo, f.high = i.hi;
            f.floor = fmax(0.03, fabs(first - second) / f.value);
        }
        tm_node_figure_add(out, &f);
    }
}

/* --- corrected and uncorrected errors ------------------------------------------------------------ */

/* Of all memory controllers (EDAC); -1: the system shows none. */
static int64_t count_errors(const char *sysroot, const char *which)
{
    static const char folder[] = "/sys/devices/system/edac/mc";
    tm_arena         *arena = tm_arena_create();
    size_t            n;
    int64_t           sum = -1;
    const char      **names = tm_root_list(sysroot, folder, 256, arena, &n);
    for (size_t i = 0; i < n; i++) {
        char path[128], line[32];
        snprintf(path, sizeof path, "%s/%.32s/%s", folder, names[i], which);
        if (strncmp(names[i], "mc", 2) == 0 && tm_root_read_line(sysroot, path, line, sizeof line))
            sum = (sum < 0 ? 0 : sum) + strtoll(line, NULL, 10);
    }
    tm_arena_destroy(arena);
    return sum;
}

static void compare_errors(const char *sysroot, const int64_t before[2], tm_node_outcome *out)
{
    static const char *const which[] = { "ce_count", "ue_count" }, *const what[] = { "corrected", "uncorrected" };
    for (int i = 0; i < 2; i++) {
        int64_t now = count_errors(sysroot, which[i]);
        if (before[i] >= 0 && now > before[i])
            tm_node_find(out, -1, "memory controllers", "%lld %s errors while memory was checked; expected none",
                         (long long)(now - before[i]), what[i]);
    }
}

/* --- the check ------------------------------------------------------------------------------------- */

/* Patterns in their order, as often as time permits, at least the first two. *done: how many. */
static tm_status try_patterns(hand *hands, int n, int64_t end_ns, int *done, tm_error *err)
{
    TM_TRY(all_work(hands, n, CHECK, TM_MEMORY_HASH, err));
    int64_t begun = tm_now_ns(), longest = 0;
    for (*done = 1; *done < TM_MEMORY_PATTERNS && (*done < 2 || begun + longest < end_ns); (*done)++) {
        TM_TRY(all_work(hands, n, FILL, *done, err));
        TM_TRY(all_work(hands, n, CHECK, *done, err));
        int64_t now = tm_now_ns();
        longest = now - begun > longest ? now - begun : longest;
        begun = now;
    }
    return TM_OK;
}

static tm_status check_host(const tm_node_task *task, double seconds, hand *hands, int n, bank *banks,
                            tm_node_outcome *out, tm_error *err)
{
    const char   *sysroot = task->options->sysroot;
    const int64_t begun = tm_now_ns(), all = (int64_t)(seconds * 1e9);
    const int64_t before[2] = { count_errors(sysroot, "ce_count"), count_errors(sysroot, "ue_count") };
    int           patterns = 0;
    double        bytes = 0;
    char          covered[32], total[32];
    for (int i = 0; i < n; i++) hands[i].until_ns = begun + all / 5;
    TM_TRY(all_work(hands, n, TAKE, TM_MEMORY_HASH, err));
    TM_TRY(try_patterns(hands, n, begun + all * 8 / 10, &patterns, err));
    for (int i = 0; i < ROUNDS; i++) {
        TM_TRY(all_work(hands, n, READ, 0, err));
        rate(hands, n, banks);
    }
    compare_errors(sysroot, before, out);
    for (int i = 0; i < n; i++) tell(&hands[i], out), bytes += (double)hands[i].n * BLOCK;
    add_figures(banks, out);
    tm_node_reach(out, "a bit that is stuck, or an address that is another, in %s of %s (%d patterns)",
                  tm_format_bytes(covered, bytes), tm_format_bytes(total, (double)tm_memory_total_bytes(sysroot)),
                  patterns);
    return bytes > 0 ? TM_OK : tm_fail(err, TM_UNSUPPORTED, "less than 64 MiB of memory are free for it");
}

static void give_back(hand *hands, int n)
{
    for (int i = 0; i < n; i++) {
        for (size_t b = 0; b < hands[i].n; b++) munmap(hands[i].blocks[b], BLOCK);
        free(hands[i].blocks);
    }
    free(hands);
}

/* Of the devices that have memory of their own, one after the other. */
static tm_status check_devices(const tm_node_task *task, tm_node_places *places, double seconds, tm_node_outcome *out,
                               tm_error *err)
{
    char text[32];
    for (size_t i = 0; i < places->n; i++) {
        double covered;
        if (!tm_device_describe(places->items[i].device)->own_memory) continue;
        TM_TRY(tm_node_device_memory(&places->items[i], seconds, task->options->seed, out, &covered, err));
        tm_text reach = { 0 };
        tm_text_printf(&reach, "%s; %s of %s", out->reach, tm_format_bytes(text, covered), places->items[i].name);
        tm_node_reach(out, "%s", reach.data);
        tm_text_fini(&reach);
    }
    return TM_OK;
}

tm_status node_check_memory(const tm_node_task *task, tm_node_outcome *out, tm_error *err)
{
    bank           banks[NODES + 1];
    tm_node_places places = { 0 };
    double         parts = 1;
    TM_TRY(tm_node_places_open(task, &places, err));
    for (size_t i = 0; i < places.n; i++) parts += tm_device_describe(places.items[i].device)->own_memory;
    hand *hands = tm_alloc(CPU_SETSIZE * sizeof *hands);
    int   n = make_hands(task, banks, hands, CPU_SETSIZE);
    limit_banks(task, banks);
    tm_status st = n > 0 ? check_host(task, task->seconds / parts, hands, n, banks, out, err)
                         : tm_fail(err, TM_UNSUPPORTED, "the system does not tell which processors may be used");
    give_back(hands, n);
    if (st == TM_OK) st = check_devices(task, &places, task->seconds / parts, out, err);
    tm_node_places_close(&places);
    return st;
}
