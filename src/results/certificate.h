/* SPDX-License-Identifier: Apache-2.0 */
/* results/certificate.h - certificates of nodes (`trainmark certify`), read again: sealed and verified, as a table and
 * a page for people, and many of them beside each other (docs/certify.md). */
#ifndef TM_RESULTS_CERTIFICATE_H
#define TM_RESULTS_CERTIFICATE_H

#include "base/table.h"
#include "base/text.h"
#include "results/result.h"

#include <stddef.h>

/* Ends the document of a certificate, an object that is open and not empty: its last member is "hash", the SHA-256 of
 * all the text before it, in hexadecimal. Secrets are masked before. */
void tm_results_seal(tm_text *document);

/* Rows: figure, written, recomputed, verdict ("ok", "differs"): the hash from the text, the verdict of each check from
 * its findings, that of the certificate from its checks. *wrong: how many differ. The caller destroys the table. */
tm_table *tm_results_certificate_verify(const tm_result *certificate, size_t *wrong);

/* A row for each check: id, verdict, the number that matters with its interval, reach or reason; notes: what was found
 * and what is told, each with host, rank and place. At most `most` notes of findings, the last one says how many more.
 * The caller destroys it. */
tm_table *tm_results_certificate_table(const tm_result *certificate, size_t most);

/* The verdict of a check for one host: fail only if a finding is of one of its ranks. */
const char *tm_results_certificate_of_host(const tm_result *certificate, size_t check, const char *host);

/* Appends the page: verdict, checks, findings, every figure and fact. */
void tm_results_certificate_page(const tm_result *certificate, tm_text *out);

/* Many certificates, of many nodes and times. `nodes`: a row for each node with its latest certificate: node, finished,
 * verdict, and a column for each check. `details`: rows of host, check, item, value, unit, others (the median of the
 * latest of the other nodes of its kind), difference_percent, before, before_on, for every figure that is compared and
 * every fact that has changed since the node's certificate before. *failed: nodes whose latest verdict is fail.
 * TM_INVALID: one of the n >= 1 results is no certificate. The caller destroys both tables. */
TM_MUST_USE tm_status tm_results_certificates(const tm_result *const *certificates, size_t n, tm_table **nodes,
                                              tm_table **details, size_t *failed, tm_error *err);
/* Appends both tables as a page. */
void tm_results_certificates_page(const tm_table *nodes, const tm_table *details, tm_text *out);

#endif
