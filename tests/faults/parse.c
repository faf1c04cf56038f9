/* SPDX-License-Identifier: Apache-2.0 */
/* tests/faults/parse.c - from the text of TM_FAULT to faults. */
#include "faults.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kinds[] = {
#define X(id, name) name,
    FAULT_KINDS(X)
#undef X
};

#define OF(kind) (1U << FAULT_##kind)
#define AT_LAUNCHES (OF(FLIP) | OF(HANG))
#define AT_CALLS (OF(FLIP) | OF(STALE) | OF(SWAP) | OF(TAIL) | OF(HANG))
#define ANY (((1U << FAULT_KINDS_COUNT) - 1) & ~OF(CLOCK))

typedef enum { WHOLE, REAL, TEXT, PAIR } value_type;

static const struct {
    const char *name;
    value_type  type;
    size_t      at;
    unsigned    kinds;
    double      least, most;
    const char *words; /* of a text: those that it may be, between blanks; NULL: any */
} keys[] = {
    { "rank", WHOLE, offsetof(fault, rank), ANY, 0, 1e6, NULL },
    { "core", WHOLE, offsetof(fault, core), ANY, 0, 1e6, NULL },
    { "step", WHOLE, offsetof(fault, step), ANY & ~OF(STUCK), 1, 1e15, NULL },
    { "at", WHOLE, offsetof(fault, at), AT_CALLS, 1, 1e15, NULL },
    { "every", WHOLE, offsetof(fault, every), AT_CALLS, 1, 1e15, NULL },
    { "where", TEXT, offsetof(fault, where), OF(FLIP), 0, 0, " result memory message " },
    { "side", TEXT, offsetof(fault, side), OF(FLIP), 0, 0, " send receive " },
    { "before", TEXT, offsetof(fault, before), OF(HANG), 0, 0, " call launch " },
    { "op", TEXT, offsetof(fault, op), AT_CALLS | OF(SLOW), 0, 0, NULL },
    { "shape", TEXT, offsetof(fault, shape), AT_LAUNCHES | OF(SLOW), 0, 0, NULL },
    { "name", TEXT, offsetof(fault, name), AT_CALLS, 0, 0, NULL },
    { "bit", WHOLE, offsetof(fault, bit), OF(FLIP) | OF(STUCK), 0, 63, NULL },
    { "to", WHOLE, offsetof(fault, to), OF(STUCK), 0, 1, NULL },
    { "words", WHOLE, offsetof(fault, words), OF(STUCK), 1, 30, NULL },
    { "percent", REAL, offsetof(fault, percent), OF(SLOW), 0, 1e6, NULL },
    { "after", REAL, offsetof(fault, after), OF(SLOW) | OF(LINK), 0, 1e9, NULL },
    { "ranks", PAIR, offsetof(fault, a), OF(LINK) | OF(SWAP), 0, 1e6, NULL },
    { "rate", REAL, offsetof(fault, rate), OF(LINK), 1e-6, 1, NULL },
    { "of", WHOLE, offsetof(fault, of), OF(STALE), 0, 1e6, NULL },
    { "elements", WHOLE, offsetof(fault, elements), OF(TAIL), 1, 1e15, NULL },
    { "seconds", REAL, offsetof(fault, seconds), OF(HANG), 0, 1e9, NULL },
    { "noise", REAL, offsetof(fault, noise), OF(CLOCK), 0, 100, NULL },
    { "gflops", REAL, offsetof(fault, gflops), OF(CLOCK), 1e-6, 1e9, NULL },
    { "gigabytes", REAL, offsetof(fault, gigabytes), OF(CLOCK) | OF(LINK), 1e-6, 1e9, NULL },
    { "wire", REAL, offsetof(fault, wire), OF(CLOCK), 1e-6, 1e9, NULL },
    { "latency_us", REAL, offsetof(fault, latency_us), OF(CLOCK), 0, 1e9, NULL },
};
enum { KEYS = sizeof keys / sizeof keys[0] };

static fault plain(fault_kind kind, int index)
{
    fault f = { .kind = kind, .index = index };
    f.rank = f.core = f.at = f.every = f.step = f.bit = f.of = f.a = f.b = -1;
    f.to = f.words = f.elements = 1;
    f.percent = 10;
    f.rate = 0.5;
    f.gflops = 100;
    f.gigabytes = kind == FAULT_LINK ? 1 : 20;
    f.wire = 10;
    f.latency_us = 2;
    snprintf(f.where, sizeof f.where, "result");
    snprintf(f.side, sizeof f.side, "receive");
    snprintf(f.before, sizeof f.before, "call");
    return f;
}

/* --- values ------------------------------------------------------------------------------------------------------- */

static bool read_number(const char *text, bool whole, double least, double most, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return end != text && *end == '\0' && *out >= least && *out <= most && !(whole && *out != (double)(int64_t)*out);
}

static tm_status set_key(fault *f, size_t k, char *value, tm_error *err)
{
    void  *to = (char *)f + keys[k].at;
    double number, other;
    if (keys[k].type == TEXT) {
        char word[FAULT_TEXT + 2];
        int  length = snprintf(word, sizeof word, " %s ", value);
        bool fits = value[0] && length < FAULT_TEXT;
        if (!fits || (keys[k].words && !strstr(keys[k].words, word)))
            return tm_fail(err, TM_INVALID, "TM_FAULT: %s: %s=%s: expected %s", kinds[f->kind], keys[k].name, value,
                           keys[k].words ? keys[k].words : "a text of at most 45 bytes");
        memcpy(to, value, (size_t)length - 1);
        return TM_OK;
    }
    char *second = keys[k].type == PAIR ? strchr(value, '-') : NULL;
    if (second) *second++ = '\0';
    bool whole = keys[k].type != REAL;
    bool well = read_number(value, whole, keys[k].least, keys[k].most, &number);
    if (keys[k].type == PAIR)
        well = well && second && read_number(second, whole, keys[k].least, keys[k].most, &other) && other != number;
    if (!well)
        return tm_fail(err, TM_INVALID, "TM_FAULT: %s: %s=%s%s%s: expected %s from %g to %g", kinds[f->kind],
                       keys[k].name, value, second ? "-" : "", second ? second : "",
                       keys[k].type == PAIR ? "two ranks with a '-' between them"
                       : whole              ? "a whole number"
                                            : "a number",
                       keys[k].least, keys[k].most);
    if (keys[k].type == REAL)
        *(double *)to = number;
    else
        *(int64_t *)to = (int64_t)number;
    if (keys[k].type == PAIR) f->b = (int64_t)other;
    return TM_OK;
}

static tm_status read_key(fault *f, char *word, tm_error *err)
{
    char  *value = strchr(word, '=');
    char   known[512] = "";
    size_t length = 0;
    if (value) *value++ = '\0';
    for (size_t k = 0; k < KEYS; k++) {
        if (!(keys[k].kinds >> f->kind & 1U)) continue;
        if (value && strcmp(keys[k].name, word) == 0) return set_key(f, k, value, err);
        length += (size_t)snprintf(known + length, sizeof known - length, "%s%s", length ? ", " : "", keys[k].name);
    }
    return tm_fail(err, TM_INVALID, "TM_FAULT: %s has no '%s%s'; it takes KEY=VALUE, of %s", kinds[f->kind], word,
                   value ? "=" : "", known);
}

/* --- descriptions ------------------------------------------------------------------------------------------------- */

static tm_status unknown_kind(const char *word, tm_error *err)
{
    char   known[256] = "";
    size_t length = 0;
    for (int k = 0; k < FAULT_KINDS_COUNT; k++)
        length += (size_t)snprintf(known + length, sizeof known - length, "%s, ", kinds[k]);
    return tm_fail(err, TM_INVALID,
                   "TM_FAULT: '%s' is no kind of fault; the kinds are %sseed=N; a full disk is planted by "
                   "tests/faults/full_disk.sh (docs/testing.md)",
                   word, known);
}

/* What must be said. */
static tm_status check(const fault *f, tm_error *err)
{
    const char *kind = kinds[f->kind];
    bool        counts = AT_CALLS >> f->kind & 1U;
    if (counts && f->at < 0 && f->every < 0)
        return tm_fail(err, TM_INVALID, "TM_FAULT: %s: needs at=K, the K-th event, or every=N, one in N", kind);
    if (counts && f->at > 0 && f->every > 0)
        return tm_fail(err, TM_INVALID, "TM_FAULT: %s: takes at=K or every=N, found both", kind);
    if (f->kind == FAULT_LINK && (f->a < 0) == (f->rank < 0))
        return tm_fail(err, TM_INVALID, "TM_FAULT: link: needs ranks=A-B, a pair, or rank=A, all links of a rank");
    if (f->kind == FAULT_STALE && f->of < 0)
        return tm_fail(err, TM_INVALID, "TM_FAULT: stale: needs of=R, the rank whose elements do not arrive");
    if (f->kind == FAULT_SWAP && f->a < 0)
        return tm_fail(err, TM_INVALID, "TM_FAULT: swap: needs ranks=A-B, whose parts change places");
    return TM_OK;
}

static tm_status read_one(faults *to, char *text, tm_error *err)
{
    char *rest = text, *word = strsep(&rest, ",");
    int   kind = 0;
    if (strncmp(word, "seed=", 5) == 0 && !rest) {
        double seed;
        if (!read_number(word + 5, true, 0, 1e15, &seed))
            return tm_fail(err, TM_INVALID, "TM_FAULT: %s: expected a whole number from 0 to 1e15", word);
        to->seed = (uint64_t)seed;
        return TM_OK;
    }
    while (kind < FAULT_KINDS_COUNT && strcmp(kinds[kind], word) != 0) kind++;
    if (kind == FAULT_KINDS_COUNT) return unknown_kind(word, err);
    if (kind != FAULT_CLOCK && to->n == FAULT_MOST)
        return tm_fail(err, TM_INVALID, "TM_FAULT: at most %d faults at a time", FAULT_MOST);
    fault f = plain((fault_kind)kind, to->n);
    while ((word = strsep(&rest, ","))) TM_TRY(read_key(&f, word, err));
    TM_TRY(check(&f, err));
    if (kind == FAULT_CLOCK) {
        to->made = true;
        to->clock = f;
    } else {
        to->all[to->n++] = f;
    }
    return TM_OK;
}

static faults planted;

const faults *faults_planted(void)
{
    return &planted;
}

tm_status faults_plant(const char *text, tm_error *err)
{
    faults    read = { .seed = 1, .times = planted.times + 1 };
    char     *copy = text ? strdup(text) : NULL, *rest = copy, *one;
    tm_status st = TM_OK;
    while (st == TM_OK && (one = strsep(&rest, ";")))
        if (one[0]) st = read_one(&read, one, err);
    free(copy);
    if (st == TM_OK) planted = read;
    return st;
}

__attribute__((constructor)) static void plant(void)
{
    tm_error err = { 0 };
    if (faults_plant(getenv("TM_FAULT"), &err) == TM_OK) return;
    fprintf(stderr, "%s\n", err.text);
    exit(tm_status_exit_code(TM_INVALID));
}
