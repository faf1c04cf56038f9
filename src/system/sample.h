/* SPDX-License-Identifier: Apache-2.0 */
/* system/sample.h - private to the room: what the kernel and the clocks say about the machine at one moment. Two of
 * them, subtracted, tell what happened between (system/validity.h).
 */
#ifndef TM_SYSTEM_SAMPLE_H
#define TM_SYSTEM_SAMPLE_H

#include "gpu/sensors.h"

#include <stdbool.h>
#include <stdint.h>

/* Sums since some past moment but for spin_ns and what is of this moment; NAN = unknown. Processors: those that the
 * process may use. */
typedef struct {
    double at;                         /* CLOCK_MONOTONIC, seconds */
    double raw, wall;                  /* CLOCK_MONOTONIC_RAW, CLOCK_REALTIME, seconds */
    double cycles, counter;            /* time stamp counter: ticks, and seconds where the processor tells their rate */
    double uptime;                     /* /proc/uptime, seconds in hundredths */
    double busy, iowait, steal;        /* seconds of the processors: working for anybody, waiting, stolen */
    double own;                        /* processor seconds of this process */
    double throttled;                  /* processor seconds that the control groups refused */
    double minor_faults, major_faults; /* of this process */
    double switches, migrations;       /* involuntary ones of this process; moves of its main thread */
    double thermal;                    /* throttle events of the processors; only in samples "with ends" */
    double stalled_cpu, stalled_memory, stalled_io; /* seconds in which some task waited for it (PSI) */
    double gpu_clock, gpu_power, gpu_temperature;   /* MHz, watts, degrees Celsius: at this moment */
    double gpu_capped, gpu_heat, gpu_time; /* the clock was held down by the power cap, by heat; of this time */
    double spin_ns;                        /* a fixed chain of operations: slower = lower clock frequency */
} sample;

enum { SAMPLE_CPUS = 4096, SAMPLE_GROUPS = 8 };

/* Where samples come from: files are opened once. */
typedef struct {
    char            sysroot[512];
    int             stat, sched, uptime, cpu_pressure, memory_pressure, io_pressure; /* -1: cannot be read */
    double          counter_rate;         /* ticks per second; NAN: not told */
    int             group[SAMPLE_GROUPS]; /* cpu.stat of the control group and its parents */
    int             n_groups;
    int             processors; /* that the process may use and /proc/stat shows; 0: unknown */
    uint8_t         allowed[SAMPLE_CPUS / 8];
    char           *text; /* room for a file */
    tm_gpu_sensors *gpu;  /* NULL: none is watched */
} sampler;

void sampler_open(sampler *s, const char *sysroot);
void sampler_close(sampler *s);
/* `ends`: also what takes long to read and is only needed at both ends. No memory is taken. */
void sampler_take(sampler *s, bool ends, sample *out);

/* --- parsers of kernel files; a value that is not there is NAN ------------------------------------------------------
 */

/* "0-3,8" to bits; false if that is not what it is. */
bool sample_parse_cpus(const char *list, uint8_t bits[SAMPLE_CPUS / 8]);
/* /proc/stat: sums over the processors of the set, in ticks; returns how many of them there are. */
int sample_parse_stat(const char *text, const uint8_t bits[SAMPLE_CPUS / 8], double *busy, double *iowait,
                      double *steal);
/* cpu.stat of a control group of either version: seconds. */
double sample_parse_throttled(const char *text);
/* A file of /proc/pressure: seconds of "some". */
double sample_parse_pressure(const char *text);
/* /proc/PID/sched. */
double sample_parse_migrations(const char *text);

#endif
