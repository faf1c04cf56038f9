/* SPDX-License-Identifier: Apache-2.0 */
/* The program of all fuzzers:
 *
 *     all TARGET [-t seconds] [-s seed] [-n number] [-o file] file-or-folder ...
 *
 * Without -t and -n: runs every seed once. With -t: runs mutations (flip, set, truncate, insert, erase, copy, splice)
 * of the seeds for that much processor time, in a child process; when it dies, the command that repeats the input is
 * printed. With -n: runs mutation `number` only; -o writes it to a file first. Mutation n is f(seed, n, seeds): nothing
 * else is needed to repeat it. Half of the insertions are lines of seeds: a seed `dictionary` has words of the
 * language. Exit status: 0 no finding, 1 a finding, 2 wrong usage or no seeds.
 */
#include "fuzz.h"

#include "base/file.h"
#include "base/lock.h"
#include "base/random.h"

#include <dirent.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

/* --- targets ------------------------------------------------------------------------------------------------------ */

static fuzz_target *targets;

void fuzz_add_target(fuzz_target *target)
{
    target->next = targets;
    targets = target;
}

static char folder[64];

static void folder_remove(void)
{
    tm_folder_remove(folder);
}

const char *fuzz_folder(void)
{
    if (*folder) return folder;
    strcpy(folder, access("/dev/shm", W_OK) == 0 ? "/dev/shm/tm-fuzz-XXXXXX" : "/tmp/tm-fuzz-XXXXXX");
    TM_ASSERT(mkdtemp(folder) && atexit(folder_remove) == 0);
    return folder;
}

const char *fuzz_file(const char *name, const void *data, size_t size)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", fuzz_folder(), name);
    FILE *file = fopen(path, "wb");
    TM_ASSERT(file && fwrite(data, 1, size, file) == size && fclose(file) == 0);
    return path;
}

void fuzz_told(tm_status st, const tm_error *err, const char *file)
{
    TM_ASSERT((st == TM_OK) == (err->status == TM_OK));
    TM_ASSERT(st == TM_OK || (tm_status_exit_code(st) == 4 && *err->text && strstr(err->text, file)));
}

void fuzz_utf8(const char *text)
{
    for (size_t n; *text; text += n) {
        n = tm_utf8_length((const unsigned char *)text);
        TM_ASSERT(n > 0);
    }
}

/* --- mutations ---------------------------------------------------------------------------------------------------- */

enum { FUZZ_MAX_SEEDS = 1024, FUZZ_MAX_BYTES = 1 << 16 };

typedef struct {
    uint8_t *data;
    size_t   size;
} fuzz_input;

typedef struct {
    const fuzz_target *target;
    fuzz_input         seeds[FUZZ_MAX_SEEDS];
    size_t             n_seeds;
    uint64_t           seed, draws, number; /* of the mutation being made */
    uint8_t            room[FUZZ_MAX_BYTES];
} fuzzer;

static void fuzz_add_file(fuzzer *f, const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file || f->n_seeds == FUZZ_MAX_SEEDS) {
        if (file) fclose(file);
        fprintf(stderr, "cannot read seed '%s'\n", path);
        exit(2);
    }
    fuzz_input *input = &f->seeds[f->n_seeds++];
    input->size = fread(f->room, 1, sizeof f->room, file);
    fclose(file);
    input->data = malloc(input->size + 1);
    if (!input->data) exit(2);
    memcpy(input->data, f->room, input->size);
}

static int fuzz_compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Files in the order of their names, so that a number means the same input everywhere. */
static void fuzz_add(fuzzer *f, const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) {
        fuzz_add_file(f, path);
        return;
    }
    char  *names[FUZZ_MAX_SEEDS], full[4096];
    size_t n = 0;
    DIR   *dir = opendir(path);
    for (struct dirent *d; dir && n < FUZZ_MAX_SEEDS && (d = readdir(dir));)
        if (d->d_name[0] != '.') names[n++] = strdup(d->d_name);
    if (dir) closedir(dir);
    qsort(names, n, sizeof *names, fuzz_compare);
    for (size_t i = 0; i < n; i++) {
        snprintf(full, sizeof full, "%s/%s", path, names[i]);
        fuzz_add_file(f, full);
        free(names[i]);
    }
}

static size_t fuzz_below(fuzzer *f, size_t n)
{
    return n ? (size_t)tm_random_below(f->seed, f->number, f->draws++, n) : 0;
}

/* Any bytes, or a line of a seed, of a long one a part. */
static size_t fuzz_insert(fuzzer *f, size_t size, size_t at)
{
    const fuzz_input *from = &f->seeds[fuzz_below(f, f->n_seeds)];
    size_t            n = 1 + fuzz_below(f, 16), begin = fuzz_below(f, from->size);
    bool              line = from->size > 0 && fuzz_below(f, 2);
    if (line) {
        for (size_t k = 0; k < 32 && begin > 0 && from->data[begin - 1] != '\n'; k++) begin--;
        for (n = 0; n < 64 && begin + n < from->size && from->data[begin + n] != '\n';) n++;
    }
    if (size + n > sizeof f->room) return size;
    memmove(f->room + at + n, f->room + at, size - at);
    for (size_t i = 0; i < n; i++) f->room[at + i] = line ? from->data[begin + i] : (uint8_t)fuzz_below(f, 256);
    return size + n;
}

static size_t fuzz_change(fuzzer *f, size_t size)
{
    static const uint8_t edges[] = { 0x00, 0x01, 0x7F, 0x80, 0xFF, 0xFE, '\n', '0' };
    uint8_t             *data = f->room;
    size_t               kind = fuzz_below(f, 8), at = fuzz_below(f, size), n = 1 + fuzz_below(f, 16);
    const fuzz_input    *other = &f->seeds[fuzz_below(f, f->n_seeds)];
    if (size == 0) kind = 4;
    if (n > size - at) n = size - at;
    switch (kind) {
    case 0:
        data[at] ^= (uint8_t)(1u << fuzz_below(f, 8));
        return size;
    case 1:
        data[at] = (uint8_t)fuzz_below(f, 256);
        return size;
    case 2:
        memset(data + at, edges[fuzz_below(f, sizeof edges)], n);
        return size;
    case 3:
        return fuzz_below(f, 8) ? size : at;
    case 4:
        return fuzz_insert(f, size, at);
    case 5:
        memmove(data + at, data + at + n, size - at - n);
        return size - n;
    case 6:
        memmove(data + at, data + fuzz_below(f, size - n + 1), n);
        return size;
    default: /* the rest from another seed */
        if (at >= other->size) return size;
        memcpy(data + at, other->data + at, other->size - at);
        return other->size;
    }
}

static void fuzz_one(fuzzer *f, uint64_t number, const char *write_to)
{
    f->number = number;
    f->draws = 0;
    const fuzz_input *seed = &f->seeds[fuzz_below(f, f->n_seeds)];
    size_t            size = seed->size, changes = 1 + fuzz_below(f, 4);
    memcpy(f->room, seed->data, size);
    while (changes-- > 0) size = fuzz_change(f, size);
    if (write_to) {
        FILE *file = fopen(write_to, "wb");
        if (!file || fwrite(f->room, 1, size, file) != size || fclose(file) != 0) exit(2);
    }
    uint8_t *exact = malloc(size ? size : 1); /* so that reading beyond the end is seen */
    if (!exact) exit(2);
    memcpy(exact, f->room, size);
    f->target->run(exact, size);
    free(exact);
}

static int fuzz_for(fuzzer *f, double seconds, const char *program)
{
    volatile uint64_t *at = mmap(NULL, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return 2;
    pid_t child = fork();
    if (child < 0) return 2;
    if (child == 0) {
        struct timespec from, now;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
        do {
            for (int i = 0; i < 64; i++, ++*at) fuzz_one(f, *at, NULL);
            clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
        } while ((double)(now.tv_sec - from.tv_sec) + 1e-9 * (double)(now.tv_nsec - from.tv_nsec) < seconds);
        exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) != child) return 2;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        printf("%s: %llu mutations of %zu seeds (seed %llu), no finding\n", program, (unsigned long long)*at,
               f->n_seeds, (unsigned long long)f->seed);
        return 0;
    }
    printf("%s: a finding; repeat it with -s %llu -n %llu and the same seeds\n", program, (unsigned long long)f->seed,
           (unsigned long long)*at);
    return 1;
}

int main(int argc, char **argv)
{
    static fuzzer f = { .seed = 1 };
    for (f.target = targets; f.target && argc > 1 && strcmp(f.target->name, argv[1]) != 0;) f.target = f.target->next;
    if (f.target) argc--, argv++;
    const char *seconds = NULL, *number = NULL, *write_to = NULL;
    for (int option; (option = getopt(argc, argv, "t:s:n:o:")) != -1;) {
        if (option == '?') return 2;
        if (option == 't') seconds = optarg;
        if (option == 's') f.seed = strtoull(optarg, NULL, 10);
        if (option == 'n') number = optarg;
        if (option == 'o') write_to = optarg;
    }
    for (int i = optind; i < argc; i++) fuzz_add(&f, argv[i]);
    if (!f.target || f.n_seeds == 0) {
        fprintf(stderr, "usage: all TARGET [-t seconds] [-s seed] [-n number] [-o file] file-or-folder ...\n");
        return 2;
    }
    if (number) {
        fuzz_one(&f, strtoull(number, NULL, 10), write_to);
        return 0;
    }
    for (size_t i = 0; i < f.n_seeds; i++) f.target->run(f.seeds[i].data, f.seeds[i].size);
    int status = seconds ? fuzz_for(&f, strtod(seconds, NULL), argv[0]) : 0;
    if (!seconds) printf("%s: %zu seeds, no finding\n", argv[0], f.n_seeds);
    for (size_t i = 0; i < f.n_seeds; i++) free(f.seeds[i].data);
    return status;
}
