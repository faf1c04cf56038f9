/* SPDX-License-Identifier: Apache-2.0 */
/* token/read_rules.c - tokenizer.json: normalizer, pre_tokenizer, post_processor and decoder. Each kind is known by its
 * name, with all of its keys; anything else is refused. */
#include "token/charsmap.h"
#include "token/read_json.h"

#include <string.h>

static const char *type_of(json_t *rule)
{
    const char *type = json_string_value(json_object_get(rule, "type"));
    return type ? type : "?";
}

static bool is_type(json_t *rule, const char *type)
{
    return strcmp(type_of(rule), type) == 0;
}

static tm_status text_of(const tm_reading *r, const char *where, json_t *rule, const char *key, const char **text,
                         size_t *n)
{
    json_t *value = json_object_get(rule, key);
    if (!json_is_string(value)) return tm_fail(r->err, TM_FORMAT, "'%s': %s without a text '%s'", r->name, where, key);
    *n = json_string_length(value);
    *text = tm_arena_text_n(r->tokenizer->arena, json_string_value(value), *n);
    return TM_OK;
}

/* {"String": "..."} or {"Regex": "..."}. */
static tm_status pattern_of(const tm_reading *r, const char *where, json_t *rule, const char **text, size_t *n,
                            bool *regex)
{
    json_t *pattern = json_object_get(rule, "pattern");
    *regex = json_object_get(pattern, "Regex") != NULL;
    TM_TRY(text_of(r, where, pattern, *regex ? "Regex" : "String", text, n));
    if (*n > 0) return TM_OK;
    return tm_fail(r->err, TM_UNSUPPORTED, "'%s': %s with an empty pattern is not supported", r->name, where);
}

/* --- normalizer --------------------------------------------------------------------------------------------------- */

static tm_status read_replace(tm_reading *r, json_t *rule, tm_normal *step)
{
    bool regex;
    TM_TRY(tm_json_keys(r, "normalizer Replace", rule, " type pattern content "));
    TM_TRY(pattern_of(r, "normalizer Replace", rule, &step->find, &step->find_length, &regex));
    TM_TRY(text_of(r, "normalizer Replace", rule, "content", &step->text, &step->length));
    step->kind = TM_NORMAL_REPLACE;
    return regex ? tm_regex_compile(step->find, step->find_length, TM_REGEX_RUBY, r->name, &step->regex, r->err)
                 : TM_OK;
}

static tm_status read_charsmap(tm_reading *r, json_t *rule, tm_normal *step)
{
    const char *text = "";
    size_t      n = 0, bytes;
    TM_TRY(tm_json_keys(r, "normalizer Precompiled", rule, " type precompiled_charsmap "));
    TM_TRY(text_of(r, "normalizer Precompiled", rule, "precompiled_charsmap", &text, &n));
    const char *map = tm_base64(r->tokenizer->arena, text, n, &bytes);
    if (!map) return tm_fail(r->err, TM_FORMAT, "'%s': precompiled_charsmap is not base64", r->name);
    step->kind = TM_NORMAL_CHARSMAP;
    return tm_charsmap_read(r->tokenizer->arena, (const uint8_t *)map, bytes, r->name, &step->charsmap, r->err);
}

static tm_status read_normalizer(tm_reading *r, json_t *rule)
{
    static const struct {
        const char *type;
        int         kind;
    } plain[] = { { "NFC", TM_NORMAL_NFC },   { "NFD", TM_NORMAL_NFD },         { "NFKC", TM_NORMAL_NFKC },
                  { "NFKD", TM_NORMAL_NFKD }, { "Lowercase", TM_NORMAL_LOWER }, { "Strip", TM_NORMAL_STRIP } };
    tm_tokenizer *t = r->tokenizer;
    if (!rule || json_is_null(rule)) return TM_OK;
    if (is_type(rule, "Sequence")) {
        json_t *list = json_object_get(rule, "normalizers");
        TM_TRY(tm_json_keys(r, "normalizer Sequence", rule, " type normalizers "));
        for (size_t i = 0; i < json_array_size(list); i++) {
            if (is_type(json_array_get(list, i), "Sequence"))
                return tm_json_refuse(r, "normalizer in a Sequence", "Sequence");
            TM_TRY(read_normalizer(r, json_array_get(list, i)));
        }
        return TM_OK;
    }
    if (t->n_normal == TM_MAX_STEPS) return tm_json_refuse(r, "normalizer with more than 16 steps", type_of(rule));
    tm_normal *step = &t->normal[t->n_normal++];
    if (is_type(rule, "Replace")) return read_replace(r, rule, step);
    if (is_type(rule, "Precompiled")) return read_charsmap(r, rule, step);
    if (is_type(rule, "Prepend")) {
        step->kind = TM_NORMAL_PREPEND;
        TM_TRY(tm_json_keys(r, "normalizer Prepend", rule, " type prepend "));
        return text_of(r, "normalizer Prepend", rule, "prepend", &step->text, &step->length);
    }
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        if (!is_type(rule, plain[i].type)) continue;
        step->kind = plain[i].kind;
        step->left = tm_rule_flag(rule, "strip_left", true);
        step->right = tm_rule_flag(rule, "strip_right", true);
        return tm_json_keys(r, "normalizer", rule,
                            step->kind == TM_NORMAL_STRIP ? " type strip_left strip_right " : " type ");
    }
    return tm_json_refuse(r, "normalizer", type_of(rule));
}

/* --- pre_tokenizer ------------------------------------------------------------------------------------------------ */

static tm_status new_step(tm_reading *r, json_t *rule, int kind, tm_word_step **out)
{
    tm_tokenizer *t = r->tokenizer;
    if (t->n_words == TM_MAX_STEPS) return tm_json_refuse(r, "pre_tokenizer with more than 16 steps", type_of(rule));
    if (t->model.byte_level) return tm_json_refuse(r, "pre_tokenizer after ByteLevel", type_of(rule));
    *out = &t->words[t->n_words++];
    (*out)->kind = kind;
    return TM_OK;
}

/* Oniguruma's $ ends a line: where a known pattern has one, it is another pattern here. */
static tm_status set_pattern(tm_reading *r, tm_word_step *step, const char *pattern, size_t n, bool regex)
{
    const tm_splitter *known = regex ? tm_splitter_of_pattern(pattern, n) : NULL;
    if (known && !known->last_space && step->behavior == TM_ISOLATED && !step->invert) {
        step->splitter = known;
        return TM_OK;
    }
    return tm_regex_compile(pattern, n, regex ? TM_REGEX_RUBY : TM_REGEX_LITERAL, r->name, &step->regex, r->err);
}

static tm_status read_split(tm_reading *r, json_t *rule)
{
    static const char *const names[] = { "Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous" };
    const char              *behavior = json_string_value(json_object_get(rule, "behavior")), *pattern;
    tm_word_step            *step;
    size_t                   n, i = 0;
    bool                     regex;
    TM_TRY(tm_json_keys(r, "pre_tokenizer Split", rule, " type pattern behavior invert "));
    TM_TRY(new_step(r, rule, TM_WORD_SPLIT, &step));
    while (i < 5 && strcmp(names[i], behavior ? behavior : "") != 0) i++;
    if (i == 5) return tm_json_refuse(r, "pre_tokenizer Split with behavior", behavior ? behavior : "?");
    step->behavior = (int)i;
    step->invert = tm_rule_flag(rule, "invert", false);
    TM_TRY(pattern_of(r, "pre_tokenizer Split", rule, &pattern, &n, &regex));
    return set_pattern(r, step, pattern, n, regex);
}

static tm_status read_byte_level(tm_reading *r, json_t *rule)
{
    tm_word_step *step;
    TM_TRY(tm_json_keys(r, "pre_tokenizer ByteLevel", rule, " type add_prefix_space trim_offsets use_regex "));
    if (tm_rule_flag(rule, "add_prefix_space", true)) TM_TRY(new_step(r, rule, TM_WORD_PREFIX, &step));
    if (tm_rule_flag(rule, "use_regex", true)) {
        TM_TRY(new_step(r, rule, TM_WORD_SPLIT, &step));
        step->splitter = tm_splitter_at(0);
    }
    r->tokenizer->model.byte_level = true;
    return TM_OK;
}

/* Older files say add_prefix_space instead of prepend_scheme. */
static tm_status prepend_of(tm_reading *r, json_t *rule, const char *where, int *out)
{
    const char *scheme = json_string_value(json_object_get(rule, "prepend_scheme"));
    *out = tm_rule_flag(rule, "add_prefix_space", true) ? TM_ALWAYS : TM_NEVER;
    if (!scheme) return TM_OK;
    *out = strcmp(scheme, "always") == 0 ? TM_ALWAYS : strcmp(scheme, "first") == 0 ? TM_FIRST : TM_NEVER;
    return *out != TM_NEVER || strcmp(scheme, "never") == 0 ? TM_OK : tm_json_refuse(r, where, scheme);
}

static tm_status read_metaspace(tm_reading *r, json_t *rule)
{
    tm_word_step *step;
    int           prepend;
    TM_TRY(tm_json_keys(r, "pre_tokenizer Metaspace", rule,
                        " type replacement str_rep add_prefix_space prepend_scheme split "));
    TM_TRY(new_step(r, rule, TM_WORD_METASPACE, &step));
    TM_TRY(text_of(r, "pre_tokenizer Metaspace", rule, "replacement", &step->text, &step->length));
    if (step->length == 0) return tm_json_refuse(r, "pre_tokenizer Metaspace with replacement", "");
    TM_TRY(prepend_of(r, rule, "pre_tokenizer Metaspace with prepend_scheme", &prepend));
    step->prepend = prepend;
    step->split = tm_rule_flag(rule, "split", true);
    return TM_OK;
}

static tm_status read_pre_tokenizer(tm_reading *r, json_t *rule)
{
    tm_word_step *step;
    if (!rule || json_is_null(rule)) return TM_OK;
    if (is_type(rule, "Split")) return read_split(r, rule);
    if (is_type(rule, "ByteLevel")) return read_byte_level(r, rule);
    if (is_type(rule, "Metaspace")) return read_metaspace(r, rule);
    if (is_type(rule, "WhitespaceSplit")) {
        TM_TRY(tm_json_keys(r, "pre_tokenizer WhitespaceSplit", rule, " type "));
        return new_step(r, rule, TM_WORD_WHITESPACE, &step);
    }
    if (is_type(rule, "Digits")) {
        TM_TRY(tm_json_keys(r, "pre_tokenizer Digits", rule, " type individual_digits "));
        TM_TRY(new_step(r, rule, TM_WORD_DIGITS, &step));
        step->each = tm_rule_flag(rule, "individual_digits", false);
        return TM_OK;
    }
    if (!is_type(rule, "Sequence")) return tm_json_refuse(r, "pre_tokenizer", type_of(rule));
    json_t *list = json_object_get(rule, "pretokenizers");
    TM_TRY(tm_json_keys(r, "pre_tokenizer Sequence", rule, " type pretokenizers "));
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (is_type(json_array_get(list, i), "Sequence"))
            return tm_json_refuse(r, "pre_tokenizer in a Sequence", "Sequence");
        TM_TRY(read_pre_tokenizer(r, json_array_get(list, i)));
    }
    return TM_OK;
}

/* --- post_processor ----------------------------------------------------------------------------------------------- */

static tm_status put_around(tm_reading *r, bool after, json_t *id)
{
    tm_tokenizer *t = r->tokenizer;
    int          *n = after ? &t->n_after : &t->n_before;
    if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= TM_MAX_IDS)
        return tm_fail(r->err, TM_FORMAT, "'%s': post_processor with a token that has no id", r->name);
    if (*n == TM_MAX_AROUND) return tm_json_refuse(r, "post_processor with more than 16 tokens", "single");
    (after ? t->after : t->before)[(*n)++] = (int32_t)json_integer_value(id);
    return TM_OK;
}

static tm_status read_template(tm_reading *r, json_t *rule)
{
    json_t *single = json_object_get(rule, "single"), *special = json_object_get(rule, "special_tokens");
    bool    after = false;
    TM_TRY(tm_json_keys(r, "post_processor TemplateProcessing", rule, " type single pair special_tokens "));
    if (!json_is_array(single)) return tm_fail(r->err, TM_FORMAT, "'%s': post_processor without 'single'", r->name);
    for (size_t i = 0; i < json_array_size(single); i++) {
        json_t *piece = json_array_get(single, i), *token = json_object_get(piece, "SpecialToken");
        if (json_object_get(piece, "Sequence")) {
            if (after) return tm_json_refuse(r, "post_processor with the text twice", "single");
            after = true;
            continue;
        }
        const char *name = json_string_value(json_object_get(token, "id"));
        json_t     *ids = name ? json_object_get(json_object_get(special, name), "ids") : NULL;
        if (!json_is_array(ids))
            return tm_fail(r->err, TM_FORMAT, "'%s': post_processor names token '%.100s', but not its ids", r->name,
                           name ? name : "?");
        for (size_t k = 0; k < json_array_size(ids); k++) TM_TRY(put_around(r, after, json_array_get(ids, k)));
    }
    return after ? TM_OK : tm_json_refuse(r, "post_processor without the text", "single");
}

static tm_status read_post_processor(tm_reading *r, json_t *rule)
{
    if (!rule || json_is_null(rule) || is_type(rule, "ByteLevel")) return TM_OK; /* ByteLevel: places of tokens only */
    if (is_type(rule, "TemplateProcessing")) return read_template(r, rule);
    if (is_type(rule, "RobertaProcessing") || is_type(rule, "BertProcessing")) {
        TM_TRY(tm_json_keys(r, "post_processor", rule, " type sep cls trim_offsets add_prefix_space "));
        TM_TRY(put_around(r, false, json_array_get(json_object_get(rule, "cls"), 1)));
        return put_around(r, true, json_array_get(json_object_get(rule, "sep"), 1));
    }
    if (!is_type(rule, "Sequence")) return tm_json_refuse(r, "post_processor", type_of(rule));
    json_t *list = json_object_get(rule, "processors");
    int     templates = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *one = json_array_get(list, i);
        templates += !is_type(one, "ByteLevel");
        if (is_type(one, "Sequence") || templates > 1)
            return tm_json_refuse(r, "post_processor in a Sequence", type_of(one));
        TM_TRY(read_post_processor(r, one));
    }
    return TM_OK;
}

/* --- decoder ------------------------------------------------------------------------------------------------------ */

static tm_status read_decoder(tm_reading *r, json_t *rule)
{
    tm_tokenizer *t = r->tokenizer;
    if (is_type(rule, "ByteLevel")) {
        t->decode.bytes = true;
    } else if (is_type(rule, "Metaspace")) {
        int prepend;
        TM_TRY(prepend_of(r, rule, "decoder Metaspace with prepend_scheme", &prepend));
        if (strcmp(TM_META, json_string_value(json_object_get(rule, "replacement"))
                                ? json_string_value(json_object_get(rule, "replacement"))
                                : "") != 0)
            return tm_json_refuse(r, "decoder Metaspace with another replacement than", TM_META);
        t->decode.meta = true;
        t->decode.drop_marks = prepend != TM_NEVER;
    } else if (is_type(rule, "Replace")) {
        const char *find = "", *text = "";
        size_t      n, m;
        bool        regex;
        TM_TRY(pattern_of(r, "decoder Replace", rule, &find, &n, &regex));
        TM_TRY(text_of(r, "decoder Replace", rule, "content", &text, &m));
        if (regex || strcmp(find, TM_META) != 0 || strcmp(text, " ") != 0)
            return tm_json_refuse(r, "decoder Replace of", find);
        t->decode.meta = true;
    } else if (is_type(rule, "Strip")) {
        const char *content = json_string_value(json_object_get(rule, "content"));
        json_int_t  start = json_integer_value(json_object_get(rule, "start"));
        if (!content || strcmp(content, " ") != 0 || start < 0 || start > 1000 ||
            json_integer_value(json_object_get(rule, "stop")) != 0)
            return tm_json_refuse(r, "decoder Strip other than of blanks in front", content ? content : "?");
        t->decode.strip = (int)start;
    } else if (!is_type(rule, "ByteFallback") && !is_type(rule, "Fuse")) {
        return tm_json_refuse(r, "decoder", type_of(rule));
    }
    return TM_OK;
}

static tm_status read_decoders(tm_reading *r, json_t *rule)
{
    if (!rule || json_is_null(rule)) {
        r->tokenizer->decode.between = true;
        return TM_OK;
    }
    if (!is_type(rule, "Sequence")) return read_decoder(r, rule);
    json_t *list = json_object_get(rule, "decoders");
    for (size_t i = 0; i < json_array_size(list); i++) TM_TRY(read_decoder(r, json_array_get(list, i)));
    return TM_OK;
}

tm_status tm_read_json_rules(tm_reading *r, json_t *root)
{
    TM_TRY(read_normalizer(r, json_object_get(root, "normalizer")));
    TM_TRY(read_pre_tokenizer(r, json_object_get(root, "pre_tokenizer")));
    TM_TRY(read_post_processor(r, json_object_get(root, "post_processor")));
    return read_decoders(r, json_object_get(root, "decoder"));
}
