/* SPDX-License-Identifier: Apache-2.0 */
/* tests/train/forms_fixture.h - pipelines of a model of four blocks, in all orders of work. */
#ifndef TM_TESTS_TRAIN_FORMS_FIXTURE_H
#define TM_TESTS_TRAIN_FORMS_FIXTURE_H

#include "train/pipeline/pipeline.h"

typedef struct {
    int               stages, chunks;
    tm_pipeline_order order;
    const int        *first_blocks; /* of each stage; NULL: cut evenly */
} form;

/* The embedding alone, the blocks, the head alone. */
static const int  apart_from_blocks[] = { 0, 0, 4 };
static const form forms[] = {
    { 2, 1, TM_PIPELINE_1F1B, NULL },
    { 4, 1, TM_PIPELINE_GPIPE, NULL },
    { 2, 2, TM_PIPELINE_INTERLEAVED, NULL },
    { 2, 2, TM_PIPELINE_INTERLEAVED_ZERO, NULL },
    { 2, 2, TM_PIPELINE_ZBV, NULL },
    { 2, 2, TM_PIPELINE_DUAL_V, NULL },
    { 3, 1, TM_PIPELINE_1F1B, apart_from_blocks },
};
enum { FORMS = sizeof forms / sizeof forms[0] };

#endif
