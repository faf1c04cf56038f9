/* SPDX-License-Identifier: Apache-2.0 */
/* system/environment.h - what a result was measured on and with: processor, memory, board, disks, system, drivers,
 * kernel settings, control group, build, loaded libraries, recorded environment variables, command line.
 *
 * A fact that cannot be read is kept as null, with the reason. Values that could hold a secret are never stored (see
 * base/secret.h).
 */
#ifndef TM_SYSTEM_ENVIRONMENT_H
#define TM_SYSTEM_ENVIRONMENT_H

#include "base/json.h"
#include "base/text.h"

typedef struct tm_environment tm_environment;

/* Reads everything that describes the machine below `sysroot` ("" for the running system; a folder with copies of
 * /proc, /sys and /etc in tests); what describes the process itself (libraries, variables, build) is always the running
 * one's. Takes some tens of milliseconds. Never NULL; the caller destroys it. Sets and restores hwloc's variables for
 * the length of the call: no other thread may be reading the environment meanwhile. */
tm_environment *tm_environment_read(const char *sysroot);
void            tm_environment_destroy(tm_environment *environment); /* NULL is fine */

/* The value of one fact as text ("cpu", NULL, "model"), or NULL if unknown; `item` is a disk, library or module, or
 * NULL. */
const char *tm_environment_text(const tm_environment *environment, const char *section, const char *item,
                                const char *name);

/* The recorded variables that runtimes and libraries of GPUs read, as options of a container that would have the same:
 * "-e HSA_NO_SCRATCH_RECLAIM=1 -e NCCL_DEBUG=INFO". Sorted by name; values with blanks are quoted for a shell. */
void tm_environment_print_options(const tm_environment *environment, tm_text *out);

/* One object, a member per section; facts without a value are null and their reasons stand in the member "unknown". */
void tm_environment_print_json(const tm_environment *environment, tm_json *json, const char *key);
/* Lines `key,value` after a header line; keys are section.name or section.item.name; an unknown value is empty. */
void tm_environment_print_csv(const tm_environment *environment, tm_text *out);

#endif
