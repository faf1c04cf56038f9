/* SPDX-License-Identifier: Apache-2.0 */
#include "base/event.h"

#include "base/arena.h"

#include <stdlib.h>

void tm_event_bus_add(tm_event_bus *bus, tm_sink *sink)
{
    bus->sinks = tm_grow(bus->sinks, &bus->capacity, bus->count, sizeof(tm_sink *));
    bus->sinks[bus->count++] = sink;
}

void tm_event_bus_fini(tm_event_bus *bus)
{
    free(bus->sinks);
    *bus = (tm_event_bus){ 0 };
}

tm_status tm_event_failure(const tm_event_bus *bus, tm_error *err)
{
    for (size_t i = 0; i < bus->count; i++) {
        const tm_sink *sink = bus->sinks[i];
        if (sink->vital && sink->error.status != TM_OK) return tm_fail(err, sink->error.status, "%s", sink->error.text);
    }
    return TM_OK;
}
