/* SPDX-License-Identifier: Apache-2.0 */
/* apps/check/report.h - checks on paper: lines for people, a table, JSON for a node, lists of nodes. */
#ifndef TM_SYSTEM_CHECK_REPORT_H
#define TM_SYSTEM_CHECK_REPORT_H

#include "base/table.h"
#include "apps/check/check.h"

typedef struct {
    size_t width;   /* characters of a line; 0: lines are not wrapped */
    bool   colour;  /* the states */
    bool   verbose; /* every check by itself, with expectation and source */
} tm_check_view;

/* A line per check, those that warn or fail with expectation, source and remedy; those of a group that are skipped for
 * one reason as one line; a summary line. */
void tm_checks_print(const tm_checks *checks, const tm_check_view *view, tm_text *out);
/* Columns id, group, status, observed, expected, source, remedy. The caller destroys it. */
tm_table *tm_checks_table(const tm_checks *checks);
/* "trainmark.check/1": host, time, verdict, counts, and the results whole. */
void tm_checks_print_json(const tm_checks *checks, tm_text *out);
/* The same back, from `bytes` of text. TM_FORMAT, with what is wrong; `name` stands for the file in messages. Free
 * *checks in any case. */
TM_MUST_USE tm_status tm_checks_parse(const char *text, size_t bytes, const char *name, tm_checks *checks,
                                      tm_error *err);

/* Writes <folder>/smoke/<host>.json. */
TM_MUST_USE tm_status tm_checks_dump(const tm_checks *checks, const char *folder, tm_error *err);

/* Reads all of <folder>/smoke/ and writes in <folder>: smoke_report.md, passing_nodes.txt, failing_nodes.txt and
 * expected_nodes.txt, short host names, one per line, sorted. `expected` is a file of host names (one per line, '#'
 * comments), NULL: those that reported. An expected node without a report, or with one that cannot be read, is a FAIL
 * placeholder; one that reported but was not expected counts, and is noted. Figures that must be equal on all nodes
 * (os, kernel, cmdline, versions) and clocks more than 30 s apart become warnings of the report.
 * *failing is the number of failing nodes. TM_INVALID if there is no node at all. */
TM_MUST_USE tm_status tm_checks_aggregate(const char *folder, const char *expected, size_t *passing, size_t *failing,
                                          tm_error *err);

#endif
