/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/certificate.h - what all checks of all ranks come to: judged beside the fleet, and written as one document
 * (docs/certify.md). */
#ifndef TM_NODE_CERTIFICATE_H
#define TM_NODE_CERTIFICATE_H

#include "base/text.h"
#include "apps/node/node.h"

typedef struct {
    const tm_node_options *options;
    const tm_node_site    *sites; /* by rank */
    int                    ranks;
    tm_node_outcome       *outcomes; /* gathered, (count of tm_node_checks) */
    double                 seconds;  /* that all took */
} tm_node_certificate;

/* Compares what was gathered (apps/node/judge.h) within this certificate and with those in a store of results; store
 * NULL: there is none. Called by the first rank. TM_IO, TM_FORMAT: the store cannot be read. */
TM_MUST_USE tm_status tm_node_judge_all(tm_node_certificate *certificate, const char *store, tm_error *err);

/* A list of expected hosts: names, one a line; blank lines and what follows # are nothing. How many are there? */
size_t tm_node_expected(const char *expected);
/* Adds a finding to the check `host` for each of them that did not come. A name without a domain is that of a host with
 * one. */
void tm_node_expect(tm_node_certificate *certificate, const char *expected);

/* The worst of all checks: fail, no verdict, pass; SKIP if all skip. */
tm_node_verdict tm_node_whole_verdict(const tm_node_certificate *certificate);

/* Appends the document, "trainmark.certificate/1", with its seal (results/certificate.h). */
void tm_node_print(const tm_node_certificate *certificate, tm_text *out);

#endif
