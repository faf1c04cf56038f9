/* SPDX-License-Identifier: Apache-2.0 */
#include "train/generate/scheduler.h"

#include "base/json_input.h"

#include <math.h>
#include <string.h>

static const char *const other_rules[] = { "invert_sigmas", "use_karras_sigmas", "use_exponential_sigmas",
                                           "use_beta_sigmas", "stochastic_sampling" };

/* Numbers: "key", their place in tm_euler_times, diffusers' default. */
static const struct {
    const char *key;
    size_t      at;
    double      otherwise;
} numbers[] = {
    { "shift", offsetof(tm_euler_times, shift), 1 },
    { "base_shift", offsetof(tm_euler_times, base_shift), 0.5 },
    { "max_shift", offsetof(tm_euler_times, most_shift), 1.15 },
    { "base_image_seq_len", offsetof(tm_euler_times, base_tokens), 256 },
    { "max_image_seq_len", offsetof(tm_euler_times, most_tokens), 4096 },
};

static tm_status refuse(const char *path, const char *key, const char *why, tm_error *err)
{
    return tm_fail(err, TM_UNSUPPORTED,
                   "'%.300s': %s %s; wanted a FlowMatchEulerDiscreteScheduler with plain, shifted or dynamically "
                   "shifted times",
                   path, key, why);
}

static tm_status check_rules(const char *path, const json_t *config, tm_error *err)
{
    const char *class = json_string_value(json_object_get(config, "_class_name"));
    const char *type = json_string_value(json_object_get(config, "time_shift_type"));
    json_t     *terminal = json_object_get(config, "shift_terminal");
    if (!class || strcmp(class, "FlowMatchEulerDiscreteScheduler") != 0)
        return refuse(path, "_class_name", class ? class : "is missing", err);
    for (size_t i = 0; i < sizeof other_rules / sizeof other_rules[0]; i++)
        if (json_is_true(json_object_get(config, other_rules[i])))
            return refuse(path, other_rules[i], "is not supported", err);
    if (terminal && !json_is_null(terminal)) return refuse(path, "shift_terminal", "is not supported", err);
    if (type && strcmp(type, "exponential") != 0) return refuse(path, "time_shift_type", type, err);
    return TM_OK;
}

static tm_status read_rules(const char *path, const json_t *config, tm_euler_times *out, tm_error *err)
{
    TM_TRY(check_rules(path, config, err));
    out->by_size = json_is_true(json_object_get(config, "use_dynamic_shifting"));
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        json_t *number = json_object_get(config, numbers[i].key);
        bool    positive = json_is_number(number) && json_number_value(number) > 0;
        if (number && !json_is_null(number) && !positive)
            return tm_fail(err, TM_INVALID, "'%.300s': %s is not a positive number", path, numbers[i].key);
        *(double *)((char *)out + numbers[i].at) = positive ? json_number_value(number) : numbers[i].otherwise;
    }
    if (out->most_tokens <= out->base_tokens)
        return tm_fail(err, TM_INVALID, "'%.300s': max_image_seq_len must be more than base_image_seq_len", path);
    return TM_OK;
}

tm_status tm_scheduler_read(const char *folder, tm_euler_times *out, tm_error *err)
{
    tm_text      path = { 0 };
    json_error_t problem;
    tm_text_printf(&path, "%s/scheduler_config.json", folder);
    json_t   *config = tm_json_input_file(path.data, 0, &problem);
    tm_status st = TM_OK;
    *out = tm_euler_times_even;
    if (!json_is_object(config))
        st = tm_fail(err, TM_INVALID, "'%.300s' is %s; wanted a scheduler_config.json as diffusers writes it",
                     path.data, !config && problem.line < 0 ? "not readable" : "no JSON object");
    else
        st = read_rules(path.data, config, out, err);
    json_decref(config);
    tm_text_fini(&path);
    return st;
}
