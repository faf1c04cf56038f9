/* SPDX-License-Identifier: Apache-2.0 */
/* PTX: names and operands become places, instructions become those of a row. */
#include "machine/ptx_reader.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- registers, constants, symbols */

static int places(ptx_kernel *k, int words)
{
    int at = k->words;
    k->words += words;
    return at;
}

static int words_of(int bits)
{
    return bits == 1 ? 1 : bits == 64 ? 2 * LANES : LANES;
}

int ptx_bits_of(const char *type)
{
    char word[20];
    snprintf(word, sizeof word, " %.16s ", type);
    if (!strstr(" pred b8 u8 b16 u16 s16 f16 b32 u32 s32 f32 b64 u64 s64 f64 ", word)) return 0;
    return *type == 'p' ? 1 : atoi(type + 1);
}

/* .reg .b32 %r<10>; the same name in another scope is the same register, if it has the same size. */
bool ptx_declare(reader *r)
{
    char type[16], name[NAME], *rest = NULL;
    if (sscanf(r->statement, ".reg .%15s", type) != 1 || !ptx_bits_of(type))
        return ptx_wrong(r, "a type that is not known");
    for (char *part = strtok_r(strstr(r->statement, type) + strlen(type), " ,", &rest); part;
         part = strtok_r(NULL, " ,", &rest)) {
        int count = 0, bits = ptx_bits_of(type), i = 0;
        if (sscanf(part, "%127[^<]<%d>", name, &count) < 1 || count < 0 || count > MOST)
            return ptx_wrong(r, "a name is missing, or there are too many");
        while (i < r->n_ranges && strcmp(r->ranges[i].name, name)) i++;
        if (i < r->n_ranges && r->ranges[i].bits == bits && !count) continue;
        if (i < r->n_ranges || i == MOST_NAMES) return ptx_wrong(r, "declared twice, or too much is declared");
        range *new = &r->ranges[r->n_ranges++];
        strcpy(new->name, name);
        new->bits = bits;
        new->count = count;
        new->first = places(r->k, (count ? count : 1) * words_of(bits));
        r->k->registers = r->k->words = (r->k->words + LANES - 1) / LANES * LANES;
    }
    return true;
}

/* The place of a register; -1: there is none of this name. */
static int register_at(reader *r, const char *name, int *bits)
{
    size_t stem = strlen(name);
    while (stem > 0 && isdigit((unsigned char)name[stem - 1])) stem--;
    for (int i = 0; i < r->n_ranges; i++) {
        const range *g = &r->ranges[i];
        *bits = g->bits;
        if (!g->count && !strcmp(g->name, name)) return g->first;
        if (!g->count || strlen(g->name) != stem || strncmp(g->name, name, stem) || !name[stem]) continue;
        long number = strtol(name + stem, NULL, 10);
        return number < g->count ? g->first + (int)number * words_of(g->bits) : -1;
    }
    return -1;
}

/* Where a value is kept that is the same in all lanes, or special. */
static int constant(reader *r, uint64_t value, int bits, int special)
{
    ptx_kernel *k = r->k;
    if (bits == 16) value &= 0xffff;
    if (bits == 32) value &= 0xffffffff;
    for (int i = 0; i < k->n_constants; i++) {
        const ptx_constant *c = &k->constants[i];
        if (c->value == value && c->special == special && c->wide == (bits == 64) && c->predicate == (bits == 1))
            return c->at;
    }
    int room = k->n_constants;
    k->constants = ptx_grown(k->constants, k->n_constants, &room, sizeof *k->constants);
    int at = places(k, bits == 64 ? 2 * LANES : LANES);
    k->constants[k->n_constants++] = (ptx_constant){ at, value, special, bits == 64, bits == 1 };
    return at;
}

static const char *const special_names[] = { "%tid.x",    "%tid.y",    "%tid.z",   "%ntid.x",  "%ntid.y",
                                             "%ntid.z",   "%ctaid.x",  "%ctaid.y", "%ctaid.z", "%nctaid.x",
                                             "%nctaid.y", "%nctaid.z", "%laneid" };

/* The address that a symbol stands for. */
static bool symbol_at(reader *r, const char *name, int64_t *at)
{
    for (int i = 0; i < r->n_symbols; i++) {
        if (strcmp(r->symbols[i].name, name)) continue;
        *at = r->symbols[i].at;
        return true;
    }
    if (!r->dynamic[0] || strcmp(r->dynamic, name)) return false;
    r->k->dynamic_at = SHARED_FIRST + (r->shared_bytes + r->dynamic_align - 1) / r->dynamic_align * r->dynamic_align;
    *at = r->k->dynamic_at;
    return true;
}

/* --- operands */

/* The bits that a letter of ptx.def stands for. */
static int sized(char letter, const int bits[2])
{
    static const char letters[] = "tvuwhlp";
    const int         sizes[] = { bits[0], bits[0], bits[1], 2 * bits[0], 16, 64, 1 };
    const char       *at = strchr(letters, tolower((unsigned char)letter));
    return at ? sizes[at - letters] : 32;
}

static bool number(const char *s, uint64_t *value)
{
    char *end;
    if ((!strncmp(s, "0f", 2) && strlen(s) == 10) || (!strncmp(s, "0d", 2) && strlen(s) == 18))
        *value = strtoull(s + 2, &end, 16);
    else if (*s == '-')
        *value = (uint64_t)strtoll(s, &end, 0);
    else
        *value = strtoull(s, &end, 0);
    return end != s && *end == 0;
}

/* A source: register, special register, number, or address of a symbol. -1: none of these, or of another size. */
static int source_at(reader *r, const char *s, int bits, bool larger, ptx_operand *o)
{
    int      has, at = register_at(r, s, &has);
    uint64_t value;
    int64_t  address;
    if (at >= 0) {
        o->wide = has == 64;
        return has == bits || (larger && has > bits) ? at : -1;
    }
    o->wide = bits == 64;
    o->immediate = true;
    for (size_t i = 0; i < sizeof special_names / sizeof *special_names; i++)
        if (!strcmp(special_names[i], s)) return bits == 32 ? constant(r, 0, 32, (int)i + 1) : -1;
    if (number(s, &value)) {
        o->offset = (int64_t)value;
        return constant(r, value, bits, 0);
    }
    return bits >= 32 && symbol_at(r, s, &address) ? constant(r, (uint64_t)address, bits, 0) : -1;
}

static void put_in_list(ptx_module *m, int at)
{
    m->list = ptx_grown(m->list, m->n_list, &m->list_room, sizeof *m->list);
    m->list[m->n_list++] = at;
}

/* {a, b, ...}, or one register alone, which counts as a vector of one. */
static bool vector(reader *r, char *s, int bits, bool larger, bool written, ptx_operand *o)
{
    char *rest = NULL;
    o->first = r->m->n_list;
    if (*s == '{') {
        if (s[strlen(s) - 1] != '}') return false;
        s[strlen(s) - 1] = 0;
        s++;
    }
    for (char *part = strtok_r(s, ", ", &rest); part; part = strtok_r(NULL, ", ", &rest)) {
        ptx_operand element = { 0 };
        bool        nowhere = written && !strcmp(part, "_");
        int         at = nowhere ? places(r->k, 2 * LANES) : source_at(r, part, bits, larger, &element);
        if (nowhere) r->k->registers = r->k->words;
        if (at < 0 || (written && element.immediate)) return false;
        o->wide = element.wide;
        put_in_list(r->m, at);
        o->count++;
    }
    return o->count > 0;
}

/* [register or symbol + offset], of a tensor [register, {coordinates}]. */
static bool address(reader *r, char *s, bool tensor, ptx_operand *o)
{
    size_t n = strlen(s);
    char  *coordinates = strchr(s, '{'), *plus;
    int    bits;
    if (*s != '[' || s[n - 1] != ']' || tensor != (coordinates != NULL)) return false;
    s[n - 1] = 0;
    s++;
    if (tensor) {
        char *comma = strchr(s, ',');
        if (!comma || comma > coordinates) return false;
        *comma = 0;
        if (!vector(r, coordinates, 32, false, false, o)) return false;
    }
    if ((plus = strchr(s, '+'))) {
        uint64_t value;
        *plus = 0;
        if (!number(plus + 1, &value)) return false;
        o->offset = (int64_t)value;
    }
    o->at = register_at(r, s, &bits);
    if (o->at >= 0) return o->wide = bits == 64, bits >= 32;
    int64_t base;
    if (!symbol_at(r, s, &base)) return false;
    o->offset += base;
    return true;
}

static bool pair(reader *r, char *s, ptx_operand *o)
{
    char *bar = strchr(s, '|');
    int   bits;
    if (bar) {
        *bar = 0;
        o->first = register_at(r, bar + 1, &bits);
        o->count = 1;
        if (o->first < 0 || bits != 1) return false;
    }
    if (!strcmp(s, "_") && bar) return true;
    o->at = register_at(r, s, &bits);
    return o->at >= 0 && bits == 32;
}

/* An operand as a row wants it: ptx.def says what the letters mean. */
static bool operand(reader *r, char letter, const int bits[2], char *s, ptx_operand *o)
{
    int  size = sized(letter, bits);
    bool written = isupper((unsigned char)letter) || letter == '{';
    *o = (ptx_operand){ .at = -1 };
    switch (letter) {
    case 'V':
    case 'v':
        return vector(r, s, size, true, written, o);
    case 'F':
    case 'f':
        return *s == '{' && vector(r, s, 32, false, written, o);
    case '{':
    case '}':
        return *s == '{' && vector(r, s, bits[0] / 2, false, written, o) && o->count == 2;
    case 'S':
        return pair(r, s, o);
    case 'm':
    case 'n':
        return address(r, s, letter == 'n', o);
    case '_':
        return !strcmp(s, "_");
    case 'i': {
        uint64_t value;
        if (!number(s, &value)) return false;
        o->offset = (int64_t)value;
        return o->immediate = true;
    }
    case 'b':
        ptx_add_label(r, s, -1 - r->m->n); /* wanted here */
        return true;
    default:
        o->at = source_at(r, s, size, false, o);
        return o->at >= 0 && !(written && o->immediate);
    }
}

/* --- instructions */

/* Does `op` have the form of a pattern? */
static bool matches(const char *pattern, const char *op, uint8_t picks[MAX_PICKS])
{
    int n = 0;
    while (*pattern) {
        size_t part = strcspn(pattern, "."), word = strcspn(op, ".");
        bool   optional = pattern[part - 1] == '?', found = false;
        int    which = 0, choices = 1;
        for (const char *p = pattern, *end = pattern + part - optional; p < end; choices++) {
            size_t length = 0;
            while (p + length < end && p[length] != '|') length++;
            if (!found && length == word && word > 0 && !strncmp(p, op, word)) which = choices, found = true;
            p += length + 1;
        }
        if (!found && !optional) return false;
        if (optional || choices > 2) picks[n++] = (uint8_t)(optional ? which : which - 1);
        if (found) op += word + (op[word] == '.');
        pattern += part + (pattern[part] == '.');
    }
    return *op == 0 && op[-1] != '.';
}

static void types_of(const char *op, int bits[2])
{
    char copy[NAME], *dot;
    snprintf(copy, sizeof copy, "%.127s", op);
    for (int i = 0; i < 2; i++) {
        dot = strrchr(copy, '.');
        bits[i] = dot ? ptx_bits_of(dot + 1) : 0;
        if (dot) *dot = 0;
    }
}

static int split(char *s, char *parts[MAX_OPERANDS])
{
    int n = 0, depth = 0;
    while (*s == ' ') s++;
    for (char *begin = s; *begin; begin = s) {
        for (; *s && (depth || *s != ','); s++) depth += (*s == '{' || *s == '[') - (*s == '}' || *s == ']');
        if (n == MAX_OPERANDS) return n + 1;
        parts[n++] = begin;
        char *end = s;
        if (*s) s++;
        while (end > begin && end[-1] == ' ') end--;
        bool last = *end == 0;
        *end = 0;
        if (last) break;
        while (*s == ' ') s++;
    }
    return n;
}

/* The registers of a row that this instruction has become. */
static void note_registers(reader *r, ptx_instruction *x)
{
    x->touched = r->m->n_list;
    for (int written = 1; written >= 0; written--) {
        for (int k = 0; k < x->n; k++) {
            char letter = x->letters[k];
            bool many = strchr("VvFf{}n", letter) != NULL;
            if ((isupper((unsigned char)letter) || letter == '{') != (bool)written) continue;
            for (int e = 0; e < (many ? x->o[k].count : 0) + (x->o[k].at >= 0); e++) {
                int at = many && e < x->o[k].count ? r->m->list[x->o[k].first + e] : x->o[k].at;
                put_in_list(r->m, at / LANES);
            }
        }
        if (written) x->n_written = r->m->n_list - x->touched;
    }
    x->n_touched = r->m->n_list - x->touched;
}

/* Are the operands as a row wants them? */
static bool fits(reader *r, const ptx_row *row, const char *op, char *const parts[], int n, ptx_instruction *x)
{
    int  bits[2], labels = r->n_labels, i = 0, most = strstr(op, ".v4.") ? 4 : strstr(op, ".v2.") ? 2 : 1;
    bool fine = true;
    types_of(op, bits);
    for (const char *c = row->operands; *c && fine; c++, i++) {
        char copy[4096], letter = x->letters[i] = *c;
        snprintf(copy, sizeof copy, "%s", i < n ? parts[i] : "");
        fine = i < n && operand(r, letter, bits, copy, &x->o[i]);
        if (isdigit((unsigned char)c[1])) fine &= x->o[i].count == *++c - '0';
        if (tolower((unsigned char)letter) == 'v') fine &= x->o[i].count == most;
    }
    if (fine && i == n) {
        x->row = row;
        x->n = n;
        return true;
    }
    r->n_labels = labels;
    return false;
}

/* The smallest accesses to shared and global memory; a tensor's copies may be of single elements, of a byte each. */
static void note_units(ptx_kernel *k, const char *op)
{
    int sizes[2], *unit = strstr(op, ".shared") ? &k->unit : &k->global_unit;
    if (!strncmp(op, "cp.async.bulk.tensor", 20)) k->global_unit = 0;
    if (strncmp(op, "ld.shared", 9) && strncmp(op, "st.shared", 9) && strncmp(op, "ld.global", 9) &&
        strncmp(op, "st.global", 9))
        return;
    types_of(op, sizes);
    while (8 << *unit > sizes[0]) --*unit;
}

/* Products of 8 bits came with ISA 8.4, for sm_89 and later (PTX ISA, "mma"). */
static bool too_early(const reader *r, const char *op)
{
    bool codes = !strncmp(op, "mma.", 4) && (strstr(op, ".e4m3") || strstr(op, ".e5m2"));
    return codes && (r->isa < 84 || r->target < 89);
}

bool ptx_resolve(reader *r)
{
    static const ptx_row *const tables[] = { ptx_alu_rows, ptx_memory_rows, ptx_matrix_rows, ptx_async_rows,
                                             ptx_control_rows };
    ptx_module                 *m = r->m;
    ptx_instruction x = { .guard = -1, .line = r->begun, .source_file = r->source_file, .source = r->source };
    char            copy[8192], *op = copy, *parts[MAX_OPERANDS];
    int             bits;
    strcpy(copy, r->statement);
    if (*op == '@') {
        char *space = strchr(op, ' ');
        if (!space) return ptx_wrong(r, "a predicate without an instruction");
        *space = 0;
        x.unless = op[1] == '!';
        x.guard = register_at(r, op + 1 + x.unless, &bits);
        if (x.guard < 0 || bits != 1) return ptx_wrong(r, "no such predicate");
        op = space + 1;
    }
    char *space = strchr(op, ' ');
    if (space) *space = 0;
    int  n = space ? split(space + 1, parts) : 0;
    bool found = false, known = false;
    for (size_t t = 0; t < sizeof tables / sizeof *tables && !found && n <= MAX_OPERANDS; t++)
        for (const ptx_row *row = tables[t]; row->pattern && !found; row++) {
            if (!matches(row->pattern, op, x.picks)) continue;
            known = true;
            found = fits(r, row, op, parts, n, &x);
        }
    if (!found) return ptx_wrong(r, known ? "operands that are not known" : "an instruction that is not known");
    if (too_early(r, op)) return ptx_wrong(r, "products of 8 bits need ISA 8.4 and sm_89");
    note_registers(r, &x);
    x.text = strdup(r->statement);
    if (!x.text) abort();
    note_units(r->k, op);
    m->code = ptx_grown(m->code, m->n, &m->room, sizeof *m->code);
    m->code[m->n++] = x;
    return true;
}
