/* SPDX-License-Identifier: Apache-2.0 */
/* cli/tokenizer_train.h - `trainmark tokenizer train` (private to cli/). */
#ifndef TM_CLI_TOKENIZER_TRAIN_H
#define TM_CLI_TOKENIZER_TRAIN_H

#include "base/status.h"

/* argv[0] is "train". */
TM_MUST_USE tm_status tm_cli_tokenizer_train(int argc, char **argv, tm_error *err);

#endif
