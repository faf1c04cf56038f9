/* SPDX-License-Identifier: Apache-2.0 */
/* The times of a drawing are those that diffusers' scheduler has for the same file. */
#include "support/test.h"
#include "base/file.h"
#include "train/generate/scheduler.h"

#include "support/folder.h"

static tm_status euler_of(const char *json, tm_euler_times *out, tm_error *err)
{
    const char *path = test_in_folder("scheduler_config.json");
    (void)remove(path);
    if (json) assert_int_equal(tm_file_write(path, json, strlen(json), err), TM_OK);
    return tm_scheduler_read(test_folder(), out, err);
}

#define CLASS "{\"_class_name\": \"FlowMatchEulerDiscreteScheduler\""

/* sigmas of FlowMatchEulerDiscreteScheduler.set_timesteps(sigmas=linspace(1, 1/4, 4), mu=calculate_shift(1024, ...)) of
 * diffusers 0.42: written down from there. */
TEST(times_are_those_of_diffusers)
{
    static const struct {
        const char *json;
        double      times[5];
    } rows[] = {
        { CLASS ", \"shift\": 3.0, \"use_dynamic_shifting\": true, \"base_shift\": 0.5, \"max_shift\": 1.15, "
                "\"base_image_seq_len\": 256, \"max_image_seq_len\": 4096, \"num_train_timesteps\": 1000}",
          { 1, 0.84923482, 0.65248942, 0.38494474, 0 } },
        { CLASS ", \"shift\": 3.0}", { 1, 0.9, 0.75, 0.5, 0 } },
        { CLASS "}", { 1, 0.75, 0.5, 0.25, 0 } },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tm_euler_times rule;
        double         times[5];
        assert_ok(euler_of(rows[i].json, &rule, err));
        tm_euler_times_of(&rule, 1024, 4, times);
        for (int k = 0; k < 5; k++) assert_true(fabs(times[k] - rows[i].times[k]) < 1e-6);
    }
}

TEST(what_changes_the_times_is_refused)
{
    static const struct {
        const char *json;
        tm_status   status;
        const char *says;
    } rows[] = {
        { NULL, TM_INVALID, "not readable" },
        { "[]", TM_INVALID, "no JSON object" },
        { "{\"_class_name\": \"DDIMScheduler\"}", TM_UNSUPPORTED, "DDIMScheduler" },
        { "{}", TM_UNSUPPORTED, "_class_name is missing" },
        { CLASS ", \"use_karras_sigmas\": true}", TM_UNSUPPORTED, "use_karras_sigmas" },
        { CLASS ", \"stochastic_sampling\": true}", TM_UNSUPPORTED, "stochastic_sampling" },
        { CLASS ", \"shift_terminal\": 0.1}", TM_UNSUPPORTED, "shift_terminal" },
        { CLASS ", \"time_shift_type\": \"linear\"}", TM_UNSUPPORTED, "linear" },
        { CLASS ", \"shift\": -1}", TM_INVALID, "shift" },
        { CLASS ", \"max_image_seq_len\": 256}", TM_INVALID, "max_image_seq_len" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tm_euler_times rule;
        tm_error       err = { 0 };
        assert_int_equal(euler_of(rows[i].json, &rule, &err), rows[i].status);
        assert_non_null(strstr(err.text, rows[i].says));
    }
}

TEST_FIXTURE(NULL, test_folder_teardown)
