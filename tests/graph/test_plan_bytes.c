/* SPDX-License-Identifier: Apache-2.0 */
/* Planned memory does not grow: arenas of whole training steps against recorded ones, and what the placement needs
 * against its plainest form. And planning ends at once however deep the model is. */
#include "support/plain_place.h"
#include "support/training.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/test.h"

enum { F32, BF16, PURE };

/* A step on the device `null`, whose kernels need no workspace: the same bytes on every machine. */
typedef struct {
    const char *model; /* a preset; "llama", "gpt": the small model of the family */
    int         precision;
    int64_t     micro_batch, seq, accumulation;
    int         every_n, cheap; /* the blocks and ops that are computed again */
    size_t      arena_bytes;    /* recorded with the placement that looked at every pair of buffers */
} row;

static const row rows[] = {
    { "llama", F32, 2, 32, 1, 0, 0, 2134080 },
    { "llama", F32, 2, 32, 4, 0, 1, 1986624 },
    { "llama", F32, 2, 32, 1, 2, 0, 1911872 },
    { "llama", F32, 2, 32, 4, 1, 1, 1854272 },
    { "llama", BF16, 2, 32, 4, 0, 1, 1810624 },
    { "llama", PURE, 2, 32, 1, 1, 1, 930112 },
    { "gpt", F32, 2, 32, 4, 0, 0, 2851136 },
    { "gpt", F32, 2, 32, 1, 0, 1, 2637632 },
    { "gpt", BF16, 2, 32, 1, 2, 0, 2464320 },
    { "gpt", BF16, 2, 32, 4, 1, 1, 2497088 },
    { "gpt", PURE, 2, 32, 4, 0, 1, 1341760 },
    { "gpt", PURE, 2, 32, 1, 0, 0, 1427776 },
    { "gpt-small", F32, 8, 512, 1, 0, 1, 982327616 },
    { "gpt-small", BF16, 32, 512, 4, 0, 0, 1950612032 },
    { "gpt-medium", F32, 4, 512, 1, 0, 1, 2861947200 },
    { "gpt-medium", F32, 4, 512, 1, 0, 0, 3314932032 },
    { "gpt-medium", BF16, 4, 512, 1, 0, 1, 2552218944 },
    { "gpt-medium", PURE, 4, 512, 4, 1, 1, 1219123008 },
    { "tiny-llama", F32, 16, 256, 1, 0, 1, 252711232 },
    { "tiny-llama", F32, 16, 256, 1, 2, 0, 207442240 },
    { "tiny-llama", BF16, 16, 256, 4, 0, 0, 192991552 },
    { "llama3.1_8B", F32, 1, 1024, 1, 0, 1, 134976188736 },
    { "llama3.1_8B", BF16, 4, 8192, 4, 2, 0, 207988130112 },
    { "llama3.1_8B", PURE, 4, 8192, 1, 1, 1, 77404340544 },
    { "llama3.1_405B", BF16, 1, 8192, 1, 0, 1, 6858833920320 },
    { "llama3.1_405B", F32, 1, 8192, 4, 1, 1, 6569831301440 },
    { "gpt-small", F32, 4, 512, 1, 0, 1, 783622464 },
    { "gpt-small", BF16, 4, 512, 1, 0, 1, 723130176 },
    { "gpt-large", F32, 4, 512, 1, 0, 1, 7810959680 },
    { "gpt-large", BF16, 4, 512, 1, 0, 1, 6894672192 },
    { "gpt-3b", F32, 4, 512, 1, 0, 1, 49237649728 },
    { "gpt-3b", BF16, 4, 512, 1, 0, 1, 46108070208 },
    { "gpt-13b", F32, 1, 1024, 1, 1, 0, 163043385664 },
    { "gpt2-124M", F32, 4, 512, 1, 0, 1, 2869418304 },
    { "gpt2-124M", F32, 2, 1024, 1, 3, 1, 2642401600 },
    { "gpt2-124M", BF16, 4, 512, 1, 0, 1, 2559690048 },
    { "gpt2-124M", BF16, 2, 1024, 1, 3, 1, 2445919552 },
    { "llama3.2_1B", F32, 4, 512, 1, 0, 1, 23446085952 },
    { "llama3.2_1B", F32, 2, 1024, 1, 3, 1, 22286917952 },
    { "llama3.2_1B", BF16, 4, 512, 1, 0, 1, 22268539200 },
    { "llama3.2_1B", BF16, 2, 1024, 1, 3, 1, 21700768064 },
    { "llama2_70B", F32, 4, 512, 1, 0, 1, 1164436980032 },
    { "llama2_70B", BF16, 4, 512, 1, 0, 1, 1134875541824 },
    { "llama2_70B", BF16, 2, 1024, 1, 3, 1, 1126464225600 },
};
enum { ROWS = sizeof rows / sizeof rows[0] };

static const char *name_of(const row *r)
{
    static const char *const precisions[] = { "float32", "bfloat16", "bfloat16-pure" };
    static char              name[160];
    snprintf(name, sizeof name, "%s %s %lldx%lldx%lld, recompute %d%s", r->model, precisions[r->precision],
             (long long)r->accumulation, (long long)r->micro_batch, (long long)r->seq, r->every_n,
             r->cheap ? " cheap" : "");
    return name;
}

static tm_step *step_of(const row *r, const char *more, const char *device_name)
{
    static const tm_precision *const precisions[] = { &tm_precision_f32, &tm_precision_bf16, &tm_precision_bf16_pure };
    tm_step_options                  o = strcmp(r->model, "gpt") == 0 ? test_gpt_options() : test_llama_options();
    if (strcmp(r->model, "gpt") != 0 && strcmp(r->model, "llama") != 0) o.shape = test_shape_preset(r->model, more);
    o.precision = precisions[r->precision];
    o.micro_batch = r->micro_batch;
    o.seq = r->seq;
    o.accumulation = r->accumulation;
    o.recompute = (tm_recompute){ .every_n = r->every_n, .cheap = r->cheap };
    tm_device *device = test_device_open(device_name, 2);
    tm_chooser chooser = tm_device_chooser(device);
    tm_step   *step = test_step_plan(&o, &chooser);
    tm_device_close(device);
    return step;
}

TEST(arenas_are_no_larger_than_recorded)
{
    for (int i = 0; i < ROWS; i++) {
        tm_step *step = step_of(&rows[i], NULL, "null");
        if (step->plan->arena_bytes > rows[i].arena_bytes)
            fail_msg("%s: %zu bytes are planned, %zu before", name_of(&rows[i]), step->plan->arena_bytes,
                     rows[i].arena_bytes);
        tm_step_destroy(step);
    }
}

static size_t aligned(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* What the plain placement needs for a program's buffers. */
static size_t plain_bytes(const tm_plan *plan, int32_t index)
{
    const tm_program *program = &plan->programs[index];
    size_t            n = 0;
    tm_interval      *items = calloc(plan->graph->n_tensors + program->count, sizeof *items);
    assert_non_null(items);
    for (size_t t = 0; t < plan->graph->n_tensors; t++) {
        const tm_place *p = &plan->places[t];
        if (p->program == index && p->shares < 0)
            items[n++] = (tm_interval){ .bytes = aligned(p->bytes), .first = p->first, .last = p->last };
    }
    for (size_t x = 0; x < program->count; x++) {
        size_t bytes = aligned(program->instructions[x].call.workspace_bytes);
        if (bytes) items[n++] = (tm_interval){ .bytes = bytes, .first = (int32_t)x, .last = (int32_t)x };
    }
    size_t bytes = n ? plain_place(items, n, (int32_t)program->count) : 0;
    free(items);
    return bytes;
}

/* With the workspaces of this machine's kernels. */
TEST(programs_need_what_the_plain_placement_needs)
{
    for (int i = 0; i < ROWS; i++) {
        tm_step *step = step_of(&rows[i], NULL, "cpu");
        for (size_t p = 0; p < step->plan->n_programs; p++) {
            size_t bytes = step->plan->programs[p].bytes, plain = plain_bytes(step->plan, (int32_t)p);
            if (bytes > plain)
                fail_msg("%s, %s: %zu bytes are planned, the plain placement needs %zu", name_of(&rows[i]),
                         step->plan->programs[p].name, bytes, plain);
        }
        tm_step_destroy(step);
    }
}

static double thread_seconds(void)
{
    struct timespec now;
    assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now), 0);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* The deepest model that a configuration may ask for, graph and plan. */
FULL_TEST(more_than_200000_tensors_are_planned_at_once)
{
    const row deep[] = { { "llama3.1_405B", BF16, 1, 8192, 1, 0, 1, 0 }, { "gpt-small", F32, 8, 512, 1, 1, 0, 0 } };
    for (int i = 0; i < 2; i++) {
        double   begin = thread_seconds();
        tm_step *step = step_of(&deep[i], "model.n_layers=4096", "cpu");
        double   took = thread_seconds() - begin;
        if (step->graph->n_tensors < 200000)
            fail_msg("%s: only %zu tensors", name_of(&deep[i]), step->graph->n_tensors);
        if (!(took < 10)) fail_msg("%s: %.2f s of processor time, expected less than 10 s", name_of(&deep[i]), took);
        if (!((double)step->plan->arena_bytes <= 1.001 * (double)step->plan->live_peak))
            fail_msg("%s: %zu bytes are planned, %zu live at once", name_of(&deep[i]), step->plan->arena_bytes,
                     step->plan->live_peak);
        tm_step_destroy(step);
    }
}
