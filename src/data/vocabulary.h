/* SPDX-License-Identifier: Apache-2.0 */
/* data/vocabulary.h - a tokenizer is learned from files of text (token/train.h). */
#ifndef TM_DATA_VOCABULARY_H
#define TM_DATA_VOCABULARY_H

#include "data/tokenize.h"
#include "token/train.h"

typedef struct {
    const char *const           *paths; /* as in tm_tokenize_options, and the next two */
    int                          n_paths;
    const char                  *input, *field;
    const char                  *pattern; /* cuts words */
    const char                  *out;     /* tokenizer.json */
    tm_bpe_goal                  goal;
    const volatile sig_atomic_t *stop; /* not 0: end soon; or NULL */
} tm_vocabulary_options;

/* Reads all files once, learns, writes `out` when all is done. The errors of tm_data_tokenize and token/train.h. */
TM_MUST_USE tm_status tm_data_vocabulary(const tm_vocabulary_options *options, tm_tokenize_result *files,
                                         tm_bpe_result *result, tm_error *err);

#endif
