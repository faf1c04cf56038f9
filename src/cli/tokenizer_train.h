/* SPDX-License-Identifier: Apache-2.0 */
/* cli/tokenizer_train.h - `trainmark tokenizer train` (private to cli/). */
#ifndef TM_CLI_TOKENIZER_TRAIN_H
#define TM_CLI_TOKENIZER_TRAIN_H

#include "cli/command.h"

extern const tm_cli_command tm_tokenizer_command_train;

#endif
