/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/emulated.h - the devices cuda and hip over stand-ins for their libraries, which execute the kernels'
 * machine code (tests/standins, tests/machine). */
#ifndef TESTS_GPU_EMULATED_H
#define TESTS_GPU_EMULATED_H

#include "device/device.h"

#include <stdbool.h>

/* A test (TEST or FULL_TEST) on one of the devices, `on`; on each. */
#define TEST_ON(device, test, name, what)                                                                              \
    test(name##_on_##device)                                                                                           \
    {                                                                                                                  \
        __attribute__((unused)) const char *on = #device;                                                              \
        what;                                                                                                          \
    }
#define ON_BOTH(test, name, what) TEST_ON(cuda, test, name, what) TEST_ON(hip, test, name, what)

/* TM_TEST_GPU=real: the tests are to use the machine's own GPU and libraries (tools/gpu_acceptance.sh). */
bool gpu_is_real(void);

/* Environment variables from here on: the libraries of `name` ("cuda" or "hip") are the stand-ins, compiled kernels are
 * kept beside the tests; where the GPU is real, nothing is set. False: there is no compiler for it; tests skip then, or
 * fail where TM_TEST_COMPILERS says "required". */
bool emulated_device(const char *name);
/* Only the variables. */
void emulated_uncompiled(const char *name);

/* The same, but there is no compiler, and nothing is kept. */
void emulated_without_compiler(const char *name);

/* Word number `i` of a list with blanks between, until the next call; NULL: there are no more. */
const char *word_of(const char *list, int i);

/* "cuda", "hip" or "cpu", with two threads. */
tm_device *emulated_open(const char *name);

#endif
