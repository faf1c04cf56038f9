/* SPDX-License-Identifier: Apache-2.0 */
/* train/pipeline/names.c - stages of a pipeline by the names of their modules (TorchTitan's
 * module_fqns_per_model_part).
 */
#include "train/pipeline/names.h"

#include "base/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char           *key, *place;
    const tm_model_shape *shape;
    tm_model_module      *modules; /* (n), in the order of the model */
    int                  *stage;   /* (n) that has it; -1: none has */
    int64_t               n;
    int                   stages;
    tm_error             *err;
} names;

/* "tok_embeddings, layers.0 .. layers.5, norm, output" */
static void list_modules(const names *s, tm_text *out)
{
    const int64_t blocks = tm_model_blocks(s->shape), kind = s->shape->n_layers;
    for (int64_t i = 0; i < s->n; i++) {
        int64_t b = s->modules[i].block;
        bool    inside = b >= 0 && b < blocks, first = b == 0 || b == kind, last = b == kind - 1 || b == blocks - 1;
        if (!inside || first || last)
            tm_text_printf(out, "%s%s", i == 0 ? "" : inside && !first ? " .. " : ", ", s->modules[i].name);
    }
}

static tm_status put(names *s, const char *name, size_t length)
{
    int64_t i = 0;
    while (i < s->n && (strlen(s->modules[i].name) != length || strncmp(s->modules[i].name, name, length) != 0)) i++;
    if (i == s->n) {
        tm_text all = { 0 };
        list_modules(s, &all);
        tm_fail(s->err, TM_INVALID, "%s (%s): stage %d has '%.*s', which the model does not have; its modules are %s",
                s->key, s->place, s->stages, (int)(length < 60 ? length : 60), name, all.data);
        tm_text_fini(&all);
        return TM_INVALID;
    }
    if (s->stage[i] >= 0)
        return tm_fail(s->err, TM_INVALID, "%s (%s): '%s' is in stage %d and in stage %d; leave it out of one", s->key,
                       s->place, s->modules[i].name, s->stage[i], s->stages);
    s->stage[i] = s->stages;
    return TM_OK;
}

/* "x|y,z": which stage has which module. */
static tm_status read(names *s, const char *text)
{
    while (true) {
        size_t all = strcspn(text, ",");
        if (all == 0)
            return tm_fail(s->err, TM_INVALID, "%s (%s): stage %d has no modules; give it some, or leave it out",
                           s->key, s->place, s->stages);
        for (const char *p = text, *end = text + all; p < end;) {
            size_t n = strcspn(p, "|,");
            TM_TRY(put(s, p, n));
            p += n + 1;
        }
        s->stages++;
        if (!text[all]) return TM_OK;
        text += all + 1;
    }
}

/* Every module is in a stage, none behind one that comes later, and what lies around the blocks at the ends. */
static tm_status check(const names *s)
{
    for (int64_t i = 0; i < s->n; i++)
        if (s->stage[i] < 0)
            return tm_fail(s->err, TM_INVALID, "%s (%s): '%s' is in none of the %d stages; add it to one", s->key,
                           s->place, s->modules[i].name, s->stages);
    for (int64_t i = 0; i < s->n; i++) {
        const char *name = s->modules[i].name;
        int         here = s->stage[i];
        if (s->modules[i].block < 0 && here != 0)
            return tm_fail(s->err, TM_INVALID,
                           "%s (%s): '%s' is in stage %d; what lies in front of the blocks must be in stage 0", s->key,
                           s->place, name, here);
        if (s->modules[i].block == tm_model_blocks(s->shape) && here != s->stages - 1)
            return tm_fail(s->err, TM_INVALID,
                           "%s (%s): '%s' is in stage %d; what lies behind the blocks must be in the last one, %d",
                           s->key, s->place, name, here, s->stages - 1);
        if (i > 0 && here < s->stage[i - 1])
            return tm_fail(s->err, TM_INVALID,
                           "%s (%s): '%s' is in stage %d, and '%s', which comes before it, in stage %d; stages must "
                           "follow the order of the model",
                           s->key, s->place, name, here, s->modules[i - 1].name, s->stage[i - 1]);
    }
    return TM_OK;
}

tm_status stage_names_read(const char *text, const char *place, const tm_model_shape *shape, tm_arena *arena,
                           int *stages, const int **first, tm_error *err)
{
    names     s = { .key = "parallelism.module_fqns_per_model_part", .place = place, .shape = shape, .err = err };
    tm_arena *scratch = tm_arena_create();
    int64_t   most = tm_model_blocks(shape) + 16;
    s.modules = tm_arena_take(scratch, (size_t)most * sizeof *s.modules);
    s.stage = tm_arena_take(scratch, (size_t)most * sizeof *s.stage);
    while (tm_model_module_at(shape, s.n, &s.modules[s.n])) {
        TM_ASSERT(s.n + 1 < most);
        s.stage[s.n++] = -1;
    }
    tm_status st = read(&s, text);
    if (st == TM_OK) st = check(&s);
    if (st == TM_OK) {
        int *begins = tm_arena_take(arena, (size_t)s.stages * sizeof *begins); /* zeros */
        for (int stage = 0; stage < s.stages; stage++)
            for (int64_t i = 0; i < s.n; i++)
                begins[stage] += s.modules[i].block >= 0 && s.stage[i] < stage; /* what is behind is in the last one */
        *stages = s.stages;
        *first = begins;
    }
    tm_arena_destroy(scratch);
    return st;
}
