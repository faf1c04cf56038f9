/* SPDX-License-Identifier: Apache-2.0 */
/* tests/differential/cases.h - configurations of small runs, drawn from one table: a row is a dimension. */
#ifndef TM_TESTS_DIFFERENTIAL_CASES_H
#define TM_TESTS_DIFFERENTIAL_CASES_H

#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

/* What a row may change in a run's numbers. */
typedef enum {
    MODEL,     /* everything: it is another training. The run that a layout is compared with has the key, too */
    LAYOUT,    /* the order of sums: equal but for rounding */
    ORDER,     /* the same, whatever the layout */
    UNCLIPPED, /* the order in which the gradient norm is added: not a bit where nothing is clipped */
    NEUTRAL,   /* not a bit */
    COMPARED   /* no key: what the run is compared with */
} effect;
enum { MODEL_KEYS = 1 << MODEL, LAYOUT_KEYS = 1 << LAYOUT | 1 << ORDER | 1 << UNCLIPPED, NEUTRAL_KEYS = 1 << NEUTRAL };

enum { MOST_VALUES = 16, MOST_ROWS = 128, MOST_DEGREE = 4 };

/* A value is "text", which stands for "--name text", or "text: words of a command line". Values go from small to
 * large. `when`: "name=text,text", "name" (is set), "!name", "ranks>1",
 * "shared>1" (ranks that may divide experts); all of these words must hold. */
typedef struct {
    const char *name;
    effect      effect;
    int         odds; /* set in one of so many cases */
    const char *when; /* NULL: always */
    const char *values[MOST_VALUES];
} dimension;

extern const dimension dimensions[];
extern const size_t    n_dimensions;

/* 0: not set; k: values[k - 1]. */
typedef struct {
    unsigned char value[MOST_ROWS];
} setting;

/* f(seed, number). */
setting draw(uint64_t seed, uint64_t number);
/* The value's text, or NULL. */
const char *value_of(const setting *s, const char *name, int *length);
/* The number that a row is set to, or `fallback`. */
int64_t number_of(const setting *s, const char *name, int64_t fallback);
bool    is_set(const setting *s, const char *name);
int     ranks_of_case(const setting *s, unsigned effects); /* by the degrees of these effects */
int     data_ranks_of_case(const setting *s);

/* Words of a command line: a preset, and keys with one of these effects (a sum of 1 << effect). */
void words_of(const setting *s, unsigned effects, tm_text *out);
/* "name=text ..." of all rows that are set, and back; false: no such name or value. */
void name_of(const setting *s, tm_text *out);
bool setting_of(const char *name, setting *out);

/* The next simpler setting, with one row less or one with a smaller value, of those from *at on; false: there is none.
 * Rows whose condition no longer holds are left out. */
bool simpler(const setting *s, size_t *at, setting *out);

#endif
