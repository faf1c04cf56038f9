/* SPDX-License-Identifier: Apache-2.0 */
/* data/corpus.c - lists files and cuts what is in them into batches.
 *
 * A text file is a document, cut into parts where the tokenizer allows it. Of JSON lines whole lines go into a batch;
 * who encodes them reads the JSON. A row of parquet is a document. */
#include "data/corpus.h"

#include "data/text_files.h"

#include "base/arena.h"
#include "base/hash.h"
#include "base/log.h"
#include "data/parquet.h"
#include "data/unpack.h"

#include <errno.h>
#include <fts.h>
#include <glob.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef enum { AS_TEXT, AS_LINES, AS_PARQUET } kind;

enum { LOOK = 1 << 16, MAX_BATCH = 1 << 30 };

typedef struct {
    char           *path;
    int64_t         bytes;
    struct timespec changed;
    uint64_t        hash;  /* of its content; 0: not known yet */
    bool            named; /* itself, not by way of its folder */
    bool            left_out;
    kind            as;
} file;

struct tm_corpus {
    const tm_tokenize_options *options;
    const tm_tokenizer        *tokenizer;
    tm_tokenize_result        *result;
    file                      *files;
    size_t                     count, capacity, at; /* at: the file being read */
    int64_t                    bytes, done;         /* of files before it */
    tm_unpack                 *unpack;              /* of it, NULL: not open */
    tm_parquet                *parquet;
    tm_text                    rest;         /* read, in no batch yet */
    bool                       begun, ended; /* the document under way has parts; the file has been read */
    int64_t                    line;
    size_t                     batch_bytes;
};

/* --- the list ----------------------------------------------------------------------------------------------------- */

static bool ends_in(const char *name, size_t n, const char *end)
{
    size_t m = strlen(end);
    return n > m && memcmp(name + n - m, end, m) == 0;
}

static kind kind_of(const tm_corpus *c, const char *path)
{
    const char *input = c->options->input;
    size_t      n = strlen(path);
    if (input) return strcmp(input, "text") == 0 ? AS_TEXT : strcmp(input, "jsonl") == 0 ? AS_LINES : AS_PARQUET;
    if (ends_in(path, n, ".gz")) n -= 3;
    if (ends_in(path, n, ".zst")) n -= 4;
    if (ends_in(path, n, ".jsonl") || ends_in(path, n, ".ndjson")) return AS_LINES;
    return ends_in(path, n, ".parquet") ? AS_PARQUET : AS_TEXT;
}

static void add_file(tm_corpus *c, const char *path, const struct stat *info, bool named)
{
    c->files = tm_grow(c->files, &c->capacity, c->count, sizeof *c->files);
    file *f = &c->files[c->count++];
    *f = (file){ .bytes = info->st_size, .changed = info->st_mtim, .named = named };
    f->path = tm_alloc(strlen(path) + 1);
    strcpy(f->path, path);
    f->as = kind_of(c, path);
}

static void unreadable(tm_corpus *c, const char *path, int cause)
{
    tm_warn("'%s' cannot be read (%s): left out", path, strerror(cause));
    c->result->unreadable++;
}

static int by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

static tm_status add_folder(tm_corpus *c, const char *path, tm_error *err)
{
    char   *copy = strcpy(tm_alloc(strlen(path) + 1), path), *paths[] = { copy, NULL };
    FTS    *walk = fts_open(paths, FTS_LOGICAL | FTS_NOCHDIR, by_name);
    FTSENT *entry;
    if (!walk) {
        free(copy);
        return tm_fail(err, TM_INVALID, "cannot read directory '%s': %s", path, strerror(errno));
    }
    while ((entry = fts_read(walk))) {
        if (entry->fts_level > 0 && entry->fts_name[0] == '.') {
            fts_set(walk, entry, FTS_SKIP);
            continue;
        }
        if (entry->fts_info == FTS_F) add_file(c, entry->fts_path, entry->fts_statp, false);
        if (entry->fts_info == FTS_DNR || entry->fts_info == FTS_ERR || entry->fts_info == FTS_NS ||
            entry->fts_info == FTS_SLNONE)
            unreadable(c, entry->fts_path, entry->fts_info == FTS_SLNONE ? ENOENT : entry->fts_errno);
        if (entry->fts_info == FTS_DC)
            tm_warn("'%s' leads back to a directory that it lies in: left out", entry->fts_path);
    }
    fts_close(walk);
    free(copy);
    return TM_OK;
}

static tm_status add_path(tm_corpus *c, const char *path, bool pattern, tm_error *err)
{
    struct stat info;
    if (stat(path, &info) == 0) {
        if (S_ISDIR(info.st_mode)) return add_folder(c, path, err);
        if (S_ISREG(info.st_mode)) {
            add_file(c, path, &info, true);
            return TM_OK;
        }
        return tm_fail(err, TM_INVALID, "'%s' is neither a regular file nor a directory", path);
    }
    int    cause = errno;
    glob_t found = { 0 };
    if (pattern || !strpbrk(path, "*?[") || glob(path, 0, NULL, &found) != 0) {
        globfree(&found);
        return tm_fail(err, TM_INVALID, "cannot reach '%s': %s; wanted files, directories or patterns of text", path,
                       strerror(cause));
    }
    tm_status st = TM_OK;
    for (size_t i = 0; i < found.gl_pathc && st == TM_OK; i++) st = add_path(c, found.gl_pathv[i], true, err);
    globfree(&found);
    return st;
}

/* --- what is left out --------------------------------------------------------------------------------------------- */

/* Of the file as it is, packed or not. */
static tm_status hash_file(file *f, tm_error *err)
{
    char      *part = tm_alloc(LOOK);
    FILE      *in = fopen(f->path, "rbe");
    tm_hasher *hasher = tm_hasher_create();
    for (size_t n; in && (n = fread(part, 1, LOOK, in)) > 0;) tm_hasher_add(hasher, part, n);
    bool good = in && !ferror(in);
    f->hash = tm_hasher_value(hasher) | 1;
    if (in) fclose(in);
    tm_hasher_destroy(hasher);
    free(part);
    return good ? TM_OK : tm_fail(err, TM_INVALID, "cannot read '%s': %s", f->path, strerror(errno));
}

static int by_content(const void *a, const void *b)
{
    const file *x = *(file *const *)a, *y = *(file *const *)b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    if (x->hash != y->hash) return x->hash < y->hash ? -1 : 1;
    return (x > y) - (x < y);
}

/* Only files of the same size are read; of equal ones the first in the order of the paths stays. */
static void find_duplicates(tm_corpus *c)
{
    file **order = tm_alloc((c->count + 1) * sizeof(file *));
    for (size_t i = 0; i < c->count; i++) order[i] = &c->files[i];
    qsort(order, c->count, sizeof(file *), by_content);
    for (size_t i = 0; i < c->count; i++) {
        bool twin = (i > 0 && order[i - 1]->bytes == order[i]->bytes) ||
                    (i + 1 < c->count && order[i + 1]->bytes == order[i]->bytes);
        if (twin && order[i]->bytes > 0 && hash_file(order[i], NULL) != TM_OK) order[i]->hash = 0; /* said later */
    }
    qsort(order, c->count, sizeof(file *), by_content);
    for (size_t i = 1, first = 0; i < c->count; i++) {
        const file *kept = order[first];
        if (!order[i]->hash || order[i]->bytes != kept->bytes || order[i]->hash != kept->hash) {
            first = i;
            continue;
        }
        tm_warn("'%s' is the same as '%s': left out", order[i]->path, kept->path);
        order[i]->left_out = true;
        c->result->duplicate++;
    }
    free(order);
}

/* The first line of a text file that is a JSON object: the user wants its fields, not its quotes. */
static tm_status refuse_json(const tm_corpus *c, const file *f, const char *bytes, size_t n, tm_error *err)
{
    const char *end = memchr(bytes, '\n', n);
    json_t     *line = *bytes == '{' && end ? json_loadb(bytes, (size_t)(end - bytes), 0, NULL) : NULL, *value;
    const char *key, *field = NULL;
    if (!json_is_object(line)) {
        json_decref(line);
        return TM_OK;
    }
    json_object_foreach(line, key, value) if (json_is_string(value) && (!field || strcmp(key, "text") == 0)) field =
        key;
    const char *tokenizer = c->options->tokenizer; /* NULL: one is made */
    tm_status   st =
        tm_fail(err, TM_INVALID, "'%s' is JSON lines, not text: trainmark %s %s --input jsonl --field %s %s%s -o %s",
                f->path, tokenizer ? "data tokenize" : "tokenizer train", f->path, field ? field : "NAME",
                tokenizer ? "--tokenizer " : "--vocab_size N", tokenizer ? tokenizer : "", c->options->out);
    json_decref(line);
    return st;
}

/* Looks at the beginning of a file; left out, an error if it was named. */
static tm_status look_at(tm_corpus *c, file *f, char *bytes, tm_error *err)
{
    tm_unpack *unpack = NULL;
    tm_error   why = { 0 };
    size_t     n = 0, got = 1;
    if (f->as == AS_PARQUET) return TM_OK;
    tm_status st = tm_unpack_open(f->path, &unpack, &why);
    while (st == TM_OK && n < LOOK && got > 0) {
        st = tm_unpack_read(unpack, bytes + n, LOOK - n, &got, &why);
        n += got;
    }
    tm_unpack_close(unpack);
    bool binary = st == TM_OK && tm_is_binary(bytes, n);
    if (st != TM_OK && f->named) return tm_fail(err, st, "%s", why.text);
    if (binary && f->named) return tm_fail(err, TM_INVALID, "'%s' is a binary file, wanted text", f->path);
    if (st != TM_OK) tm_warn("%s: left out", why.text);
    if (binary) tm_warn("'%s' is a binary file: left out", f->path);
    c->result->unreadable += st != TM_OK;
    c->result->binary += binary;
    c->result->empty += st == TM_OK && n == 0;
    f->left_out = st != TM_OK || binary || n == 0;
    return f->left_out || f->as != AS_TEXT ? TM_OK : refuse_json(c, f, bytes, n, err);
}

static tm_status look_at_all(tm_corpus *c, tm_error *err)
{
    char     *bytes = tm_alloc(LOOK);
    tm_status st = TM_OK;
    find_duplicates(c);
    for (size_t i = 0; i < c->count && st == TM_OK; i++)
        if (!c->files[i].left_out) st = look_at(c, &c->files[i], bytes, err);
    free(bytes);
    size_t kept = 0;
    for (size_t i = 0; i < c->count; i++) {
        if (c->files[i].left_out)
            free(c->files[i].path);
        else
            c->files[kept++] = c->files[i];
    }
    c->count = kept;
    for (size_t i = 0; i < kept; i++) c->bytes += c->files[i].bytes;
    c->result->files = (int64_t)kept;
    return st;
}

tm_status tm_corpus_open(const tm_tokenize_options *options, const tm_tokenizer *tokenizer, tm_tokenize_result *result,
                         tm_corpus **out, tm_error *err)
{
    tm_corpus *c = tm_alloc(sizeof *c);
    tm_status  st = TM_OK;
    *c = (tm_corpus){ .options = options, .tokenizer = tokenizer, .result = result };
    c->batch_bytes = options->batch_bytes > 0 ? (size_t)options->batch_bytes : 1 << 20;
    for (int i = 0; i < options->n_paths && st == TM_OK; i++) st = add_path(c, options->paths[i], false, err);
    if (st == TM_OK) st = look_at_all(c, err);
    if (st == TM_OK && c->count == 0) st = tm_fail(err, TM_INVALID, "no text in '%s'", options->paths[0]);
    for (size_t i = 0; i < c->count && st == TM_OK; i++)
        if (c->files[i].as != AS_TEXT && !options->field)
            st = tm_fail(err, TM_INVALID, "'%s' has fields; name the one with the text: --field text, for example",
                         c->files[i].path);
    if (st != TM_OK) {
        tm_corpus_close(c);
        return st;
    }
    *out = c;
    return TM_OK;
}

void tm_corpus_close(tm_corpus *corpus)
{
    if (!corpus) return;
    for (size_t i = 0; i < corpus->count; i++) free(corpus->files[i].path);
    free(corpus->files);
    tm_unpack_close(corpus->unpack);
    tm_parquet_close(corpus->parquet);
    tm_text_fini(&corpus->rest);
    free(corpus);
}

int64_t tm_corpus_bytes(const tm_corpus *corpus)
{
    return corpus->bytes;
}

uint64_t tm_corpus_hash(const tm_corpus *corpus)
{
    tm_hasher *hasher = tm_hasher_create();
    for (size_t i = 0; i < corpus->count; i++) {
        const file *f = &corpus->files[i];
        int64_t     facts[] = { f->bytes, f->changed.tv_sec, f->changed.tv_nsec, f->as };
        tm_hasher_add(hasher, f->path, strlen(f->path) + 1);
        tm_hasher_add(hasher, facts, sizeof facts);
    }
    uint64_t value = tm_hasher_value(hasher);
    tm_hasher_destroy(hasher);
    return value;
}

/* --- batches ------------------------------------------------------------------------------------------------------ */

void tm_text_batch_clear(tm_text_batch *batch)
{
    if (batch->text.data) batch->text.length = 0;
    tm_text_add_n(&batch->text, "", 0);
    batch->count = 0;
}

void tm_text_batch_fini(tm_text_batch *batch)
{
    tm_text_fini(&batch->text);
    free(batch->parts);
    *batch = (tm_text_batch){ 0 };
}

static void put_part(tm_text_batch *b, const char *text, size_t n, tm_part part)
{
    b->parts = tm_grow(b->parts, &b->capacity, b->count, sizeof *b->parts);
    part.at = b->text.length;
    part.length = n;
    tm_text_add_n(&b->text, text, n);
    b->parts[b->count++] = part;
}

/* Reads until `rest` has `want` bytes or the file ends. */
static tm_status fill(tm_corpus *c, size_t want, tm_error *err)
{
    char     *part = tm_alloc(LOOK);
    tm_status st = TM_OK;
    while (st == TM_OK && !c->ended && c->rest.length < want) {
        size_t got = 0, n = want - c->rest.length < LOOK ? want - c->rest.length : LOOK;
        st = tm_unpack_read(c->unpack, part, n, &got, err);
        c->ended = st == TM_OK && got == 0;
        tm_text_add_n(&c->rest, part, got);
    }
    free(part);
    return st;
}

static void drop(tm_corpus *c, size_t n)
{
    memmove(c->rest.data, c->rest.data + n, c->rest.length - n + 1);
    c->rest.length -= n;
}

static void end_file(tm_corpus *c)
{
    c->done += c->files[c->at].bytes;
    tm_unpack_close(c->unpack);
    tm_parquet_close(c->parquet);
    c->unpack = NULL;
    c->parquet = NULL;
    c->at++;
}

/* A part of the text file, or its end. Where no cut is found, more is read. */
static tm_status text_part(tm_corpus *c, tm_text_batch *b, tm_error *err)
{
    size_t want = c->batch_bytes, cut = 0;
    for (;; want *= 2) {
        TM_TRY(fill(c, want + 1, err)); /* one more: is it the end? */
        if (c->rest.length <= want) cut = c->rest.length;
        if (cut == 0) cut = tm_tokenizer_cut(c->tokenizer, c->rest.data, want);
        if (cut > 0 || c->rest.length == 0) break;
        if (want >= MAX_BATCH / 2)
            return tm_fail(err, TM_INVALID, "'%s': a document of more than %d bytes that cannot be cut; split it",
                           c->files[c->at].path, MAX_BATCH / 2);
    }
    bool ends = c->ended && cut == c->rest.length;
    put_part(b, c->rest.data, cut, (tm_part){ .begins = !c->begun, .ends = ends, .file = c->files[c->at].path });
    drop(c, cut);
    c->begun = true;
    if (ends) end_file(c);
    return TM_OK;
}

static tm_status lines_part(tm_corpus *c, tm_text_batch *b, tm_error *err)
{
    size_t want = c->batch_bytes, n = 0;
    for (;; want *= 2) {
        TM_TRY(fill(c, want, err));
        const char *last = c->rest.length > 0 ? memrchr(c->rest.data, '\n', c->rest.length) : NULL;
        n = c->ended ? c->rest.length : last ? (size_t)(last - c->rest.data) + 1 : 0;
        if (n > 0 || c->ended) break;
        if (want >= MAX_BATCH / 2)
            return tm_fail(err, TM_INVALID, "'%s', line %lld: more than %d bytes", c->files[c->at].path,
                           (long long)c->line, MAX_BATCH / 2);
    }
    if (n > 0) put_part(b, c->rest.data, n, (tm_part){ .lines = true, .line = c->line, .file = c->files[c->at].path });
    for (const char *p = c->rest.data, *end = p + n; n > 0 && (p = memchr(p, '\n', (size_t)(end - p))); p++) c->line++;
    if (n > 0) drop(c, n);
    if (c->ended && c->rest.length == 0) end_file(c);
    return TM_OK;
}

static tm_status parquet_part(tm_corpus *c, tm_text_batch *b, tm_error *err)
{
    const char *text = NULL;
    size_t      n = 0;
    bool        more = false;
    TM_TRY(tm_parquet_next(c->parquet, &text, &n, &more, err));
    if (more)
        put_part(b, text, n, (tm_part){ .begins = true, .ends = true, .file = c->files[c->at].path });
    else
        end_file(c);
    return TM_OK;
}

static tm_status begin_file(tm_corpus *c, tm_error *err)
{
    const file *f = &c->files[c->at];
    c->begun = c->ended = false;
    c->line = 1;
    if (f->as == AS_PARQUET) return tm_parquet_open(f->path, c->options->field, &c->parquet, err);
    if (c->rest.data) c->rest.length = 0;
    tm_text_add_n(&c->rest, "", 0);
    return tm_unpack_open(f->path, &c->unpack, err);
}

tm_status tm_corpus_next(tm_corpus *corpus, tm_text_batch *batch, tm_error *err)
{
    while (corpus->at < corpus->count && batch->text.length < corpus->batch_bytes && batch->count < 1 << 16) {
        if (!corpus->unpack && !corpus->parquet) TM_TRY(begin_file(corpus, err));
        kind as = corpus->files[corpus->at].as;
        TM_TRY((as == AS_TEXT ? text_part : as == AS_LINES ? lines_part : parquet_part)(corpus, batch, err));
    }
    batch->place = corpus->done + (corpus->unpack    ? tm_unpack_place(corpus->unpack)
                                   : corpus->parquet ? tm_parquet_place(corpus->parquet)
                                                     : 0);
    return TM_OK;
}
