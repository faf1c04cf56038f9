/* SPDX-License-Identifier: Apache-2.0 */
/* base/pattern.h - regular expressions that choose names, in the dialect that Python's `re` and pcre2 share. An
 * expression that gives up (it would take more than a million steps) matches nothing. */
#ifndef TM_BASE_PATTERN_H
#define TM_BASE_PATTERN_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* TM_INVALID, with `where` and the reason: it is none. The others take patterns that have passed. */
TM_MUST_USE tm_status tm_pattern_check(const char *pattern, const char *where, tm_error *err);
/* All of the text (re.fullmatch). */
bool tm_pattern_matches(const char *pattern, const char *text);
/* The text, or what stands behind one of its dots: `(.*\.)?(PATTERN)` is all of it. */
bool tm_pattern_ends(const char *pattern, const char *text);
/* The number that the group `idx` of the pattern has where the text begins with a match; -1: there is none. */
int64_t tm_pattern_index(const char *pattern, const char *text);

/* What names that end with a pattern have; the first one that fits counts. */
typedef struct {
    const char *pattern;
    double      value;
} tm_pattern_value;
/* NULL: none fits. */
const tm_pattern_value *tm_pattern_find(const tm_pattern_value *all, size_t n, const char *text);

#endif
