/* SPDX-License-Identifier: Apache-2.0 */
/* data/source.h - where training tokens come from, and the thread that fetches them ahead.
 *
 * A source is a pure function from (options, split, index) to a sample of T+1 tokens; everything is constant after
 * open, so any thread may ask for any sample in any order, and a resumed run sees what the stopped one would have seen.
 *
 * The table of sources is sources.def; docs: data.md, data-mlperf.md, synthetic-language.md.
 */
#ifndef TM_DATA_SOURCE_H
#define TM_DATA_SOURCE_H

#include "base/status.h"
#include "base/text.h"
#include "graph/tensor.h"
#include "op/attrs.h" /* TM_IGNORED_TARGET */

#include <stdbool.h>
#include <stdint.h>

typedef struct tm_source tm_source;

typedef enum { TM_SPLIT_TRAIN, TM_SPLIT_VALIDATION } tm_split;

/* govreport: which entry of the mask decides whether the prediction of token t + 1 at position t counts: that of the
 * token that is read (t), or of the one that is predicted (t + 1). */
typedef enum { TM_MASK_INPUT, TM_MASK_TARGET } tm_mask;

/* How the loss of a run is judged (docs/verdict.md). */
typedef enum {
    TM_GATE_FLOOR = 1,  /* facts.floor is exact: nothing goes below it, and training must go towards it */
    TM_GATE_UNIFORM,    /* uniform tokens: all there is to learn is facts.unigram_entropy */
    TM_GATE_HELD_OUT,   /* the held-out loss must be below facts.unigram_entropy */
    TM_GATE_PREFERENCE, /* the loss begins where a model that equals its reference has it, and falls */
} tm_source_gate;

/* What is true of a source, whatever its options. */
typedef struct {
    const char    *name;
    tm_source_gate gate;
    bool           needs_path;            /* data.path */
    bool           takes_validation_path; /* data.validation_path */
    bool           decodes;               /* tokens stand for text (tm_source_decode): a model can write some */
    bool           images;                /* a sample is an image, its loss a square error */
    const char    *encoders;              /* of images: "inside" or "before" the times of steps; NULL: there are none */
    bool           documents;             /* knows where documents begin (tm_source_options.separate) */
    bool           pairs;                 /* a sample holds pairs of sequences, one of which is preferred */
} tm_source_traits;

/* Letter case ignored; NULL: there is no such source. */
const tm_source_traits *tm_source_traits_of(const char *name);

/* What rows of data for fine-tuning are (docs/fine-tuning.md). */
typedef enum {
    TM_SFT_AUTO, /* by the columns of the first row */
    TM_SFT_MESSAGES,
    TM_SFT_CONVERSATIONS,
    TM_SFT_INSTRUCTION,
    TM_SFT_COMPLETION,
    TM_SFT_TEXT,
    TM_SFT_PREFERENCE /* two answers to a prompt: of data.source preference */
} tm_sft_format;
const char *tm_sft_format_name(tm_sft_format format); /* "messages" */

/* What happens to a sample of more tokens than fit. */
typedef enum { TM_OVERLONG_TRUNCATE, TM_OVERLONG_DROP, TM_OVERLONG_SPLIT, TM_OVERLONG_ERROR } tm_overlong;

typedef struct {
    tm_sft_format format;
    const char   *column_map;     /* "prompt=QUESTION,completion=ANSWER", or NULL */
    const char   *tokenizer;      /* a file or a folder; NULL or "byte": bytes, 256 ends a text */
    const char   *chat_template;  /* a file, or the name of one in the folder; NULL: the folder's */
    bool          train_on_input; /* else targets of prompts do not count */
    bool          packed;         /* several samples in a row of a batch, kept apart */
    tm_overlong   overlong;
} tm_sft_options;

/* How images are trained and evaluated: times, texts that are left out (docs/flux.md). */
typedef enum { TM_FLOW_TORCHTITAN, TM_FLOW_MLPERF, TM_FLOW_FLUXBENCHMARK } tm_flow_protocol;

/* How times of training are drawn: as the protocol says, or t = u, or t = 1 / (1 + exp(-(mean + std n))), with u
 * uniform in (0, 1) and n normal (Esser et al. 2024, sec. 3.1). */
typedef enum { TM_TIMES_OF_PROTOCOL, TM_TIMES_UNIFORM, TM_TIMES_LOGIT_NORMAL } tm_flow_times;

/* Who encodes pictures and captions of data.source pictures; one call at a time, from any thread. */
typedef struct {
    void *context;
    /* pixels (16 rows, 16 columns, 3) in [-1, 1] -> mean, logvar (channels / 4, 2 rows, 2 columns). */
    tm_status (*picture)(void *context, const float *pixels, float *mean, float *logvar, tm_error *err);
    /* text (text_len, text_dim), pooled (vector_dim). */
    tm_status (*text)(void *context, const char *caption, float *text, float *pooled, tm_error *err);
    double scaling_factor, shift_factor;
} tm_picture_encoder;

/* What sources of images give. tokens 0: the model takes none. */
typedef struct {
    int64_t                   rows; /* of image tokens */
    int64_t                   tokens, channels, text_len, text_dim, vector_dim;
    tm_flow_protocol          protocol;
    double                    dropout; /* share of the training samples whose texts are left out; NAN: the protocol's */
    const tm_picture_encoder *encoder; /* pictures: while it trains; NULL: there is none */
    double                    spread; /* gaussians: standard deviation of an image about the mean that its texts tell */
    tm_flow_times             times;
    double                    logit_mean, logit_std; /* read with TM_TIMES_LOGIT_NORMAL */
    double                    shift;                 /* a > 0: a drawn t becomes a t / (1 + (a - 1) t); 0: it stays */
} tm_flow_options;

typedef struct {
    const char *name; /* letter case ignored */
    const char *path; /* text: a file or folder; sft: the same, or a pattern; govreport: train.npy or its folder;
                         megatron: PREFIX; NULL elsewhere */
    const char *validation_path; /* govreport, megatron, sft: of the held-out data; NULL: validation.npy of the folder,
                                    or none */
    int64_t         vocab;       /* model.vocab_size; text: 0 = not looked at */
    int64_t         seq;         /* T, target tokens of a sample, >= 1; preference: of a pair, half of it for each */
    uint64_t        seed;
    double          validation_fraction; /* text: share of the bytes held out, in [0, 0.9]; sft: of the rows */
    bool            plain_text; /* text: refuse binary files, JSON lines and packed files; else any bytes are tokens */
    int64_t         samples;    /* megatron: training samples that the run wants; its order depends on them */
    tm_mask         mask;       /* govreport */
    int32_t         pad_token;  /* govreport: the input behind the last token */
    bool            plain_answers; /* reports: answers are written as the reports are */
    bool            separate;      /* fields that keep the documents of a sample apart, see tm_source_fields */
    tm_flow_options flow;          /* of images */
    tm_sft_options  sft;
} tm_source_options;

typedef struct {
    int64_t train_samples;      /* samples of one epoch, each in a new order; INT64_MAX = never repeats */
    int64_t validation_samples; /* how many there are; INT64_MAX = endless; 0 = none held out */
    int64_t vocab_needed;       /* smallest vocabulary that holds every token id */
    double  floor;              /* exact conditional entropy, nats per target token of samples of T; of images the least
                                 * mean square error; NAN = unknown */
    double   validation_floor;  /* the same of the validation split, where it differs (times of images) */
    double   unigram_entropy;   /* nats per token; of files: of the validation split, NAN without one */
    double   ngram3_entropy;    /* synthetic: exact cross entropy of the best order-3 predictor; else NAN */
    double   bytes_per_token;   /* text: of the validation split (of all text without one); else NAN */
    int32_t  end_token;         /* text: the token after each document; else -1 */
    uint64_t content;           /* what the samples are made of, as a number: other bytes of the files, other number (of
                                   files above 64 MiB parts are looked at); never 0 */
} tm_source_facts;

/* The i-th source's name, NULL behind the last. */
const char *tm_source_name(int i);

/* The fields that a sample of such a source has, without opening it: of a language tokens (T) and targets (T), int32;
 * with `separate` also positions (T), each token's place in its document, counted from 0 at the sample's begin, and
 * first_key (T), where in the sample its document begins; and the target of a document's last token, which the next
 * one begins with, does not count. TM_INVALID: unknown name, or documents that are not known. */
TM_MUST_USE tm_status tm_source_fields(const tm_source_options *options, tm_field out[TM_MAX_FIELDS], int *n,
                                       tm_error *err);

/* How many ids the data has been made with: *size, 0 where that is not known. A model that names no vocabulary takes
 * it. Looks at the files if need be; TM_INVALID, TM_FORMAT as tm_source_open. */
TM_MUST_USE tm_status tm_source_vocabulary(const tm_source_options *options, int64_t *size, tm_error *err);

/* Opens a source. TM_INVALID for anything a user can mend: unknown name, vocabulary too small, T < 1, no text, text
 * shorter than a window, and for text whatever in the folder is not a readable regular file (nothing hangs on a fifo).
 * TM_FORMAT for a damaged file, TM_NOMEM when megatron's order does not fit in memory. The options need not outlive the
 * call. */
TM_MUST_USE tm_status tm_source_open(const tm_source_options *options, tm_source **out, tm_error *err);
void                  tm_source_close(tm_source *source); /* NULL is fine */

/* Appends a line on what opening would take and give, for sources of large files (govreport, megatron), reading as
 * little as can be; nothing for other sources. The same errors as tm_source_open, but TM_NOMEM. */
bool                  tm_source_has_outline(const char *name);
TM_MUST_USE tm_status tm_source_outline(const tm_source_options *options, tm_text *out, tm_error *err);

const tm_source_facts *tm_source_describe(const tm_source *source);
int64_t                tm_source_seq(const tm_source *source); /* T */

/* Sample `index` >= 0 of a split as tokens (T+1): inputs are tokens[0..T-1], targets tokens[1..T]. A train index beyond
 * one epoch goes on in the next epoch's order; a validation index must be below validation_samples. Takes no memory.
 * synthetic, mock and text only: other sources have rows. */
void tm_source_sample(const tm_source *source, tm_split split, int64_t index, int32_t *tokens);

/* Nats per target that a general compressor (zstd) needs for the first 2^18 targets of the validation split: what can
 * be foreseen without training. Far less is not to be had, but by seeing the targets. NAN: nothing is held out, images,
 * or a row cannot be read. Takes some 50 ms. */
double tm_source_compressed(const tm_source *source);

/* Keeps the losses (T) of a reference, by target of sample `index`: the field `reference` of that sample from now on,
 * zeros before. preference only. The one thing that changes in an open source: no loader may be open. */
void tm_source_keep_reference(const tm_source *source, tm_split split, int64_t index, const float *losses);

/* Sample `index` of any source as the row of a batch: a pointer per field, in the order of tm_source_fields, and what
 * it weighs in the loss, the targets that count (not TM_IGNORED_TARGET), or pairs; `scratch` is room for T+1 tokens.
 * TM_INVALID, with the place, if the files changed since they were opened or hold a token outside of the vocabulary. */
TM_MUST_USE tm_status tm_source_row(const tm_source *source, tm_split split, int64_t index, int32_t *scratch,
                                    void *const *fields, int64_t *weight, tm_error *err);

/* synthetic, mock: the exact -log p of the T targets of one sample, in nats, given all tokens before each; NAN for
 * the others. Its mean over samples, divided by T, tends to facts.floor; tokens that the language cannot produce give
 * INFINITY. */
double tm_source_nats(const tm_source *source, const int32_t *tokens);

/* Appends the text of n tokens to *out, the end token as nothing, and returns out->data; NULL if there is none.
 * Ids beyond the tokenizer's (a model with a larger vocabulary can produce them) become '?'. */
char *tm_source_decode(const tm_source *source, const int32_t *tokens, int64_t n, tm_text *out);

/* What sample `index` of a source of images is a picture of; NULL: not known. Valid until the source is closed. */
const char *tm_source_caption(const tm_source *source, tm_split split, int64_t index);

/* A thread that keeps up to `depth` batches ready; depth 0: no thread, a batch is read when it is asked for. Batch i
 * holds samples first + i batch ... first + (i+1) batch
 * - 1. */
typedef struct tm_loader tm_loader;

/* Which part of every batch a loader reads: of `ranks` parts of equal size that lie one behind the other, part `rank`.
 * So the samples of a batch do not depend on how many ranks share it. */
typedef struct {
    int64_t rank, ranks; /* 0 <= rank < ranks */
} tm_loader_part;

typedef struct {
    void           *field[TM_MAX_FIELDS]; /* (batch, ...) each, in the order of tm_source_fields */
    const int64_t  *weight;               /* (batch) what each of its rows weighs in the loss, as of tm_source_row */
    int64_t         target_tokens;        /* those together */
    const tm_error *error; /* NULL, or why a row could not be read: the batch and all after it are no good */
} tm_batch;

/* Rows of the validation split beyond its last sample are empty (tokens 0, targets -100). The source must outlive the
 * loader. NULL when no thread can be started. All memory is taken here. */
tm_loader *tm_loader_open(const tm_source *source, tm_split split, int64_t batch, int64_t first_sample, int depth);
/* The same of a part: `batch` and `first_sample` are those of all ranks together, batches that are handed out have
 * batch / ranks rows, a whole number of them. */
tm_loader *tm_loader_open_part(const tm_source *source, tm_split split, int64_t batch, tm_loader_part part,
                               int64_t first_sample, int depth);
void       tm_loader_close(tm_loader *loader); /* NULL is fine */

/* The next batch, valid until the next call. One consumer thread. Allocates nothing. */
void tm_loader_next(tm_loader *loader, tm_batch *out);

/* Of the first TM_LOADER_WATCHED samples that were read: how many, and how many of them are different ones; hashes, not
 * NULL: `unique` numbers, one for each of these. Any thread. */
enum { TM_LOADER_WATCHED = 4096 };
void tm_loader_unique(tm_loader *loader, int64_t *seen, int64_t *unique, uint64_t hashes[TM_LOADER_WATCHED]);

/* For checkpoints: first_sample plus all samples handed out since, by all ranks that share the batches, that is, the
 * first_sample of a loader that goes on here, whatever its part is. */
int64_t tm_loader_consumed(const tm_loader *loader);

#endif
