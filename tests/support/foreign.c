/* SPDX-License-Identifier: Apache-2.0 */
#include "support/foreign.h"

#include "support/test.h"

#include "base/file.h"
#include "base/log.h"
#include "support/folder.h"
#include "support/full_config.h"

int test_foreign_set_up(void **state)
{
    test_foreign *f = calloc(1, sizeof *f);
    f->config = test_full_config();
    f->folder = test_tree_make();
    tm_log_set_level(TM_LOG_ERROR);
    *state = f;
    return 0;
}

int test_foreign_tear_down(void **state)
{
    test_foreign *f = *state;
    tm_config_destroy(f->config);
    test_tree_remove(f->folder);
    free(f);
    return 0;
}

void test_foreign_renew(test_foreign *f)
{
    tm_config_destroy(f->config);
    f->config = test_full_config();
}

tm_status test_foreign_load(test_foreign *f, const char *path, bool plan, int argc, const char *const *argv)
{
    f->err = (tm_error){ 0 };
    test_foreign_renew(f);
    tm_config_allow_unbuilt(f->config, plan);
    tm_status st = tm_config_load_file(f->config, path, &f->err);
    if (st == TM_OK) st = tm_config_apply_arguments(f->config, argc, (char **)argv, &f->err);
    if (st == TM_OK) st = tm_config_finish(f->config, &f->err);
    return st;
}

void test_foreign_has(test_foreign *f, const char *key, const char *wanted)
{
    const char *text = tm_config_text(f->config, key);
    if ((text == NULL) != (wanted == NULL) || (text && strcmp(text, wanted) != 0))
        fail_msg("%s is %s, wanted %s", key, text ? text : "null", wanted ? wanted : "null");
}

const char *test_foreign_put(test_foreign *f, const char *name, const char *text)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", f->folder, name);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    if (tm_folder_make(path, &f->err) != TM_OK) fail_msg("%s", f->err.text);
    return test_file_write(f->folder, name, text);
}

void test_foreign_take(test_foreign *f, const char *path)
{
    if (test_foreign_load(f, path, false, 0, NULL) != TM_OK) fail_msg("%s", f->err.text);
}

void test_foreign_refuse(test_foreign *f, const char *path, const char *says)
{
    tm_status st = test_foreign_load(f, path, false, 0, NULL);
    if (st == TM_OK || tm_status_exit_code(st) != 4) fail_msg("status %d, wanted: %s", (int)st, says);
    if (!strstr(f->err.text, says)) fail_msg("'%s' is not in: %s", says, f->err.text);
}
