/* SPDX-License-Identifier: Apache-2.0 */
/* support/full_config.h - a configuration with the rows, presets and rules of every room; files for tests.
 */
#ifndef TM_SUPPORT_FULL_CONFIG_H
#define TM_SUPPORT_FULL_CONFIG_H

#include "config/config.h"
#include "train/run/run.h"

/* Looks at no environment. The caller destroys it. */
tm_config *test_full_config(void);
/* Applies words of a command line; fails the test where one is refused. */
void test_apply_words(tm_config *config, const char *words);
/* A preset and words of a command line become the options of a run, as `trainmark run` reads them, or are refused. */
tm_status test_read_run(tm_config *config, const char *words, tm_run_options *out, tm_error *err);
/* The same of words that must be taken; the caller destroys what the options refer to. */
tm_config *test_run_of(const char *words, tm_run_options *out);
/* Writes folder/name. Returns its path in a static buffer (one of eight in turn). */
const char *test_file_write(const char *folder, const char *name, const char *text);
/* Writes the text, packed by gzip. */
void test_file_pack(const char *path, const char *text);

#endif
