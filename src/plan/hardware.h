/* SPDX-License-Identifier: Apache-2.0 */
/* plan/hardware.h - what a machine can do, from a file: configs/hardware/NAME.yaml (compiled in), or one of the user's.
 *
 * A device is a GPU, or all processors of a CPU node. Every number has a unit and a source. Rates are of one device.
 */
#ifndef TM_PLAN_HARDWARE_H
#define TM_PLAN_HARDWARE_H

#include "base/arena.h"
#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

/* X(id, key of the file, unit, needed of a GPU, needed of a CPU, help). Rates of products: of the best shapes, as
 * measured for long enough that clocks settle; a peak: units x rate x highest clock. TFLOP/s are 1e12 a second, GB 1e9
 * bytes, GiB 2^30. A number that is not needed may be absent: it is 0 then. */
#define TM_HARDWARE_LIST(X)                                                                                            \
    X(UNITS, "units", "", 1, 1, "compute units, multiprocessors or cores")                                             \
    X(CLOCK, "clock", "MHz", 0, 0, "the highest")                                                                      \
    X(SUSTAINED_CLOCK, "sustained_clock", "MHz", 0, 0, "in long matrix products")                                      \
    X(POWER, "power", "W", 0, 0, "of the device, as sold")                                                             \
    X(MEMORY, "memory", "GiB", 1, 1, "of the device")                                                                  \
    X(MEMORY_RATE, "memory_rate", "GB/s", 1, 1, "peak of the memory")                                                  \
    X(MEMORY_SHARE, "memory_share", "of peak", 1, 1, "that long streams reach")                                        \
    X(CACHE, "cache", "MiB", 0, 0, "the last level")                                                                   \
    X(CACHE_RATE, "cache_rate", "GB/s", 0, 0, "of streams that fit into it")                                           \
    X(VECTOR_RATE, "vector_rate", "TFLOP/s", 0, 0, "arithmetic outside of matrix products")                            \
    X(PEAK_F32, "peak_f32", "TFLOP/s", 1, 0, "dense")                                                                  \
    X(PEAK_TF32, "peak_tf32", "TFLOP/s", 0, 0, "dense")                                                                \
    X(PEAK_BF16, "peak_bf16", "TFLOP/s", 1, 0, "dense; float16, too")                                                  \
    X(PEAK_FP8, "peak_fp8", "TFLOP/s", 0, 0, "dense; MXFP8, too")                                                      \
    X(PEAK_FP4, "peak_fp4", "TFLOP/s", 0, 0, "dense")                                                                  \
    X(PRODUCT_F32, "product_f32", "TFLOP/s", 0, 1, "products of the best shapes")                                      \
    X(PRODUCT_BF16, "product_bf16", "TFLOP/s", 1, 0, "products of the best shapes")                                    \
    X(PRODUCT_FP8, "product_fp8", "TFLOP/s", 0, 0, "products of the best shapes")                                      \
    X(PRODUCT_FP4, "product_fp4", "TFLOP/s", 0, 0, "products of the best shapes")                                      \
    X(HALF_DEPTH, "half_depth", "", 1, 1, "K at which a product reaches half its rate")                                \
    X(TILE_ROWS, "tile_rows", "", 1, 1, "M that a unit computes at once")                                              \
    X(TILE_COLUMNS, "tile_columns", "", 1, 1, "N likewise")                                                            \
    X(ATTENTION_FORWARD, "attention_forward", "TFLOP/s", 1, 1, "bfloat16 (CPU: float32), head of 128, visible pairs")  \
    X(ATTENTION_BACKWARD, "attention_backward", "TFLOP/s", 1, 1, "likewise")                                           \
    X(LAUNCH, "launch", "us", 1, 1, "of one kernel")                                                                   \
    X(LINK_DEVICES, "link_devices", "", 0, 0, "that links join: of a node, or of a rack")                              \
    X(LINK_RATE, "link_rate", "GB/s", 0, 0, "out of a device over all its links, one direction")                       \
    X(LINK_SHARE, "link_share", "of rate", 0, 0, "that large collectives reach")                                       \
    X(LINK_DELAY, "link_delay", "us", 0, 0, "of one step of a collective")                                             \
    X(NIC_RATE, "nic_rate", "GB/s", 0, 0, "of the network, for each device, one direction")                            \
    X(NIC_SHARE, "nic_share", "of rate", 0, 0, "that large collectives reach")                                         \
    X(NIC_DELAY, "nic_delay", "us", 0, 0, "of one step between nodes")                                                 \
    X(HOST_RATE, "host_rate", "GB/s", 0, 0, "between device and host, one direction")

typedef enum {
#define X(id, key, unit, gpu, cpu, help) TM_HARDWARE_##id,
    TM_HARDWARE_LIST(X)
#undef X
        TM_HARDWARE_NUMBERS
} tm_hardware_number;

typedef enum { TM_LINKS_NONE, TM_LINKS_MESH, TM_LINKS_SWITCH } tm_links; /* mesh: one link for each pair of devices */

/* What an op takes, measured on the device: the times of all three add up; 0: it takes none for that. The name is the
 * op's, with the format of its first floating-point operand behind it where that is not float32: "linear.bfloat16". */
typedef struct {
    const char *name;
    double      call, flops, bytes; /* us of a call; TFLOP/s and GB/s of what the op counts (tm_cost) */
    const char *source;
} tm_hardware_op;

typedef struct {
    const char *name, *maker, *arch; /* "MI300X", "AMD", "gfx942"; arch "": none */
    bool        cpu;
    tm_links    links;
    double      number[TM_HARDWARE_NUMBERS]; /* in the units of the list; 0: absent */
    const char *source[TM_HARDWARE_NUMBERS]; /* NULL: absent */

    const tm_hardware_op *op; /* (n_ops); ops that are not there take what the numbers say */
    size_t                n_ops;
} tm_hardware;

/* So many of them. */
typedef struct {
    tm_hardware device;
    int         nodes, devices; /* devices: of a node */
    double      imbalance;      /* rows of the fullest rank's experts, of even ones; below 1: even */
} tm_machine_plan;

/* Name of a built-in file; NULL behind the last. */
const char *tm_hardware_name(tm_arena *arena, size_t i);
/* A built-in name (the case does not matter) or the path of a file (with a '/' or ending in .yaml). TM_INVALID: no such
 * name, with all of them; TM_FORMAT: not such a file, an unknown key, a number that is missing or impossible, each with
 * file, line, key and what is expected. Texts live in the arena. */
TM_MUST_USE tm_status tm_hardware_read(tm_arena *arena, const char *name, tm_hardware *out, tm_error *err);
/* The same of a file that is being made: numbers may be missing. */
TM_MUST_USE tm_status tm_hardware_read_part(tm_arena *arena, const char *path, tm_hardware *out, tm_error *err);
/* [NODESx]GPUSxNAME or NAME, as tm_platform_read; NAME as tm_hardware_read. */
TM_MUST_USE tm_status tm_machine_plan_read(tm_arena *arena, const char *text, tm_machine_plan *out, tm_error *err);
/* A file with these numbers and ops, and their sources. */
void tm_hardware_print(const tm_hardware *hardware, tm_text *out);

#endif
