/* SPDX-License-Identifier: Apache-2.0 */
/* A vocabulary learned from text: which pairs are joined, in what order; bytes as tokens. */
#include "base/random.h"
#include "token/train.h"

#include <jansson.h>

#include "support/test.h"

static tm_tokenizer *learn(const char *text, size_t n, const tm_bpe_goal *goal, tm_bpe_result *result, tm_text *file)
{
    tm_bpe_trainer *trainer;
    tm_tokenizer   *tokenizer;
    assert_ok(tm_bpe_trainer_create("gpt2", &trainer, err));
    tm_bpe_trainer_add(trainer, text, n);
    assert_ok(tm_bpe_trainer_finish(trainer, goal, file, result, err));
    tm_bpe_trainer_destroy(trainer);
    assert_ok(tm_tokenizer_parse("learned", file->data, file->length, NULL, &tokenizer, err));
    return tokenizer;
}

static void check_token(const tm_tokenizer *tokenizer, int32_t id, const char *wanted)
{
    size_t      n;
    const char *text = tm_tokenizer_text(tokenizer, id, &n);
    if (!text || strcmp(text, wanted) != 0) fail_msg("token %d is %s, wanted %s", id, text ? text : "none", wanted);
}

/* --- against the plainest way --------------------------------------------------------------------- */

enum { WORDS = 260, LETTERS = 16, ROOM = 80, MERGES = 200 };

/* What is learned when all pairs are counted again before every step. */
typedef struct {
    int32_t word[WORDS][LETTERS];
    int     length[WORDS];
    char    token[ROOM][LETTERS + 1]; /* behind the bytes */
    int     tokens;
    int32_t merge[MERGES][2];
    int     merges;
} plain;

static void text_of(const plain *p, int32_t id, char out[LETTERS + 1])
{
    snprintf(out, LETTERS + 1, "%.*s", LETTERS, id < 256 ? (char[]){ (char)id, '\0' } : p->token[id - 256]);
}

static int times(const plain *p, int32_t left, int32_t right)
{
    int n = 0;
    for (int w = 0; w < WORDS; w++)
        for (int i = 0; i + 1 < p->length[w]; i++) n += p->word[w][i] == left && p->word[w][i + 1] == right;
    return n;
}

static bool is_special(const plain *p, const tm_bpe_goal *goal, int32_t left, int32_t right)
{
    char a[LETTERS + 1], b[LETTERS + 1], both[2 * LETTERS + 2];
    text_of(p, left, a);
    text_of(p, right, b);
    snprintf(both, sizeof both, "%s%s", a, b);
    for (int i = 0; i < goal->n_special; i++)
        if (strcmp(both, goal->special[i]) == 0) return true;
    return false;
}

/* How often the most frequent pair occurs, of equally frequent ones that of the lowest ids. */
static int most_frequent(const plain *p, const tm_bpe_goal *goal, int32_t best[2])
{
    int most = 0;
    for (int w = 0; w < WORDS; w++)
        for (int i = 0; i + 1 < p->length[w]; i++) {
            int32_t left = p->word[w][i], right = p->word[w][i + 1];
            int     n = times(p, left, right);
            bool    lower = left < best[0] || (left == best[0] && right < best[1]);
            if (n < most || (n == most && !lower) || is_special(p, goal, left, right)) continue;
            most = n, best[0] = left, best[1] = right;
        }
    return most;
}

static void join_all(plain *p, const int32_t pair[2])
{
    char a[LETTERS + 1], b[LETTERS + 1], both[2 * LETTERS + 2];
    int  id = 0, m = 0;
    text_of(p, pair[0], a);
    text_of(p, pair[1], b);
    snprintf(both, sizeof both, "%s%s", a, b);
    while (id < p->tokens && strcmp(p->token[id], both) != 0) id++;
    if (id == p->tokens) snprintf(p->token[p->tokens++], LETTERS + 1, "%.*s", LETTERS, both);
    while (m < p->merges && (p->merge[m][0] != pair[0] || p->merge[m][1] != pair[1])) m++;
    if (m == p->merges) memcpy(p->merge[p->merges++], pair, sizeof p->merge[0]);
    for (int w = 0; w < WORDS; w++) {
        int to = 0;
        for (int i = 0; i < p->length[w]; to++) {
            bool joins = i + 1 < p->length[w] && p->word[w][i] == pair[0] && p->word[w][i + 1] == pair[1];
            p->word[w][to] = joins ? 256 + id : p->word[w][i];
            i += joins ? 2 : 1;
        }
        p->length[w] = to;
    }
}

static void expect_learned(const plain *p, const tm_tokenizer *t, const tm_text *file)
{
    json_t *root = json_loadb(file->data, file->length, 0, NULL);
    json_t *merges = json_object_get(json_object_get(root, "model"), "merges");
    assert_int_equal(json_array_size(merges), p->merges);
    for (int i = 0; i < p->merges; i++)
        for (int k = 0; k < 2; k++) {
            char want[LETTERS + 1];
            text_of(p, p->merge[i][k], want);
            assert_string_equal(json_string_value(json_array_get(json_array_get(merges, (size_t)i), (size_t)k)), want);
        }
    for (int i = 0; i < p->tokens; i++) check_token(t, 256 + i, p->token[i]);
    json_decref(root);
}

/* Lines of few letters: many pairs are as frequent as others, and many ways lead to the same text. */
TEST(pairs_are_those_of_counting_anew)
{
    static const char *const special[] = { "<end>", "ab", "bca" };
    for (uint64_t seed = 0; seed < 6; seed++) {
        static plain  p;
        tm_bpe_result result;
        tm_text       text = { 0 }, file = { 0 };
        tm_bpe_goal   goal = { .vocab = 256 + 3 + ROOM / 2, .special = special, .n_special = 3, .least = 3 };
        int           made = 0;
        p = (plain){ 0 };
        for (int w = 0; w < WORDS; w++) {
            p.length[w] = 1 + (int)tm_random_below(seed, 1, (uint64_t)w, LETTERS);
            for (int i = 0; i < p.length[w]; i++) {
                uint64_t dice = tm_random_below(seed, 2, (uint64_t)(w % 200 * LETTERS + i), 60);
                char     c = (char)('a' + (seed % 2 ? dice % (2 + seed % 3) : dice < 6));
                p.word[w][i] = c;
                tm_text_add_n(&text, &c, 1);
            }
            tm_text_add(&text, "\n");
        }
        tm_tokenizer *t = learn(text.data, text.length, &goal, &result, &file);
        /* bytes have other numbers there, but letters are in the same order */
        for (int32_t best[2] = { 0 }; made < MERGES && p.tokens < ROOM / 2; made++) {
            if (most_frequent(&p, &goal, best) < goal.least) break;
            join_all(&p, best);
        }
        expect_learned(&p, t, &file);
        assert_int_equal(result.vocab, 256 + p.tokens + 3);
        assert_int_equal(tm_tokenizer_describe(t)->vocab, result.vocab);
        assert_int_equal(result.words, 2 * WORDS);
        tm_tokenizer_close(t);
        tm_text_fini(&text);
        tm_text_fini(&file);
    }
}

TEST(what_cannot_be_is_refused)
{
    tm_bpe_trainer *trainer;
    tm_bpe_result   result;
    tm_text         file = { 0 };
    assert_refused(tm_bpe_trainer_create("gpt9", &trainer, err), TM_INVALID, "");
    assert_refused(tm_bpe_trainer_create("cl100k", &trainer, err), TM_UNSUPPORTED, "llama3");
    assert_ok(tm_bpe_trainer_create("qwen2", &trainer, err));
    assert_refused(tm_bpe_trainer_finish(trainer, &(tm_bpe_goal){ .vocab = 300, .least = 1 }, &file, &result, err),
                   TM_INVALID, "");
    tm_bpe_trainer_add(trainer, "text", 4);
    assert_refused(tm_bpe_trainer_finish(trainer, &(tm_bpe_goal){ .vocab = 255, .least = 1 }, &file, &result, err),
                   TM_INVALID, "");
    tm_bpe_trainer_destroy(trainer);
}
