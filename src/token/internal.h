/* SPDX-License-Identifier: Apache-2.0 */
/* token/internal.h - a tokenizer as its readers leave it and as encoding and decoding use it; private to this room.
 *
 * Encoding: added tokens cut the text; what is between them is normalized, cut again by those added tokens that are
 * looked for after that, cut into words, and each word becomes ids by the model.
 */
#ifndef TM_TOKEN_INTERNAL_H
#define TM_TOKEN_INTERNAL_H

#include "base/arena.h"
#include "token/regex.h"
#include "token/split.h"
#include "token/strings.h"
#include "token/token.h"

#include <jansson.h>

#define TM_META "\xE2\x96\x81" /* U+2581, SentencePiece's blank */

enum { TM_MAX_IDS = 1 << 24, TM_MAX_STEPS = 16, TM_MAX_AROUND = 16, TM_TOKENIZER_MAX_BYTES = 256 << 20 };

/* --- tokens ------------------------------------------------------------------------------------------------------- */

typedef struct {
    const char *text;  /* as the file writes it, NUL-terminated; NULL: no such token */
    const char *plain; /* what it stands for; the same, where nothing is written differently */
    uint32_t    length, plain_length;
    bool        special, added, is_byte; /* is_byte: <0x0A>, stands for one byte */
} tm_token;

typedef struct {
    const char *text; /* what is looked for */
    uint32_t    length;
    int32_t     id;
    bool        single_word, lstrip, rstrip;
} tm_added;

/* Added tokens sorted by their bytes; the longest one at the leftmost place wins. */
typedef struct {
    tm_added *tokens;
    size_t    count, capacity;
    uint32_t  first[257]; /* tokens whose first byte is b: first[b] to first[b + 1] */
    int       only_byte;  /* that all begin with; -1: several */
} tm_added_set;

void tm_added_put(tm_added_set *set, const tm_added *token);
void tm_added_finish(tm_added_set *set); /* sorts */
/* The next added token in text from `at` on: its id, -1 if there is none (*from = n). [*from, *to) is what it takes,
 * white space beside it included. */
int32_t tm_added_next(const tm_added_set *set, const char *text, size_t n, size_t at, size_t *from, size_t *to);

/* --- normalization ------------------------------------------------------------------------------------------------ */

typedef struct tm_charsmap tm_charsmap; /* token/charsmap.h */

typedef struct {
    enum {
        TM_NORMAL_NFC,
        TM_NORMAL_NFD,
        TM_NORMAL_NFKC,
        TM_NORMAL_NFKD,
        TM_NORMAL_LOWER,
        TM_NORMAL_REPLACE,       /* matches of `regex` by `text` */
        TM_NORMAL_PREPEND,       /* `text`, unless nothing follows */
        TM_NORMAL_STRIP,         /* white space at the ends: left, right */
        TM_NORMAL_CHARSMAP,      /* by grapheme clusters, as tokenizer.json means it */
        TM_NORMAL_SENTENCEPIECE, /* charsmap, blanks, dummy prefix */
    } kind;
    tm_regex    *regex;
    const char  *text, *find; /* find: of a REPLACE without `regex` */
    size_t       length, find_length;
    bool         left, right;
    tm_charsmap *charsmap;                           /* may be NULL for SENTENCEPIECE */
    bool         dummy_prefix, remove_extra, escape; /* SENTENCEPIECE */
} tm_normal;

/* --- words -------------------------------------------------------------------------------------------------------- */

typedef struct {
    enum {
        TM_WORD_SPLIT,      /* by `regex` or `splitter` */
        TM_WORD_DIGITS,     /* numbers; `each`: every digit alone */
        TM_WORD_WHITESPACE, /* white space falls out */
        TM_WORD_METASPACE,  /* blanks become U+2581, words begin with it */
        TM_WORD_PREFIX,     /* a blank in front, unless there is one */
    } kind;
    tm_regex          *regex;
    const tm_splitter *splitter;
    enum { TM_ISOLATED, TM_REMOVED, TM_PREVIOUS, TM_NEXT, TM_CONTIGUOUS } behavior;
    bool invert, each, split;
    enum { TM_NEVER, TM_FIRST, TM_ALWAYS } prepend;
    const char *text; /* METASPACE: what stands for a blank */
    size_t      length;
} tm_word_step;

/* --- model -------------------------------------------------------------------------------------------------------- */

typedef struct {
    bool         unigram, byte_level, whole_words, byte_fallback, fuse_unk;
    bool         cut_at_meta;    /* no token has U+2581 behind anything else: what it begins is a word of its own */
    bool         sentencepiece;  /* its arithmetic and its unknown pieces, where they differ from tokenizer.json */
    int32_t      unk;            /* -1: what is unknown falls out */
    tm_strings   strings;        /* bytes to id, of the model's tokens */
    tm_pairs     pairs;          /* BPE */
    int32_t      byte[256];      /* byte-level: id of a byte, -1: none; else of <0x..> */
    int32_t      last_byte[256]; /* byte-level with a suffix: of the last byte of a word */
    const char  *suffix;         /* end_of_word_suffix, NULL: none */
    const char  *prefix;         /* continuing_subword_prefix, NULL: none */
    tm_added_set user;           /* user-defined symbols of SentencePiece: found as they are, never joined */
    /* Unigram */
    double  *scores; /* by id */
    double   unk_score;
    tm_pairs trie; /* (node, byte) to node (id), and in `rank` the token that ends there, TM_NO_RANK: none */
    size_t   longest;
} tm_model;

/* Of a model that has its strings: what follows from them. */
void tm_model_finish_trie(tm_model *model);
void tm_model_find_meta(tm_model *model);
/* Byte-level models that rank tokens instead of pairs (tiktoken, tekken): every way to join two tokens to a third. */
void tm_model_pairs_by_rank(tm_model *model, const tm_token *tokens, int32_t n_ids, const uint32_t *ranks);

/* --- the tokenizer ------------------------------------------------------------------------------------------------ */

struct tm_tokenizer {
    tm_arena          *arena;
    tm_tokenizer_facts facts;
    tm_token          *tokens; /* by id */
    int32_t            n_ids;
    size_t             ids_room;
    tm_strings         texts;           /* the file's writing to id, added tokens over those of the model */
    tm_added_set       raw, normalized; /* looked for before and after normalization */
    tm_normal          normal[TM_MAX_STEPS];
    int                n_normal;
    tm_word_step       words[TM_MAX_STEPS];
    int                n_words;
    const tm_splitter *splitter; /* of the only word step, where that is all: the fast path; NULL elsewhere */
    tm_classes        *classes;
    tm_model           model;
    int32_t            before[TM_MAX_AROUND], after[TM_MAX_AROUND];
    int                n_before, n_after;
    struct {
        bool        bytes;       /* byte-level: plain texts one after another */
        bool        meta;        /* U+2581 becomes a blank */
        int         strip;       /* blanks to take off the front */
        bool        strip_token; /* one, off the first token */
        bool        strip_all;   /* ... off each token, until there is text */
        bool        drop_marks;  /* the first token's U+2581 become nothing */
        const char *suffix;      /* end_of_word_suffix becomes a blank */
        bool        between;     /* no decoder: a blank between tokens */
    } decode;
};

/* The name for messages travels beside the tokenizer while it is read. */
typedef struct {
    const char   *name;
    tm_tokenizer *tokenizer;
    tm_error     *err;
    bool          exact_scores; /* Unigram: they are as they are, not what `tokenizers` makes of their digits */
} tm_reading;

TM_MUST_USE tm_status tm_read_tokenizer_json(tm_reading *r, json_t *root);
TM_MUST_USE tm_status tm_read_json_rules(tm_reading *r,
                                         json_t     *root); /* normalizer, pre_tokenizer, post_processor, decoder */
TM_MUST_USE tm_status tm_read_tekken(tm_reading *r, json_t *root);
TM_MUST_USE tm_status tm_read_tiktoken(tm_reading *r, const char *bytes, size_t size, const char *pattern);
TM_MUST_USE tm_status tm_read_sentencepiece(tm_reading *r, const uint8_t *bytes, size_t size);
/* The parts of a Unigram model for a tokenizer.json: appends ["piece", score] to `pieces` and user-defined symbols to
 * `added`; *normalizer is its Precompiled, NULL without a charsmap; the caller releases it. TM_UNSUPPORTED: BPE. */
TM_MUST_USE tm_status tm_sentencepiece_parts(const tm_reading *r, const uint8_t *bytes, size_t size, json_t *pieces,
                                             json_t *added, json_t **normalizer);
bool                  tm_looks_like_tiktoken(const char *bytes, size_t size);

/* Makes token `id` (0 to TM_MAX_IDS - 1); text is copied. TM_FORMAT if the id is taken by another text. */
TM_MUST_USE tm_status tm_reading_token(tm_reading *r, int64_t id, const char *text, size_t length, const char *plain,
                                       size_t plain_length);
/* The only word step, known by name or text, or a regular expression of it. */
TM_MUST_USE tm_status tm_reading_pattern(tm_reading *r, const char *pattern, size_t length);
/* Decodes base64; *length bytes of the arena, NULL if it is none. */
char *tm_base64(tm_arena *arena, const char *text, size_t n, size_t *length);
/* Appends bytes as base64. */
void tm_add_base64(const uint8_t *bytes, size_t n, tm_text *out);
/* Appends GPT-2's letter for a byte, as UTF-8. */
void tm_add_letter(uint8_t byte, tm_text *out);
/* "<0x0A>": its byte, else -1. */
int tm_byte_token(const char *text, size_t length);

/* --- encoding ----------------------------------------------------------------------------------------------------- */

typedef struct {
    size_t at, length;
} tm_word;

typedef struct {
    tm_word *words;
    size_t   count, capacity;
} tm_words;

typedef struct {
    uint8_t length, n; /* bytes of the word; ids. length 0: free */
    char    word[30];
    int32_t ids[8];
} tm_cached;

enum { TM_CACHE_WORDS = 1 << 15 };

typedef struct {
    int32_t  id;           /* below -1: -2 - its first byte in the word, a character without an id */
    int32_t  before, next; /* symbols, -1: none */
    int32_t  joined;       /* with the next */
    uint32_t rank;         /* of that pair, TM_NO_RANK: none */
} tm_symbol;

struct tm_token_encoder {
    const tm_tokenizer *tokenizer;
    tm_regex_match     *match;
    tm_cached          *cache;
    tm_text             valid, text[3]; /* the text as UTF-8; normalized; what word steps make of it, in turns */
    tm_words            words[2];
    size_t              made, most; /* bytes that steps have made of the text; that they may make */
    tm_symbol          *symbols;
    size_t              symbols_room;
    uint64_t           *heap;
    size_t              heap_room;
    struct tm_best     *best; /* Unigram */
    size_t              best_room;
};

/* A file can have steps that multiply a text. Before n bytes are encoded: how many they may become, all steps together.
 */
void tm_token_encoder_begin(tm_token_encoder *e, size_t n);
/* May a step that has made `text` go on? */
static inline bool tm_fits(const tm_token_encoder *e, const tm_text *text)
{
    return text->length <= e->most - e->made;
}
/* A step is done; TM_INVALID where it made too much. */
TM_MUST_USE tm_status tm_token_encoder_made(tm_token_encoder *e, const tm_text *text, tm_error *err);

/* The text if it is UTF-8, else a copy in the encoder that is. */
const char *tm_as_utf8(tm_token_encoder *e, const char *text, size_t *n);
/* Normalizes text[0..n) into *out (cleared first); false if the text stays as it is. */
TM_MUST_USE tm_status tm_normalize(tm_token_encoder *e, const char *text, size_t n, bool continued, tm_text *out,
                                   bool *changed, tm_error *err);
/* Normalized text to ids. first: it begins the text; continued: and that goes on an earlier one. */
TM_MUST_USE tm_status tm_encode_words(tm_token_encoder *e, const char *text, size_t n, bool first, bool continued,
                                      tm_ids *out, tm_error *err);
/* One word to ids, with the cache and without. */
void tm_encode_word(tm_token_encoder *e, const char *word, size_t n, tm_ids *out);
void tm_encode_bpe(tm_token_encoder *e, const char *word, size_t n, tm_ids *out);
void tm_encode_unigram(tm_token_encoder *e, const char *word, size_t n, tm_ids *out);

static inline void tm_ids_add(tm_ids *ids, int32_t id)
{
    if (ids->count == ids->capacity) ids->data = tm_grow(ids->data, &ids->capacity, ids->count, sizeof *ids->data);
    ids->data[ids->count++] = id;
}

/* Length of the character at s (valid UTF-8). */
static inline size_t tm_char_bytes(const char *s)
{
    unsigned char c = (unsigned char)*s;
    return c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
}

#endif
