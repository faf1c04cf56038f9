/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of the kernels under kernels/, with inputs and what must come out of them, computed in float64.
 *
 *     machine_problem p;
 *     machine_problem_make(&p, &machine_amd_cases[i], "gfx942");
 *     machine_run(module, p.memory, &p.launch, &order, NULL, error) && machine_problem_error(&p) < 1
 *     machine_problem_free(&p);
 */
#ifndef TESTS_MACHINE_CASES_H
#define TESTS_MACHINE_CASES_H

#include "machine/machine.h"

typedef enum machine_format {
    MACHINE_F32,
    MACHINE_BF16,
    MACHINE_F16,
    MACHINE_E4M3,      /* OCP */
    MACHINE_E4M3_FNUZ, /* AMD's before gfx950 */
} machine_format;

/* An array in device memory; one with a bound is a result. */
typedef struct machine_array {
    machine_format format;
    uint64_t       address;
    size_t         count;
    double        *values;   /* of inputs: as rounded to the format; of results: what is expected */
    double         bound;    /* on |result - expected| / |expected|, the lengths as vectors; 0: an input */
    double        *expected; /* of an input that is written, too; else NULL */
} machine_array;

enum { MACHINE_ARRAYS = 12, MACHINE_ARGUMENT_ROOM = 512 };

typedef struct machine_problem {
    machine_memory *memory;
    machine_launch  launch;
    const char     *arch;
    unsigned char   arguments[MACHINE_ARGUMENT_ROOM];
    machine_array   arrays[MACHINE_ARRAYS];
    int             n_arrays;
    uint64_t        random;
} machine_problem;

typedef struct machine_case {
    const char *name;   /* words to print: kernel and shape */
    const char *file;   /* under kernels/ */
    const char *kernel; /* a name in it */
    void (*make)(machine_problem *p, const int *shape);
    int shape[8]; /* what `make` makes of it */
} machine_case;

/* Kernels for AMD's matrix cores; ends with a name of NULL. */
extern const machine_case machine_amd_cases[];

/* Inputs, results and arguments of a case on a device ("gfx942", "sm_80"): the same at every call. */
void machine_problem_make(machine_problem *p, const machine_case *c, const char *arch);
void machine_problem_free(machine_problem *p);

/* Inputs as they were, results 0xff: for another launch. */
void machine_problem_reset(machine_problem *p);

/* The largest error of a result over its bound: right if below 1; NaN: a result is not finite. */
double machine_problem_error(const machine_problem *p);

/* A number for the bits of all results. */
uint64_t machine_problem_bits(const machine_problem *p);

/* --- for what makes cases: arguments in the kernel's order --------------------------------------- */

/* An input of normal random numbers times `scale`. Returns its values, rounded to the format. */
double *machine_input(machine_problem *p, machine_format format, size_t count, double scale);
/* A result; the caller fills in what is expected. */
double *machine_result(machine_problem *p, machine_format format, size_t count, double bound);
void    machine_argument_int(machine_problem *p, int x);
void    machine_argument_float(machine_problem *p, float x);
void    machine_argument_bytes(machine_problem *p, const void *bytes, size_t size, size_t align); /* a struct */

/* expected[h][i] = softmax(scale q_h[i] k_h^T) v_h with `tokens` rows of `size` in each of `heads` heads; the
 * logarithms of the sums to log_sum. Heads lie one behind the other. */
typedef struct machine_attention {
    int           heads, tokens, size;
    bool          causal;
    double        scale;
    const double *q, *k, *v;
} machine_attention;
void machine_attention_forward(const machine_attention *a, double *out, double *log_sum);

#endif
