/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes GGUF files: the container, and what is made of it: configuration, tensors, tokenizer, template. What is
 * accepted can be read to its last byte; what is refused has the file's name in its message. */
#include "fuzz.h"

#include "base/log.h"
#include "hf/convert.h"
#include "hf/gguf.h"
#include "token/chat.h"
#include "token/specials.h"

static void read_container(const uint8_t *data, size_t size)
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

static void read_model(const char *place)
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

static void read_tokenizer(const char *place)
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tm_log_set_level(TM_LOG_ERROR);
    read_container(data, size);
    const char *place = fuzz_file("x.gguf", data, size);
    read_model(place);
    if (tm_is_gguf(place)) read_tokenizer(place);
    return 0;
}
