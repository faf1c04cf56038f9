/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/mlperf/package.h"

#include "base/file.h"
#include "apps/mlperf/benchmark.h"
#include "apps/mlperf/package_files.h"
#include "apps/mlperf/python.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Benchmarks of the rounds whose rules are not known here: a result of one cannot be checked, which is no success. */
static const char *const not_known_here[] = {
    "retinanet",   "flux1",           "dlrm_dcnv2",       "rgat", "llama31_405b",
    "gpt_oss_20b", "deepseekv3_671b", "qwen35_397b_grpo", NULL
};

typedef struct {
    tm_package         *package;
    const char         *root; /* real path */
    tm_ruleset          ruleset;
    const tm_reference *given;
    bool                write;
    size_t              room;
} checking;

typedef struct {
    bool rcp, seeds; /* failures that do not count */
} bypass;

/* --- package_checker_params --------------------------------------------------------------------------------------- */

static void allow(const char *word, size_t n, bypass *b)
{
    b->rcp = b->rcp || (n == strlen("rcp-bypass") && strncmp(word, "rcp-bypass", n) == 0);
    b->seeds = b->seeds || (n == strlen("seed-checker-bypass") && strncmp(word, "seed-checker-bypass", n) == 0);
}

/* The public checker takes every line of the file at the top; further down only a last line that has no line break. A
 * word that it does not see is warned of. */
static void read_params(const checking *c, const char *folder, bool top, bypass *b, tm_notes *warnings)
{
    tm_arena     *arena = c->package->arena;
    const char   *name = "package_checker_params";
    tm_text       text = { 0 };
    tm_error      err = { 0 };
    package_entry e = package_look(c->root, tm_arena_format(arena, "%s/%s", folder, name), name, arena);
    if (e.kind == ENTRY_BROKEN && !e.link) return; /* not there */
    if (e.kind != ENTRY_FILE || tm_file_read(e.path, 1 << 16, &text, &err) != TM_OK) {
        tm_notes_add(warnings, arena, "%s: cannot be read", name);
    } else {
        for (const char *line = text.data; *line;) {
            size_t n = strcspn(line, "\r\n"), end = n + strspn(line + n, "\r\n");
            bypass word = { 0 };
            allow(line, n, &word);
            if (top || end == n)
                allow(line, n, b);
            else if (word.rcp || word.seeds)
                tm_notes_add(warnings, arena,
                             "%s: '%.*s' is not seen: below the top it must be the last line, without "
                             "a line break",
                             name, (int)n, line);
            line += end;
        }
    }
    tm_text_fini(&text);
}

/* --- systems ------------------------------------------------------------------------------------------------------ */

static tm_system_desc read_system(const package_entry *e, const char *name, tm_arena *arena)
{
    tm_text        text = { 0 };
    tm_error       err = { 0 };
    tm_system_desc desc = { .name = name };
    if (e->kind == ENTRY_OUTSIDE)
        tm_notes_add(&desc.errors, arena, "systems/%s leads out of the package", e->name);
    else if (tm_file_read(e->path, TM_SYSTEM_DESC_BYTES, &text, &err) != TM_OK)
        tm_notes_add(&desc.errors, arena, "systems/%s: %s", e->name, err.text);
    else
        desc = tm_system_desc_check(name, text.data, text.length, arena);
    tm_text_fini(&text);
    return desc;
}

/* The entries of a folder of the package; 0 and an error if there are none to be had. */
static const package_entry *folder_of(checking *c, const char *name, size_t *n)
{
    tm_package          *p = c->package;
    package_entry        e = package_look(c->root, tm_arena_format(p->arena, "%s/%s", c->root, name), name, p->arena);
    const package_entry *entries = e.kind == ENTRY_FOLDER ? package_list(c->root, e.path, p->arena, n) : NULL;
    if (entries) return entries;
    *n = 0;
    tm_notes_add(&p->errors, p->arena,
                 e.kind == ENTRY_OUTSIDE ? "the directory '%s' leads out of the package"
                                         : "there is no directory '%s' that can be read",
                 name);
    return NULL;
}

static void check_systems(checking *c)
{
    tm_package          *p = c->package;
    size_t               n;
    const package_entry *entries = folder_of(c, "systems", &n);
    p->systems = tm_arena_take(p->arena, (n + 1) * sizeof *p->systems);
    for (size_t i = 0; i < n; i++) {
        size_t length = strlen(entries[i].name);
        if (length < 6 || strcmp(entries[i].name + length - 5, ".json") != 0) continue;
        const char *name = tm_arena_text_n(p->arena, entries[i].name, length - 5);
        p->systems[p->n_systems++] = read_system(&entries[i], name, p->arena);
    }
}

/* --- one result --------------------------------------------------------------------------------------------------- */

/* Logs beside what else is there; false if one cannot be touched. */
static bool count_files(const checking *c, const char *folder, tm_package_result *r)
{
    size_t               n, others = 0, n_packed = 0;
    bool                 fine = true;
    tm_arena            *arena = c->package->arena;
    const package_entry *entries = package_list(c->root, folder, arena, &n);
    for (size_t i = 0; entries && i < n; i++) {
        const char *name = entries[i].name, *end = strrchr(name, '.');
        bool        packed = end && strcmp(end, ".gz") == 0;
        size_t      stem = strlen(name) - (packed ? 3 : 0);
        if (strncmp(name, "result_", 7) != 0 || stem < 11 || strncmp(name + stem - 4, ".txt", 4) != 0) {
            others += strcmp(name, "scaling.json") != 0 && strcmp(name, "package_checker_params") != 0;
            if (strcmp(name, "power") == 0)
                tm_notes_add(&r->errors, arena, "power/ is not checked here; the public checker does it");
            continue;
        }
        r->files++;
        n_packed += packed;
        if (entries[i].kind == ENTRY_FILE) continue;
        fine = false;
        tm_notes_add(&r->errors, arena, "%s %s", name,
                     entries[i].kind == ENTRY_OUTSIDE ? "leads out of the package" : "is not a regular file");
    }
    if (!entries) tm_notes_add(&r->errors, arena, "the directory cannot be read");
    if (n_packed > 0)
        tm_notes_add(&r->warnings, arena, "%zu logs are compressed, and the public checker does not see those",
                     n_packed);
    if (others > 0)
        tm_notes_add(&r->warnings, arena, "%zu other files or directories; logs are called result_*.txt", others);
    return fine && entries;
}

static void check_logs(const checking *c, tm_package_result *r)
{
    tm_arena      *arena = c->package->arena;
    tm_submission *s = r->submission;
    for (size_t i = 0; i < s->n; i++) {
        const tm_check_list *messages = &s->runs[i].report.messages;
        if (s->runs[i].report.passed) continue;
        r->failing++;
        tm_notes_add(&r->notices, arena, "%s does not comply: %s", s->runs[i].name, messages->messages[0].text);
    }
    if (r->failing == 1)
        tm_notes_add(&r->warnings, arena, "1 file does not comply, accepting this under olympic scoring");
    if (r->failing > 1)
        tm_notes_add(&r->errors, arena, "%zu files do not comply, directory cannot be accepted", r->failing);
    if (s->benchmark && strcmp(s->benchmark, r->benchmark) != 0)
        tm_notes_add(&r->errors, arena, "the logs are of benchmark '%s', the directory is '%s'", s->benchmark,
                     r->benchmark);
    if (s->division && (strcmp(s->division, "closed") == 0) != r->desc->closed)
        tm_notes_add(&r->warnings, arena, "the logs say division '%s', the system description says '%s'", s->division,
                     tm_system_desc_text(r->desc, "division"));
}

static void judge_seeds(const checking *c, const bypass *b, tm_package_result *r)
{
    tm_arena *arena = c->package->arena;
    r->seeds = tm_seeds_check(r->submission);
    for (size_t i = 0; i < r->seeds.warnings.n; i++)
        tm_notes_add(&r->warnings, arena, "%s", r->seeds.warnings.items[i]);
    for (size_t i = 0; i < r->seeds.errors.n; i++)
        tm_notes_add(b->seeds ? &r->warnings : &r->errors, arena, "%s", r->seeds.errors.items[i]);
    if (!r->seeds.passed)
        tm_notes_add(b->seeds ? &r->warnings : &r->errors, arena, "seed check failed%s",
                     b->seeds ? ", passed using seed-checker-bypass" : "");
}

static void judge_rcp(const checking *c, const bypass *b, tm_package_result *r)
{
    tm_arena             *arena = c->package->arena;
    const tm_rcp_verdict *v = &r->score.rcp;
    if (v->passed) return;
    r->bypassed =
        b->rcp && (strncmp(v->message, "RCP found", 9) == 0 || strncmp(v->message, "RCP Interpolation", 17) == 0 ||
                   strncmp(v->message, "Missing RCP", 11) == 0);
    tm_notes_add(r->bypassed ? &r->warnings : &r->errors, arena, "RCP test: %s%s", v->message,
                 r->bypassed ? " passed using rcp_bypass" : "");
    for (size_t i = 0; i < r->submission->n; i++)
        if (r->submission->runs[i].rcp.problem)
            tm_notes_add(&r->errors, arena, "%s, %s", r->submission->runs[i].name, r->submission->runs[i].rcp.problem);
}

/* Once a record has judged, an old scaling.json is void. */
static tm_status scale(const checking *c, const char *folder, tm_package_result *r, tm_error *err)
{
    if (!r->score.rcp.judged) return TM_OK;
    char        number[32];
    const char *path = tm_arena_format(c->package->arena, "%s/scaling.json", folder);
    const char *text =
        tm_arena_format(c->package->arena, "{\"scaling_factor\": %s}", tm_python_float(number, r->score.factor));
    if (tm_rcp_scales(&r->score.rcp)) {
        r->scaling = TM_SCALING_WRITE;
        if (c->write) TM_TRY(tm_file_write(path, text, strlen(text), err));
    } else if (faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
        r->scaling = TM_SCALING_REMOVE;
        if (c->write && unlink(path) != 0)
            return tm_fail(err, TM_IO, "cannot remove the old '%s': %s", path, strerror(errno));
    }
    return TM_OK;
}

static tm_status check_result(checking *c, const char *folder, bypass b, tm_package_result *r, tm_error *err)
{
    tm_arena *arena = c->package->arena;
    tm_error  own = { 0 };
    read_params(c, folder, false, &b, &r->warnings);
    bool                     fine = count_files(c, folder, r);
    const tm_reference_kind *kind = tm_reference_kind_find(r->benchmark);
    if (r->files != (size_t)kind->runs)
        tm_notes_add(&r->errors, arena, "Incorrect number of files in dir, or wrong file names: found %zu, expected %d",
                     r->files, kind->runs);
    if (!r->desc) tm_notes_add(&r->errors, arena, "there is no systems/%s.json that describes this system", r->system);
    if (!fine || !r->desc || r->files == 0) return TM_OK;
    if (tm_submission_open(folder, c->ruleset, &r->submission, &own) != TM_OK) {
        tm_notes_add(&r->errors, arena, "%s", own.text);
        return TM_OK;
    }
    r->looked_at = true;
    check_logs(c, r);
    r->submission->division = r->desc->closed ? "closed" : "open"; /* what the package says counts */
    const tm_reference *given = c->given && strcmp(c->given->kind->name, r->benchmark) == 0 ? c->given : NULL;
    if (tm_score_compute(r->submission, given, &r->score, &own) != TM_OK) {
        tm_notes_add(&r->errors, arena, "%s", own.text);
        r->looked_at = false;
        return TM_OK;
    }
    if (!r->desc->closed) return TM_OK;
    judge_seeds(c, &b, r);
    judge_rcp(c, &b, r);
    return scale(c, folder, r, err);
}

/* --- all of them -------------------------------------------------------------------------------------------------- */

static const tm_system_desc *system_named(const tm_package *p, const char *name)
{
    for (size_t i = 0; i < p->n_systems; i++)
        if (strcmp(p->systems[i].name, name) == 0) return &p->systems[i];
    return NULL;
}

/* Only folders that lie inside are gone into. */
static bool enter(const checking *c, const package_entry *e, const char *shown)
{
    if (e->kind == ENTRY_OUTSIDE)
        tm_notes_add(&c->package->errors, c->package->arena, "results/%s leads out of the package", shown);
    return e->kind == ENTRY_FOLDER;
}

static tm_status check_benchmark(checking *c, const package_entry *e, const char *system, bypass b, tm_error *err)
{
    tm_package *p = c->package;
    const char *shown = tm_arena_format(p->arena, "%s/%s", system, e->name);
    if (!enter(c, e, shown)) return TM_OK;
    if (!tm_mlperf_benchmark_find(e->name)) {
        bool of_a_round = false;
        for (const char *const *name = not_known_here; *name; name++) of_a_round |= strcmp(*name, e->name) == 0;
        if (of_a_round)
            tm_notes_add(&p->errors, p->arena,
                         "results/%s: the rules of this benchmark are not known here: not checked", shown);
        else
            tm_notes_add(&p->warnings, p->arena, "results/%s: Skipping benchmark: %s", shown, e->name);
        return TM_OK;
    }
    p->results = tm_grow(p->results, &c->room, p->n, sizeof *p->results);
    tm_package_result *r = &p->results[p->n++];
    *r = (tm_package_result){ .system = system, .benchmark = e->name, .desc = system_named(p, system) };
    return check_result(c, e->path, b, r, err);
}

static tm_status check_results(checking *c, tm_error *err)
{
    tm_package          *p = c->package;
    size_t               n, m;
    bypass               top = { 0 };
    const package_entry *systems = folder_of(c, "results", &n);
    read_params(c, c->root, true, &top, &p->warnings);
    for (size_t i = 0; i < n; i++) {
        if (!enter(c, &systems[i], systems[i].name)) continue;
        bypass               b = top;
        const package_entry *benchmarks = package_list(c->root, systems[i].path, p->arena, &m);
        read_params(c, systems[i].path, false, &b, &p->warnings);
        if (!benchmarks) tm_notes_add(&p->errors, p->arena, "results/%s cannot be read", systems[i].name);
        for (size_t k = 0; benchmarks && k < m; k++)
            TM_TRY(check_benchmark(c, &benchmarks[k], systems[i].name, b, err));
    }
    if (p->n == 0) tm_notes_add(&p->errors, p->arena, "no result was checked: there is no results/SYSTEM/BENCHMARK");
    return TM_OK;
}

static bool all_fine(const tm_package *p)
{
    bool fine = p->errors.n == 0;
    for (size_t i = 0; i < p->n_systems; i++) fine = fine && p->systems[i].errors.n == 0;
    for (size_t i = 0; i < p->n; i++) fine = fine && p->results[i].errors.n == 0;
    return fine;
}

tm_status tm_package_check(const char *path, tm_ruleset ruleset, const tm_reference *given, bool write,
                           tm_package **out, tm_error *err)
{
    char *root = realpath(path, NULL);
    if (!root) return tm_fail(err, TM_INVALID, "cannot open the directory '%s': %s", path, strerror(errno));
    tm_arena   *arena = tm_arena_create();
    tm_package *p = tm_arena_take(arena, sizeof *p);
    *p = (tm_package){ .path = tm_arena_text(arena, path), .arena = arena };
    checking c = {
        .package = p, .root = tm_arena_text(arena, root), .ruleset = ruleset, .given = given, .write = write
    };
    size_t    n;
    tm_status st = TM_OK;
    free(root);
    if (!package_list(c.root, c.root, arena, &n))
        st = tm_fail(err, TM_INVALID, "'%s' is not a directory that can be read", path);
    if (st == TM_OK) {
        check_systems(&c);
        st = check_results(&c, err);
    }
    if (st != TM_OK) {
        tm_package_free(p);
        return st;
    }
    p->passed = all_fine(p);
    package_check_repository(c.root, PACKAGE_ALL, &p->repository, arena);
    *out = p;
    return TM_OK;
}

void tm_package_free(tm_package *p)
{
    if (!p) return;
    for (size_t i = 0; i < p->n; i++) tm_submission_close(p->results[i].submission);
    free(p->results);
    tm_arena_destroy(p->arena);
}
