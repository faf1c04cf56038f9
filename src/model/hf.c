/* SPDX-License-Identifier: Apache-2.0 */
#include "model/hf.h"

#include "base/text.h"
#include "model/family.h"

#include <stdlib.h>
#include <string.h>

static const tm_family *const families[] = {
#define TM_FAMILY(id, name, what) &tm_family_##name,
#include "model/families.def"
#undef TM_FAMILY
};
enum { FAMILIES = sizeof families / sizeof families[0], MAX_FORMS = 64 };

const tm_hf_form *const *tm_hf_forms(size_t *n)
{
    static const tm_hf_form *all[MAX_FORMS]; /* always the same values: written twice does no harm */
    size_t                   count = 0;
    for (int f = 0; f < FAMILIES; f++)
        for (const tm_hf_form *const *form = families[f]->hf; form && *form; form++) {
            TM_ASSERT(count < MAX_FORMS);
            all[count++] = *form;
        }
    *n = count;
    return all;
}

const tm_hf_form *tm_hf_form_named(const char *model_type)
{
    size_t                   n;
    const tm_hf_form *const *forms = tm_hf_forms(&n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(forms[i]->model_type, model_type) == 0) return forms[i];
    return NULL;
}

/* --- names -------------------------------------------------------------------------------------------------------- */

static const char placeholders[] = "le";

/* The number of the placeholder at p ("{l}"), or -1. */
static int placeholder(const char *p)
{
    if (p[0] != '{' || !p[1] || p[2] != '}') return -1;
    const char *which = strchr(placeholders, p[1]);
    return which ? (int)(which - placeholders) : -1;
}

bool tm_hf_matches(const char *pattern, const char *name, int64_t numbers[2])
{
    while (*pattern) {
        int which = placeholder(pattern);
        if (which < 0) {
            if (*pattern++ != *name++) return false;
            continue;
        }
        size_t digits = strspn(name, "0123456789");
        if (digits == 0 || digits > 9 || (digits > 1 && *name == '0')) return false;
        numbers[which] = strtoll(name, NULL, 10);
        name += digits;
        pattern += 3;
    }
    return *name == '\0';
}

void tm_hf_name(const char *pattern, const int64_t numbers[2], tm_text *out)
{
    while (*pattern) {
        int which = placeholder(pattern);
        if (which < 0) {
            tm_text_add_n(out, pattern++, 1);
            continue;
        }
        tm_text_printf(out, "%lld", (long long)numbers[which]);
        pattern += 3;
    }
}

const tm_hf_tensor *tm_hf_row_of(const tm_hf_form *form, const char *ours, int64_t numbers[2])
{
    const tm_hf_tensor *row = form->tensors;
    while (row->ours && !tm_hf_matches(row->ours, ours, numbers)) row++;
    return row->ours ? row : NULL;
}

/* `prefixed`: as files of ours have it. */
static bool name_of(const tm_model_shape *shape, const char *ours, bool prefixed, tm_text *out)
{
    const tm_family *family = tm_family_of(shape);
    for (const tm_hf_form *const *form = family->hf; form && *form; form++) {
        int64_t             numbers[2] = { -1, -1 };
        const tm_hf_tensor *row = tm_hf_row_of(*form, ours, numbers);
        if (!row) continue;
        bool plain = !(*form)->prefix || ((*form)->plain && strcmp((*form)->plain, row->theirs) == 0);
        if (prefixed && !plain) tm_text_add(out, (*form)->prefix);
        tm_hf_name(row->theirs, numbers, out);
        return true;
    }
    return false;
}

bool tm_hf_name_of(const tm_model_shape *shape, const char *ours, tm_text *out)
{
    return name_of(shape, ours, false, out);
}

bool tm_hf_full_name_of(const tm_model_shape *shape, const char *ours, tm_text *out)
{
    return name_of(shape, ours, true, out);
}
