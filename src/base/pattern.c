/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pattern.h"

#include "base/text.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_STEPS = 1000000 };

static pcre2_code *compile(const char *pattern, uint32_t flags, int *code)
{
    PCRE2_SIZE at;
    return pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, flags | PCRE2_DOLLAR_ENDONLY, code, &at, NULL);
}

tm_status tm_pattern_check(const char *pattern, const char *where, tm_error *err)
{
    int         code;
    PCRE2_UCHAR reason[160];
    pcre2_code *compiled = compile(pattern, 0, &code);
    pcre2_code_free(compiled);
    if (compiled) return TM_OK;
    pcre2_get_error_message(code, reason, sizeof reason);
    return tm_fail(err, TM_INVALID, "%s: '%.200s' is no regular expression: %s", where, pattern, (const char *)reason);
}

/* Matches from the first character on; *index (may be NULL): what the group idx holds. */
static bool match(const char *pattern, const char *text, uint32_t flags, int64_t *index)
{
    int                  code;
    pcre2_code          *compiled = compile(pattern, flags | PCRE2_ANCHORED, &code);
    pcre2_match_data    *data = compiled ? pcre2_match_data_create_from_pattern(compiled, NULL) : NULL;
    pcre2_match_context *limits = pcre2_match_context_create(NULL);
    bool                 found = false;
    pcre2_set_match_limit(limits, MOST_STEPS);
    if (data) found = pcre2_match(compiled, (PCRE2_SPTR)text, strlen(text), 0, 0, data, limits) >= 0;
    PCRE2_UCHAR *digits = NULL;
    PCRE2_SIZE   length;
    if (found && index && pcre2_substring_get_byname(data, (PCRE2_SPTR) "idx", &digits, &length) == 0)
        *index = strtoll((const char *)digits, NULL, 10);
    pcre2_substring_free(digits);
    pcre2_match_context_free(limits);
    pcre2_match_data_free(data);
    pcre2_code_free(compiled);
    return found;
}

bool tm_pattern_matches(const char *pattern, const char *text)
{
    return match(pattern, text, PCRE2_ENDANCHORED, NULL);
}

bool tm_pattern_ends(const char *pattern, const char *text)
{
    tm_text whole = { 0 };
    tm_text_printf(&whole, "(.*\\.)?(%s)", pattern);
    bool found = tm_pattern_matches(whole.data, text);
    tm_text_fini(&whole);
    return found;
}

int64_t tm_pattern_index(const char *pattern, const char *text)
{
    int64_t index = -1;
    return match(pattern, text, 0, &index) ? index : -1;
}

const tm_pattern_value *tm_pattern_find(const tm_pattern_value *all, size_t n, const char *text)
{
    for (size_t i = 0; i < n; i++)
        if (tm_pattern_ends(all[i].pattern, text)) return &all[i];
    return NULL;
}
