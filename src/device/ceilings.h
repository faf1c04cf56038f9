/* SPDX-License-Identifier: Apache-2.0 */
/* device/ceilings.h - what the machine below a device can do at most, measured: arithmetic from registers, memory
 * beyond the caches. No result of that machine can be better (docs/bench-stream.md).
 */
#ifndef TM_DEVICE_CEILINGS_H
#define TM_DEVICE_CEILINGS_H

#include "base/cpu.h"
#include "device/device.h"
#include "stats/guard.h"

/* Rates of all threads of the device together; 0 = unknown. */
typedef struct {
    double flops;      /* float32 FLOP/s, a fused multiply-add counted as two; with the best instructions there are */
    double flops_bf16; /* the same of bfloat16 products summed in float32; no less than `flops` */
    double bytes;      /* bytes/s between processor and memory, read and written, of the best of several patterns */
    double flops_spread, flops_bf16_spread, bytes_spread; /* (best - median) / best of the samples of each */
    char   flops_how[128], bytes_how[128];
} tm_ceilings;

/* For the guards of stats/guard.h: of products of bfloat16 numbers, or of others (float16 is widened to float32). */
static inline tm_peaks tm_ceilings_peaks(const tm_ceilings *c, tm_dtype dtype)
{
    bool bf16 = dtype == TM_BF16;
    return (tm_peaks){ .flops = bf16 ? c->flops_bf16 : c->flops,
                       .bytes = c->bytes,
                       .flops_spread = bf16 ? c->flops_bf16_spread : c->flops_spread,
                       .bytes_spread = c->bytes_spread };
}

/* Takes about `seconds` (0.2 is enough in a calm moment: every rate is the best of many short samples), besides the
 * first touch of its memory, which is four times the last-level cache, at most 1 GiB. TM_NOMEM if there is no room. */
TM_MUST_USE tm_status tm_device_ceilings(tm_device *device, double seconds, tm_ceilings *out, tm_error *err);
/* Its arithmetic alone (flops, flops_bf16, flops_how; bytes is 0), of `threads` threads, 0: all of the device. Takes no
 * memory. One thread finds a calm moment even on a busy machine, and runs at the highest clock: n times its rate is a
 * bound that n threads never pass. */
void tm_device_arithmetic(const tm_device *device, int threads, double seconds, tm_ceilings *out);

/* What the data sheet promises for float32: threads (taken for cores) x units x lanes x 2 x clock, in FLOP/s; 0 where
 * one of them is unknown, as the clock is in most virtual machines. `how` tells the factors. */
double tm_device_datasheet_flops(const tm_device *device, char how[160]);

/* Fused multiply-adds of a core per cycle: units, float32 lanes; 0 where unknown. */
typedef struct {
    int units, lanes;
} tm_fma_width;
/* Of a processor by what its CPUID says: the vendor's twelve letters, EAX of leaf 1. */
tm_fma_width tm_datasheet_width(const char *vendor, unsigned signature, tm_cpu_isa isa);
/* The product of the factors, and its text. */
double tm_datasheet_flops(int cores, tm_fma_width width, double hertz, char how[160]);

/* The kernels of STREAM (McCalpin 1995) and BabelStream on float64 arrays. Bytes counted per element: 16, 16, 24,
 * 24, 16; the line that an ordinary store reads before it writes is not counted. */
#define TM_STREAM_LIST(X)                                                                                              \
    X(COPY, "copy", 2)   /* c = a */                                                                                   \
    X(MUL, "mul", 2)     /* b = s c */                                                                                 \
    X(ADD, "add", 3)     /* c = a + b */                                                                               \
    X(TRIAD, "triad", 3) /* a = b + s c */                                                                             \
    X(DOT, "dot", 2)     /* returns the sum of a b */
typedef enum {
#define X(id, name, arrays) TM_STREAM_##id,
    TM_STREAM_LIST(X)
#undef X
        TM_STREAM_COUNT
} tm_stream_kernel;
const char *tm_stream_name(tm_stream_kernel kernel);
int64_t     tm_stream_bytes(tm_stream_kernel kernel); /* counted per element */

/* Can stores bypass the caches? */
bool tm_device_streams(const tm_device *device);

/* Runs a kernel once with all threads, each on the part of the arrays that it touched first if the arrays came from
 * tm_device_alloc or tm_device_stream_fill. a, b, c: n elements each, aligned to 64 bytes. Returns the sum for DOT,
 * otherwise 0; the order of summation depends on n and the number of threads. */
double tm_device_stream(const tm_device *device, tm_stream_kernel kernel, bool streaming_stores, double scalar,
                        double *a, double *b, double *c, int64_t n);
/* a = x, b = y, c = z, by the threads that tm_device_stream gives the parts to. */
void tm_device_stream_fill(const tm_device *device, double *a, double x, double *b, double y, double *c, double z,
                           int64_t n);

#endif
