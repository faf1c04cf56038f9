/* SPDX-License-Identifier: Apache-2.0 */
/* base/program.h - this program as a file. */
#ifndef TM_BASE_PROGRAM_H
#define TM_BASE_PROGRAM_H

#include <stdint.h>

uint64_t tm_program_hash(void); /* of the file that this process has been started from */

#endif
