/* SPDX-License-Identifier: Apache-2.0 */
#include "train/adapter/names.h"

#include "model/hf.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

static const char all_linear[] = "all-linear";

/* What other programs call a module that has another name here. */
static const char *const aliases[][2] = { { "output_proj", "o_proj" },
                                          { "linear_qkv", "wqkv" },
                                          { "linear_proj", "wo" },
                                          { "linear_fc1", "w13" },
                                          { "linear_fc2", "w2" } };

tm_status adapter_list_read(adapter_list *list, const char *key, const char *text, const char *place, tm_error *err)
{
    char *rest = list->text;
    list->key = key;
    list->distance = 1 << 20;
    snprintf(list->text, sizeof list->text, "%s", text ? text : "");
    for (char *name; (name = strsep(&rest, ", |"));) {
        if (!*name) continue;
        if (strcmp(name, all_linear) == 0) {
            list->all = true;
            continue;
        }
        if (list->n == TM_MAX_TARGETS)
            return tm_fail(err, TM_INVALID, "%s (%s) has more than %d names; use patterns", key, place, TM_MAX_TARGETS);
        for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++)
            if (strcmp(name, aliases[i][0]) == 0) name = strcpy(name, aliases[i][1]);
        list->name[list->n++] = name;
    }
    return TM_OK;
}

/* Without ".weight". */
static void cut_weight(tm_text *name)
{
    static const char suffix[] = ".weight";
    size_t            n = sizeof suffix - 1;
    if (name->length > n && strcmp(name->data + name->length - n, suffix) == 0) name->data[name->length -= n] = '\0';
}

bool adapter_listed(adapter_list *list, const char *module)
{
    bool any = false;
    if (!*module) return false;
    for (int i = 0; i < list->n; i++) {
        char pattern[TM_MAX_TARGETS_TEXT + 4];
        snprintf(pattern, sizeof pattern, "*.%s", list->name[i]);
        if (fnmatch(list->name[i], module, 0) == 0 || fnmatch(pattern, module, 0) == 0) any = list->used[i] = true;
        const char *last = strrchr(module, '.');
        int         distance = tm_edit_distance(list->name[i], last ? last + 1 : module);
        if (!list->used[i] && distance < list->distance) {
            list->distance = distance;
            list->nearest.length = 0;
            tm_text_add(&list->nearest, last ? last + 1 : module);
        }
    }
    return any;
}

adapter_names adapter_names_of(const tm_model_shape *shape, const char *piece)
{
    adapter_names names = { .ours = { 0 } };
    tm_text_add(&names.ours, piece);
    cut_weight(&names.ours);
    tm_text_add(&names.theirs, "");
    if (tm_hf_full_name_of(shape, piece, &names.theirs)) cut_weight(&names.theirs);
    return names;
}

void adapter_names_fini(adapter_names *names)
{
    tm_text_fini(&names->ours);
    tm_text_fini(&names->theirs);
}

bool adapter_same_name(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    if (n < m) return adapter_same_name(b, a);
    return m > 0 && strcmp(a + n - m, b) == 0 && (n == m || a[n - m - 1] == '.');
}

bool adapter_same_module(const tm_model_shape *shape, const char *a, const char *b)
{
    tm_text x = { 0 }, y = { 0 };
    bool    same = tm_hf_name_of(shape, a, &x) && tm_hf_name_of(shape, b, &y) && strcmp(x.data, y.data) == 0;
    tm_text_fini(&x);
    tm_text_fini(&y);
    return same;
}
