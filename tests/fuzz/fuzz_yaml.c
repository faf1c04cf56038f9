/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes what a stranger's configuration file goes through: YAML, substitution, rows, rules, and the printed form,
 * which must load again and resolve to the same configuration.
 *
 * With libFuzzer: clang -fsanitize=fuzzer,address,undefined. Without: -DTM_FUZZ_STANDALONE gives a main that runs the
 * files it is given once and, with `-t seconds`, mutates them for that long (`-s seed`).
 */
#include "../support/full_config.h"

#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SECRET "a-secret-word"

static char *const environment[] = { "HOME=/home/x", "N=3", "MY_TOKEN=" SECRET, "EMPTY=", NULL };

static void write_file(const char *path, const void *data, size_t size)
{
    FILE *f = fopen(path, "w");
    TM_ASSERT(f && fwrite(data, 1, size, f) == size && fclose(f) == 0);
}

/* `spoken`: the file itself holds the secret word, not by way of the variable. */
static tm_config *load(const char *path, bool finish, bool spoken, tm_error *err)
{
    tm_config *config = test_full_config();
    tm_config_use_environment(config, environment);
    tm_status st = tm_config_load_file(config, path, err);
    if (st == TM_OK && finish) st = tm_config_finish(config, err);
    TM_ASSERT((st == TM_OK) == (err->status == TM_OK));
    TM_ASSERT(st == TM_OK || (tm_status_exit_code(st) == 4 && *err->text));
    TM_ASSERT(spoken || !strstr(err->text, SECRET));
    return config;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char folder[64];
    if (!*folder) {
        strcpy(folder, access("/dev/shm", W_OK) == 0 ? "/dev/shm/tm-fuzz-XXXXXX" : "/tmp/tm-fuzz-XXXXXX");
        TM_ASSERT(mkdtemp(folder));
        tm_log_set_level(TM_LOG_ERROR);
    }
    char path[96], again[96];
    snprintf(path, sizeof path, "%s/x.yaml", folder);
    snprintf(again, sizeof again, "%s/again.yaml", folder);
    write_file(path, data, size);
    bool       spoken = memmem(data, size, SECRET, strlen(SECRET)) != NULL;
    tm_error   err = { 0 };
    tm_config *first = load(path, true, spoken, &err);
    if (err.status == TM_OK) {
        tm_text printed = { 0 }, reprinted = { 0 };
        tm_config_print_yaml(first, &printed, true);
        TM_ASSERT(spoken || !strstr(printed.data, SECRET));
        write_file(again, printed.data, printed.length);
        tm_config *second = load(again, false, true, &err);
        if (!strstr(printed.data, "\"***\"")) { /* a masked value may be of the wrong kind */
            if (err.status != TM_OK) tm_assert_failed(err.text, "the printed form does not load", 0);
            tm_config_print_yaml(first, &reprinted, false);
            printed.length = 0;
            tm_config_print_yaml(second, &printed, false);
            TM_ASSERT(strcmp(printed.data, reprinted.data) == 0);
        }
        tm_text_fini(&printed);
        tm_text_fini(&reprinted);
        tm_config_destroy(second);
    }
    tm_config_destroy(first);
    unlink(path);
    unlink(again);
    return 0;
}

#ifdef TM_FUZZ_STANDALONE
#include "base/clock.h"
#include "base/file.h"
#include "base/random.h"

enum { MAX_SEEDS = 256, MAX_INPUT = 1 << 16 };

typedef struct {
    uint64_t seed, index;
} source;

static uint64_t below(source *s, uint64_t n)
{
    return tm_random_below(s->seed, 0, s->index++, n);
}

static const char *const pieces[] = { "{",
                                      "}",
                                      "[",
                                      "]",
                                      ": ",
                                      "- ",
                                      "\n",
                                      "\n  ",
                                      "&a ",
                                      "*a",
                                      "${N}",
                                      "${MY_TOKEN}",
                                      "${",
                                      "}",
                                      "'",
                                      "\"",
                                      "extends: x.yaml\n",
                                      "model: ",
                                      "training.steps: ",
                                      "null",
                                      "1e9",
                                      "-1",
                                      "gpt-small",
                                      "modules: {pre_trainer: {",
                                      "\t",
                                      "|\n",
                                      ">-\n",
                                      "? ",
                                      "#",
                                      "%YAML",
                                      "---\n",
                                      "\\0",
                                      "\xc3",
                                      "data.path: ",
                                      "!!str ",
                                      "<<: *a" };

/* One change of a text: a byte, a cut, a copy, a piece of syntax, a splice with another seed. */
static void mutate(source *s, tm_text *text, const tm_text *other)
{
    size_t  n = text->length, at = n ? below(s, n) : 0;
    tm_text out = { 0 };
    tm_text_add(&out, "");
    tm_text_add_n(&out, text->data, at);
    switch (below(s, 5)) {
    case 0:
        tm_text_add_n(&out, (char[]){ (char)below(s, 256) }, 1);
        if (at < n) tm_text_add_n(&out, text->data + at + 1, n - at - 1);
        break;
    case 1: {
        size_t cut = n > at ? below(s, n - at) + 1 : 0;
        tm_text_add_n(&out, text->data + at + cut, n - at - cut);
        break;
    }
    case 2: {
        size_t from = n ? below(s, n) : 0, length = n > from ? below(s, n - from) + 1 : 0;
        tm_text_add_n(&out, text->data + from, length);
        tm_text_add_n(&out, text->data + at, n - at);
        break;
    }
    case 3:
        tm_text_add(&out, pieces[below(s, sizeof pieces / sizeof pieces[0])]);
        tm_text_add_n(&out, text->data + at, n - at);
        break;
    default: {
        size_t from = other->length ? below(s, other->length) : 0;
        tm_text_add_n(&out, other->data + from, other->length - from);
    }
    }
    if (out.length > MAX_INPUT) out.length = MAX_INPUT;
    tm_text_fini(text);
    *text = out;
}

int main(int argc, char **argv)
{
    static tm_text seeds[MAX_SEEDS];
    size_t         n = 0;
    double         seconds = 0;
    source         s = { .seed = 1 };
    for (int i = 1; i < argc; i++) {
        tm_error err = { 0 };
        if (strcmp(argv[i], "-t") == 0 && i + 1 < argc) {
            seconds = strtod(argv[++i], NULL);
        } else if (strcmp(argv[i], "-s") == 0 && i + 1 < argc) {
            s.seed = strtoull(argv[++i], NULL, 10);
        } else if (n < MAX_SEEDS && tm_file_read(argv[i], 1 << 21, &seeds[n], &err) == TM_OK) {
            LLVMFuzzerTestOneInput((const uint8_t *)seeds[n].data, seeds[n].length);
            n++;
        } else {
            fprintf(stderr, "cannot use '%s': %s\n", argv[i], err.text);
            return 2;
        }
    }
    int64_t  end = tm_now_ns() + (int64_t)(seconds * 1e9);
    uint64_t runs = 0;
    for (; n > 0 && tm_now_ns() < end; runs++) {
        const tm_text *seed = &seeds[below(&s, n)];
        tm_text        text = { 0 };
        tm_text_add(&text, "");
        tm_text_add_n(&text, seed->data, seed->length < MAX_INPUT ? seed->length : MAX_INPUT);
        for (uint64_t k = below(&s, 6) + 1; k > 0; k--) mutate(&s, &text, &seeds[below(&s, n)]);
        FILE *last = fopen("fuzz_yaml.last.tmp.in", "w"); /* what to look at if this one fails */
        if (last) {
            fwrite(text.data, 1, text.length, last);
            fclose(last);
        }
        LLVMFuzzerTestOneInput((const uint8_t *)text.data, text.length);
        tm_text_fini(&text);
    }
    remove("fuzz_yaml.last.tmp.in");
    printf("%zu files, %llu mutations, no finding\n", n, (unsigned long long)runs);
    for (size_t i = 0; i < n; i++) tm_text_fini(&seeds[i]);
    return 0;
}
#endif
