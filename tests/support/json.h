/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/json.h - numbers of other programs in files of JSON; what is not there ends the test. */
#ifndef TM_TESTS_JSON_H
#define TM_TESTS_JSON_H

#include <jansson.h>
#include <stdint.h>

/* The whole file; the caller gives it back. */
json_t *test_json(const char *path);
double  test_json_number(const json_t *object, const char *key);
/* The largest difference to object[key] (n) is at most `relative` of the largest number there; `of` is for the message.
 */
void test_json_close(const char *of, const json_t *object, const char *key, const double *values, int64_t n,
                     double relative);

#endif
