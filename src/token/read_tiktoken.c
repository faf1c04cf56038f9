/* SPDX-License-Identifier: Apache-2.0 */
/* token/read_tiktoken.c - files that rank byte strings: tiktoken ("base64 rank" lines) and Mistral's tekken JSON. Two
 * neighbours join if what they are together is a token, the lowest rank first; a word that is a token is that token. */
#include "token/internal.h"

#include <stdlib.h>
#include <string.h>

static tm_status add_ranked(tm_reading *r, int64_t id, const char *bytes, size_t n)
{
    tm_tokenizer *t = r->tokenizer;
    if (n == 0) return tm_fail(r->err, TM_FORMAT, "'%s': token %lld is empty", r->name, (long long)id);
    TM_TRY(tm_reading_token(r, id, bytes, n, bytes, n));
    if (tm_strings_put(&t->model.strings, t->tokens[id].text, n, (int32_t)id) >= 0)
        return tm_fail(r->err, TM_FORMAT, "'%s': token %lld occurs twice", r->name, (long long)id);
    return TM_OK;
}

static tm_status finish_ranked(tm_reading *r, const char *format)
{
    tm_tokenizer *t = r->tokenizer;
    for (int b = 0; b < 256; b++) {
        char one = (char)b;
        t->model.byte[b] = t->model.last_byte[b] = tm_strings_get(&t->model.strings, &one, 1);
        if (t->model.byte[b] < 0)
            return tm_fail(r->err, TM_FORMAT, "'%s': byte 0x%02x is not a token, but all 256 must be", r->name, b);
    }
    t->model.byte_level = t->model.whole_words = true;
    t->decode.bytes = true;
    t->facts.format = format;
    t->facts.model = "byte-level BPE";
    tm_model_pairs_by_rank(&t->model, t->tokens, t->n_ids, NULL);
    return TM_OK;
}

/* A special token, not looked for in text; a name that is taken gets none. */
static tm_status add_special(tm_reading *r, int64_t id, const char *text)
{
    TM_TRY(tm_reading_token(r, id, text, strlen(text), text, strlen(text)));
    r->tokenizer->tokens[id].special = true;
    return TM_OK;
}

/* --- tiktoken ----------------------------------------------------------------------------------------------------- */

/* Files of this many tokens are known: their pattern, and the special tokens behind them. */
static const struct {
    int64_t     tokens;
    const char *pattern, *specials;
} known[] = {
    { 128000, "llama3",
      "<|begin_of_text|> <|end_of_text|> <|reserved_special_token_0|> <|reserved_special_token_1|> "
      "<|finetune_right_pad_id|> <|step_id|> <|start_header_id|> <|end_header_id|> <|eom_id|> <|eot_id|> "
      "<|python_tag|> "
      "<|image|>" },
    { 200000, "o200k", "<|begin_of_text|> <|end_of_text|>" },
    { 199998, "o200k", "<|endoftext|>" },
    { 151643, "qwen2", "<|endoftext|> <|im_start|> <|im_end|>" },
    { 100256, "cl100k", "- <|endoftext|> <|fim_prefix|> <|fim_middle|> <|fim_suffix|>" },
    { 50256, "gpt2", "<|endoftext|>" },
};

bool tm_looks_like_tiktoken(const char *bytes, size_t size)
{
    size_t n = 0;
    while (n < size && n < 4096 &&
           strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=", bytes[n]) && bytes[n])
        n++;
    return n > 0 && n + 1 < size && bytes[n] == ' ' && bytes[n + 1] >= '0' && bytes[n + 1] <= '9';
}

static tm_status read_line(tm_reading *r, const char *line, size_t n, int64_t number)
{
    const char *blank = memchr(line, ' ', n);
    size_t      length;
    char       *end, digits[24] = { 0 };
    size_t      n_digits = blank ? n - (size_t)(blank + 1 - line) : 0;
    if (blank && n_digits < sizeof digits) memcpy(digits, blank + 1, n_digits);
    const char *bytes = blank ? tm_base64(r->tokenizer->arena, line, (size_t)(blank - line), &length) : NULL;
    long long   rank = strtoll(digits, &end, 10);
    if (!bytes || end == digits || *end)
        return tm_fail(r->err, TM_FORMAT, "'%s', line %lld: not 'base64 rank'", r->name, (long long)number);
    return add_ranked(r, rank, bytes, length);
}

tm_status tm_read_tiktoken(tm_reading *r, const char *bytes, size_t size, const char *pattern)
{
    int64_t number = 0, count = 0;
    for (size_t at = 0; at < size;) {
        const char *end = memchr(bytes + at, '\n', size - at);
        size_t      n = end ? (size_t)(end - (bytes + at)) : size - at, next = at + n + 1;
        if (n > 0 && bytes[at + n - 1] == '\r') n--;
        number++;
        if (n > 0) TM_TRY(read_line(r, bytes + at, n, number));
        count += n > 0;
        at = next;
    }
    const char *specials = NULL;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (known[i].tokens != count || r->tokenizer->n_ids != count) continue;
        specials = known[i].specials;
        if (!pattern) pattern = known[i].pattern;
    }
    if (!pattern)
        return tm_fail(r->err, TM_INVALID,
                       "'%s': a tiktoken file does not say how text is cut into words, and none with %lld "
                       "tokens is known; name it: --pattern llama3, for example",
                       r->name, (long long)count);
    TM_TRY(tm_reading_pattern(r, pattern, strlen(pattern)));
    TM_TRY(finish_ranked(r, "tiktoken"));
    for (int64_t id = count; specials && *specials; id++) {
        char   name[64];
        size_t n = strcspn(specials, " ");
        memcpy(name, specials, n);
        name[n] = '\0';
        if (strcmp(name, "-") != 0) TM_TRY(add_special(r, id, name));
        specials += n + (specials[n] == ' ');
    }
    r->tokenizer->before[0] = tm_tokenizer_find(r->tokenizer, "<|begin_of_text|>", 17);
    r->tokenizer->n_before = r->tokenizer->before[0] >= 0;
    return TM_OK;
}

/* --- tekken ------------------------------------------------------------------------------------------------------- */

static tm_status read_tekken_specials(tm_reading *r, json_t *list, int64_t n)
{
    static const char *const first[] = { "<unk>",
                                         "<s>",
                                         "</s>",
                                         "[INST]",
                                         "[/INST]",
                                         "[AVAILABLE_TOOLS]",
                                         "[/AVAILABLE_TOOLS]",
                                         "[TOOL_RESULTS]",
                                         "[/TOOL_RESULTS]",
                                         "[TOOL_CALLS]",
                                         "[IMG]",
                                         "<pad>",
                                         "[IMG_BREAK]",
                                         "[IMG_END]",
                                         "[PREFIX]",
                                         "[MIDDLE]",
                                         "[SUFFIX]",
                                         "[SYSTEM_PROMPT]",
                                         "[/SYSTEM_PROMPT]",
                                         "[TOOL_CONTENT]" };
    char                     name[32];
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *one = json_array_get(list, i), *rank = json_object_get(one, "rank"),
               *text = json_object_get(one, "token_str");
        if (!json_is_integer(rank) || !json_is_string(text) || json_integer_value(rank) < 0 ||
            json_integer_value(rank) >= n)
            return tm_fail(r->err, TM_FORMAT, "'%s': special_tokens[%zu] needs a rank below %lld and a token_str",
                           r->name, i, (long long)n);
        TM_TRY(add_special(r, json_integer_value(rank), json_string_value(text)));
    }
    for (int64_t id = 0; id < n; id++) {
        if (id < r->tokenizer->n_ids && r->tokenizer->tokens[id].text) continue;
        bool named = !list && id < (int64_t)(sizeof first / sizeof first[0]);
        snprintf(name, sizeof name, "<SPECIAL_%lld>", (long long)id);
        TM_TRY(add_special(r, id, named ? first[id] : name));
    }
    return TM_OK;
}

tm_status tm_read_tekken(tm_reading *r, json_t *root)
{
    json_t *config = json_object_get(root, "config"), *vocab = json_object_get(root, "vocab"),
           *list = json_object_get(root, "special_tokens");
    json_t *pattern = json_object_get(config, "pattern");
    int64_t size = json_integer_value(json_object_get(config, "default_vocab_size"));
    int64_t specials = json_integer_value(json_object_get(config, "default_num_special_tokens"));
    if (!json_is_string(pattern) || specials < 3 || size <= specials || size >= TM_MAX_IDS)
        return tm_fail(r->err, TM_FORMAT,
                       "'%s': config needs pattern, default_vocab_size and default_num_special_tokens (3 or more, "
                       "below default_vocab_size)",
                       r->name);
    if ((int64_t)json_array_size(vocab) < size - specials)
        return tm_fail(r->err, TM_FORMAT,
                       "'%s': %zu tokens, but default_vocab_size %lld less %lld special ones are wanted", r->name,
                       json_array_size(vocab), (long long)size, (long long)specials);
    TM_TRY(read_tekken_specials(r, json_is_array(list) ? list : NULL, specials));
    for (int64_t i = 0; i < size - specials; i++) {
        json_t     *one = json_array_get(vocab, (size_t)i), *text = json_object_get(one, "token_bytes");
        size_t      n;
        const char *bytes = json_is_string(text)
                                ? tm_base64(r->tokenizer->arena, json_string_value(text), json_string_length(text), &n)
                                : NULL;
        if (!bytes || !json_is_integer(json_object_get(one, "rank")) ||
            json_integer_value(json_object_get(one, "rank")) != i)
            return tm_fail(r->err, TM_FORMAT, "'%s': vocab[%lld] needs the rank %lld and token_bytes in base64",
                           r->name, (long long)i, (long long)i);
        TM_TRY(add_ranked(r, i + specials, bytes, n));
    }
    TM_TRY(tm_reading_pattern(r, json_string_value(pattern), json_string_length(pattern)));
    TM_TRY(finish_ranked(r, "tekken"));
    r->tokenizer->before[0] = tm_tokenizer_find(r->tokenizer, "<s>", 3);
    r->tokenizer->n_before = r->tokenizer->before[0] >= 0;
    return TM_OK;
}
