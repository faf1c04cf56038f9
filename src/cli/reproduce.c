/* SPDX-License-Identifier: Apache-2.0 */
/* cli/reproduce.c - `trainmark reproduce`: the rows of a published page that fit this machine, run; the others,
 * planned; ours beside the published figures, and why they may differ. */
#include "cli/reproduce.h"

#include "base/file.h"
#include "base/lock.h"
#include "base/program.h"
#include "cli/cli.h"
#include "cli/child.h"
#include "gpu/runtime.h"
#include "record/table.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    const char *out, *rows, *platform;
    double      at_least;
    bool        dry_run, slice, any_gpu, json;

} command_options;

typedef struct {
    const command_options *cli;
    reproduce_options      options;
    reproduce_page         page;
    reproduce_row         *rows; /* (n) */
    size_t                 n;
    tm_arena              *arena;
    bool                   quiet, verbose;
} reproduction;

static const char *const state_names[] = { "planned", "not here", "does not fit", "ran", "invalid", "failed" };

/* --- what there is ------------------------------------------------------------------------------------------------ */

/* Each page, its title, and how many rows have figures. */
static tm_status list_pages(bool json, bool verbose, tm_arena *arena, tm_error *err)
{
    tm_table   *table = tm_table_create("pages");
    tm_text     text = { 0 };
    const char *name;
    tm_status   st = TM_OK;
    tm_table_columns(table, (tm_column[]){ { "page", 0 }, { "title", 0 }, { "rows", 0 }, { "with_figures", 0 } }, 4);
    for (size_t i = 0; st == TM_OK && (name = page_name(arena, i)); i++) {
        reproduce_page page;
        int64_t        figures = 0;
        st = page_read(name, arena, &page, err);
        for (size_t k = 0; st == TM_OK && k < page.n; k++) figures += page.rows[k].n_figures > 0;
        if (st != TM_OK) break;
        tm_table_row(table);
        tm_table_text(table, "page", name);
        tm_table_text(table, "title", page.title);
        tm_table_i64(table, "rows", (int64_t)page.n);
        tm_table_i64(table, "with_figures", figures);
    }
    tm_table_note(table, "`trainmark reproduce PAGE --dry-run` plans the rows of one");
    tm_cli_add_table(table, json, verbose, &text);
    if (st == TM_OK) st = tm_cli_print(&text, err);
    tm_text_fini(&text);
    tm_table_destroy(table);
    return st;
}

static reproduce_machine machine_here(void)
{
    static const struct {
        tm_gpu_maker maker;
        const char  *device;
    } makers[] = { { TM_GPU_HIP, "hip" }, { TM_GPU_CUDA, "cuda" } };
    reproduce_machine m = { .device = NULL };
    for (int i = 0; i < 2 && !m.device; i++) {
        tm_gpu  *gpu;
        tm_error none = { 0 };
        if (tm_gpu_open(makers[i].maker, 0, &gpu, &none) != TM_OK) continue;
        const tm_gpu_facts *f = tm_gpu_facts_of(gpu);
        m = (reproduce_machine){ .device = makers[i].device, .count = f->count, .memory_bytes = (int64_t)f->memory };
        snprintf(m.name, sizeof m.name, "%s", f->name);
        tm_gpu_close(gpu);
    }
    return m;
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

/* Less is better of times; neither of memory. */
static double speed_ratio(const tm_figure *f, double ratio)
{
    if (strstr(f->unit, "bytes")) return (double)NAN;
    return strstr(f->unit, "/s") ? ratio : 1 / ratio;
}

static bool has_run(const reproduce_row *row)
{
    return row->state == ROW_RAN || row->state == ROW_INVALID;
}

/* Memory is what can be foretold without a run. */
static double predicted(const reproduce_row *row, const tm_figure *f)
{
    return strcmp(f->column, "memory_gb") == 0 ? row->plan_bytes / 1e9 : (double)NAN;
}

/* Ours, the published value, their ratio; is there ours? */
static bool add_values(tm_table *table, const reproduce_row *row, const tm_figure *f)
{
    row_measured m = row_measure(row, f);
    double       published = row_published(f), ours = has_run(row) ? m.value : predicted(row, f);
    tm_table_f64(table, "published", published);
    tm_table_text(table, "unit", f->unit);
    tm_table_text(table, "convention", *f->convention ? f->convention : NULL);
    if (!isfinite(ours)) return false;
    tm_table_f64(table, "ours", ours);
    tm_table_f64(table, "ratio", ours / published);
    if (isfinite(m.lo)) tm_table_f64(table, "lo", m.lo);
    if (isfinite(m.hi)) tm_table_f64(table, "hi", m.hi);
    return true;
}

static void add_all(tm_table *table, const reproduce_row *row, const tm_figure *f)
{
    tm_table_row(table);
    tm_table_text(table, "row", row->page->name);
    tm_table_text(table, "hardware", row->page->hardware);
    tm_table_text(table, "state", state_names[row->state]);
    if (isfinite(row->plan_bytes)) tm_table_f64(table, "plan_gib", row->plan_bytes / (double)(1 << 30));
    if (row->fits >= 0) tm_table_bool(table, "fits", row->fits);
    tm_table_text(table, "why", row->why);
    tm_table_text(table, "causes", row->causes);
    tm_table_text(table, "theirs", row->page->theirs);
    tm_table_printf(table, "command", "trainmark %s", row->page->ours);
    tm_table_text(table, "note", row->page->note);
    if (!f) return;
    tm_table_text(table, "figure", f->column);
    tm_table_text(table, "case", f->row);
    tm_table_text(table, "source", f->source);
    tm_table_text(table, "published_note", *f->note ? f->note : NULL);
    if (add_values(table, row, f)) tm_table_text(table, "tag", has_run(row) ? "measured" : "predicted");
}

static void add_brief(tm_table *table, const reproduce_row *row, const tm_figure *f)
{
    bool several = f && strcmp(row->page->figures[0].row, row->page->figures[row->page->n_figures - 1].row) != 0;
    bool foretold = f && !has_run(row) && isfinite(predicted(row, f));
    tm_table_row(table);
    tm_table_text(table, "row", row->page->name);
    tm_table_text(table, "state", foretold ? "predicted" : state_names[row->state]);
    if (isfinite(row->plan_bytes)) tm_table_f64(table, "plan_gib", row->plan_bytes / (double)(1 << 30));
    if (!f) return;
    tm_table_printf(table, "figure", "%s%s%s", f->column, several ? " " : "", several ? f->row : "");
    add_values(table, row, f);
}

/* The rows of one reason, behind it. */
static void add_reason(const reproduction *r, size_t first, tm_table *table)
{
    tm_text     names = { 0 };
    const char *why = r->rows[first].why;
    for (size_t i = 0; i < first; i++)
        if (r->rows[i].why && strcmp(r->rows[i].why, why) == 0) return;
    for (size_t i = first; i < r->n; i++)
        if (r->rows[i].why && strcmp(r->rows[i].why, why) == 0)
            tm_text_printf(&names, "%s%s", names.length ? ", " : "", r->rows[i].page->name);
    tm_table_note(table, "%s: %s", names.data, why);
    tm_text_fini(&names);
}

/* Causes, and why rows were not run or failed, below the table. */
static void add_notes(const reproduction *r, tm_table *table)
{
    bool times = false;
    for (size_t i = 0; i < r->n; i++) {
        const reproduce_row *row = &r->rows[i];
        for (const char *line = row->causes, *end; line && *line; line = *end ? end + 1 : end) {
            end = line + strcspn(line, "\n");
            tm_table_note(table, "%s: %.*s", row->page->name, (int)(end - line), line);
        }
        if (row->why) add_reason(r, i, table);
        if (row->srun) tm_table_note(table, "%s, once for all nodes: %s", row->page->name, row->srun);
        if (row->srun)
            tm_table_note(table,
                          "%s, or on each node (NODE: 0 to %d, FIRST: the host of node 0, all with the same "
                          "TRAINMARK_SECRET): %s",
                          row->page->name, row->page->platform.nodes - 1, row->torchrun);
        times = times || (!has_run(row) && row->page->n_figures > 0);
    }
    if (r->options.slice) tm_table_note(table, "slices are other models: nothing of them is published");
    if (times)
        tm_table_note(table, "of rows that did not run, memory is predicted (the plan); no time is: no model of these "
                             "GPUs' times has been judged by a measurement");
}

/* A slice is another model: nothing published is beside it. */
static void add_rows(const reproduction *r, tm_table *table,
                     void (*add)(tm_table *, const reproduce_row *, const tm_figure *))
{
    for (size_t i = 0; i < r->n; i++) {
        const page_row *page = r->rows[i].page;
        size_t          n = r->options.slice ? 0 : page->n_figures;
        for (size_t k = 0; k == 0 || k < n; k++) add(table, &r->rows[i], n ? &page->figures[k] : NULL);
    }
}

/* Everything, for programs. */
static tm_table *make_table(const reproduction *r)
{
    static const char *const names[] = {
        "row",    "hardware", "state",     "plan_gib", "fits", "figure",     "case",   "ours",           "tag",
        "lo",     "hi",       "published", "ratio",    "unit", "convention", "source", "published_note", "why",
        "causes", "theirs",   "command",   "note"
    };
    tm_table *table = tm_table_create("reproduce");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) tm_table_column(table, names[i], 0);
    add_rows(r, table, add_all);
    return table;
}

/* What fits a screen: causes and reasons stand below. */
static tm_table *make_brief(const reproduction *r)
{
    static const tm_column columns[] = { { "row", 0 },   { "figure", 0 }, { "state", 0 },     { "plan_gib", 4 },
                                         { "ours", 5 },  { "lo", 5 },     { "hi", 5 },        { "published", 7 },
                                         { "ratio", 4 }, { "unit", 0 },   { "convention", 0 } };
    tm_table              *table = tm_table_create("reproduce");
    tm_table_columns(table, columns, sizeof columns / sizeof columns[0]);
    add_rows(r, table, add_brief);
    add_notes(r, table);
    return table;
}

/* The page: the table, then each row with both commands. */
static tm_status write_report(const reproduction *r, const tm_table *brief, const tm_table *all, tm_error *err)
{
    tm_text text = { 0 };
    tm_text_printf(&text, "# %s\n\n`trainmark reproduce %s`: ours beside the published figures, per device.\n\n",
                   r->page.title, r->page.name);
    tm_table_print(brief, TM_TABLE_MARKDOWN, &text);
    tm_text_add(&text, "\n## Rows\n");
    for (size_t i = 0; i < r->n; i++) {
        const reproduce_row *row = &r->rows[i];
        tm_text_printf(&text, "\n### %s\n\n- hardware: %s\n- the page: `%s`\n- here: `trainmark %s`\n- state: %s%s%s\n",
                       row->page->name, row->page->hardware, row->page->theirs, row->page->ours,
                       state_names[row->state], row->why ? ", " : "", row->why ? row->why : "");
        if (row->srun)
            tm_text_printf(
                &text,
                "- once for all nodes: `%s`\n- or on each node (NODE: 0 to %d, FIRST: the host of node 0, all "
                "with the same TRAINMARK_SECRET): `%s`\n",
                row->srun, row->page->platform.nodes - 1, row->torchrun);
        if (row->page->note) tm_text_printf(&text, "- note: %s\n", row->page->note);
        if (row->causes) tm_cli_add_lines(&text, "- likely cause of a difference: ", row->causes);
        if (!row->causes && row->state == ROW_RAN && row->page->n_figures && !r->options.slice)
            tm_text_add(&text,
                        "- likely cause of a difference: none is known of configuration, libraries and machine\n");
    }
    tm_status st =
        tm_file_write(tm_arena_format(r->arena, "%s/report.md", r->options.folder), text.data, text.length, err);
    tm_text_fini(&text);
    if (st == TM_OK) st = tm_table_write(all, tm_arena_format(r->arena, "%s/rows.csv", r->options.folder), err);
    if (st == TM_OK) st = tm_table_write(all, tm_arena_format(r->arena, "%s/rows.json", r->options.folder), err);
    return st;
}

static tm_status give_out(const reproduction *r, tm_error *err)
{
    tm_text   text = { 0 };
    tm_table *brief = make_brief(r), *all = make_table(r);
    add_notes(r, all);
    tm_cli_add_table(r->cli->json ? all : brief, r->cli->json, r->verbose, &text);
    tm_status st = r->options.dry_run ? TM_OK : write_report(r, brief, all, err);
    if (st == TM_OK) st = tm_cli_print(&text, err);
    tm_text_fini(&text);
    tm_table_destroy(brief);
    tm_table_destroy(all);
    return st;
}

/* --- all rows ----------------------------------------------------------------------------------------------------- */

static void tell(const reproduction *r, size_t i, const char *what)
{
    if (!r->quiet) fprintf(stderr, "row %zu of %zu: %s: %s\n", i + 1, r->n, r->rows[i].page->name, what);
}

static tm_status plan_all(reproduction *r, tm_error *err)
{
    for (size_t i = 0; i < r->n; i++) TM_TRY(row_plan(&r->rows[i], &r->options, r->arena, err));
    return TM_OK;
}

static tm_status run_all(reproduction *r, tm_error *err)
{
    for (size_t i = 0; i < r->n; i++) {
        reproduce_row *row = &r->rows[i];
        if (row->state != ROW_PLANNED) continue;
        TM_TRY(row_run(row, &r->options, r->arena, err));
        if (row->state == ROW_RAN || row->state == ROW_INVALID)
            row->causes = row_causes(row, &r->page, r->options.slice, r->arena);
        tell(r, i, row->earlier ? "done already" : row->why ? row->why : state_names[row->state]);
    }
    return TM_OK;
}

static tm_status select_rows(reproduction *r, tm_error *err)
{
    r->rows = tm_arena_take(r->arena, r->page.n * sizeof *r->rows);
    for (size_t i = 0; i < r->page.n; i++)
        if (!r->cli->rows || fnmatch(r->cli->rows, r->page.rows[i].name, 0) == 0)
            r->rows[r->n++] = (reproduce_row){ .page = &r->page.rows[i] };
    if (r->n == 0)
        return tm_fail(err, TM_INVALID, "no row of %s is called '%.80s'; `trainmark reproduce %s --dry-run` lists them",
                       r->page.name, r->cli->rows, r->page.name);
    return TM_OK;
}

/* What the rows were like, the worst first: failed, invalid, below the bar. */
static tm_status judge(const reproduction *r, tm_error *err)
{
    size_t judged = 0, below = 0;
    for (size_t i = 0; i < r->n; i++) {
        const reproduce_row *row = &r->rows[i];
        if (row->state != ROW_FAILED) continue;
        return tm_fail(err, row->code == 1 ? TM_INTERNAL : TM_INVALID, "row %s: %s", row->page->name, row->why);
    }
    for (size_t i = 0; i < r->n; i++)
        if (r->rows[i].state == ROW_INVALID)
            return tm_fail(err, TM_NUMBERS, "row %s: %s", r->rows[i].page->name, r->rows[i].why);
    if (r->cli->at_least <= 0) return TM_OK;
    for (size_t i = 0; i < r->n; i++)
        for (size_t k = 0; k < r->rows[i].page->n_figures; k++) {
            const tm_figure *f = &r->rows[i].page->figures[k];
            double           ratio = r->rows[i].state == ROW_RAN && !r->options.slice
                                         ? speed_ratio(f, row_measure(&r->rows[i], f).value / row_published(f))
                                         : (double)NAN;
            if (!isfinite(ratio)) continue;
            judged++;
            below += ratio < r->cli->at_least;
        }
    if (judged == 0)
        return tm_fail(err, TM_INVALID, "--at-least %g judges figures that were measured, and none was",
                       r->cli->at_least);
    if (below)
        return tm_fail(err, TM_NEGATIVE, "%zu of %zu figures are below %g of what is published", below, judged,
                       r->cli->at_least);
    return TM_OK;
}

static tm_status run_page(reproduction *r, tm_error *err)
{
    tm_folder_lock lock = { .fd = -1, .folder = -1 };
    bool           runs = !r->options.dry_run;
    TM_TRY(plan_all(r, err));
    if (runs) TM_TRY(tm_folder_make(r->options.folder, err));
    if (runs) TM_TRY(tm_folder_lock_take(r->options.folder, &lock, err));
    tm_status st = runs ? run_all(r, err) : TM_OK;
    tm_error  own = { 0 };
    if (st == TM_OK || st == TM_INTERRUPTED) {
        tm_status given = give_out(r, &own);
        if (st == TM_OK && given != TM_OK) {
            *err = own;
            st = given;
        }
    }
    if (runs) tm_folder_lock_release(&lock);
    return st == TM_OK ? judge(r, err) : st;
}

static tm_status reproduce(tm_cli_line *line, tm_error *err)
{
    const command_options *o = line->options;
    char                   program[TM_PROGRAM_PATH];
    tm_platform            platform;
    reproduction           r = { .cli = o, .arena = line->arena, .quiet = line->quiet, .verbose = line->verbose };
    if (line->n_words > 0 && line->words[0][0] == '-')
        return tm_fail(err, TM_USAGE, "'%.60s' stands before the page: trainmark reproduce PAGE [options]",
                       line->words[0]);
    if (line->n_words == 0) return list_pages(o->json, line->verbose, line->arena, err);
    if (o->platform) TM_TRY(tm_platform_read(o->platform, &platform, err));
    if (o->platform && (o->slice || o->any_gpu))
        return tm_fail(err, TM_USAGE,
                       "--platform plans for hardware that need not be here; leave --slice and --any-gpu out");
    TM_TRY(tm_program_path(program, err));
    TM_TRY(page_read(line->words[0], line->arena, &r.page, err));
    TM_TRY(select_rows(&r, err));
    const char *slash = strrchr(r.page.name, '/');
    r.options = (reproduce_options){ .platform = o->platform,
                                     .extra = line->words + 1,
                                     .n_extra = line->n_words - 1,
                                     .slice = o->slice,
                                     .any_gpu = o->any_gpu,
                                     .dry_run = o->dry_run || o->platform,
                                     .machine = machine_here(),
                                     .program = program };
    r.options.folder =
        o->out ? o->out : tm_arena_format(line->arena, "output/reproduce/%s", slash ? slash + 1 : r.page.name);
    tm_status st = run_page(&r, err);
    for (size_t i = 0; i < r.n; i++) row_fini(&r.rows[i]);
    return st;
}

static const tm_option rows[] = {
    { "out", 'o', TM_OPTION_TEXT, offsetof(command_options, out), .value = "DIR",
      .help = "directory of the rows and of the report; default output/reproduce/PAGE" },
    { "rows", 0, TM_OPTION_TEXT, offsetof(command_options, rows), .value = "PATTERN",
      .help = "only rows of this name; a pattern with * and ?" },
    { "dry-run", 0, TM_OPTION_FLAG, offsetof(command_options, dry_run), .help = "plan all rows, run none" },
    TM_OPTION_PLATFORM(command_options, "run nothing; "),
    { "any-gpu", 0, TM_OPTION_FLAG, offsetof(command_options, any_gpu),
      .help = "also run rows of other GPUs, where there are as many" },
    { "slice", 0, TM_OPTION_FLAG, offsetof(command_options, slice),
      .help = "run every row as a small model, on processors: shows that its line works" },
    { "at-least", 0, TM_OPTION_F64, offsetof(command_options, at_least), .value = "RATIO", .lo = 0, .hi = 100,
      .help = "exit code 5 if a measured figure is below this part of the published one" },
    TM_OPTION_JSON(command_options),
};

const tm_cli_command tm_command_reproduce = {
    .name = "reproduce",
    .summary = "run the rows of a published page, print ours beside theirs",
    .words = "[PAGE | FILE.yaml]",
    .most = -1,
    .about =
        "Runs the rows of a published page that fit this machine, one after the other, each as a process of its own, "
        "and prints ours, the interval, the published figure, their ratio, and what differs from the page that may "
        "cause it. Rows whose hardware is not here are planned. Without PAGE the pages are listed; docs/reproduce.md "
        "describes them, and pages of your own.\n\n"
        "Completed rows are skipped; rerun the command to continue. Further --key value are given to every training.",
    TM_CLI_OPTIONS(rows, command_options),
    .passes = true,
    .run = reproduce,
};
