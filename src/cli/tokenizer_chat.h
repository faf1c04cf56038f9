/* SPDX-License-Identifier: Apache-2.0 */
/* cli/tokenizer_chat.h - `trainmark tokenizer chat` (private to the room). */
#ifndef TM_CLI_TOKENIZER_CHAT_H
#define TM_CLI_TOKENIZER_CHAT_H

#include "cli/command.h"

extern const tm_cli_command tm_tokenizer_command_chat;

#endif
