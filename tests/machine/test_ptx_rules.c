/* SPDX-License-Identifier: Apache-2.0 */
/* Each rule of memory, of time and of convergence: a text that keeps it runs in every order, with the same bits; one
 * that does not is named in every order. What cannot be read is named with its line. */
#include "machine/trial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const machine_order orders[] = {
    { true, 0, false, -1 }, { false, 0, false, -1 }, { false, 1, false, -1 }, { false, 7, false, -1 }
};

/* Thread t's word of shared memory (%r4), and its neighbor's, t ^ 1 (%r5). */
#define WORD "mad.lo.s32 %r4, %r1, 4, %r2; xor.b32 %r6, %r1, 1; mad.lo.s32 %r5, %r6, 4, %r2;"
/* Another warp's. */
#define FAR "mad.lo.s32 %r4, %r1, 4, %r2; xor.b32 %r6, %r1, 32; mad.lo.s32 %r5, %r6, 4, %r2;"
#define OUT TRIAL_TO_OUT "st.global.u32 [%d5], %r7;"
#define MINE "st.shared.u32 [%r4], %r1;"
#define OTHERS "ld.shared.u32 %r7, [%r5];"
#define FIRST "setp.eq.s32 %p1, %r1, 0; setp.ne.s32 %p2, %r1, 0;"
#define INIT "@%p1 mbarrier.init.shared::cta.b64 [%r3], 1;"
#define FENCE_INIT "@%p1 fence.mbarrier_init.release.cluster;"
#define AWAIT(label) label ": mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r3], 0; @!%p3 bra " label ";"
#define EXPECT(bytes) "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], " bytes ";"
#define BULK(to, bytes)                                                                                                \
    "@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [" to "], [%d0], " bytes ", [%r3];"
#define COPY                                                                                                           \
    "mad.lo.s32 %r4, %r1, 16, %r2; mul.wide.u32 %d4, %r1, 16; add.s64 %d4, %d4, %d0; cp.async.cg.shared.global "       \
    "[%r4], [%d4], 16;"
#define COMMIT "cp.async.commit_group;"
#define WAIT "cp.async.wait_group 0;"
#define READ_OWN "ld.shared.u32 %r7, [%r4];" OUT

/* 16 bits each, of one's own and of another warp's thread. */
#define SHARED_HALF "mad.lo.s32 %r4, %r1, 2, %r2; cvt.u16.u32 %h1, %r1; st.shared.u16 [%r4], %h1;"
#define OTHER_SHARED_HALF                                                                                              \
    "xor.b32 %r6, %r1, 32; mad.lo.s32 %r6, %r6, 2, %r2; ld.shared.u16 %h2, [%r6]; cvt.u32.u16 %r7, %h2;"
#define GLOBAL_HALF "mul.wide.u32 %d6, %r1, 2; add.s64 %d6, %d6, %d0; cvt.u16.u32 %h1, %r1; st.global.u16 [%d6], %h1;"
#define OTHER_GLOBAL_HALF                                                                                              \
    "xor.b32 %r6, %r1, 32; mul.wide.u32 %d7, %r6, 2; add.s64 %d7, %d7, %d0; ld.global.u16 %h2, [%d7];"                 \
    "cvt.u32.u16 %r7, %h2;"

/* What only the text that keeps the rule has; what each of the two has. */
#define ONLY(right) OR(right, "")
#define OR(right, wrong) "<" right "|" wrong ">"
#define BARRIER "bar.sync 0;"
#define READY FIRST INIT FENCE_INIT BARRIER

typedef struct rule {
    const char *name;
    uint32_t    threads, blocks;
    const char *text, *words;
} rule;

static const rule rules[] = {
    { "a barrier between a store and another thread's load", 64, 1, FAR MINE ONLY(BARRIER) OTHERS OUT,
      "another thread" },
    { "a barrier before the next store", 64, 1, FAR MINE BARRIER OTHERS ONLY(BARRIER) MINE OUT, "another thread" },
    { "halves of shared words", 64, 1, SHARED_HALF ONLY(BARRIER) OTHER_SHARED_HALF OUT, "another thread" },
    { "halves of global words", 64, 1, GLOBAL_HALF ONLY(BARRIER) OTHER_GLOBAL_HALF OUT, "another thread" },
    { "lanes of a warp meet", 32, 1, WORD MINE ONLY("bar.warp.sync -1;") OTHERS OUT, "another thread" },
    { "lanes remember whom they have met", 32, 1,
      WORD MINE
      "setp.eq.s32 %p1, %r1, 1; setp.eq.s32 %p2, %r1, 2; setp.lt.u32 %p3, %r1, 2; or.pred %p2, %p1, %p2;" ONLY(
          "@%p2 bar.warp.sync 6;") "@%p3 bar.warp.sync 3; @%p1 ld.shared.u32 %r7, [%r4+4];" OUT,
      "another thread" },
    { "all readers count", 96, 1,
      WORD MINE BARRIER "ld.shared.u32 %r7, [%r2];" ONLY(BARRIER) FIRST "@%p1 st.shared.u32 [%r2], %r1;" OUT,
      "another thread" },
    { "a named barrier", 128, 1,
      FAR "setp.lt.u32 %p1, %r1, 64; @!%p1 bra OTHERS;" MINE ONLY("bar.sync 1, 64;") OTHERS OUT "OTHERS:" BARRIER,
      "another thread" },
    { "a named barrier orders its threads only", 128, 1,
      FAR MINE OR(BARRIER, "setp.lt.u32 %p1, %r1, 32; setp.ge.u32 %p2, %r1, 96; or.pred %p1, %p1, %p2;"
                           "@%p1 bar.sync 1, 64; @!%p1 bar.sync 2, 64;") OTHERS OUT,
      "another thread" },
    { "global memory, too", 64, 1,
      TRIAL_TO_OUT "st.global.u32 [%d5], %r1;" ONLY(
          BARRIER) "xor.b32 %r6, %r1, 32; mul.wide.u32 %d6, %r6, 4; add.s64 %d6, %d6, %d1; ld.global.u32 %r7, [%d6];",
      "another thread" },
    { "blocks write their own", 32, 2,
      ONLY("mov.u32 %r4, %ctaid.x; mad.lo.s32 %r1, %r4, 32, %r1;") "mov.u32 %r7, %r1;" OUT,
      "another block has written" },
    { "blocks do not write what others read", 32, 2,
      OR("ld.global.u32 %r7, [%d0];",
         "ld.global.u32 %r7, [%d1]; mov.u32 %r4, %ctaid.x; setp.eq.s32 %p1, %r4, 1; setp.eq.s32 %p2, %r1, 0;"
         "and.pred %p1, %p1, %p2; @%p1 st.global.u32 [%d1], %r1;"),
      "another thread" },
    { "inside an allocation", 32, 1, "ld.global.u32 %r7, [%d0+" OR("32764", "32768") "];",
      "not inside one allocation" },
    { "inside shared memory", 32, 1, "ld.shared.u32 %r7, [%r2+" OR("8192", "8224") "];", "the block has 8224 bytes" },
    { "which generic addresses are not", 32, 1,
      "mov.u64 %d4, s;" OR("", "cvta.shared.u64 %d4, %d4;") "ld.shared.u32 %r7, [%d4];", "the block has 8224 bytes" },
    { "and not around the end of addresses", 32, 1,
      "mov.u32 %r4, " OR("%r2", "-16") "; ld.shared.v4.u32 {%r7,%r8,%r9,%r10}, [%r4];", "the block has 8224 bytes" },
    { "aligned", 32, 1, "ld.global.v2.u32 {%r7,%r8}, [%d0+" OR("8", "4") "];", "not a multiple of 8" },
    { "aligned in shared memory", 32, 1, "ld.shared.v4.u32 {%r7,%r8,%r9,%r10}, [%r2+" OR("16", "8") "];",
      "not a multiple of 16" },
    { "parameters end", 32, 1, "ld.param.u32 %r7, [p3+" OR("124", "128") "];", "parameters, which have 192" },

    { "cp.async is waited for", 32, 1, COPY COMMIT ONLY(WAIT) READ_OWN, "nobody has waited" },
    { "cp.async is committed", 32, 1, COPY ONLY(COMMIT) WAIT READ_OWN, "nobody has waited" },
    { "the right group is waited for", 32, 1, COPY COMMIT ONLY(COMMIT) "cp.async.wait_group 1;" READ_OWN,
      "nobody has waited" },
    { "cp.async has landed at the end", 32, 1, COPY COMMIT ONLY(WAIT), "the block ends before" },
    { "cp.async of other threads: a barrier behind the wait", 64, 1,
      COPY COMMIT OR(WAIT BARRIER, BARRIER WAIT) "xor.b32 %r6, %r4, 512; ld.shared.u32 %r7, [%r6];", "" },

    { "a bulk copy is waited for", 32, 1,
      READY EXPECT("64") BULK("%r2", "64") ONLY(AWAIT("W")) "ld.shared.u32 %r7, [%r2];" OUT, "" },
    { "by each warp that reads", 64, 1,
      READY EXPECT("64") BULK("%r2", "64") OR("", "setp.lt.u32 %p4, %r1, 32; @!%p4 bra READ;")
          AWAIT("W") "READ: ld.shared.u32 %r7, [%r2];" OUT,
      "" },
    { "a fence behind the mbarrier's init", 32, 1,
      FIRST INIT ONLY("@%p1 fence.proxy.async;") BARRIER EXPECT("64") BULK("%r2", "64") AWAIT("W"),
      "no fence is between the mbarrier's init" },
    { "a fence between stores to global memory and a bulk copy of them", 32, 1,
      FIRST INIT FENCE_INIT "mul.wide.u32 %d4, %r1, 4; add.s64 %d4, %d4, %d0; st.global.u32 [%d4], %r1;" ONLY(
          "fence.proxy.async;") BARRIER EXPECT("64") BULK("%r2", "64") AWAIT("W"),
      "without fence.proxy.async" },
    { "a barrier behind the mbarrier's init", 64, 1, FIRST INIT FENCE_INIT ONLY(BARRIER) EXPECT("0") AWAIT("W"),
      "mbarrier" },
    { "expected bytes: too many", 32, 1, READY EXPECT(OR("64", "80")) BULK("%r2", "64") AWAIT("W"),
      "nobody can go on" },
    { "expected bytes: too few", 32, 1, READY EXPECT(OR("64", "48")) BULK("%r2", "64") AWAIT("W"), "more arrive" },
    { "all who are expected arrive", 32, 1, READY ONLY("@%p1 mbarrier.arrive.shared::cta.b64 _, [%r3];") AWAIT("W"),
      "lacks 1 of 1 arrivals" },
    { "no more than are expected", 32, 1,
      FIRST "@%p1 mbarrier.init.shared::cta.b64 [%r3], " OR(
          "1", "0") ";" FENCE_INIT BARRIER "@%p1 mbarrier.arrive.shared::cta.b64 _, [%r3];" AWAIT("W"),
      "more arrivals" },
    { "an mbarrier is where it is looked at", 32, 1,
      FIRST INIT BARRIER OR("", "add.s32 %r3, %r3, 8;") EXPECT("0") AWAIT("W"), "there is no mbarrier" },
    { "an mbarrier is no memory", 32, 1, FIRST INIT BARRIER "ld.shared.u32 %r7, [%r3+" OR("8", "0") "];",
      "it is an mbarrier" },
    { "a bulk copy is aligned", 32, 1, READY OR("", "add.s32 %r2, %r2, 8;") EXPECT("64") BULK("%r2", "64") AWAIT("W"),
      "not aligned" },
    { "a bulk copy has landed at the end", 32, 1, READY EXPECT("64") BULK("%r2", "64") ONLY(AWAIT("W")), "" },
    { "a bulk copy waits for readers, whose arrival tells it", 64, 1,
      FIRST INIT
      "add.s32 %r8, %r3, 8; @%p1 mbarrier.init.shared::cta.b64 [%r8], 32;" FENCE_INIT
      "@%p1 st.shared.u32 [%r2], %r1; @%p1 fence.proxy.async; bar.sync 0; setp.lt.u32 %p4, %r1, 32; @%p4 bra "
      "PRODUCE;" ONLY("ld.shared.u32 %r7, [%r2];") "mbarrier.arrive.shared::cta.b64 _, [%r8];" OR(
          "", "ld.shared.u32 %r7, [%r2];") "bra DONE;"
                                           "PRODUCE: @!%p1 bra DONE; V: mbarrier.try_wait.parity.shared::cta.b64 %p3, "
                                           "[%r8], 0; @!%p3 bra V;" EXPECT("64") BULK("%r2", "64")
                                               AWAIT("W") "DONE: mov.u32 %r7, 0;",
      "" },

    { "a barrier is for whole warps", 32, 1, FIRST OR("", "@%p1 ") BARRIER, "elsewhere" },
    { "all warps come to a barrier", 64, 1, "setp.lt.u32 %p1, %r1, 32;" OR("", "@%p1 ") BARRIER, "warps that end" },
    { "warps agree on a barrier's threads", 64, 1,
      "setp.lt.u32 %p1, %r1, 32; @%p1 bar.sync 1, 64; @!%p1 bar.sync 1, " OR("64", "96") ";", "different numbers" },
    { "a shuffle has the lanes of its mask", 32, 1, FIRST OR("", "@%p1 ") "shfl.sync.bfly.b32 %r4, %r1, 1, 31, -1;",
      "elsewhere" },
    { "and no others", 32, 1, "shfl.sync.bfly.b32 %r4, %r1, 1, 31, " OR("-1", "65535") ";", "does not name" },
    { "and reads only those", 32, 1,
      "setp.lt.u32 %p1, %r1, 16; @%p1 shfl.sync.bfly.b32 %r4, %r1, " OR("8", "16") ", 31, 65535;",
      "which is not there" },
    { "lanes that part come together again", 32, 1,
      FIRST OR(
          "@%p1 bra A; mov.u32 %r7, 5; bra B; A: mov.u32 %r7, 6; B: shfl.sync.bfly.b32 %r7, %r7, 1, 31, -1;",
          "@%p1 bra A; shfl.sync.bfly.b32 %r7, %r1, 1, 31, -1; bra B; A: shfl.sync.bfly.b32 %r7, %r1, 1, 31, -1; B:")
          OUT,
      "elsewhere" },
    { "lanes that end are not waited for", 32, 1,
      FIRST "@%p1 bra A; bar.warp.sync -1; mov.u32 %r7, 1;" OUT "bra B; A: " OR("ret", "bra A") "; B: bar.sync 0;",
      "does not end" },
    { "registers for a warpgroup", 32, 1, "setmaxnreg.inc.sync.aligned.u32 " OR("240", "250") ";",
      "not a multiple of 8" },
    { "it ends", 32, 1, OR("bra A; A:", "A: bra A;"), "does not end" },
};

/* One of the two texts. */
static const char *text_of(const rule *r, bool wrong)
{
    static char text[4096];
    size_t      n = 0;
    int         side = -1; /* of a mark: 0, 1 */
    for (const char *at = r->text; *at; at++) {
        if (*at == '<' || *at == '>' || *at == '|')
            side = *at == '<' ? 0 : *at == '|' ? 1 : -1;
        else if (side < 0 || side == wrong)
            text[n++] = *at;
    }
    text[n] = 0;
    return text;
}

TEST(rules_are_kept)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const rule *r = &rules[i];
        uint32_t    first[256];
        for (size_t o = 0; o < sizeof orders / sizeof *orders; o++) {
            trial t = trial_begin(r->threads);
            t.blocks = r->blocks;
            memset(trial_in_of(&t), 0, 1024);
            memset(trial_out_of(&t), 0, 1024);
            if (!trial_run(&t, text_of(r, false), &orders[o])) fail_msg("%s, order %zu: %s", r->name, o, t.error);
            if (o == 0) memcpy(first, trial_out_of(&t), sizeof first);
            if (memcmp(first, trial_out_of(&t), sizeof first)) fail_msg("%s, order %zu: other bits", r->name, o);
            trial_end(&t);
        }
    }
}

TEST(broken_rules_are_named)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const rule *r = &rules[i];
        /* Without words: what is found says when; at once there is nothing to be found. */
        size_t end = strcmp(r->words, "does not end") ? sizeof orders / sizeof *orders : 1;
        for (size_t o = *r->words ? 0 : 1; o < end; o++) {
            trial t = trial_begin(r->threads);
            t.blocks = r->blocks;
            bool ran = trial_run(&t, text_of(r, true), &orders[o]);
            if (ran || !strstr(t.error, r->words) || !strncmp(t.error, "line", 4))
                fail_msg("%s, order %zu: %s", r->name, o, ran ? "not found" : t.error);
            trial_end(&t);
        }
    }
}

/* --- wgmma */

typedef struct product_rule {
    const char *name, *fence, *before, *after, *words;
} product_rule;

static const product_rule product_rules[] = {
    { "the whole of it", "fence.proxy.async;", TRIAL_WG_FENCE, TRIAL_WG_DONE, NULL },
    { "ordinary stores need a fence", "", TRIAL_WG_FENCE, TRIAL_WG_DONE, "without fence.proxy.async" },
    { "wgmma.fence is missing", "fence.proxy.async;", "", TRIAL_WG_DONE, "no wgmma.fence" },
    { "a register is written behind wgmma.fence", "fence.proxy.async;", TRIAL_WG_FENCE "mov.f32 %f10, 0f00000000;",
      TRIAL_WG_DONE, "written after the last wgmma.fence" },
    { "nobody waits", "fence.proxy.async;", TRIAL_WG_FENCE, "wgmma.commit_group.sync.aligned;", "not waited for" },
    { "nobody commits", "fence.proxy.async;", TRIAL_WG_FENCE, "wgmma.wait_group.sync.aligned 0;", "not waited for" },
    { "one is left in flight", "fence.proxy.async;", TRIAL_WG_FENCE,
      "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 1;", "not waited for" },
    { "its operand is overwritten", "fence.proxy.async;", TRIAL_WG_FENCE,
      "mad.lo.s32 %r4, %r1, 64, %r80; st.shared.u32 [%r4], %r1;" TRIAL_WG_DONE, "still reads it" },
    { "the descriptor has no swizzle", "fence.proxy.async;",
      TRIAL_WG_FENCE "mov.b64 %d12, 4611686018427387904; sub.s64 %d10, %d10, %d12;", TRIAL_WG_DONE, "swizzle" },
    { "the descriptor's stride is too large", "fence.proxy.async;",
      TRIAL_WG_FENCE "mov.b64 %d12, 8796093022208; add.s64 %d11, %d11, %d12;", TRIAL_WG_DONE, "shared memory" },
    { "warps part", "fence.proxy.async;",
      TRIAL_WG_FENCE "setp.lt.u32 %p5, %r1, 96; @%p5 bra GO; bra BEHIND; GO:", TRIAL_WG_DONE "BEHIND:", "same wgmma" },
};

TEST(wgmma_keeps_its_rules)
{
    for (size_t i = 0; i < sizeof product_rules / sizeof *product_rules; i++) {
        const product_rule *r = &product_rules[i];
        for (size_t o = 0; o < sizeof orders / sizeof *orders; o++) {
            trial t = trial_wgmma(0);
            char *body = trial_wgmma_body(r->fence, r->before, "1", r->after, 0);
            bool  ran = trial_run(&t, body, &orders[o]);
            if (ran != !r->words || (!ran && !strstr(t.error, r->words)))
                fail_msg("%s, order %zu: %s", r->name, o, ran ? "not found" : t.error);
            free(body);
            trial_end(&t);
        }
    }
}

/* The left operand in registers: they are read until the wait. */
TEST(operands_in_registers_are_lent)
{
    for (int wrong = 0; wrong < 2; wrong++) {
        trial t = trial_wgmma(0);
        char  after[2048];
        int   n = snprintf(after, sizeof after, "%s wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {",
                           TRIAL_WG_DONE "mov.u32 %r20, 0;" TRIAL_WG_FENCE);
        for (int i = 0; i < 32; i++)
            n += snprintf(after + n, sizeof after - (size_t)n, "%s%%f%d", i ? "," : "", 60 + i);
        snprintf(after + n, sizeof after - (size_t)n, "}, {%%r20,%%r20,%%r20,%%r20}, %%d11, 0, 1, 1, 0; %s %s",
                 wrong ? "mov.u32 %r20, 1;" : "", TRIAL_WG_DONE);
        char *body = trial_wgmma_body("fence.proxy.async;", TRIAL_WG_FENCE, "1", after, 0);
        bool  ran = trial_run(&t, body, &trial_lazy);
        if (ran == wrong || (wrong && !strstr(t.error, "overwrites an operand")))
            fail_msg("%s", ran ? "not found" : t.error);
        free(body);
        trial_end(&t);
    }
}

/* --- TMA */

/* A tensor of bf16, 3 dimensions: element (x, y, z) is in[z * 480 + y * 24 + x], of 20 x 19 x 3. */
static machine_tensor tensor_of(const trial *t, int swizzle)
{
    return (machine_tensor){ .type = 9,
                             .rank = 3,
                             .address = t->in,
                             .dims = { 20, 19, 3 },
                             .strides = { 48, 960 },
                             .box = { swizzle ? 8u << swizzle : 24, 5, 2 },
                             .element_strides = { 1, 1, 1 },
                             .swizzle = swizzle };
}

/* %r0: 128 more than the first x, and the bytes of the box, 256 times. */
#define LOAD_BOX                                                                                                       \
    FIRST INIT FENCE_INIT                                                                                              \
        "bar.sync 0; and.b32 %r10, %r0, 255; sub.s32 %r10, %r10, 128; mov.u32 %r11, 16; mov.u32 %r12, 2;"              \
        "shr.u32 %r13, %r0, 8;" EXPECT(                                                                                \
            "%r13") "@%p1 cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%d2, "   \
                    "{%r10, %r11, "                                                                                    \
                    "%r12}], [%r3];"
#define PUT_BOX                                                                                                        \
    "mad.lo.s32 %r4, %r1, 4, %r2; mov.u32 %r9, 0;" TRIAL_TO_OUT                                                        \
    "L: ld.shared.u32 %r7, [%r4]; st.global.u32 [%d5], %r7; add.s32 %r4, %r4, 128; add.s64 %d5, %d5, 128;"             \
    "add.s32 %r9, %r9, 1; setp.lt.u32 %p4, %r9, 10; @%p4 bra L;"

static trial tensor_trial(int swizzle, int x0, const machine_order *order, const char *body)
{
    trial          t = trial_begin(32);
    uint16_t      *in = trial_in_of(&t);
    machine_tensor of = tensor_of(&t, swizzle);
    for (int i = 0; i < 2000; i++) in[i] = (uint16_t)(i + 1);
    assert_null(machine_tensor_map(t.map, &of));
    t.number = (uint32_t)(x0 + 128) | of.box[0] * 20 << 8;
    if (trial_run(&t, body, order)) t.error[0] = 0;
    return t;
}

TEST(tensors_are_copied)
{
    for (int k = 0; k < 16; k++) {
        int       swizzle = k % 4, x0 = k / 4 % 2 ? -3 : 8, wide = swizzle ? 8 << swizzle : 24;
        trial     t = tensor_trial(swizzle, x0, &orders[k / 8], LOAD_BOX AWAIT("W") PUT_BOX);
        uint16_t *in = trial_in_of(&t), *out = trial_out_of(&t);
        if (t.error[0]) fail_msg("%s", t.error);
        for (int i = 0; i < 10 * wide; i++) {
            int gx = x0 + i % wide, gy = 16 + i / wide % 5, gz = 2 + i / wide / 5;
            /* Chunk c of 16 bytes in line n of 128 lies where c xor the low bits of n is. */
            int line = i / 64, chunk = i / 8 % 8 ^ line % (1 << swizzle), want = 0;
            if (gx >= 0 && gx < 20 && gy < 19 && gz < 3) want = in[gz * 480 + gy * 24 + gx];
            assert_int_equal(out[line * 64 + chunk * 8 + i % 8], want);
        }
        trial_end(&t);
    }
}

TEST(wrong_tensors_are_named)
{
    static const struct {
        const char *body, *words;
    } loads[] = { { "add.s32 %r2, %r2, 512;" LOAD_BOX AWAIT("W"), "not aligned to 1024" },
                  { "add.s64 %d2, %d2, 32;" LOAD_BOX AWAIT("W"), "not a multiple of 64" },
                  { "add.s64 %d2, %d2, 64;" LOAD_BOX AWAIT("W"), "no tensor map" },
                  { LOAD_BOX, "in flight" } };
    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++) {
        trial t = tensor_trial(3, 0, &orders[1], loads[i].body);
        if (!strstr(t.error, loads[i].words)) fail_msg("%s: %s", loads[i].words, t.error);
        trial_end(&t);
    }
}

/* What hardware would refuse: the first number of a member is another, without a swizzle or with one. */
TEST(wrong_maps_are_refused)
{
#define MEMBER(of, number) offsetof(machine_tensor, of), sizeof((machine_tensor *)0)->of, number
    static const struct {
        size_t      at, bytes;
        uint64_t    number;
        int         swizzle;
        const char *words;
    } refused[] = { { MEMBER(rank, 6), 3, "rank" },
                    { MEMBER(address, 8), 3, "address" },
                    { MEMBER(strides[0], 40), 3, "stride is" },
                    { MEMBER(box[0], 9), 0, "box are not a multiple" },
                    { MEMBER(box[0], 32), 3, "swizzle" },
                    { MEMBER(dims[1], 0), 3, "dimension" },
                    { MEMBER(box[1], 257), 3, "side" },
                    { MEMBER(element_strides[2], 2), 3, "elements" },
                    { MEMBER(type, 99), 3, "type" },
                    { MEMBER(fill, 1), 3, "filling" } };
    trial t = trial_begin(32);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        machine_tensor of = tensor_of(&t, refused[i].swizzle);
        uint8_t        map[128];
        memcpy((char *)&of + refused[i].at, &refused[i].number, refused[i].bytes);
        const char *why = machine_tensor_map(map, &of);
        if (!why || !strstr(why, refused[i].words)) fail_msg("%s: %s", refused[i].words, why ? why : "taken");
    }
    trial_end(&t);
}

/* --- loading and launching */

TEST(what_is_not_known_is_named)
{
    static const struct {
        const char *body, *words;
    } rows[] = {
        { "frobnicate.s32 %r4, %r1;", "an instruction that is not known" },
        { "add.s32.sat %r4, %r1, %r1;", "an instruction that is not known" },
        { "add.s32. %r4, %r1, %r1;", "an instruction that is not known" },
        { "add..s32 %r4, %r1, %r1;", "an instruction that is not known" },
        { "add.s32 %tid.x, %r1, %r1;", "operands that are not known" },
        { "add.sat.s32 %r4, %r1, %r1;", "an instruction that is not known" },
        { "ld.global.volatile.u32 %r4, [%d0];", "an instruction that is not known" },
        { "add.s32 %r4, %r1;", "operands that are not known" },
        { "add.s32 %r4, %r1, %d0;", "operands that are not known" },
        { "add.s32 %r4, %r1, %r999;", "operands that are not known" },
        { "add.s32 4, %r1, %r1;", "operands that are not known" },
        { "ld.global.v2.u32 {%r4,%r5,%r6}, [%d0];", "operands that are not known" },
        { "ld.global.u32 %r4, [nothing];", "operands that are not known" },
        { "@%r1 bar.sync 0;", "no such predicate" },
        { "bra NOWHERE;", "no label NOWHERE" },
        { "A: A: bar.sync 0;", "a label that is there already" },
        { ".frobnicate 1;", "a directive that is not known" },
        { ".reg .b32 %r<5>;", "declared twice" },
        { ".shared .align 4 .b4 x[4];", "a variable that is not known" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        trial t = trial_begin(32);
        assert_false(trial_run(&t, rows[i].body, &trial_lazy));
        if (!strstr(t.error, rows[i].words) || strncmp(t.error, "line ", 5)) fail_msg("%s: %s", rows[i].body, t.error);
        trial_end(&t);
    }
}

/* ".version 9.0\n.target sm_90a": the same places, other numbers. */
TEST(products_of_8_bits_need_their_isa)
{
    static const struct {
        const char *version, *target;
        bool        taken;
    } rows[] = { { "9.0", "90a", true }, { "8.4", "89 ", true }, { "8.3", "90 ", false }, { "8.4", "86 ", false } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char error[MACHINE_ERROR_ROOM] = "",
             *text = trial_text("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 {%f5,%f6,%f7,%f8}, "
                                "{%r10,%r11,%r12,%r13}, {%r14,%r15}, {%f1,%f2,%f3,%f4};");
        memcpy(strstr(text, "9.0"), rows[i].version, 3);
        memcpy(strstr(text, "sm_90a") + 3, rows[i].target, 3);
        machine_module *m = machine_load_ptx(text, error);
        if ((m != NULL) != rows[i].taken) fail_msg("%s, sm_%s: %s", rows[i].version, rows[i].target, error);
        if (!m) assert_non_null(strstr(error, "need ISA 8.4 and sm_89"));
        if (m) machine_unload(m);
        free(text);
    }
}

TEST(launches_are_checked)
{
    trial t = trial_begin(32);
    assert_false(trial_run(&t, ".local .align 16 .b8 depot[512]; mov.u32 %r4, 1;", &trial_lazy));
    assert_non_null(strstr(t.error, "512 bytes of each thread in local memory"));
    t.threads = 1025;
    assert_false(trial_run(&t, "", &trial_lazy));
    assert_non_null(strstr(t.error, "1025 threads"));
    t.threads = 32;
    t.dynamic = 230 << 10;
    assert_false(trial_run(&t, "", &trial_lazy));
    assert_non_null(strstr(t.error, "bytes of shared memory"));
    char           *text = trial_text("mov.u32 %r4, 1;");
    machine_module *m = machine_load_ptx(text, t.error);
    machine_launch  l = { .kernel = "k", .blocks = { 1, 1, 1 }, .threads = { 1, 1, 1 }, .argument_bytes = 8 };
    assert_int_equal(machine_kernels(m), 1);
    const machine_kernel *k = machine_kernel_at(m, 0);
    assert_int_equal(k->shared_bytes, 8224);
    assert_int_equal(k->spilled_bytes, 0);
    assert_false(machine_run(m, t.memory, &l, &trial_lazy, NULL, t.error));
    assert_non_null(strstr(t.error, "8 bytes of arguments: its parameters have 192"));
    l.kernel = "other";
    assert_false(machine_run(m, t.memory, &l, &trial_lazy, NULL, t.error));
    assert_non_null(strstr(t.error, "no kernel other"));
    machine_unload(m);
    free(text);
    trial_end(&t);
}

/* Times are numbered anew in a launch of many blocks; blocks that are near each other are still told apart. */
TEST(long_launches_are_traced)
{
    trial t = trial_begin(32);
    t.blocks = 3000;
    static const char body[] =
        "mov.u32 %r9, 0; L: bar.warp.sync -1; add.s32 %r9, %r9, 1; setp.lt.u32 %p1, %r9, 300; @%p1 bra L;"
        "mov.u32 %r10, %ctaid.x;";
    char wrong[1024];
    trial_must_run(&t, body);
    snprintf(wrong, sizeof wrong, "%s setp.gt.u32 %%p2, %%r10, 2990; @%%p2 st.global.u32 [%%d1], %%r10;", body);
    assert_false(trial_run(&t, wrong, &trial_lazy));
    assert_non_null(strstr(t.error, "another"));
    trial_end(&t);
}

/* What nobody wrote is 0xff. */
TEST(nothing_is_zero_by_chance)
{
    trial t = trial_begin(1);
    trial_must_run(&t, "st.global.u32 [%d1], %r77; ld.shared.u32 %r4, [%r2]; st.global.u32 [%d1+4], %r4;"
                       "ld.global.u32 %r4, [%d0+8]; st.global.u32 [%d1+8], %r4;");
    uint32_t *out = trial_out_of(&t);
    for (int i = 0; i < 3; i++) assert_true(out[i] == 0xffffffff);
    trial_end(&t);
}

/* --- counts */

TEST(accesses_are_counted)
{
    static const struct {
        const char *body;
        uint64_t    cycles, least, read, sectors;
    } rows[] = {
        { "mad.lo.s32 %r4, %r1, 4, %r2; ld.shared.u32 %r7, [%r4];", 1, 1, 0, 0 },
        { "mad.lo.s32 %r4, %r1, 128, %r2; ld.shared.u32 %r7, [%r4];", 32, 1, 0, 0 },
        { "mad.lo.s32 %r4, %r1, 8, %r2; ld.shared.u32 %r7, [%r4];", 2, 1, 0, 0 },
        { "ld.shared.u32 %r7, [%r2];", 1, 1, 0, 0 },
        { "mad.lo.s32 %r4, %r1, 16, %r2; ld.shared.v4.u32 {%r7,%r8,%r9,%r10}, [%r4];", 4, 4, 0, 0 },
        { "mul.wide.u32 %d4, %r1, 4; add.s64 %d4, %d4, %d0; ld.global.u32 %r7, [%d4];", 0, 0, 128, 4 },
        { "mul.wide.u32 %d4, %r1, 64; add.s64 %d4, %d4, %d0; ld.global.u32 %r7, [%d4];", 0, 0, 128, 32 },
        { "ld.global.u32 %r7, [%d0];", 0, 0, 128, 1 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        trial t = trial_begin(32);
        trial_must_run(&t, rows[i].body);
        assert_int_equal(t.counts.shared_cycles, rows[i].cycles);
        assert_int_equal(t.counts.shared_least, rows[i].least);
        assert_int_equal(t.counts.read_bytes, rows[i].read);
        assert_int_equal(t.counts.read_sectors, rows[i].sectors);
        trial_end(&t);
    }
    trial t = trial_begin(20);
    trial_must_run(&t, "mov.f32 %f1, 0f3F800000; fma.rn.f32 %f2, %f1, %f1, %f1; add.rn.f32 %f2, %f2, %f1;");
    assert_int_equal(t.counts.vector_flops, 3 * 20);
    assert_int_equal(t.counts.instructions, 12);
    assert_int_equal(t.counts.lanes, 12 * 20);
    trial_end(&t);
}
