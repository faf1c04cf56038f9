/* SPDX-License-Identifier: Apache-2.0 */
#include "encoder/encoders.h"

#include "base/file_list.h"
#include "base/hash.h"
#include "base/map.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tm_encoders {
    tm_texts         *texts;
    tm_frozen        *vae;
    tm_encoders_facts facts;
};

/* What the latents and the texts depend on. */
static const char *const parts[] = { "vae", "text_encoder", "text_encoder_2", "tokenizer", "tokenizer_2" };

static tm_status hash_part(const char *folder, const char *part, uint64_t *hash, tm_error *err)
{
    tm_file_list files = { 0 };
    tm_text      path = { 0 };
    tm_text_printf(&path, "%s/%s", folder, part);
    tm_status st = TM_OK;
    if (!tm_is_folder(path.data))
        st = tm_fail(err, TM_INVALID,
                     "'%.300s' has no %s; wanted a directory of FLUX.1 as diffusers ships it: vae, text_encoder, "
                     "text_encoder_2, tokenizer, tokenizer_2",
                     folder, part);
    if (st == TM_OK) st = tm_file_list_read(path.data, &files, err);
    for (size_t i = 0; i < files.count && st == TM_OK; i++) {
        const char *name = files.paths[i] + path.length;
        tm_map      map = { 0 };
        st = tm_map_open(files.paths[i], &map, err);
        if (st == TM_OK) *hash = tm_fingerprint(*hash ^ tm_hash(name, strlen(name)), map.bytes, map.size);
        tm_map_close(&map);
    }
    tm_file_list_free(&files);
    tm_text_fini(&path);
    return st;
}

static tm_status open_all(tm_encoders *e, tm_device *device, const char *folder, const tm_encoders_form *form,
                          tm_error *err)
{
    tm_text        vae = { 0 };
    tm_frozen_size size = { .batch = 1, .height = form->height, .width = form->width };
    uint64_t       hash = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) TM_TRY(hash_part(folder, parts[i], &hash, err));
    TM_TRY(tm_texts_open(device, folder, form->text_len, form->compute, &e->texts, err));
    tm_text_printf(&vae, "%s/vae", folder);
    tm_status st = tm_frozen_open(device, vae.data, TM_FROZEN_VAE_ENCODE, &size, form->compute, &e->vae, err);
    tm_text_fini(&vae);
    TM_TRY(st);
    const tm_frozen_facts *f = tm_frozen_facts_of(e->vae);
    e->facts = (tm_encoders_facts){ .channels = f->channels,
                                    .rows = form->height / f->factor,
                                    .columns = form->width / f->factor,
                                    .text_dim = tm_texts_width(e->texts),
                                    .vector_dim = tm_texts_pooled_width(e->texts),
                                    .scaling_factor = f->scaling_factor,
                                    .shift_factor = f->shift_factor };
    snprintf(e->facts.model, sizeof e->facts.model, "%016llx", (unsigned long long)hash);
    return TM_OK;
}

tm_status tm_encoders_open(tm_device *device, const char *folder, const tm_encoders_form *form, tm_encoders **out,
                           tm_error *err)
{
    tm_encoders *e = tm_alloc(sizeof *e);
    *e = (tm_encoders){ 0 };
    tm_status st = open_all(e, device, folder, form, err);
    if (st == TM_OK)
        *out = e;
    else
        tm_encoders_close(e);
    return st;
}

void tm_encoders_close(tm_encoders *e)
{
    if (!e) return;
    tm_texts_close(e->texts);
    tm_frozen_close(e->vae);
    free(e);
}

const tm_encoders_facts *tm_encoders_describe(const tm_encoders *e)
{
    return &e->facts;
}

size_t tm_encoders_bytes(const tm_encoders *e)
{
    return tm_texts_bytes(e->texts) + tm_frozen_bytes(e->vae);
}

tm_status tm_encoders_picture(tm_encoders *e, const float *pixels, float *mean, float *logvar, tm_error *err)
{
    return tm_frozen_encode(e->vae, pixels, mean, logvar, err);
}

tm_status tm_encoders_text(tm_encoders *e, const char *caption, float *text, float *pooled, int64_t *cut, tm_error *err)
{
    return tm_texts_encode(e->texts, caption, text, pooled, cut, err);
}
