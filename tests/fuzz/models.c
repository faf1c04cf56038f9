/* SPDX-License-Identifier: Apache-2.0 */
/* Files of models of others: weights, configurations, tokenizers, templates; pictures; orders of pipelines. */
#include "fuzz.h"

#include "base/arena.h"
#include "base/log.h"
#include "hf/adapter.h"
#include "hf/config.h"
#include "hf/convert.h"
#include "hf/gguf.h"
#include "image/image.h"
#include "image/resize.h"
#include "support/full_config.h"
#include "token/chat.h"
#include "token/specials.h"
#include "token/template.h"
#include "token/token.h"
#include "train/pipeline/file.h"

#include <math.h>
#include <zlib.h>

/* Adapter_config.json of a stranger's adapter folder: it is read, or refused with the file's name. */
/* A file of one tensor. */
static const char adapter_safetensors[] = "\x80\0\0\0\0\0\0\0"
                                          "{\"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight\":"
                                          "{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}   "
                                          "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

FUZZ(adapter)
{
    tm_hf_adapter adapter;
    tm_error      err = { 0 };
    tm_log_set_level(TM_LOG_ERROR);
    fuzz_file("adapter_model.safetensors", adapter_safetensors, sizeof adapter_safetensors);
    fuzz_file("adapter_config.json", data, size);
    tm_status st = tm_hf_adapter_open(fuzz_folder(), NULL, NULL, &adapter, &err);
    if (st == TM_OK && (adapter.adapters.rank < 1 || adapter.adapters.n_modules != 1)) abort();
    if (st == TM_OK && adapter.adapters.modules[0].rank < 1) abort();
    fuzz_told(st, &err, "adapter_");
    tm_hf_adapter_close(&adapter);
}

/* A stranger's file of LoRA of an image model: its modules have ranks and tensors inside the file, or it is
 * refused by its name. */
static void lora_file_check_tensors(const tm_safetensors *set)
{
    size_t                  n;
    const tm_stored_tensor *all = tm_safetensors_list(set, &n);
    for (size_t i = 0; i < n; i++) {
        int64_t elements = 1;
        for (int k = 0; k < all[i].rank; k++) elements *= all[i].n[k];
        if (strncmp(all[i].name, "base_model.model.", 17) != 0 || elements < 1) abort();
        double both = tm_stored_value(&all[i], 0) + tm_stored_value(&all[i], elements - 1);
        (void)both;
    }
}

FUZZ(lora_file)
{
    tm_hf_adapter adapter;
    tm_error      err = { 0 };
    tm_log_set_level(TM_LOG_ERROR);
    const tm_hf_form *form = tm_hf_form_named("FluxTransformer2DModel");
    tm_status         st = tm_hf_adapter_open(fuzz_file("x.safetensors", data, size), NULL, form, &adapter, &err);
    if (st == TM_OK && (adapter.adapters.rank < 1 || adapter.adapters.n_modules < 1)) abort();
    for (size_t i = 0; st == TM_OK && i < adapter.adapters.n_modules; i++)
        if (adapter.adapters.modules[i].rank < 1 || !(adapter.adapters.modules[i].alpha >= 0)) abort();
    if (st == TM_OK) lora_file_check_tensors(adapter.weights);
    fuzz_told(st, &err, "x.safetensors");
    tm_hf_adapter_close(&adapter);
}

/* GGUF files: the container, and what is made of it: configuration, tensors, tokenizer, template. What is
 * accepted can be read to its last byte; what is refused has the file's name in its message. */
static void gguf_read_container(const uint8_t *data, size_t size)
{
    tm_gguf         *g;
    tm_error         err = { 0 };
    tm_status        st = tm_gguf_parse("x.gguf", data, size, &g, &err);
    volatile uint8_t sum = 0;
    size_t           n, length;
    fuzz_told(st, &err, "gguf");
    if (st != TM_OK) return;
    const tm_gguf_value *v = tm_gguf_values(g, &n);
    for (size_t i = 0; i < n; i++) {
        const uint8_t *at = v[i].bytes;
        TM_ASSERT(tm_gguf_find(g, v[i].key) == &v[i]);
        for (uint64_t k = 0; k < v[i].count; k++)
            if (v[i].type != TM_GGUF_TEXT)
                sum = (uint8_t)(sum + (tm_gguf_number(&v[i], k) > 0));
            else
                for (const char *text = tm_gguf_next_text(&at, &length); length > 0; length--)
                    sum = (uint8_t)(sum + text[length - 1]);
    }
    const tm_gguf_tensor *t = tm_gguf_tensors(g, &n);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < t[i].bytes; k++) sum = (uint8_t)(sum + t[i].data[k]);
    tm_gguf_close(g);
}

static void gguf_read_model(const char *place)
{
    tm_text         text = { 0 };
    tm_safetensors *set;
    tm_error        err = { 0 };
    volatile double sum = 0;
    size_t          n;
    tm_status       st = tm_gguf_config(place, &text, &err);
    fuzz_told(st, &err, "gguf");
    tm_text_fini(&text);
    err = (tm_error){ 0 };
    st = tm_gguf_weights(place, &set, &err);
    fuzz_told(st, &err, "gguf");
    if (st != TM_OK) return;
    const tm_stored_tensor *t = tm_safetensors_list(set, &n);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < t[i].bytes * 8 / (size_t)tm_dtype_bits(t[i].dtype); k++)
            sum += tm_stored_value(&t[i], (int64_t)k);
    tm_safetensors_close(set);
}

static void gguf_read_tokenizer(const char *place)
{
    tm_tokenizer *t;
    tm_error      err = { 0 };
    tm_ids        ids = { 0 };
    tm_text       text = { 0 };
    int64_t       ends[TM_MAX_ENDS];
    const char   *from;
    tm_status     st = tm_tokenizer_open(place, NULL, &t, &err);
    fuzz_told(st, &err, "gguf");
    (void)tm_specials_ends(place, ends, &from);
    (void)tm_chat_text(place, &text);
    if (st == TM_OK) {
        tm_token_encoder *e = tm_token_encoder_create(t);
        st = tm_token_encoder_encode(e, "a ab <s>\n", 9, TM_ENCODE_SPECIAL, &ids, &err);
        if (st == TM_OK) tm_tokenizer_decode(t, ids.data, ids.count, true, &text);
        tm_token_encoder_destroy(e);
        tm_tokenizer_close(t);
    }
    free(ids.data);
    tm_text_fini(&text);
}

FUZZ(gguf)
{
    tm_log_set_level(TM_LOG_ERROR);
    gguf_read_container(data, size);
    const char *place = fuzz_file("x.gguf", data, size);
    gguf_read_model(place);
    if (tm_is_gguf(place)) gguf_read_tokenizer(place);
}

/* The reader of config.json. What is accepted has a form, and what it gives can be finished or is refused. */
FUZZ(hf_config)
{
    tm_hf_description description;
    tm_error          err = { 0 };
    tm_model_shape    shape;
    tm_config        *config = test_full_config();
    tm_log_set_level(TM_LOG_ERROR);
    tm_status st = tm_hf_config_parse("x.json", (const char *)data, size, config, &description, &err);
    fuzz_told(st, &err, "x.json");
    if (st == TM_OK) {
        TM_ASSERT(description.form);
        st = tm_config_finish(config, &err);
        if (st == TM_OK) st = tm_model_shape_read(config, &shape, &err);
        TM_ASSERT(st == TM_OK || err.text[0]);
        if (st == TM_OK) {
            tm_text           text = { 0 };
            const tm_hf_form *form;
            if (tm_hf_form_of(config, &shape, &form, &err) == TM_OK)
                tm_hf_config_write(config, &shape, form, "float32", NULL, &text);
            tm_text_fini(&text);
        }
    }
    tm_config_destroy(config);
}

/* A stranger's chat template: it is parsed and rendered, or refused with a line. */
FUZZ(template)
{
    tm_template *t = NULL;
    tm_error     err = { 0 };
    tm_status    st = tm_template_parse("t", (const char *)data, size, &t, &err);
    if (st == TM_OK) {
        json_t *variables =
            json_pack("{s:[{s:s,s:s},{s:s,s:s}],s:s,s:b,s:{s:f,s:n}}", "messages", "role", "user", "content", "a b",
                      "role", "assistant", "content", "c", "bos_token", "<s>", "flag", 1, "map", "x", 1.5, "y");
        tm_text           out = { 0 };
        tm_template_spans spans = { 0 };
        st = tm_template_render(t, variables, 0, &out, &spans, &err);
        for (size_t i = 0; i < spans.count; i++)
            if (st == TM_OK && (spans.data[i].begin > spans.data[i].end || spans.data[i].end > out.length)) abort();
        free(spans.data);
        tm_text_fini(&out);
        json_decref(variables);
    }
    fuzz_told(st, &err, "line ");
    tm_template_free(t);
}

/* The readers of tokenizer files: whatever they accept encodes a text to ids below its vocabulary, and decodes
 * them. */
FUZZ(tokenizer)
{
    static const char text[] =
        "Hello  world, don't\n 1234 \xC3\x9C\xE4\xBD\xA0\xE2\x96\x81 \xF0\x9F\x98\x80 \xFF\xE2\x82 <s>e\xCC\x81</s>";
    tm_tokenizer *t;
    tm_error      err = { 0 };
    tm_status     st = tm_tokenizer_parse("x.json", data, size, "llama3", &t, &err);
    fuzz_told(st, &err, "x.json");
    if (st != TM_OK) return;
    int64_t           vocab = tm_tokenizer_describe(t)->vocab;
    tm_token_encoder *e = tm_token_encoder_create(t);
    tm_ids            ids = { 0 };
    tm_text           out = { 0 };
    for (unsigned flags = 0; flags < 4; flags++) {
        ids.count = 0;
        st = tm_token_encoder_encode(e, text, strlen(text), flags, &ids, &err);
        TM_ASSERT(st == TM_OK || st == TM_INVALID);
        for (size_t i = 0; i < ids.count; i++)
            TM_ASSERT(ids.data[i] >= 0 && (ids.data[i] < vocab || flags & TM_ENCODE_SPECIAL));
        tm_tokenizer_decode(t, ids.data, ids.count, flags & 1, &out);
    }
    TM_ASSERT(tm_tokenizer_cut(t, text, strlen(text)) <= strlen(text));
    tm_text_fini(&out);
    free(ids.data);
    tm_token_encoder_destroy(e);
    tm_tokenizer_close(t);
}

/* Pictures: whatever is decoded can be read to its last pixel, resized and written; errors name the file. Of a
 * PNG the checksums are made right, too, so that more than they is tried. */
static void image_use(tm_image *image)
{
    const tm_image_fit fit = { .size = { 24, 16 }, .random_crop = true, .flip = true };
    tm_image_placing   placing;
    tm_image           small = { 0 };
    tm_error           err = { 0 };
    unsigned           sum = 0;
    size_t             n = 3 * (size_t)image->width * (size_t)image->height;
    TM_ASSERT(image->width > 0 && image->height > 0 && n <= 3 * (size_t)TM_IMAGE_MAX_PIXELS);
    sum += image->pixels[0] + image->pixels[n - 1];
    const tm_image_size size = { image->width, image->height };
    if (tm_image_place("x", &fit, size, n, &placing, &err) == TM_OK) tm_image_apply(image, &fit, &placing, &small);
    TM_ASSERT(!small.pixels || (small.width == 24 && small.height == 16));
    TM_ASSERT(sum < 511);
    tm_image_fini(&small);
}

static void image_decode(const uint8_t *data, size_t size)
{
    tm_image  image;
    tm_error  err = { 0 };
    tm_status st = tm_image_decode("x.img", data, size, &image, &err);
    fuzz_told(st, &err, "x.img");
    TM_ASSERT((st == TM_OK) == (image.pixels != NULL));
    if (st == TM_OK) image_use(&image);
    tm_image_fini(&image);
}

/* The checksum of every chunk that is there. */
static void image_mend(uint8_t *png, size_t size)
{
    for (size_t at = 8; at + 12 <= size;) {
        const uint8_t *b = png + at;
        size_t         n = (size_t)b[0] << 24 | (size_t)b[1] << 16 | (size_t)b[2] << 8 | b[3];
        if (n > size - at - 12) return;
        uLong sum = crc32_z(0, png + at + 4, n + 4);
        for (int i = 0; i < 4; i++) png[at + 8 + n + (size_t)i] = (uint8_t)(sum >> (24 - 8 * i));
        at += 12 + n;
    }
}

FUZZ(image)
{
    image_decode(data, size);
    if (size < 8 || memcmp(data, "\x89PNG", 4) != 0) return;
    uint8_t *png = tm_alloc(size);
    memcpy(png, data, size);
    image_mend(png, size);
    image_decode(png, size);
    free(png);
}

/* The order of a pipeline in a file: what is accepted has every micro-batch of every stage once each way, and
 * can be run by ranks that wait for each other. */
static void pipeline_file_check(const tm_pipeline_list *list)
{
    tm_pipeline       p = { .order = TM_PIPELINE_LISTED,
                            .ranks = list->ranks,
                            .chunks = list->chunks,
                            .micro_batches = list->micro_batches,
                            .list = list };
    tm_pipeline_times times;
    tm_error          err = { 0 };
    tm_text           grid = { 0 };
    int64_t           all = list->chunks * list->micro_batches;
    TM_ASSERT(tm_pipeline_check(&p, &err) == TM_OK);
    tm_pipeline_simulate(&p, &(tm_pipeline_costs){ 1, 1, 1 }, &times);
    TM_ASSERT(!isnan(times.end));
    for (int r = 0; r < list->ranks; r++) {
        int64_t done[4] = { 0 };
        for (size_t k = 0; k < list->n[r]; k++) {
            TM_ASSERT(list->actions[r][k].chunk < list->chunks);
            TM_ASSERT(list->actions[r][k].micro_batch < list->micro_batches);
            done[list->actions[r][k].kind]++;
        }
        TM_ASSERT(done[TM_DO_FORWARD] == all && done[TM_DO_BACKWARD] + done[TM_DO_INPUT] == all);
        TM_ASSERT(done[TM_DO_INPUT] == done[TM_DO_WEIGHT]);
    }
    tm_pipeline_times_fini(&times);
    tm_pipeline_print(&p, 100, &grid);
    TM_ASSERT(strstr(grid.data, "rank 0"));
    tm_text_fini(&grid);
}

FUZZ(pipeline_file)
{
    for (int ranks = 1; ranks <= 4; ranks++) {
        const tm_pipeline_list *list;
        tm_text                 text = { 0 };
        tm_arena               *arena = tm_arena_create();
        tm_error                err = { 0 };
        tm_text_add(&text, "");
        tm_text_add_n(&text, (const char *)data, size);
        tm_status st = pipeline_file_parse(text.data, "x.csv", ranks, arena, &list, &err);
        fuzz_told(st, &err, "x.csv");
        if (st == TM_OK) pipeline_file_check(list);
        tm_arena_destroy(arena);
        tm_text_fini(&text);
    }
}
