/* SPDX-License-Identifier: Apache-2.0 */
/* data/packed_write.c - packed sequences as numpy 1.x pickles them (protocol 3), byte for byte: lists in batches of
 * 1000, one element alone by APPEND, the memo numbered from 0, what was said once taken from the memo. */
#include "data/output.h"
#include "data/packed.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { BATCH = 1000, HEADER_TEXT = 118 };

typedef struct {
    tm_output out;
    uint32_t  n_memo;
    uint32_t  reconstruct, ndarray, b, dtype, int32, input_ids, loss_mask, seq_start_id; /* memo numbers */
} writer;

static void text(writer *w, const char *bytes)
{
    tm_output_bytes(&w->out, bytes, strlen(bytes));
}

static void byte(writer *w, int value)
{
    tm_output_number(&w->out, (uint64_t)value, 1);
}

/* Remembers the top of the stack; returns its number. */
static uint32_t put(writer *w)
{
    byte(w, w->n_memo < 256 ? 'q' : 'r');
    tm_output_number(&w->out, w->n_memo, w->n_memo < 256 ? 1 : 4);
    return w->n_memo++;
}

static void get(writer *w, uint32_t number)
{
    byte(w, number < 256 ? 'h' : 'j');
    tm_output_number(&w->out, number, number < 256 ? 1 : 4);
}

static void integer(writer *w, int64_t value)
{
    int bytes = value >= 0 && value < 256 ? 1 : value >= 0 && value < 65536 ? 2 : 4;
    byte(w, bytes == 1 ? 'K' : bytes == 2 ? 'M' : 'J');
    tm_output_number(&w->out, (uint64_t)value, bytes);
}

static uint32_t unicode(writer *w, const char *value)
{
    byte(w, 'X');
    tm_output_number(&w->out, strlen(value), 4);
    text(w, value);
    return put(w);
}

static uint32_t global(writer *w, const char *lines)
{
    byte(w, 'c');
    text(w, lines);
    return put(w);
}

/* dtype(code, False, True) with its state; returns the number of the dtype. */
static uint32_t dtype(writer *w, const char *code, const char *order, int flags)
{
    unicode(w, code);
    text(w, "\x89\x88\x87");
    put(w);
    byte(w, 'R');
    uint32_t number = put(w);
    byte(w, '(');
    integer(w, 3);
    unicode(w, order);
    text(w, "NNN");
    integer(w, -1);
    integer(w, -1);
    integer(w, flags);
    byte(w, 't');
    put(w);
    byte(w, 'b');
    return number;
}

/* An empty array, then the beginning of its state: (1, (n,), */
static void begin_array(writer *w, bool first, int64_t n)
{
    if (first) w->reconstruct = global(w, "numpy.core.multiarray\n_reconstruct\n");
    if (!first) get(w, w->reconstruct);
    if (first) w->ndarray = global(w, "numpy\nndarray\n");
    if (!first) get(w, w->ndarray);
    integer(w, 0);
    byte(w, 0x85);
    put(w);
    if (first) {
        text(w, "C\x01"
                "b");
        w->b = put(w);
    } else {
        get(w, w->b);
    }
    byte(w, 0x87);
    put(w);
    byte(w, 'R');
    put(w);
    byte(w, '(');
    integer(w, 1);
    integer(w, n);
    byte(w, 0x85);
    put(w);
}

static void end_array(writer *w)
{
    byte(w, 't');
    put(w);
    byte(w, 'b');
}

static void token_array(writer *w, const int32_t *ids, int64_t n, bool first)
{
    begin_array(w, false, n);
    if (first) {
        get(w, w->dtype);
        w->int32 = dtype(w, "i4", "<", 0);
    } else {
        get(w, w->int32);
    }
    byte(w, 0x89);
    byte(w, 4 * n < 256 ? 'C' : 'B');
    tm_output_number(&w->out, 4 * (uint64_t)n, 4 * n < 256 ? 1 : 4);
    for (int64_t i = 0; i < n; i++) tm_output_number(&w->out, (uint32_t)ids[i], 4);
    put(w);
    end_array(w);
}

static void mask_list(writer *w, const uint8_t *mask, int64_t n)
{
    byte(w, ']');
    put(w);
    for (int64_t i = 0; i < n; i += BATCH) {
        if (n > 1) byte(w, '(');
        for (int64_t k = i; k < n && k < i + BATCH; k++) integer(w, mask[k]);
        byte(w, n > 1 ? 'e' : 'a');
    }
}

/* The name of a key: written the first time, remembered later. */
static void key(writer *w, uint32_t *number, const char *name, bool first)
{
    if (first)
        *number = unicode(w, name);
    else
        get(w, *number);
}

static void row(writer *w, const int32_t *ids, const uint8_t *mask, int64_t width, bool first)
{
    byte(w, '}');
    put(w);
    byte(w, '(');
    key(w, &w->input_ids, "input_ids", first);
    token_array(w, ids, width, first);
    key(w, &w->loss_mask, "loss_mask", first);
    mask_list(w, mask, width);
    key(w, &w->seq_start_id, "seq_start_id", first);
    byte(w, ']');
    put(w);
    integer(w, 0);
    byte(w, 'a');
    byte(w, 'u');
}

static void header(writer *w, int64_t rows)
{
    char line[HEADER_TEXT + 1];
    int  n = snprintf(line, sizeof line, "{'descr': '|O', 'fortran_order': False, 'shape': (%" PRId64 ",), }", rows);
    memset(line + n, ' ', (size_t)(HEADER_TEXT - n));
    line[HEADER_TEXT - 1] = '\n';
    tm_output_bytes(&w->out, "\x93NUMPY\x01\0", 8);
    tm_output_number(&w->out, HEADER_TEXT, 2);
    tm_output_bytes(&w->out, line, HEADER_TEXT);
}

tm_status tm_packed_write(const char *path, int64_t rows, int64_t width, const int32_t *ids, const uint8_t *masks,
                          tm_error *err)
{
    TM_ASSERT(rows >= 1 && rows <= TM_PACKED_MAX_ROWS && width >= 1 && width < INT32_MAX / 4);
    writer w = { 0 };
    TM_TRY(tm_output_open(path, &w.out, err));
    header(&w, rows);
    text(&w, "\x80\x03");
    begin_array(&w, true, rows);
    w.dtype = global(&w, "numpy\ndtype\n");
    dtype(&w, "O8", "|", 63);
    text(&w, "\x89]");
    put(&w);
    for (int64_t i = 0; i < rows; i += BATCH) {
        if (rows > 1) byte(&w, '(');
        for (int64_t k = i; k < rows && k < i + BATCH; k++) row(&w, ids + k * width, masks + k * width, width, k == 0);
        byte(&w, rows > 1 ? 'e' : 'a');
    }
    end_array(&w);
    byte(&w, '.');
    return tm_output_close(&w.out, err);
}
