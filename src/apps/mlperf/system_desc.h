/* SPDX-License-Identifier: Apache-2.0 */
/* apps/mlperf/system_desc.h - the description of a system, systems/NAME.json of a submission: one flat object of texts.
 */
#ifndef TM_MLPERF_SYSTEM_DESC_H
#define TM_MLPERF_SYSTEM_DESC_H

#include "apps/mlperf/notes.h"
#include "apps/mlperf/value.h"

#include <stdbool.h>

enum { TM_SYSTEM_DESC_BYTES = 1 << 20 }; /* most that is read */

typedef struct {
    const char          *name;   /* "BOX" of systems/BOX.json */
    const tm_json_value *object; /* NULL: no JSON object */
    bool                 closed; /* its division is "closed" */
    tm_notes             errors, warnings;
} tm_system_desc;

/* All that is wrong is named, not only the first. Lives in `arena`. */
tm_system_desc tm_system_desc_check(const char *name, const char *bytes, size_t n, tm_arena *arena);

/* A member's text; "" if it is not there or no text. */
const char *tm_system_desc_text(const tm_system_desc *desc, const char *member);
/* a * b of two members that read as integers; -1 if one does not or the product is above 10^9. */
long long tm_system_desc_product(const tm_system_desc *desc, const char *a, const char *b, tm_arena *arena);

#endif
