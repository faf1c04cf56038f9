/* SPDX-License-Identifier: Apache-2.0 */
#include "data/vocabulary.h"

#include "base/file.h"
#include "data/corpus.h"

static tm_status take(void *context, const char *text, size_t n, bool begins, bool ends, tm_error *err)
{
    (void)begins;
    (void)ends;
    (void)err;
    tm_bpe_trainer_add(context, text, n);
    return TM_OK;
}

static tm_status read_all(const tm_vocabulary_options *o, tm_corpus *corpus, tm_bpe_trainer *trainer, tm_error *err)
{
    tm_text_batch batch = { 0 };
    tm_status     st = TM_OK;
    do {
        tm_text_batch_clear(&batch);
        st = tm_corpus_next(corpus, &batch, err);
        for (size_t i = 0; st == TM_OK && i < batch.count; i++)
            st = tm_part_documents(&batch, &batch.parts[i], o->field, take, trainer, err);
        if (st == TM_OK && o->stop && *o->stop) st = tm_fail(err, TM_INTERRUPTED, "nothing was written");
    } while (st == TM_OK && batch.count > 0);
    tm_text_batch_fini(&batch);
    return st;
}

static tm_status learn(const tm_vocabulary_options *o, tm_bpe_trainer *trainer, tm_tokenize_result *files,
                       tm_bpe_result *result, tm_error *err)
{
    const tm_tokenize_options reading = {
        .paths = o->paths, .n_paths = o->n_paths, .out = o->out, .input = o->input, .field = o->field
    };
    tm_corpus *corpus;
    tm_text    text = { 0 };
    TM_TRY(tm_corpus_open(&reading, tm_bpe_trainer_tokenizer(trainer), files, &corpus, err));
    tm_status st = read_all(o, corpus, trainer, err);
    tm_corpus_close(corpus);
    if (st == TM_OK) st = tm_bpe_trainer_finish(trainer, &o->goal, &text, result, err);
    if (st == TM_OK) st = tm_file_write(o->out, text.data, text.length, err);
    tm_text_fini(&text);
    return st;
}

tm_status tm_data_vocabulary(const tm_vocabulary_options *options, tm_tokenize_result *files, tm_bpe_result *result,
                             tm_error *err)
{
    tm_bpe_trainer *trainer;
    *files = (tm_tokenize_result){ 0 };
    TM_TRY(tm_bpe_trainer_create(options->pattern, &trainer, err));
    tm_status st = learn(options, trainer, files, result, err);
    tm_bpe_trainer_destroy(trainer);
    return st;
}
