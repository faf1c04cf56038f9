/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes hardware files: what is accepted, whole or as a part, has numbers above 0 with sources, and its printed form
 * is read as the same. */
#include "fuzz.h"

#include "plan/hardware.h"

#include <math.h>

static bool read_one(tm_arena *arena, const char *path, bool part, tm_hardware *out)
{
    tm_error  err = { 0 };
    tm_status st = part ? tm_hardware_read_part(arena, path, out, &err) : tm_hardware_read(arena, path, out, &err);
    TM_ASSERT((st == TM_OK) == (err.status == TM_OK));
    TM_ASSERT(st == TM_OK || (tm_status_exit_code(st) == 4 && *err.text));
    return st == TM_OK;
}

static void check(const tm_hardware *hw)
{
    for (int i = 0; i < TM_HARDWARE_NUMBERS; i++) {
        TM_ASSERT(isfinite(hw->number[i]) && hw->number[i] >= 0);
        TM_ASSERT((hw->number[i] > 0) == (hw->source[i] != NULL));
    }
    for (size_t i = 0; i < hw->n_ops; i++) {
        TM_ASSERT(hw->op[i].call >= 0 && hw->op[i].flops >= 0 && hw->op[i].bytes >= 0);
        TM_ASSERT(hw->op[i].call + hw->op[i].flops + hw->op[i].bytes > 0 && *hw->op[i].source);
    }
}

static void compare(const tm_hardware *a, const tm_hardware *b)
{
    TM_ASSERT(strcmp(a->name, b->name) == 0 && strcmp(a->maker, b->maker) == 0 && strcmp(a->arch, b->arch) == 0);
    TM_ASSERT(a->cpu == b->cpu && a->links == b->links && a->n_ops == b->n_ops);
    TM_ASSERT(memcmp(a->number, b->number, sizeof a->number) == 0);
    for (int i = 0; i < TM_HARDWARE_NUMBERS; i++) TM_ASSERT(!a->source[i] || strcmp(a->source[i], b->source[i]) == 0);
    for (size_t i = 0; i < a->n_ops; i++) {
        const tm_hardware_op *x = &a->op[i], *y = &b->op[i];
        TM_ASSERT(strcmp(x->name, y->name) == 0 && strcmp(x->source, y->source) == 0);
        TM_ASSERT(memcmp(&x->call, &y->call, sizeof x->call) == 0 &&
                  memcmp(&x->flops, &y->flops, sizeof x->flops) == 0);
        TM_ASSERT(memcmp(&x->bytes, &y->bytes, sizeof x->bytes) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (int part = 0; part < 2; part++) {
        tm_arena   *arena = tm_arena_create();
        tm_text     text = { 0 };
        tm_hardware first, again;
        if (read_one(arena, fuzz_file("x.yaml", data, size), part, &first)) {
            check(&first);
            tm_hardware_print(&first, &text);
            TM_ASSERT(read_one(arena, fuzz_file("x.yaml", text.data, text.length), part, &again));
            compare(&first, &again);
        }
        tm_text_fini(&text);
        tm_arena_destroy(arena);
    }
    return 0;
}
