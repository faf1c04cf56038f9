/* SPDX-License-Identifier: Apache-2.0 */
#include "machine/counts.h"

enum { LANES = 64, BANKS = 32 };

void machine_count_access(machine_counts *counts, machine_memory *memory, const uint64_t *address, uint64_t mask,
                          uint64_t bytes, uint64_t sector, bool write)
{
    machine_use_note(memory, address, mask, bytes, write);
    uint64_t seen[LANES], n = 0;
    for (int i = 0; i < LANES; i++) {
        if (!(mask >> i & 1)) continue;
        uint64_t number = address[i] / sector, k = n;
        while (k && seen[k - 1] != number) k--;
        if (!k) seen[n++] = number;
    }
    *(write ? &counts->written_sectors : &counts->read_sectors) += n;
    *(write ? &counts->written_bytes : &counts->read_bytes) += bytes * (uint64_t)__builtin_popcountll(mask);
}

void machine_count_banks(machine_counts *counts, const uint32_t *address, uint64_t mask, int bytes)
{
    int group = bytes <= 4 ? 32 : bytes == 12 ? 8 : 128 / bytes, words = bytes < 4 ? 1 : bytes / 4;
    for (int first = 0; first < LANES; first += group) {
        uint32_t seen[BANKS][BANKS], n[BANKS] = { 0 }, most = 0;
        for (int i = first; i < first + group; i++) {
            for (int k = 0; mask >> i & 1 && k < words; k++) {
                uint32_t word = address[i] / 4 + (uint32_t)k, bank = word % BANKS, q = 0;
                while (q < n[bank] && seen[bank][q] != word) q++;
                if (q == n[bank]) seen[bank][n[bank]++] = word;
                most = n[bank] > most ? n[bank] : most;
            }
        }
        counts->shared_cycles += most;
        counts->shared_least += most > 0;
    }
}
