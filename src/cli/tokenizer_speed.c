/* SPDX-License-Identifier: Apache-2.0 */
/* cli/tokenizer_speed.c - how fast a text is encoded: documents of about 16 KiB (whole lines), taken by threads one
 * after another, each round timed; the file is read and the tokenizer loaded before. */
#include "base/arena.h"
#include "base/clock.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/tokenizer_speed.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { DOCUMENT = 16384 };

typedef struct {
    const tm_tokenizer *tokenizer;
    const char         *text;
    size_t             *ends; /* of documents */
    size_t              count;
    atomic_size_t       next;
    atomic_llong        ids;
    atomic_int          failed;
} work;

static void *encode(void *arg)
{
    work             *w = arg;
    tm_token_encoder *e = tm_token_encoder_create(w->tokenizer);
    tm_ids            ids = { 0 };
    for (size_t i; (i = atomic_fetch_add(&w->next, 1)) < w->count;) {
        size_t from = i > 0 ? w->ends[i - 1] : 0;
        ids.count = 0;
        if (tm_token_encoder_encode(e, w->text + from, w->ends[i] - from, 0, &ids, NULL) != TM_OK)
            atomic_store(&w->failed, 1);
        atomic_fetch_add(&w->ids, (long long)ids.count);
    }
    free(ids.data);
    tm_token_encoder_destroy(e);
    return NULL;
}

static double round_of(work *w, int threads)
{
    pthread_t *others = tm_alloc((size_t)threads * sizeof *others);
    int        started = 0;
    atomic_store(&w->next, 0);
    atomic_store(&w->ids, 0);
    int64_t begin = tm_now_ns();
    while (started < threads - 1 && pthread_create(&others[started], NULL, encode, w) == 0) started++;
    encode(w);
    for (int i = 0; i < started; i++) pthread_join(others[i], NULL);
    double seconds = (double)(tm_now_ns() - begin) * 1e-9;
    free(others);
    return seconds;
}

tm_status tm_cli_tokenizer_speed(const tm_tokenizer *tokenizer, const tm_text *input, int threads, int rounds,
                                 tm_text *out, tm_error *err)
{
    work    w = { .tokenizer = tokenizer, .text = input->data };
    size_t  capacity = 0;
    tm_json j = { .out = out };
    for (size_t at = 0; at < input->length;) {
        size_t      end = input->length - at > DOCUMENT ? at + DOCUMENT : input->length;
        const char *line = end < input->length ? memchr(input->data + end, '\n', input->length - end) : NULL;
        at = line ? (size_t)(line - input->data) + 1 : input->length;
        w.ends = tm_grow(w.ends, &capacity, w.count, sizeof *w.ends);
        w.ends[w.count++] = at;
    }
    tm_json_open(&j, NULL, '{');
    tm_json_i64(&j, "bytes", (int64_t)input->length);
    tm_json_i64(&j, "documents", (int64_t)w.count);
    tm_json_i64(&j, "threads", threads);
    tm_json_open(&j, "seconds", '[');
    for (int i = 0; i < rounds; i++) tm_json_f64(&j, NULL, round_of(&w, threads));
    tm_json_close(&j, ']');
    tm_json_i64(&j, "ids", (int64_t)atomic_load(&w.ids));
    tm_json_close(&j, '}');
    tm_text_add(out, "\n");
    free(w.ends);
    return atomic_load(&w.failed)
               ? tm_fail(err, TM_INVALID, "a regular expression of the tokenizer gave up on a document")
               : TM_OK;
}
