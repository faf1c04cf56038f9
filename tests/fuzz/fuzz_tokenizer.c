/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the readers of tokenizer files: whatever they accept encodes a text to ids below its vocabulary, and decodes
 * them. */
#include "fuzz.h"

#include "token/token.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char text[] =
        "Hello  world, don't\n 1234 \xC3\x9C\xE4\xBD\xA0\xE2\x96\x81 \xF0\x9F\x98\x80 \xFF\xE2\x82 <s>e\xCC\x81</s>";
    tm_tokenizer *t;
    tm_error      err = { 0 };
    tm_status     st = tm_tokenizer_parse("x.json", data, size, "llama3", &t, &err);
    fuzz_told(st, &err, "x.json");
    if (st != TM_OK) return 0;
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
    return 0;
}
