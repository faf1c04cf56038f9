/* SPDX-License-Identifier: Apache-2.0 */
/* record/table_show.c - a table on a terminal: few columns, in units of their size, in lines that fit. */
#include "base/arena.h"
#include "base/terminal.h"
#include "record/table.h"
#include "record/table_cell.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- units -------------------------------------------------------------------------------------------------------- */

typedef struct {
    const char *name;
    double      size;
} unit;

/* The largest one first; the end has no name. */
static const unit flop_rates[] = {
    { "PFLOP/s", 1e15 }, { "TFLOP/s", 1e12 }, { "GFLOP/s", 1e9 }, { "MFLOP/s", 1e6 }, { NULL, 0 }
};
static const unit flop_counts[] = {
    { "PFLOP", 1e15 }, { "TFLOP", 1e12 }, { "GFLOP", 1e9 }, { "MFLOP", 1e6 }, { NULL, 0 }
};
static const unit byte_rates[] = { { "TB/s", 1e12 }, { "GB/s", 1e9 }, { "MB/s", 1e6 }, { NULL, 0 } };
static const unit times[] = { { "s", 1 }, { "ms", 1e-3 }, { "us", 1e-6 }, { "ns", 1e-9 }, { NULL, 0 } };
static const unit shares[] = { { "%", 1 }, { NULL, 0 } };
static const unit tokens[] = { { "tokens/s", 1 }, { NULL, 0 } };
static const unit samples[] = { { "samples/s", 1 }, { NULL, 0 } };

/* A word of a column's name that says in which unit its numbers are, and the units that people get instead. */
static const struct {
    const char *word;
    double      scale;
    const unit *units;
} quantities[] = {
    { "tflops", 1e12, flop_rates },
    { "tflop", 1e12, flop_counts },
    { "gbps", 1e9, byte_rates },
    { "mbps", 1e6, byte_rates },
    { "ms", 1e-3, times },
    { "s", 1, times },
    { "pct", 1, shares },
    { "percent", 1, shares },
    { "tokens_per_second", 1, tokens },
    { "samples_per_second", 1, samples },
};

/* The place of the word in the name, words being separated by '_'; NULL: it is not there. */
static const char *find_word(const char *name, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = name; (at = strstr(at, word)); at++)
        if ((at == name || at[-1] == '_') && (at[n] == '\0' || at[n] == '_')) return at;
    return NULL;
}

/* A column as people see it. */
typedef struct {
    size_t index, width, least; /* least: of a column of texts, so that no word is broken */
    bool   right;
    double factor; /* of its numbers; 0: as they are */
    char   title[96];
} shown_column;

static double largest(const tm_table *table, size_t column)
{
    double most = 0;
    for (size_t row = 0; row < tm_table_n_rows(table); row++) {
        const tm_cell *cell = tm_table_cell(table, row, column);
        if (cell->kind == TM_CELL_F64 && isfinite(cell->f64)) most = fmax(most, fabs(cell->f64));
    }
    return most;
}

/* "tflops_6n" becomes "6n GFLOP/s". */
static void set_title(shown_column *c, const char *name, const char *at, size_t n, const char *unit_name)
{
    char   rest[64];
    size_t before = (size_t)(at - name);
    if (before > 0) before--; /* the '_' in front of it */
    const char *behind = before == 0 && at == name && at[n] == '_' ? at + n + 1 : at + n;
    snprintf(rest, sizeof rest, "%.*s%s", (int)before, name, behind);
    snprintf(c->title, sizeof c->title, "%s%s%s", rest, *rest ? " " : "", unit_name);
}

static void choose_unit(const tm_table *table, shown_column *c)
{
    const char *name = tm_table_column_at(table, c->index)->name;
    double      most = largest(table, c->index);
    snprintf(c->title, sizeof c->title, "%s", name);
    for (size_t i = 0; i < sizeof quantities / sizeof *quantities && most > 0; i++) {
        const char *at = find_word(name, quantities[i].word);
        const unit *u = quantities[i].units;
        if (!at) continue;
        while (u[1].name && most * quantities[i].scale < u->size) u++;
        c->factor = quantities[i].scale / u->size;
        set_title(c, name, at, strlen(quantities[i].word), u->name);
        return;
    }
}

static const char *text_of(const tm_table *table, size_t row, const shown_column *c, char buffer[64])
{
    const tm_cell *cell = tm_table_cell(table, row, c->index);
    int            digits = tm_table_column_at(table, c->index)->digits;
    tm_cell        scaled = *cell;
    if (cell->kind == TM_CELL_F64 && c->factor > 0) scaled.f64 = cell->f64 * c->factor;
    return table_cell_text(&scaled, digits, buffer);
}

/* --- columns ------------------------------------------------------------------------------------------------------ */

static bool is_empty(const tm_table *table, size_t column)
{
    for (size_t row = 0; row < tm_table_n_rows(table); row++) {
        const tm_cell *cell = tm_table_cell(table, row, column);
        if (cell->kind != TM_CELL_EMPTY && !(cell->kind == TM_CELL_TEXT && !*cell->text)) return false;
    }
    return true;
}

/* Where a text may go on in the next line: behind these. */
static const char breaks[] = " _/,";

static size_t longest_word(const char *text)
{
    size_t most = 0;
    for (size_t n; *text; text += n + (text[n] == ' ')) {
        tm_text word = { 0 };
        n = strcspn(text, breaks);
        n += text[n] && text[n] != ' '; /* they end a line, but for the blank */
        tm_text_add(&word, "");
        tm_text_add_n(&word, text, n);
        size_t cells = table_cell_width(word.data);
        if (cells > most) most = cells;
        tm_text_fini(&word);
    }
    return most;
}

static void measure(const tm_table *table, shown_column *c)
{
    enum { LEAST = 12 };
    c->right = true;
    c->width = table_cell_width(c->title);
    c->least = c->width > LEAST ? c->width : LEAST;
    for (size_t row = 0; row < tm_table_n_rows(table); row++) {
        char        buffer[64];
        const char *text = text_of(table, row, c, buffer);
        size_t      n = table_cell_width(text), word = longest_word(text);
        if (n > c->width) c->width = n;
        if (word > c->least) c->least = word;
        if (tm_table_cell(table, row, c->index)->kind == TM_CELL_TEXT) c->right = false;
    }
}

/* The columns to show, in order; the caller frees. */
static shown_column *choose_columns(const tm_table *table, bool all, size_t *n)
{
    shown_column *columns = tm_alloc((tm_table_n_columns(table) + 1) * sizeof *columns);
    *n = 0;
    for (size_t c = 0; c < tm_table_n_columns(table); c++) {
        if (!all && !tm_table_is_brief(table, c)) continue;
        if (c > 0 && tm_table_n_rows(table) > 0 && is_empty(table, c)) continue;
        columns[*n] = (shown_column){ .index = c };
        choose_unit(table, &columns[*n]);
        measure(table, &columns[(*n)++]);
    }
    return columns;
}

static size_t line_width(const shown_column *columns, size_t n)
{
    size_t all = 1;
    for (size_t i = 0; i < n; i++) all += columns[i].width + 3;
    return all;
}

static bool is_constant(const tm_table *table, const shown_column *c)
{
    char first[64], other[64];
    for (size_t row = 1; row < tm_table_n_rows(table); row++)
        if (strcmp(text_of(table, 0, c, first), text_of(table, row, c, other)) != 0) return false;
    return tm_table_n_rows(table) > 1;
}

/* Takes the columns out that say the same in every row, and says it once. Returns how many are left: at least one. */
static size_t drop_constants(const tm_table *table, shown_column *columns, size_t n, tm_text *said)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        char buffer[64];
        if (!is_constant(table, &columns[i]) || (kept == 0 && i + 1 == n)) {
            columns[kept++] = columns[i];
            continue;
        }
        tm_text_printf(said, "%s%s %s", said->length ? ", " : "all rows: ", columns[i].title,
                       text_of(table, 0, &columns[i], buffer));
    }
    return kept;
}

/* Do they fit once their texts are broken into lines of words, of `line` characters or more? */
static bool can_fit(const shown_column *columns, size_t n, size_t line, size_t width)
{
    size_t all = 1;
    for (size_t i = 0; i < n; i++) {
        size_t least = columns[i].least > line ? columns[i].least : line;
        bool   broken = !columns[i].right && least < columns[i].width;
        all += (broken ? least : columns[i].width) + 3;
    }
    return all <= width;
}

/* Moves the least important columns behind the others until those fit: the last one moved stands first there. Returns
 * how many are left; fewer than three are no table: then nothing is moved, and all are left. */
static size_t drop_least(const tm_table *table, shown_column *columns, size_t n, size_t width)
{
    enum { FEWEST = 3, READABLE = 16 };
    size_t        kept = n, bytes = (n + 1) * sizeof *columns;
    shown_column *before = memcpy(tm_alloc(bytes), columns, bytes);
    while (kept > FEWEST && !can_fit(columns, kept, READABLE, width)) {
        size_t least = 0;
        for (size_t i = 1; i < kept; i++)
            if (tm_table_rank(table, columns[i].index) > tm_table_rank(table, columns[least].index)) least = i;
        shown_column gone = columns[least];
        memmove(columns + least, columns + least + 1, (--kept - least) * sizeof *columns);
        columns[kept] = gone;
    }
    if (!can_fit(columns, kept, 0, width)) {
        memcpy(columns, before, bytes);
        kept = n;
    }
    free(before);
    return kept;
}

/* --- printing ----------------------------------------------------------------------------------------------------- */

/* Bytes of the next line of a cell: as many words as fit, or a part of one that does not. */
static size_t line_bytes(const char *text, size_t width)
{
    size_t      cells = 0, end = 0;
    const char *at = text;
    while (*at) {
        const char *next = at;
        size_t      n = (size_t)tm_terminal_next(&next) + (*at == '|');
        if (cells + n > width && at > text) return end > 0 ? end : (size_t)(at - text);
        cells += n;
        if (*next == ' ' || !*next || (*at != ' ' && strchr(breaks, *at))) end = (size_t)(next - text);
        at = next;
    }
    return (size_t)(at - text);
}

static void print_line(const shown_column *columns, size_t n, const char *const *texts, const size_t *bytes,
                       tm_text *out)
{
    tm_text cell = { 0 };
    tm_text_add(out, "|");
    for (size_t i = 0; i < n; i++) {
        cell.length = 0;
        tm_text_add(&cell, "");
        tm_text_add_n(&cell, texts[i], bytes[i]);
        table_add_padded(out, cell.data, columns[i].width, columns[i].right);
    }
    tm_text_add(out, "\n");
    tm_text_fini(&cell);
}

/* A row; texts that are wider than their column go on in lines below it. */
static void print_row(const tm_table *table, size_t row, const shown_column *columns, size_t n, tm_text *out)
{
    char(*buffers)[64] = tm_alloc((n + 1) * sizeof *buffers);
    const char **texts = tm_alloc((n + 1) * sizeof *texts);
    size_t      *bytes = tm_alloc((n + 1) * sizeof *bytes);
    bool         more = true;
    for (size_t i = 0; i < n; i++) texts[i] = text_of(table, row, &columns[i], buffers[i]);
    while (more) {
        more = false;
        for (size_t i = 0; i < n; i++) bytes[i] = line_bytes(texts[i], columns[i].width);
        print_line(columns, n, texts, bytes, out);
        for (size_t i = 0; i < n; i++) {
            texts[i] += bytes[i];
            texts[i] += strspn(texts[i], " ");
            more |= *texts[i] != '\0';
        }
    }
    free(buffers);
    free(texts);
    free(bytes);
}

static void print_grid(const tm_table *table, const shown_column *columns, size_t n, tm_text *out)
{
    tm_text_add(out, "|");
    for (size_t i = 0; i < n; i++) table_add_padded(out, columns[i].title, columns[i].width, columns[i].right);
    tm_text_add(out, "\n|");
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < columns[i].width + (columns[i].right ? 1 : 2); k++) tm_text_add(out, "-");
        tm_text_add(out, columns[i].right ? ":|" : "|");
    }
    tm_text_add(out, "\n");
    for (size_t row = 0; row < tm_table_n_rows(table); row++) print_row(table, row, columns, n, out);
}

/* Takes a character after the other from the widest column of texts, as long as all of them stay wide enough for words.
 */
static void narrow(shown_column *columns, size_t n, size_t width)
{
    for (size_t all = line_width(columns, n); all > width; all--) {
        shown_column *widest = NULL;
        for (size_t i = 0; i < n; i++)
            if (!columns[i].right && columns[i].width > columns[i].least &&
                (!widest || columns[i].width > widest->width))
                widest = &columns[i];
        if (!widest) return;
        widest->width--;
    }
}

/* A row after the other: a line for each column that is not empty. */
static void print_lists(const tm_table *table, const shown_column *columns, size_t n, size_t width, tm_text *out)
{
    size_t name = 0;
    for (size_t i = 0; i < n; i++)
        if (strlen(columns[i].title) > name) name = strlen(columns[i].title);
    if (name > width / 2) name = width / 2;
    for (size_t row = 0; row < tm_table_n_rows(table); row++) {
        if (row > 0) tm_text_add(out, "\n");
        for (size_t i = 0; i < n; i++) {
            char        buffer[64];
            const char *text = text_of(table, row, &columns[i], buffer);
            if (!*text) continue;
            tm_text_printf(out, "%-*s  ", (int)name, columns[i].title);
            size_t used = strlen(columns[i].title) > name ? strlen(columns[i].title) : name;
            tm_text_fill(out, text, used + 2, name + 2, width);
        }
    }
}

/* "2 columns left out: tag, seq; -v or --json has them" */
static void tell_left_out(const tm_table *table, const tm_table_view *view, const shown_column *columns, size_t n,
                          tm_text *out)
{
    tm_text line = { 0 };
    tm_text_printf(&line, "%zu column%s left out: ", n, n == 1 ? "" : "s");
    for (size_t i = 0; i < n; i++)
        tm_text_printf(&line, "%s%s", i ? ", " : "", tm_table_column_at(table, columns[i].index)->name);
    if (view->rest) tm_text_printf(&line, "; %s %s", view->rest, n == 1 ? "has it" : "has them");
    tm_text_add(out, "\n");
    tm_text_fill(out, line.data, 0, 0, view->width);
    tm_text_fini(&line);
}

/* A grid, or where that would leave out what was asked for, or most of a row, lists. */
static void show_rows(const tm_table *table, const tm_table_view *view, tm_text *out)
{
    size_t        n, kept;
    tm_text       said = { 0 };
    shown_column *columns = choose_columns(table, view->all, &n);
    if (line_width(columns, n) > view->width) n = drop_constants(table, columns, n, &said);
    kept = n;
    if (!view->all && tm_table_n_rows(table) > 1) kept = drop_least(table, columns, n, view->width);
    if (said.length) tm_text_fill(out, said.data, 0, 0, view->width);
    if (said.length) tm_text_add(out, "\n");
    narrow(columns, kept, view->width);
    if (line_width(columns, kept) > view->width)
        print_lists(table, columns, kept, view->width, out);
    else
        print_grid(table, columns, kept, out);
    if (kept < n) tell_left_out(table, view, columns + kept, n - kept, out);
    free(columns);
    tm_text_fini(&said);
}

void tm_table_show(const tm_table *table, const tm_table_view *view, tm_text *out)
{
    size_t notes = tm_table_n_notes(table);
    if (tm_table_n_rows(table) > 0 || notes == 0) {
        show_rows(table, view, out);
        if (notes) tm_text_add(out, "\n");
    }
    for (size_t i = 0; i < notes; i++) tm_text_printf(out, "%s\n", tm_table_note_at(table, i));
}
