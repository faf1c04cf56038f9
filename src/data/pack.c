/* SPDX-License-Identifier: Apache-2.0 */
#include "data/pack.h"

#include "base/arena.h"
#include "data/indexed.h"
#include "data/packed.h"
#include "data/text_files.h"

#include <stdlib.h>
#include <string.h>

enum { END_TOKEN = 256 };

static tm_status pack_indexed(const tm_pack_options *o, const tm_text_files *files, tm_error *err)
{
    tm_indexed_writer writer;
    const int32_t     end = END_TOKEN;
    TM_TRY(tm_indexed_begin(o->out, false, &writer, err));
    for (size_t f = 0; f < files->count; f++) {
        if (files->files[f].size >= INT32_MAX) {
            tm_indexed_abandon(&writer);
            return tm_fail(err, TM_INVALID, "a file in '%s' has %lld bytes, a document at most %d; split it", o->path,
                           (long long)files->files[f].size, INT32_MAX - 1);
        }
        for (int64_t i = 0; i < files->files[f].size; i++) {
            int32_t token = files->files[f].bytes[i];
            tm_indexed_add(&writer, &token, 1);
        }
        tm_indexed_add(&writer, &end, 1);
        tm_indexed_end_document(&writer);
    }
    TM_TRY(tm_indexed_finish(&writer, err));
    return tm_indexed_vocabulary_write(o->out, END_TOKEN + 1, "bytes", err);
}

/* Where the answer of a file begins: behind the first `answer`, at the end without one. */
static int64_t answer_of(const tm_text_file *file, const char *answer)
{
    if (!answer) return 0;
    const uint8_t *found = memmem(file->bytes, (size_t)file->size, answer, strlen(answer));
    return found ? found - file->bytes + (int64_t)strlen(answer) : file->size;
}

static tm_status pack_rows(const tm_pack_options *o, const tm_text_files *files, int64_t rows, tm_error *err)
{
    int64_t  at = 0, all = rows * o->seq;
    int32_t *ids = tm_alloc((size_t)all * sizeof *ids);
    uint8_t *masks = tm_alloc((size_t)all);
    for (size_t f = 0; f < files->count; f++) {
        const tm_text_file *file = &files->files[f];
        int64_t             answer = answer_of(file, o->answer);
        for (int64_t i = 0; i <= file->size && at < all; i++, at++) {
            ids[at] = i < file->size ? file->bytes[i] : END_TOKEN;
            masks[at] = !o->answer || (i >= answer && i < file->size);
        }
    }
    tm_status st = tm_packed_write(o->out, rows, o->seq, ids, masks, err);
    free(ids);
    free(masks);
    return st;
}

static tm_status pack(const tm_pack_options *o, const tm_text_files *files, int64_t *rows, tm_error *err)
{
    int64_t tokens = files->bytes + (int64_t)files->count;
    if (files->count == 0) return tm_fail(err, TM_INVALID, "no text in '%s'", o->path);
    *rows = (int64_t)files->count;
    if (strcmp(o->format, "megatron") == 0) return pack_indexed(o, files, err);
    *rows = tokens / o->seq;
    if (*rows < 1 || *rows > TM_PACKED_MAX_ROWS)
        return tm_fail(err, TM_INVALID, "'%s' has %lld tokens, that are %lld rows of %lld; wanted 1 to %d", o->path,
                       (long long)tokens, (long long)*rows, (long long)o->seq, TM_PACKED_MAX_ROWS);
    return pack_rows(o, files, *rows, err);
}

tm_status tm_data_pack(const tm_pack_options *options, int64_t *rows, tm_error *err)
{
    tm_text_files files;
    TM_TRY(tm_text_files_open(options->path, &files, err));
    tm_status st = tm_text_files_check(&files, err);
    if (st == TM_OK) st = pack(options, &files, rows, err);
    tm_text_files_close(&files);
    return st;
}
