/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of parquet files that another implementation wrote (tools/make_parquet_fixtures.py), with columns and members
 * that are no texts: what is used is never left out without a word, as it is not in lines of JSON. */
#include "data/preview.h"

#include "support/folder.h"
#include "support/full_config.h"

#include <stdio.h>
#include <string.h>

#include "support/test.h"

#define TEMPLATE                                                                                                       \
    "{% for t in tools or [] %}<{{ t.name }} {{ t.numbers | sum }}>{% endfor %}"                                       \
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% for c in m.tool_calls or [] %}<{{ c.name }}>{% endfor %}"  \
    "{% endfor %}"

static tm_status preview(const char *path, tm_text *out, tm_error *err)
{
    tm_preview_options o = { .path = path, .first = 1, .n = 2 };
    o.sft.chat_template = test_in_folder("chat.jinja");
    test_file_write(test_folder(), "chat.jinja", TEMPLATE);
    return tm_data_preview(&o, out, err);
}

TEST(columns_that_are_no_texts)
{
    static const struct {
        const char *name, *shows, *refused;
    } cases[] = {
        { "numbers", NULL, "row 2: column 'input' is a number, wanted a text" },
        { "doubles", NULL, "row 1: column 'input' is a number, wanted a text" },
        { "nulls", "### Instruction:\nHalve.\n\n### Response:\n]]1<|end|>", NULL }, /* tools are of no use there */
        { "talks", "]][assistant]four", NULL },
        { "calls", NULL, "row 2: column 'messages' has 'name', which is not read from parquet" },
        { "weights", NULL, "row 2: column 'messages' has 'weight', which is not read from parquet" },
        { "losses", NULL, "row 2: column 'messages' has 'loss', which is not read from parquet" },
        { "parts", "[[[user]a bc]][assistant]de\n", NULL },
        { "parts_image", NULL, "row 1, turn 1: part 2 of 'content' is of the type 'image'" },
        { "parts_empty", NULL, "row 1, turn 2: 'content' is empty, wanted a text" },
        { "parts_null", NULL, "row 1, turn 2: 'content' is null, wanted a text" },
        { "parts_index", NULL, "row 1: column 'messages' has 'index', which is not read from parquet" },
        { "tools", NULL, "row 1: column 'tools' has 'name', which is not read from parquet" },
        { "tools_text", "<add 3>[user]2+2?]][assistant]4", NULL },
        { "twice", NULL, "has two columns 'output'" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char     path[128];
        tm_text  out = { 0 };
        tm_error err = { 0 };
        snprintf(path, sizeof path, "tests/data/parquet/rows_%s.parquet", cases[i].name);
        tm_status st = preview(path, &out, &err);
        if (st == TM_OK && !cases[i].shows) fail_msg("%s is taken: %s", cases[i].name, out.data);
        if (st != TM_OK && !cases[i].refused) fail_msg("%s: %s", cases[i].name, err.text);
        if (cases[i].shows && !strstr(out.data, cases[i].shows)) fail_msg("%s: %s", cases[i].name, out.data);
        if (cases[i].refused && (!strstr(err.text, cases[i].refused) || tm_status_exit_code(st) != 4))
            fail_msg("%s: %s", cases[i].name, err.text);
        tm_text_fini(&out);
    }
}

/* The same in lines of JSON, where all of it is there. */
TEST(lines_have_all_of_it)
{
#define TALK "{\"messages\": [{\"role\": \"user\", \"content\": \"2+2?\"}, {\"role\": \"assistant\", \"content\": \"4\""
#define AGAIN "{\"role\": \"user\", \"content\": \"3?\"}, {\"role\": \"assistant\", \"content\": \"9\"}]}"
    static const struct {
        const char *line, *shows, *refused;
    } cases[] = {
        { TALK "}]}", "[[[user]2+2?", NULL },
        { TALK ", \"tool_calls\": [{\"name\": \"add\"}]}]}", "[assistant]4<add>", NULL },
        { TALK ", \"weight\": 1}]}", "[[[user]2+2?", NULL },
        { TALK ", \"weight\": 1.0}]}", "[[[user]2+2?", NULL },
        { TALK ", \"weight\": null}]}", "[[[user]2+2?", NULL },
        { TALK ", \"weight\": 0.5}]}", NULL, "turn 2: 'weight' is neither 1 nor 0" },
        { TALK ", \"weight\": false}]}", NULL, "turn 2: 'weight' is neither 1 nor 0" },
        { TALK ", \"loss_scale\": 2.0}]}", NULL, "turn 2: 'loss_scale' is neither 1 nor 0" },
        { TALK ", \"loss\": 0}]}", NULL, "turn 2: 'loss' is neither true nor false" },
        { TALK ", \"train\": \"no\"}]}", NULL, "turn 2: 'train' is neither true nor false" },
        { TALK ", \"train_detail\": [{\"train\": false}]}]}", NULL, "turn 2: 'train_detail' is not supported" },
        { TALK ", \"weight\": 0}]}", "[[[user]2+2?[assistant]4]]", NULL },
        { TALK ", \"weight\": 1, \"loss\": false}]}", "[[[user]2+2?[assistant]4]]", NULL },
        { TALK ", \"loss_scale\": 0.0}]}", "[[[user]2+2?[assistant]4]]", NULL },
        { TALK ", \"train\": false}, " AGAIN, "[[[user]2+2?[assistant]4[user]3?]][assistant]9", NULL },
        { TALK ", \"train\": true, \"loss\": true, \"loss_scale\": 1}, " AGAIN, "[[[user]2+2?]][assistant]4[[[user]3?",
          NULL },
        { "{\"messages\": [{\"role\": \"user\", \"content\": \"2+2?\", \"train\": true}, " AGAIN, NULL,
          "turn 1: 'train' is true, and of a conversation only answers are learned" },
        { "{\"messages\": [{\"role\": \"user\", \"content\": \"2+2?\", \"train\": false, \"weight\": 0}, " AGAIN,
          "[[[user]2+2?[user]3?]][assistant]9", NULL },
        { "{\"messages\": [{\"role\": \"user\", \"content\": \"2+2?\"}, {\"role\": \"assistant\", \"content\": "
          "[{\"type\": \"text\", \"text\": \"4\", \"train\": false}]}]}",
          NULL, "turn 2: part 1 of 'content' says what of an answer is learned" },
        { "{\"prompt\": [{\"role\": \"user\", \"content\": \"2+2?\"}], \"completion\": [{\"role\": \"assistant\", "
          "\"content\": \"4\", \"weight\": 0}]}",
          NULL, "turn 2 is not to be learned" },
        { TALK "}], \"tools\": [{\"name\": \"add\", \"numbers\": [1]}]}", "<add 1>[user]", NULL },
        { TALK "}], \"tools\": \"[{\\\"name\\\": \\\"add\\\", \\\"numbers\\\": [2]}]\"}", "<add 2>[user]", NULL },
        { TALK "}], \"tools\": \"\"}", "[[[user]2+2?", NULL },
        { TALK "}], \"tools\": null}", "[[[user]2+2?", NULL },
        { TALK "}], \"tools\": []}", "[[[user]2+2?", NULL },
        { TALK "}], \"tools\": \"[1\"}", NULL, "column 'tools' is a text that is no array of JSON" },
        { TALK "}], \"tools\": \"{}\"}", NULL, "column 'tools' is a text that is no array of JSON" },
        { TALK "}], \"tools\": 3}", NULL, "column 'tools' is a number, wanted an array of tools" },
        { "{\"instruction\": \"Add.\", \"output\": \"4\", \"tools\": 3}", "]]4<|end|>", NULL },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tm_text  out = { 0 };
        tm_error err = { 0 };
        test_file_write(test_folder(), "x.jsonl", cases[i].line);
        tm_status st = preview(test_in_folder("x.jsonl"), &out, &err);
        if (st == TM_OK && !cases[i].shows) fail_msg("%s is taken: %s", cases[i].line, out.data);
        if (st != TM_OK && !cases[i].refused) fail_msg("%s: %s", cases[i].line, err.text);
        if (cases[i].shows && !strstr(out.data, cases[i].shows)) fail_msg("%s: %s", cases[i].line, out.data);
        if (cases[i].refused && !strstr(err.text, cases[i].refused)) fail_msg("%s: %s", cases[i].line, err.text);
        tm_text_fini(&out);
    }
}
