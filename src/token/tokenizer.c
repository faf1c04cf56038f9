/* SPDX-License-Identifier: Apache-2.0 */
/* token/tokenizer.c - opening a tokenizer file of any format, and what is asked about one. */
#include "base/file.h"
#include "base/json_input.h"
#include "token/gguf.h"
#include "token/internal.h"
#include "token/read_folder.h"
#include "token/specials.h"
#include "token/train.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* --- what readers share ------------------------------------------------------------------------------------------- */

tm_status tm_reading_token(tm_reading *r, int64_t id, const char *text, size_t length, const char *plain,
                           size_t plain_length)
{
    tm_tokenizer *t = r->tokenizer;
    if (id < 0 || id >= TM_MAX_IDS)
        return tm_fail(r->err, TM_FORMAT, "'%s': token '%.100s' has id %lld, wanted 0 to %d", r->name, text,
                       (long long)id, TM_MAX_IDS - 1);
    if (length > 1 << 20)
        return tm_fail(r->err, TM_FORMAT, "'%s': token %lld has %zu bytes", r->name, (long long)id, length);
    if ((size_t)id >= t->ids_room) {
        size_t room = t->ids_room;
        t->tokens = tm_grow(t->tokens, &t->ids_room, (size_t)id, sizeof *t->tokens);
        memset(t->tokens + room, 0, (t->ids_room - room) * sizeof *t->tokens);
    }
    if (id >= t->n_ids) t->n_ids = (int32_t)id + 1;
    tm_token *token = &t->tokens[id];
    if (token->text)
        return tm_fail(r->err, TM_FORMAT, "'%s': tokens '%.100s' and '%.100s' both have id %lld", r->name, token->text,
                       text, (long long)id);
    token->text = token->plain = tm_arena_text_n(t->arena, text, length);
    token->length = token->plain_length = (uint32_t)length;
    if (plain != text || plain_length != length) {
        token->plain = tm_arena_text_n(t->arena, plain, plain_length);
        token->plain_length = (uint32_t)plain_length;
    }
    tm_strings_put(&t->texts, token->text, length, (int32_t)id);
    return TM_OK;
}

tm_status tm_reading_pattern(tm_reading *r, const char *pattern, size_t length)
{
    tm_tokenizer      *t = r->tokenizer;
    const tm_splitter *known = tm_splitter_of_name(pattern);
    if (!known) known = tm_splitter_of_pattern(pattern, length);
    tm_word_step *step = &t->words[t->n_words++];
    *step = (tm_word_step){ .kind = TM_WORD_SPLIT, .splitter = known };
    return known ? TM_OK : tm_regex_compile(pattern, length, TM_REGEX_RUST, r->name, &step->regex, r->err);
}

char *tm_base64(tm_arena *arena, const char *text, size_t n, size_t *length)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    while (n > 0 && text[n - 1] == '=') n--;
    if (n % 4 == 1) return NULL;
    char    *out = tm_arena_take(arena, n / 4 * 3 + 4);
    uint32_t bits = 0;
    *length = 0;
    for (size_t i = 0; i < n; i++) {
        const char *digit = text[i] ? strchr(digits, text[i]) : NULL;
        if (!digit) return NULL;
        bits = bits << 6 | (uint32_t)(digit - digits);
        if (i % 4 > 0) out[(*length)++] = (char)(bits >> (6 - i % 4 * 2));
    }
    out[*length] = '\0';
    return out;
}

void tm_add_base64(const uint8_t *bytes, size_t n, tm_text *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        uint32_t bits = (uint32_t)bytes[i] << 16;
        if (i + 1 < n) bits |= (uint32_t)bytes[i + 1] << 8;
        if (i + 2 < n) bits |= bytes[i + 2];
        char four[4] = { digits[bits >> 18], digits[bits >> 12 & 63], digits[bits >> 6 & 63], digits[bits & 63] };
        if (i + 1 >= n) four[2] = '=';
        if (i + 2 >= n) four[3] = '=';
        tm_text_add_n(out, four, 4);
    }
}

int tm_byte_token(const char *text, size_t length)
{
    static const char hex[] = "0123456789ABCDEF";
    if (length != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return -1;
    const char *high = text[3] ? strchr(hex, text[3]) : NULL, *low = text[4] ? strchr(hex, text[4]) : NULL;
    return high && low ? (int)((high - hex) * 16 + (low - hex)) : -1;
}

/* --- the model ---------------------------------------------------------------------------------------------------- */

void tm_model_find_meta(tm_model *model)
{
    const size_t mark = strlen(TM_META);
    model->cut_at_meta = !model->byte_level;
    for (size_t p = 0; p < model->strings.size && model->cut_at_meta; p++) {
        const tm_string *s = &model->strings.places[p];
        bool             other = false; /* something else than a mark was seen */
        for (size_t i = 0; s->bytes && i < s->length && model->cut_at_meta;) {
            bool is_mark = s->length - i >= mark && memcmp(s->bytes + i, TM_META, mark) == 0;
            if (is_mark && other) model->cut_at_meta = false;
            other = other || !is_mark;
            i += is_mark ? mark : 1;
        }
    }
}

void tm_model_pairs_by_rank(tm_model *model, const tm_token *tokens, int32_t n_ids, const uint32_t *ranks)
{
    for (int32_t id = 0; id < n_ids; id++) {
        const tm_token *t = &tokens[id];
        if (t->plain_length < 2) continue; /* special ones are not among the strings */
        if (tm_strings_get(&model->strings, t->plain, t->plain_length) != id) continue;
        for (uint32_t i = 1; i < t->plain_length; i++) {
            int32_t left = tm_strings_get(&model->strings, t->plain, i), right;
            if (left < 0) continue;
            right = tm_strings_get(&model->strings, t->plain + i, t->plain_length - i);
            if (right >= 0) tm_pairs_put(&model->pairs, left, right, ranks ? ranks[id] : (uint32_t)id, id);
        }
    }
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

static int32_t find_any(const tm_tokenizer *t, const char *const *names)
{
    for (; *names; names++) {
        int32_t id = tm_tokenizer_find(t, *names, strlen(*names));
        if (id >= 0) return id;
    }
    return -1;
}

/* What special tokens are called where no file says which they are. */
static void guess_specials(tm_tokenizer *t)
{
    static const char *const bos[] = { "<s>",
                                       "<|begin_of_text|>",
                                       "<|begin▁of▁sentence|>",
                                       "<｜begin▁of▁sentence｜>",
                                       "<|startoftext|>",
                                       "<bos>",
                                       "<|endoftext|>",
                                       NULL };
    static const char *const eos[] = {
        "</s>", "<|end_of_text|>", "<｜end▁of▁sentence｜>", "<|endoftext|>", "<|return|>", "<eos>", NULL
    };
    static const char *const unk[] = { "<unk>", NULL }, *const pad[] = { "<pad>", "<|finetune_right_pad_id|>", NULL };
    tm_tokenizer_facts *f = &t->facts;
    f->bos = t->n_before > 0 ? t->before[0] : find_any(t, bos);
    f->eos = t->n_after > 0 ? t->after[t->n_after - 1] : find_any(t, eos);
    f->eos_from = t->n_after > 0 ? "post_processor" : f->eos >= 0 ? "name" : NULL;
    f->unk = t->model.unk >= 0 ? t->model.unk : find_any(t, unk);
    if (f->pad < 0) f->pad = find_any(t, pad);
}

static tm_status finish(tm_reading *r)
{
    tm_tokenizer *t = r->tokenizer;
    tm_added_finish(&t->raw);
    tm_added_finish(&t->normalized);
    tm_added_finish(&t->model.user);
    t->classes = tm_alloc(sizeof *t->classes);
    tm_classes_init(t->classes);
    if (t->n_words == 1 && t->words[0].kind == TM_WORD_SPLIT) t->splitter = t->words[0].splitter;
    tm_tokenizer_facts *f = &t->facts;
    f->pattern = t->splitter ? t->splitter->name : NULL;
    f->vocab = t->n_ids;
    f->merges = (int64_t)t->model.pairs.count;
    f->added = (int64_t)(t->raw.count + t->normalized.count);
    guess_specials(t);
    if (t->n_ids > 0) return TM_OK;
    return tm_fail(r->err, TM_FORMAT, "'%s': a tokenizer without tokens", r->name);
}

/* A token that the folder names: *id, if the tokenizer has it. Returns its text, or NULL. */
static const char *take_special(tm_tokenizer *t, const json_t *names, const char *name, int32_t *id)
{
    const json_t *text = json_object_get(names, name);
    if (!text) return NULL;
    int32_t found = tm_tokenizer_find(t, json_string_value(text), json_string_length(text));
    if (found >= 0) *id = found;
    return found >= 0 ? NULL : json_string_value(text);
}

/* What the folder says of special tokens rules over what they are called. */
static tm_status take_specials(tm_tokenizer *t, const char *folder, tm_error *err)
{
    tm_tokenizer_facts *f = &t->facts;
    json_t             *names;
    const char         *from, *missing;
    int64_t             ends[TM_MAX_ENDS];
    tm_status           st = tm_specials_read(folder, &names, &from, err);
    (void)take_special(t, names, "bos_token", &f->bos);
    (void)take_special(t, names, "unk_token", &f->unk);
    if (take_special(t, names, "pad_token", &f->pad)) f->pad = -1;
    missing = take_special(t, names, "eos_token", &f->eos);
    if (missing) {
        f->eos = -1;
        f->eos_missing = tm_arena_text(t->arena, missing);
    }
    if (!from && tm_specials_ends(folder, ends, &from) > 0 && ends[0] >= 0 && ends[0] < t->n_ids &&
        t->tokens[ends[0]].text)
        f->eos = (int32_t)ends[0];
    if (from) f->eos_from = from;
    f->left_sided = tm_specials_left_side(folder);
    json_decref(names);
    return st;
}

static tm_status read_json(tm_reading *r, const char *bytes, size_t size)
{
    json_error_t error;
    json_t      *root = tm_json_input(bytes, size, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &error);
    if (!root) return tm_fail(r->err, TM_FORMAT, "'%s', line %d: %s", r->name, error.line, error.text);
    tm_status st;
    if (json_is_object(json_object_get(root, "model")))
        st = tm_read_tokenizer_json(r, root);
    else if (json_is_array(json_object_get(root, "vocab")) && json_is_object(json_object_get(root, "config")))
        st = tm_read_tekken(r, root);
    else
        st = tm_fail(r->err, TM_FORMAT,
                     "'%s' is JSON, but neither a tokenizer.json (no \"model\") nor a tekken file (no \"vocab\" "
                     "and \"config\"); name another file",
                     r->name);
    json_decref(root);
    return st;
}

static tm_status read_any(tm_reading *r, const char *bytes, size_t size, const char *pattern)
{
    size_t at = 0;
    while (at < size && (bytes[at] == ' ' || bytes[at] == '\n' || bytes[at] == '\r' || bytes[at] == '\t')) at++;
    if (size == 0) return tm_fail(r->err, TM_FORMAT, "'%s' is empty; name a tokenizer file", r->name);
    if (at < size && bytes[at] == '{') return read_json(r, bytes, size);
    if (tm_looks_like_tiktoken(bytes, size)) return tm_read_tiktoken(r, bytes, size, pattern);
    return tm_read_sentencepiece(r, (const uint8_t *)bytes, size);
}

static void begin(tm_reading *r, const char *name, tm_error *err)
{
    tm_tokenizer *t = tm_alloc(sizeof *t);
    *r = (tm_reading){ .name = name, .tokenizer = t, .err = err };
    t->arena = tm_arena_create();
    t->model.unk = t->facts.pad = -1;
    tm_pairs_init(&t->model.pairs);
    for (int i = 0; i < 256; i++) t->model.byte[i] = t->model.last_byte[i] = -1;
}

/* What was read with `st` becomes *out, or is closed. */
static tm_status end(tm_reading *r, tm_status st, tm_tokenizer **out)
{
    if (st == TM_OK) st = finish(r);
    if (st == TM_OK)
        *out = r->tokenizer;
    else
        tm_tokenizer_close(r->tokenizer);
    return st;
}

tm_status tm_tokenizer_parse(const char *name, const void *bytes, size_t size, const char *pattern, tm_tokenizer **out,
                             tm_error *err)
{
    tm_reading r;
    tm_status  st = TM_OK;
    begin(&r, name, err);
    if (pattern && !tm_splitter_of_name(pattern))
        st = tm_fail(err, TM_INVALID, "no pattern is named '%.100s'; `trainmark tokenizer --help` lists them", pattern);
    if (st == TM_OK) st = read_any(&r, bytes, size, pattern);
    return end(&r, st, out);
}

static bool file_in(const char *folder, const char *name, tm_text *path)
{
    if (path->data) path->length = 0;
    tm_text_printf(path, "%s/%s", folder, name);
    return tm_file_exists(path->data);
}

static tm_status open_bytes(tm_tokenizer **out, tm_error *err)
{
    tm_text json = { 0 };
    tm_bytes_tokenizer(&json);
    tm_status st = tm_tokenizer_parse("byte", json.data, json.length, NULL, out, err);
    tm_text_fini(&json);
    return st;
}

/* A folder without a tokenizer file of one piece. */
static tm_status open_parts(const char *folder, tm_tokenizer **out, tm_error *err)
{
    tm_reading r;
    if (!tm_folder_has_parts(folder))
        return tm_fail(err, TM_INVALID,
                       "no tokenizer in '%s': looked for tokenizer.json, tokenizer.model, tekken.json, vocab.json with "
                       "merges.txt, spiece.model; give the file itself",
                       folder);
    begin(&r, folder, err);
    return end(&r, tm_read_folder(&r), out);
}

static tm_status open_file(const char *path, const char *pattern, tm_tokenizer **out, tm_error *err)
{
    tm_text   bytes = { 0 };
    tm_status st = tm_file_read(path, TM_TOKENIZER_MAX_BYTES, &bytes, err);
    if (st == TM_OK) st = tm_tokenizer_parse(path, bytes.data, bytes.length, pattern, out, err);
    tm_text_fini(&bytes);
    return st;
}

tm_status tm_tokenizer_open(const char *path, const char *pattern, tm_tokenizer **out, tm_error *err)
{
    tm_text     file = { 0 };
    struct stat info;
    if (tm_is_gguf(path)) return tm_gguf_tokenizer_open(path, out, err);
    bool there = stat(path, &info) == 0, folder = there && S_ISDIR(info.st_mode);
    if (!there && strcmp(path, "byte") == 0) return open_bytes(out, err);
    if (!folder) return open_file(path, pattern, out, err);
    bool whole = file_in(path, "tokenizer.json", &file) || file_in(path, "tokenizer.model", &file) ||
                 file_in(path, "tekken.json", &file);
    tm_status st = whole ? open_file(file.data, pattern, out, err) : open_parts(path, out, err);
    if (st == TM_OK && (st = take_specials(*out, path, err)) != TM_OK) tm_tokenizer_close(*out);
    tm_text_fini(&file);
    return st;
}

void tm_tokenizer_close(tm_tokenizer *tokenizer)
{
    if (!tokenizer) return;
    for (int i = 0; i < tokenizer->n_normal; i++) tm_regex_free(tokenizer->normal[i].regex);
    for (int i = 0; i < tokenizer->n_words; i++) tm_regex_free(tokenizer->words[i].regex);
    tm_strings_fini(&tokenizer->texts);
    tm_strings_fini(&tokenizer->model.strings);
    tm_pairs_fini(&tokenizer->model.pairs);
    tm_pairs_fini(&tokenizer->model.trie);
    free(tokenizer->model.scores);
    free(tokenizer->model.user.tokens);
    free(tokenizer->raw.tokens);
    free(tokenizer->normalized.tokens);
    free(tokenizer->tokens);
    free(tokenizer->classes);
    tm_arena_destroy(tokenizer->arena);
    free(tokenizer);
}

/* --- questions ---------------------------------------------------------------------------------------------------- */

const tm_tokenizer_facts *tm_tokenizer_describe(const tm_tokenizer *tokenizer)
{
    return &tokenizer->facts;
}

int32_t tm_tokenizer_find(const tm_tokenizer *tokenizer, const char *text, size_t bytes)
{
    return tm_strings_get(&tokenizer->texts, text, bytes);
}

const char *tm_tokenizer_text(const tm_tokenizer *tokenizer, int32_t id, size_t *bytes)
{
    if (id < 0 || id >= tokenizer->n_ids || !tokenizer->tokens[id].text) return NULL;
    *bytes = tokenizer->tokens[id].length;
    return tokenizer->tokens[id].text;
}

bool tm_tokenizer_is_special(const tm_tokenizer *tokenizer, int32_t id)
{
    return id >= 0 && id < tokenizer->n_ids && tokenizer->tokens[id].special;
}

const char *tm_tokenizer_pattern(int i)
{
    for (int k = 0;; k++) { /* rows of one name are next to each other */
        const tm_splitter *s = tm_splitter_at(k), *next = s ? tm_splitter_at(k + 1) : NULL;
        if (!s) return NULL;
        if (next && strcmp(next->name, s->name) == 0) continue;
        if (i-- == 0) return s->name;
    }
}
