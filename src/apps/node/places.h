/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/places.h - private to the room: where a node computes. Every processor is a place ("core 3": one thread
 * that is bound to it), all processors of this rank together are one ("CPU"), and every GPU is one ("cuda:1").
 */
#ifndef TM_NODE_PLACES_H
#define TM_NODE_PLACES_H

#include "device/device.h"
#include "apps/node/node.h"

typedef struct tm_node_worker tm_node_worker;

typedef struct {
    char            name[TM_NODE_PLACE];
    int             processor; /* of a core; -1: not a core */
    tm_device      *device;    /* of a core one thread, of the CPU as many as the rank may use */
    tm_node_worker *worker;    /* its thread; NULL: the caller's, of the CPU */
} tm_node_place;

typedef struct {
    tm_node_place *items; /* cores first, then the CPU, then GPUs */
    size_t         n, cores, room;
    double         spent_s; /* in tm_node_at_places, by the clocks of the threads that work */
} tm_node_places;

/* The places of this rank: the processors that it may use, and of the GPUs of its host every n-th, of n ranks there.
 * TM_USAGE: a device of the task's list that is not there. Zero-initialise; free with tm_node_places_close. */
TM_MUST_USE tm_status tm_node_places_open(const tm_node_task *task, tm_node_places *out, tm_error *err);
void                  tm_node_places_close(tm_node_places *places);

/* work(place, context) at each place: at all cores and GPUs at the same time, each in its own thread, which has opened
 * the device and, of a core, is bound to the processor; then at the CPU. The first failure of a place is that of the
 * call; all are done. */
typedef tm_status     tm_node_work(size_t place, void *context, tm_error *err);
TM_MUST_USE tm_status tm_node_at_places(tm_node_places *places, tm_node_work *work, void *context, tm_error *err);

/* Processor time of the calling thread, in seconds: other programs do not count in it. */
double tm_node_thread_seconds(void);

#endif
