/* SPDX-License-Identifier: Apache-2.0 */
/* base/cpu.h - facts of this machine that the lower rooms decide by: threads, instruction sets, caches, memory.
 *
 * Everything is read from the kernel when asked; only what cpuid says is kept. `sysroot` is "" for the running machine,
 * or a folder that holds copies of /proc and /sys (tests). The full description of a machine for reports is
 * system/environment.h.
 */
#ifndef TM_BASE_CPU_H
#define TM_BASE_CPU_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    bool avx2;        /* AVX2, FMA and F16C, and the system saves the wide registers */
    bool avx512;      /* F, BW, VL, DQ */
    bool avx512_bf16; /* besides avx512 */
    bool fast_bf16;   /* and its products of bfloat16 have twice the rate of float32's: on processors of AMD. Intel's
                         Sapphire Rapids was found to give 0.5 of it. */
    bool amx;         /* tiles with BF16 products (the process must still ask the kernel for leave to use them) */
} tm_cpu_isa;

/* All false on processors other than x86-64. The processor is asked once in a process. For tests: the variable
 * TM_TEST_CPU (base, avx2 or avx512) hides what the processor has beyond that. */
tm_cpu_isa tm_cpu_isa_probe(void);

/* tm_cpu_isa_probe().avx2 of the first call, for code that asks often. */
bool tm_cpu_has_avx2(void);

/* Asks the kernel for leave to use tile registers, in this process from now on; false: refused, or a system without. */
bool tm_cpu_allow_tiles(void);

typedef struct {
    int64_t l1d_bytes, l2_bytes, l3_bytes; /* one instance of each, as processor 0 sees them; 0 = none or unknown */
    int64_t line_bytes;                    /* 0 = unknown */
} tm_cpu_caches;

/* What cannot be read is 0. */
tm_cpu_caches tm_cpu_caches_read(const char *sysroot);

/* All last-level caches that the processors of this process's affinity mask reach, added up (of all processors where
 * `sysroot` is not ""); 0 = unknown. Memory beyond this many bytes cannot be held by them. For tests: with
 * TM_TEST_CACHE_MIB this machine has no more than that. */
int64_t tm_cpu_last_level_bytes(const char *sysroot);

/* What the control groups (v1 or v2, this one and its parents) leave to the process. */
typedef struct {
    double  cpus;              /* processor time per time; INFINITY = no quota */
    int64_t memory_bytes;      /* INT64_MAX = no limit */
    int64_t memory_used_bytes; /* in the group of that limit, less file pages that can be dropped; 0 without a limit */
} tm_cgroup_limits;

tm_cgroup_limits tm_cgroup_limits_read(const char *sysroot);

/* Threads that can really run at once: the processors of the affinity mask, but at most the quota of the control group
 * rounded up. At least 1. */
int tm_cpu_threads_allowed(void);

/* This process's share of the processors that it may use, of `count` processes with the same affinity mask: whole cores
 * next to each other, or one processor where there are fewer than processes. The threads made from now on stay there.
 * Returns the processors of the share; 0: the system does not let us. */
int tm_cpu_take_share(int index, int count);
/* A number for the affinity mask: equal masks have equal ones. 0: unknown. */
uint64_t tm_cpu_affinity_hash(void);

/* Tasks that run, or could run if there were a processor, at this moment on the whole machine, the caller among them;
 * and the processors of the machine. 0 = unknown. */
int tm_cpu_running_tasks(const char *sysroot);
int tm_cpu_online(const char *sysroot);

/* Memory of the machine or of the control group, whichever is less; `available` is what can be taken without swapping.
 * 0 where /proc/meminfo cannot be read. */
int64_t tm_memory_total_bytes(const char *sysroot);
int64_t tm_memory_available_bytes(const char *sysroot);

/* Resident memory of this process, all of it and its anonymous part (heap, stacks, arenas; no file pages). No malloc:
 * may be called inside a step. -1 where unknown. */
int64_t tm_resident_bytes(void);
int64_t tm_resident_anonymous_bytes(void);

/* Denormal inputs and results count as zero in the calling thread from now on (x86: FTZ and DAZ, arm64: FPCR.FZ).
 * Threads made later inherit it, existing ones do not. No effect on other processors. */
void tm_cpu_flush_denormals(void);

#endif
