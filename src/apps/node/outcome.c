/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/outcome.c - what a check found: figures, facts and findings. */
#include "apps/node/node.h"

#include "base/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

const char *tm_node_verdict_name(tm_node_verdict verdict)
{
    static const char *const names[TM_NODE_VERDICTS] = { "pass", "fail", "no verdict", "skip" };
    return names[verdict];
}

void tm_node_outcome_fini(tm_node_outcome *outcome)
{
    free(outcome->figures);
    free(outcome->facts);
    free(outcome->findings);
    free(outcome->told);
    *outcome = (tm_node_outcome){ 0 };
}

void tm_node_figure_add(tm_node_outcome *outcome, const tm_node_figure *figure)
{
    outcome->figures = tm_grow(outcome->figures, &outcome->room[0], outcome->n_figures, sizeof *figure);
    outcome->figures[outcome->n_figures++] = *figure;
}

void tm_node_fact_add(tm_node_outcome *outcome, const char *name, const char *place, bool kept, const char *text)
{
    tm_node_fact fact = { .kept = kept };
    snprintf(fact.name, sizeof fact.name, "%s", name);
    snprintf(fact.place, sizeof fact.place, "%s", place);
    snprintf(fact.text, sizeof fact.text, "%s", text);
    outcome->facts = tm_grow(outcome->facts, &outcome->room[1], outcome->n_facts, sizeof fact);
    outcome->facts[outcome->n_facts++] = fact;
}

__attribute__((format(printf, 3, 0))) static tm_node_finding finding_of(int rank, const char *place, const char *format,
                                                                        va_list list)
{
    tm_node_finding finding = { .rank = rank };
    vsnprintf(finding.text, sizeof finding.text, format, list);
    snprintf(finding.place, sizeof finding.place, "%s", place);
    return finding;
}

void tm_node_find(tm_node_outcome *outcome, int rank, const char *place, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    outcome->findings = tm_grow(outcome->findings, &outcome->room[2], outcome->n_findings, sizeof *outcome->findings);
    outcome->findings[outcome->n_findings++] = finding_of(rank, place, format, list);
    va_end(list);
    outcome->verdict = TM_NODE_FAIL;
}

void tm_node_tell(tm_node_outcome *outcome, int rank, const char *place, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    outcome->told = tm_grow(outcome->told, &outcome->room[3], outcome->n_told, sizeof *outcome->told);
    outcome->told[outcome->n_told++] = finding_of(rank, place, format, list);
    va_end(list);
}

__attribute__((format(printf, 2, 0))) static void say(char text[TM_NODE_TEXT], const char *format, va_list list)
{
    vsnprintf(text, TM_NODE_TEXT, format, list);
}

void tm_node_skip(tm_node_outcome *outcome, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    say(outcome->reason, format, list);
    va_end(list);
    outcome->verdict = TM_NODE_SKIP;
}

void tm_node_undecided(tm_node_outcome *outcome, const char *format, ...)
{
    va_list list;
    if (outcome->verdict == TM_NODE_FAIL) return; /* what was found stays found */
    va_start(list, format);
    say(outcome->reason, format, list);
    va_end(list);
    outcome->verdict = TM_NODE_NO_VERDICT;
}

void tm_node_reach(tm_node_outcome *outcome, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    say(outcome->reach, format, list);
    va_end(list);
}
