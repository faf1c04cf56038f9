/* SPDX-License-Identifier: Apache-2.0 */
/* data/source_kind.h - what a source is made of; private to this room. One file per source, one row in sources.def: no
 * other place knows a source by its name. */
#ifndef TM_DATA_SOURCE_KIND_H
#define TM_DATA_SOURCE_KIND_H

#include "data/source.h"

/* `count` numbers of `width` bytes, little-endian, from byte `at` of a file. Without a path: parts of a file in any
 * unit, which are not read by themselves. */
typedef struct {
    uint64_t    file; /* equal for equal files */
    const char *path; /* of the source; NULL: none, or the file has changed since it was read */
    int64_t     at, count;
    int         width;
} tm_stored_place;

typedef struct {
    tm_stored_place *items;
    size_t           n, capacity;
} tm_stored_places;

enum { TM_WHOLE_SPLIT = -1 };
void     tm_stored_add(tm_stored_places *places, tm_stored_place place);
uint64_t tm_stored_file(const char *path); /* by what it is, not by its name; 0: it is not there */

typedef struct {
    tm_source_traits traits;
    /* Checks the options, fills source->facts and source->state; on failure leaves nothing behind. */
    tm_status (*open)(tm_source *source, tm_error *err);
    void (*close)(tm_source *source);                                             /* optional */
    int (*fields)(const tm_source_options *options, tm_field out[TM_MAX_FIELDS]); /* optional: tokens and targets */
    tm_status (*vocabulary)(const tm_source_options *options, int64_t *size, tm_error *err); /* optional: not known */
    /* One of the two: tokens (T+1) that all count, or a row of its fields and its weight, see tm_source_row. */
    void (*sample)(const tm_source *source, tm_split split, int64_t index, int32_t *tokens);
    tm_status (*check)(const tm_source *source, tm_split split, int64_t index,
                       tm_error *err); /* optional, with `sample`:
                         are the files as they were? */
    tm_status (*row)(const tm_source *source, tm_split split, int64_t index, int32_t *scratch, void *const *fields,
                     int64_t *weight, tm_error *err);
    void (*keep)(const tm_source *source, tm_split split, int64_t index,
                 const float *losses); /* optional: see tm_source_keep_reference */
    tm_status (*outline)(const tm_source_options *options, tm_text *out, tm_error *err); /* optional: nothing to say */
    double (*nats)(const tm_source *source, const int32_t *tokens);                      /* optional: NAN */
    /* Of what is stored, for the certificate of the data (data/seen.h). Both optional: samples are made, not stored. */
    int64_t (*unit)(const tm_source *source, tm_split split,
                    int64_t index); /* which of the split's stored samples `index` is: each once an epoch */
    void (*places)(const tm_source *source, tm_split split, int64_t index,
                   tm_stored_places *out); /* adds where that sample lies; TM_WHOLE_SPLIT: all that the split has */
    const char *(*caption)(const tm_source *source, tm_split split, int64_t index);          /* optional: not known */
    void (*decode)(const tm_source *source, const int32_t *tokens, int64_t n, tm_text *out); /* optional: not text */
} tm_source_kind;

struct tm_source {
    const tm_source_kind *kind;
    tm_source_options     options; /* name is the kind's own; the paths are valid during open only */
    tm_field              fields[TM_MAX_FIELDS];
    int                   n_fields;
    bool                  held_out_given; /* options.validation_path named it */
    tm_source_facts       facts;
    void                 *state;
};

/* The documents of a sample that are kept apart, told one after the other. */
typedef struct {
    int32_t *targets, *positions, *first_key; /* (seq) */
    int64_t  seq, at;                         /* at: tokens so far */
    bool     cut;                             /* one begins with the last target */
} tm_documents;
/* tokens and targets (seq), and for documents that are kept apart positions and first_key; how many there are. */
int          tm_documents_fields(int64_t seq, bool separate, tm_field out[TM_MAX_FIELDS]);
tm_documents tm_documents_of(void *const *fields, int64_t seq);
/* The next document has n of the seq + 1 tokens: fills positions and first_key. */
void tm_documents_add(tm_documents *documents, int64_t n);
/* Takes the targets out of the loss that a document begins with; returns how many count. */
int64_t tm_documents_end(const tm_documents *documents);

/* -sum p ln p over counts (n); NAN if all are 0. */
double tm_unigram_entropy(const int64_t *counts, int64_t n);

#define TM_SOURCE(name, help) extern const tm_source_kind tm_source_##name;
#include "data/sources.def"
#undef TM_SOURCE

#endif
