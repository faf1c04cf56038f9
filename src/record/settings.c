/* SPDX-License-Identifier: Apache-2.0 */
/* record/settings.c - config.yaml and environment.csv: what was run, and on what, written when the run has really
 * begun. Without them its numbers mean nothing. */
#include "base/file.h"
#include "base/secret.h"
#include "record/sink.h"
#include "record/sink_kind.h"

#include <string.h>

typedef struct {
    tm_sink                  head;
    const tm_output_options *options;
    const char              *yaml_path, *csv_path;
} settings_sink;

static void handle(tm_sink *sink, const tm_event *event)
{
    settings_sink *self = (settings_sink *)sink;
    if (event->kind != TM_EVENT_RUN_STARTED) return;
    tm_text yaml = { 0 }, csv = { 0 };
    tm_config_print_yaml(self->options->config, &yaml, true);
    for (const char *line = tm_config_accepted(self->options->config); *line; line += strcspn(line, "\n") + 1)
        tm_text_printf(&yaml, "# %.*s\n", (int)strcspn(line, "\n"), line);
    tm_secret_mask(&yaml);
    tm_environment_print_csv(self->options->environment, &csv);
    record_sink_write(&self->head, self->yaml_path, &yaml);
    if (self->head.error.status == TM_OK) record_sink_write(&self->head, self->csv_path, &csv);
    tm_text_fini(&yaml);
    tm_text_fini(&csv);
}

static tm_status open_settings(const tm_output_options *o, const char *path, tm_arena *arena, tm_sink **out,
                               tm_error *err)
{
    (void)err;
    settings_sink *self = tm_alloc(sizeof *self);
    *self = (settings_sink){ .head = { .handle = handle, .vital = true },
                             .options = o,
                             .yaml_path = path,
                             .csv_path = record_path(o, arena, "environment.csv") };
    *out = &self->head;
    return TM_OK;
}

const record_sink_kind record_settings_kind = { .file = "config.yaml", .open = open_settings };
