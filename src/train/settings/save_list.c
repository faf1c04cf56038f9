/* SPDX-License-Identifier: Apache-2.0 */
#include "train/settings/save_list.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

static const char key[] = "activation_checkpoint.save_ops";

/* Ops without a gradient rule are no ops of a forward pass: TM_OP_COUNT. */
static int op_named(const char *name, size_t length)
{
    for (int op = 0; op < TM_OP_COUNT; op++) {
        const tm_op *row = tm_op_get((tm_op_id)op);
        if (row->gradient && strlen(row->name) == length && strncmp(row->name, name, length) == 0) return op;
    }
    return TM_OP_COUNT;
}

static tm_status refuse(const tm_config *config, const char *word, tm_error *err)
{
    tm_text list = { 0 };
    for (int op = 0; op < TM_OP_COUNT; op++)
        if (tm_op_get((tm_op_id)op)->gradient)
            tm_text_printf(&list, "%s%s", list.length ? ", " : "", tm_op_get((tm_op_id)op)->name);
    tm_fail(err, TM_INVALID,
            "'%s' (%s): '%.*s' is not an op of the forward pass with an n of 1 to 255, as in linear:2; there are %s",
            key, tm_config_place(config, key), (int)strcspn(word, ", "), word, list.data);
    tm_text_fini(&list);
    return TM_INVALID;
}

tm_status tm_save_list_read(const tm_config *config, tm_recompute *out, tm_error *err)
{
    const char *at = tm_config_text(config, key);
    while (at && *(at += strspn(at, ", "))) {
        size_t word = strcspn(at, ", "), name = strcspn(at, ":, ");
        int    op = op_named(at, name);
        long   n = 1;
        if (name < word) {
            char *end;
            n = strtol(at + name + 1, &end, 10);
            if (end != at + word || word == name + 1) n = 0;
        }
        if (op == TM_OP_COUNT || n < 1 || n > 255) return refuse(config, at, err);
        out->save[op] = (uint8_t)n;
        if (op == TM_OP_rope) out->save[TM_OP_head_rope] = (uint8_t)n; /* what a pass makes of it */
        at += word;
    }
    return TM_OK;
}
