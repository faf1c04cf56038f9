/* SPDX-License-Identifier: Apache-2.0 */
#include "hf/folder.h"

#include "base/file.h"
#include "base/hub.h"
#include "base/text.h"
#include "hf/gguf.h"

#include <string.h>

static char *join(const char *folder, const char *below, const char *name, tm_text *path)
{
    size_t n = strlen(folder);
    path->length = 0;
    tm_text_printf(path, "%s%s%s%s", folder, n && folder[n - 1] == '/' ? "" : "/", below, name);
    return path->data;
}

/* The model of a pipeline of diffusers is in its folder "transformer". */
static char *in(const char *folder, const char *name, tm_text *path)
{
    bool pipeline = !tm_file_exists(join(folder, "", "config.json", path)) &&
                    tm_file_exists(join(folder, "transformer/", "config.json", path));
    return join(folder, pipeline ? "transformer/" : "", name, path);
}

bool tm_hf_is_folder(const char *folder)
{
    tm_text path = { 0 };
    if (tm_is_gguf(folder)) return true;
    bool is = tm_file_exists(in(folder, "config.json", &path));
    tm_text_fini(&path);
    return is;
}

tm_status tm_hf_folder_configure(const char *folder, tm_config *config, tm_hf_description *out, tm_error *err)
{
    tm_text   path = { 0 }, text = { 0 };
    tm_status st;
    if (tm_is_gguf(folder)) {
        st = tm_gguf_config(folder, &text, err);
        if (st == TM_OK) st = tm_hf_config_parse(folder, text.data, text.length, config, out, err);
    } else {
        st = tm_hf_config_read(in(folder, "config.json", &path), config, out, err);
    }
    tm_text_fini(&path);
    tm_text_fini(&text);
    return st;
}

tm_status tm_hf_folder_shape(const char *folder, tm_config *config, tm_hf_description *out, tm_model_shape *shape,
                             tm_error *err)
{
    if (!tm_hf_is_folder(folder))
        return tm_fail(err, TM_INVALID, "'%.300s' is not a Hugging Face directory: it has no config.json", folder);
    TM_TRY(tm_hf_folder_configure(folder, config, out, err));
    tm_config_set(config, "training.seq_len", "1", "derived: nothing is trained"); /* fits every model */
    TM_TRY(tm_config_finish(config, err));
    return tm_model_shape_read(config, shape, err);
}

tm_status tm_hf_folder_weights(const char *folder, tm_safetensors **out, tm_error *err)
{
    static const char *const names[] = { "model.safetensors", "model.safetensors.index.json",
                                         "diffusion_pytorch_model.safetensors",
                                         "diffusion_pytorch_model.safetensors.index.json" };
    static const char *const pickled[] = { "pytorch_model.bin", "pytorch_model.bin.index.json" };
    tm_text                  path = { 0 };
    tm_status                st = TM_OK;
    bool                     found = false;
    *out = NULL;
    if (tm_is_gguf(folder)) return tm_gguf_weights(folder, out, err);
    in(folder, "", &path);
    path.data[path.length - 1] = '\0'; /* a directory's name ends without a slash */
    st = tm_hub_check_weights(path.data, err);
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !found && st == TM_OK; i++) {
        found = tm_file_exists(in(folder, names[i], &path));
        if (found) st = tm_safetensors_open(path.data, out, err);
    }
    for (size_t i = 0; i < sizeof pickled / sizeof pickled[0] && !found && st == TM_OK; i++) {
        found = tm_file_exists(in(folder, pickled[i], &path));
        if (found)
            st = tm_fail(err, TM_UNSUPPORTED,
                         "'%s' holds its weights as '%s', a pickle, which is not read; write model.safetensors (in "
                         "transformers: save_pretrained(..., safe_serialization=True))",
                         folder, pickled[i]);
    }
    tm_text_fini(&path);
    return st;
}

static tm_status trainer_write(const tm_hf_memory *memory, tm_tensor_id id, size_t offset, const void *from,
                               size_t bytes, tm_error *err)
{
    return tm_trainer_write(memory->context, id, offset, from, bytes, err);
}

static tm_status trainer_read(const tm_hf_memory *memory, tm_tensor_id id, size_t offset, void *to, size_t bytes,
                              tm_error *err)
{
    return tm_trainer_read(memory->context, id, offset, to, bytes, err);
}

static tm_status trainer_sum(const tm_hf_memory *memory, unsigned axes, double *values, size_t n, tm_error *err)
{
    return tm_trainer_sum(memory->context, axes, values, n, err);
}

tm_hf_memory tm_hf_trainer_memory(tm_trainer *trainer, const tm_hf_form *form)
{
    const tm_step *step = tm_trainer_step_of(trainer);
    return (tm_hf_memory){ .graph = step->graph,
                           .shape = &step->options.shape,
                           .form = form,
                           .context = trainer,
                           .write = trainer_write,
                           .read = trainer_read,
                           .sum = trainer_sum };
}

static tm_status forward_write(const tm_hf_memory *memory, tm_tensor_id id, size_t offset, const void *from,
                               size_t bytes, tm_error *err)
{
    return tm_forward_write(memory->context, id, offset, from, bytes, err);
}

tm_hf_memory tm_hf_forward_memory(tm_forward *forward, const tm_model_shape *shape, const tm_hf_form *form)
{
    return (tm_hf_memory){
        .graph = forward->plan->graph, .shape = shape, .form = form, .context = forward, .write = forward_write
    };
}
