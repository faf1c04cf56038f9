/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/golden.h - the tiny models of the golden numbers: deterministic weights and tokens by name and index.
 */
#ifndef TM_TESTS_GOLDEN_H
#define TM_TESTS_GOLDEN_H

#include "device/device.h"
#include "train/trainer/trainer.h"

tm_step_options golden_llama_options(const tm_precision *precision);
tm_step_options golden_gpt2_options(const tm_precision *precision);
tm_step_options golden_qwen3_options(const tm_precision *precision);
tm_step_options golden_flux_options(const tm_precision *precision);
/* Multiple of 2^-15 in [-1, 1). */
double golden_unit(const char *name, uint32_t i);
/* T + 1 tokens below V. */
void golden_tokens(int32_t *tokens, int n, int vocab);
/* The public name of a piece: "layers.0.attention.wq.weight" -> "model.layers.0.self_attn.q_proj.weight"; others as is.
 */
const char *golden_public_name(const char *piece, char out[160]);
/* Sets every weight: matrices and biases 0.25 unit, norm weights 1 + 0.25 unit. */
void golden_fill(tm_trainer *trainer);
/* What golden.txt says of a model; a name that it lacks ends the test. */
typedef struct {
    int64_t parameters;
    double  loss, norm;
    struct {
        char   name[96];
        double norm; /* of the gradient */
    } tensor[96];
    int n;
} golden_numbers;
golden_numbers golden_read(const char *model);
/* The same of another file of that form; `losses` (n): the numbers of the model's line of that name, NULL: of none. */
golden_numbers golden_read_from(const char *path, const char *model, double *losses, int n);
/* The numbers (n) of a model's line that begins with the word. */
void golden_list(const char *path, const char *model, const char *word, double *values, int n);
/* Fails unless the relative error is small. */
void golden_close(const char *what, double value, double wanted, double relative);
/* Every tensor of the numbers is there, nothing else is, and its gradient has its norm. */
void   golden_check_gradients(tm_trainer *trainer, const golden_numbers *wanted, double relative);
double golden_get(const tm_trainer *trainer, tm_tensor_id id, int64_t i);
void   golden_set(tm_trainer *trainer, tm_tensor_id id, int64_t i, double value);

#endif
