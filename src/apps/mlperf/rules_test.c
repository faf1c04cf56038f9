/* SPDX-License-Identifier: Apache-2.0 */
/* apps/mlperf/rules_test.c - the kinds of test that rules are made of: run, said in words, and what they looked at. */
#include "apps/mlperf/rules.h"

#include <math.h>
#include <string.h>

/* --- running ------------------------------------------------------------------------------------------------------ */

static test_result result(bool passed)
{
    return passed ? TEST_PASSED : TEST_FAILED;
}

static bool same(double a, double b) /* false for NaN */
{
    return a <= b && a >= b;
}

static bool is_one_of(const tm_json_value *value, const char *const *list)
{
    for (; *list; list++)
        if (tm_json_is_text(value, *list)) return true;
    return false;
}

static test_result run_number(const rule_test *t, const tm_json_value *value)
{
    if (!tm_json_is_number(value)) return TEST_IMPOSSIBLE;
    double x = value->number;
    if (t->kind == TEST_ABOVE) return result(x > t->lo);
    if (t->kind == TEST_NOT_BELOW) return result(x >= t->lo);
    if (t->kind == TEST_BELOW) return result(x < t->hi);
    if (t->kind == TEST_WITHIN) return result(t->lo < x && x <= t->hi);
    return isfinite(x) ? result(fabs(x - rint(x)) < 0.00001) : TEST_IMPOSSIBLE;
}

static test_result run_metadata(const rule_test *t, const tm_json_value *metadata)
{
    if (metadata->kind != TM_JSON_OBJECT) return TEST_IMPOSSIBLE;
    const tm_json_value *a = tm_json_member(metadata, t->a);
    if (t->kind == TEST_HAS) return result(a || (t->b && tm_json_member(metadata, t->b)));
    if (!a) return TEST_PASSED;
    if (t->kind == TEST_IF_HAS) return result(tm_json_member(metadata, t->b) != NULL);
    if (!tm_json_is_number(a)) return TEST_IMPOSSIBLE;
    return result(t->kind == TEST_IF_ABOVE ? a->number > t->lo : a->number >= t->lo);
}

/* The value is lo, or the next multiple of the batch above it. */
static test_result run_rounded_up(const rule_test *t, const tm_json_value *value, const tm_json_value *batch)
{
    if (!tm_json_is_number(batch) || !(batch->number > 0)) return TEST_IMPOSSIBLE;
    return result(tm_json_is_number(value) && same(value->number, ceil(t->lo / batch->number) * batch->number));
}

test_result rule_test_run(const rule_test *t, const tm_mllog_record *r, const rule_memory *memory)
{
    switch (t->kind) {
    case TEST_NONE:
        return TEST_PASSED;
    case TEST_NOT_EMPTY:
        return result(!tm_json_is_text(r->value, ""));
    case TEST_TEXT:
        return result(tm_json_is_text(r->value, t->a));
    case TEST_NUMBER:
        return result(tm_json_is_number(r->value) && same(r->value->number, t->lo));
    case TEST_ONE_OF:
        return result(is_one_of(r->value, t->list));
    case TEST_ABOVE:
    case TEST_NOT_BELOW:
    case TEST_BELOW:
    case TEST_WITHIN:
    case TEST_WHOLE:
        return run_number(t, r->value);
    case TEST_REST:
        if (!tm_json_is_number(memory->warmup)) return TEST_IMPOSSIBLE;
        return result(tm_json_is_number(r->value) && same(r->value->number, t->lo - memory->warmup->number));
    case TEST_ROUNDED_UP:
        return run_rounded_up(t, r->value, memory->batch);
    case TEST_HAS:
    case TEST_IF_HAS:
    case TEST_IF_ABOVE:
    case TEST_IF_NOT_BELOW:
        return run_metadata(t, r->metadata);
    case TEST_IS:
        return result(memory->is[t->state]);
    case TEST_IS_NOT:
        return result(!memory->is[t->state]);
    case TEST_INIT_TIME:
        return result(r->time_ms - memory->first_init_ms < memory->limit_minutes * 60000);
    }
    return TEST_IMPOSSIBLE;
}

/* --- saying ------------------------------------------------------------------------------------------------------- */

static const char *state_name(rule_state state)
{
    static const char *const names[STATE_COUNT] = { "init_started", "init_stopped", "run_started", "run_stopped" };
    return names[state];
}

static const char *number(double value)
{
    static _Thread_local char text[32];
    return tm_format_double(text, value);
}

static void describe_list(const char *const *list, tm_text *out)
{
    tm_text_add(out, "value is one of ");
    for (; *list; list++) tm_text_printf(out, "'%s'%s", *list, list[1] ? ", " : "");
}

static void describe_value(const rule_test *t, tm_text *out)
{
    if (t->kind == TEST_NOT_EMPTY) tm_text_add(out, "value != ''");
    if (t->kind == TEST_TEXT) tm_text_printf(out, "value == '%s'", t->a);
    if (t->kind == TEST_NUMBER) tm_text_printf(out, "value == %s", number(t->lo));
    if (t->kind == TEST_ONE_OF) describe_list(t->list, out);
    if (t->kind == TEST_ABOVE) tm_text_printf(out, "value > %s", number(t->lo));
    if (t->kind == TEST_NOT_BELOW) tm_text_printf(out, "value >= %s", number(t->lo));
    if (t->kind == TEST_BELOW) tm_text_printf(out, "value < %s", number(t->hi));
    if (t->kind == TEST_WHOLE) tm_text_add(out, "value is a whole number");
    if (t->kind == TEST_REST)
        tm_text_printf(out, "value == %s - opt_learning_rate_warmup_steps, which come first", number(t->lo));
    if (t->kind == TEST_ROUNDED_UP)
        tm_text_printf(out, "value == %s rounded up to a multiple of global_batch_size, which comes first",
                       number(t->lo));
    if (t->kind != TEST_WITHIN) return;
    tm_text_printf(out, "%s < value <= ", number(t->lo));
    tm_text_add(out, number(t->hi));
}

static void describe_metadata(const rule_test *t, tm_text *out)
{
    if (t->kind == TEST_HAS && t->b)
        tm_text_printf(out, "metadata has '%s' or '%s'", t->a, t->b);
    else if (t->kind == TEST_HAS)
        tm_text_printf(out, "metadata has '%s'", t->a);
    else if (t->kind == TEST_IF_HAS)
        tm_text_printf(out, "metadata with '%s' has '%s'", t->a, t->b);
    else
        tm_text_printf(out, "'%s' in metadata %s %s", t->a, t->kind == TEST_IF_ABOVE ? ">" : ">=", number(t->lo));
}

static bool of_metadata(rule_test_kind kind)
{
    return kind == TEST_HAS || kind == TEST_IF_HAS || kind == TEST_IF_ABOVE || kind == TEST_IF_NOT_BELOW;
}

void rule_test_describe(const rule_test *t, const rule_memory *memory, tm_text *out)
{
    if (of_metadata(t->kind))
        describe_metadata(t, out);
    else if (t->kind == TEST_IS || t->kind == TEST_IS_NOT)
        tm_text_printf(out, "%s%s", t->kind == TEST_IS ? "" : "not ", state_name(t->state));
    else if (t->kind == TEST_INIT_TIME)
        tm_text_printf(out, "initialisation takes less than %s minutes", number(memory->limit_minutes));
    else
        describe_value(t, out);
}

/* JSON, cut where it gets long. */
static void add_shortened(const tm_json_value *value, tm_text *out)
{
    enum { LIMIT = 160 };
    size_t before = out->length;
    tm_json_print(value, out);
    if (out->length - before <= LIMIT) return;
    out->length = before + LIMIT;
    tm_text_add(out, " ...");
}

void rule_test_found(const rule_test *t, const tm_mllog_record *r, const rule_memory *memory, tm_text *out)
{
    if (of_metadata(t->kind)) {
        tm_text_add(out, "metadata is ");
        add_shortened(r->metadata, out);
    } else if (t->kind == TEST_IS || t->kind == TEST_IS_NOT) {
        tm_text_printf(out, "at this line it is %s", memory->is[t->state] ? "set" : "not set");
    } else if (t->kind == TEST_INIT_TIME) {
        tm_text_printf(out, "it takes %s ms%s", number(r->time_ms - memory->first_init_ms),
                       memory->limit_minutes > 0 ? "" : ", and submission_division has to come before init_stop");
    } else {
        tm_text_add(out, "value is ");
        add_shortened(r->value, out);
        if (t->kind != TEST_REST) return;
        tm_text_add(out, memory->warmup ? ", warm-up is " : ", warm-up steps did not come yet");
        if (memory->warmup) add_shortened(memory->warmup, out);
    }
}
