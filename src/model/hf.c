/* SPDX-License-Identifier: Apache-2.0 */
#include "model/hf.h"

#include "model/family.h"

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
