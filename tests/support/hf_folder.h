/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/hf_folder.h - Hugging Face folders of tiny models whose weights follow from the names of their tensors:
 * element i of a tensor NAME is 0.25 unit(NAME, i), of a norm's weight 1 + 0.25 unit (support/golden.h). */
#ifndef TM_TESTS_HF_FOLDER_H
#define TM_TESTS_HF_FOLDER_H

#include "hf/folder.h"

typedef struct {
    tm_dtype    dtype;     /* of the file; TM_F64 (0): TM_F32 */
    bool        ours;      /* i counts in our layout (out, in), not in the file's */
    int         shards;    /* > 1: with an index */
    const char *leave_out; /* a tensor that is not written */
    const char *extra;     /* one that is, beside the model's */
    bool        same_head; /* lm_head.weight has the values of wte.weight */
    const char *narrow;    /* one whose last axis is written one shorter */
} test_hf_options;

/* Writes config.json and the weights into the folder `path`, which is there. */
void test_hf_write(const char *path, const char *config_json, const test_hf_options *options);
/* The value of element i of a tensor. */
double test_hf_value(const char *name, int64_t i);

/* A folder opened on a device, its weights loaded, for sequences of `seq` tokens; TM_OK, or what went wrong. */
typedef struct {
    tm_config        *config;
    tm_hf_description description;
    tm_model_shape    shape;
    tm_safetensors   *weights;
    tm_device        *device;
    tm_trainer       *trainer;
    tm_hf_report      report;
} test_hf_model;
tm_status test_hf_open(const char *path, const char *device, const tm_precision *precision, int64_t seq,
                       test_hf_model *out, tm_error *err);
void      test_hf_close(test_hf_model *model);

#endif
