/* SPDX-License-Identifier: Apache-2.0 */
/* config/shell.c: what is a value and what is not, against what a shell makes of the same lines (written beside them).
 */
#include "config/shell.h"
#include "config/yaml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

static char *const environment[] = { (char *)"HOME=/root", (char *)"EMPTY=", NULL };

TEST(values)
{
    static const struct {
        const char *text, *name, *value;
    } rows[] = {
        { "export A=1", "A", "1" },
        { "A=1\n", "A", "1" },
        { "#!/bin/bash\n\n  export   LR=4e-4  # a remark\r\n", "LR", "4e-4" },
        { "export A=1;", "A", "1" },
        { "export A=full && export B=block && export C=21", "B", "block" },
        { "export A=1;export B=2 ; C=3", "C", "3" },
        { "export A=1\nexport A=2", "A", "2" },
        { "export A=", "A", "" },
        { "export A=\"8e-4\"", "A", "8e-4" },
        { "export A='a b;c && $HOME # x'", "A", "a b;c && $HOME # x" },
        { "export A=\"a b;c\"", "A", "a b;c" },
        { "export A=a\"b\"'c'd", "A", "abcd" },
        { "export A=\"it's\"", "A", "it's" },
        { "export A=x#y", "A", "x#y" },
        { "export A=$HOME/x", "A", "/root/x" },
        { "export A=\"${HOME}y\"", "A", "/rooty" },
        { "export A=${NONE:-/data/x}", "A", "/data/x" },
        { "export A=\"${EMPTY:-b}\"", "A", "b" },
        { "export A=${HOME:-b}", "A", "/root" },
        { "export B=7\nexport A=${B}$B", "A", "77" },
        { "export HOME=here\nexport A=$HOME", "A", "here" },
        { "export A=$EMPTY", "A", "" },
        { "export A=$(basename $(readlink -f ${BASH_SOURCE[0]}) | sed 's/x//' )", "A", TM_SHELL_COMPUTED },
        { "export A=$(( (${NEXP:-1} * B) ))", "A", TM_SHELL_COMPUTED },
        { "export A=$(x)\nexport B=1$A", "B", TM_SHELL_COMPUTED },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tm_arena      *arena = tm_arena_create();
        const tm_yaml *root;
        tm_error       err = { 0 };
        if (tm_shell_parse(arena, rows[i].text, strlen(rows[i].text), "f.sh", environment, &root, &err) != TM_OK)
            fail_msg("%s: %s", rows[i].text, err.text);
        assert_int_equal(root->kind, TM_YAML_MAP);
        const tm_yaml *value = tm_yaml_get(root, rows[i].name);
        if (!value || strcmp(value->text, rows[i].value) != 0)
            fail_msg("%s: '%s'", rows[i].text, value ? value->text : "nothing");
        tm_arena_destroy(arena);
    }
}

TEST(what_is_no_value)
{
    static const struct {
        const char *text, *place, *says;
    } rows[] = {
        { "export A=1\nif [ $A ]; then\n", "f.sh:2: ", "'if [ $A ]; then' is no export NAME=VALUE" },
        { "\n\necho hi", "f.sh:3: ", "'echo hi' is no export" },
        { "source other.sh", "f.sh:1: ", "is no export" },
        { "unset A", "f.sh:1: ", "is no export" },
        { "export A", "f.sh:1: ", "is no export" },
        { "export 1A=2", "f.sh:1: ", "is no export" },
        { "export A=b c", "f.sh:1: ", "is more than export" },
        { "export A=1 && rm x", "f.sh:1: ", "'rm x' is no export" },
        { "export A=1 & B=2", "f.sh:1: ", "is more than export" },
        { "A=1 | cat", "f.sh:1: ", "is more than export" },
        { "A=1|cat", "f.sh:1: ", "is more than a value" },
        { "A=1>x", "f.sh:1: ", "is more than a value" },
        { "A=`id`", "f.sh:1: ", "is more than a value" },
        { "A=a\\ b", "f.sh:1: ", "is more than a value" },
        { "A=\"x", "f.sh:1: ", "has no closing quote" },
        { "A=\"x\nB=2\"", "f.sh:1: ", "does not end in its line" },
        { "A=$NONE", "f.sh:1: ", "is set by nothing" },
        { "A=${NONE}", "f.sh:1: ", "is set by nothing" },
        { "A=${HOME", "f.sh:1: ", "is no plain variable" },
        { "A=${HOME%x}", "f.sh:1: ", "is no plain variable" },
        { "A=${HOME:-b", "f.sh:1: ", "is no plain variable" },
        { "A=$", "f.sh:1: ", "is no plain variable" },
        { "A=$(x", "f.sh:1: ", "has no end" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tm_arena      *arena = tm_arena_create();
        const tm_yaml *root;
        tm_error       err = { 0 };
        tm_status      st = tm_shell_parse(arena, rows[i].text, strlen(rows[i].text), "f.sh", environment, &root, &err);
        if (st != TM_FORMAT || !strstr(err.text, rows[i].place) || !strstr(err.text, rows[i].says))
            fail_msg("%s: status %d, %s", rows[i].text, st, err.text);
        assert_non_null(strstr(err.text, "nothing is executed"));
        tm_arena_destroy(arena);
    }
}

/* Whatever bytes there are, it ends, with a map or a cause. Every prefix of a file with all forms, and each of its
 * bytes replaced. */
TEST(any_bytes)
{
    static const char text[] = "export A=\"${B:-x y}\" && C='z';D=$(a (b) c)\n# r\nE=$HOME\n";
    static const char others[] = "\0$({'\"=\n;&x";
    for (size_t n = 0; n < sizeof text; n++) {
        for (size_t k = 0; k < sizeof others; k++) {
            char           bytes[sizeof text];
            tm_arena      *arena = tm_arena_create();
            const tm_yaml *root = NULL;
            tm_error       err = { 0 };
            memcpy(bytes, text, sizeof text);
            if (k < sizeof others - 1) bytes[n < sizeof text - 1 ? n : 0] = others[k];
            size_t    length = k < sizeof others - 1 ? sizeof text - 1 : n;
            tm_status st = tm_shell_parse(arena, bytes, length, "f.sh", environment, &root, &err);
            assert_true(st == TM_OK || st == TM_FORMAT);
            assert_int_equal(st == TM_FORMAT, err.text[0] != '\0');
            tm_arena_destroy(arena);
        }
    }
}
