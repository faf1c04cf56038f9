/* SPDX-License-Identifier: Apache-2.0 */
/* token/read_folder.h - a model's folder that has no tokenizer file of one piece; private to this room. */
#ifndef TM_TOKEN_READ_FOLDER_H
#define TM_TOKEN_READ_FOLDER_H

#include "token/internal.h"

/* Which of them a folder has: vocab.json with merges.txt, or spiece.model. */
bool tm_folder_has_parts(const char *folder);
/* Reads them into r->tokenizer by the rules that transformers 5 gives the folder's tokenizer_class: CLIPTokenizer and
 * T5Tokenizer. r->name is the folder. TM_UNSUPPORTED: another class, or none. */
TM_MUST_USE tm_status tm_read_folder(tm_reading *r);

#endif
