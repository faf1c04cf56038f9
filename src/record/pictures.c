/* SPDX-License-Identifier: Apache-2.0 */
/* record/pictures.c - what a model of images draws during a run, as PNG files in the run's directory. */
#include "base/file.h"
#include "image/resize.h"
#include "record/sink.h"
#include "record/sink_kind.h"
#include "train/run/run.h"

#include <stdlib.h>

typedef struct {
    tm_sink     head;
    const char *folder;
} pictures_sink;

tm_text record_picture_name(const tm_picture_drawn *picture)
{
    tm_text name = { 0 };
    tm_text_printf(&name, "pictures/step-%08lld-%lld.png", (long long)picture->step, (long long)picture->number);
    return name;
}

static void handle(tm_sink *sink, const tm_event *event)
{
    pictures_sink *self = (pictures_sink *)sink;
    if (event->kind != TM_EVENT_PICTURE || self->head.error.status != TM_OK) return;
    const tm_picture_drawn *p = &event->picture;
    tm_text                 name = record_picture_name(p), path = { 0 };
    tm_image                image;
    tm_image_of_values(p->pixels, (tm_image_size){ (int)p->width, (int)p->height }, &image);
    tm_text_printf(&path, "%s/pictures", self->folder);
    tm_status st = tm_folder_make(path.data, &self->head.error);
    path.length = 0;
    tm_text_printf(&path, "%s/%s", self->folder, name.data);
    if (st == TM_OK) st = tm_image_write_png(&image, path.data, &self->head.error);
    (void)st; /* kept in the sink */
    tm_image_fini(&image);
    tm_text_fini(&path);
    tm_text_fini(&name);
}

static bool draws(const tm_output_options *o)
{
    return o->run->pictures != NULL;
}

static tm_status open_pictures(const tm_output_options *o, const char *path, tm_arena *arena, tm_sink **out,
                               tm_error *err)
{
    (void)path, (void)arena, (void)err;
    pictures_sink *self = tm_alloc(sizeof *self);
    *self = (pictures_sink){ .head = { .handle = handle }, .folder = o->folder };
    *out = &self->head;
    return TM_OK;
}

const record_sink_kind record_pictures_kind = { .wanted = draws, .open = open_pictures };
