/* SPDX-License-Identifier: Apache-2.0 */
#include "data/tokenize_output.h"

#include "base/again.h"
#include "base/arena.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/lock.h"
#include "base/text.h"
#include "data/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char magic[] = "tmtoken1";
enum { MAGIC_BYTES = sizeof magic - 1 };

static char *name_of(const tm_tokenize_output *out, const char *end)
{
    tm_text name = { 0 };
    tm_text_printf(&name, "%s%s", out->prefix, end);
    return name.data;
}

/* Empty, for writing: names that stay the same over calls, but never through a link. */
static FILE *open_empty(const char *name)
{
    int   fd = tm_file_open_lock(name);
    FILE *f = fd >= 0 && ftruncate(fd, 0) == 0 ? fdopen(fd, "r+b") : NULL;
    if (!f && fd >= 0) close(fd);
    return f;
}

/* For this call alone; NULL with errno, EWOULDBLOCK: another process has it. */
static FILE *open_part(const tm_tokenize_output *out, const char *end)
{
    char *name = name_of(out, end);
    int   fd, cause = 0, locked = tm_file_lock(name, &fd, &cause);
    FILE *f = fd >= 0 && locked >= 0 ? fdopen(fd, "r+b") : NULL;
    if (locked < 0) cause = EWOULDBLOCK;
    if (!f && fd >= 0) close(fd);
    free(name);
    errno = cause;
    return f;
}

static void remove_part(const tm_tokenize_output *out, const char *end)
{
    char *name = name_of(out, end);
    unlink(name);
    free(name);
}

typedef struct {
    char              magic[MAGIC_BYTES];
    tm_tokenize_state state;
    uint64_t          hash; /* of the state */
} saved_state;

/* Numbers that a call can have saved. */
static bool usable(const tm_tokenize_state *s)
{
    const int64_t most = INT64_C(1) << 56;
    return s->tokens >= 0 && s->tokens < most && s->documents >= 0 && s->documents <= s->tokens && s->open >= 0 &&
           s->open <= s->tokens && s->batches >= 0 && s->bytes >= 0 && s->bytes < most;
}

/* Goes on behind `bytes`, if there are as many. */
static bool cut(FILE *f, off_t bytes)
{
    return fseeko(f, 0, SEEK_END) == 0 && ftello(f) >= bytes && ftruncate(fileno(f), bytes) == 0 &&
           fseeko(f, bytes, SEEK_SET) == 0;
}

/* The state of a killed call, if it is whole, has this key and its files are as long as it says. */
static bool go_on(tm_tokenize_output *out, uint64_t key)
{
    saved_state saved;
    char       *name = name_of(out, ".tokenize");
    FILE       *f = fopen(name, "rbe");
    bool        good = f && fread(&saved, sizeof saved, 1, f) == 1 && memcmp(saved.magic, magic, MAGIC_BYTES) == 0;
    free(name);
    if (f) fclose(f);
    if (!good || saved.hash != tm_hash(&saved.state, sizeof saved.state) || saved.state.key != key ||
        !usable(&saved.state))
        return false;
    if (!cut(out->bin, (off_t)saved.state.tokens * (out->wide ? 4 : 2)) ||
        !cut(out->lengths, (off_t)saved.state.documents * 4))
        return false;
    out->state = saved.state;
    return true;
}

tm_status tm_tokenize_output_open(const char *prefix, bool wide, uint64_t key, tm_tokenize_output *out, tm_error *err)
{
    *out = (tm_tokenize_output){ .prefix = tm_alloc(strlen(prefix) + 1), .wide = wide, .state = { .key = key } };
    strcpy(out->prefix, prefix);
    out->bin = open_part(out, ".bin.part");
    out->lengths = out->bin ? open_part(out, ".lengths.part") : NULL;
    if (out->lengths && go_on(out, key)) return TM_OK;
    if (out->lengths) remove_part(out, ".tokenize");
    if (out->lengths && cut(out->bin, 0) && cut(out->lengths, 0)) return TM_OK;
    tm_status st =
        errno == EWOULDBLOCK
            ? tm_fail(err, TM_INVALID,
                      "another process is writing '%s.bin'; wait until it has ended, or name another --out", prefix)
            : tm_fail(err, TM_IO, "cannot create '%s.bin.part': %s", prefix, strerror(errno));
    tm_tokenize_output_close(out);
    return st;
}

static void put(tm_tokenize_output *out, FILE *f, const void *bytes, size_t n)
{
    errno = 0;
    if (n > 0 && fwrite(bytes, 1, n, f) != n && !out->cause) out->cause = errno ? errno : EIO;
}

static size_t little(uint8_t *out, uint32_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) out[i] = (uint8_t)(value >> 8 * i);
    return (size_t)bytes;
}

void tm_tokenize_output_add(tm_tokenize_output *out, const int32_t *ids, int64_t n)
{
    uint8_t part[4096];
    for (int64_t i = 0; i < n;) {
        size_t bytes = 0;
        for (; i < n && bytes < sizeof part; i++) bytes += little(part + bytes, (uint32_t)ids[i], out->wide ? 4 : 2);
        put(out, out->bin, part, bytes);
    }
    out->state.tokens += n;
    out->state.open += n;
}

void tm_tokenize_output_end_document(tm_tokenize_output *out)
{
    uint8_t length[4];
    if (out->state.open == 0) return;
    if (out->state.open > INT32_MAX && !out->cause) out->cause = EFBIG;
    put(out, out->lengths, length, little(length, (uint32_t)out->state.open, 4));
    out->state.documents++;
    out->state.open = 0;
}

static tm_status flush(tm_tokenize_output *out, tm_error *err)
{
    errno = 0;
    if ((fflush(out->bin) != 0 || fflush(out->lengths) != 0 || tm_again_sync(fileno(out->bin)) != 0 ||
         tm_again_sync(fileno(out->lengths)) != 0) &&
        !out->cause)
        out->cause = errno ? errno : EIO;
    if (!out->cause) return TM_OK;
    return tm_fail(err, TM_IO, "cannot write '%s.bin.part': %s", out->prefix,
                   out->cause == EFBIG ? "a document of more than 2147483647 tokens, or a limit of the file system"
                                       : strerror(out->cause));
}

/* By way of a file of always the same name, so that a kill leaves no litter. */
tm_status tm_tokenize_output_save(tm_tokenize_output *out, tm_error *err)
{
    saved_state saved = { .state = out->state, .hash = tm_hash(&out->state, sizeof out->state) };
    TM_TRY(flush(out, err));
    memcpy(saved.magic, magic, MAGIC_BYTES);
    char *name = name_of(out, ".tokenize"), *new_name = name_of(out, ".tokenize.new");
    FILE *f = open_empty(new_name);
    bool  good = f && fwrite(&saved, sizeof saved, 1, f) == 1 && fflush(f) == 0 && tm_again_sync(fileno(f)) == 0;
    int   cause = errno;
    if (f) fclose(f);
    if (good && tm_again_rename(AT_FDCWD, new_name, name) != 0) good = false, cause = errno;
    tm_status st = good ? TM_OK : tm_fail(err, TM_IO, "cannot write '%s': %s", new_name, strerror(cause));
    free(name);
    free(new_name);
    return st;
}

/* One pass over the lengths for each array of the index. */
static tm_status write_index(tm_tokenize_output *out, tm_error *err)
{
    tm_output idx;
    char     *name = name_of(out, ".idx");
    tm_status st = tm_output_open(name, &idx, err);
    free(name);
    if (st != TM_OK) return st;
    tm_output_bytes(&idx, "MMIDIDX\0", 9);
    tm_output_number(&idx, 1, 8);
    tm_output_number(&idx, out->wide ? 4 : 8, 1);
    tm_output_number(&idx, (uint64_t)out->state.documents, 8);
    tm_output_number(&idx, (uint64_t)out->state.documents + 1, 8);
    for (int array = 0; array < 2; array++) {
        uint64_t offset = 0;
        uint8_t  four[4];
        rewind(out->lengths);
        for (int64_t i = 0; i < out->state.documents; i++) {
            if (fread(four, 1, 4, out->lengths) != 4 && !idx.cause) idx.cause = EIO;
            uint32_t length =
                (uint32_t)four[0] | (uint32_t)four[1] << 8 | (uint32_t)four[2] << 16 | (uint32_t)four[3] << 24;
            tm_output_number(&idx, array ? offset : length, array ? 8 : 4);
            offset += (uint64_t)length * (out->wide ? 4 : 2);
        }
    }
    for (int64_t i = 0; i <= out->state.documents; i++) tm_output_number(&idx, (uint64_t)i, 8);
    return tm_output_close(&idx, err);
}

/* The tokens get their name first: an index says that they are complete. */
tm_status tm_tokenize_output_finish(tm_tokenize_output *out, tm_error *err)
{
    char *part = name_of(out, ".bin.part"), *bin = name_of(out, ".bin");
    remove_part(out, ".idx");
    tm_status st = flush(out, err);
    if (st == TM_OK && tm_again_rename(AT_FDCWD, part, bin) != 0)
        st = tm_fail(err, TM_IO, "cannot rename '%s': %s", part, strerror(errno));
    if (st == TM_OK) st = write_index(out, err);
    if (st == TM_OK) {
        remove_part(out, ".lengths.part");
        remove_part(out, ".tokenize");
        remove_part(out, ".tokenize.new");
    }
    free(part);
    free(bin);
    return st;
}

void tm_tokenize_output_close(tm_tokenize_output *out)
{
    if (out->bin) fclose(out->bin);
    if (out->lengths) fclose(out->lengths);
    free(out->prefix);
    *out = (tm_tokenize_output){ 0 };
}
