/* SPDX-License-Identifier: Apache-2.0 */
/* The plans of many configurations (plans.txt, tests/golden/bits.txt): the rules of every rank's step, how tight the
 * plan is, and what `explain` prints of it, to the letter.
 *
 * Where plans are meant to change, or a configuration is new:
 *     TM_RECORD=1 build/release/tests/graph/test_plans; git diff tests/graph/plans.txt
 * writes the digests anew; why they changed is for the commit to say. What changed in a plan is seen by
 * `trainmark explain KEYS --isa avx2`, before and after. */
#include "plan_rules.h"
#include "support/full_config.h"
#include "support/training.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "model/model.h"

#include "support/test.h"

/* --- the table ---------------------------------------------------------------------------------------------------- */

/* Both files, one behind the other. */
static tm_text read_runs(void)
{
    tm_text  all = { 0 }, plans = { 0 };
    tm_error err = { 0 };
    if (tm_file_read("tests/golden/bits.txt", 1 << 24, &all, &err) != TM_OK ||
        tm_file_read("tests/graph/plans.txt", 1 << 24, &plans, &err) != TM_OK)
        fail_msg("%s", err.text);
    tm_text_add(&all, plans.data);
    tm_text_fini(&plans);
    return all;
}

/* The rest of the line that begins with `a b `; NULL: there is none. One of four buffers in turn. */
static const char *line_of(const tm_text *text, const char *a, const char *b)
{
    static char line[4][1500];
    static int  turn;
    char        start[128];
    snprintf(start, sizeof start, "\n%s %s ", a, b);
    const char *at = strstr(text->data, start);
    if (!at) return NULL;
    at += strlen(start);
    turn = (turn + 1) % 4;
    snprintf(line[turn], sizeof line[turn], "%.*s", (int)strcspn(at, "\n"), at);
    return line[turn];
}

/* Of "SET KEYS": a preset and keys, of which the last one counts; false: it needs files. */
static bool words_of(const tm_text *runs, const char *rest, char words[4000])
{
    char set[32];
    int  n = (int)strcspn(rest, " ");
    snprintf(set, sizeof set, "%.*s", n, rest);
    const char *of = line_of(runs, "with", set);
    if (!of) fail_msg("there is no set '%s'", set);
    size_t preset = strcspn(of, " ");
    snprintf(words, 4000, "%.*s %s%s%s", (int)preset, of, line_of(runs, "with", "all"), of + preset, rest + n);
    return !strstr(rest, "data.path");
}

/* Calls `visit` for every run, with what plans its steps. Returns their number. */
typedef void visitor(void *context, const char *name, const char *words, tm_run_options *options);
static int   for_all(visitor *visit, void *context)
{
    tm_text runs = read_runs();
    int     n = 0;
    for (const char *at = runs.data; (at = strstr(at, "\nrun ")); at++) {
        char name[64], rest[1500], words[4000];
        int  used = 0;
        assert_int_equal(sscanf(at + 5, "%63s %n", name, &used), 1);
        snprintf(rest, sizeof rest, "%.*s", (int)strcspn(at + 5 + used, "\n"), at + 5 + used);
        if (!words_of(&runs, rest, words)) continue;
        tm_run_options options;
        tm_config     *config = test_run_of(words, &options);
        visit(context, name, words, &options);
        tm_config_destroy(config);
        n++;
    }
    tm_text_fini(&runs);
    return n;
}

/* A device that plans for these instructions; NULL: this build has none. */
static tm_device *device_with(const char *isa)
{
    tm_device *device = NULL;
    tm_error   err = { 0 };
    assert_int_equal(tm_device_open_planning("cpu", 2, &device, &err), TM_OK);
    if (tm_device_limit_isa(device, isa, &err) == TM_OK) return device;
    print_message("skip: %s\n", err.text);
    tm_device_close(device);
    return NULL;
}

/* --- rules -------------------------------------------------------------------------------------------------------- */

/* The largest sum of live bytes of a program, counted anew: gradients, workspaces, and what lives within it. */
static size_t live_bytes(const tm_plan *plan, int32_t p)
{
    const tm_program *program = &plan->programs[p];
    size_t            most = 0, *live = calloc(program->count + 1, sizeof *live);
    assert_non_null(live);
    for (size_t i = 0; i < plan->graph->n_tensors; i++) {
        const tm_place  *at = &plan->places[i];
        const tm_tensor *t = &plan->graph->tensors[i];
        bool             gradient = t->role == TM_ROLE_GRADIENT && at->program == TM_PERSISTENT;
        if (t->space != TM_SPACE_DEVICE || at->bytes == 0 || (!gradient && (at->program != p || at->shares >= 0)))
            continue;
        int32_t first = !gradient ? at->first : program->written ? program->written[i] : 0;
        int32_t last = gradient ? (int32_t)program->count - 1 : at->last;
        for (int32_t x = first; x <= last; x++) live[x] += tm_plan_aligned(plan, at->bytes);
    }
    for (size_t x = 0; x < program->count; x++) {
        live[x] += tm_plan_aligned(plan, program->instructions[x].call.workspace_bytes);
        if (live[x] > most) most = live[x];
    }
    free(live);
    return most;
}

/* At most 2 % above the largest sum of live bytes; classes add up. */
static void check_tight(const char *name, const tm_plan *plan)
{
    const tm_space_plan *space = &plan->spaces[TM_SPACE_DEVICE];
    size_t               bound = space->gradient_bytes;
    int64_t              classes = 0;
    for (size_t p = 0; p < plan->n_programs; p++) {
        size_t live = live_bytes(plan, (int32_t)p);
        if (live > bound) bound = live;
    }
    bound += space->persistent_bytes - space->gradient_bytes + (size_t)plan->graph->slots * space->slot_bytes;
    for (size_t i = 0; i < plan->n_classes; i++) classes += plan->by_class[i].value;
    if (!((double)plan->arena_bytes <= 1.02 * (double)bound))
        fail_msg("%s: %zu bytes are planned, %zu live at once", name, plan->arena_bytes, bound);
    if (plan->live_peak != bound) fail_msg("%s: live_peak is %zu, counted %zu", name, plan->live_peak, bound);
    if (classes != (int64_t)plan->arena_bytes)
        fail_msg("%s: the classes add up to %lld of %zu", name, (long long)classes, plan->arena_bytes);
}

static void check_run(void *device, const char *name, const char *words, tm_run_options *options)
{
    const tm_mesh *mesh = &options->step.layout.mesh;
    tm_chooser     chooser = tm_device_chooser(device);
    int            ranks = mesh->degree[0] > 0 ? tm_mesh_ranks(mesh) : 1;
    if (strstr(words, "bfloat16") && ranks > 1) options->step.exact = &tm_precision_f32; /* as for a certificate */
    for (int rank = 0; rank < ranks; rank++) {
        if (rank > 0 && rank + 1 < ranks && !test_is_full()) continue; /* the first and the last */
        options->step.layout.rank = rank;
        tm_step *step = test_step_plan(&options->step, &chooser);
        if (strncmp(name, "large-", 6) != 0) rules_of_step(name, step); /* which look at every element */
        if (rank == 0) check_tight(name, step->plan);
        tm_step_destroy(step);
    }
}

TEST(every_step_keeps_the_rules)
{
    tm_device *device = device_with("base");
    assert_true(for_all(check_run, device) > 140);
    tm_device_close(device);
}

/* --- what is printed ---------------------------------------------------------------------------------------------- */

typedef struct {
    tm_device *device;
    tm_text    plans, record;
    int        wrong, done;
} digests;

static void say_model(const tm_model_shape *shape, int64_t seq, tm_text *out)
{
    tm_model_product products[TM_MAX_PRODUCTS];
    int              n = tm_model_products(shape, products);
    tm_text_printf(out, "%lld %lld\n", (long long)tm_model_parameters(shape),
                   (long long)tm_model_parameters_active(shape));
    for (int i = 0; i < TM_FLOPS_COUNT; i++)
        tm_text_printf(out, "%.17g\n", tm_model_flops_per_token(shape, (tm_flops_convention)i, seq));
    for (int i = 0; i < n; i++)
        tm_text_printf(out, "%s %lld %lld\n", products[i].name, (long long)products[i].out, (long long)products[i].in);
}

static void digest(void *context, const char *name, const char *words, tm_run_options *options)
{
    digests   *d = context;
    char       found[160];
    tm_text    text = { 0 }, members = { 0 };
    tm_json    json = { .out = &members, .indent = true };
    tm_chooser chooser = tm_device_chooser(d->device);
    (void)words;
    if (strncmp(name, "large-", 6) == 0) return;
    tm_step *step = test_step_plan(&options->step, &chooser);
    say_model(&options->step.shape, options->step.seq, &text);
    size_t plan = text.length;
    tm_plan_print(step->plan, &chooser, &text);
    tm_plan_print_spaces(step->plan, "- ", &text);
    tm_json_open(&json, NULL, '{');
    tm_plan_json(step->plan, &chooser, &json);
    tm_json_close(&json, '}');
    if (d->done++ % 3 == 0 || test_is_full()) rules_of_print(step->plan, &chooser, members.data, text.data + plan);
    snprintf(found, sizeof found, "%zu bytes, text %016llx, json %016llx", step->plan->arena_bytes,
             (unsigned long long)tm_hash(text.data, text.length),
             (unsigned long long)tm_hash(members.data, members.length));
    tm_text_printf(&d->record, "plan %s %s\n", name, found);
    const char *wanted = line_of(&d->plans, "plan", name);
    if (!wanted || strcmp(found, wanted) != 0) {
        print_message("%s: %s, recorded %s\n", name, found, wanted ? wanted : "nothing");
        d->wrong++;
    }
    tm_text_fini(&text);
    tm_text_fini(&members);
    tm_step_destroy(step);
}

TEST(plans_are_printed_as_recorded)
{
    digests d = { .device = device_with("avx2") };
    if (!d.device) skip();
    assert_ok(tm_file_read("tests/graph/plans.txt", 1 << 24, &d.plans, err));
    int n = for_all(digest, &d);
    if (getenv("TM_RECORD")) {
        *(strstr(d.plans.data, "\nplan ") + 1) = '\0';
        FILE *file = fopen("tests/graph/plans.txt", "w");
        assert_non_null(file);
        fprintf(file, "%s%s", d.plans.data, d.record.data);
        fclose(file);
    } else if (d.wrong) {
        fail_msg("%d of %d plans are others than recorded", d.wrong, n);
    }
    tm_text_fini(&d.plans);
    tm_text_fini(&d.record);
    tm_device_close(d.device);
}
