/* SPDX-License-Identifier: Apache-2.0 */
#include "data/indexed.h"

#include "base/arena.h"
#include "base/text.h"

#include <stdlib.h>

enum { INT32 = 4, UINT16 = 8 }; /* types of tokens */

tm_status tm_indexed_begin(const char *prefix, bool wide, tm_indexed_writer *out, tm_error *err)
{
    tm_text idx = { 0 }, bin = { 0 };
    tm_text_printf(&idx, "%s.idx", prefix);
    tm_text_printf(&bin, "%s.bin", prefix);
    *out = (tm_indexed_writer){ .wide = wide };
    tm_status st = tm_output_open(bin.data, &out->bin, err);
    if (st == TM_OK) st = tm_output_open(idx.data, &out->idx, err);
    if (st != TM_OK) tm_indexed_abandon(out);
    tm_text_fini(&idx);
    tm_text_fini(&bin);
    return st;
}

void tm_indexed_add(tm_indexed_writer *writer, const int32_t *tokens, int64_t n)
{
    TM_ASSERT(n >= 0 && writer->length <= INT32_MAX - n);
    for (int64_t i = 0; i < n; i++) {
        TM_ASSERT(writer->wide || (tokens[i] >= 0 && tokens[i] <= UINT16_MAX));
        tm_output_number(&writer->bin, (uint32_t)tokens[i], writer->wide ? 4 : 2);
    }
    writer->length += n;
}

void tm_indexed_end_document(tm_indexed_writer *writer)
{
    if (writer->length == 0) return;
    writer->lengths = tm_grow(writer->lengths, &writer->room, writer->count, sizeof *writer->lengths);
    writer->lengths[writer->count++] = (int32_t)writer->length;
    writer->length = 0;
}

static void write_index(tm_indexed_writer *w)
{
    uint64_t offset = 0;
    tm_output_bytes(&w->idx, "MMIDIDX\0", 9);
    tm_output_number(&w->idx, 1, 8);
    tm_output_number(&w->idx, w->wide ? INT32 : UINT16, 1);
    tm_output_number(&w->idx, w->count, 8);
    tm_output_number(&w->idx, w->count + 1, 8);
    for (size_t i = 0; i < w->count; i++) tm_output_number(&w->idx, (uint64_t)w->lengths[i], 4);
    for (size_t i = 0; i < w->count; i++) {
        tm_output_number(&w->idx, offset, 8);
        offset += (uint64_t)w->lengths[i] * (w->wide ? 4 : 2);
    }
    for (size_t i = 0; i <= w->count; i++) tm_output_number(&w->idx, i, 8);
}

tm_status tm_indexed_finish(tm_indexed_writer *writer, tm_error *err)
{
    tm_indexed_end_document(writer);
    write_index(writer);
    tm_status st = tm_output_close(&writer->bin, err); /* the index last: it says that the tokens are complete */
    if (st == TM_OK) st = tm_output_close(&writer->idx, err);
    tm_indexed_abandon(writer);
    return st;
}

void tm_indexed_abandon(tm_indexed_writer *writer)
{
    tm_output_abandon(&writer->bin);
    tm_output_abandon(&writer->idx);
    free(writer->lengths);
    *writer = (tm_indexed_writer){ 0 };
}
