/* SPDX-License-Identifier: Apache-2.0 */
/* apps/mlperf/python.h - values as Python prints them: the public tools' messages to the last digit. */
#ifndef TM_MLPERF_PYTHON_H
#define TM_MLPERF_PYTHON_H

#include "base/arena.h"
#include "base/text.h"
#include "apps/mlperf/value.h"

/* repr() of a float: the shortest decimal that reads back, always with a point or an exponent ("178144.0", "1e-05",
 * "1e+16", "nan", "inf"). Returns out. */
char *tm_python_float(char out[32], double value);

/* Appends repr() of a value: True, None, 'text', [1, 2.0], {'a': 1}. */
void tm_python_print(const tm_json_value *value, tm_text *out);

/* int() of a value, as decimal digits: 5, "5", " 5 ", 5.0 and 5.7 are "5"; NULL for "5.5", null and the like. */
const char *tm_python_int(const tm_json_value *value, tm_arena *arena);

#endif
