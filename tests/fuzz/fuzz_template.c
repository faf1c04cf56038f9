/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes a stranger's chat template: it is parsed and rendered, or refused with a line.
 *
 * With libFuzzer: clang -fsanitize=fuzzer,address,undefined. Without: -DTM_FUZZ_STANDALONE, see standalone.h.
 */
#include "token/template.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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
    if (st != TM_OK && (!strstr(err.text, "line ") || tm_status_exit_code(st) != 4)) abort();
    tm_template_free(t);
    return 0;
}

#ifdef TM_FUZZ_STANDALONE
static const char *const template_words[] = {
    "{{ ",          " }}",
    "{% ",          " %}",
    "{%- ",         "-%}",
    "{#",           "#}",
    "if ",          "elif ",
    "else",         "endif",
    "for x in ",    "endfor",
    "set x ",       "endset",
    "macro f(a)",   "endmacro",
    "messages",     "x",
    "message.role", "['content']",
    "[1:]",         "[::-1]",
    "|trim",        "|tojson",
    "|length",      "|join(', ')",
    " is defined",  " is string",
    " not ",        " and ",
    " or ",         " in ",
    " + ",          " ~ ",
    " == ",         "namespace(a=1)",
    "x.a = ",       "range(3)",
    "loop.index",   "'text'",
    "\"t\"",        "f(1)",
    "break",        "continue",
    "generation",   "endgeneration",
    "\n  ",         ".items()",
};
#define FUZZ_WORDS template_words
#include "standalone.h"
#endif
