/* SPDX-License-Identifier: Apache-2.0 */
/* SentencePiece models made by hand: every piece and setting that is refused, with its words, and their neighbors that
 * are taken. */
#include "base/text.h"
#include "token/token.h"

#include "support/test.h"

#define NOT "'m' is not a SentencePiece model: "
#define KNOWN "; tokenizer files are tokenizer.json, SentencePiece .model, tiktoken and tekken"

/* Bytes, zeros included, of a text constant. */
#define RAW(text) text, sizeof(text) - 1

/* Texts: field 1. */
#define A "\x0A\1\x61"
#define B "\x0A\1\x62"

/* Scores: field 2, of four bytes. */
#define MINUS_1 "\x15\0\0\x80\xBF"
#define INFINITE "\x15\0\0\x80\x7F"
#define NO_NUMBER "\x15\0\0\xC0\xFF"

static void add_field(tm_text *out, char tag, const char *bytes, size_t n)
{
    const char head[] = { tag, (char)n };
    tm_text_add_n(out, head, 2);
    tm_text_add_n(out, bytes, n);
}

/* Parses, and takes `text` apart where that works: its ids in *ids. */
static tm_status parse(const tm_text *model, const char *text, tm_ids *ids, tm_error *err)
{
    tm_tokenizer *t;
    *err = (tm_error){ 0 };
    ids->count = 0;
    tm_status st = tm_tokenizer_parse("m", model->data, model->length, NULL, &t, err);
    if (st != TM_OK) return st;
    tm_token_encoder *encoder = tm_token_encoder_create(t);
    st = tm_token_encoder_encode(encoder, text, strlen(text), 0, ids, err);
    tm_token_encoder_destroy(encoder);
    tm_tokenizer_close(t);
    return st;
}

/* Pieces <unk> and "a", those of `extra`, and what the model is: a Unigram that adds no blank. */
static tm_text make_model(const char *extra, size_t n)
{
    tm_text model = { 0 };
    add_field(&model, 0x0A, RAW("\x0A\5<unk>\x18\2"));
    add_field(&model, 0x0A, RAW(A MINUS_1));
    if (extra) add_field(&model, 0x0A, extra, n);
    add_field(&model, 0x12, RAW("\x18\1"));
    add_field(&model, 0x1A, RAW("\x18\0 \0(\0"));
    return model;
}

static const char piece_cut[] = NOT "a piece is truncated" KNOWN;
static const char no_type[] = NOT "a piece has an unknown type or no score" KNOWN;
static const char no_utf8[] = NOT "a piece is not UTF-8" KNOWN;
static const char wrong_byte[] = NOT "a byte piece is not <0x00> to <0xFF>" KNOWN;
static const struct {
    const char *piece;
    size_t      bytes;
    const char *words; /* NULL: it is taken, and is the b of "ab" or nothing of it */
    int32_t     last;
} pieces_made[] = {
    { RAW(B), NULL, 2 },                    /* a normal one with score 0 */
    { RAW(MINUS_1 B), NULL, 2 },            /* in any order */
    { RAW("\x0A\1\x63" B), NULL, 2 },       /* the last text counts */
    { RAW(B "\x18\3"), NULL, 0 },           /* a control piece is no text */
    { RAW(B "\x18\4"), NULL, 2 },           /* user-defined */
    { RAW(B "\x22\2zz"), NULL, 2 },         /* a field that nobody knows */
    { RAW("\x0A\6<0x62>\x18\6"), NULL, 0 }, /* without byte_fallback no text becomes bytes */
    { RAW("\x0A\2\xC3\xA9"), NULL, 0 },
    { RAW(""), piece_cut, 0 },
    /* no text */
    { RAW("\x0A\2\x62"), piece_cut, 0 },
    { RAW(B "\x18"), piece_cut, 0 },
    { RAW("\x0A\0"), NOT "a piece is empty" KNOWN, 0 },
    { RAW(B "\x18\0"), no_type, 0 },
    { RAW(B "\x18\x81\2"), no_type, 0 }, /* 257 */
    { RAW(B INFINITE), no_type, 0 },
    { RAW(B NO_NUMBER), no_type, 0 },
    { RAW(B "\x18\5"), "'m': pieces of type UNUSED are not supported", 0 },
    { RAW("\x0A\1\xFF"), no_utf8, 0 },
    { RAW("\x0A\1\xC3"), no_utf8, 0 },
    { RAW("\x0A\3\xED\xA0\x80"), no_utf8, 0 },
    { RAW(B "\x18\6"), wrong_byte, 0 },
    { RAW("\x0A\6<0xG2>\x18\6"), wrong_byte, 0 },
    { RAW(A), NOT "a piece occurs twice" KNOWN, 0 },
};

TEST(pieces)
{
    tm_ids ids = { 0 };
    for (size_t i = 0; i < sizeof pieces_made / sizeof pieces_made[0]; i++) {
        tm_text   model = make_model(pieces_made[i].piece, pieces_made[i].bytes);
        tm_error  err;
        tm_status st = parse(&model, "ab", &ids, &err);
        if (pieces_made[i].words ? st == TM_OK || strcmp(err.text, pieces_made[i].words) != 0 : st != TM_OK)
            fail_msg("%zu: %d %s", i, st, err.text);
        if (!pieces_made[i].words && (ids.count != 2 || ids.data[0] != 1 || ids.data[1] != pieces_made[i].last))
            fail_msg("%zu: %zu ids, %d, %d", i, ids.count, ids.data[0], ids.count > 1 ? ids.data[1] : -1);
        tm_text_fini(&model);
    }
    free(ids.data);
}

static const char settings_cut[] = NOT "its settings are truncated" KNOWN;
static const char wrong_kind[] = NOT "a field has the wrong kind" KNOWN;
static const char model_cut[] = NOT "it is truncated, or another kind of file" KNOWN;
static const struct {
    const char *fields;
    size_t      bytes;
    const char *words; /* NULL: it is taken */
} settings_made[] = {
    { RAW(""), NULL },
    { RAW("\x12\2\x18\2"), NULL }, /* BPE */
    { RAW("\x12\2\x18\3"), "'m': model_type WORD is not supported" },
    { RAW("\x12\2\x18\4"), "'m': model_type CHAR is not supported" },
    { RAW("\x12\2\x18\0"), "'m': model_type ? is not supported" },
    { RAW("\x12\3\x18\x81\4"), "'m': model_type ? is not supported" }, /* 513 */
    { RAW("\x12\3\xC0\1\1"), "'m': treat_whitespace_as_suffix is not supported" },
    { RAW("\x2A\3\x12\1x"), "'m': denormalizer_spec is not supported" },
    { RAW("\x22\2\x18\3"), NULL }, /* tests of the model itself */
    { RAW("\x12\1\x18"), settings_cut },
    { RAW("\x1A\2\x12\1"), settings_cut },
    { RAW("\x08\1"), wrong_kind },
    { RAW("\x30\1"), NULL },
    { RAW("\x12\2\x18"), model_cut },
    { RAW("\x07"), model_cut },
    { RAW("\x02\1x"), model_cut }, /* field 0 */
};

/* Fields of the model behind those of make_model, or instead of them. */
TEST(settings)
{
    tm_ids ids = { 0 };
    for (size_t i = 0; i < sizeof settings_made / sizeof settings_made[0]; i++) {
        tm_text  model = make_model(NULL, 0);
        tm_error err;
        tm_text_add_n(&model, settings_made[i].fields, settings_made[i].bytes);
        tm_status st = parse(&model, "a", &ids, &err);
        if (settings_made[i].words ? st == TM_OK || strcmp(err.text, settings_made[i].words) != 0 : st != TM_OK)
            fail_msg("%zu: %d %s", i, st, err.text);
        if (!settings_made[i].words && (ids.count != 1 || ids.data[0] != 1)) fail_msg("%zu: %zu ids", i, ids.count);
        tm_text_fini(&model);
    }
    static const struct {
        const char *model;
        size_t      bytes;
        const char *words;
    } whole[] = {
        { RAW("\x12\2\x18\1"), NOT "it has no pieces" KNOWN },
        { RAW("\x0A\3\x0A\1"
              "a\x12\2\x18\1"),
          NOT "it has no unknown piece" KNOWN },
    };
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++) {
        tm_text  model = { 0 };
        tm_error err;
        tm_text_add_n(&model, whole[i].model, whole[i].bytes);
        assert_int_equal(parse(&model, "a", &ids, &err), TM_FORMAT);
        assert_string_equal(err.text, whole[i].words);
        tm_text_fini(&model);
    }
    free(ids.data);
}
