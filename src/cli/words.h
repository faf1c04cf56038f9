/* SPDX-License-Identifier: Apache-2.0 */
/* cli/words.h - options with values, flags, and any number of words. */
#ifndef TM_CLI_WORDS_H
#define TM_CLI_WORDS_H

#include "cli/cli.h"

/* Reads --name VALUE, --name=VALUE and flags; what is no option becomes words (room for argc of them). TM_USAGE, also
 * for fewer than `least` or more than `most` words (most < 0: any number). */
TM_MUST_USE tm_status tm_cli_words(int argc, char **argv, const char *command, const tm_cli_option *options,
                                   char **words, int *n, int least, int most, tm_error *err);
/* A whole number of at least `least`; NULL: *out stays. TM_USAGE names `option`. */
TM_MUST_USE tm_status tm_cli_whole(const char *text, const char *option, int64_t least, int64_t *out, tm_error *err);
/* A number above 0, likewise. */
TM_MUST_USE tm_status tm_cli_positive(const char *text, const char *option, double *out, tm_error *err);

#endif
