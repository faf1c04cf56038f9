/* SPDX-License-Identifier: Apache-2.0 */
/* record/look.h - what a microscope saw (base/event.h), as JSON and as a table for people. */
#ifndef TM_RECORD_LOOK_H
#define TM_RECORD_LOOK_H

#include "base/event.h"
#include "base/json.h"
#include "base/text.h"

/* Members of an object that is open: format, reference, loss, reference_loss, bound, seconds, first_divergent, worst
 * (names, or null), tensors: an array of objects with the members of tm_look_tensor. `whole`: with the histograms, each
 * as {"first": e, "counts": [...]} from the least exponent that occurs to the largest; null: no number but zeros. */
void tm_look_print_json(const tm_look *look, bool whole, tm_json *json);

/* The first tensor that diverges, and the `most` tensors of the largest errors in the order of the program; 0: all. */
void tm_look_print_table(const tm_look *look, size_t most, tm_text *out);

#endif
