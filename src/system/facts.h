/* SPDX-License-Identifier: Apache-2.0 */
/* system/facts.h - private to the room: the list behind tm_environment, and the probes that fill it. */
#ifndef TM_SYSTEM_FACTS_H
#define TM_SYSTEM_FACTS_H

#include "base/arena.h"
#include "system/environment.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum { FACT_TEXT, FACT_NUMBER, FACT_BOOL, FACT_UNKNOWN } fact_kind;

typedef struct {
    const char *section, *item, *name; /* item may be NULL */
    fact_kind   kind;
    const char *text;   /* the value, for every kind but FACT_UNKNOWN; there the reason */
    double      number; /* FACT_NUMBER, FACT_BOOL */
} fact;

struct tm_environment {
    tm_arena   *arena;
    fact       *facts; /* those of a section, and of an item within it, stand together */
    size_t      count, capacity;
    const char *sysroot;
    const char *section, *item; /* of the facts added next */
};

/* Strings are copied. A NULL or empty text is unknown for `reason`. */
void fact_section(tm_environment *e, const char *section);
void fact_item(tm_environment *e, const char *item); /* NULL: back to the section */
void fact_text(tm_environment *e, const char *name, const char *text, const char *reason);
void fact_number(tm_environment *e, const char *name, double number);
void fact_bool(tm_environment *e, const char *name, bool value);
void fact_unknown(tm_environment *e, const char *name, const char *reason);

/* "<sysroot><path>", from the arena. */
const char *fact_path(tm_environment *e, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A fact that is the content of a file; unreadable: unknown with the cause. */
void fact_file(tm_environment *e, const char *name, const char *path);
/* The value after `key` and a separator (':' or '=') in a text of lines, without quotes, from the arena; NULL if none.
 */
const char *fact_field(tm_environment *e, const char *lines, const char *key);
/* All of a /proc file, from the arena; NULL if unreadable. */
const char *fact_content(tm_environment *e, const char *path);

void probe_cpu(tm_environment *e);
void probe_memory(tm_environment *e);
void probe_board(tm_environment *e);
void probe_disks(tm_environment *e);
void probe_system(tm_environment *e);  /* os, drivers, settings, control group */
void probe_program(tm_environment *e); /* build, libraries, variables, process */

#endif
