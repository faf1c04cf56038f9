/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes a stranger's record of an A/B session (`trainmark ab --from`) and the words of --a-command: what is read
 * prints, and what is printed reads back as the same. */
#include "fuzz.h"

#include "base/words.h"
#include "apps/bench/ab.h"

static void words_of(const char *text)
{
    tm_arena *arena = tm_arena_create();
    tm_error  err = { 0 };
    char    **argv;
    int       argc;
    if (tm_words_split(text, "--a-command", arena, &argv, &argc, &err) == TM_OK) {
        for (int i = 0; i < argc; i++) TM_ASSERT(strlen(argv[i]) <= strlen(text));
        TM_ASSERT(!argv[argc]);
    } else {
        TM_ASSERT(err.status == TM_INVALID && *err.text);
    }
    tm_arena_destroy(arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tm_text       text = { 0 }, first = { 0 }, second = { 0 };
    tm_ab_session session = { 0 }, again = { 0 };
    tm_error      err = { 0 };
    tm_text_add_n(&text, (const char *)data, size);
    words_of(text.data);
    tm_status st = tm_ab_session_parse(text.data, "x", &session, &err);
    fuzz_told(st, &err, "x");
    if (st == TM_OK) {
        tm_ab_session_print(&session, &first);
        TM_ASSERT(tm_ab_session_parse(first.data, "x", &again, &err) == TM_OK);
        tm_ab_session_print(&again, &second);
        TM_ASSERT(strcmp(first.data, second.data) == 0);
        first.length = second.length = 0;
        tm_ab_print_text(&session, &first);
        tm_ab_print_json(&session, &second);
        TM_ASSERT(strstr(first.data, "verdict") && strstr(second.data, "verdict"));
    }
    tm_ab_session_fini(&session);
    tm_ab_session_fini(&again);
    tm_text_fini(&text);
    tm_text_fini(&first);
    tm_text_fini(&second);
    return 0;
}
