/* SPDX-License-Identifier: Apache-2.0 */
/* token/train.c - counts words, then joins pairs. A pair knows the words that it is or was in; the most frequent one is
 * found by a heap whose entries may be too high and are put right when they come to the top. */
#include "token/train.h"

#include "base/json.h"
#include "token/internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    int32_t *ids; /* in the arena */
    int32_t  n;
    int64_t  count;
} word;

typedef struct {
    int32_t  left, right;
    int64_t  count;
    int32_t *words; /* one may be there several times */
    size_t   n, capacity;
    bool     listed;  /* once: by the join that made the later one of its tokens */
    bool     learned; /* has its row in merges */
} pair;

typedef struct {
    int64_t count;
    int32_t pair;
} candidate;

struct tm_bpe_trainer {
    tm_tokenizer     *bytes;
    tm_token_encoder *encoder; /* its scratch memory */
    const char       *pattern;
    tm_arena         *arena;
    tm_strings        found; /* word to its number */
    word             *words;
    size_t            n_words, words_room;
    tm_bpe_result     result;
    /* while pairs are joined */
    tm_pairs   index; /* (left, right) to the number of the pair */
    pair      *pairs;
    size_t     n_pairs, pairs_room;
    candidate *heap;
    size_t     heaped, heap_room;
    int32_t   *made; /* pairs that a join made */
    size_t     n_made, made_room;
    int32_t (*merges)[2];
    size_t     n_merges, merges_room;
    tm_text   *tokens; /* by id: their bytes */
    size_t     n_tokens, tokens_room;
    tm_strings ids; /* of them; their bytes are in the arena */
};

/* --- words -------------------------------------------------------------------------------------------------------- */

void tm_add_letter(uint8_t byte, tm_text *out)
{
    uint32_t c = byte, next = 256;
    if (!((byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174))
        for (uint32_t b = 0; b <= byte; b++)
            if (!((b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174)) c = next++;
    char   letter[2] = { (char)c, 0 };
    size_t n = 1;
    if (c >= 0x80) {
        letter[0] = (char)(0xC0 | c >> 6);
        letter[1] = (char)(0x80 | (c & 0x3F));
        n = 2;
    }
    tm_text_add_n(out, letter, n);
}

static void write_rules(const char *pattern, tm_json *j)
{
    tm_json_open(j, "pre_tokenizer", '{');
    tm_json_string(j, "type", "Sequence");
    tm_json_open(j, "pretokenizers", '[');
    tm_json_open(j, NULL, '{');
    tm_json_string(j, "type", "Split");
    tm_json_open(j, "pattern", '{');
    tm_json_string(j, "Regex", pattern);
    tm_json_close(j, '}');
    tm_json_string(j, "behavior", "Isolated");
    tm_json_bool(j, "invert", false);
    tm_json_close(j, '}');
    tm_json_open(j, NULL, '{');
    tm_json_string(j, "type", "ByteLevel");
    tm_json_bool(j, "add_prefix_space", false);
    tm_json_bool(j, "trim_offsets", true);
    tm_json_bool(j, "use_regex", false);
    tm_json_close(j, '}');
    tm_json_close(j, ']');
    tm_json_close(j, '}');
    tm_json_string(j, "post_processor", NULL);
    tm_json_open(j, "decoder", '{');
    tm_json_string(j, "type", "ByteLevel");
    tm_json_bool(j, "add_prefix_space", true);
    tm_json_bool(j, "trim_offsets", true);
    tm_json_bool(j, "use_regex", true);
    tm_json_close(j, '}');
}

static void write_special(const tm_bpe_goal *goal, int64_t first, tm_json *j)
{
    static const char *const no[] = { "single_word", "lstrip", "rstrip", "normalized" };
    tm_json_open(j, "added_tokens", '[');
    for (int i = 0; i < goal->n_special; i++) {
        tm_json_open(j, NULL, '{');
        tm_json_i64(j, "id", first + i);
        tm_json_string(j, "content", goal->special[i]);
        for (int k = 0; k < 4; k++) tm_json_bool(j, no[k], false);
        tm_json_bool(j, "special", true);
        tm_json_close(j, '}');
    }
    tm_json_close(j, ']');
}

/* texts[id]: what tokenizer.json calls the token. */
static void write_model(const tm_bpe_trainer *t, const tm_text *texts, const tm_bpe_goal *goal, tm_json *j)
{
    int64_t                  n = (int64_t)t->n_tokens;
    static const char *const none[] = { "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix" };
    tm_json_open(j, "model", '{');
    tm_json_string(j, "type", "BPE");
    for (int i = 0; i < 4; i++) tm_json_string(j, none[i], NULL);
    tm_json_bool(j, "fuse_unk", false);
    tm_json_bool(j, "byte_fallback", false);
    tm_json_bool(j, "ignore_merges", false);
    tm_json_open(j, "vocab", '{');
    for (int64_t i = 0; i < n; i++) tm_json_i64(j, texts[i].data, i);
    for (int i = 0; i < goal->n_special; i++) tm_json_i64(j, goal->special[i], n + i);
    tm_json_close(j, '}');
    tm_json_open(j, "merges", '[');
    for (size_t i = 0; i < t->n_merges; i++) {
        tm_json_open(j, NULL, '[');
        tm_json_string(j, NULL, texts[t->merges[i][0]].data);
        tm_json_string(j, NULL, texts[t->merges[i][1]].data);
        tm_json_close(j, ']');
    }
    tm_json_close(j, ']');
    tm_json_close(j, '}');
}

static void write_file(const tm_bpe_trainer *t, const tm_bpe_goal *goal, tm_text *out)
{
    size_t   n = t->n_tokens;
    tm_text *texts = tm_alloc(n * sizeof *texts);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < t->tokens[i].length; k++) tm_add_letter((uint8_t)t->tokens[i].data[k], &texts[i]);
    tm_json j = { .out = out, .indent = true };
    tm_json_open(&j, NULL, '{');
    tm_json_string(&j, "version", "1.0");
    tm_json_string(&j, "truncation", NULL);
    tm_json_string(&j, "padding", NULL);
    write_special(goal, (int64_t)n, &j);
    tm_json_string(&j, "normalizer", NULL);
    write_rules(t->pattern, &j);
    write_model(t, texts, goal, &j);
    tm_json_close(&j, '}');
    tm_text_add(out, "\n");
    for (size_t i = 0; i < n; i++) tm_text_fini(&texts[i]);
    free(texts);
}

/* The id of a token of these bytes, which is made if there is none. */
static int32_t token_of(tm_bpe_trainer *t, const char *bytes, size_t n)
{
    int32_t id = tm_strings_get(&t->ids, bytes, n);
    if (id >= 0) return id;
    t->tokens = tm_grow(t->tokens, &t->tokens_room, t->n_tokens, sizeof *t->tokens);
    t->tokens[t->n_tokens] = (tm_text){ 0 };
    tm_text_add_n(&t->tokens[t->n_tokens], bytes, n);
    tm_strings_put(&t->ids, tm_arena_text_n(t->arena, bytes, n), n, (int32_t)t->n_tokens);
    return (int32_t)t->n_tokens++;
}

void tm_bytes_tokenizer(tm_text *out)
{
    static const char *const end[] = { TM_BYTES_END };
    tm_error                 err = { 0 };
    tm_bpe_trainer          *trainer = NULL;
    tm_status                st = tm_bpe_trainer_create("gpt2", &trainer, &err);
    TM_ASSERT(st == TM_OK);
    write_file(trainer, &(tm_bpe_goal){ .special = end, .n_special = 1 }, out);
    tm_bpe_trainer_destroy(trainer);
}

tm_status tm_bpe_trainer_create(const char *pattern, tm_bpe_trainer **out, tm_error *err)
{
    const tm_splitter *splitter = tm_splitter_of_name(pattern);
    tm_text            file = { 0 };
    tm_bpe_goal        nothing = { 0 };
    if (!splitter)
        return tm_fail(err, TM_INVALID, "no pattern is named '%.100s'; `trainmark tokenizer --help` lists them",
                       pattern);
    if (strstr(splitter->pattern, "++"))
        return tm_fail(err, TM_UNSUPPORTED,
                       "the pattern %s means another thing in a tokenizer.json than in a tiktoken file; take llama3, "
                       "which is nearly the same",
                       splitter->name);
    tm_bpe_trainer *t = tm_alloc(sizeof *t);
    t->pattern = splitter->pattern;
    t->arena = tm_arena_create();
    tm_pairs_init(&t->index);
    for (int i = 0; i < 256; i++) token_of(t, &(char){ (char)i }, 1);
    write_file(t, &nothing, &file);
    tm_status st = tm_tokenizer_parse("bytes", file.data, file.length, NULL, &t->bytes, err);
    tm_text_fini(&file);
    if (st != TM_OK) {
        tm_bpe_trainer_destroy(t);
        return st;
    }
    TM_ASSERT(t->bytes->splitter);
    t->encoder = tm_token_encoder_create(t->bytes);
    *out = t;
    return TM_OK;
}

void tm_bpe_trainer_destroy(tm_bpe_trainer *t)
{
    if (!t) return;
    tm_token_encoder_destroy(t->encoder);
    tm_tokenizer_close(t->bytes);
    for (size_t i = 0; i < t->n_tokens; i++) tm_text_fini(&t->tokens[i]);
    free(t->tokens);
    tm_strings_fini(&t->ids);
    tm_strings_fini(&t->found);
    tm_pairs_fini(&t->index);
    for (size_t i = 0; i < t->n_pairs; i++) free(t->pairs[i].words);
    free(t->pairs);
    free(t->words);
    free(t->heap);
    free(t->made);
    free(t->merges);
    tm_arena_destroy(t->arena);
    free(t);
}

const tm_tokenizer *tm_bpe_trainer_tokenizer(const tm_bpe_trainer *trainer)
{
    return trainer->bytes;
}

static void count_word(tm_bpe_trainer *t, const char *text, size_t n)
{
    t->result.words++;
    if (n > TM_BPE_LONGEST) return;
    int32_t number = tm_strings_get(&t->found, text, n);
    if (number >= 0) {
        t->words[number].count++;
        return;
    }
    word w = { .ids = tm_arena_take(t->arena, n * sizeof(int32_t)), .n = (int32_t)n, .count = 1 };
    for (size_t i = 0; i < n; i++) w.ids[i] = (uint8_t)text[i];
    tm_strings_put(&t->found, tm_arena_text_n(t->arena, text, n), n, (int32_t)t->n_words);
    t->words = tm_grow(t->words, &t->words_room, t->n_words, sizeof *t->words);
    t->words[t->n_words++] = w;
}

void tm_bpe_trainer_add(tm_bpe_trainer *t, const char *text, size_t bytes)
{
    t->result.bytes += (int64_t)bytes;
    text = tm_as_utf8(t->encoder, text, &bytes);
    for (size_t at = 0, to; at < bytes; at = to) {
        to = tm_split_next(t->bytes->splitter, t->bytes->classes, (const uint8_t *)text, at, bytes);
        count_word(t, text + at, to - at);
    }
}

/* --- the most frequent pair --------------------------------------------------------------------------------------- */

static bool before(const tm_bpe_trainer *t, candidate a, candidate b)
{
    const pair *x = &t->pairs[a.pair], *y = &t->pairs[b.pair];
    if (a.count != b.count) return a.count > b.count;
    return x->left != y->left ? x->left < y->left : x->right < y->right;
}

static void push(tm_bpe_trainer *t, int32_t number)
{
    candidate c = { t->pairs[number].count, number };
    t->heap = tm_grow(t->heap, &t->heap_room, t->heaped, sizeof *t->heap);
    size_t i = t->heaped++;
    for (; i > 0 && before(t, c, t->heap[(i - 1) / 2]); i = (i - 1) / 2) t->heap[i] = t->heap[(i - 1) / 2];
    t->heap[i] = c;
}

static candidate pop(tm_bpe_trainer *t)
{
    candidate top = t->heap[0], last = t->heap[--t->heaped];
    size_t    i = 0;
    for (size_t child; (child = 2 * i + 1) < t->heaped; i = child) {
        if (child + 1 < t->heaped && before(t, t->heap[child + 1], t->heap[child])) child++;
        if (!before(t, t->heap[child], last)) break;
        t->heap[i] = t->heap[child];
    }
    t->heap[i] = last;
    return top;
}

/* The number of the pair that occurs most often, -1: none does `least` times. */
static int32_t most_frequent(tm_bpe_trainer *t, int64_t least)
{
    while (t->heaped > 0) {
        candidate top = pop(t);
        if (top.count == t->pairs[top.pair].count) return top.count >= least ? top.pair : -1;
        if (t->pairs[top.pair].count >= least) push(t, top.pair);
    }
    return -1;
}

/* --- joining ------------------------------------------------------------------------------------------------------ */

static pair *pair_of(tm_bpe_trainer *t, int32_t left, int32_t right)
{
    const tm_pair *there = tm_pairs_get(&t->index, left, right);
    if (there) return &t->pairs[there->id];
    tm_pairs_put(&t->index, left, right, 0, (int32_t)t->n_pairs);
    t->pairs = tm_grow(t->pairs, &t->pairs_room, t->n_pairs, sizeof *t->pairs);
    t->pairs[t->n_pairs] = (pair){ .left = left, .right = right };
    return &t->pairs[t->n_pairs++];
}

/* Adds (+1) or takes away (-1) the pairs of a word; those with the token `made` are listed. */
static void account(tm_bpe_trainer *t, int32_t number, int sign, int32_t made)
{
    const word *w = &t->words[number];
    for (int32_t i = 0; i + 1 < w->n; i++) {
        pair *p = pair_of(t, w->ids[i], w->ids[i + 1]);
        p->count += sign * w->count;
        bool fresh = sign > 0 && (made < 0 || p->left == made || p->right == made);
        if (!fresh) continue;
        if (p->n == 0 || p->words[p->n - 1] != number) {
            p->words = tm_grow(p->words, &p->capacity, p->n, sizeof *p->words);
            p->words[p->n++] = number;
        }
        if (p->listed) continue;
        p->listed = true;
        t->made = tm_grow(t->made, &t->made_room, t->n_made, sizeof *t->made);
        t->made[t->n_made++] = (int32_t)(p - t->pairs);
    }
}

/* Puts what was listed into the heap. */
static void offer(tm_bpe_trainer *t)
{
    for (size_t i = 0; i < t->n_made; i++) push(t, t->made[i]);
    t->n_made = 0;
}

static bool has(const word *w, int32_t left, int32_t right)
{
    for (int32_t i = 0; i + 1 < w->n; i++)
        if (w->ids[i] == left && w->ids[i + 1] == right) return true;
    return false;
}

static void join(tm_bpe_trainer *t, int32_t number, int32_t id)
{
    int32_t  left = t->pairs[number].left, right = t->pairs[number].right;
    int32_t *words = t->pairs[number].words;
    size_t   n = t->pairs[number].n;
    t->pairs[number].words = NULL; /* it ends here */
    t->pairs[number].n = t->pairs[number].capacity = 0;
    for (size_t k = 0; k < n; k++) {
        word *w = &t->words[words[k]];
        if (!has(w, left, right)) continue;
        account(t, words[k], -1, -1);
        int32_t to = 0;
        for (int32_t i = 0; i < w->n; to++) {
            bool both = i + 1 < w->n && w->ids[i] == left && w->ids[i + 1] == right;
            w->ids[to] = both ? id : w->ids[i];
            i += both ? 2 : 1;
        }
        w->n = to;
        account(t, words[k], 1, id);
    }
    free(words);
    offer(t);
}

/* Joins a pair, whose text may be a token already; no token is called like a special one. */
static void learn(tm_bpe_trainer *t, int32_t number, const tm_bpe_goal *goal)
{
    int32_t left = t->pairs[number].left, right = t->pairs[number].right;
    tm_text text = { 0 };
    bool    taken = false;
    tm_text_add_n(&text, t->tokens[left].data, t->tokens[left].length);
    tm_text_add_n(&text, t->tokens[right].data, t->tokens[right].length);
    for (int i = 0; i < goal->n_special; i++)
        taken |= strlen(goal->special[i]) == text.length && memcmp(goal->special[i], text.data, text.length) == 0;
    if (!taken && !t->pairs[number].learned) {
        t->pairs[number].learned = true;
        t->merges = tm_grow(t->merges, &t->merges_room, t->n_merges, sizeof *t->merges);
        t->merges[t->n_merges][0] = left;
        t->merges[t->n_merges++][1] = right;
    }
    if (!taken) join(t, number, token_of(t, text.data, text.length));
    tm_text_fini(&text);
}

tm_status tm_bpe_trainer_finish(tm_bpe_trainer *t, const tm_bpe_goal *goal, tm_text *out, tm_bpe_result *result,
                                tm_error *err)
{
    int64_t wanted = goal->vocab - goal->n_special;
    TM_ASSERT(t->n_merges == 0 && goal->least >= 1);
    if (wanted < 256 || goal->vocab > TM_MAX_IDS)
        return tm_fail(err, TM_INVALID,
                       "a vocabulary of %lld has no room for 256 bytes and %d special tokens, or too much; "
                       "wanted %d to %d",
                       (long long)goal->vocab, goal->n_special, 256 + goal->n_special, TM_MAX_IDS);
    if (t->n_words == 0) return tm_fail(err, TM_INVALID, "there is no text to learn a vocabulary from");
    for (size_t i = 0; i < t->n_words; i++) account(t, (int32_t)i, 1, -1);
    offer(t);
    while ((int64_t)t->n_tokens < wanted) {
        int32_t best = most_frequent(t, goal->least);
        if (best < 0) break;
        learn(t, best, goal);
    }
    write_file(t, goal, out);
    t->result.different = (int64_t)t->n_words;
    t->result.vocab = (int64_t)t->n_tokens + goal->n_special;
    *result = t->result;
    return TM_OK;
}
