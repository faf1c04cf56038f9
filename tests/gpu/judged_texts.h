/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/judged.txt: which texts of kernels (src/device/gpu/source) the full sweep of test_gpu_kernels.c has judged.
 * A line "TEXT HASH" for each; the hash is of all that is compiled: the dialect, the text and its parts. */
#ifndef TESTS_GPU_JUDGED_TEXTS_H
#define TESTS_GPU_JUDGED_TEXTS_H

#include "base/text.h"
#include "device/device.h"
#include "device/gpu/gpu.h"

#define JUDGED_TEXTS "tests/gpu/judged.txt"

uint64_t judged_texts_hash(const tm_gpu_text *text, const char *const *dialect);
/* What judges a text that no example of an op reaches; NULL: examples do. */
const char *judged_texts_elsewhere(const char *name);
/* Has the list, the content of such a file, another hash of a text, or none? The dialect has no line of its own. */
bool judged_texts_changed(const char *list, const tm_gpu_text *text);

/* Of a part of the sweep, which begins; and which has found all kernels right: a note of their texts is left in files
 * that begin with `notes`. */
void judged_texts_forget(const char *notes, const char *part);
void judged_texts_note(const char *notes, const char *part, const tm_device *device);
/* Once all parts have judged the texts as they are: why `list`, a file, is not what they have judged, or NULL. With
 * TM_RECORD=1 it is written. `why` has room for it. */
enum { JUDGED_WHY = 300 };
const char *judged_texts_differ(const char *notes, const char *list, char why[JUDGED_WHY]);

#endif
