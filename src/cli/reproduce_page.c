/* SPDX-License-Identifier: Apache-2.0 */
/* cli/reproduce_page.c - the rows of a published page, from YAML, with their figures from the published ones. */
#include "cli/reproduce.h"

#include "base/file.h"
#include "base/text.h"
#include "config/yaml.h"

#include <string.h>

/* configs/reference/NAME.yaml, each behind a line "== NAME", made by the Makefile; NULL ends them. */
extern const char *const tm_page_lines[];

static bool is_title(const char *line)
{
    return strncmp(line, "== ", 3) == 0;
}

const char *page_name(tm_arena *arena, size_t i)
{
    for (const char *const *line = tm_page_lines; *line; line++)
        if (is_title(*line) && i-- == 0) return tm_arena_text(arena, *line + 3);
    return NULL;
}

char **page_words(tm_arena *arena, const char *text, int *n)
{
    char **words = tm_arena_take(arena, (strlen(text) / 2 + 2) * sizeof *words), *to = NULL;
    bool   quoted = false;
    *n = 0;
    for (char *c = tm_arena_text(arena, text); *c; c++) {
        bool blank = !quoted && (*c == ' ' || *c == '\t' || *c == '\n');
        if (blank && to) *to = '\0';
        if (blank) to = NULL;
        if (blank) continue;
        if (!to) to = words[(*n)++] = c;
        if (*c == '"')
            quoted = !quoted;
        else
            *to++ = *c;
        if (!c[1]) *to = '\0';
    }
    words[*n] = NULL;
    return words;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

typedef struct {
    const char     *place; /* the file, for messages */
    tm_arena       *arena;
    tm_published   *figures;
    const char     *source, *common;
    reproduce_page *page;
} reader;

/* The value of a key that is text; NULL: it is not there. */
static tm_status take(const reader *r, const tm_yaml *map, const char *key, const char **out, tm_error *err)
{
    const tm_yaml *value = tm_yaml_get(map, key);
    *out = NULL;
    if (!value) return TM_OK;
    if (value->kind != TM_YAML_SCALAR || !*value->text)
        return tm_fail(err, TM_FORMAT, "%s:%d: '%s' wants a text", r->place, value->line, key);
    *out = value->text;
    return TM_OK;
}

static tm_status check_keys(const reader *r, const tm_yaml *map, const char *where, const char *known, tm_error *err)
{
    for (const tm_yaml_item *item = map->first; item; item = item->next) {
        size_t      n = strlen(item->key);
        const char *at = known;
        while (at && !(strncmp(at, item->key, n) == 0 && (at[n] == ',' || !at[n])))
            at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL;
        if (!at || n == 0)
            return tm_fail(err, TM_FORMAT, "%s:%d: unknown key '%.60s' of %s; known are %s", r->place, item->line,
                           item->key, where, known);
    }
    return TM_OK;
}

/* "*" and what is not said are any. */
static bool is(const char *wanted, const char *have)
{
    return !wanted || strcmp(wanted, "*") == 0 || strcmp(wanted, have) == 0;
}

static bool belongs(const page_row *row, char *const *query, int n, const tm_figure *f)
{
    const tm_platform *p = &row->platform;
    const char        *wanted[5] = { NULL }, *have[5] = { f->workload, f->row, f->dtype, f->batch, f->seq };
    for (int i = 0; i < 5; i++) wanted[i] = i < n ? query[i] : NULL;
    for (int i = 0; i < 5; i++)
        if (!is(wanted[i], have[i])) return false;
    if (strcmp(f->device, p->gpu ? p->gpu->name : "cpu") != 0 || f->devices != (int64_t)p->nodes * p->gpus)
        return false;
    return !row->source || strcmp(f->source, row->source) == 0;
}

static tm_status find_figures(const reader *r, page_row *row, const char *query, tm_error *err)
{
    int       n;
    tm_figure f;
    if (!query) return TM_OK;
    char **words = page_words(r->arena, query, &n);
    if (n < 2 || n > 5)
        return tm_fail(err, TM_FORMAT, "%s:%d: figure '%.80s' of '%s': wanted WORKLOAD ROW [DTYPE [BATCH [SEQ]]]",
                       r->place, row->line, query, row->name);
    for (int fill = 0; fill < 2; fill++) {
        if (fill) row->figures = tm_arena_take(r->arena, (row->n_figures + 1) * sizeof *row->figures);
        row->n_figures = 0;
        for (size_t i = 0; tm_published_at(r->figures, i, &f); i++)
            if (belongs(row, words, n, &f)) {
                if (fill) row->figures[row->n_figures] = f;
                row->n_figures++;
            }
    }
    if (row->n_figures == 0)
        return tm_fail(err, TM_FORMAT,
                       "%s:%d: row '%s': no published figure '%.80s' of %s%s%s; `trainmark reference` lists all",
                       r->place, row->line, row->name, query, row->hardware, row->source ? " by " : "",
                       row->source ? row->source : "");
    return TM_OK;
}

static const char row_keys[] = "hardware,theirs,ours,plan,slice,figure,source,note";

static tm_status read_row(const reader *r, const tm_yaml_item *item, page_row *row, tm_error *err)
{
    const tm_yaml *map = item->value;
    const char    *figure;
    *row = (page_row){ .name = item->key, .line = item->line };
    if (map->kind != TM_YAML_MAP)
        return tm_fail(err, TM_FORMAT, "%s:%d: row '%.60s' wants keys (%s)", r->place, item->line, item->key, row_keys);
    if (strspn(item->key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != strlen(item->key) ||
        item->key[0] == '.' || item->key[0] == '-')
        return tm_fail(err, TM_FORMAT, "%s:%d: row '%.60s': its name is that of a folder: letters, digits, '.-_'",
                       r->place, item->line, item->key);
    TM_TRY(check_keys(r, map, "a row", row_keys, err));
    const struct {
        const char  *key;
        const char **to;
    } keys[] = { { "hardware", &row->hardware }, { "theirs", &row->theirs }, { "ours", &row->ours },
                 { "plan", &row->plan },         { "slice", &row->slice },   { "figure", &figure },
                 { "source", &row->source },     { "note", &row->note } };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) TM_TRY(take(r, map, keys[i].key, keys[i].to, err));
    if (!row->hardware || !row->theirs)
        return tm_fail(err, TM_FORMAT, "%s:%d: row '%s' has no '%s'", r->place, item->line, item->key,
                       row->hardware ? "theirs" : "hardware");
    if (!row->source) row->source = r->source;
    if (!row->ours) row->ours = tm_arena_format(r->arena, "run %s", row->theirs);
    bool trains = strncmp(row->ours, "run ", 4) == 0;
    if (trains && r->common) row->ours = tm_arena_format(r->arena, "%s %s", row->ours, r->common);
    if (trains && !row->plan) row->plan = row->ours;
    row->platform = (tm_platform){ .nodes = 1, .gpus = 1 };
    tm_error  own = { 0 };
    tm_status st = TM_OK;
    if (strcmp(row->hardware, "cpu") != 0) st = tm_platform_read(row->hardware, &row->platform, &own);
    if (st != TM_OK)
        return tm_fail(err, TM_FORMAT, "%s:%d: hardware of '%s': %s", r->place, item->line, row->name, own.text);
    return find_figures(r, row, figure, err);
}

static tm_status read_software(reader *r, const tm_yaml *map, tm_error *err)
{
    if (!map) return TM_OK;
    if (map->kind != TM_YAML_MAP)
        return tm_fail(err, TM_FORMAT, "%s:%d: 'software' wants NAME: VERSION, ...", r->place, map->line);
    r->page->software = tm_arena_take(r->arena, (map->count + 1) * sizeof *r->page->software);
    for (const tm_yaml_item *item = map->first; item; item = item->next) {
        const char *version;
        TM_TRY(take(r, map, item->key, &version, err));
        r->page->software[r->page->n_software++] = (page_software){ item->key, version };
    }
    return TM_OK;
}

/* figures: a CSV beside the page; without it those that are compiled in. */
static tm_status open_figures(reader *r, const tm_yaml *root, tm_error *err)
{
    const char *file, *slash = strrchr(r->place, '/');
    TM_TRY(take(r, root, "figures", &file, err));
    if (file && file[0] != '/' && slash)
        file = tm_arena_format(r->arena, "%.*s/%s", (int)(slash - r->place), r->place, file);
    return tm_published_read(file, &r->figures, err);
}

static tm_status read_root(reader *r, const tm_yaml *root, tm_error *err)
{
    const tm_yaml *rows = root && root->kind == TM_YAML_MAP ? tm_yaml_get(root, "rows") : NULL;
    size_t         n = 0;
    if (!rows || rows->kind != TM_YAML_MAP || rows->count == 0)
        return tm_fail(err, TM_FORMAT, "%s:%d: a page has title: TEXT and rows: {NAME: {hardware, theirs, ...}}",
                       r->place, root ? root->line : 1);
    TM_TRY(check_keys(r, root, "a page", "title,source,software,common,figures,rows", err));
    TM_TRY(take(r, root, "title", &r->page->title, err));
    if (!r->page->title) return tm_fail(err, TM_FORMAT, "%s:%d: the page has no 'title'", r->place, root->line);
    TM_TRY(take(r, root, "source", &r->source, err));
    TM_TRY(take(r, root, "common", &r->common, err));
    TM_TRY(read_software(r, tm_yaml_get(root, "software"), err));
    TM_TRY(open_figures(r, root, err));
    r->page->rows = tm_arena_take(r->arena, rows->count * sizeof *r->page->rows);
    for (const tm_yaml_item *item = rows->first; item; item = item->next) {
        TM_TRY(read_row(r, item, &r->page->rows[n], err));
        r->page->n = ++n;
    }
    return TM_OK;
}

/* The text of a page that is compiled in; false: there is none of this name. */
static bool built_in(const char *name, tm_text *out)
{
    bool inside = false;
    for (const char *const *line = tm_page_lines; *line; line++) {
        if (is_title(*line)) inside = tm_names_equal(*line + 3, name);
        if (inside) tm_text_printf(out, "%s\n", is_title(*line) ? "" : *line);
    }
    return out->length > 0;
}

static tm_status no_page(const char *name, tm_arena *arena, tm_error *err)
{
    tm_text     names = { 0 };
    const char *one;
    for (size_t i = 0; (one = page_name(arena, i)); i++) tm_text_printf(&names, "%s%s", i ? ", " : "", one);
    tm_status st = tm_fail(err, TM_INVALID, "no page '%.80s'; there are %s, or name a file.yaml", name, names.data);
    tm_text_fini(&names);
    return st;
}

/* Figures' texts live with their table: copies of them with the page. */
static void keep(tm_arena *arena, reproduce_page *page)
{
    for (size_t i = 0; i < page->n; i++)
        for (size_t k = 0; k < page->rows[i].n_figures; k++) {
            tm_figure   *f = &page->rows[i].figures[k];
            const char **texts[] = { &f->workload, &f->row,  &f->device,     &f->scope,  &f->dtype, &f->batch, &f->seq,
                                     &f->column,   &f->unit, &f->convention, &f->source, &f->date,  &f->note };
            for (size_t t = 0; t < sizeof texts / sizeof texts[0]; t++) *texts[t] = tm_arena_text(arena, *texts[t]);
        }
}

tm_status page_read(const char *name, tm_arena *arena, reproduce_page *out, tm_error *err)
{
    size_t         length = strlen(name);
    bool           file = strchr(name, '/') || (length > 5 && strcmp(name + length - 5, ".yaml") == 0);
    reader         r = { .arena = arena, .page = out };
    tm_text        text = { 0 };
    const tm_yaml *root = NULL;
    tm_status      st = TM_OK;
    *out = (reproduce_page){ .name = tm_arena_text(arena, name) };
    r.place = file ? out->name : tm_arena_format(arena, "configs/reference/%s.yaml", name);
    if (file) st = tm_file_read(name, TM_YAML_MAX_BYTES, &text, err);
    if (!file && !built_in(name, &text)) st = no_page(name, arena, err);
    /* The line with the name stands where the file has none. */
    size_t skipped = file || st != TM_OK ? 0 : 1;
    if (st == TM_OK)
        st = tm_yaml_parse(arena, text.data ? text.data + skipped : "", text.length - skipped, r.place, &root, err);
    if (st == TM_OK) st = read_root(&r, root, err);
    if (st == TM_OK) keep(arena, out);
    tm_published_destroy(r.figures);
    tm_text_fini(&text);
    return st;
}
