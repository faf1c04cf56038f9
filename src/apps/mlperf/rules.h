/* SPDX-License-Identifier: Apache-2.0 */
/* apps/mlperf/rules.h - private to the room: compliance rules as data. A rule is a row per key; check.c runs them. */
#ifndef TM_MLPERF_RULES_H
#define TM_MLPERF_RULES_H

#include "apps/mlperf/check.h"

typedef enum {
    RULE_OPTIONAL,
    RULE_EXACTLY_ONE, /* more are a warning if all values are equal */
    RULE_AT_LEAST_ONE,
    RULE_AT_LEAST_ONE_OR, /* or one of `other` */
} rule_requirement;

/* What a scan of one rule set remembers. */
typedef enum { STATE_INIT_STARTED, STATE_INIT_STOPPED, STATE_RUN_STARTED, STATE_RUN_STOPPED, STATE_COUNT } rule_state;

typedef enum {
    TEST_NONE,         /* ends a list of tests */
    TEST_NOT_EMPTY,    /* value is not "" */
    TEST_TEXT,         /* value is the text a */
    TEST_NUMBER,       /* value is the number lo */
    TEST_ONE_OF,       /* value is one of the texts in list */
    TEST_ABOVE,        /* value > lo */
    TEST_NOT_BELOW,    /* value >= lo */
    TEST_BELOW,        /* value < hi */
    TEST_WITHIN,       /* lo < value <= hi */
    TEST_WHOLE,        /* value is within 0.00001 of an integer */
    TEST_REST,         /* value is lo minus the warm-up steps remembered */
    TEST_ROUNDED_UP,   /* value is lo rounded up to a multiple of the batch remembered */
    TEST_HAS,          /* metadata has a, or b */
    TEST_IF_HAS,       /* metadata with a has b as well */
    TEST_IF_ABOVE,     /* metadata with a has it > lo */
    TEST_IF_NOT_BELOW, /* metadata with a has it >= lo */
    TEST_IS,           /* the state is set */
    TEST_IS_NOT,
    TEST_INIT_TIME, /* time since the first init_start is below the limit of the division */
} rule_test_kind;

typedef struct {
    rule_test_kind     kind;
    const char        *a, *b;
    double             lo, hi;
    const char *const *list; /* ends with NULL */
    rule_state         state;
} rule_test;

typedef enum {
    THEN_NOTHING,
    THEN_DIVISION,  /* queue <value>_common; set the limit of the initialisation */
    THEN_BENCHMARK, /* queue <division>_<value> */
    THEN_INIT_START,
    THEN_INIT_STOP,
    THEN_RUN_START,
    THEN_RUN_STOP,
    THEN_WARMUP, /* remember the value as warm-up steps */
    THEN_BATCH,  /* as global batch */
} rule_effect;

enum { RULE_TESTS = 5 };

typedef struct {
    const char      *key;
    rule_requirement required;
    const char      *other; /* RULE_AT_LEAST_ONE_OR; a key of the same set */
    rule_test        checks[RULE_TESTS + 1];
    rule_test        once; /* at least one line has to pass it; TEST_NONE: no such condition */
    rule_effect      then;
    unsigned         only; /* bits 1 << tm_ruleset; 0: all */
} rule;

typedef struct {
    const char *name;     /* "closed_llama31_8b" */
    const char *division; /* prefix of what THEN_BENCHMARK queues; NULL: no such effect */
    const rule *rules;    /* a key has at most one row for a ruleset */
    size_t      n;
} rule_set;

/* What a scan of one rule set knows when it comes to a line. */
typedef struct {
    bool                 is[STATE_COUNT];
    double               first_init_ms;  /* +inf before the first */
    double               limit_minutes;  /* of the initialisation; 0 before the division is known */
    const tm_json_value *warmup, *batch; /* NULL before their lines */
} rule_memory;

typedef enum { TEST_PASSED, TEST_FAILED, TEST_IMPOSSIBLE } test_result; /* the last: text compared with a number */

test_result rule_test_run(const rule_test *test, const tm_mllog_record *record, const rule_memory *memory);
/* Appends "value == 8192". */
void rule_test_describe(const rule_test *test, const rule_memory *memory, tm_text *out);
/* Appends what the test looked at: "value is 4096". */
void rule_test_found(const rule_test *test, const tm_mllog_record *record, const rule_memory *memory, tm_text *out);

/* NULL if there is none. */
const rule_set *rule_set_find(const char *name);
/* The row for a key; NULL: the key is free. */
const rule *rule_set_row(const rule_set *set, tm_ruleset ruleset, const char *key);

#endif
