/* SPDX-License-Identifier: Apache-2.0 */
/* device/trial.h - a kernel of a device, computed alone on an example of its op, beside what its reference computes. */
#ifndef TM_DEVICE_TRIAL_H
#define TM_DEVICE_TRIAL_H

#include "device/device.h"
#include "device/judge.h"
#include "op/kernel.h"

typedef struct tm_trial tm_trial;
struct tm_trial {
    const tm_judge  *judge;
    const tm_kernel *kernel;
    tm_device       *device;
    const char      *precision;                     /* its name */
    tm_call          call;                          /* formats and shapes; data: the device's, while it runs */
    char            *image[TM_MAX_IN + TM_MAX_OUT]; /* operands in the host's memory: inputs, then outputs */
    size_t           bytes[TM_MAX_IN + TM_MAX_OUT];
    int64_t gap, shift; /* elements between the rows of operands that may be views, and in front of the first one */
    void (*filled)(tm_trial *trial); /* changes the images before they go to the device; NULL: nothing */
};

/* Formats as a training step of this precision has them. Room for the operands, to be closed in any case. Without a gap
 * there is no shift. */
void tm_trial_open(tm_trial *trial, const tm_judge *judge, tm_device *device, const tm_kernel *kernel,
                   const tm_precision *precision, int64_t gap, int64_t shift);
void tm_trial_close(tm_trial *trial);

/* Prepares and runs the kernel: outputs come back into `image`. adds: bit k: output k is added to what is there
 * (judge->old). alias: output 0 lies where that input lies; -1: where none does. TM_DEVICE and what prepare returns. */
TM_MUST_USE tm_status tm_trial_run(tm_trial *trial, unsigned adds, int alias, tm_error *err);

/* The element that is furthest off, as a part of its bound; above 1: it is wrong. */
typedef struct {
    int     output;
    int64_t element;
    double  got, wanted, bound, part;
} tm_trial_worst;

tm_trial_worst tm_trial_judge(const tm_trial *trial, unsigned adds);
/* Where element e of operand i (inputs, then outputs) lies in its image. */
int64_t tm_trial_place(const tm_trial *trial, int i, int64_t e);

/* What came of the examples of an op. */
typedef struct {
    int            calls; /* that were computed: examples x precisions, and again where the op can add */
    int            wrong;
    bool           kernel;     /* the device has one for some example */
    tm_trial_worst worst;      /* of the first wrong call, else of the one that is furthest off */
    char           where[160]; /* its kernel, example, precision */
} tm_tried;

/* Examples of an op in every precision, each by the kernel that a training step would get. Longer ones than these
 * operations and values of inputs are left out. A device that fails: TM_DEVICE, with where in *out. */
TM_MUST_USE tm_status tm_try_op(tm_device *device, const tm_op *op, double flops, int64_t values, tm_tried *out,
                                tm_error *err);
/* The same of tm_device_draw: the host's numbers, bit for bit. */
TM_MUST_USE tm_status tm_try_draw(tm_device *device, tm_tried *out, tm_error *err);

#endif
