/* SPDX-License-Identifier: Apache-2.0 */
/* PTX: a module's text, statement by statement. What no table knows is an error. */
#include "machine/ptx_reader.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool ptx_wrong(reader *r, const char *format, ...)
{
    if (r->error[0]) return false;
    int     n = snprintf(r->error, MACHINE_ERROR_ROOM, "line %d: '%.200s': ", r->begun, r->statement);
    va_list more;
    va_start(more, format);
    vsnprintf(r->error + n, (size_t)(MACHINE_ERROR_ROOM - n), format, more);
    va_end(more);
    return false;
}

void *ptx_grown(void *array, int n, int *room, size_t size)
{
    if (n < *room) return array;
    *room = *room ? 2 * *room : 64;
    array = realloc(array, (size_t)*room * size);
    if (!array) abort();
    return array;
}

static char *copied(const char *text)
{
    char *copy = strdup(text);
    if (!copy) abort();
    return copy;
}

/* --- statements and directives */

/* The next statement, white space made single; false at the end. What ends with its line, with `;`, or with a bracket.
 */
static bool next(reader *r)
{
    static const char *const lines[] = { ".version", ".target",  ".address_size", ".file",
                                         ".loc",     ".maxntid", ".minnctapersm" };
    while (isspace((unsigned char)*r->at)) r->line += *r->at++ == '\n';
    if (!*r->at) return false;
    size_t word = strcspn(r->at, " \t\n;"), n = 0;
    char   end = ';';
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (strlen(lines[i]) == word && !strncmp(lines[i], r->at, word)) end = '\n';
    if (!strncmp(r->at, ".section", 8)) end = '}';
    if (!strncmp(r->at, ".visible", 8) || !strncmp(r->at, ".entry", 6)) end = ')';
    size_t name = strspn(r->at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_$");
    if (r->at[name] == ':' && r->at[name + 1] != ':' && name) end = ':';
    if (*r->at == '{' || *r->at == '}') end = *r->at;
    r->begun = r->line;
    for (; *r->at; r->at++) {
        bool space = isspace((unsigned char)*r->at);
        r->line += *r->at == '\n';
        if (*r->at == end) break;
        if (space && (!n || r->statement[n - 1] == ' ')) continue;
        if (n + 2 == sizeof r->statement && end != '}') {
            r->statement[n] = 0;
            return ptx_wrong(r, "a statement that is too long");
        }
        if (n + 2 < sizeof r->statement) r->statement[n++] = space ? ' ' : *r->at;
    }
    if (end != ';' && end != '\n') r->statement[n++] = end;
    while (n && r->statement[n - 1] == ' ') n--;
    r->statement[n] = 0;
    if (*r->at) r->at++;
    return true;
}

static bool add_symbol(reader *r, const char *name, int at)
{
    if (r->n_symbols == MOST_NAMES) return ptx_wrong(r, "too many names");
    snprintf(r->symbols[r->n_symbols].name, NAME, "%.127s", name);
    r->symbols[r->n_symbols++].at = at;
    return true;
}

static bool parameter(reader *r, char *s)
{
    char type[16], name[NAME];
    int  align = 0, count = 1;
    if (sscanf(s, " .param .align %d .b8 %127[A-Za-z0-9_$][%d]", &align, name, &count) == 3)
        strcpy(type, "b8");
    else if ((sscanf(s, " .param .%15s .ptr .align %*d %127[A-Za-z0-9_$]", type, name) != 2 &&
              sscanf(s, " .param .%15s %127[A-Za-z0-9_$]", type, name) != 2) ||
             ptx_bits_of(type) < 8)
        return ptx_wrong(r, "a parameter that is not known: %s", s);
    ptx_kernel *k = r->k;
    int         bytes = ptx_bits_of(type) / 8;
    if (!align) align = bytes;
    if (align < 1 || align > MOST || count < 1 || count > MOST) return ptx_wrong(r, "a size that is not possible");
    int at = (k->parameter_bytes + align - 1) / align * align;
    k->parameter_bytes = at + bytes * count;
    return add_symbol(r, name, at);
}

static bool entry(reader *r)
{
    ptx_module *m = r->m;
    char        name[NAME], *rest = NULL;
    if (sscanf(r->statement, ".visible .entry %127[A-Za-z0-9_$]", name) != 1) return ptx_wrong(r, "not a kernel");
    m->kernels = ptx_grown(m->kernels, m->n_kernels, &m->kernel_room, sizeof *m->kernels);
    r->k = &m->kernels[m->n_kernels++];
    *r->k = (ptx_kernel){ .name = copied(name), .dynamic_at = -1, .unit = 2, .global_unit = 2, .info.first = m->n };
    r->n_ranges = r->n_symbols = r->n_labels = r->shared_bytes = r->source = 0;
    char *list = strchr(r->statement, '(');
    char  copy[8192];
    if (!list) return ptx_wrong(r, "parameters are missing");
    strcpy(copy, list + 1);
    for (char *part = strtok_r(copy, ",)", &rest); part; part = strtok_r(NULL, ",)", &rest))
        if (strspn(part, " ") != strlen(part) && !parameter(r, part)) return false;
    return true;
}

/* .shared and .local variables of a kernel. */
static bool variable(reader *r)
{
    char space[16], name[NAME], type[16];
    int  align, count = 1;
    if (sscanf(r->statement, ".%15s .align %d .%15s %127[A-Za-z0-9_$][%d]", space, &align, type, name, &count) < 4 ||
        ptx_bits_of(type) < 8 || r->k->dynamic_at >= 0 || align < 1 || align > MOST || count < 1 || count > MOST)
        return ptx_wrong(r, "a variable that is not known");
    int bytes = ptx_bits_of(type) / 8 * count;
    if (!strcmp(space, "local")) {
        r->k->info.spilled_bytes += bytes;
        return true;
    }
    int at = (r->shared_bytes + align - 1) / align * align;
    r->shared_bytes = at + bytes;
    return add_symbol(r, name, SHARED_FIRST + at);
}

/* .loc: the line of the kernel's own file, which is file 1: that of a header is followed to where it was put in line.
 */
static void locate(reader *r)
{
    place at, to;
    int n = sscanf(r->statement, ".loc %d %d %d, function_name %*s inlined_at %d %d %d", &at.file, &at.line, &at.column,
                   &to.file, &to.line, &to.column);
    if (n == 6) memcpy(r->inlined[r->n_inlined++ % MOST_NAMES], (place[2]){ at, to }, sizeof r->inlined[0]);
    for (int depth = 0; depth < 8 && at.file != 1; depth++) {
        int i = r->n_inlined, end = i > MOST_NAMES ? i - MOST_NAMES : 0;
        while (i > end && memcmp(&r->inlined[(i - 1) % MOST_NAMES][0], &at, sizeof at)) i--;
        if (i == end) break;
        at = r->inlined[(i - 1) % MOST_NAMES][1];
    }
    r->source_file = at.file;
    r->source = at.line;
}

/* .file 1 "/folder/name" */
static bool file(reader *r)
{
    const char *name = strrchr(r->statement, '/') ? strrchr(r->statement, '/') : strchr(r->statement, '"');
    int         number = atoi(r->statement + strlen(".file "));
    if (!name || number < 0 || number >= FILES) return ptx_wrong(r, "a file that is not known");
    snprintf(r->m->files[number], sizeof r->m->files[number], "%.*s", (int)strcspn(name + 1, "\""), name + 1);
    return true;
}

static bool directive(reader *r)
{
    const char *s = r->statement;
    place       at;
    if (!strncmp(s, ".visible .entry", 15)) return entry(r);
    if (!strncmp(s, ".extern .shared", 15))
        return (sscanf(s, ".extern .shared .align %d .b8 %127[A-Za-z0-9_$][]", &r->dynamic_align, r->dynamic) == 2 &&
                r->dynamic_align > 0 && r->dynamic_align <= MOST) ||
               ptx_wrong(r, "a variable that is not known");
    /* A tag of NVRTC's own, that no kernel uses. */
    if (!r->k && !strncmp(s, ".global .align 1 .u8 ", 21) && !strchr(s, '[') && !strchr(s, '=')) return true;
    if (!strncmp(s, ".loc ", 5)) return locate(r), true;
    if (!strncmp(s, ".file", 5)) return file(r);
    if (sscanf(s, ".version %d.%d", &at.line, &at.column) == 2) return r->isa = 10 * at.line + at.column, true;
    if (sscanf(s, ".target sm_%d", &r->target) == 1) return true;
    static const char *const ignored[] = { ".section", ".pragma \"nounroll\"",
                                           ".pragma \"used_bytes_mask", /* what of a load is not used */
                                           ".minnctapersm" };
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        if (!strncmp(s, ignored[i], strlen(ignored[i]))) return true;
    if (!strcmp(s, ".address_size 64")) return true;
    if (!r->k) return ptx_wrong(r, "a directive that is not known");
    if (sscanf(s, ".maxntid %d, 1, 1", &r->k->max_threads) == 1) return true;
    if (!strncmp(s, ".reg ", 5)) return ptx_declare(r);
    if (!strncmp(s, ".shared ", 8) || !strncmp(s, ".local ", 7)) return variable(r);
    return ptx_wrong(r, "a directive that is not known");
}

void ptx_add_label(reader *r, const char *name, int at)
{
    r->labels = ptx_grown(r->labels, r->n_labels, &r->label_room, sizeof *r->labels);
    snprintf(r->labels[r->n_labels].name, NAME, "%.127s", name);
    r->labels[r->n_labels++].at = at;
}

static bool here(reader *r)
{
    char *s = r->statement;
    s[strlen(s) - 1] = 0;
    for (int i = 0; i < r->n_labels; i++)
        if (r->labels[i].at >= 0 && !strcmp(r->labels[i].name, s)) return ptx_wrong(r, "a label that is there already");
    ptx_add_label(r, s, r->m->n);
    return true;
}

/* Behind a kernel's last instruction: branches get their targets; of the registers that instructions touch, those stay
 * that a wgmma uses. */
static bool finish(reader *r)
{
    ptx_kernel *k = r->k;
    ptx_module *m = r->m;
    if (!k) return true;
    for (int i = 0; i < r->n_labels; i++) {
        if (r->labels[i].at >= 0) continue;
        int to = 0;
        while (to < r->n_labels && (r->labels[to].at < 0 || strcmp(r->labels[to].name, r->labels[i].name))) to++;
        if (to == r->n_labels) return ptx_wrong(r, "no label %s", r->labels[i].name);
        m->code[-1 - r->labels[i].at].o[0].offset = r->labels[to].at;
    }
    k->words = (k->words + LANES - 1) / LANES * LANES;
    bool *used = calloc((size_t)k->words / LANES + 1, sizeof *used);
    if (!used) abort();
    for (int i = k->info.first; i < m->n; i++)
        for (int e = 0; e < m->code[i].n_touched && m->code[i].row->flags & MATRIX; e++)
            used[m->list[m->code[i].touched + e]] = true;
    for (int i = k->info.first; i < m->n; i++) {
        ptx_instruction *x = &m->code[i];
        int              kept = 0, written = 0;
        for (int e = 0; e < x->n_touched; e++) {
            int at = m->list[x->touched + e];
            if (!used[at]) continue;
            written += e < x->n_written;
            m->list[x->touched + kept++] = at;
        }
        x->n_touched = kept;
        x->n_written = written;
    }
    free(used);
    k->info.end = m->n;
    k->info.name = k->name;
    k->info.shared_bytes = r->shared_bytes;
    if (m->n == k->info.first && !k->info.spilled_bytes) return ptx_wrong(r, "%s has no instruction", k->name);
    return true;
}

static void without_comments(char *s)
{
    for (char end = 0; *s; s++) {
        if (!end && s[0] == '/' && (s[1] == '/' || s[1] == '*')) end = s[1] == '/' ? '\n' : '*';
        bool last = end == '*' && s[0] == '*' && s[1] == '/';
        if (end && *s != '\n') *s = ' ';
        if (last) s[1] = ' ';
        if (last || (end == '\n' && *s == '\n')) end = 0;
    }
}

static bool read_all(reader *r)
{
    while (next(r)) {
        const char *s = r->statement;
        bool        fine;
        if (!strcmp(s, "{") || !strcmp(s, "}") || !*s) continue;
        if (!strncmp(s, ".visible", 8) && !finish(r)) return false;
        if (*s == '.')
            fine = directive(r);
        else if (!r->k)
            fine = ptx_wrong(r, "an instruction outside of kernels");
        else if (s[strlen(s) - 1] == ':')
            fine = here(r);
        else
            fine = r->k->info.spilled_bytes || ptx_resolve(r);
        if (!fine) return false;
    }
    return !r->error[0] && finish(r) && (r->m->n_kernels || ptx_wrong(r, "no kernel"));
}

machine_module *machine_load_ptx(const char *text, char error[MACHINE_ERROR_ROOM])
{
    ptx_module *m = calloc(1, sizeof *m);
    reader     *r = calloc(1, sizeof *r);
    if (!m || !r) abort();
    m->base.interpreter = &ptx_interpreter;
    error[0] = 0;
    *r = (reader){ .m = m, .text = copied(text), .line = 1, .error = error };
    r->at = r->text;
    without_comments(r->text);
    bool fine = read_all(r);
    free(r->text);
    free(r->labels);
    free(r);
    if (fine) return &m->base;
    ptx_interpreter.unload(&m->base);
    return NULL;
}
