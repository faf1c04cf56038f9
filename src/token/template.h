/* SPDX-License-Identifier: Apache-2.0 */
/* token/template.h - chat templates: the part of the Jinja language that models' `chat_template` use, rendered as
 * transformers renders it (trim_blocks, lstrip_blocks, no escaping; json.dumps for tojson). docs/fine-tuning.md has the
 * list of what there is; anything else is refused by its name when a template is parsed.
 *
 * A template is constant after it was parsed; any number of threads may render it. */
#ifndef TM_TOKEN_TEMPLATE_H
#define TM_TOKEN_TEMPLATE_H

#include "base/status.h"
#include "base/text.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tm_template tm_template;

/* `name` is for messages; the text need not outlive the call. TM_FORMAT: not the language, with the line;
 * TM_UNSUPPORTED: a tag, filter, test or function that is not there. */
TM_MUST_USE tm_status tm_template_parse(const char *name, const char *text, size_t bytes, tm_template **out,
                                        tm_error *err);
void                  tm_template_free(tm_template *tmpl); /* NULL is fine */

/* What lies between {% generation %} and {% endgeneration %}: bytes [begin, end) of the result. */
typedef struct {
    size_t begin, end;
} tm_template_span;
typedef struct {
    tm_template_span *data;
    size_t            count, capacity;
} tm_template_spans;

/* Appends the text for the variables, an object. `spans` may be NULL; else free(spans->data). `now`: seconds since
 * 1970, for strftime_now. TM_INVALID, with the line: what the template raises, or what its operations do not take. */
TM_MUST_USE tm_status tm_template_render(const tm_template *tmpl, const json_t *variables, int64_t now, tm_text *out,
                                         tm_template_spans *spans, tm_error *err);
/* Does the template mark what a model is to generate? */
bool tm_template_marks_generation(const tm_template *tmpl);

#endif
