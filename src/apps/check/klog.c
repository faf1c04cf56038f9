/* SPDX-License-Identifier: Apache-2.0 */
/* apps/check/klog.c - what the kernel complained of lately. */
#include "apps/check/context.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- records --------------------------------------------------------------------------------- */

/* A number of at most 18 digits at *p, which moves behind it; -1 if there is none. */
static int64_t digits(const char **p, const char *end)
{
    const char *from = *p;
    int64_t     value = 0;
    for (; *p < end && isdigit((unsigned char)**p) && *p - from < 18; ++*p) value = value * 10 + (**p - '0');
    return *p == from ? -1 : value;
}

static void set_priority(check_record *r, int64_t priority)
{
    r->level = (int)(priority & 7);
    r->kernel = priority >> 3 == 0; /* the facility */
}

/* "6,123,4567890,-;text": priority, sequence number, microseconds, flags; text. */
static bool kmsg_head(const char *line, const char *end, check_record *r)
{
    const char *p = line;
    int64_t     priority = digits(&p, end);
    if (priority < 0 || p == end || *p++ != ',' || digits(&p, end) < 0 || p == end || *p++ != ',') return false;
    int64_t     microseconds = digits(&p, end);
    const char *text = memchr(p, ';', (size_t)(end - p));
    if (microseconds < 0 || !text) return false;
    set_priority(r, priority);
    r->seconds = (double)microseconds * 1e-6;
    r->text = text + 1;
    return true;
}

/* "<6>[    1.234567] text"; either part may be missing. */
static void klogctl_head(const char *line, const char *end, check_record *r)
{
    const char *p = line;
    if (p < end && *p == '<') {
        p++;
        int64_t priority = digits(&p, end);
        if (priority >= 0 && p < end && *p == '>') {
            set_priority(r, priority);
            r->text = ++p;
        }
    }
    p = r->text;
    if (p == end || *p++ != '[') return;
    while (p < end && *p == ' ') p++;
    int64_t whole = digits(&p, end);
    if (whole < 0 || p == end || *p++ != '.') return;
    int64_t part = digits(&p, end);
    if (part < 0 || p == end || *p++ != ']') return;
    r->seconds = (double)whole + (double)part * 1e-6;
    while (p < end && *p == ' ') p++;
    r->text = p;
}

bool check_next_record(const char **cursor, const char *end, check_record *out)
{
    /* Lines that begin with a blank are the properties of a record before them ("SUBSYSTEM=pci"). */
    while (*cursor < end && (**cursor == ' ' || **cursor == '\n')) {
        const char *stop = memchr(*cursor, '\n', (size_t)(end - *cursor));
        *cursor = stop ? stop + 1 : end;
    }
    if (*cursor >= end) return false;
    const char *line = *cursor, *stop = memchr(line, '\n', (size_t)(end - line));
    if (!stop) stop = end;
    *out = (check_record){ .kernel = true, .level = -1, .seconds = (double)NAN, .text = line };
    if (!kmsg_head(line, stop, out)) klogctl_head(line, stop, out);
    out->length = (size_t)(stop - out->text);
    *cursor = stop < end ? stop + 1 : end;
    return true;
}

/* --- patterns -------------------------------------------------------------------------------- */

static const char *find(const check_record *r, const char *word)
{
    size_t n = strlen(word);
    for (size_t i = 0; i + n <= r->length; i++) {
        size_t k = 0;
        while (k < n && tolower((unsigned char)r->text[i + k]) == word[k]) k++;
        if (k == n) return r->text + i;
    }
    return NULL;
}

/* Not inside a longer word: "xid" but not "maxid". */
static bool stands_alone(const check_record *r, const char *at, size_t n)
{
    const char *end = r->text + r->length;
    bool        before = at > r->text && isalnum((unsigned char)at[-1]);
    return !before && !(at + n < end && isalnum((unsigned char)at[n]));
}

const char *check_bad_record(const check_record *record)
{
    enum { INFO = 6 };
    static const char *const phrases[] = { "hardware error", "gpu reset", "hung_task", "page allocation failure",
                                           "soft lockup" };
    static const char *const amdgpu[] = { "error", "fail", "timeout" };
    if (!record->kernel || find(record, "command line:")) return NULL; /* arguments may hold the words */
    for (size_t i = 0; i < sizeof phrases / sizeof phrases[0]; i++)
        if (find(record, phrases[i])) return phrases[i];
    const char *xid = find(record, "xid");
    if (xid && stands_alone(record, xid, 3)) return "xid";
    if (find(record, "mce:") && record->level < INFO) return "mce:"; /* it greets at boot, too */
    for (size_t i = 0; find(record, "amdgpu") && i < sizeof amdgpu / sizeof amdgpu[0]; i++)
        if (find(record, amdgpu[i])) return "amdgpu";
    return NULL;
}

/* --- what to do ------------------------------------------------------------------------------ */

/* What NVIDIA's numbers of errors mean and ask for (its list of Xid errors). */
static const struct {
    int         number;
    const char *means;
} xids[] = {
    { 13, "usually the application: an illegal instruction or access" },
    { 31, "usually the application: an address that is not mapped" },
    { 48, "an uncorrectable memory error: drain the node, reset the GPU" },
    { 63, "a row of memory was remapped: reset the GPU" },
    { 64, "a row of memory could not be remapped: drain the node, reset the GPU, replace it if this comes back" },
    { 74, "an error of NVLink: drain the node, reset the GPU, look at the bridge or the switch" },
    { 79, "the GPU has fallen off the bus: drain the node, reboot, look at its seat, power and heat" },
    { 94, "a memory error that only its application saw: start that again, reset the GPU when it is free" },
    { 95, "a memory error that others may have seen: drain the node, reset the GPU" },
};
enum { XIDS = sizeof xids / sizeof xids[0] };

/* The number of "NVRM: Xid (PCI:0000:41:00): 79, pid=...", or -1. */
static int64_t xid_of(const check_record *r)
{
    const char *end = r->text + r->length, *p = find(r, "xid");
    while (p && p < end && *p != ')') p++;
    if (!p || p == end || *++p != ':') return -1;
    for (p++; p < end && *p == ' ';) p++;
    return digits(&p, end);
}

/* What is to be done about errors of GPUs: each Xid that was seen, once. */
static void advise(check *c, const bool seen[XIDS], bool amdgpu)
{
    tm_text text = { 0 };
    for (size_t i = 0; i < XIDS; i++)
        if (seen[i]) tm_text_printf(&text, "Xid %d: %s; ", xids[i].number, xids[i].means);
    if (amdgpu)
        tm_text_add(&text, "amdgpu: see the checks ecc and bad_pages; reset the GPU: rocm-smi --gpureset -d N; ");
    if (text.length) check_remedy(c, "%sthe records: dmesg -T | less", text.data);
    tm_text_fini(&text);
}

/* --- the check ------------------------------------------------------------------------------- */

void check_klog(check *c)
{
    enum { SHOWN = 3 };
    const char *cursor = c->host->klog;
    if (!cursor) {
        const char *problem = c->host->klog_problem ? c->host->klog_problem : "not read";
        check_say(c, TM_CHECK_SKIP, "the kernel log cannot be read: %.200s", problem);
        return;
    }
    double       from = c->host->uptime_seconds - 60 * c->options->klog_minutes;
    size_t       records = 0, count = 0;
    bool         seen[XIDS] = { false }, amdgpu = false;
    tm_text      bad = { 0 };
    check_record r;
    for (const char *end = cursor + strlen(cursor); check_next_record(&cursor, end, &r);) {
        if (r.seconds < from) continue; /* a record without a time counts, and all do without an uptime */
        records++;
        const char *pattern = check_bad_record(&r);
        if (!pattern) continue;
        int64_t xid = strcmp(pattern, "xid") == 0 ? xid_of(&r) : -1;
        for (size_t i = 0; i < XIDS; i++) seen[i] |= xid == xids[i].number;
        amdgpu |= strcmp(pattern, "amdgpu") == 0 || strcmp(pattern, "gpu reset") == 0;
        char line[121];
        snprintf(line, sizeof line, "%.*s", (int)(r.length < 120 ? r.length : 120), r.text);
        for (char *p = line; *p; p++)
            if ((unsigned char)*p < 0x20 || *p == 0x7F) *p = '?';
        check_list_add(&bad, &count, SHOWN, "[%s] '%s'", pattern, line);
    }
    check_list_end(&bad, count, SHOWN);
    advise(c, seen, amdgpu);
    check_source(c, "/dev/kmsg, the last %g minutes (--dmesg-minutes)", c->options->klog_minutes);
    if (count > 0)
        check_say(c, TM_CHECK_FAIL, "%zu of %zu records: %s", count, records, bad.data);
    else
        check_say(c, TM_CHECK_PASS, "%zu recent kernel message%s, none indicating a problem", records,
                  records == 1 ? "" : "s");
    tm_text_fini(&bad);
}
