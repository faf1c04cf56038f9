/* SPDX-License-Identifier: Apache-2.0 */
/* data/pickle.c - a pickle machine that knows one shape of file only: the rows of data/packed.h.
 *
 * The machine has a stack of values, a memo, and tables that hold what values refer to: objects (list, dictionary,
 * array, dtype), elements of tuples, elements of lists of integers. Every table has a limit that follows from the
 * number of rows in the header, so that no file takes more memory than an honest one of its length.
 */
#include "data/pickle.h"

#include "base/arena.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 4096, MAX_TUPLE = 9, PROTOCOL = 3, TOKEN_BYTES = 4 };

typedef enum { MARK, NONE, BOOL, INT, TEXT, BYTES, GLOBAL, TUPLE, LIST, DICT, ARRAY, DTYPE } kind;

static const char *const kind_names[] = { "a mark", "None",    "a boolean", "an integer",   "a text",   "bytes",
                                          "a name", "a tuple", "a list",    "a dictionary", "an array", "a dtype" };

typedef struct {
    kind     kind;
    uint32_t n; /* TEXT, BYTES: length; TUPLE: elements */
    union {
        int64_t        i;  /* BOOL, INT; GLOBAL: 'R'econstruct, 'N'darray, 'D'type */
        const uint8_t *p;  /* TEXT, BYTES */
        size_t         at; /* TUPLE: of tuples; LIST, DICT, ARRAY, DTYPE: of objects */
    };
} value;

typedef struct {
    bool           built; /* DICT: has its keys; ARRAY, DTYPE: has its state */
    char           code;  /* DTYPE, ARRAY: 'O' objects, 'i' int32; LIST: 'i' integers, 'd' dictionaries, 0 empty */
    size_t         first; /* LIST of integers: in masks; DICT: of its mask */
    int64_t        n;     /* LIST, ARRAY: elements; DICT: W */
    const uint8_t *ids;   /* ARRAY of int32, DICT */
} object;

typedef struct {
    tm_packed     *out;
    const char    *name;
    const uint8_t *bytes;
    size_t         size, at, op_at; /* of the next byte, of the opcode under way */
    uint8_t        op;
    int64_t        rows; /* as the header says */
    value         *stack;
    size_t         depth;
    value         *memo, *tuples;
    object        *objects;
    size_t         n_memo, memo_room, n_tuples, tuples_room, n_objects, objects_room, n_masks, masks_room;
    tm_error      *err;
} machine;

typedef struct {
    const char *name;
    tm_status (*run)(machine *m);
} opcode;

static const opcode opcodes[256];

static tm_status refuse(const machine *m, const char *what)
{
    const char *name = opcodes[m->op].name;
    tm_fail(m->err, TM_FORMAT, "'%s': byte %zu, opcode 0x%02X (%s): %s", m->name, m->op_at, (unsigned)m->op,
            name ? name : "not of this format", what);
    return TM_FORMAT;
}

static tm_status refuse_kind(const machine *m, const char *what, kind found)
{
    char text[160];
    snprintf(text, sizeof text, "%s, found %s", what, kind_names[found]);
    return refuse(m, text);
}

/* --- bytes and stack ---------------------------------------------------------------------------------------------- */

static tm_status take(machine *m, size_t n, const uint8_t **out)
{
    if (n > m->size - m->at) return refuse(m, "the file ends within its argument");
    *out = m->bytes + m->at;
    m->at += n;
    return TM_OK;
}

/* An unsigned little-endian number of n <= 4 bytes. */
static tm_status take_number(machine *m, size_t n, uint32_t *out)
{
    const uint8_t *p;
    TM_TRY(take(m, n, &p));
    *out = 0;
    for (size_t i = 0; i < n; i++) *out |= (uint32_t)p[i] << 8 * i;
    return TM_OK;
}

static tm_status push(machine *m, value v)
{
    if (m->depth == MAX_DEPTH) return refuse(m, "more than 4096 values on the stack; numpy makes batches of 1000");
    m->stack[m->depth++] = v;
    return TM_OK;
}

static tm_status pop(machine *m, value *out)
{
    if (m->depth == 0 || m->stack[m->depth - 1].kind == MARK) return refuse(m, "nothing on the stack to work on");
    *out = m->stack[--m->depth];
    return TM_OK;
}

static tm_status top(const machine *m, kind wanted, const char *what, value *out)
{
    if (m->depth == 0 || m->stack[m->depth - 1].kind == MARK) return refuse(m, "nothing on the stack to work on");
    *out = m->stack[m->depth - 1];
    return out->kind == wanted ? TM_OK : refuse_kind(m, what, out->kind);
}

/* The values above the last mark; mark and values leave the stack, but stay where *first points until the next push. */
static tm_status pop_to_mark(machine *m, const value **first, size_t *n)
{
    size_t at = m->depth;
    while (at > 0 && m->stack[at - 1].kind != MARK) at--;
    if (at == 0) return refuse(m, "no mark on the stack");
    *first = m->stack + at;
    *n = m->depth - at;
    m->depth = at - 1;
    return TM_OK;
}

static tm_status check_limit(const machine *m, size_t count, int64_t per_row, const char *what)
{
    char text[120];
    if (count < (size_t)(per_row * m->rows + 64)) return TM_OK;
    snprintf(text, sizeof text, "too many %s for the %" PRId64 " rows of the header", what, m->rows);
    return refuse(m, text);
}

static tm_status push_object(machine *m, kind k, object o)
{
    TM_TRY(check_limit(m, m->n_objects, 5, "objects"));
    m->objects = tm_grow(m->objects, &m->objects_room, m->n_objects, sizeof *m->objects);
    m->objects[m->n_objects] = o;
    return push(m, (value){ .kind = k, .at = m->n_objects++ });
}

static object *object_of(const machine *m, value v)
{
    return &m->objects[v.at];
}

static bool is_text(value v, const char *text)
{
    return v.kind == TEXT && v.n == strlen(text) && memcmp(v.p, text, v.n) == 0;
}

static bool is_int(value v, int64_t wanted)
{
    return v.kind == INT && v.i == wanted;
}

static bool is_bool(value v, bool wanted)
{
    return v.kind == BOOL && v.i == wanted;
}

/* --- constants ---------------------------------------------------------------------------------------------------- */

static tm_status run_proto(machine *m)
{
    uint32_t protocol;
    TM_TRY(take_number(m, 1, &protocol));
    if (protocol != PROTOCOL) return refuse(m, "another protocol than 3; numpy 1.x writes 3");
    return m->depth == 0 && m->n_memo == 0 ? TM_OK : refuse(m, "a second protocol");
}

static tm_status run_mark(machine *m)
{
    return push(m, (value){ .kind = MARK });
}

static tm_status run_none(machine *m)
{
    return push(m, (value){ .kind = NONE });
}

static tm_status run_true(machine *m)
{
    return push(m, (value){ .kind = BOOL, .i = 1 });
}

static tm_status run_false(machine *m)
{
    return push(m, (value){ .kind = BOOL, .i = 0 });
}

static tm_status push_number(machine *m, size_t bytes)
{
    uint32_t number;
    TM_TRY(take_number(m, bytes, &number));
    return push(m, (value){ .kind = INT, .i = bytes == 4 ? (int64_t)(int32_t)number : (int64_t)number });
}

static tm_status run_binint(machine *m)
{
    return push_number(m, 4);
}

static tm_status run_binint1(machine *m)
{
    return push_number(m, 1);
}

static tm_status run_binint2(machine *m)
{
    return push_number(m, 2);
}

static tm_status push_bytes(machine *m, kind k, size_t length_bytes)
{
    uint32_t       n;
    const uint8_t *p;
    TM_TRY(take_number(m, length_bytes, &n));
    TM_TRY(take(m, n, &p));
    return push(m, (value){ .kind = k, .n = n, .p = p });
}

static tm_status run_short_binbytes(machine *m)
{
    return push_bytes(m, BYTES, 1);
}

static tm_status run_binbytes(machine *m)
{
    return push_bytes(m, BYTES, 4);
}

static tm_status run_binunicode(machine *m)
{
    return push_bytes(m, TEXT, 4);
}

static tm_status run_global(machine *m)
{
    static const char *const names[] = { "numpy.core.multiarray\n_reconstruct\n", "numpy\nndarray\n",
                                         "numpy\ndtype\n" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        size_t n = strlen(names[i]);
        if (m->size - m->at < n || memcmp(m->bytes + m->at, names[i], n) != 0) continue;
        m->at += n;
        return push(m, (value){ .kind = GLOBAL, .i = "RND"[i] });
    }
    return refuse(m, "a name other than numpy.core.multiarray._reconstruct, numpy.ndarray and numpy.dtype; "
                     "nothing else is accepted");
}

/* --- memo --------------------------------------------------------------------------------------------------------- */

static tm_status put(machine *m, size_t index_bytes)
{
    uint32_t index;
    TM_TRY(take_number(m, index_bytes, &index));
    if (m->depth == 0 || m->stack[m->depth - 1].kind == MARK) return refuse(m, "nothing on the stack to remember");
    if (index != m->n_memo) return refuse(m, "memo numbers must ascend by one");
    TM_TRY(check_limit(m, m->n_memo, 16, "memo entries"));
    m->memo = tm_grow(m->memo, &m->memo_room, m->n_memo, sizeof *m->memo);
    m->memo[m->n_memo++] = m->stack[m->depth - 1];
    return TM_OK;
}

static tm_status get(machine *m, size_t index_bytes)
{
    uint32_t index;
    TM_TRY(take_number(m, index_bytes, &index));
    return index < m->n_memo ? push(m, m->memo[index]) : refuse(m, "a memo number that was not put");
}

static tm_status run_binput(machine *m)
{
    return put(m, 1);
}

static tm_status run_long_binput(machine *m)
{
    return put(m, 4);
}

static tm_status run_binget(machine *m)
{
    return get(m, 1);
}

static tm_status run_long_binget(machine *m)
{
    return get(m, 4);
}

/* --- containers --------------------------------------------------------------------------------------------------- */

static tm_status push_tuple(machine *m, const value *elements, size_t n)
{
    if (n > MAX_TUPLE) return refuse(m, "a tuple of more than 9 elements");
    size_t at = m->n_tuples;
    for (size_t i = 0; i < n; i++) {
        TM_TRY(check_limit(m, m->n_tuples, 16, "elements of tuples"));
        m->tuples = tm_grow(m->tuples, &m->tuples_room, m->n_tuples, sizeof *m->tuples);
        m->tuples[m->n_tuples++] = elements[i];
    }
    return push(m, (value){ .kind = TUPLE, .n = (uint32_t)n, .at = at });
}

static tm_status run_tuple(machine *m)
{
    const value *first;
    size_t       n;
    TM_TRY(pop_to_mark(m, &first, &n));
    return push_tuple(m, first, n);
}

static tm_status push_short_tuple(machine *m, size_t n)
{
    value elements[3];
    for (size_t i = n; i-- > 0;) TM_TRY(pop(m, &elements[i]));
    return push_tuple(m, elements, n);
}

static tm_status run_tuple1(machine *m)
{
    return push_short_tuple(m, 1);
}

static tm_status run_tuple3(machine *m)
{
    return push_short_tuple(m, 3);
}

static tm_status run_empty_list(machine *m)
{
    return push_object(m, LIST, (object){ 0 });
}

static tm_status run_empty_dict(machine *m)
{
    return push_object(m, DICT, (object){ 0 });
}

/* The list of rows. There is one: only dictionaries that are rows go into a list. */
static tm_status append_row(machine *m, object *list, value v)
{
    const object *row = object_of(m, v);
    tm_packed    *out = m->out;
    if (!row->built) return refuse(m, "a row without its keys");
    if (list->n != out->rows) return refuse(m, "a second list of rows");
    if (out->rows == m->rows) return refuse(m, "more rows than the header says");
    if (out->rows > 0 && row->n != out->width) return refuse(m, "a row of another length than the first");
    out->width = row->n;
    out->row[out->rows++] = (tm_packed_row){ row->ids, row->first };
    list->n++;
    return TM_OK;
}

static tm_status append_flag(machine *m, object *list, value v)
{
    if (v.i != 0 && v.i != 1) return refuse(m, "an integer other than 0 and 1 in a list");
    if (list->n == 0) list->first = m->n_masks;
    if (list->first + (size_t)list->n != m->n_masks) return refuse(m, "a list grows after another one began");
    m->out->masks = tm_grow(m->out->masks, &m->masks_room, m->n_masks, 1);
    m->out->masks[m->n_masks++] = (uint8_t)v.i;
    list->n++;
    return TM_OK;
}

static tm_status append_to(machine *m, object *list, const value *elements, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char code = elements[i].kind == INT ? 'i' : elements[i].kind == DICT ? 'd' : 0;
        if (!code) return refuse_kind(m, "a list of this format holds integers or dictionaries", elements[i].kind);
        if (list->code && list->code != code) return refuse(m, "integers and dictionaries in one list");
        list->code = code;
        TM_TRY(code == 'i' ? append_flag(m, list, elements[i]) : append_row(m, list, elements[i]));
    }
    return TM_OK;
}

static tm_status run_append(machine *m)
{
    value element, list;
    TM_TRY(pop(m, &element));
    TM_TRY(top(m, LIST, "wanted a list to append to", &list));
    return append_to(m, object_of(m, list), &element, 1);
}

static tm_status run_appends(machine *m)
{
    const value *first;
    value        list;
    size_t       n;
    TM_TRY(pop_to_mark(m, &first, &n));
    TM_TRY(top(m, LIST, "wanted a list to append to", &list));
    return append_to(m, object_of(m, list), first, n);
}

/* The three keys of a row, in any order. */
static tm_status run_setitems(machine *m)
{
    const value *pair, *ids = NULL, *mask = NULL, *start = NULL;
    value        dict;
    size_t       n;
    TM_TRY(pop_to_mark(m, &pair, &n));
    TM_TRY(top(m, DICT, "wanted a dictionary to set items of", &dict));
    object *row = object_of(m, dict);
    if (n != 6 || row->built) return refuse(m, "a row has three keys: input_ids, loss_mask, seq_start_id");
    for (size_t i = 0; i < n; i += 2) {
        if (is_text(pair[i], "input_ids") && pair[i + 1].kind == ARRAY) ids = &pair[i + 1];
        if (is_text(pair[i], "loss_mask") && pair[i + 1].kind == LIST) mask = &pair[i + 1];
        if (is_text(pair[i], "seq_start_id") && pair[i + 1].kind == LIST) start = &pair[i + 1];
    }
    if (!ids || !mask || !start) return refuse(m, "wanted input_ids: array, loss_mask: list, seq_start_id: list");
    const object *tokens = object_of(m, *ids), *flags = object_of(m, *mask), *starts = object_of(m, *start);
    if (!tokens->built || tokens->code != 'i') return refuse(m, "input_ids must be an array of int32");
    if (flags->code != 'i' || flags->n != tokens->n)
        return refuse(m, "loss_mask must have as many integers as input_ids has tokens");
    if (starts->code != 'i' || starts->n != 1 || m->out->masks[starts->first] != 0)
        return refuse(m, "seq_start_id must be [0]: a row is attended to as a whole");
    *row = (object){ .built = true, .first = flags->first, .n = tokens->n, .ids = tokens->ids };
    return TM_OK;
}

/* --- arrays ------------------------------------------------------------------------------------------------------- */

/* _reconstruct(ndarray, (0,), b'b') makes an empty array, dtype('O8' or 'i4', False, True) a type; both get their state
 * by BUILD. */
static tm_status run_reduce(machine *m)
{
    value args, name;
    TM_TRY(pop(m, &args));
    TM_TRY(pop(m, &name));
    if (name.kind != GLOBAL) return refuse_kind(m, "wanted a name to call", name.kind);
    if (args.kind != TUPLE || args.n != 3) return refuse(m, "wanted three arguments");
    const value *a = m->tuples + args.at;
    if (name.i == 'R') {
        bool plain = a[0].kind == GLOBAL && a[0].i == 'N' && a[1].kind == TUPLE && a[1].n == 1 &&
                     is_int(m->tuples[a[1].at], 0) && a[2].kind == BYTES && a[2].n == 1 && a[2].p[0] == 'b';
        return plain ? push_object(m, ARRAY, (object){ 0 }) : refuse(m, "wanted _reconstruct(ndarray, (0,), b'b')");
    }
    bool objects = is_text(a[0], "O8"), plain = is_bool(a[1], false) && is_bool(a[2], true);
    if (name.i != 'D' || !plain || (!objects && !is_text(a[0], "i4")))
        return refuse(m, "wanted dtype('O8' or 'i4', False, True)");
    return push_object(m, DTYPE, (object){ .code = objects ? 'O' : 'i' });
}

/* (3, '|' or '<', None, None, None, -1, -1, 63 or 0) */
static tm_status build_dtype(machine *m, object *dtype, const value *s, size_t n)
{
    bool objects = dtype->code == 'O';
    if (n != 8 || !is_int(s[0], 3) || !is_text(s[1], objects ? "|" : "<") || s[2].kind != NONE || s[3].kind != NONE ||
        s[4].kind != NONE || !is_int(s[5], -1) || !is_int(s[6], -1) || !is_int(s[7], objects ? 63 : 0))
        return refuse(m, "wanted the state of a little-endian int32 or of an object dtype");
    dtype->built = true;
    return TM_OK;
}

/* (1, (n,), dtype, False, list of rows or bytes) */
static tm_status build_array(machine *m, object *array, const value *s, size_t n)
{
    if (array->built || n != 5 || !is_int(s[0], 1) || s[1].kind != TUPLE || s[1].n != 1 || s[2].kind != DTYPE ||
        !is_bool(s[3], false) || m->tuples[s[1].at].kind != INT)
        return refuse(m, "wanted the state of an array of one axis: (1, (n,), dtype, False, data)");
    int64_t       elements = m->tuples[s[1].at].i;
    const object *dtype = object_of(m, s[2]);
    if (!dtype->built) return refuse(m, "an array of a dtype without its state");
    *array = (object){ .built = true, .code = dtype->code, .n = elements };
    if (dtype->code == 'O') {
        const object *list = s[4].kind == LIST ? object_of(m, s[4]) : NULL;
        if (!list || (list->code && list->code != 'd') || list->n != elements || elements != m->rows)
            return refuse(m, "the rows are not as many as the header says");
        return TM_OK;
    }
    if (s[4].kind != BYTES || elements < 1 || (int64_t)s[4].n != elements * TOKEN_BYTES)
        return refuse(m, "the data of an int32 array must have four bytes a token");
    array->ids = s[4].p;
    return TM_OK;
}

static tm_status run_build(machine *m)
{
    value state;
    TM_TRY(pop(m, &state));
    if (state.kind != TUPLE) return refuse_kind(m, "wanted a tuple as state", state.kind);
    if (state.n == 0) return refuse(m, "wanted a state with elements");
    if (m->depth == 0) return refuse(m, "nothing on the stack to build");
    value  v = m->stack[m->depth - 1];
    value *s = m->tuples + state.at;
    if (v.kind == DTYPE) return build_dtype(m, object_of(m, v), s, state.n);
    if (v.kind == ARRAY) return build_array(m, object_of(m, v), s, state.n);
    return refuse_kind(m, "wanted an array or a dtype to build", v.kind);
}

/* --- the machine -------------------------------------------------------------------------------------------------- */

static tm_status run_stop(machine *m)
{
    if (m->depth != 1 || m->stack[0].kind != ARRAY) return refuse(m, "the pickle is not one array");
    const object *array = object_of(m, m->stack[0]);
    if (!array->built || array->code != 'O') return refuse(m, "the array does not hold rows");
    return m->at == m->size ? TM_OK : refuse(m, "bytes follow the end of the pickle");
}

static const opcode opcodes[256] = {
    [0x80] = { "PROTO", run_proto },
    ['c'] = { "GLOBAL", run_global },
    ['q'] = { "BINPUT", run_binput },
    ['r'] = { "LONG_BINPUT", run_long_binput },
    ['h'] = { "BINGET", run_binget },
    ['j'] = { "LONG_BINGET", run_long_binget },
    ['J'] = { "BININT", run_binint },
    ['K'] = { "BININT1", run_binint1 },
    ['M'] = { "BININT2", run_binint2 },
    ['t'] = { "TUPLE", run_tuple },
    [0x85] = { "TUPLE1", run_tuple1 },
    [0x87] = { "TUPLE3", run_tuple3 },
    ['('] = { "MARK", run_mark },
    ['R'] = { "REDUCE", run_reduce },
    ['b'] = { "BUILD", run_build },
    ['C'] = { "SHORT_BINBYTES", run_short_binbytes },
    ['B'] = { "BINBYTES", run_binbytes },
    ['X'] = { "BINUNICODE", run_binunicode },
    ['N'] = { "NONE", run_none },
    [0x88] = { "NEWTRUE", run_true },
    [0x89] = { "NEWFALSE", run_false },
    [']'] = { "EMPTY_LIST", run_empty_list },
    ['}'] = { "EMPTY_DICT", run_empty_dict },
    ['a'] = { "APPEND", run_append },
    ['e'] = { "APPENDS", run_appends },
    ['u'] = { "SETITEMS", run_setitems },
    ['.'] = { "STOP", run_stop },
};

static tm_status run_pickle(machine *m)
{
    do {
        m->op_at = m->at;
        if (m->at == m->size)
            return tm_fail(m->err, TM_FORMAT, "'%s' ends at byte %zu within the pickle; it is truncated", m->name,
                           m->size);
        m->op = m->bytes[m->at++];
        if (!opcodes[m->op].run) return refuse(m, "not accepted; this reader knows what numpy 1.x writes");
        TM_TRY(opcodes[m->op].run(m));
    } while (m->op != '.');
    return TM_OK;
}

tm_status tm_pickle_rows(const char *name, const uint8_t *bytes, size_t size, size_t at, int64_t rows, tm_packed *out,
                         tm_error *err)
{
    machine m = { .out = out, .name = name, .bytes = bytes, .size = size, .at = at, .rows = rows, .err = err };
    m.stack = tm_alloc(MAX_DEPTH * sizeof *m.stack);
    tm_status st = run_pickle(&m);
    free(m.stack);
    free(m.memo);
    free(m.tuples);
    free(m.objects);
    return st;
}
