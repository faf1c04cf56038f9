/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/software.c - what is installed and set on a node, as facts: nodes that train together have the same, and
 * what has changed since the last certificate is told. Kernel, BIOS, microcode, drivers, firmware, settings, limits,
 * libraries and this program by the first rank of a host; environment variables by every rank. */
#include "apps/node/checks.h"

#include "base/csv.h"
#include "base/program.h"
#include "base/random.h"
#include "base/root.h"
#include "system/environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIMIT = 1 << 16 };

static void add(tm_node_outcome *out, const char *name, const char *place, const char *text)
{
    char shown[TM_NODE_TEXT];
    if (strlen(text) >= sizeof shown) { /* the whole of it counts */
        snprintf(shown, sizeof shown, "%.200s... (%08x of %zu)", text, (unsigned)tm_random_stream(text), strlen(text));
        text = shown;
    }
    tm_node_fact_add(out, name, place, true, *text ? text : "none");
}

/* --- what the environment knows ----------------------------------------------------------------------------------- */

/* Facts of the host in tm_environment, by the beginning of their keys; a row that ends in '.' stands for all below. */
static const char *const facts[] = {
    "cpu.microcode", "board.bios_version", "board.bios_date", "os.name",        "os.kernel",   "os.kernel_build",
    "drivers.",      "settings.",          "control_group.",  "build.compiler", "build.flags", "build.commit",
};

/* Arguments of the kernel that name a node's own disks and addresses. */
static const char *const own_arguments[] = { "BOOT_IMAGE=",        "BOOTIF=", "root=",    "resume=", "initrd=",  "ip=",
                                             "hostname=",          "rd.lvm.", "rd.luks.", "rd.md.",  "nfsroot=", "ds=",
                                             "systemd.machine_id=" };

static bool begins_with(const char *text, const char *const *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strncmp(text, rows[i], strlen(rows[i])) == 0) return true;
    return false;
}

static bool is_fact(const char *key)
{
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        const size_t n = strlen(facts[i]);
        if (facts[i][n - 1] == '.' ? strncmp(key, facts[i], n) == 0 : strcmp(key, facts[i]) == 0) return true;
    }
    return false;
}

static void add_command_line(tm_node_outcome *out, const char *line)
{
    tm_text text = { 0 };
    tm_text_add(&text, "");
    while (*line) {
        const size_t n = strcspn(line, " ");
        if (n > 0 && !begins_with(line, own_arguments, sizeof own_arguments / sizeof *own_arguments))
            tm_text_printf(&text, "%s%.*s", text.length ? " " : "", (int)n, line);
        line += n + (line[n] == ' ');
    }
    add(out, "kernel command line", "", text.data);
    tm_text_fini(&text);
}

/* "libraries.libgomp.so.1.version": the library's name; false: another key. */
static bool library_of(const char *key, char name[TM_NODE_NAME])
{
    static const char begin[] = "libraries.", end[] = ".version";
    const size_t      n = strlen(key), head = sizeof begin - 1, tail = sizeof end - 1;
    if (n < head + tail || strncmp(key, begin, head) != 0 || strcmp(key + n - tail, end) != 0) return false;
    snprintf(name, TM_NODE_NAME, "%.*s", (int)(n - head - tail), key + head);
    return true;
}

/* --- variables ---------------------------------------------------------------------------------------------------- */

/* Variables that change a training; those of one row are one fact, so that one that is set on one node only differs. */
static const char *const variables[] = { "LD_PRELOAD", "LD_LIBRARY_PATH", "OMP_",    "GOMP_",
                                         "KMP_",       "NCCL_",           "RCCL_",   "HSA_",
                                         "HIP_",       "HIPBLASLT_",      "CUDA_",   "DNNL_",
                                         "ONEDNN_",    "TRAINMARK_",      "MALLOC_", "GLIBC_TUNABLES" };
enum { VARIABLES = sizeof variables / sizeof *variables };

/* Those that differ by rank or certificate and say where, not how. */
static const char *const own_variables[] = { "TRAINMARK_STORE", "TRAINMARK_SECRET",    "TRAINMARK_RANKS_FOLDER",
                                             "TRAINMARK_TURN_", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES",
                                             "CUDA_HOME",       "OMP_PLACES",          "GOMP_CPU_AFFINITY",
                                             "OMP_WAIT_POLICY" /* this program sets it on a busy machine */ };

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* "NAME=value NAME=value", sorted, of the n variables that begin with `prefix`. */
static void add_variables(tm_node_outcome *out, const char *prefix, const char *const *lines, size_t n)
{
    char    name[TM_NODE_NAME];
    tm_text text = { 0 };
    tm_text_add(&text, "");
    for (size_t i = 0; i < n; i++)
        if (strncmp(lines[i], prefix, strlen(prefix)) == 0)
            tm_text_printf(&text, "%s%s", text.length ? " " : "", lines[i]);
    snprintf(name, sizeof name, "%s%s", prefix, prefix[strlen(prefix) - 1] == '_' ? "*" : "");
    add(out, name, "", text.data);
    tm_text_fini(&text);
}

/* --- all of tm_environment ---------------------------------------------------------------------------------------- */

/* Everything by key and value. *lines: the variables as NAME=value. */
static void take(const tm_node_task *task, tm_node_outcome *out, const char *key, const char *value, tm_arena *arena,
                 const char ***lines, size_t *n, size_t *room)
{
    static const char variable[] = "variables.";
    char              name[TM_NODE_NAME];
    if (strncmp(key, variable, sizeof variable - 1) == 0) {
        const char *own = key + sizeof variable - 1;
        if (begins_with(own, own_variables, sizeof own_variables / sizeof *own_variables)) return;
        *lines = tm_grow(*lines, room, *n, sizeof **lines);
        (*lines)[(*n)++] = tm_arena_format(arena, "%s=%s", own, value);
    } else if (!task->first) {
        return;
    } else if (strcmp(key, "os.kernel_command_line") == 0) {
        add_command_line(out, value);
    } else if (is_fact(key)) {
        add(out, key, "", value);
    } else if (library_of(key, name)) {
        add(out, name, "", value);
    }
}

static void take_environment(const tm_node_task *task, tm_node_outcome *out, tm_arena *arena)
{
    tm_environment *e = tm_environment_read(task->options->sysroot);
    tm_text         csv = { 0 }, storage = { 0 };
    const char    **lines = NULL;
    size_t          n = 0, room = 0, at[2];
    tm_environment_print_csv(e, &csv);
    const char *cursor = csv.data;
    (void)tm_csv_read(&cursor, &storage, at, 2); /* the header line */
    while (tm_csv_read(&cursor, &storage, at, 2) == 2)
        take(task, out, storage.data + at[0], storage.data + at[1], arena, &lines, &n, &room);
    if (n > 0) qsort(lines, n, sizeof *lines, by_text);
    for (size_t i = 0; i < VARIABLES; i++) add_variables(out, variables[i], lines, n);
    free(lines);
    tm_text_fini(&csv);
    tm_text_fini(&storage);
    tm_environment_destroy(e);
}

/* --- firmware ----------------------------------------------------------------------------------------------------- */

/* The files in a folder as facts "NAME firmware" of `place`. */
static void add_files(const char *sysroot, const char *folder, const char *place, tm_node_outcome *out, tm_arena *arena)
{
    size_t       n;
    char         text[TM_NODE_TEXT];
    const char **names = tm_root_list(sysroot, folder, LIMIT, arena, &n);
    for (size_t i = 0; i < n; i++)
        if (tm_root_read_line(sysroot, tm_arena_format(arena, "%s/%s", folder, names[i]), text, sizeof text))
            add(out, tm_arena_format(arena, "%s firmware", names[i]), place, text);
}

static void add_amd(const char *sysroot, tm_node_outcome *out, tm_arena *arena)
{
    static const char folder[] = "/sys/class/drm";
    size_t            n;
    char              text[TM_NODE_TEXT];
    const char      **names = tm_root_list(sysroot, folder, LIMIT, arena, &n);
    for (size_t i = 0; i < n; i++) {
        if (strncmp(names[i], "card", 4) != 0 || strchr(names[i], '-')) continue;
        add_files(sysroot, tm_arena_format(arena, "%s/%s/device/fw_version", folder, names[i]), names[i], out, arena);
        if (tm_root_read_line(sysroot, tm_arena_format(arena, "%s/%s/device/vbios_version", folder, names[i]), text,
                              sizeof text))
            add(out, "GPU BIOS", names[i], text);
    }
}

/* "Video BIOS: \t 96.00.61.00.01" of /proc/driver/nvidia/gpus/ADDRESS/information. */
static void add_nvidia(const char *sysroot, tm_node_outcome *out, tm_arena *arena)
{
    static const char folder[] = "/proc/driver/nvidia/gpus";
    static const struct {
        const char *line, *name;
    } rows[] = { { "Video BIOS:", "GPU BIOS" }, { "GPU Firmware:", "GPU firmware" } };
    size_t       n;
    const char **names = tm_root_list(sysroot, folder, LIMIT, arena, &n);
    for (size_t i = 0; i < n; i++) {
        tm_text text = { 0 };
        bool read = tm_root_read(sysroot, tm_arena_format(arena, "%s/%s/information", folder, names[i]), LIMIT, &text);
        for (size_t k = 0; read && k < sizeof rows / sizeof *rows; k++) {
            const char *at = strstr(text.data, rows[k].line);
            if (!at) continue;
            at += strlen(rows[k].line);
            at += strspn(at, " \t");
            add(out, rows[k].name, names[i], tm_arena_text_n(arena, at, strcspn(at, "\n")));
        }
        tm_text_fini(&text);
    }
}

/* Of network cards of one model (board_id). */
static void add_network(const char *sysroot, tm_node_outcome *out, tm_arena *arena)
{
    static const char folder[] = "/sys/class/infiniband";
    size_t            n;
    char              board[32], text[TM_NODE_TEXT];
    const char      **names = tm_root_list(sysroot, folder, LIMIT, arena, &n);
    for (size_t i = 0; i < n; i++) {
        if (!tm_root_read_line(sysroot, tm_arena_format(arena, "%s/%s/fw_ver", folder, names[i]), text, sizeof text))
            continue;
        tm_root_read_line(sysroot, tm_arena_format(arena, "%s/%s/board_id", folder, names[i]), board, sizeof board);
        add(out, tm_arena_format(arena, "firmware of %s", board[0] ? board : "network cards"), names[i], text);
    }
}

/* --- the check ---------------------------------------------------------------------------------------------------- */

tm_status node_check_software(const tm_node_task *task, tm_node_outcome *out, tm_error *err)
{
    const char *sysroot = task->options->sysroot;
    tm_arena   *arena = tm_arena_create();
    (void)err;
    take_environment(task, out, arena);
    if (task->first) {
        add_amd(sysroot, out, arena);
        add_nvidia(sysroot, out, arena);
        add_network(sysroot, out, arena);
        add(out, "program", "", tm_arena_format(arena, "%016llx", (unsigned long long)tm_program_hash()));
    }
    tm_node_reach(out, "any difference in %zu facts from other nodes and earlier certificates", out->n_facts);
    tm_arena_destroy(arena);
    return TM_OK;
}
