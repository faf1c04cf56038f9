/* SPDX-License-Identifier: Apache-2.0 */
#include "machine/trial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const machine_order trial_lazy = { .skip = -1 };

static const char head[] = ".version 9.0\n.target sm_90a\n.address_size 64\n"
                           ".extern .shared .align 1024 .b8 dynamic[];\n"
                           ".visible .entry k(.param .u64 p0, .param .u64 p1, .param .u32 p2,\n"
                           ".param .align 64 .b8 p3[128])\n{\n"
                           ".reg .pred %p<20>;\n.reg .b16 %h<20>;\n.reg .b32 %r<120>;\n.reg .f32 %f<160>;\n"
                           ".reg .b64 %d<40>;\n.shared .align 1024 .b8 s[8192];\n.shared .align 8 .b8 bars[32];\n"
                           "ld.param.u64 %d0, [p0];\nld.param.u64 %d1, [p1];\nld.param.u32 %r0, [p2];\n"
                           "mov.b64 %d2, p3;\ncvta.param.u64 %d2, %d2;\nmov.u32 %r1, %tid.x;\n"
                           "mov.u32 %r2, s;\nmov.u32 %r3, bars;\n";

trial trial_begin(uint32_t threads)
{
    trial t = { .memory = machine_memory_new(), .threads = threads, .blocks = 1 };
    t.in = machine_alloc(t.memory, TRIAL_WORDS * 4);
    t.out = machine_alloc(t.memory, TRIAL_WORDS * 4);
    return t;
}

void trial_end(trial *t)
{
    machine_memory_free(t->memory);
}

void *trial_in_of(trial *t)
{
    return machine_at(t->memory, t->in, TRIAL_WORDS * 4);
}

void *trial_out_of(trial *t)
{
    return machine_at(t->memory, t->out, TRIAL_WORDS * 4);
}

/* The text of kernel k with a body; "\n" behind each `;` gives it lines. The caller frees it. */
char *trial_text(const char *body)
{
    char *text = calloc(1, TRIAL_TEXT);
    assert_non_null(text);
    size_t n = (size_t)snprintf(text, TRIAL_TEXT, "%s", head);
    for (; *body && n + 16 < TRIAL_TEXT; body++) {
        text[n++] = *body;
        if (*body == ';') text[n++] = '\n';
    }
    strcpy(text + n, "ret;\n}\n");
    return text;
}

bool trial_run(trial *t, const char *body, const machine_order *order)
{
    struct {
        uint64_t in, out;
        uint32_t number, pad[11];
        uint8_t  map[128];
    } arguments = { .in = t->in, .out = t->out, .number = t->number };
    memcpy(arguments.map, t->map, sizeof t->map);
    char           *text = trial_text(body);
    machine_module *m = machine_load_ptx(text, t->error);
    machine_launch  l = { .kernel = "k",
                          .blocks = { t->blocks, 1, 1 },
                          .threads = { t->threads, 1, 1 },
                          .dynamic_shared = t->dynamic,
                          .arguments = &arguments,
                          .argument_bytes = sizeof arguments };
    bool            fine = m && machine_run(m, t->memory, &l, order, &t->counts, t->error);
    machine_unload(m);
    free(text);
    return fine;
}

void trial_must_run(trial *t, const char *body)
{
    if (!trial_run(t, body, &trial_lazy)) fail_msg("%s", t->error);
}

int trial_small(int row, int column, int salt)
{
    return (row * 7 + column * 13 + salt * 5 + row * column) % 9 - 4;
}

uint32_t trial_bf16(int v)
{
    float    f = (float)v;
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u >> 16;
}

/* {%f10, ..., %f41} */
static const char *accumulators(void)
{
    static char list[256];
    int         n = 0;
    for (int i = 0; i < 32; i++) n += snprintf(list + n, sizeof list - (size_t)n, "%s%%f%d", i ? "," : "{", 10 + i);
    strcpy(list + n, "}");
    return list;
}

#define DESCRIPTOR(to, at, lead)                                                                                       \
    "shr.u32 %r90, " at ", 4; cvt.u64.u32 " to ", %r90; add.s64 " to ", " to ", " lead "; add.s64 " to ", " to         \
    ", 4611686293305294848;" /* 1024 between groups of 8 rows, 128-byte swizzle */

char *trial_wgmma_body(const char *fence, const char *before, const char *add, const char *after, int transposed)
{
    char *body = calloc(1, TRIAL_TEXT);
    assert_non_null(body);
    int n = snprintf(body, TRIAL_TEXT, "%s %s bar.sync 0; add.s32 %%r87, %%r80, 8192;", TRIAL_FILL, fence);
    n += snprintf(body + n, (size_t)(TRIAL_TEXT - n), "%s%s", DESCRIPTOR("%d10", "%r80", "65536"),
                  DESCRIPTOR("%d11", "%r87", "65536"));
    for (int i = 0; i < 32; i++)
        n += snprintf(body + n, (size_t)(TRIAL_TEXT - n), "mov.f32 %%f%d, 0f3F800000;", 10 + i);
    n += snprintf(body + n, (size_t)(TRIAL_TEXT - n),
                  "%s wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 %s, %%d10, %%d11, %s, 1, 1, 0, %d; %s",
                  before, accumulators(), add, transposed, after);
    n += snprintf(body + n, (size_t)(TRIAL_TEXT - n), "mul.wide.u32 %%d5, %%r1, 128; add.s64 %%d5, %%d5, %%d1;");
    for (int i = 0; i < 32; i++)
        n += snprintf(body + n, (size_t)(TRIAL_TEXT - n), "st.global.f32 [%%d5+%d], %%f%d;", 4 * i, 10 + i);
    return body;
}

trial trial_wgmma(int transposed)
{
    trial     t = trial_begin(128);
    uint16_t *in = trial_in_of(&t);
    t.dynamic = 16384;
    /* Swizzle of 128 bytes: the 16-byte chunk c of a row of 128 bytes is at chunk c xor (row % 8). */
    for (int row = 0; row < 64; row++)
        for (int k = 0; k < 64; k++) {
            int at = row * 64 + ((k / 8) ^ (row % 8)) * 8 + k % 8;
            in[at] = (uint16_t)trial_bf16(trial_small(row, k, 1));
            in[4096 + at] = (uint16_t)trial_bf16(transposed ? trial_small(row, k, 2) : trial_small(k, row, 2));
        }
    return t;
}
