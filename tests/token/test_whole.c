/* SPDX-License-Identifier: Apache-2.0 */
/* What every kind of tokenizer file says of itself, makes of texts and of ids, where it cuts, and how it refuses what
 * is damaged; and files that are learned. Lines of tests/token/whole.txt are digests, of refusals the messages. After a
 * change that is meant:
 *     TM_RECORD=1 build/release/tests/token/test_whole; git diff tests/token/whole.txt
 */
#include "base/file.h"
#include "base/hash.h"
#include "base/random.h"
#include "support/whole.h"
#include "token/token.h"
#include "token/train.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

static const struct {
    const char *file, *pattern;
    int         step; /* of the places that are damaged; 0: none are */
} files[] = { { "llama2.model", NULL, 17 },       { "t5.model", NULL, 29 },         { "unknown.model", NULL, 3 },
              { "ranks.tiktoken", "cl100k", 61 }, { "ranks.tiktoken", "o200k", 0 }, { "tekken.json", NULL, 211 },
              { "clip.json", NULL, 0 },           { "deepseek.json", NULL, 0 },     { "fused.json", NULL, 101 },
              { "gpt2.json", NULL, 0 },           { "llama2.json", NULL, 0 },       { "llama3.json", NULL, 0 },
              { "o200k.json", NULL, 0 },          { "qwen2.json", NULL, 0 },        { "t5.json", NULL, 0 },
              { "unknown.json", NULL, 47 } };

static const char *const texts[] = {
    "",
    " ",
    "a",
    "Hello world",
    "  leading and   several blanks  ",
    "line\nline\r\n\n\ttab",
    "It's we'll I'M 12345678 3.14!",
    "<s></s><|endoftext|> <unk>",
    "\xC3\xA9\xC3\x84\xC3\x9F na\xC3\xAFve \xE4\xBD\xA0\xE5\xA5\xBD "
    "\xF0\x9F\x98\x80\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x92\xBB",
    "\xE2\x96\x81_\xE2\x96\x81x",
    "\xFF\xFE broken \xE2\x82 end \xF0\x9F",
    "e\xCC\x81 \xEF\xBC\xA1\xEF\xBC\xA2 \xEF\xAC\x81",
    "for (int i = 0; i < n; i++) { x[i] += 2; }",
    "\xD0\x9F\xD1\x80\xD0\xB8\xD0\xB2\xD0\xB5\xD1\x82 \xD7\xA9\xD7\x9C\xD7\x95\xD7\x9D \xE3\x81\x93\xE3\x82\x93",
    "\xC2\xA0\xE3\x80\x80 \xE2\x80\x8B.",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "<|im_start|>user\nhi<|im_end|>\n",
    "UPPER lower MiXed snake_case kebab-case",
    "\x01\x7f\xC2\x80"
};
enum { TEXTS = sizeof texts / sizeof texts[0], LONG = 6000 };

static unsigned long long digest(const void *bytes, size_t n)
{
    return (unsigned long long)tm_hash(bytes, n);
}

static tm_text read_one(const char *name)
{
    char     path[160];
    tm_text  bytes = { 0 };
    tm_error err = { 0 };
    snprintf(path, sizeof path, "tests/token/fixtures/%s", name);
    if (tm_file_read(path, 1 << 26, &bytes, &err) != TM_OK) fail_msg("%s", err.text);
    return bytes;
}

static void add_facts(tm_text *out, const tm_tokenizer *t)
{
    const tm_tokenizer_facts *f = tm_tokenizer_describe(t);
    tm_text                   all = { 0 };
    tm_text_add(&all, "");
    for (int32_t id = -1; id <= f->vocab; id++) {
        size_t      n = 0;
        const char *text = tm_tokenizer_text(t, id, &n);
        tm_text_printf(&all, "%d %zu %d %d %.*s\n", id, n, tm_tokenizer_is_special(t, id),
                       text ? tm_tokenizer_find(t, text, n) : -2, text ? (int)n : 0, text ? text : "");
    }
    tm_text_printf(out, "  %s, %s, %s, %lld ids, %lld merges, %lld added, %d %d %d %d, tokens %016llx\n", f->format,
                   f->model, f->pattern ? f->pattern : "-", (long long)f->vocab, (long long)f->merges,
                   (long long)f->added, f->bos, f->eos, f->unk, f->pad, digest(all.data, all.length));
    tm_text_fini(&all);
}

static void add_ids(tm_text *out, const tm_tokenizer *t, const char *long_text)
{
    tm_token_encoder *e = tm_token_encoder_create(t);
    tm_ids            ids = { 0 };
    for (unsigned flags = 0; flags < 8; flags++) {
        tm_text all = { 0 }, back = { 0 };
        tm_text_add(&all, "");
        for (int i = 0; i <= TEXTS; i++) {
            const char *text = i < TEXTS ? texts[i] : long_text;
            tm_error    err = { 0 };
            ids.count = 0;
            tm_status st = tm_token_encoder_encode(e, text, strlen(text), flags, &ids, &err);
            tm_text_printf(&all, "%d %d %s:", i, st, err.text);
            for (size_t k = 0; k < ids.count; k++) tm_text_printf(&all, " %d", ids.data[k]);
            tm_tokenizer_decode(t, ids.data, ids.count, flags & 1, &back);
            tm_text_add(&back, "|");
            tm_tokenizer_decode(t, ids.data + ids.count / 2, ids.count - ids.count / 2, !(flags & 1), &back);
            tm_text_add(&back, "\n");
        }
        tm_text_printf(out, "  flags %u: %016llx, back %016llx\n", flags, digest(all.data, all.length),
                       digest(back.data, back.length));
        tm_text_fini(&all);
        tm_text_fini(&back);
    }
    free(ids.data);
    tm_token_encoder_destroy(e);
    tm_text cuts = { 0 };
    tm_text_add(&cuts, "");
    for (size_t n = 1; n < LONG; n += n < 300 ? 1 : 97)
        tm_text_printf(&cuts, " %zu", tm_tokenizer_cut(t, long_text, n));
    for (int i = 0; i < TEXTS; i++)
        for (size_t n = 1; n <= strlen(texts[i]); n++) tm_text_printf(&cuts, " %zu", tm_tokenizer_cut(t, texts[i], n));
    tm_text all = { 0 };
    int64_t vocab = tm_tokenizer_describe(t)->vocab;
    for (int32_t id = -1; id <= vocab; id++) {
        const int32_t pair[] = { id, (int32_t)((id * 7 + 3) % vocab) };
        tm_tokenizer_decode(t, pair, 2, id % 2, &all);
        tm_text_add(&all, "\n");
    }
    tm_text_printf(out, "  cuts %016llx, all ids %016llx\n", digest(cuts.data, cuts.length),
                   digest(all.data, all.length));
    tm_text_fini(&cuts);
    tm_text_fini(&all);
}

/* Cut off, and with one byte changed: refused with these words, or taken. */
static void add_damaged(tm_text *out, const char *pattern, const tm_text *bytes, size_t step)
{
    for (int kind = 0; kind < 4; kind++) {
        int     taken = 0;
        tm_text all = { 0 };
        tm_text_add(&all, "");
        for (size_t at = 0; at < bytes->length; at += step) {
            tm_tokenizer *t;
            tm_error      err = { 0 };
            char         *copy = malloc(bytes->length);
            memcpy(copy, bytes->data, bytes->length);
            if (kind > 0) copy[at] = (char)(kind == 1 ? copy[at] ^ 1 : kind == 2 ? copy[at] ^ 0x80 : copy[at] + 9);
            if (tm_tokenizer_parse("f", copy, kind ? bytes->length : at, pattern, &t, &err) == TM_OK) {
                taken++;
                tm_tokenizer_close(t);
            } else {
                tm_text_printf(&all, "%zu %s\n", at, err.text);
                if (at / step % 60 == 0)
                    tm_text_printf(out, "  damage %d at %zu: %d %.110s\n", kind, at, err.status, err.text);
            }
            free(copy);
        }
        tm_text_printf(out, "  damage %d: %d taken, %016llx\n", kind, taken, digest(all.data, all.length));
        tm_text_fini(&all);
    }
}

/* Words that are the more frequent the shorter they are. */
static void make_text(char text[LONG + 1], uint64_t stream)
{
    size_t n = 0;
    for (uint64_t i = 0; n + 12 < LONG; i++) {
        uint64_t word = tm_random_below(3, stream, i, 40), length = 1 + word % 7;
        for (uint64_t k = 0; k < length; k++) text[n++] = (char)('a' + (word * 5 + k * k) % 9);
        text[n++] = i % 17 == 16 ? '\n' : i % 5 == 4 ? '.' : ' ';
    }
    text[n] = '\0';
}

static void add_learned(tm_text *out, const char *text)
{
    static const char *const special[] = { "<end>", "<pad>" };
    static const tm_bpe_goal goals[] = { { .vocab = 300, .special = special, .n_special = 2, .least = 1 },
                                         { .vocab = 400, .least = 2 },
                                         { .vocab = 2000, .special = special, .n_special = 1, .least = 5 },
                                         { .vocab = 256, .least = 1 },
                                         { .vocab = 258, .special = special, .n_special = 2, .least = 1 },
                                         { .vocab = 257, .special = special, .n_special = 2, .least = 1 } };
    for (int p = 0; tm_tokenizer_pattern(p); p++)
        for (size_t g = 0; g < sizeof goals / sizeof goals[0]; g++) {
            tm_bpe_trainer *trainer = NULL;
            tm_bpe_result   r = { 0 };
            tm_error        err = { 0 };
            tm_text         file = { 0 };
            char            longest[TM_BPE_LONGEST * 2 + 2];
            memset(longest, 'x', sizeof longest);
            longest[TM_BPE_LONGEST] = ' ', longest[sizeof longest - 1] = '\0';
            tm_status st = tm_bpe_trainer_create(tm_tokenizer_pattern(p), &trainer, &err);
            for (int i = 0; i < TEXTS && st == TM_OK; i++) tm_bpe_trainer_add(trainer, texts[i], strlen(texts[i]));
            if (st == TM_OK) tm_bpe_trainer_add(trainer, text, strlen(text));
            if (st == TM_OK) tm_bpe_trainer_add(trainer, longest, strlen(longest));
            if (st == TM_OK) st = tm_bpe_trainer_finish(trainer, &goals[g], &file, &r, &err);
            tm_text_printf(out, "learned %s %zu: %d %s %lld bytes, %lld words, %lld different, %lld ids, %016llx\n",
                           tm_tokenizer_pattern(p), g, st, err.text, (long long)r.bytes, (long long)r.words,
                           (long long)r.different, (long long)r.vocab, file.data ? digest(file.data, file.length) : 0);
            tm_text_fini(&file);
            tm_bpe_trainer_destroy(trainer);
        }
}

TEST(tokenizers_are_as_recorded)
{
    static char long_text[LONG + 1];
    tm_text     out = { 0 };
    make_text(long_text, 1);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        tm_text       bytes = read_one(files[i].file);
        tm_tokenizer *t;
        tm_error      err = { 0 };
        tm_text_printf(&out, "%s %s\n", files[i].file, files[i].pattern ? files[i].pattern : "");
        if (tm_tokenizer_parse("f", bytes.data, bytes.length, files[i].pattern, &t, &err) != TM_OK) {
            tm_text_printf(&out, "  refused: %s\n", err.text);
        } else {
            add_facts(&out, t);
            add_ids(&out, t, long_text);
            tm_tokenizer_close(t);
        }
        if (files[i].step) add_damaged(&out, files[i].pattern, &bytes, (size_t)files[i].step);
        tm_text_fini(&bytes);
    }
    static const char *const odd[] = { "",
                                       "   ",
                                       "{",
                                       "{}",
                                       "{\"model\": 3}",
                                       "{\"vocab\": [], \"config\": {}}",
                                       "[1]",
                                       "YQ== 0\nYg== 1\n",
                                       "YQ== 0\nYQ== 1\n",
                                       "YQ= x\n",
                                       "YQ== 0\n\nYg== 1",
                                       "Y 0\n",
                                       "YQ== 0 0\n",
                                       "YQ== 99999999999\n" };
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++)
        for (int p = 0; p < 3; p++) {
            static const char *const patterns[] = { NULL, "gpt2", "none such" };
            tm_tokenizer            *t = NULL;
            tm_error                 err = { 0 };
            tm_status                st = tm_tokenizer_parse("f", odd[i], strlen(odd[i]), patterns[p], &t, &err);
            tm_text_printf(&out, "odd %zu %d: %d %s\n", i, p, st, err.text);
            tm_tokenizer_close(t);
        }
    add_learned(&out, long_text);
    whole_is("tests/token/whole.txt", &out);
}
