/* SPDX-License-Identifier: Apache-2.0 */
/* base/program.h - this program as a file. */
#ifndef TM_BASE_PROGRAM_H
#define TM_BASE_PROGRAM_H

#include "base/status.h"

#include <stdint.h>

enum { TM_PROGRAM_PATH = 4096 };
/* Its path, also if its name has gone. TM_INTERNAL, with the system's reason. */
TM_MUST_USE tm_status tm_program_path(char out[TM_PROGRAM_PATH], tm_error *err);
uint64_t              tm_program_hash(void); /* of the file that this process has been started from */

#endif
