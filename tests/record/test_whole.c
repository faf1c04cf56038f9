/* SPDX-License-Identifier: Apache-2.0 */
/* What the outputs say of two made-up runs: one in which no two figures are alike and nothing is left out, and one of
 * which little is known (support/told_runs.h). */
#include "support/folder.h"
#include "support/fake_run.h"
#include "support/told_runs.h"

#include "record/record.h"
#include "stats/sampling.h"

#include <jansson.h>

#include "support/test.h"

typedef void (*a_run)(tm_sink *sink);

static tm_text console_of(a_run run, tm_console_options options)
{
    tm_sink *sink = NULL;
    tm_error err = { 0 };
    tm_text  text = { 0 };
    char    *data = NULL;
    size_t   bytes = 0;
    options.out = open_memstream(&data, &bytes);
    assert_int_equal(tm_console_sink_open(&options, &sink, &err), TM_OK);
    run(sink);
    fake_close(sink);
    fclose(options.out);
    tm_text_add(&text, data);
    free(data);
    return text;
}

/* Figures of all steps since the last line, and of all from the third on; a loss that is no number is counted. */
TEST(megatron_lines_add_up)
{
    tm_text     text = console_of(told_rich, (tm_console_options){ .log_freq = 34, .style = TM_LOG_STYLE_MEGATRON });
    const char *line = text.data;
    static const char *const wanted[] = {
        " iteration       31/      40 | consumed samples:          246 | elapsed time per iteration (ms): 500.0/500.0 "
        "| "
        "throughput per GPU (TFLOP/s/GPU): 18.0/18.0 | tokens per GPU (tokens/s/GPU): 3000.0/3000.0 | "
        "learning rate: 3.000000E-04 | global batch size:     6 | lm loss: 8.000000E+00 | loss scale: 1.0 | "
        "grad norm: 0.750 | number of skipped iterations: 0 | number of nan iterations: 0 |\n",
        " iteration       34/      40 | consumed samples:          264 | elapsed time per iteration (ms): "
        "1500.0/1750.0 | throughput per GPU (TFLOP/s/GPU): 10.0/9.43 | tokens per GPU (tokens/s/GPU): 1666.7/1571.4 | "
        "learning rate: 3.000000E-04 | global batch size:     6 | lm loss: 2.000000E+00 | loss scale: 1.0 | "
        "grad norm: 0.750 | number of skipped iterations: 0 | number of nan iterations: 1 |\n",
    };
    for (int i = 0; i < 2; i++) {
        line = strchr(strstr(line, "\n ["), ']') + 1; /* behind the time of day */
        if (strncmp(line, wanted[i], strlen(wanted[i])) != 0) fail_msg("wanted '%s' in '%.600s'", wanted[i], line);
    }
    assert_null(strstr(line, "\n ["));
    tm_text_fini(&text);
}

/* "flops/0/per_token"; absent: NULL. */
static json_t *member_at(json_t *at, const char *path)
{
    char name[100], *rest = name;
    snprintf(name, sizeof name, "%s", path);
    for (char *part; (part = strsep(&rest, "/"));)
        at = json_is_array(at) ? json_array_get(at, (size_t)atoi(part)) : json_object_get(at, part);
    return at;
}

/* Absent: no number. */
static double number_at(json_t *at, const char *path)
{
    json_t *member = member_at(at, path);
    return json_is_number(member) ? json_number_value(member) : (double)NAN;
}

/* Members of the rich run: "WHERE: NAME=VALUE; NAME=VALUE". No two figures are alike. */
static const char *const members[] = {
    ": devices=3; threads=1; parameters=1000000; batch_tokens=4096; target_tokens_per_step=450",
    ": first_step_seconds=12.5; seconds=345.6; bits_per_byte=0.875; peak_flops_per_second=40000000000000",
    ": verdict=noisy; model=llama-small; precision=float32; device=cpu; kernels=avx9; sums=by fives",
    ": data_source=synthetic; configuration_hash=00ff00ff00ff00ff; seed=18446744073709551614",
    ": weights_hash=0123456789abcdef; sample=once upon a time\nthere was",
    "steps: planned=40; first=31; done=4; warmup=3; stopped=--timeout",
    "tokens_per_second_per_device: median=4096; lo=4000; hi=4196; n=1234",
    "tokens_per_second_per_device_overall: value=2048; lo=999.5; hi=2222; effective_n=77",
    "tokens_per_second_per_device_overall: half_width_percent=1.1",
    "step_time: median=0.0625; p5=1.5; p95=123.4; variation_percent=3.4; outliers=5",
    "steady_state: drift_percent=1.25; drift_lo=-0.75; drift_hi=2.5; shift_percent=3.5; shift_step=37",
    "step_seconds: 3=2",
    "machine: seconds=11.5; samples=23; processors=4; steal_percent=0.25; verdict=invalid",
    "machine: reason=others computed, too",
    "loss: first=8; last=2; validation=2.5; floor=1.75",
    "preference: margin=-0.375",
    "certificate: groups=5; expected=0.015625; measured=0.0156875; band=2e-05; step_loss=5.015625",
    "certificate: evaluated_loss=5.0156875; loss_band=0.007; seconds=0.75; losses=float32",
    "certificate/update/steps: 1=33",
    "certificate/update: elements=4096; largest=0.3125; seconds=0.0625; partly=2 of 9 tensors are too large",
    "certificate_after: groups=6; reason=the loss moves otherwise; losses=bfloat16; losses_reason=too large",
    "microscope: looks=2; first_divergent_step=32; first_divergent_tensor=layers.0.w1.weight.grad",
    "microscope/last: step=33; worst=layers.0.w1.weight.grad",
    "flops/2: per_token=7e+15; per_second_per_device=2.8672e+19; mfu_percent=71680000",
    "memory: planned_bytes=6000; used_bytes=5034; outside_arena_bytes=300; disk_bytes=40",
    "memory: limit_bytes=8589934592; resident_bytes=7000034",
    "work/1: flops=3000000000; bytes=5000000; line=backward",
    "memory_along_step/activations: 2=23",
    "phases: steps=3; step_seconds=1.5",
    "phases/mean_seconds: data=0.125; unaccounted=0.625",
    "ranks/1: data_rank=0; step_seconds=1.75; busy_seconds=1.375; wait_seconds=0.375; behind_percent=37.5",
    "ranks/1: target_tokens=101; used_bytes=201",
    "ranks/0: numa_node=1; host=first; gpu=0000:3b:00.0; nic=mlx5_0",
    "stragglers/1: step=34; since=31; low_percent=6.25; cause=other programs; phase=data",
    "flops/1: convention=all",
    "stragglers/0: cause=slow",
};

static void stand_there(json_t *json, const char *group)
{
    char text[400], *rest = text, path[100];
    snprintf(text, sizeof text, "%s", strchr(group, ':') + 2);
    for (char *one; (one = strsep(&rest, ";"));) {
        char *value = strchr(one, '='), *end;
        *value++ = '\0';
        snprintf(path, sizeof path, "%.*s%s%s", (int)strcspn(group, ":"), group, *group == ':' ? "" : "/",
                 one + (*one == ' '));
        json_t *member = member_at(json, path);
        double  wanted = strtod(value, &end);
        if (json_is_string(member))
            assert_string_equal(json_string_value(member), value);
        else if (*end || !(fabs(number_at(json, path) - wanted) <= 1e-12 * fabs(wanted)))
            fail_msg("%s is %.17g, wanted %s", path, number_at(json, path), value);
    }
}

/* No two figures of the run are alike: each stands where it belongs. Names and types: tests/results/test_schema.c. */
TEST(result_json_has_every_figure)
{
    tm_text text = told_text("rich"), poor = told_text("poor");
    json_t *json = json_loads(text.data, 0, NULL), *other = json_loads(poor.data, 0, NULL);
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) stand_there(json, members[i]);
    assert_non_null(strstr(text.data, "\"waited_for\": \"rank 1 on second is slow: 37.5 % (25.0 .. 50.0) behind the"));
    /* What the other run does not know is nothing; its rate is of images, too. */
    char unknown[] =
        "tokens_per_second_per_device_overall/lo steady_state/shift_percent steady_state/shift_step "
        "machine/processors loss/first loss/validation certificate/expected certificate/update/largest "
        "peak_flops_per_second flops/0/mfu_percent first_step_seconds seconds ranks/0/rank microscope/looks";
    for (char *rest = unknown, *path; (path = strsep(&rest, " "));) assert_true(isnan(number_at(other, path)));
    for (int i = 0; i < 3; i++) {
        static const char *const of[] = { "images_per_second_per_device/lo", "images_per_second_per_device/median",
                                          "images_per_second_per_device/hi" };
        assert_true(fabs(number_at(other, of[i]) - (1 << i)) < 1e-12);
    }
    json_decref(json), json_decref(other);
    tm_text_fini(&text), tm_text_fini(&poor);
}

/* Every cell has its own word; what a run does not know is empty. */
TEST(perf_csv_says_all)
{
    static const char *const wanted[] = {
        "entry_llama-small,5,2,2,float32,pipe,args,tags,,,,,commit,machine,deployed,launched,arch,12288,"
        "tokens_per_second,,SUCCESS,,345.6,synthetic,kind,,,build,\n",
        "entry_llama-small,0,2,0,float32,pipe,args,tags,,,,,commit,machine,deployed,launched,arch,,"
        "tokens_per_second,,FAILURE,,,synthetic,kind,,,build,\n"
    };
    for (int i = 0; i < 2; i++) {
        tm_error        err = { 0 };
        tm_sink        *sink = NULL;
        tm_event        start = told_rich_start();
        tm_perf_options options = { .path = test_in_folder("perf.csv"),
                                    .entry = "entry",
                                    .pipeline = "pipe",
                                    .args = "args",
                                    .tags = "tags",
                                    .git_commit = "commit",
                                    .machine_name = "machine",
                                    .deployment_type = "deployed",
                                    .launcher = "launched",
                                    .architecture = "arch",
                                    .data_provider_type = "kind",
                                    .build_number = "build",
                                    .nodes = 2 };
        assert_int_equal(tm_perf_sink_open(&options, &sink, &err), TM_OK);
        if (i) {
            told_poor(sink);
        } else {
            start.run_started.gpus = 5;
            fake_emit(sink, start);
            fake_emit(sink, told_rich_end());
        }
        fake_close(sink);
        tm_text text = fake_read(options.path);
        assert_string_equal(strchr(text.data, '\n') + 1, wanted[i]);
        tm_text_fini(&text);
    }
}

TEST_FIXTURE(NULL, test_folder_teardown)
