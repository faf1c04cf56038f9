/* SPDX-License-Identifier: Apache-2.0 */
/* gpu/neighbours.h - what is near a GPU on its host: the NUMA node and the network card, by addresses on PCI.
 */
#ifndef TM_GPU_NEIGHBOURS_H
#define TM_GPU_NEIGHBOURS_H

typedef struct {
    char bus[32];   /* of the GPU, as /sys has it: "0000:3b:00.0" */
    int  numa_node; /* -1: unknown */
    char nic[32];   /* "mlx5_0", or "eth0" where there is no RDMA card; "": none is known */
    int  nics;      /* that are as near as this one, itself included; 0: none is known */
} tm_gpu_neighbours;

/* Of the GPU at `bus` (tm_gpu_facts), in any case of its letters. The card is that with which the GPU shares most of
 * the way from the processor (root port, switches), else one of the same NUMA node, else any; of several the first by
 * name. sysroot: "" for the running machine. */
void tm_gpu_neighbours_find(const char *bus, const char *sysroot, tm_gpu_neighbours *out);

#endif
