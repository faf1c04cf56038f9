/* SPDX-License-Identifier: Apache-2.0 */
/* The portable kernels as OpenCL, computed by PoCL (machine/opencl.h), against the double references of their ops:
 * every one of src/device/gpu/source/modules.txt is launched. `build/release/tests/gpu/all opencl` also names and
 * counts those that are not portable. */
#include "gpu/launched.h"
#include "gpu/trials.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

/* Kernels with this in their names launch all that is listed of these texts, a blank before and behind each. */
typedef struct {
    const char *kernels, *texts;
} group;

static const group groups[] = {
    { "attention", " attention " },
    { "linear", " product loss " },
    { "/gpu", " columns embedding norm optimizer pointwise " },
};
enum { GROUPS = sizeof groups / sizeof groups[0] };

/* The others have instructions of one maker. */
static bool is_portable(const char *text)
{
    return strcmp(text, "attention_matrix") != 0 && strcmp(text, "matrix") != 0;
}

static bool has_text(const group *g, const char *text)
{
    char word[44];
    snprintf(word, sizeof word, " %s ", text);
    return strstr(g->texts, word) != NULL;
}

static int judge(const group *g)
{
    char path[PATH_MAX];
    launched_begin(path);
    setenv("TM_TEST_KERNEL", g->kernels, 1);
    kernels_are_right("cuda", CODE_OPENCL);
    return getenv("TM_TEST_OP") ? 0 : launched_all("cuda", g->texts, path);
}

FULL_TEST(attention_is_right)
{
    judge(&groups[0]);
}

FULL_TEST(products_are_right)
{
    judge(&groups[1]);
}

FULL_TEST(all_else_is_right)
{
    judge(&groups[2]);
}

/* Every text that is listed is in a group, or not portable: then its kernels are told and counted. */
static int others(bool tell)
{
    FILE *list = fopen(MODULE_LIST, "r");
    char  line[MODULE_LINE], text[40];
    int   n = 0;
    if (!list) fail_msg("no %s", MODULE_LIST);
    while (fgets(line, sizeof line, list)) {
        int in = 0;
        if (sscanf(line, "cuda %39s", text) != 1) continue;
        for (int i = 0; i < GROUPS; i++) in += has_text(&groups[i], text);
        if (in != is_portable(text)) fail_msg("which group has text %s?", text);
        if (in) continue;
        if (tell) printf("not portable: %s", line + strlen("cuda "));
        n++;
    }
    fclose(list);
    return n;
}

TEST(every_portable_text_is_judged)
{
    assert_true(others(false) > 0);
}

static int tell(int argc, char **argv)
{
    int right = 0, left = others(true);
    (void)argc, (void)argv;
    for (int i = 0; i < GROUPS; i++) right += judge(&groups[i]);
    printf("OpenCL: %d of %d kernels are right, %d are not portable\n", right, right + left, left);
    return 0;
}

TM_TEST_ROLE("opencl", tell)
