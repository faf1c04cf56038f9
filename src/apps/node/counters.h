/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/counters.h - what the system counts of errors on links: networks, InfiniBand, PCIe, links between GPUs.
 * Private to the room. */
#ifndef TM_NODE_COUNTERS_H
#define TM_NODE_COUNTERS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct {
    char   device[48]; /* "eth0", "mlx5_0 port 1", "PCIe 0000:3b:00.0" */
    char   name[48];   /* "rx_crc_errors" */
    double value;
    bool   hard; /* its growth is a fault: not what networks drop, send again or correct */
} tm_counter;

/* Zero-initialise; free with tm_counters_fini. */
typedef struct {
    tm_counter *counter;
    size_t      n, room;
} tm_counters;

/* sysroot: "" for the running system. What is not there is left out. */
void tm_counters_read(const char *sysroot, tm_counters *out);
void tm_counters_fini(tm_counters *counters);
/* That counter as it was before; NULL: it was not there. */
const tm_counter *tm_counters_find(const tm_counters *before, const tm_counter *now);

#endif
