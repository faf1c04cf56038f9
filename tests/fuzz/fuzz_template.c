/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes a stranger's chat template: it is parsed and rendered, or refused with a line. */
#include "fuzz.h"

#include "token/template.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
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
    return 0;
}
