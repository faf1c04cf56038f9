/* SPDX-License-Identifier: Apache-2.0 */
/* device/ledger.c - where the time goes. A program marks the points of the queue at which the line changes; when the
 * queue was waited for, the times between them are known. A bound program is seldom timed so: its time as a whole is
 * measured, and parted as when it last was. */
#include "device/backend.h"

#include <stdlib.h>
#include <string.h>

void tm_ledger_add(tm_ledger *ledger, const char *name, double seconds)
{
    size_t i = 0;
    while (i < ledger->count && ledger->lines[i].name != name) i++; /* nearly always the same text */
    if (i == ledger->count)
        for (i = 0; i < ledger->count && strcmp(ledger->lines[i].name, name) != 0;) i++;
    if (i == ledger->count) {
        TM_ASSERT(ledger->count < TM_LEDGER_LINES);
        ledger->lines[ledger->count++] = (tm_named_f64){ name, 0 };
    }
    ledger->lines[i].value += seconds;
}

void tm_ledger_reset(tm_ledger *ledger)
{
    for (size_t i = 0; i < ledger->count; i++) ledger->lines[i].value = 0;
}

/* The groups of op.h times the phases, as static text. */
const char *tm_ledger_line(const tm_instruction *instruction)
{
    static const char *const names[][3] = {
        { "linear", "forward linear", "backward linear" },
        { "attention", "forward attention", "backward attention" },
        { "norm", "forward norm", "backward norm" },
        { "elementwise", "forward elementwise", "backward elementwise" },
        { "experts", "forward experts", "backward experts" },
        { "embedding", "forward embedding", "backward embedding" },
        { "cast", "forward cast", "backward cast" },
    };
    const char *group = instruction->call.op->group;
    int         column = instruction->node->phase == TM_PHASE_BACKWARD ? 2 : 1;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i][0], group) == 0) return names[i][column];
    return group;
}

struct tm_mark {
    tm_instant *instant;
    tm_marked   what;
};

tm_status tm_marks_add(tm_device *device, const tm_marked *what, tm_error *err)
{
    if (device->n_marks == device->marks_room) {
        size_t room = device->marks_room ? 2 * device->marks_room : 256;
        device->marks = tm_realloc(device->marks, room * sizeof *device->marks);
        memset(device->marks + device->marks_room, 0, (room - device->marks_room) * sizeof *device->marks);
        device->marks_room = room;
    }
    struct tm_mark *mark = &device->marks[device->n_marks];
    if (!mark->instant) TM_TRY(device->backend->instant_open(device, &mark->instant, err));
    mark->what = *what;
    device->n_marks++;
    return device->backend->record(device->queues[TM_ON_COMPUTE], mark->instant, err);
}

/* A program that was launched as one: its time goes to its lines in the shares that they had. */
static void settle(const tm_marked *what, double seconds)
{
    double whole = 0;
    if (what->line) {
        if (what->shares && what->first) tm_ledger_reset(what->shares);
        if (what->shares) tm_ledger_add(what->shares, what->line, seconds);
        tm_ledger_add(what->ledger, what->line, seconds);
        return;
    }
    for (size_t i = 0; i < what->shares->count; i++) whole += what->shares->lines[i].value;
    for (size_t i = 0; i < what->shares->count; i++)
        tm_ledger_add(what->ledger, what->shares->lines[i].name,
                      whole > 0 ? seconds * what->shares->lines[i].value / whole
                                : seconds / (double)what->shares->count);
}

tm_status tm_marks_settle(tm_device *device, tm_error *err)
{
    size_t n = device->n_marks;
    device->n_marks = 0;
    for (size_t i = 0; i + 1 < n; i++) {
        const struct tm_mark *mark = &device->marks[i];
        double                seconds;
        if (!mark->what.ledger) continue;
        TM_TRY(device->backend->time(mark->instant, mark[1].instant, &seconds, err));
        settle(&mark->what, seconds);
    }
    return TM_OK;
}

void tm_marks_close(tm_device *device)
{
    for (size_t i = 0; i < device->marks_room && device->marks[i].instant; i++)
        device->backend->instant_close(device->marks[i].instant);
    free(device->marks);
}
