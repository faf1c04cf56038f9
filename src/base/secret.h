/* SPDX-License-Identifier: Apache-2.0 */
/* base/secret.h - keeps passwords and keys out of everything that is recorded. */
#ifndef TM_BASE_SECRET_H
#define TM_BASE_SECRET_H

#include "base/text.h"

#include <stdbool.h>

/* Does the name of an environment variable say that its value is secret: TOKEN, SECRET, KEY, PASS, CREDENTIAL, PWD,
 * AUTH or DSN in it, letter case ignored? The folder (PWD), authors and files of X11 and ssh are none. */
bool tm_secret_name(const char *name);

/* Replaces every occurrence of the value of such an environment variable by "***": after ${VAR} substitution a secret
 * can stand anywhere. Values shorter than 6 bytes are left alone: "1" or "true" would tear the text to pieces.
 * Passwords in URLs become
 * "***", too. */
void tm_secret_mask(tm_text *text);

/* Appends a value that came from outside (a variable, an argument) with all of that masked, and what looks like a key:
 * words that begin like those of well-known services, and long ones that are as mixed of letters and digits as random
 * ones. */
void tm_secret_value(tm_text *out, const char *value);

/* A command line in one string, arguments quoted for the shell where needed. Values of options that are named like a
 * secret
 * ("--hub.token X", "api_key=X"; not "tokenizer", not "tokens") and values of secret environment variables become
 * "***". `arguments`: `bytes` bytes, each argument ending in NUL, as in /proc/self/cmdline. */
void tm_secret_command_line(tm_text *out, const char *arguments, size_t bytes);

#endif
