/* SPDX-License-Identifier: Apache-2.0 */
/* apps/check/context.h - private to the room: what a check works with. */
#ifndef TM_SYSTEM_CHECK_CONTEXT_H
#define TM_SYSTEM_CHECK_CONTEXT_H

#include "apps/check/check.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct check {
    const tm_check_row     *row;
    const tm_check_options *options;
    const tm_check_host    *host;
    const char             *sysroot;
    tm_arena               *arena;
    tm_check_status         status; /* TM_CHECK_STATUSES until the check has said something */
    const char             *observed, *expected, *source, *remedy; /* begin as the row's */
};

/* The outcome; a check says it exactly once. */
void check_say(check *c, tm_check_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Where a check was more exact than its row. */
void check_expect(check *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
void check_source(check *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
void check_remedy(check *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A path from the arena. */
const char *check_path(check *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The first line of a file below the sysroot, from the arena; NULL with errno if it cannot be read. */
const char *check_line(check *c, const char *path);
/* The same for a file in a folder. */
const char *check_line_in(check *c, const char *folder, const char *name);
/* A whole file of at most 1 MiB; NUL bytes become '?'. NULL with errno. */
const char *check_content(check *c, const char *path);
/* Names in a folder that start with `prefix`, followed by a digit if `number`; as tm_root_list. */
const char **check_list(check *c, const char *path, const char *prefix, bool number, size_t *n);
/* SKIP because `path` cannot be read, with errno's reason. */
void check_skip_unreadable(check *c, const char *path);

/* An integer that fills the whole text but white space around it; false otherwise. Base 0: also 0x... */
bool check_number(const char *text, int64_t *out);
/* The number in `text` behind the line's first word `name` ("MemTotal:  123 kB", "simd_count 304"); -1 if none. */
int64_t check_field(const char *text, const char *name);
/* How many processors a list like "0-3,8" names; -1 if it is none. At most 2^20. */
int64_t check_count_cpus(const char *list);
/* "always [madvise] never" -> "madvise"; a single word is itself; from the arena. */
const char *check_choice(check *c, const char *text);
/* "2026-01-31T12:00:00Z"; "unknown" outside the years 1970 to 9999. Returns out. */
char *check_utc(int64_t wall_ms, char out[32]);
/* The value of an environment variable of the host; NULL if unset or empty. */
const char *check_env(const check *c, const char *name);
/* Adds a word to a list that ends in "and N more" beyond `most`. */
void check_list_add(tm_text *list, size_t *count, size_t most, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void check_list_end(tm_text *list, size_t count, size_t most);

/* --- GPUs ------------------------------------------------------------------------------------- */

typedef struct {
    const char *address; /* "0000:05:00.0" */
    const char *folder;  /* "/sys/bus/pci/devices/0000:05:00.0" */
    unsigned    vendor, device;
    bool        display;      /* class 0300h: a graphics card, which may be here for a screen only */
    bool        instinct;     /* one of the table */
    const char *name;         /* "MI300X"; vendor and number where the table has none */
    double      host_tb_of_8; /* host memory wanted beside 8 of them, 10^12 bytes; 0 = not said */
} check_gpu;

/* All GPUs that PCI shows, in the order of their addresses; NULL with *n = 0 if there is none. */
const check_gpu *check_gpus(check *c, size_t *n);
/* SKIP if there is no GPU; true then. */
bool check_no_gpu(check *c, size_t n);
/* The same where all of them are graphics cards, unless --expected-gpus says that they are to be used. */
bool check_no_compute(check *c, const check_gpu *gpus, size_t n);
/* How many of them are of a maker. */
size_t check_gpus_of(const check_gpu *gpus, size_t n, unsigned vendor);
enum { CHECK_AMD = 0x1002, CHECK_NVIDIA = 0x10DE };

/* A device of AMD's compute driver: with partitions there are several of one GPU. */
typedef struct {
    int64_t     number;  /* of the node */
    const char *folder;  /* /sys/class/kfd/kfd/topology/nodes/N */
    int64_t     render;  /* N of /dev/dri/renderDN; -1 = unknown */
    const char *address; /* on the PCI bus; NULL = unknown */
} check_kfd_gpu;
enum { CHECK_KFD_GPUS = 256 };
/* Those whose gpu_id is not 0; at most CHECK_KFD_GPUS. */
size_t check_kfd_gpus(check *c, check_kfd_gpu gpus[CHECK_KFD_GPUS]);

/* Is a program of this name (at most 15 bytes, as /proc has it) running where this process can see it? */
bool check_running(check *c, const char *name);
/* Does this process run in a container? Its kind, or NULL. */
const char *check_container_kind(check *c);

/* --- parsers of what a stranger may have written; never read beyond `n` bytes ------------------- */

/* PCI configuration space: does the ACS extended capability have SrcValid on? 1 on, 0 off or no ACS, -1 if the extended
 * space is not in these bytes. */
int check_parse_acs(const unsigned char *config, size_t n);

typedef struct {
    bool        kernel;  /* not written by a program */
    int         level;   /* 0-7; -1 = unknown */
    double      seconds; /* since boot; NaN = unknown */
    const char *text;
    size_t      length;
} check_record;

/* The record at *cursor of a log of `end - *cursor` bytes, as /dev/kmsg ("6,123,4567,-;text") or klogctl
 * ("<6>[    1.234567] text") gives it; moves *cursor behind it. False at the end. */
bool check_next_record(const char **cursor, const char *end, check_record *out);
/* The pattern that a record matches ("hardware error"), or NULL. */
const char *check_bad_record(const check_record *record);
/* Does the list of kernel arguments hold `name=value`, where the value may be one of several after commas? */
bool check_argument(const char *cmdline, const char *name, const char *value);

#define TM_CHECK(id, group, outcomes, function, source, expected, remedy) void function(check *c);
#include "apps/check/checks.def"
#undef TM_CHECK

#endif
