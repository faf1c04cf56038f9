/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/products.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json_input.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ALGORITHM = 64, MOST_TUNED = 64, MOST_BYTES = 64 << 20, FORMAT = 1 };

static const char file_variable[] = "TRAINMARK_PRODUCTS", tune_variable[] = "TRAINMARK_PRODUCTS_TUNE",
                  override_variable[] = "HIPBLASLT_TUNING_OVERRIDE_FILE";

typedef struct {
    tm_gpu_matmul_shape shape;
    _Alignas(8) unsigned char algorithm[MOST_ALGORITHM];
    int    measured, line;
    double seconds, first_seconds;
    bool   used;
} entry;

/* A row of hipBLASLt's file, of any of its versions: the transpositions, then m, n and k one behind the other. */
typedef struct {
    bool    turns_a, turns_b;
    int64_t m, n, k;
    bool    used;
} override;

struct tm_gpu_products {
    tm_gpu_products_of of;
    char               library[48], arch[32];
    const char        *path; /* NULL: no file */
    int                tune;
    entry             *entries;
    size_t             n, room;
    override          *overrides;
    size_t             n_overrides, overrides_room;
    uint64_t           override_hash;
};

/* --- the file -------------------------------------------------------------------------------------------------------
 */

static const char *const formats[] = { [TM_GPU_F32] = "float32", [TM_GPU_BF16] = "bfloat16", [TM_GPU_F16] = "float16" };

static bool same(const tm_gpu_matmul_shape *a, const tm_gpu_matmul_shape *b)
{
    return a->factors == b->factors && a->result == b->result && a->a_across == b->a_across &&
           a->b_across == b->b_across && a->bias == b->bias && a->rows == b->rows && a->columns == b->columns &&
           a->depth == b->depth && a->ld_a == b->ld_a && a->ld_b == b->ld_b && a->ld_c == b->ld_c &&
           a->workspace == b->workspace;
}

static entry *entry_of(const tm_gpu_products *p, const tm_gpu_matmul_shape *shape)
{
    for (size_t i = 0; i < p->n; i++)
        if (same(&p->entries[i].shape, shape)) return &p->entries[i];
    return NULL;
}

static entry *new_entry(tm_gpu_products *p)
{
    p->entries = tm_grow(p->entries, &p->room, p->n, sizeof *p->entries);
    return memset(&p->entries[p->n++], 0, sizeof *p->entries);
}

static bool read_format(const json_t *line, const char *name, tm_gpu_format *out)
{
    const char *text = json_string_value(json_object_get(line, name));
    for (int i = 0; text && i < 2; i++)
        if (strcmp(text, formats[i]) == 0) {
            *out = (tm_gpu_format)i;
            return true;
        }
    return false;
}

static bool read_count(const json_t *line, const char *name, int64_t least, int64_t *out)
{
    const json_t *value = json_object_get(line, name);
    *out = json_integer_value(value);
    return json_is_integer(value) && *out >= least;
}

static bool read_flag(const json_t *line, const char *name, bool *out)
{
    const json_t *value = json_object_get(line, name);
    *out = json_is_true(value);
    return json_is_boolean(value);
}

static bool read_bytes(const json_t *line, size_t bytes, unsigned char *out)
{
    const char *text = json_string_value(json_object_get(line, "algorithm"));
    if (!text || strlen(text) != 2 * bytes || strspn(text, "0123456789abcdef") != 2 * bytes) return false;
    for (size_t i = 0; i < bytes; i++) {
        const char digits[3] = { text[2 * i], text[2 * i + 1], '\0' };
        out[i] = (unsigned char)strtol(digits, NULL, 16);
    }
    return true;
}

/* What is wrong with the member of a line; NULL: nothing. */
static const char *read_entry(const json_t *line, size_t bytes, entry *out)
{
    tm_gpu_matmul_shape *s = &out->shape;
    int64_t              workspace = 0, measured = 0;
    if (!read_count(line, "rows", 1, &s->rows)) return "rows";
    if (!read_count(line, "columns", 1, &s->columns)) return "columns";
    if (!read_count(line, "depth", 1, &s->depth)) return "depth";
    if (!read_format(line, "factors", &s->factors)) return "factors";
    if (!read_format(line, "result", &s->result)) return "result";
    if (!read_flag(line, "a_across", &s->a_across)) return "a_across";
    if (!read_flag(line, "b_across", &s->b_across)) return "b_across";
    if (!read_flag(line, "bias", &s->bias)) return "bias";
    if (!read_count(line, "ld_a", 1, &s->ld_a)) return "ld_a";
    if (!read_count(line, "ld_b", 1, &s->ld_b)) return "ld_b";
    if (!read_count(line, "ld_c", 1, &s->ld_c)) return "ld_c";
    if (!read_count(line, "workspace", 0, &workspace)) return "workspace";
    if (!read_bytes(line, bytes, out->algorithm)) return "algorithm";
    if (!read_count(line, "measured", 1, &measured) || measured > MOST_TUNED) return "measured";
    out->seconds = json_number_value(json_object_get(line, "microseconds")) * 1e-6;
    out->first_seconds = json_number_value(json_object_get(line, "first_microseconds")) * 1e-6;
    if (!(out->seconds > 0)) return "microseconds";
    if (!(out->first_seconds > 0)) return "first_microseconds";
    s->workspace = (size_t)workspace;
    out->measured = (int)measured;
    return NULL;
}

static tm_status read_line(tm_gpu_products *p, const json_t *line, int number, tm_error *err)
{
    entry       read = { .line = number };
    const char *wrong = read_entry(line, p->of.bytes, &read);
    if (wrong)
        return tm_fail(err, TM_FORMAT, "%s: '%.300s', line %d: '%s' is missing or not what it must be; remove the line",
                       file_variable, p->path, number, wrong);
    const entry *before = entry_of(p, &read.shape);
    if (before)
        return tm_fail(err, TM_FORMAT, "%s: '%.300s', line %d has the shape of line %d; remove one of them",
                       file_variable, p->path, number, before->line);
    *new_entry(p) = read;
    return TM_OK;
}

static tm_status read_head(const tm_gpu_products *p, const json_t *line, tm_error *err)
{
    const char *library = json_string_value(json_object_get(line, "library")),
               *arch = json_string_value(json_object_get(line, "arch"));
    json_int_t units = json_integer_value(json_object_get(line, "units")),
               format = json_integer_value(json_object_get(line, "trainmark_products"));
    if (format != FORMAT || !library || !arch || units < 1)
        return tm_fail(err, TM_FORMAT,
                       "%s: '%.300s', line 1 must begin a file of format %d: trainmark_products, library, arch, units; "
                       "%s=N writes one",
                       file_variable, p->path, FORMAT, tune_variable);
    if (strcmp(library, p->library) == 0 && strcmp(arch, p->arch) == 0 && units == p->of.units) return TM_OK;
    return tm_fail(err, TM_INVALID,
                   "%s: '%.300s' has algorithms of %.60s on %.32s with %lld units, and this is %s on %s with %d: they "
                   "cannot be taken over; name another file, which %s=N writes",
                   file_variable, p->path, library, arch, (long long)units, p->library, p->arch, p->of.units,
                   tune_variable);
}

static tm_status read_file(tm_gpu_products *p, tm_error *err)
{
    tm_text   text = { 0 };
    tm_status st = tm_file_read(p->path, MOST_BYTES, &text, err);
    int       number = 1;
    for (const char *at = text.data ? text.data : ""; st == TM_OK && (*at || number == 1); number++) {
        size_t       n = strcspn(at, "\n");
        json_error_t problem;
        json_t      *line = tm_json_input(at, n, JSON_REJECT_DUPLICATES, &problem);
        if (!json_is_object(line))
            st = tm_fail(err, TM_FORMAT, "%s: '%.300s', line %d is not an object of JSON%s%.100s", file_variable,
                         p->path, number, line ? "" : ": ", line ? "" : problem.text);
        else
            st = number == 1 ? read_head(p, line, err) : read_line(p, line, number, err);
        json_decref(line);
        at += n + (at[n] == '\n');
    }
    tm_text_fini(&text);
    return st;
}

static void add_line(const tm_gpu_products *p, const entry *e, tm_text *out)
{
    const tm_gpu_matmul_shape *s = &e->shape;
    tm_text_printf(out, "{\"rows\": %lld, \"columns\": %lld, \"depth\": %lld, \"factors\": \"%s\", \"result\": \"%s\"",
                   (long long)s->rows, (long long)s->columns, (long long)s->depth, formats[s->factors],
                   formats[s->result]);
    tm_text_printf(out, ", \"a_across\": %s, \"b_across\": %s, \"bias\": %s, \"ld_a\": %lld, \"ld_b\": %lld",
                   s->a_across ? "true" : "false", s->b_across ? "true" : "false", s->bias ? "true" : "false",
                   (long long)s->ld_a, (long long)s->ld_b);
    tm_text_printf(out, ", \"ld_c\": %lld, \"workspace\": %zu, \"algorithm\": \"", (long long)s->ld_c, s->workspace);
    for (size_t i = 0; i < p->of.bytes; i++) tm_text_printf(out, "%02x", e->algorithm[i]);
    tm_text_printf(out, "\", \"measured\": %d, \"microseconds\": %.3f, \"first_microseconds\": %.3f}\n", e->measured,
                   e->seconds * 1e6, e->first_seconds * 1e6);
}

static tm_status write_file(const tm_gpu_products *p, tm_error *err)
{
    tm_text out = { 0 };
    tm_text_printf(&out, "{\"trainmark_products\": %d, \"library\": \"%s\", \"arch\": \"%s\", \"units\": %d}\n", FORMAT,
                   p->library, p->arch, p->of.units);
    for (size_t i = 0; i < p->n; i++) add_line(p, &p->entries[i], &out);
    tm_status st = tm_file_write(p->path, out.data, out.length, err);
    tm_text_fini(&out);
    return st;
}

/* --- hipBLASLt's own file -------------------------------------------------------------------------------------------
 */

/* "N,N,0,1,4096,8192,1024,...": older ones have m behind three values, all others behind four. Names of columns and
 * versions stand in lines of their own. */
static void read_override(tm_gpu_products *p, const char *line, size_t n)
{
    char  copy[256];
    char *fields[8], *save = NULL;
    int   count = 0;
    snprintf(copy, sizeof copy, "%.*s", (int)n, line);
    for (char *f = strtok_r(copy, ", \t\r", &save); f && count < 8; f = strtok_r(NULL, ", \t\r", &save))
        fields[count++] = f;
    bool turns[2];
    if (count < 7) return;
    for (int i = 0; i < 2; i++) {
        if (!strchr("NTC", fields[i][0]) || fields[i][1]) return;
        turns[i] = fields[i][0] != 'N';
    }
    for (int first = 3; first <= 4; first++) {
        int64_t size[3];
        bool    whole = true;
        for (int i = 0; i < 3; i++) {
            char *end = "";
            if (first + i >= count) return;
            size[i] = strtoll(fields[first + i], &end, 10);
            whole = whole && !*end && size[i] > 0;
        }
        if (!whole) continue;
        p->overrides = tm_grow(p->overrides, &p->overrides_room, p->n_overrides, sizeof *p->overrides);
        p->overrides[p->n_overrides++] = (override){ turns[0], turns[1], size[0], size[1], size[2], false };
    }
}

static tm_status read_overrides(tm_gpu_products *p, const char *path, tm_error *err)
{
    tm_text  text = { 0 };
    tm_error own = { 0 };
    if (tm_file_read(path, MOST_BYTES, &text, &own) != TM_OK) {
        tm_text_fini(&text);
        return tm_fail(err, TM_INVALID, "%s: %s; hipBLASLt would go on without it: unset it, or name a file",
                       override_variable, own.text);
    }
    p->override_hash = tm_hash(text.data, text.length);
    for (const char *at = text.data ? text.data : ""; *at;) {
        size_t n = strcspn(at, "\n");
        read_override(p, at, n);
        at += n + (at[n] == '\n');
    }
    tm_text_fini(&text);
    return TM_OK;
}

/* Theirs are columns: what is a product of rows here is the transposed one to them. */
static override *override_of(const tm_gpu_products *p, const tm_gpu_matmul_shape *s)
{
    for (size_t i = 0; i < p->n_overrides; i++) {
        override *o = &p->overrides[i];
        if (o->m == s->columns && o->n == s->rows && o->k == s->depth && o->turns_a == !s->b_across &&
            o->turns_b == s->a_across)
            return o;
    }
    return NULL;
}

/* --- the interface --------------------------------------------------------------------------------------------------
 */

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

static tm_status read_all(tm_gpu_products *p, tm_error *err)
{
    const char *tune = variable(tune_variable), *file = variable(override_variable);
    char       *end = "";
    long        n = tune ? strtol(tune, &end, 10) : 0;
    if (tune && (*end || n < 2 || n > MOST_TUNED))
        return tm_fail(err, TM_INVALID, "%s must be a number of algorithms from 2 to %d, found '%.40s'", tune_variable,
                       MOST_TUNED, tune);
    if (tune && !p->path)
        return tm_fail(err, TM_INVALID, "%s needs a file to write: name one in %s", tune_variable, file_variable);
    p->tune = (int)n;
    if (p->path && (!tune || tm_file_exists(p->path))) TM_TRY(read_file(p, err));
    return p->of.hip && file ? read_overrides(p, file, err) : TM_OK;
}

tm_status tm_gpu_products_open(const tm_gpu_products_of *of, tm_gpu_products **out, tm_error *err)
{
    tm_gpu_products *p = memset(tm_alloc(sizeof *p), 0, sizeof *p);
    TM_ASSERT(of->bytes <= MOST_ALGORITHM);
    p->of = *of;
    p->path = variable(file_variable);
    snprintf(p->library, sizeof p->library, "%s", of->library);
    snprintf(p->arch, sizeof p->arch, "%s", of->arch);
    *out = p;
    return read_all(p, err);
}

void tm_gpu_products_close(tm_gpu_products *p)
{
    if (!p) return;
    free(p->entries);
    free(p->overrides);
    free(p);
}

const void *tm_gpu_products_find(tm_gpu_products *p, const tm_gpu_matmul_shape *shape)
{
    override *theirs = override_of(p, shape);
    entry    *ours = theirs ? NULL : entry_of(p, shape);
    if (theirs) theirs->used = true;
    if (ours) ours->used = true;
    return ours ? ours->algorithm : NULL;
}

int tm_gpu_products_wanted(const tm_gpu_products *p, const tm_gpu_matmul_shape *shape)
{
    return override_of(p, shape) ? 0 : p->tune;
}

tm_status tm_gpu_products_add(tm_gpu_products *p, const tm_gpu_matmul_shape *shape, const void *algorithm, int n,
                              double seconds, double first_seconds, tm_error *err)
{
    entry *e = new_entry(p);
    e->shape = *shape;
    memcpy(e->algorithm, algorithm, p->of.bytes);
    e->measured = n;
    e->seconds = seconds;
    e->first_seconds = first_seconds;
    e->used = true;
    return write_file(p, err);
}

uint64_t tm_gpu_products_hash(const tm_gpu_products *p)
{
    uint64_t hash = p->override_hash;
    for (size_t i = 0; i < p->n; i++) { /* whatever the order, and whatever the times */
        uint64_t one = tm_hash(p->entries[i].algorithm, p->of.bytes);
        int64_t  of[] = { p->entries[i].shape.rows, p->entries[i].shape.columns, p->entries[i].shape.depth };
        hash += one ^ tm_hash(of, sizeof of);
    }
    return hash;
}

void tm_gpu_products_describe(const tm_gpu_products *p, tm_text *out)
{
    size_t ours = 0, theirs = 0;
    for (size_t i = 0; i < p->n; i++) ours += p->entries[i].used;
    for (size_t i = 0; i < p->n_overrides; i++) theirs += p->overrides[i].used;
    if (ours) tm_text_printf(out, ", %zu of them tuned", ours);
    if (theirs) tm_text_printf(out, ", %zu by %s", theirs, override_variable);
}
