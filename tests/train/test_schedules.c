/* SPDX-License-Identifier: Apache-2.0 */
/* Learning rates of files of other programs, by both derivations, against those that the programs themselves compute
 * (schedules.txt). */
#include "support/test.h"
#include "base/file.h"
#include "base/text.h"
#include "support/programs.h"
#include "train/certify/rate.h"
#include "train/run/run.h"

static const test_foreign_program *program_of(const char *name, size_t n)
{
    for (size_t i = 0; i < TEST_PROGRAMS; i++)
        if (strlen(test_foreign_programs[i].framework) == n &&
            strncmp(test_foreign_programs[i].framework, name, n) == 0)
            return &test_foreign_programs[i];
    fail_msg("no program: %.*s", (int)n, name);
    return NULL;
}

/* The recipes of Megatron-Bridge need a flavor's data. */
static void load(test_foreign *f, const test_foreign_program *program, const char *keys, tm_run_options *out)
{
    test_words words;
    char       all[900];
    bool       bridge = strcmp(program->framework, "megatron_bridge") == 0;
    snprintf(all, sizeof all, "%s%s", bridge ? "mock: true; " : "", keys);
    test_words_read(&words, all);
    tm_status st = test_foreign_load(f, test_foreign_program_put(f, program, ""), true, words.n, words.words);
    if (st == TM_OK) st = tm_run_options_read(f->config, out, &f->err);
    if (st != TM_OK) fail_msg("%s %s: %s", program->framework, keys, f->err.text);
}

TEST(rates_are_those_of_the_program)
{
    test_foreign *f = *test_state;
    tm_text       list = { 0 };
    int           settings = 0, wrong = 0;
    if (tm_file_read("tests/train/schedules.txt", 1 << 20, &list, &f->err) != TM_OK) fail_msg("%s", f->err.text);
    for (char *line = list.data, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        *end = '\0';
        if (*line == '#') continue;
        char *keys = strstr(line, " | ") + 3, *rates = strstr(keys, " | ");
        *rates = '\0';
        tm_run_options out;
        load(f, program_of(line, (size_t)(keys - line) - 3), keys, &out);
        for (char *at = rates + 3, *next; *at; at = next) {
            long   step = strtol(at, &next, 10);
            double wanted = strtod(next + 1, &next),
                   found = out.learning_rate * tm_schedule_factor(&out.schedule, step - 1),
                   certified = out.learning_rate * tm_certified_factor(&out.schedule, step);
            if (!(fabs(found - wanted) <= 1e-7 * out.learning_rate &&
                  fabs(certified - wanted) <= 1e-7 * out.learning_rate)) {
                print_error("%.*s %s: step %ld has %.12g, wanted %.12g\n", (int)(keys - line) - 3, line, keys, step,
                            found, wanted);
                wrong++;
            }
        }
        settings++;
    }
    tm_text_fini(&list);
    if (wrong || settings < 100) fail_msg("%d rates of %d settings are wrong", wrong, settings);
}

/* What Megatron-LM asserts of a schedule. */
TEST(what_megatron_asserts_is_refused)
{
    static const char *const refused[][2] = {
        { "train_iters: 6; lr_warmup_iters: 6", "a warm-up of 6 steps, fewer than its 6 steps wanted" },
        { "train_iters: 60; lr_warmup_iters: 10; lr_decay_iters: 10", "a warm-up of 10 steps, fewer than its 10" },
        { "train_iters: 6; lr_warmup_fraction: 1.0; lr_warmup_iters: 0", "a warm-up of 6 steps" },
        { "lr_warmup_fraction: 0.1", "both say how long the warm-up is" },
        { "lr: 1e-4; min_lr: 2e-4", "from 0 to optimizer.lr" },
        { "lr: 1e-4; lr_warmup_init: 2e-4", "lr_scheduler.warmup_lr 0.0002" },
        { "lr_decay_style: WSD", "the WSD schedule without lr_wsd_decay_iters" },
        { "lr_decay_style: WSD; lr_wsd_decay_iters: 0", "found 0, wanted 1 to" },
        { "lr_decay_style: WSD; lr_wsd_decay_iters: 3; lr_wsd_decay_style: steps", "another shape of the decay" },
    };
    test_foreign *f = *test_state;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        for (int bridge = 0; bridge < 2; bridge++) {
            const test_foreign_program *program = program_of(bridge ? "megatron_bridge" : "megatron", bridge ? 15 : 8);
            test_words                  words;
            test_words_read(&words, refused[i][0]);
            tm_status st =
                test_foreign_load(f, test_foreign_program_put(f, program, bridge ? "mock: true" : "mock_data: true"),
                                  false, words.n, words.words);
            if (tm_status_exit_code(st) != 4 || !strstr(f->err.text, refused[i][1]))
                fail_msg("%s %s: status %d: %s", program->framework, refused[i][0], (int)st, f->err.text);
        }
}

/* TorchTitan cuts a warm-up that is too long, and warns. Behind the end of its schedule the rate stays, where its
 * formula goes below 0. */
TEST(what_does_not_fit_into_a_schedule_is_told)
{
    static const char cut[] = "the warm-up is cut to", behind[] = "behind the end of the schedule";
    static const struct {
        const char *keys, *told; /* NULL: nothing */
    } cases[] = {
        { "training.steps: 5; lr_scheduler.warmup_steps: 20", cut },
        { "training.steps: 50; lr_scheduler.warmup_steps: 20; lr_scheduler.total_steps: 9", cut },
        { "training.steps: 20; lr_scheduler.warmup_steps: 20", NULL },
        { "training.steps: 10; lr_scheduler.warmup_steps: 2; lr_scheduler.total_steps: 8", behind },
        { "training.steps: 9; lr_scheduler.warmup_steps: 2; lr_scheduler.total_steps: 8", NULL },
        { "training.steps: 9; lr_scheduler.warmup_steps: 2; lr_scheduler.total_steps: 12", NULL },
    };
    test_foreign *f = *test_state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tm_run_options out;
        load(f, program_of("torchtitan", 10), cases[i].keys, &out);
        const char *notes = tm_config_notes(f->config), *told = cases[i].told;
        if (told ? !strstr(notes, told) : strstr(notes, cut) || strstr(notes, behind))
            fail_msg("%s: %s", cases[i].keys, notes);
        if (told == behind)
            assert_true(tm_schedule_factor(&out.schedule, 9) == 0 && tm_schedule_factor(&out.schedule, 8) == 0 &&
                        tm_schedule_factor(&out.schedule, 7) > 0);
    }
}

TEST_FIXTURE(test_foreign_set_up, test_foreign_tear_down)
