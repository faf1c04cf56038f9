/* SPDX-License-Identifier: Apache-2.0 */
/* What `explain` prints of the plans of many configurations, to the letter: every instruction with its cost and kernel,
 * every buffer with its place. tests/golden/plans.txt has the digests, and the configurations that bits.txt lacks.
 *
 * Where plans are meant to change, or a configuration is new:
 *     TM_RECORD=1 build/release/tests/golden/test_plans; git diff tests/golden/plans.txt
 * writes the digests anew; why they changed is for the commit to say. What changed in a plan is seen by
 * `trainmark explain KEYS --isa avx2`, before and after. */
#include "support/full_config.h"
#include "support/training.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "graph/plan.h"
#include "model/model.h"
#include "train/run/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

static tm_text read_text(const char *path)
{
    tm_text  text = { 0 };
    tm_error err = { 0 };
    if (tm_file_read(path, 1 << 24, &text, &err) != TM_OK) fail_msg("%s", err.text);
    return text;
}

/* The rest of the line that begins with `a b `, or with `a `; NULL: there is none. Static. */
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

/* The digests of the plan of these keys, in hexadecimal. */
static void digest_of(const char *name, const char *words, char out[160])
{
    tm_config     *config = test_full_config();
    tm_run_options options;
    tm_error       err = { 0 };
    tm_device     *device = NULL;
    tm_step       *step = NULL;
    tm_text        text = { 0 }, members = { 0 };
    tm_json        json = { .out = &members, .indent = true };
    tm_status      st = test_read_run(config, words, &options, &err);
    if (st == TM_OK) st = tm_device_open_planning("cpu", 2, &device, &err);
    if (st == TM_OK) st = tm_device_limit_isa(device, "avx2", &err);
    if (st != TM_OK) fail_msg("%s: %s", name, err.text);
    tm_chooser chooser = tm_device_chooser(device);
    if (tm_step_create(&options.step, &chooser, &step, &err) != TM_OK) fail_msg("%s: %s", name, err.text);
    say_model(&options.step.shape, options.step.seq, &text);
    tm_plan_print(step->plan, &chooser, &text);
    tm_plan_print_spaces(step->plan, "- ", &text);
    tm_json_open(&json, NULL, '{');
    tm_plan_json(step->plan, &chooser, &json);
    tm_json_close(&json, '}');
    snprintf(out, 160, "%zu bytes, text %016llx, json %016llx", step->plan->arena_bytes,
             (unsigned long long)tm_hash(text.data, text.length),
             (unsigned long long)tm_hash(members.data, members.length));
    tm_text_fini(&text);
    tm_text_fini(&members);
    tm_step_destroy(step);
    tm_device_close(device);
    tm_config_destroy(config);
}

/* A preset and the keys of a run, of which the last one counts; NULL: it needs files. */
static const char *words_of(const tm_text *bits, const char *rest)
{
    static char words[4000];
    char        set[32];
    int         n = (int)strcspn(rest, " ");
    snprintf(set, sizeof set, "%.*s", n, rest);
    const char *of = line_of(bits, "with", set);
    if (!of) fail_msg("there is no set '%s'", set);
    if (strstr(rest, "data.path")) return NULL;
    size_t first = strcspn(of, " "); /* a preset */
    snprintf(words, sizeof words, "%.*s %s%s%s", (int)first, of, line_of(bits, "with", "all"), of + first, rest + n);
    return words;
}

/* Every run of a file against its record. */
static int check_runs(const tm_text *runs, const tm_text *bits, const tm_text *plans, tm_text *record, int *checked)
{
    int wrong = 0;
    for (const char *at = runs->data; (at = strstr(at, "\nrun ")); at++) {
        char name[64], found[160];
        int  n = 0;
        assert_int_equal(sscanf(at + 5, "%63s%n", name, &n), 1);
        char        rest[1500];
        const char *own = at + 5 + n;
        snprintf(rest, sizeof rest, "%.*s", (int)strcspn(own + 1, "\n"), own + 1);
        const char *words = words_of(bits, rest), *wanted = line_of(plans, "plan", name);
        if (!words) continue;
        digest_of(name, words, found);
        tm_text_printf(record, "plan %s %s\n", name, found);
        ++*checked;
        if (wanted && strcmp(found, wanted) == 0) continue;
        print_message("%s: %s, recorded %s\n", name, found, wanted ? wanted : "nothing");
        wrong++;
    }
    return wrong;
}

/* Has this build the kernels that the plans are made for? */
static bool can_plan(void)
{
    tm_device *device = NULL;
    tm_error   err = { 0 };
    assert_int_equal(tm_device_open_planning("cpu", 2, &device, &err), TM_OK);
    bool can = tm_device_limit_isa(device, "avx2", &err) == TM_OK;
    tm_device_close(device);
    if (!can) print_message("skip: %s\n", err.text);
    return can;
}

TEST(plans_are_as_recorded)
{
    if (!can_plan()) skip();
    tm_text bits = read_text("tests/golden/bits.txt"), plans = read_text("tests/golden/plans.txt"), record = { 0 };
    int     checked = 0, wrong = check_runs(&bits, &bits, &plans, &record, &checked);
    wrong += check_runs(&plans, &bits, &plans, &record, &checked);
    assert_true(checked > 80);
    if (getenv("TM_RECORD")) {
        char *begin = strstr(plans.data, "\nplan ");
        FILE *file = fopen("tests/golden/plans.txt", "w");
        assert_non_null(file);
        fprintf(file, "%.*s%s", (int)(begin ? begin + 1 - plans.data : (ptrdiff_t)plans.length), plans.data,
                record.data);
        fclose(file);
    } else if (wrong) {
        fail_msg("%d of %d plans are others than recorded", wrong, checked);
    }
    tm_text_fini(&bits);
    tm_text_fini(&plans);
    tm_text_fini(&record);
}
