/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/hardware.h"

#include "base/file.h"
#include "base/json.h"
#include "config/yaml.h"
#include "op/op.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* configs/hardware/NAME.yaml, each behind a line "== NAME", made by the Makefile; NULL ends them. */
extern const char *const tm_hardware_lines[];

typedef struct {
    const char *key, *unit;
    bool        gpu, cpu; /* is it needed of one? */
} number_row;
static const number_row numbers[] = {
#define X(id, key, unit, gpu, cpu, help) { key, unit, gpu, cpu },
    TM_HARDWARE_LIST(X)
#undef X
};

static bool is_title(const char *line)
{
    return strncmp(line, "== ", 3) == 0;
}

const char *tm_hardware_name(tm_arena *arena, size_t i)
{
    for (const char *const *line = tm_hardware_lines; *line; line++)
        if (is_title(*line) && i-- == 0) return tm_arena_text(arena, *line + 3);
    return NULL;
}

/* --- reading --------------------------------------------------------------------------------------------------------
 */

typedef struct {
    tm_arena    *arena;
    const char  *place; /* of the file, for messages */
    bool         part;  /* it need not be complete */
    tm_hardware *out;
} reader;

/* The text of a key that must be there; *line: where it is. */
static tm_status read_text(const reader *r, const tm_yaml *root, const char *key, const char *wanted, const char **out,
                           int *line, tm_error *err)
{
    const tm_yaml *value = tm_yaml_get(root, key);
    if (!value) return tm_fail(err, TM_FORMAT, "%s:%d: no key '%s'; wanted %s", r->place, root->line, key, wanted);
    if (value->kind != TM_YAML_SCALAR || !*value->text)
        return tm_fail(err, TM_FORMAT, "%s:%d: '%s' is no text; wanted %s", r->place, value->line, key, wanted);
    *out = tm_arena_text(r->arena, value->text);
    *line = value->line;
    return TM_OK;
}

/* Which of n words the value of a key is. */
static tm_status read_choice(const reader *r, const tm_yaml *root, const char *key, const char *wanted,
                             const char *const *words, int n, int *out, tm_error *err)
{
    const char *text;
    int         line;
    TM_TRY(read_text(r, root, key, wanted, &text, &line, err));
    for (*out = 0; *out < n; ++*out)
        if (strcmp(text, words[*out]) == 0) return TM_OK;
    return tm_fail(err, TM_FORMAT, "%s:%d: '%s' is '%.40s'; wanted %s", r->place, line, key, text, wanted);
}

/* A number above 0. */
static tm_status read_value(const reader *r, const char *key, const char *unit, const tm_yaml *value, double *out,
                            tm_error *err)
{
    char *end = NULL;
    *out = value->kind == TM_YAML_SCALAR ? strtod(value->text, &end) : 0;
    if (end && end != value->text && !*end && isfinite(*out) && *out > 0) return TM_OK;
    return tm_fail(err, TM_FORMAT, "%s:%d: the value of '%s' is '%.40s'; wanted a number above 0%s%s", r->place,
                   value->line, key, value->kind == TM_YAML_SCALAR ? value->text : "a list or map",
                   *unit ? ", in " : "", unit);
}

static tm_status read_number(const reader *r, int which, const tm_yaml *value, tm_error *err)
{
    const number_row *row = &numbers[which];
    const tm_yaml    *number = value->kind == TM_YAML_MAP ? tm_yaml_get(value, "value") : NULL;
    const tm_yaml    *source = value->kind == TM_YAML_MAP ? tm_yaml_get(value, "source") : NULL;
    double            x;
    if (!number || !source || source->kind != TM_YAML_SCALAR || value->count != 2 || !*source->text)
        return tm_fail(err, TM_FORMAT, "%s:%d: '%s' is not { value: NUMBER, source: TEXT }", r->place, value->line,
                       row->key);
    TM_TRY(read_value(r, row->key, row->unit, number, &x, err));
    if (strncmp(row->unit, "of ", 3) == 0 && x > 1)
        return tm_fail(err, TM_FORMAT, "%s:%d: the value of '%s' is %.40s; it is a share, at most 1", r->place,
                       number->line, row->key, number->text);
    r->out->number[which] = x;
    r->out->source[which] = tm_arena_text(r->arena, source->text);
    return TM_OK;
}

/* --- ops ------------------------------------------------------------------------------------------------------------
 */

static bool is_format(const char *name)
{
    for (int i = 0; i < TM_DTYPE_COUNT; i++)
        if (strcmp(tm_dtype_name((tm_dtype)i), name) == 0) return true;
    return false;
}

static tm_status check_op_name(const reader *r, const tm_yaml_item *item, tm_error *err)
{
    size_t      n = strcspn(item->key, ".");
    const char *name = tm_arena_text_n(r->arena, item->key, n), *nearest = tm_op_get(0)->name;
    if (item->key[n] && !is_format(item->key + n + 1))
        return tm_fail(err, TM_FORMAT, "%s:%d: '%.60s' of the op '%.60s' is no format; wanted bfloat16, float16, ...",
                       r->place, item->line, item->key + n + 1, name);
    for (int i = 0; i < TM_OP_COUNT; i++) {
        const char *known = tm_op_get((tm_op_id)i)->name;
        if (strcmp(known, name) == 0) return TM_OK;
        if (tm_edit_distance(known, name) < tm_edit_distance(nearest, name)) nearest = known;
    }
    return tm_fail(err, TM_FORMAT, "%s:%d: unknown op '%.60s'; did you mean '%s'? `trainmark ops` lists all", r->place,
                   item->line, item->key, nearest);
}

static tm_status read_op(const reader *r, const tm_yaml_item *item, tm_hardware_op *op, tm_error *err)
{
    static const char wanted[] = "{ call: US, flops: TFLOP/S, bytes: GB/S, source: TEXT }, one number at least";
    TM_TRY(check_op_name(r, item, err));
    op->name = tm_arena_text(r->arena, item->key);
    if (item->value->kind != TM_YAML_MAP)
        return tm_fail(err, TM_FORMAT, "%s:%d: op '%s' is not %s", r->place, item->line, op->name, wanted);
    for (const tm_yaml_item *part = item->value->first; part; part = part->next) {
        if (strcmp(part->key, "call") == 0)
            TM_TRY(read_value(r, "call", "us", part->value, &op->call, err));
        else if (strcmp(part->key, "flops") == 0)
            TM_TRY(read_value(r, "flops", "TFLOP/s", part->value, &op->flops, err));
        else if (strcmp(part->key, "bytes") == 0)
            TM_TRY(read_value(r, "bytes", "GB/s", part->value, &op->bytes, err));
        else if (strcmp(part->key, "source") == 0 && part->value->kind == TM_YAML_SCALAR && *part->value->text)
            op->source = tm_arena_text(r->arena, part->value->text);
        else
            return tm_fail(err, TM_FORMAT, "%s:%d: '%.40s' of op '%s'; wanted %s", r->place, part->line, part->key,
                           op->name, wanted);
    }
    if (!op->source || (op->call <= 0 && op->flops <= 0 && op->bytes <= 0))
        return tm_fail(err, TM_FORMAT, "%s:%d: op '%s' is not %s", r->place, item->line, op->name, wanted);
    return TM_OK;
}

static tm_status read_ops(const reader *r, const tm_yaml_item *item, tm_error *err)
{
    if (item->value->kind != TM_YAML_MAP)
        return tm_fail(err, TM_FORMAT, "%s:%d: 'ops' is not a map of ops", r->place, item->line);
    tm_hardware_op *ops = tm_arena_take(r->arena, (item->value->count + 1) * sizeof *ops);
    r->out->op = ops;
    for (const tm_yaml_item *one = item->value->first; one; one = one->next)
        TM_TRY(read_op(r, one, &ops[r->out->n_ops++], err));
    return TM_OK;
}

/* --- the whole ------------------------------------------------------------------------------------------------------
 */

static tm_status unknown_key(const reader *r, const tm_yaml_item *item, tm_error *err)
{
    const char *nearest = numbers[0].key;
    for (int i = 1; i < TM_HARDWARE_NUMBERS; i++)
        if (tm_edit_distance(item->key, numbers[i].key) < tm_edit_distance(item->key, nearest))
            nearest = numbers[i].key;
    return tm_fail(err, TM_FORMAT, "%s:%d: unknown key '%.60s'; did you mean '%s'? docs/hardware-files.md lists all",
                   r->place, item->line, item->key, nearest);
}

static tm_status read_item(const reader *r, const tm_yaml_item *item, tm_error *err)
{
    static const char *const texts[] = { "name", "maker", "arch", "kind", "links" };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (strcmp(item->key, texts[i]) == 0) return TM_OK;
    for (int i = 0; i < TM_HARDWARE_NUMBERS; i++)
        if (strcmp(item->key, numbers[i].key) == 0) return read_number(r, i, item->value, err);
    if (strcmp(item->key, "ops") == 0) return read_ops(r, item, err);
    return unknown_key(r, item, err);
}

static tm_status check_needed(const reader *r, const tm_yaml *root, tm_error *err)
{
    const tm_hardware *hw = r->out;
    for (int i = 0; i < TM_HARDWARE_NUMBERS; i++) {
        bool links = hw->links != TM_LINKS_NONE && i >= TM_HARDWARE_LINK_DEVICES && i <= TM_HARDWARE_LINK_DELAY;
        if (hw->number[i] == 0 && ((hw->cpu ? numbers[i].cpu : numbers[i].gpu) || links))
            return tm_fail(err, TM_FORMAT,
                           "%s:%d: no key '%s', which %s needs; wanted { value: NUMBER%s%s, source: TEXT }", r->place,
                           root->line, numbers[i].key,
                           links     ? "hardware with links"
                           : hw->cpu ? "a CPU"
                                     : "a GPU",
                           *numbers[i].unit ? " in " : "", numbers[i].unit);
    }
    return TM_OK;
}

/* A rate that products reach is at most that of the data sheet. */
static tm_status check_rates(const reader *r, const tm_yaml *root, tm_error *err)
{
    static const int pairs[][2] = { { TM_HARDWARE_PRODUCT_F32, TM_HARDWARE_PEAK_F32 },
                                    { TM_HARDWARE_PRODUCT_BF16, TM_HARDWARE_PEAK_BF16 },
                                    { TM_HARDWARE_PRODUCT_FP8, TM_HARDWARE_PEAK_FP8 },
                                    { TM_HARDWARE_PRODUCT_FP4, TM_HARDWARE_PEAK_FP4 },
                                    { TM_HARDWARE_ATTENTION_FORWARD, TM_HARDWARE_PEAK_BF16 },
                                    { TM_HARDWARE_ATTENTION_BACKWARD, TM_HARDWARE_PEAK_BF16 },
                                    { TM_HARDWARE_SUSTAINED_CLOCK, TM_HARDWARE_CLOCK } };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        double reached = r->out->number[pairs[i][0]], most = r->out->number[pairs[i][1]];
        if (most > 0 && reached > most)
            return tm_fail(err, TM_FORMAT, "%s:%d: '%s' is %g; wanted at most '%s', which is %g", r->place,
                           tm_yaml_get(root, numbers[pairs[i][0]].key)->line, numbers[pairs[i][0]].key, reached,
                           numbers[pairs[i][1]].key, most);
    }
    return TM_OK;
}

static const char *const kinds[] = { "gpu", "cpu" }, *const links[] = { "none", "mesh", "switch" };

static tm_status read_root(const reader *r, const tm_yaml *root, tm_error *err)
{
    tm_hardware *hw = r->out;
    int          line, kind, joined;
    if (!root || root->kind != TM_YAML_MAP)
        return tm_fail(err, TM_FORMAT,
                       "%s:%d: no keys; wanted name, maker, kind, links and numbers; docs/hardware-files.md lists all",
                       r->place, root ? root->line : 1);
    for (const tm_yaml_item *item = root->first; item; item = item->next) TM_TRY(read_item(r, item, err));
    TM_TRY(read_text(r, root, "name", "the hardware's name", &hw->name, &line, err));
    TM_TRY(read_text(r, root, "maker", "who makes it", &hw->maker, &line, err));
    TM_TRY(read_choice(r, root, "kind", "gpu or cpu", kinds, 2, &kind, err));
    TM_TRY(read_choice(r, root, "links", "none, mesh or switch", links, 3, &joined, err));
    hw->cpu = kind == 1;
    hw->links = (tm_links)joined;
    hw->arch = "";
    if (tm_yaml_get(root, "arch")) TM_TRY(read_text(r, root, "arch", "gfx942, sm_90, ...", &hw->arch, &line, err));
    if (!r->part) TM_TRY(check_needed(r, root, err));
    return check_rates(r, root, err);
}

/* The lines of a built-in file; false: there is none of that name. */
static bool built_in(const char *name, tm_text *out)
{
    const char *const *line = tm_hardware_lines;
    while (*line && !(is_title(*line) && tm_names_equal(*line + 3, name))) line++;
    if (!*line) return false;
    for (line++; *line && !is_title(*line); line++) tm_text_printf(out, "%s\n", *line);
    return true;
}

static tm_status no_such(tm_arena *arena, const char *name, tm_error *err)
{
    tm_text     names = { 0 };
    const char *one;
    for (size_t i = 0; (one = tm_hardware_name(arena, i)) != NULL; i++)
        tm_text_printf(&names, "%s%s", i ? ", " : "", one);
    tm_status st = tm_fail(err, TM_INVALID,
                           "there is no hardware '%.60s'; wanted one of %s, or the path of a hardware file, ending in "
                           ".yaml",
                           name, names.data);
    tm_text_fini(&names);
    return st;
}

/* A file, not a built-in name. */
static bool is_path(const char *name)
{
    size_t n = strlen(name);
    return strchr(name, '/') || (n > 5 && strcmp(name + n - 5, ".yaml") == 0);
}

static tm_status read_hardware(reader r, tm_error *err)
{
    const char    *name = r.place;
    tm_text        text = { 0 };
    const tm_yaml *root = NULL;
    *r.out = (tm_hardware){ 0 };
    tm_status st = TM_OK;
    if (r.part || is_path(name))
        st = tm_file_read(name, TM_YAML_MAX_BYTES, &text, err);
    else if (!built_in(name, &text))
        st = no_such(r.arena, name, err);
    if (st == TM_OK) st = tm_yaml_parse(r.arena, text.data ? text.data : "", text.length, name, &root, err);
    if (st == TM_OK) st = read_root(&r, root, err);
    tm_text_fini(&text);
    return st;
}

tm_status tm_hardware_read(tm_arena *arena, const char *name, tm_hardware *out, tm_error *err)
{
    return read_hardware((reader){ .arena = arena, .place = name, .out = out }, err);
}

tm_status tm_hardware_read_part(tm_arena *arena, const char *path, tm_hardware *out, tm_error *err)
{
    return read_hardware((reader){ .arena = arena, .place = path, .part = true, .out = out }, err);
}

/* --- many of them ---------------------------------------------------------------------------------------------------
 */

/* "8x" at *at: a number that is stepped over with its x; 0: there is none; -1: it is not above 0. */
static long count(const char **at)
{
    char *end;
    if (!isdigit((unsigned char)**at)) return 0;
    long n = strtol(*at, &end, 10);
    if (*end != 'x' && *end != 'X') return 0;
    *at = end + 1;
    return n < 1 ? -1 : n;
}

tm_status tm_machine_plan_read(tm_arena *arena, const char *text, tm_machine_plan *out, tm_error *err)
{
    enum { MOST_NODES = 1 << 17, MOST_DEVICES = 72 };
    const char *name = text;
    tm_text     lines = { 0 };
    /* A name may begin with a number: "2xEPYC-9654". */
    bool whole = built_in(text, &lines) || (is_path(text) && tm_file_exists(text));
    long first = whole ? 0 : count(&name), second = first ? count(&name) : 0;
    long nodes = second ? first : 1, devices = second ? second : first ? first : 1;
    tm_text_fini(&lines);
    TM_TRY(tm_hardware_read(arena, name, &out->device, err));
    if (nodes < 1 || nodes > MOST_NODES || devices < 1 || devices > MOST_DEVICES)
        return tm_fail(err, TM_USAGE, "--platform '%.60s': nodes are 1 to %d, devices of a node 1 to %d", text,
                       MOST_NODES, MOST_DEVICES);
    out->nodes = (int)nodes;
    out->devices = (int)devices;
    return TM_OK;
}

/* --- writing --------------------------------------------------------------------------------------------------------
 */

static void print_value(const char *key, double value, tm_text *out)
{
    char text[32];
    if (value > 0) tm_text_printf(out, "%s: %s, ", key, tm_format_double(text, value));
}

static void print_source(const char *source, tm_text *out)
{
    tm_text_add(out, "source: ");
    tm_json_quote(out, source);
    tm_text_add(out, " }\n");
}

void tm_hardware_print(const tm_hardware *hw, tm_text *out)
{
    tm_text_add(out, "name: ");
    tm_json_quote(out, hw->name);
    tm_text_add(out, "\nmaker: ");
    tm_json_quote(out, hw->maker);
    if (*hw->arch) {
        tm_text_add(out, "\narch: ");
        tm_json_quote(out, hw->arch);
    }
    tm_text_printf(out, "\nkind: %s\nlinks: %s\n", kinds[hw->cpu], links[hw->links]);
    for (int i = 0; i < TM_HARDWARE_NUMBERS; i++) {
        if (hw->number[i] <= 0) continue;
        tm_text_printf(out, "%s: { ", numbers[i].key);
        print_value("value", hw->number[i], out);
        print_source(hw->source[i], out);
    }
    if (hw->n_ops) tm_text_add(out, "ops:\n");
    for (size_t i = 0; i < hw->n_ops; i++) {
        tm_text_printf(out, "  %s: { ", hw->op[i].name);
        print_value("call", hw->op[i].call, out);
        print_value("flops", hw->op[i].flops, out);
        print_value("bytes", hw->op[i].bytes, out);
        print_source(hw->op[i].source, out);
    }
}
