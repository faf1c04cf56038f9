/* SPDX-License-Identifier: Apache-2.0 */
#include "train/pipeline/file.h"

#include "base/csv.h"
#include "base/file.h"
#include "base/hash.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 64 << 20, MOST_DIGITS = 7 };

/* An action as the file has it. */
typedef struct {
    tm_pipeline_kind kind;
    int64_t          stage, micro_batch;
    int              column; /* from 1 */
} cell;

typedef struct {
    cell  *cells;
    size_t n, capacity;
} row;

/* What is known of a stage's micro-batch: the columns of its actions, 0: not yet. */
typedef struct {
    int forward, backward, weight;
} mark;

typedef struct {
    const char *name;
    row         rows[TM_PIPELINE_RANKS];
    int         ranks;
    int64_t     stages, micro_batches;
    tm_pipeline p; /* as far as places go */
    tm_error   *err;
} file;

static const char letters[] = {
    [TM_DO_FORWARD] = 'F', [TM_DO_BACKWARD] = 'B', [TM_DO_INPUT] = 'I', [TM_DO_WEIGHT] = 'W'
};

/* Begins a message: "x.csv: row 2 (rank 1), column 3: '1F0'". */
#define FAIL_AT(f, r, c, words, ...)                                                                                   \
    tm_fail((f)->err, TM_INVALID, "%s: row %d (rank %d), column %d: '%lld%c%lld' " words, (f)->name, (r) + 1, (r),     \
            (c)->column, (long long)(c)->stage, letters[(c)->kind], (long long)(c)->micro_batch, __VA_ARGS__)

/* --- cells -------------------------------------------------------------------------------------------------------- */

static bool read_number(const char **p, int64_t *out)
{
    int digits = 0;
    *out = 0;
    for (; isdigit((unsigned char)**p) && digits <= MOST_DIGITS; digits++, (*p)++) *out = *out * 10 + (**p - '0');
    return digits > 0 && digits <= MOST_DIGITS;
}

static void skip_blanks(const char **p)
{
    while (**p == ' ' || **p == '\t') (*p)++;
}

/* "2F0" */
static bool read_action(const char **p, cell *out)
{
    skip_blanks(p);
    if (!read_number(p, &out->stage)) return false;
    const char *known = **p ? memchr(letters, **p, sizeof letters) : NULL;
    if (!known) return false;
    out->kind = (tm_pipeline_kind)(known - letters);
    (*p)++;
    if (!read_number(p, &out->micro_batch)) return false;
    skip_blanks(p);
    return true;
}

static void add_cell(row *to, const cell *c)
{
    to->cells = tm_grow(to->cells, &to->capacity, to->n, sizeof *to->cells);
    to->cells[to->n++] = *c;
}

/* "2F0", "(2F4;3B0)OVERLAP_F_B" or nothing. */
static bool read_cell(const char *text, int column, row *to)
{
    static const char together[] = "OVERLAP_F_B";
    cell              c = { .column = column };
    const char       *p = text;
    skip_blanks(&p);
    if (!*p) return true;
    if (*p != '(') {
        if (!read_action(&p, &c) || *p) return false;
        add_cell(to, &c);
        return true;
    }
    do {
        p++;
        if (!read_action(&p, &c)) return false;
        add_cell(to, &c);
    } while (*p == ';');
    if (*p != ')' || strncmp(p + 1, together, sizeof together - 1) != 0) return false;
    p += sizeof together;
    skip_blanks(&p);
    return !*p;
}

/* Actions of PyTorch's other format. */
static bool sends(const char *text)
{
    static const char *const words[] = { "SEND_", "RECV_", "UNSHARD", "RESHARD", "REDUCE_GRAD" };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strstr(text, words[i])) return true;
    return false;
}

static tm_status refuse_cell(const file *f, int at, int column, const char *text)
{
    return tm_fail(f->err, TM_INVALID, "%s: row %d (rank %d), column %d: '%.40s' %s", f->name, at + 1, at, column, text,
                   sends(text)
                       ? "is an action of the format compute_comms; write the file with the format "
                         "compute_only: what is sent follows from the order"
                       : "is not an action; wanted a stage, F, B, I or W, and a micro-batch, as 2F0, or nothing");
}

/* One row at *text, which ends behind it. */
static tm_status read_row(file *f, int at, const char **text)
{
    size_t  most = 1, n;
    tm_text storage = { 0 };
    for (const char *p = *text; *p && *p != '\n'; p++) most += *p == ',';
    size_t   *offsets = tm_alloc(most * sizeof *offsets);
    tm_status st = TM_OK;
    n = tm_csv_read(text, &storage, offsets, most);
    for (size_t c = 0; c < n && st == TM_OK; c++) {
        TM_ASSERT(c < most); /* a cell with a line end, in quotes, is refused */
        if (!read_cell(storage.data + offsets[c], (int)c + 1, &f->rows[at]))
            st = refuse_cell(f, at, (int)c + 1, storage.data + offsets[c]);
    }
    free(offsets);
    tm_text_fini(&storage);
    return st;
}

static bool blank(const char *text)
{
    return text[strspn(text, " \t\r\n")] == '\0';
}

static tm_status read_rows(file *f, const char *text)
{
    int at = 0;
    for (; !blank(text); at++) {
        if (at == f->ranks)
            return tm_fail(f->err, TM_INVALID,
                           "%s: row %d: there is a row for each rank, and the pipeline has %d "
                           "(parallelism.pipeline_parallel_degree)",
                           f->name, at + 1, f->ranks);
        TM_TRY(read_row(f, at, &text));
        if (f->rows[at].n == 0)
            return tm_fail(f->err, TM_INVALID, "%s: row %d (rank %d) has no actions", f->name, at + 1, at);
    }
    if (at < f->ranks)
        return tm_fail(f->err, TM_INVALID,
                       "%s has %d rows, one for each rank, and the pipeline has %d ranks "
                       "(parallelism.pipeline_parallel_degree)",
                       f->name, at, f->ranks);
    return TM_OK;
}

/* --- places ------------------------------------------------------------------------------------------------------- */

static tm_status count(file *f)
{
    int         at = 0;
    const cell *last = &f->rows[0].cells[0];
    for (int r = 0; r < f->ranks; r++)
        for (size_t k = 0; k < f->rows[r].n; k++) {
            const cell *c = &f->rows[r].cells[k];
            if (c->stage > last->stage) last = c, at = r;
            if (c->micro_batch >= f->micro_batches) f->micro_batches = c->micro_batch + 1;
        }
    f->stages = last->stage + 1;
    if (f->stages % f->ranks != 0 || f->stages / f->ranks > TM_MAX_CHUNKS)
        return FAIL_AT(f, at, last, "makes %lld stages, which %d ranks cannot have equally many of, %d at most",
                       (long long)f->stages, f->ranks, TM_MAX_CHUNKS);
    return TM_OK;
}

/* A V, where the stage behind the last rank's first one is on that rank, too. */
static tm_status find_places(file *f, tm_pipeline_list *list)
{
    const row *bottom = &f->rows[f->ranks - 1];
    for (size_t k = 0; k < bottom->n; k++)
        list->v = list->v || (f->stages == 2 * f->ranks && f->ranks > 1 && bottom->cells[k].stage == f->ranks);
    list->ranks = f->ranks;
    list->chunks = (int)(f->stages / f->ranks);
    list->micro_batches = f->micro_batches;
    f->p = (tm_pipeline){ .order = TM_PIPELINE_LISTED,
                          .ranks = list->ranks,
                          .chunks = list->chunks,
                          .micro_batches = list->micro_batches,
                          .list = list };
    for (int r = 0; r < f->ranks; r++)
        for (size_t k = 0; k < f->rows[r].n; k++) {
            const cell *c = &f->rows[r].cells[k];
            int         wanted = tm_pipeline_rank(&f->p, (int)c->stage);
            if (c->kind == TM_DO_INPUT || c->kind == TM_DO_WEIGHT) list->parts = true;
            if (wanted != r)
                return FAIL_AT(
                    f, r, c, "is of stage %lld, which lies on rank %d: stages lie in a %s", (long long)c->stage, wanted,
                    list->v ? "V (rank r has r and 2 p - 1 - r of p ranks)" : "loop (rank s mod p of p has stage s)");
        }
    return TM_OK;
}

/* Which of its rank's stages an action is of. */
static int chunk_of(const file *f, const cell *c)
{
    return f->p.list->v ? c->stage >= f->ranks : (int)(c->stage / f->ranks);
}

/* --- what each stage does ----------------------------------------------------------------------------------------- */

/* Notes an action of a micro-batch, in its row's order. */
static tm_status note(const file *f, int r, const cell *c, mark *m)
{
    int *at = c->kind == TM_DO_FORWARD ? &m->forward : c->kind == TM_DO_WEIGHT ? &m->weight : &m->backward;
    if (*at) return FAIL_AT(f, r, c, "comes again: what it does is done in column %d", *at);
    if (c->kind != TM_DO_FORWARD && !m->forward)
        return FAIL_AT(f, r, c, "comes before the forward of its micro-batch (%lldF%lld)", (long long)c->stage,
                       (long long)c->micro_batch);
    if (c->kind == TM_DO_WEIGHT && !m->backward)
        return FAIL_AT(f, r, c, "comes before the gradients of the inputs (%lldI%lld)", (long long)c->stage,
                       (long long)c->micro_batch);
    *at = c->column;
    if (c->kind == TM_DO_BACKWARD) m->weight = c->column;
    return TM_OK;
}

/* The first weights' gradients overwrite those of the step before: they are of the micro-batch that comes back first.
 */
static tm_status check_first(const file *f, int r)
{
    int64_t back[TM_MAX_CHUNKS], weight[TM_MAX_CHUNKS];
    for (int c = 0; c < TM_MAX_CHUNKS; c++) back[c] = weight[c] = -1;
    for (size_t k = 0; k < f->rows[r].n; k++) {
        const cell *c = &f->rows[r].cells[k];
        int         chunk = chunk_of(f, c);
        if (c->kind == TM_DO_FORWARD) continue;
        if (c->kind != TM_DO_WEIGHT && back[chunk] < 0) back[chunk] = c->micro_batch;
        if (c->kind == TM_DO_INPUT || weight[chunk] >= 0) continue;
        weight[chunk] = c->micro_batch;
        if (c->micro_batch != back[chunk])
            return FAIL_AT(f, r, c,
                           "are the first gradients of weights of stage %lld; they must be of micro-batch %lld, whose "
                           "gradients of inputs come first",
                           (long long)c->stage, (long long)back[chunk]);
    }
    return TM_OK;
}

static tm_status refuse_missing(const file *f, size_t index, const mark *m)
{
    int64_t stage = (int64_t)index / f->micro_batches, micro_batch = (int64_t)index % f->micro_batches;
    int     r = tm_pipeline_rank(&f->p, (int)stage);
    return tm_fail(f->err, TM_INVALID,
                   "%s: row %d (rank %d) lacks the %s of micro-batch %lld of stage %lld (%lld%c%lld)", f->name, r + 1,
                   r,
                   !m->forward    ? "forward"
                   : !m->backward ? "backward"
                                  : "gradients of weights",
                   (long long)micro_batch, (long long)stage, (long long)stage,
                   !m->forward    ? 'F'
                   : !m->backward ? 'B'
                                  : 'W',
                   (long long)micro_batch);
}

/* Everything once. A micro-batch of a stage takes two actions at least: where there are too few, one of the first ones
 * lacks some, and no more are looked at. */
static tm_status check_stages(const file *f)
{
    size_t all = (size_t)(f->stages * f->micro_batches), n = 0;
    for (int r = 0; r < f->ranks; r++) n += f->rows[r].n;
    if (all > n / 2 + 1) all = n / 2 + 1;
    mark     *marks = tm_alloc(all * sizeof *marks);
    tm_status st = TM_OK;
    for (int r = 0; r < f->ranks && st == TM_OK; r++)
        for (size_t k = 0; k < f->rows[r].n && st == TM_OK; k++) {
            const cell *c = &f->rows[r].cells[k];
            size_t      index = (size_t)(c->stage * f->micro_batches + c->micro_batch);
            if (index < all) st = note(f, r, c, &marks[index]);
        }
    for (size_t i = 0; i < all && st == TM_OK; i++)
        if (!marks[i].forward || !marks[i].backward || !marks[i].weight) st = refuse_missing(f, i, &marks[i]);
    free(marks);
    for (int r = 0; r < f->ranks && st == TM_OK; r++) st = check_first(f, r);
    return st;
}

/* --- what goes from rank to rank ---------------------------------------------------------------------------------- */

/* From *at on, the next action of a rank that sends to `peer`, or receives from it; NULL: no more. */
static const cell *next_message(const file *f, int rank, size_t *at, int peer, bool forward, bool sending)
{
    for (; *at < f->rows[rank].n; (*at)++) {
        const cell *c = &f->rows[rank].cells[*at];
        int64_t     other = c->stage + (forward == sending ? 1 : -1);
        bool        passes = forward ? c->kind == TM_DO_FORWARD : c->kind == TM_DO_BACKWARD || c->kind == TM_DO_INPUT;
        if (passes && other >= 0 && other < f->stages && tm_pipeline_rank(&f->p, (int)other) == peer) return c;
    }
    return NULL;
}

static tm_status check_pair(const file *f, int from, int to, bool forward)
{
    for (size_t i = 0, k = 0;; i++, k++) {
        const cell *sent = next_message(f, from, &i, to, forward, true);
        const cell *got = next_message(f, to, &k, from, forward, false);
        if (!sent || !got) return TM_OK; /* as many, for everything is there */
        if (got->micro_batch == sent->micro_batch && got->stage == sent->stage + (forward ? 1 : -1)) continue;
        return FAIL_AT(f, to, got,
                       "comes where rank %d gives what '%lld%c%lld' made (row %d, column %d); what one rank passes to "
                       "another is taken in the order in which it is sent",
                       from, (long long)sent->stage, letters[sent->kind], (long long)sent->micro_batch, from + 1,
                       sent->column);
    }
}

static tm_status check_messages(const file *f)
{
    for (int r = 0; r < f->ranks; r++)
        for (int side = 0; side < 2 && f->ranks > 1; side++) {
            const int to = (r + (side ? f->ranks - 1 : 1)) % f->ranks;
            TM_TRY(check_pair(f, r, to, true));
            TM_TRY(check_pair(f, r, to, false));
        }
    return TM_OK;
}

/* The first action that no order of the ranks comes to. */
static tm_status check_waiting(const file *f)
{
    static const tm_pipeline_costs any;
    tm_pipeline_times              times;
    tm_status                      st = TM_OK;
    tm_pipeline_simulate(&f->p, &any, &times);
    for (int r = 0; r < f->ranks && st == TM_OK; r++) {
        size_t k = 0;
        while (k < times.n[r] && !isnan(times.begin[r][k])) k++;
        if (k == times.n[r]) continue;
        const cell *c = &f->rows[r].cells[k];
        st = FAIL_AT(f, r, c, "waits for ever for stage %lld, whose rank waits for this one: change the order",
                     (long long)c->stage + (c->kind == TM_DO_FORWARD ? -1 : 1));
    }
    tm_pipeline_times_fini(&times);
    return st;
}

/* --- all ---------------------------------------------------------------------------------------------------------- */

static void keep_actions(const file *f, tm_arena *arena, tm_pipeline_list *list)
{
    tm_hasher *hasher = tm_hasher_create();
    for (int r = 0; r < f->ranks; r++) {
        const row *from = &f->rows[r];
        list->n[r] = from->n;
        list->actions[r] = tm_arena_take(arena, from->n * sizeof *list->actions[r]);
        for (size_t k = 0; k < from->n; k++) {
            const cell *c = &from->cells[k];
            list->actions[r][k] =
                (tm_pipeline_action){ .kind = c->kind, .chunk = chunk_of(f, c), .micro_batch = c->micro_batch };
        }
        tm_hasher_add(hasher, &list->n[r], sizeof list->n[r]);
        tm_hasher_add(hasher, list->actions[r], list->n[r] * sizeof *list->actions[r]);
    }
    list->hash = tm_hasher_value(hasher);
    tm_hasher_destroy(hasher);
}

tm_status pipeline_file_parse(const char *text, const char *name, int ranks, tm_arena *arena,
                              const tm_pipeline_list **out, tm_error *err)
{
    tm_pipeline_list *list = tm_arena_take(arena, sizeof *list);
    file              f = { .name = tm_arena_text(arena, name), .ranks = ranks, .err = err };
    TM_ASSERT(ranks >= 1 && ranks <= TM_PIPELINE_RANKS);
    list->file = f.name;
    tm_status st = read_rows(&f, text);
    if (st == TM_OK) st = count(&f);
    if (st == TM_OK) st = find_places(&f, list);
    if (st == TM_OK) st = check_stages(&f);
    if (st == TM_OK) st = check_messages(&f);
    if (st == TM_OK) {
        keep_actions(&f, arena, list);
        st = check_waiting(&f);
    }
    for (int r = 0; r < ranks; r++) free(f.rows[r].cells);
    *out = list;
    return st;
}

tm_status pipeline_file_read(const char *path, int ranks, tm_arena *arena, const tm_pipeline_list **out, tm_error *err)
{
    tm_text   text = { 0 };
    tm_status st = tm_file_read(path, MOST_BYTES, &text, err);
    if (st == TM_OK && text.length != strlen(text.data ? text.data : ""))
        st = tm_fail(err, TM_INVALID, "%s is not a text file: it has a byte 0", path);
    if (st == TM_OK) st = pipeline_file_parse(text.data ? text.data : "", path, ranks, arena, out, err);
    tm_text_fini(&text);
    return st;
}
