/* SPDX-License-Identifier: Apache-2.0 */
/* The report that ends a run: every figure of a run in which no two are alike (support/told_runs.h), with its unit;
 * what it says instead where something is not known, failed or does not fit; where units change. */
#include "support/told_runs.h"

#include "record/record.h"

#include "support/test.h"

/* A run that may be changed before it is printed; `phases` in the place of those that its steps have. */
typedef struct {
    tm_event            start, end;
    tm_sample_summary   speed;
    int64_t             steps;
    const tm_named_f64 *phases;
    size_t              n_phases;
    tm_event            looks[2];
    size_t              n_looks;
    bool                colour;
} run;

static run rich(void)
{
    return (run){ .start = told_rich_start(), .end = told_rich_end(), .speed = rich_speed, .steps = 4 };
}

/* The report, line by line; with -v: `all` of it. */
static char *print_run(const run *r, bool all)
{
    tm_console_options options = { .log_freq = 1, .quiet = true, .verbose = all, .colour = r->colour };
    tm_sink           *sink = NULL;
    tm_error           err = { 0 };
    char              *data = NULL;
    size_t             bytes = 0;
    tm_event           end = r->end;
    options.out = open_memstream(&data, &bytes);
    assert_int_equal(tm_console_sink_open(&options, &sink, &err), TM_OK);
    fake_emit(sink, r->start);
    for (int64_t step = 31; step < 31 + r->steps; step++) {
        tm_event event = rich_step(step);
        if (r->phases) event.step_done.phases = r->phases, event.step_done.n_phases = r->n_phases;
        fake_emit(sink, event);
    }
    for (size_t i = 0; i < r->n_looks; i++) fake_emit(sink, r->looks[i]);
    end.run_ended.speed = &r->speed;
    fake_emit(sink, end);
    fake_close(sink);
    fclose(options.out);
    assert_null(strstr(data, "nan"));
    return data;
}

/* Blanks and ends of lines as one blank. */
static char *squeezed(char *text)
{
    char *to = text;
    for (const char *at = text; *at; at++)
        if (!strchr(" \n", *at) || (to > text && to[-1] != ' ')) *to++ = *at == '\n' ? ' ' : *at;
    *to = '\0';
    return text;
}

/* The report has these words, one after the other; words behind '!' are not in it. NULL ends them. */
static void says(const run *r, bool all, const char *const *words)
{
    char *text = squeezed(print_run(r, all)), *at = text;
    for (; *words; words++) {
        bool not = **words == '!';
        char *found = strstr(not ? text : at, *words + not );
        if (not != !found) fail_msg("'%s' in:\n%s", *words, text);
        if (found) at = found;
    }
    free(text);
}
#define SAYS(r, all, ...) says((r), (all), (const char *const[]){ __VA_ARGS__, NULL })

TEST(every_figure_of_a_run)
{
    run r = rich();
    SAYS(
        &r, true,
        "llama-small, float32, cpu 1,000,000 parameters, 4,096 tokens per step, 3 devices, 1 thread, data synthetic",
        "verdict noisy the speed is known to 9 % only; run longer, or on a machine that does nothing else speed 4,096 "
        "tokens/s per device, 95 % interval 4,000 .. 4,196, median of 1,234 steps; 450 target tokens/s; 24.58 TFLOP/s "
        "(6 N), MFU 61.44 % step time 62.5 ms median of 1,234 steps, 1.50 s .. 123 s for 90 % of them loss 2.5000 on "
        "held-out data, 8.0000 in the first step; 0.7500 above the entropy of the data 1.7500 memory 4.92 KiB, planned "
        "5.86 KiB, 0.0 % of 8.00 GiB; whole process 6.68 MiB",
        "gradients passed 5 parameter groups: predicted loss change 0.015625, measured 0.0156875 (tolerance 2e-05); "
        "causal mask, row isolation, use of context; 0.75 s update passed 4096 weights of steps 31 and 33 recomputed "
        "in "
        "double, largest difference 0.31 of the rounding bound; 2 of 9 tensors are too large; 0.0625 s and after "
        "failed "
        "the loss moves otherwise; losses in bfloat16 instead of float32: too large losses passed equal to the stored "
        "reference for 4 steps of the built-in job machine invalid others computed, too loss nats per pair",
        "first step 8.0000 last step 2.0000 validation 2.5000 floor: the entropy of the data 1.7500 validation above "
        "the "
        "floor 0.7500 validation, bits per byte 0.8750 reward 0.6250 margin -0.3750 speed, one device",
        "tokens/s, median step 4,096 4,000 .. 4,196 1,234 tokens/s, all tokens / all seconds 2,048 999.5 .. 2,222 "
        "1,234 "
        "target tokens/s, median step 450 439.5 .. 461 1,234 step time, median 62.5 ms step time, 5 and 95 % of steps "
        "1.50 s 123 s step time, variation 3.4 % outliers (included) 5 effective sample size 77 of 1,234 drift +1.2 % "
        "-0.8 .. +2.5 % steady state reached warm-up steps (excluded) 3 time to first step 12.50 s total time 346 s",
        "3 ranks busy waiting rank busiest rank 1.38 s 375 ms 1 least busy rank 500 ms 1.12 s 2 tokens/s of all ranks "
        "12,288 rank 1 on second is slow: 37.5 % (25.0 .. 50.0) behind the others, most in backward; each waited 1.5 s "
        "since step 30 rank 2 on third shares its processor with other programs: 12.5 % (6.2 .. 18.8)",
        "6 N 6 GFLOP 24.58 TFLOP/s 61.44 % all 999 FLOP 4.092 MFLOP/s 0.00 % more 7 PFLOP 28.67 EFLOP/s 71680000.00 %",
        "data 125.000 8.3 % ## forward 750.000 50.0 % ############ unaccounted 625.000 41.7 % ########## whole step, "
        "mean of 3 after the first 1500.000 100.0 % memory planned used weights 3.81 MiB gradients 3.81 MiB optimizer "
        "7.63 MiB activations 28.61 MiB logits 1.91 MiB workspace 1.00 MiB arena 5.86 KiB 4.92 KiB differ outside the "
        "arena, libraries 300 B whole process, resident 6.68 MiB limit 8.00 GiB text generated by the trained model "
        "once upon a time there was performance: 12288.0 tokens_per_second");
}

/* Each row stands in a line of its own. */
TEST(rows_are_lines)
{
    static const int lines[] = { 29, 82 }; /* the short report, all of it */
    for (int all = 0; all < 2; all++) {
        run   r = rich();
        char *text = print_run(&r, all);
        int   n = 0;
        for (const char *c = text; *c; c++) n += *c == '\n';
        assert_int_equal(n, lines[all]);
        free(text);
    }
}

/* A verdict is green, yellow or red; but for that and the bold title the text is that without colours. */
TEST(verdicts_have_their_colours)
{
    static const struct {
        tm_verdict  verdict;
        const char *painted;
    } rows[] = { { TM_VERDICT_VALID, "\033[1;32mvalid       \033[0mby hand" },
                 { TM_VERDICT_NOISY, "\033[1;33mnoisy       \033[0mby hand" },
                 { TM_VERDICT_INVALID, "\033[1;31minvalid     \033[0mby hand" },
                 { TM_VERDICT_NOT_JUDGED, "\033[1;33mnot-judged  \033[0mby hand" } };
    for (size_t i = 0; i < 4; i++) {
        run r = rich();
        r.end.run_ended.verdict = rows[i].verdict;
        r.end.run_ended.reason = "by hand";
        char *plain = print_run(&r, true);
        r.colour = true;
        char *text = print_run(&r, true), *to = text;
        if (!strstr(text, rows[i].painted)) fail_msg("no '%s' in %s", rows[i].painted, text);
        assert_non_null(strstr(text, "\033[1mllama-small"));
        for (const char *at = text; *at; at++)
            if (*at == '\033')
                at += strcspn(at, "m");
            else
                *to++ = *at;
        *to = '\0';
        assert_string_equal(text, plain);
        free(plain), free(text);
    }
}

/* Without -v: what failed, who holds up others, phases of half a percent and more of the step. */
TEST(the_short_report)
{
    static const tm_named_f64 phases[] = { { "tiny", 0.001 }, { "half", 0.0076 }, { "small", 0.003 }, { "large", 1 } };
    run                       r = rich();
    SAYS(&r, false, "whole process 6.68 MiB and after failed the loss moves otherwise", "machine invalid others",
         "!gradients", "!update ", "!losses passed", "!by convention", "!nats per", "rank 1 on second is slow",
         "text generated");
    r.phases = phases, r.n_phases = 4;
    SAYS(&r, false,
         "half 7.600 0.5 % large 1000.000 66.7 % ################ 2 phases below 0.5 % 4.000 0.3 % unaccounted");
    r.phases = phases + 2, r.n_phases = 1;
    SAYS(&r, false, "1 phase below 0.5 % 3.000 0.2 % unaccounted 1497.000 99.8 %");
    r.end.run_ended.machine.verdict = TM_VERDICT_NOT_JUDGED;
    r.end.run_ended.update = (tm_update_certificate){ .n_steps = 1, .reason = "moved elsewhere" };
    r.end.run_ended.certificate = (tm_certificate){ .reason = "nothing is trained" };
    SAYS(&r, false, "gradients none nothing is trained update failed moved elsewhere", "!machine not-judged");
    r.end.run_ended.certificate.done = true;
    SAYS(&r, false, "gradients failed nothing is trained");
    r.end.run_ended.certificate = (tm_certificate){ .done = false };
    r.end.run_ended.update.n_steps = 0;
    SAYS(&r, false, "!gradients", "!update ");
}

/* A bar of shares ends at the whole; where there is no whole there are no shares. Of one step the first counts. */
TEST(shares_of_a_step)
{
    static const tm_named_f64 phases[] = { { "twice", 1 }, { "back", -0.25 }, { "1 of 48", 0.5 / 48 } };
    run                       r = rich();
    r.phases = phases, r.n_phases = 3, r.steps = 1;
    SAYS(&r, true,
         "twice 1000.000 200.0 % ######################## back -250.000 -50.0 % 1 of 48 10.417 2.1 % # "
         "unaccounted 0.000 0.0 % whole step, mean of 1 500.000 100.0 %");
    r.n_phases = 0;
    SAYS(&r, true, "!step time by phase");
}

TEST(what_is_not_known)
{
    const double none = (double)NAN;
    run          r = rich();
    r.speed.median_rate = none;
    SAYS(&r, true, "speed not measured step time", "tokens/s, median step - 4,000 .. 4,196", "least busy rank",
         "!tokens/s of all ranks", "6 N 6 GFLOP - N/A", "!performance");
    r = rich();
    r.speed.median_rate_lo = none;
    SAYS(&r, true, "4,096 tokens/s per device, median of 1,234 steps; 450 target",
         "tokens/s, median step 4,096 - 1,234");
    r.speed.n = 0;
    SAYS(&r, true, "step time not measured", "!step time, median", "!drift", "warm-up steps");
    r.speed.n = 1;
    SAYS(&r, true, "median of 1 step;", "62.5 ms median of 1 step loss");
    r.speed.n = 19;
    SAYS(&r, true, "62.5 ms median of 19 steps loss", "!5 and 95 %");
    r.speed.n = 20;
    SAYS(&r, true, "median of 20 steps, 1.50 s .. 123 s for", "step time, 5 and 95 % of steps 1.50 s 123 s");
    r = rich();
    r.start.run_started.peak_flops = 0;
    SAYS(&r, true, "24.58 TFLOP/s (6 N) step time", "6 N 6 GFLOP 24.58 TFLOP/s N/A");
    r.start.run_started.n_flops_per_token = 0;
    SAYS(&r, true, "450 target tokens/s step time", "!by convention");
    r.start.run_started.devices = 1, r.start.run_started.threads = 2;
    SAYS(&r, true, "1 device, 2 threads", "4,096 tokens/s, 95 % interval");
    r.end.run_ended.n_ranks = 1;
    SAYS(&r, true, "!busiest rank");
    r.end.run_ended.sample = NULL;
    r.end.run_ended.verdict = TM_VERDICT_INVALID; /* a speed without a passing gate is no result */
    SAYS(&r, true, "!text generated", "!performance:");
}

/* Reasons in the order in which they count. */
TEST(why_there_is_no_interval)
{
    run r = rich();
    r.speed.rate_lo = (double)NAN;
    SAYS(&r, true, "all tokens / all seconds 2,048 - 1,234",
         "no interval of all tokens / all seconds: consecutive step times are too correlated; run more steps drift");
    r.speed.median_rate_lo = (double)NAN;
    r.speed.steady.reached = false;
    SAYS(&r, true, "target tokens/s; no interval: the speed changed during these steps",
         "no interval: the speed changed during these steps drift +1.2 % -0.8 .. +2.5 % steady state not reached");
    r.speed.steady.drift = (double)NAN;
    SAYS(&r, true, "no interval: consecutive step times", "!drift", "!steady state");
    r.speed.n = 5;
    SAYS(&r, true, "no interval: fewer than 6 steps");
    r.speed.n = 1;
    SAYS(&r, true, "!no interval");
}

TEST(whether_the_speed_stands_still)
{
    run r = rich();
    r.speed.steady.drift = -0.04;
    r.speed.steady.drift_lo = -6.001;
    SAYS(&r, true, "drift -0.0 % -6.0 .. +2.5 % steady state too few steps");
    r.speed.steady.drift_lo = -5.999;
    SAYS(&r, true, "steady state reached");
    r.speed.steady.drift_hi = (double)NAN;
    SAYS(&r, true, "drift -0.0 % - steady state too few steps");
}

TEST(losses_of_every_kind)
{
    const double none = (double)NAN;
    run          r = rich();
    r.end.run_ended.loss_validation = none;
    r.end.run_ended.n_measures = 0;
    SAYS(&r, true,
         "loss 2.0000 in the last step, 8.0000 in the first step; 0.2500 above the entropy of the data 1.7500",
         "loss nats per token first step 8.0000 last step 2.0000 floor: the entropy of the data 1.7500 validation, "
         "bits");
    r.end.run_ended.loss_last = 1.5;
    r.end.run_ended.loss_first = none;
    r.end.run_ended.image_tokens = 64;
    SAYS(&r, true, "speed 64 images/s, 4,096 tokens/s per device", "!target tokens/s",
         "1.5000 in the last step; 0.2500 below the least possible loss",
         "loss mean square error last step 1.5000 floor: the least possible loss 1.7500",
         "images/s, median step 64 62.5 .. 65.56 1,234");
    r.start.run_started.encoders = "inside";
    SAYS(&r, true, "speed 64 images/s with their encoding, 4,096");
    r.start.run_started.encoders = "before";
    SAYS(&r, true, "speed 64 images/s, encoded before, 4,096");
    r.end.run_ended.loss_floor = none;
    SAYS(&r, true, "1.5000 in the last step memory");
    r.end.run_ended.loss_last = none;
    SAYS(&r, true, "loss not finite memory", "!last step");
}

TEST(what_was_checked)
{
    run             r = rich();
    tm_certificate *c = &r.end.run_ended.certificate;
    r.end.run_ended.used_bytes = r.end.run_ended.planned_bytes;
    r.end.run_ended.curve.steps = 1, r.end.run_ended.curve.equal = false;
    r.end.run_ended.update.n_steps = 1;
    c->context = false;
    SAYS(&r, true, "memory 5.86 KiB, as planned", "; causal mask, row isolation; 0.75 s",
         "4096 weights of step 31 recomputed",
         "losses passed within the band of the stored reference for 1 step of the", "arena 5.86 KiB 5.86 KiB equal");
    r.end.run_ended.update.elements = 0;
    SAYS(&r, false, "update none 2 of 9 tensors are too large");
    r.end.run_ended.update.elements = 4096;
    SAYS(&r, false, "!update");
    c->rows = false;
    SAYS(&r, true, "; causal mask; 0.75 s");
    c->causal = false, c->rows = c->context = true;
    SAYS(&r, true, "(tolerance 2e-05), use of context; 0.75 s");
    r.end.run_ended.curve.steps = 0;
    SAYS(&r, true, "!losses passed");
    r.end.run_ended.data =
        (tm_data_certificate){ .done = true, .apart = true, .batches = 3, .held_out = 2, .compared = 77 };
    r.end.run_ended.replay = (tm_replay_told){ .steps = 1,
                                               .bytes = 5000000,
                                               .products = 6,
                                               .seconds = 1.5,
                                               .cost_percent = 2.5,
                                               .excluded_per_hour = 0.5,
                                               .device_seconds = 12 };
    SAYS(&r, true,
         "data passed 3 training batches and 2 validation batches read again, 77 tokens from their files replay passed",
         "gradients of 1 step computed twice, 5 MB compared to the bit, 6 products by their sums; 1.5 s, 2.5 % of the "
         "steps; "
         "more than 0.5 errors per device and hour excluded at 95 %, by 12 device-seconds");
    SAYS(&r, false, "!data passed", "!replay");
    r.end.run_ended.data.apart = false;
    r.end.run_ended.replay.n_mismatches = 1, r.end.run_ended.replay.wrong_products = 2;
    SAYS(&r, false, "data passed", "; data.validation_path names data that is trained on",
         "replay failed gradients of 1 step", "of the steps; 1 step and 2 products wrong");
    strcpy(r.end.run_ended.data.reason, "another text");
    SAYS(&r, false, "data failed another text");
    r.start.run_started.predicted = 5120, r.start.run_started.predicted_by = "box.yaml";
    SAYS(&r, false, "predicted 5,120 tokens/s per device by box.yaml; measured 4,096 (-20.0 %) step time");
}

TEST(looks_are_counted_and_the_first_that_diverges_is_told)
{
    run r = rich();
    for (r.n_looks = 1; r.n_looks <= 2; r.n_looks++) {
        r.looks[r.n_looks - 1] = fake_look(4 + (int64_t)r.n_looks);
        SAYS(&r, false,
             r.n_looks == 1 ? "numbers, 1 look, the last before step 5" : "numbers, 2 looks, the last before step 6",
             r.n_looks == 1 ? "bfloat16 beside"
                            : "first tensor exceeding the error bound: layers.0.w1.weight.grad, before step 5",
             "first tensor exceeding the error bound of 0.1: layers.0.w1");
    }
    r.n_looks = 1;
    r.looks[0].look.first = r.looks[0].look.worst = NULL;
    SAYS(&r, false, "no tensor exceeds the error bound of 0.1");
}

/* Text that a model wrote can hold any bytes; what could command a terminal becomes '?'. */
TEST(a_sample_commands_no_terminal)
{
    run r = rich();
    r.end.run_ended.sample = "a\tb\x01\x1b[2J\x1f\r\n\x7f\xc2\x85\xc2\xa0\xc3\xa9\xff\xe2\x82 \xe2\x82\xac";
    SAYS(&r, false, "generated by the trained model a b??[2J?? ??\xc2\xa0\xc3\xa9??? \xe2\x82\xac ");
}

TEST_FIXTURE(NULL, test_folder_teardown)
