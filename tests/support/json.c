/* SPDX-License-Identifier: Apache-2.0 */
#include "support/json.h"

#include "support/test.h"

json_t *test_json(const char *path)
{
    json_error_t problem;
    json_t      *root = json_load_file(path, JSON_ALLOW_NUL, &problem);
    if (!root) fail_msg("%s: %s", path, problem.text);
    return root;
}

double test_json_number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value)) fail_msg("no number '%s'", key);
    return json_number_value(value);
}

void test_json_close(const char *of, const json_t *object, const char *key, const double *values, int64_t n,
                     double relative)
{
    const json_t *wanted = json_object_get(object, key);
    double        largest = 0, worst = 0;
    assert_true(n > 0 && (int64_t)json_array_size(wanted) == n);
    for (int64_t i = 0; i < n; i++) {
        double number = json_number_value(json_array_get(wanted, (size_t)i));
        largest = fmax(largest, fabs(number));
        worst = fmax(worst, fabs(values[i] - number));
    }
    if (!(largest > 0 && worst <= relative * largest)) fail_msg("%s: %s differ by %g of %g", of, key, worst, largest);
}
