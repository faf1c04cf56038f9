/* SPDX-License-Identifier: Apache-2.0 */
/* results/certificate_parts.h - private to the room: the members of a certificate. */
#ifndef TM_RESULTS_CERTIFICATE_PARTS_H
#define TM_RESULTS_CERTIFICATE_PARTS_H

#include "results/internal.h"

const char   *certificate_text(const json_t *object, const char *member);   /* "": none */
double        certificate_number(const json_t *object, const char *member); /* NAN: none */
json_t       *certificate_checks(const tm_result *certificate);
const json_t *certificate_node(const tm_result *certificate, json_int_t rank); /* NULL: none */
/* The host of a figure, fact or finding, "": none. */
const char *certificate_host(const tm_result *certificate, const json_t *entry);
/* Appends "HOST, rank 3, core 5". */
void certificate_place(const tm_result *certificate, const json_t *finding, tm_text *out);

#endif
