/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of assembler, as clang -S writes them, become instructions. What a table does not have is an error. */
#include "machine/gcn.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

bool gcn_refuse(gcn_module *m, const char *format, ...)
{
    va_list list;
    if (m->error[0]) return false;
    va_start(list, format);
    vsnprintf(m->error, MACHINE_ERROR_ROOM, format, list);
    va_end(list);
    return false;
}

void *gcn_grow(void *old, int n, int *room, size_t size)
{
    if (n < *room) return old;
    *room = *room ? 2 * *room : 64;
    void *grown = realloc(old, (size_t)*room * size);
    if (!grown) abort();
    return grown;
}

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* --- operands ------------------------------------------------------------------------------------ */

enum { BY_FORMAT = 99 }; /* registers, of a shape */

static bool number_of(const char *s, u64 *number)
{
    char *end;
    if (!*s) return false;
    *number = strchr(s, '.') ? bits_of(strtof(s, &end)) : strtoull(s, &end, 0);
    return *end == 0;
}

/* "v7", "v[4:7]", "a1", "s[0:1]", "vcc", "exec", "m0". */
static bool register_of(const char *s, operand *o)
{
    static const struct {
        const char *name;
        u8          count;
        i16         at;
    } named[] = { { "vcc", 2, VCC }, { "exec", 2, EXEC },    { "vcc_lo", 1, VCC },      { "vcc_hi", 1, VCC + 1 },
                  { "m0", 1, M0 },   { "exec_lo", 1, EXEC }, { "exec_hi", 1, EXEC + 1 } };
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        if (strcmp(s, named[i].name)) continue;
        *o = (operand){ .kind = SCALAR, .count = named[i].count, .at = named[i].at };
        return true;
    }
    int first, last, end = 0;
    if (!strchr("vas", *s)) return false;
    if (sscanf(s + 1, "[%d:%d]%n", &first, &last, &end) < 2 || !end) {
        end = 0;
        if (s[1] < '0' || s[1] > '9' || sscanf(s + 1, "%d%n", &first, &end) < 1) return false;
        last = first;
    }
    if (s[1 + end] || first < 0 || last < first || last >= (*s == 's' ? VCC : ACCUMULATORS)) return false;
    *o = (operand){ .kind = *s == 's' ? SCALAR : VECTOR,
                    .count = (u8)(last - first + 1),
                    .at = (i16)(first + (*s == 'a' ? ACCUMULATORS : 0)) };
    return true;
}

/* The operand that text says, as a row's shape wants it: false if it is another. */
static bool operand_of(char *s, char letter, int count, bool floats, operand *o)
{
    bool negate = *s == '-' && strchr("vas|", s[1]) && s[1], absolute = s[negate] == '|';
    s += negate + absolute;
    size_t n = strlen(s);
    if (absolute && (n < 2 || s[n - 1] != '|')) return false;
    if (absolute) s[n - 1] = 0;
    if ((negate || absolute) && !(floats && letter == 'x')) return false;
    *o = (operand){ 0 };
    if (strcmp(s, "off") == 0) {
        o->kind = OFF;
        return letter == 'b';
    }
    if (register_of(s, o)) {
        o->negate = negate;
        o->absolute = absolute;
        if (letter == 'p') return o->kind == VECTOR && o->count <= 2;
        if (letter == 'b') return o->kind == SCALAR && o->count == 2;
        if (count == BY_FORMAT) return o->kind == VECTOR; /* gcn_formats_fit */
        return o->count == count && strchr(o->kind == VECTOR ? "vxm" : "sxz", letter);
    }
    *o = (operand){ .kind = NUMBER, .count = (u8)count, .decimal = strchr(s, '.') != NULL };
    return strchr("xznm", letter) && number_of(s, &o->number);
}

/* --- modifiers ----------------------------------------------------------------------------------- */

static const char *const modifiers[MODIFIERS] = { "offset:",   "offset0:",   "offset1:", "op_sel:",     "op_sel_hi:",
                                                  "neg_lo:",   "neg_hi:",    "dst_sel:", "dst_unused:", "src0_sel:",
                                                  "src1_sel:", "quad_perm:", "row_ror:", "row_mask:",   "bank_mask:",
                                                  "bitop3:",   "offen",      "cbsz:",    "blgp:" };

static bool list_of(const char *s, i32 *value)
{
    *value = 0;
    if (*s++ != '[') return false;
    for (int i = 0; i < 4 && *s >= '0' && *s <= '3'; i++, s += *s == ',') *value |= (*s++ - '0') << (2 * i);
    return strcmp(s, "]") == 0;
}

static bool part_of(const char *s, i32 *value)
{
    static const char *const parts[] = { "BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD" };
    for (*value = 0; *value < 7; ++*value)
        if (strcmp(s, parts[*value]) == 0) return true;
    return false;
}

static bool modifier_of(instruction *x, const char *s)
{
    int at = 0;
    u64 number = 0;
    while (at < MODIFIERS && (!starts(s, modifiers[at]) || !(x->row->takes & BIT(at)))) at++;
    if (at == MODIFIERS) return false;
    s += strlen(modifiers[at]);
    if (at == AT_OFFEN) return (x->modifier[at] = 1, *s == 0);
    if (at == AT_DST_UNUSED) return strcmp(s, "UNUSED_PAD") == 0;
    if (at == AT_DST_SEL) return part_of(s, &x->modifier[at]) ? (x->modifier[at] -= 6, true) : false;
    if (at == AT_SRC0_SEL || at == AT_SRC1_SEL) return part_of(s, &x->modifier[at]);
    if (*s == '[') return (at == AT_QUAD_PERM || (at >= AT_OP_SEL && at <= AT_NEG_HI)) && list_of(s, &x->modifier[at]);
    if (!number_of(s, &number)) return false;
    x->modifier[at] = (i32)number;
    return (at != AT_ROW_MASK && at != AT_BANK_MASK) || number == 15;
}

/* --- instructions -------------------------------------------------------------------------------- */

static const row *row_named(const char *name)
{
    static const row *const tables[] = { gcn_scalar_rows, gcn_vector_rows, gcn_wide_rows, gcn_matrix_rows,
                                         gcn_memory_rows };
    for (int t = 0; t < 5; t++)
        for (const row *r = tables[t]; r->name; r++)
            if (strcmp(r->name, name) == 0) return r;
    return NULL;
}

/* With _e32 or _e64, which say how an instruction is encoded, and no more. */
static const row *row_of(char *name)
{
    size_t     n = strlen(name);
    const row *r = row_named(name);
    if (r || n < 4 || (strcmp(name + n - 4, "_e32") && strcmp(name + n - 4, "_e64"))) return r;
    name[n - 4] = 0;
    return row_named(name);
}

static void find_touched(instruction *x)
{
    const operand vcc = { .kind = SCALAR, .count = 2, .at = VCC };
    for (int k = 0; k < x->n + 1; k++) {
        const operand *o = k < x->n ? &x->o[k] : &vcc;
        if ((k >= x->n && !(x->row->takes & READS_VCC)) || o->kind > SCALAR) continue;
        for (int i = 0; i < o->count; i++) {
            int at = o->at + i + (o->kind == SCALAR ? VECTORS : 0);
            x->touched.bits[at / 64] |= (u64)1 << at % 64;
        }
    }
}

/* The next word: up to a comma or space outside of brackets. NULL: none. */
static char *next_word(char **at)
{
    char *s = *at + strspn(*at, " \t,"), *end = s;
    if (!*s) return NULL;
    for (int depth = 0; *end && (depth || !strchr(", \t", *end)); end++) depth += (*end == '[') - (*end == ']');
    *at = *end ? end + 1 : end;
    *end = 0;
    return s;
}

static bool waits_of(instruction *x, char *s)
{
    for (char *word; (word = next_word(&s));) {
        int count, end = 0;
        if (sscanf(word, "vmcnt(%d)%n", &count, &end) == 1 && end && !word[end])
            x->vmcnt = count;
        else if (sscanf(word, "lgkmcnt(%d)%n", &count, &end) == 1 && end && !word[end])
            x->lgkmcnt = count;
        else
            return false;
    }
    return x->vmcnt >= 0 || x->lgkmcnt >= 0;
}

/* Where the code behind a label begins; -1: there is none. */
static int label_named(const gcn_module *m, const char *name)
{
    for (int i = 0; i < m->n_labels; i++)
        if (strcmp(m->labels[i].name, name) == 0) return m->labels[i].at;
    return -1;
}

static bool operands_of(gcn_module *m, instruction *x, char *s)
{
    const char *shape = x->row->shape;
    for (; *shape; shape++) {
        char letter = *shape, *word = next_word(&s);
        int  count = shape[1] == 'g'                     ? 16
                     : shape[1] == 'f'                   ? BY_FORMAT
                     : shape[1] > '0' && shape[1] <= '9' ? shape[1] - '0'
                                                         : 1;
        if (!word || x->n == OPERANDS) return gcn_refuse(m, "line %d: an operand is missing: %s", x->line, x->text);
        if (letter == 'l')
            x->target = 0; /* labels may come later: at the end of the text */
        else if (!operand_of(word, letter, count, x->row->takes & FLOATS, &x->o[x->n++]))
            return gcn_refuse(m, "line %d: operand %d is not known: %s", x->line, x->n, x->text);
        while (shape[1] && shape[1] != ' ') shape++;
        if (shape[1]) shape++;
    }
    const operand *base = x->n ? &x->o[x->n - 1] : NULL;
    if (strncmp(x->row->name, "scratch_", 8) == 0) {
        if (base->kind != OFF || x->o[x->row->kind == SCRATCH_LOAD].kind != OFF)
            return gcn_refuse(m, "line %d: scratch at a place that is computed: %s", x->line, x->text);
    } else if (base && shape[-1] == 'b' && (base->kind == OFF) != (x->o[x->row->kind == LOAD].count == 2))
        return gcn_refuse(m, "line %d: the address and its base do not fit: %s", x->line, x->text);
    for (char *word; (word = next_word(&s));)
        if (!modifier_of(x, word))
            return gcn_refuse(m, "line %d: modifier %s is not known: %s", x->line, word, x->text);
    if (x->row->takes & FORMATS && !gcn_formats_fit(x))
        return gcn_refuse(m, "line %d: registers of other formats: %s", x->line, x->text);
    if (x->row->takes & BIT(AT_OFFEN) && !x->modifier[AT_OFFEN])
        return gcn_refuse(m, "line %d: a buffer's offset is not in a register: %s", x->line, x->text);
    if (x->row->takes & BIT(AT_QUAD_PERM) && (x->modifier[AT_QUAD_PERM] < 0) == (x->modifier[AT_ROW_ROR] < 0))
        return gcn_refuse(m, "line %d: which lanes? %s", x->line, x->text);
    return true;
}

static bool instruction_line(gcn_module *m, char *s, int number, int source_file, int source_line)
{
    char copy[512], *at = copy, *name;
    if (strlen(s) >= sizeof copy) return gcn_refuse(m, "line %d is too long", number);
    strcpy(copy, s);
    m->code = gcn_grow(m->code, m->n_code, &m->code_room, sizeof *m->code);
    instruction *x = &m->code[m->n_code];
    *x = (instruction){ .target = -1, .vmcnt = -1, .lgkmcnt = -1, .line = number, .source_line = source_line };
    x->source_file = source_file;
    x->text = s;
    x->modifier[AT_OP_SEL_HI] = 0x55;
    x->modifier[AT_SRC0_SEL] = x->modifier[AT_SRC1_SEL] = 6;
    x->modifier[AT_QUAD_PERM] = x->modifier[AT_ROW_ROR] = -1;
    name = next_word(&at);
    if (!(x->row = row_of(name))) return gcn_refuse(m, "line %d: no such instruction: %s", number, s);
    if (x->row->takes & GFX950 && !m->gfx950) return gcn_refuse(m, "line %d: gfx942 does not have %s", number, s);
    if (x->row->shape[0] == 'w' ? !waits_of(x, at) && !gcn_refuse(m, "line %d: waits for what? %s", number, s)
                                : !operands_of(m, x, at))
        return false;
    find_touched(x);
    m->n_code++;
    return true;
}

/* --- the whole text ------------------------------------------------------------------------------ */

typedef struct reader {
    bool    in_code, in_metadata;
    kernel *described; /* whose descriptor the lines belong to */
    int     source_file, source_line;
} reader;

/* .file 1 "folder" "name" md5 ...: the last name in quotation marks */
static void file_line(gcn_module *m, const char *s)
{
    const char *end = strrchr(s, '"'), *begin = end;
    int         number = atoi(s + strlen(".file "));
    while (begin && begin[-1] != '"' && begin[-1] != '/') begin--;
    if (end && number >= 0 && number < FILES)
        snprintf(m->files[number], sizeof m->files[number], "%.*s", (int)(end - begin), begin);
}

/* .loc 1 121 5, and behind it "DIALECT:121:5 @[ DIALECT:222:5 @[ NORM:16:34 ] ]": the last file is the kernel's own,
 * its first line is meant. Code of line 0 is no line's: it belongs to the one before. */
static void locate(const gcn_module *m, reader *r, const char *loc, const char *s)
{
    char own[48] = "", file[200];
    int  number, line, used;
    if (sscanf(loc, ".loc %d %d", &number, &line) != 2 || line == 0) return;
    r->source_file = number;
    r->source_line = line;
    for (int last = 1; last >= 0; last--)
        for (const char *at = s; sscanf(at, " %199[^:@]:%d:%*d%n", file, &line, &used) == 2; at += strspn(at, " @[")) {
            const char *name = strrchr(file, '/') ? strrchr(file, '/') + 1 : file;
            at += used;
            if (last) snprintf(own, sizeof own, "%.47s", name);
            if (last || strcmp(name, own)) continue;
            for (int i = 0; i < FILES; i++)
                if (strcmp(m->files[i], own) == 0) r->source_file = i;
            r->source_line = line;
            return;
        }
}

static bool directive_line(gcn_module *m, reader *r, const char *s, int number)
{
    static const char harmless[] = ".p2align .globl .protected .type .size .cfi_ .set .weak .hidden .ident .addrsig "
                                   ".amdhsa_code_object_version .amdgpu_metadata .fill";
    char              name[80];
    if (starts(s, ".text") || starts(s, ".section")) {
        r->in_code = starts(s, ".text") || starts(s, ".section .text") || starts(s, ".section\t.text");
        return true;
    }
    if (starts(s, ".amdgcn_target")) {
        m->gfx950 = strstr(s, "gfx950") != NULL;
        if (!m->gfx950 && !strstr(s, "gfx942"))
            return gcn_refuse(m, "line %d: neither gfx942 nor gfx950: %s", number, s);
        return true;
    }
    if (sscanf(s, ".amdhsa_kernel %79s", name) == 1) {
        m->kernels = gcn_grow(m->kernels, m->n_kernels, &m->kernels_room, sizeof *m->kernels);
        r->described = &m->kernels[m->n_kernels++];
        *r->described = (kernel){ .told = { .end = m->n_code } };
        strcpy(r->described->name, name);
        return true;
    }
    if (starts(s, ".file")) file_line(m, s);
    if (starts(s, ".file") || starts(s, ".loc")) return true;
    for (const char *at = harmless; *at; at += strcspn(at, " "), at += *at == ' ')
        if (strncmp(s, at, strcspn(at, " ")) == 0) return true;
    return !r->in_code || gcn_refuse(m, "line %d: no such directive: %s", number, s);
}

static bool one_line(gcn_module *m, reader *r, char *line, int number)
{
    char  *s = line + strspn(line, " \t"), *comment = r->in_metadata ? NULL : strchr(s, ';');
    size_t n = comment ? (size_t)(comment - s) : strlen(s);
    while (n && strchr(" \t\r", s[n - 1])) n--;
    s[n] = 0;
    if (!n) return true;
    if (strcmp(s, ".end_amdgpu_metadata") == 0) r->in_metadata = false;
    if (r->in_metadata) return gcn_metadata_line(m, line, number);
    if (strcmp(s, ".amdgpu_metadata") == 0) r->in_metadata = true;
    if (strcmp(s, ".end_amdhsa_kernel") == 0) {
        r->described = NULL;
        return true;
    }
    if (r->described) return gcn_descriptor_line(m, r->described, s, number);
    if (s == line && s[n - 1] == ':') {
        s[n - 1] = 0;
        m->labels = gcn_grow(m->labels, m->n_labels, &m->labels_room, sizeof *m->labels);
        m->labels[m->n_labels] = (label){ s, m->n_code };
        m->n_labels += r->in_code && !starts(s, ".Ltmp");
        return true;
    }
    if (*s == '.') {
        if (starts(s, ".loc")) locate(m, r, s, comment ? comment + 1 : "");
        return directive_line(m, r, s, number);
    }
    return !r->in_code || instruction_line(m, s, number, r->source_file, r->source_line);
}

bool gcn_read_text(gcn_module *m)
{
    reader r = { 0 };
    int    number = 1;
    for (char *line = m->text, *next; line; line = next, number++) {
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        if (!one_line(m, &r, line, number)) return false;
    }
    for (int i = 0; i < m->n_code; i++) {
        instruction *x = &m->code[i];
        if (x->target == 0) x->target = label_named(m, x->text + strcspn(x->text, " \t") + 1);
        if (x->row->shape[0] == 'l' && x->target < 0)
            return gcn_refuse(m, "line %d: no such label: %s", x->line, x->text);
    }
    for (int k = 0; k < m->n_kernels; k++) m->kernels[k].told.first = label_named(m, m->kernels[k].name);
    return gcn_kernels_complete(m);
}
