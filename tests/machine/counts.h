/* SPDX-License-Identifier: Apache-2.0 */
/* What both interpreters count of a wave's (warp's) access to memory. */
#ifndef TESTS_MACHINE_COUNTS_H
#define TESTS_MACHINE_COUNTS_H

#include "machine/machine.h"

/* Global memory: each of up to 64 lanes of `mask` asks for `bytes` at its address; the units of `sector` bytes that
 * they touch, each once. What the allocations are asked for is noted in `memory`. */
void machine_count_access(machine_counts *counts, machine_memory *memory, const uint64_t *address, uint64_t mask,
                          uint64_t bytes, uint64_t sector, bool write);

/* LDS or shared memory with 32 banks of 4 bytes: lanes go in groups that ask for 128 bytes; each further word of a bank
 * costs them a cycle. */
void machine_count_banks(machine_counts *counts, const uint32_t *address, uint64_t mask, int bytes);

#endif
