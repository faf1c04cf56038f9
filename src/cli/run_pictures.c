/* SPDX-License-Identifier: Apache-2.0 */
/* cli/run_pictures.c - the encoders of data.source pictures, and the decoder and the times of the pictures that a run
 * draws (data.sample_pictures). */
#include "base/file_list.h"
#include "base/log.h"
#include "cli/run_job.h"
#include "train/generate/scheduler.h"

#include <string.h>

/* Of a folder without a scheduler: shifted by the number of tokens, as FLUX.1-dev's. */
static tm_status read_times(run_job *j, const char *folder, tm_error *err)
{
    tm_text scheduler = { 0 };
    tm_text_printf(&scheduler, "%s/scheduler", folder);
    bool there = tm_is_folder(scheduler.data);
    j->times = tm_euler_times_dev;
    tm_status st = there ? tm_scheduler_read(scheduler.data, &j->times, err) : TM_OK;
    tm_text_fini(&scheduler);
    return st;
}

tm_status run_open_pictures(run_job *j, tm_error *err)
{
    const tm_flux_shape *shape = &j->options.step.shape.flux;
    const char          *folder = tm_config_text(j->config, "data.encoders");
    if (!j->options.step.sample || !tm_model_images(&j->options.step.shape)) return TM_OK;
    if (!folder)
        return tm_fail(err, TM_INVALID,
                       "data.sample_pictures (%s) needs data.encoders, the directory with the decoder of the model's "
                       "latents",
                       tm_config_place(j->config, "data.sample_pictures"));
    TM_TRY(read_times(j, folder, err));
    j->pictures = (tm_run_pictures){ .n = tm_config_i64(j->config, "data.sample_pictures"),
                                     .steps = tm_config_i64(j->config, "data.sample_steps"),
                                     .times = &j->times };
    if (!j->world || tm_comm_rank(j->world) == 0) {
        TM_TRY(tm_pixels_open(j->device, folder, shape->rows, shape->columns, shape->channels,
                              j->options.step.precision->compute, &j->pixels, err));
        j->pictures.context = j->pixels;
        j->pictures.decode = tm_pixels_decode;
        tm_note("the decoder of data.sample_pictures takes %.2f MiB beside the plan",
                (double)tm_pixels_bytes(j->pixels) / 1048576);
    }
    j->options.pictures = &j->pictures;
    return TM_OK;
}

/* --- encoders ----------------------------------------------------------------------------------------------------- */

static tm_status encode_picture(void *encoders, const float *pixels, float *mean, float *logvar, tm_error *err)
{
    return tm_encoders_picture(encoders, pixels, mean, logvar, err);
}

static tm_status encode_text(void *encoders, const char *caption, float *text, float *pooled, tm_error *err)
{
    return tm_encoders_text(encoders, caption, text, pooled, NULL, err);
}

static tm_status check_encoders(const run_job *j, const char *folder, tm_error *err)
{
    const tm_encoders_facts *f = tm_encoders_describe(j->encoders);
    const tm_flux_shape     *x = &j->options.step.shape.flux;
    if (4 * f->channels == x->channels && f->rows == 2 * x->rows && f->text_dim == x->text_dim &&
        f->vector_dim == x->vector_dim)
        return TM_OK;
    return tm_fail(
        err, TM_INVALID,
        "the encoders of '%.200s' give %lld channels, %lld numbers of a text token and %lld of a text; the model "
        "has model.channels %lld (four times the channels), model.text_dim %lld and model.vector_dim %lld",
        folder, (long long)f->channels, (long long)f->text_dim, (long long)f->vector_dim, (long long)x->channels,
        (long long)x->text_dim, (long long)x->vector_dim);
}

tm_status run_open_encoders(run_job *j, tm_error *err)
{
    const tm_flux_shape   *x = &j->options.step.shape.flux;
    const char            *folder = tm_config_text(j->config, "data.encoders");
    const tm_encoders_form form = { .height = 16 * x->rows,
                                    .width = 16 * x->columns,
                                    .text_len = x->text_len,
                                    .compute = j->options.step.precision->compute };
    if (strcmp(j->options.source.name, "pictures") != 0 || !folder || x->rows == 0) return TM_OK;
    /* a device of its own: the thread that reads ahead encodes while the other one trains */
    TM_TRY(tm_device_open(j->cli->device, j->options.threads, &j->encoders_device, err));
    if (j->cli->isa) TM_TRY(tm_device_limit_isa(j->encoders_device, j->cli->isa, err));
    TM_TRY(tm_encoders_open(j->encoders_device, folder, &form, &j->encoders, err));
    TM_TRY(check_encoders(j, folder, err));
    tm_note("the encoders of data.source pictures take %.2f MiB beside the plan",
            (double)tm_encoders_bytes(j->encoders) / 1048576);
    j->encoder = (tm_picture_encoder){ .context = j->encoders,
                                       .picture = encode_picture,
                                       .text = encode_text,
                                       .scaling_factor = tm_encoders_describe(j->encoders)->scaling_factor,
                                       .shift_factor = tm_encoders_describe(j->encoders)->shift_factor };
    j->options.source.flow.encoder = &j->encoder;
    return TM_OK;
}
