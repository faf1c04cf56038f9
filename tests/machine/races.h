/* SPDX-License-Identifier: Apache-2.0 */
/* Who touched which byte, and when: races in global memory and in LDS (shared memory). For the interpreters.
 *
 * Global memory: two blocks must not touch a byte in one launch, one of them writing; nor two waves (warps) of a block
 * between two barriers. LDS: the same for the waves of a block. A wave is in order in itself:
 * compilers leave out the barriers of a block that is one wave.
 */
#ifndef TESTS_MACHINE_RACES_H
#define TESTS_MACHINE_RACES_H

#include "machine/machine.h"

enum { MACHINE_RACE_ROOM = 200 };

typedef enum machine_touch {
    MACHINE_READS,
    MACHINE_READS_CONSTANT, /* through a cache that does not see this launch's stores */
    MACHINE_WRITES,
} machine_touch;

/* --- global memory ------------------------------------------------------------------------------- */

/* A wave at work. Epochs count barriers, on and on in a launch: a block begins with one of its own. */
typedef struct machine_actor {
    uint32_t wave, epoch, group_epoch; /* below 30; now; the block's first */
} machine_actor;

/* Notes that lanes of `mask` of `actor` touch `bytes` each, inside of allocations. False: a race, which `why`
 * describes. */
bool machine_note_global(machine_memory *memory, machine_actor actor, machine_touch touch, uint64_t mask,
                         const uint64_t address[64], uint64_t bytes, char why[MACHINE_RACE_ROOM]);

/* Lanes of one store that write the same place must write the same: nothing says who is last. `words` of each lane's
 * data are in data[0] to data[words - 1]. */
bool machine_lanes_agree(uint64_t mask, const uint64_t address[64], uint32_t data[][64], int words,
                         char why[MACHINE_RACE_ROOM]);

/* --- LDS ----------------------------------------------------------------------------------------- */

/* A block's LDS: an entry for each unit of 1 << shift bytes, the smallest access that its kernel has. */
typedef struct machine_shadow {
    uint32_t *writer, *reader, epoch;
    int       shift;
} machine_shadow;

/* Nobody has touched anything; at a barrier: from now on others may. */
void machine_shadow_begin(machine_shadow *s, uint32_t bytes, int shift);
void machine_shadow_clear(machine_shadow *s, uint32_t bytes); /* for another block */
void machine_shadow_end(machine_shadow *s);

/* Lanes of `mask` touch `bytes` each, aligned, at their places. False: a race. */
bool machine_note_shared(machine_shadow *s, uint32_t wave, uint64_t mask, const uint32_t *at, int bytes, bool write,
                         char why[MACHINE_RACE_ROOM]);

#endif
