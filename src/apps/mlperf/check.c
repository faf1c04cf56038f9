/* SPDX-License-Identifier: Apache-2.0 */
/* apps/mlperf/check.c - runs rule sets over a log, one after the other: `common`, then what the division and the
 * benchmark of the log add. Each scans the whole log with a memory of its own. */
#include "apps/mlperf/check.h"

#include "apps/mlperf/benchmark.h"
#include "apps/mlperf/rules.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN_FAILURES = 10 }; /* of one key in one set: the rest is counted */

/* What one scan found for one row. */
typedef struct {
    int64_t              count, failures;
    const tm_json_value *first; /* value */
    const tm_json_value *other; /* the first value that differs from it, or NULL */
    bool                 once;  /* a line passed the "at least one" test */
} tally;

typedef struct {
    const tm_mllog_record *records;
    size_t                 n;
    tm_ruleset             ruleset;
    bool                   werror;
    tm_check_report       *report;
    const rule_set        *queue[TM_CHECK_SETS];
    size_t                 queued;
    /* of the set that is being run */
    const rule_set *set;
    rule_memory     memory;
    tally          *tallies; /* one per row */
} checker;

/* --- messages ----------------------------------------------------------------------------------------------------- */

static tm_check_message *add_to(tm_check_list *list)
{
    list->messages = tm_grow(list->messages, &list->room, list->n, sizeof *list->messages);
    list->messages[list->n] = (tm_check_message){ .index = -1 };
    return &list->messages[list->n++];
}

/* Of the row `key` of the set being run and the line `record`; both may be NULL. */
static tm_check_message *complain(checker *c, const char *key, const tm_mllog_record *record, const tm_text *text)
{
    tm_check_message *m = add_to(&c->report->messages);
    m->set = c->set ? c->set->name : NULL;
    m->key = key;
    if (record) {
        m->line = record->line;
        m->index = record->index;
    }
    m->text = tm_arena_text(c->report->arena, text->data);
    return m;
}

static __attribute__((format(printf, 4, 5))) tm_check_message *
say(checker *c, const char *key, const tm_mllog_record *record, const char *format, ...)
{
    char    line[512];
    tm_text text = { 0 };
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    tm_text_add(&text, line);
    tm_check_message *m = complain(c, key, record, &text);
    tm_text_fini(&text);
    return m;
}

/* What earlier sets said of a key that this one has a row for is void. */
static void discard(tm_check_list *list, const rule_set *set, tm_ruleset ruleset)
{
    size_t kept = 0;
    for (size_t i = 0; i < list->n; i++) {
        const tm_check_message *m = &list->messages[i];
        if (m->fixed || !rule_set_row(set, ruleset, m->key)) list->messages[kept++] = *m;
    }
    list->n = kept;
}

/* --- one line ----------------------------------------------------------------------------------------------------- */

static void failed(checker *c, const rule *row, const rule_test *test, const tm_mllog_record *record,
                   test_result result)
{
    tm_text text = { 0 };
    if (result == TEST_IMPOSSIBLE)
        tm_text_printf(&text, "Failed executing CHECK code: for '%s': ", row->key);
    else
        tm_text_printf(&text, "CHECK for '%s' failed: wanted ", row->key);
    rule_test_describe(test, &c->memory, &text);
    tm_text_add(&text, "; ");
    rule_test_found(test, record, &c->memory, &text);
    complain(c, row->key, record, &text);
    tm_text_fini(&text);
}

/* Queues "<prefix>_<value>", or "<value>_common" where there is no prefix. */
static void queue_set(checker *c, const rule *row, const char *prefix, const tm_mllog_record *record)
{
    char name[128] = "";
    if (record->value->kind == TM_JSON_TEXT)
        snprintf(name, sizeof name, "%s%s%s", prefix ? prefix : record->value->text, "_",
                 prefix ? record->value->text : "common");
    bool            known = rule_test_run(&row->checks[0], record, &c->memory) == TEST_PASSED;
    const rule_set *set = known ? rule_set_find(name) : NULL; /* a benchmark named "common" is none */
    if (set) {
        TM_ASSERT(c->queued < TM_CHECK_SETS);
        c->queue[c->queued++] = set;
        return;
    }
    tm_text value = { 0 };
    tm_json_print(record->value, &value);
    say(c, row->key, record, "no rule set here for %s %.100s: it cannot be checked", row->key, value.data)->fixed =
        true;
    if (!known) c->report->exception = true;
    tm_text_fini(&value);
}

static void apply(checker *c, const rule *row, const tm_mllog_record *record)
{
    rule_memory *m = &c->memory;
    switch (row->then) {
    case THEN_NOTHING:
        return;
    case THEN_DIVISION:
        m->limit_minutes = tm_json_is_text(record->value, "open") ? 240 : 30;
        queue_set(c, row, NULL, record);
        return;
    case THEN_BENCHMARK:
        if (record->value->kind == TM_JSON_TEXT) c->report->benchmark = record->value->text;
        queue_set(c, row, c->set->division, record);
        return;
    case THEN_INIT_START:
        m->is[STATE_INIT_STARTED] = true;
        m->first_init_ms = fmin(m->first_init_ms, record->time_ms);
        return;
    case THEN_INIT_STOP:
        m->is[STATE_INIT_STOPPED] = true;
        return;
    case THEN_RUN_START:
        m->is[STATE_RUN_STARTED] = true;
        return;
    case THEN_RUN_STOP:
        m->is[STATE_RUN_STOPPED] = true;
        return;
    case THEN_WARMUP:
        m->warmup = record->value;
        return;
    case THEN_BATCH:
        m->batch = record->value;
        return;
    }
}

static void check_line(checker *c, const rule *row, tally *t, const tm_mllog_record *record)
{
    bool first = t->count++ == 0;
    if (first)
        t->first = record->value;
    else if (!t->other && !tm_json_equal(t->first, record->value))
        t->other = record->value;
    if (first || !strstr(row->key, "submission_")) {
        for (const rule_test *test = row->checks; test->kind != TEST_NONE; test++) {
            test_result result = rule_test_run(test, record, &c->memory);
            if (result != TEST_PASSED && t->failures++ < SHOWN_FAILURES) failed(c, row, test, record, result);
        }
        apply(c, row, record);
    }
    if (row->once.kind == TEST_NONE) return;
    test_result result = rule_test_run(&row->once, record, &c->memory);
    if (result == TEST_PASSED) t->once = true;
    if (result != TEST_IMPOSSIBLE || c->report->exception) return;
    c->report->exception = true;
    failed(c, row, &row->once, record, result);
    c->report->messages.messages[c->report->messages.n - 1].fixed = true;
}

/* --- after the scan ----------------------------------------------------------------------------------------------- */

static void add_cut(const tm_json_value *value, tm_text *out)
{
    enum { LIMIT = 80 };
    size_t before = out->length;
    tm_json_print(value, out);
    if (out->length - before <= LIMIT) return;
    out->length = before + LIMIT;
    tm_text_add(out, "...");
}

static void count_exactly_one(checker *c, const rule *row, const tally *t)
{
    if (t->count == 1) return;
    tm_text text = { 0 };
    tm_text_printf(&text, "Required EXACTLY_ONE occurrence of '%s' but found %lld", row->key, (long long)t->count);
    if (t->count > 1 && t->other) {
        tm_text_add(&text, " with different values: [");
        add_cut(t->first, &text);
        tm_text_add(&text, ", ");
        add_cut(t->other, &text);
        tm_text_add(&text, t->count > 2 ? ", ...]" : "]");
    } else if (t->count > 1) {
        tm_text_add(&text, ", all with the value ");
        add_cut(t->first, &text);
    }
    if (t->count == 0 || t->other || c->werror) {
        complain(c, row->key, NULL, &text);
    } else {
        tm_check_message *m = add_to(&c->report->warnings);
        m->set = c->set->name;
        m->key = row->key;
        m->text = tm_arena_text(c->report->arena, text.data);
    }
    tm_text_fini(&text);
}

static const tally *tally_of(const checker *c, const char *key)
{
    return &c->tallies[rule_set_row(c->set, c->ruleset, key) - c->set->rules];
}

static void conclude(checker *c, const rule *row, const tally *t)
{
    if (t->failures > SHOWN_FAILURES)
        say(c, row->key, NULL, "CHECK for '%s' failed %lld more times", row->key,
            (long long)(t->failures - SHOWN_FAILURES));
    switch (row->required) {
    case RULE_OPTIONAL:
        break;
    case RULE_EXACTLY_ONE:
        count_exactly_one(c, row, t);
        break;
    case RULE_AT_LEAST_ONE:
        if (t->count == 0) say(c, row->key, NULL, "Required AT_LEAST_ONE occurrence of '%s' but found 0", row->key);
        break;
    case RULE_AT_LEAST_ONE_OR:
        if (t->count == 0 && tally_of(c, row->other)->count == 0)
            say(c, row->key, NULL, "Required AT_LEAST_ONE occurrence of '%s' or '%s'", row->key, row->other)->fixed =
                true;
        break;
    }
    if (row->once.kind == TEST_NONE || t->once) return;
    tm_text text = { 0 };
    tm_text_printf(&text, "Failed checks for %s: no line with ", row->key);
    rule_test_describe(&row->once, &c->memory, &text);
    complain(c, row->key, NULL, &text)->fixed = true;
    tm_text_fini(&text);
}

static void run_set(checker *c, const rule_set *set)
{
    tm_check_report *report = c->report;
    c->set = set;
    c->memory = (rule_memory){ .first_init_ms = (double)INFINITY };
    c->tallies = tm_alloc(set->n * sizeof *c->tallies);
    report->sets[report->n_sets++] = set->name;
    discard(&report->messages, set, c->ruleset);
    discard(&report->warnings, set, c->ruleset);
    for (size_t i = 0; i < c->n; i++) {
        const rule *row = rule_set_row(set, c->ruleset, c->records[i].key);
        if (row) check_line(c, row, &c->tallies[row - set->rules], &c->records[i]);
    }
    for (size_t i = 0; i < set->n; i++)
        if (!set->rules[i].only || set->rules[i].only >> c->ruleset & 1) conclude(c, &set->rules[i], &c->tallies[i]);
    free(c->tallies);
}

/* --- a log -------------------------------------------------------------------------------------------------------- */

/* Lines that cannot be read; false: there are none. */
static bool report_faults(checker *c)
{
    int64_t faults = 0;
    for (size_t i = 0; i < c->n; i++) {
        const tm_mllog_record *r = &c->records[i];
        if (r->state == TM_MLLOG_GOOD) continue;
        if (r->state == TM_MLLOG_INCOMPLETE) c->report->exception = true;
        if (faults++ == 0) say(c, NULL, NULL, "Log lines had parsing errors.");
        if (faults <= SHOWN_FAILURES) say(c, NULL, r, "this line cannot be read: %s", r->problem);
    }
    if (faults > SHOWN_FAILURES)
        say(c, NULL, NULL, "%lld more lines cannot be read", (long long)(faults - SHOWN_FAILURES));
    return faults > 0;
}

void tm_check_log(const tm_mllog *log, tm_ruleset ruleset, bool werror, tm_check_report *out)
{
    *out = (tm_check_report){ .arena = tm_arena_create() };
    checker c = { .ruleset = ruleset, .werror = werror, .report = out };
    c.records = tm_mllog_records(log, &c.n);
    if (c.n == 0)
        say(&c, NULL, NULL, "No log lines detected");
    else if (!report_faults(&c))
        c.queue[c.queued++] = rule_set_find("common");
    for (size_t i = 0; i < c.queued; i++) run_set(&c, c.queue[i]);
    out->passed = out->messages.n == 0;
}

void tm_check_report_fini(tm_check_report *report)
{
    free(report->messages.messages);
    free(report->warnings.messages);
    tm_arena_destroy(report->arena);
    *report = (tm_check_report){ 0 };
}

/* --- rule sets by name -------------------------------------------------------------------------------------------- */

const char *tm_ruleset_name(tm_ruleset ruleset)
{
    static const char *const names[TM_RULESET_COUNT] = { "5.1.0", "6.0.0", "6.1.0" };
    return names[ruleset];
}

tm_status tm_ruleset_find(const char *name, tm_ruleset *out, tm_error *err)
{
    for (int i = 0; i < TM_RULESET_COUNT; i++)
        if (strcmp(name, tm_ruleset_name((tm_ruleset)i)) == 0) return *out = (tm_ruleset)i, TM_OK;
    return tm_fail(err, TM_USAGE, "no ruleset '%.50s'; there are 5.1.0, 6.0.0 and 6.1.0", name);
}
