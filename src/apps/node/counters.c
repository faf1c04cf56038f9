/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/counters.c - counters of errors below /sys and /proc. */
#include "apps/node/counters.h"

#include "base/arena.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Files with one number each. */
static const struct {
    const char *pattern;
    bool        hard;
} files[] = {
    { "/sys/class/net/*/statistics/rx_errors", true },
    { "/sys/class/net/*/statistics/tx_errors", true },
    { "/sys/class/net/*/statistics/rx_crc_errors", true },
    { "/sys/class/net/*/statistics/rx_dropped", false },
    { "/sys/class/net/*/statistics/tx_dropped", false },
    { "/sys/class/infiniband/*/ports/*/counters/symbol_error", true },
    { "/sys/class/infiniband/*/ports/*/counters/link_error_recovery", true },
    { "/sys/class/infiniband/*/ports/*/counters/link_downed", true },
    { "/sys/class/infiniband/*/ports/*/counters/port_rcv_errors", true },
    { "/sys/class/infiniband/*/ports/*/counters/local_link_integrity_errors", true },
    { "/sys/class/infiniband/*/ports/*/counters/excessive_buffer_overrun_errors", true },
    { "/sys/class/infiniband/*/ports/*/counters/port_xmit_discards", false },
};

/* Files of lines "NAME number" or "NAME: number", of which some are counted. */
static const struct {
    const char *pattern, *line, *name;
    bool        hard;
} tables[] = {
    { "/sys/bus/pci/devices/*/aer_dev_fatal", "TOTAL_ERR_FATAL", "fatal errors", true },
    { "/sys/bus/pci/devices/*/aer_dev_nonfatal", "TOTAL_ERR_NONFATAL", "nonfatal errors", true },
    { "/sys/bus/pci/devices/*/aer_dev_correctable", "TOTAL_ERR_COR", "corrected errors", false },
    { "/sys/class/drm/card*/device/ras/xgmi_wafl_err_count", "ue", "uncorrected errors of links between GPUs", true },
    { "/sys/class/drm/card*/device/ras/xgmi_wafl_err_count", "ce", "corrected errors of links between GPUs", false },
};

static void add(tm_counters *out, const char *device, const char *name, double value, bool hard)
{
    out->counter = tm_grow(out->counter, &out->room, out->n, sizeof *out->counter);
    tm_counter *c = &out->counter[out->n++];
    *c = (tm_counter){ .value = value, .hard = hard };
    snprintf(c->device, sizeof c->device, "%s", device);
    snprintf(c->name, sizeof c->name, "%s", name);
}

/* The device in a path: what stands for the first star, with the port. */
static void device_of(const char *sysroot, const char *path, char out[48])
{
    const char *at = path + strlen(sysroot), *port = strstr(at, "/ports/");
    const char *kinds[] = { "/sys/class/net/", "/sys/class/infiniband/", "/sys/bus/pci/devices/", "/sys/class/drm/" };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strncmp(at, kinds[i], strlen(kinds[i])) != 0) continue;
        at += strlen(kinds[i]);
        snprintf(out, 48, "%s%.*s", i == 2 ? "PCIe " : "", (int)strcspn(at, "/"), at);
        if (port) snprintf(out + strlen(out), 48 - strlen(out), " port %.*s", (int)strcspn(port + 7, "/"), port + 7);
    }
}

static glob_t matches(const char *sysroot, const char *pattern)
{
    char   whole[512];
    glob_t g = { 0 };
    snprintf(whole, sizeof whole, "%s%s", sysroot, pattern);
    if (glob(whole, 0, NULL, &g) != 0) g.gl_pathc = 0;
    return g;
}

/* The number behind a word of a file; the first number where the word is NULL. */
static bool number_in(const char *path, const char *word, double *out)
{
    char  line[256];
    bool  found = false;
    FILE *f = fopen(path, "re");
    while (f && !found && fgets(line, sizeof line, f)) {
        const char  *at = line;
        const size_t length = word ? strlen(word) : 0;
        char        *end;
        if (word && (strncmp(line, word, length) != 0 || !strchr(": ", line[length]))) continue;
        at += length + strspn(line + length, ": ");
        *out = strtod(at, &end);
        found = end != at;
    }
    if (f) fclose(f);
    return found;
}

/* Segments of TCP that were sent again: of two lines that begin with "Tcp:", names and numbers. */
static void add_retransmitted(const char *sysroot, tm_counters *out)
{
    char  path[512], names[1024] = "", numbers[1024] = "", line[1024];
    char *keep_name, *keep_number;
    snprintf(path, sizeof path, "%s/proc/net/snmp", sysroot);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "Tcp:", 4) == 0) memcpy(names[0] ? numbers : names, line, sizeof line);
    if (f) fclose(f);
    const char *name = strtok_r(names, " \n", &keep_name), *number = strtok_r(numbers, " \n", &keep_number);
    for (; name && number; name = strtok_r(NULL, " \n", &keep_name), number = strtok_r(NULL, " \n", &keep_number))
        if (strcmp(name, "RetransSegs") == 0) add(out, "TCP", "segments sent again", strtod(number, NULL), false);
}

void tm_counters_read(const char *sysroot, tm_counters *out)
{
    char   device[48];
    double value;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        glob_t g = matches(sysroot, files[i].pattern);
        for (size_t k = 0; k < g.gl_pathc; k++) {
            if (!number_in(g.gl_pathv[k], NULL, &value)) continue;
            device_of(sysroot, g.gl_pathv[k], device);
            add(out, device, strrchr(g.gl_pathv[k], '/') + 1, value, files[i].hard);
        }
        globfree(&g);
    }
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        glob_t g = matches(sysroot, tables[i].pattern);
        for (size_t k = 0; k < g.gl_pathc; k++) {
            if (!number_in(g.gl_pathv[k], tables[i].line, &value)) continue;
            device_of(sysroot, g.gl_pathv[k], device);
            add(out, device, tables[i].name, value, tables[i].hard);
        }
        globfree(&g);
    }
    add_retransmitted(sysroot, out);
}

void tm_counters_fini(tm_counters *counters)
{
    free(counters->counter);
    *counters = (tm_counters){ 0 };
}

const tm_counter *tm_counters_find(const tm_counters *before, const tm_counter *now)
{
    for (size_t i = 0; i < before->n; i++)
        if (strcmp(before->counter[i].device, now->device) == 0 && strcmp(before->counter[i].name, now->name) == 0)
            return &before->counter[i];
    return NULL;
}
