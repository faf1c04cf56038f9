/* SPDX-License-Identifier: Apache-2.0 */
/* token/decode.c - from ids to text. */
#include "token/internal.h"

#include <string.h>

static void add_with_blanks(const char *text, size_t n, const char *blank, tm_text *out)
{
    const size_t mark = strlen(TM_META);
    while (n > 0) {
        const char *next = memmem(text, n, TM_META, mark);
        size_t      before = next ? (size_t)(next - text) : n;
        tm_text_add_n(out, text, before);
        if (next) tm_text_add(out, blank);
        text += before + (next ? mark : 0);
        n -= before + (next ? mark : 0);
    }
}

static void add_token(const tm_tokenizer *t, const tm_token *token, bool first, tm_text *out)
{
    size_t      n = token->plain_length, suffix = t->decode.suffix ? strlen(t->decode.suffix) : 0;
    const char *plain = token->plain;
    bool        ends =
        suffix > 0 && !token->special && n >= suffix && memcmp(plain + n - suffix, t->decode.suffix, suffix) == 0;
    if (t->decode.between && !first) tm_text_add(out, " ");
    size_t before = out->length;
    if (ends) n -= suffix;
    if (t->decode.meta && !token->is_byte)
        add_with_blanks(plain, n, first && t->decode.drop_marks ? "" : " ", out);
    else
        tm_text_add_n(out, plain, n);
    if (ends) tm_text_add(out, " ");
    if (first && t->decode.meta && t->decode.strip_token && n >= strlen(TM_META) &&
        memcmp(plain, TM_META, strlen(TM_META)) == 0) {
        memmove(out->data + before, out->data + before + 1, out->length - before);
        out->length--;
    }
}

void tm_tokenizer_decode(const tm_tokenizer *tokenizer, const int32_t *ids, size_t n, bool special, tm_text *out)
{
    size_t start = out->length;
    bool   first = true;
    tm_text_add_n(out, "", 0);
    for (size_t i = 0; i < n; i++) {
        const tm_token *token = ids[i] >= 0 && ids[i] < tokenizer->n_ids ? &tokenizer->tokens[ids[i]] : NULL;
        if (!token || !token->text || (token->special && !special)) continue;
        add_token(tokenizer, token, first, out);
        first = tokenizer->decode.strip_all && out->length == start;
    }
    size_t strip = 0;
    while (strip < (size_t)tokenizer->decode.strip && start + strip < out->length && out->data[start + strip] == ' ')
        strip++;
    memmove(out->data + start, out->data + start + strip, out->length - start - strip + 1);
    out->length -= strip;
    if (tokenizer->decode.suffix)
        while (out->length > start && out->data[out->length - 1] == ' ') out->data[--out->length] = '\0';
}
