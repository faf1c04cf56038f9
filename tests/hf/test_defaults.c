/* SPDX-License-Identifier: Apache-2.0 */
/* What a config.json means that lacks a member: the same as one that has what the class of transformers has there
 * (tests/hf/defaults.json). Also of null where the class tells the two apart; and members that compute nothing, as
 * public files have them (tests/hf/published.json). */
#include "hf/config.h"
#include "support/json.h"
#include "support/full_config.h"

#include <jansson.h>

#include "support/test.h"

/* A configuration of a config.json; NULL: refused. */
static tm_config *read_config(const json_t *root, tm_error *err)
{
    tm_config        *config = test_full_config();
    tm_hf_description description;
    char             *text = json_dumps(root, 0);
    tm_status         st = tm_hf_config_parse("config.json", text, strlen(text), config, &description, err);
    free(text);
    if (st == TM_OK) return config;
    tm_config_destroy(config);
    return NULL;
}

/* Fails unless both say the same of the model. */
static void same_model(const tm_config *a, const tm_config *b, const char *type, const char *without)
{
    for (size_t i = 0; i < tm_config_n_keys(a); i++) {
        const char *name = tm_config_key_at(a, i)->name;
        if (strncmp(name, "model.", 6) != 0) continue;
        const char *x = tm_config_text(a, name), *y = tm_config_text(b, name);
        bool        heads = strcmp(name, "model.n_kv_heads") == 0 || strcmp(name, "model.head_dim") == 0 ||
                     strcmp(name, "model.ffn_dim") == 0;
        if (heads && (!x || !y)) continue; /* as many as heads, dim / heads, 4 dim: what the class has without them */
        if (x && y ? strcmp(x, y) != 0 : x != y)
            fail_msg("%s without %s: %s is %s, wanted %s", type, without, name, y ? y : "null", x ? x : "null");
    }
}

/* Members that have no default here: a file of the family has them. */
static bool is_needed(const char *type, const char *member)
{
    return strcmp(member, "model_type") == 0 ||
           (strcmp(type, "deepseek_v2") == 0 && strcmp(member, "num_experts_per_tok") == 0);
}

TEST(absent_members_are_those_of_the_class)
{
    json_t     *all = test_json("tests/hf/defaults.json"), *class, *value;
    const char *type, *member;
    void       *next;
    int         tried = 0;
    json_object_foreach(all, type, class)
    {
        if (!json_is_object(class)) continue;
        tm_error   err = { 0 };
        tm_config *whole = read_config(class, &err);
        if (!whole) fail_msg("%s: %s", type, err.text);
        json_t *bare = json_deep_copy(class);
        json_object_foreach(class, member, value)
        {
            json_t *less = json_copy(class);
            if (is_needed(type, member)) {
                json_decref(less);
                continue;
            }
            json_object_del(less, member);
            tm_config *other = read_config(less, &err);
            if (!other) fail_msg("%s without %s: %s", type, member, err.text);
            same_model(whole, other, type, member);
            tm_config_destroy(other);
            json_decref(less);
            tried++;
        }
        json_object_foreach_safe(bare, next, member, value) if (!is_needed(type, member)) json_object_del(bare, member);
        tm_config *none = read_config(bare, &err);
        if (!none) fail_msg("%s with nothing: %s", type, err.text);
        same_model(whole, none, type, "everything");
        tm_config_destroy(none);
        tm_config_destroy(whole);
        json_decref(bare);
    }
    json_decref(all);
    assert_true(tried > 200);
}

/* Members that a class does not have, and ours takes: of files' own code, or of classes before. What they mean where
 * they are absent is said by the class, which computes so. */
static const char foreign[] = "|mlp_bias|moe_layer_freq|ep_size|"
                              "scoring_func|topk_method|aux_loss_alpha|seq_aux|";

/* Every row that says what a file means without a member is of one that the class has, so it was judged above. */
TEST(rows_with_a_default_are_of_the_class)
{
    json_t                  *all = test_json("tests/hf/defaults.json");
    size_t                   n;
    const tm_hf_form *const *forms = tm_hf_forms(&n);
    int                      judged = 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *class = json_object_get(all, forms[i]->model_type);
        if (forms[i]->diffusers) continue; /* tests/hf/test_flux.c */
        if (!class) fail_msg("tests/hf/defaults.json lacks the class of %s", forms[i]->model_type);
        for (const tm_hf_key *row = forms[i]->keys; row->key; row++) {
            bool has = false;
            if (!row->absent || !*row->absent) continue;
            for (const char *name = row->key; name; name = strchr(name, '|') ? strchr(name, '|') + 1 : NULL) {
                char top[80], listed[90];
                snprintf(top, sizeof top, "%.*s", (int)strcspn(name, ".|"), name);
                snprintf(listed, sizeof listed, "|%s|", top);
                has |= json_object_get(class, top) || strstr(foreign, listed);
            }
            if (!has) fail_msg("%s: what is '%s' where a file lacks it?", forms[i]->model_type, row->key);
            judged++;
        }
    }
    json_decref(all);
    assert_true(judged > 150);
}

/* Public files are read as they are, but for those that say what is not supported; a member that nobody knows is
 * refused by name in each. */
TEST(members_of_public_files_are_known)
{
    json_t     *all = test_json("tests/hf/published.json"), *entry;
    const char *name;
    int         read = 0, seen = 0;
    json_object_foreach(all, name, entry)
    {
        json_t *file = json_object_get(entry, "config");
        if (!file) continue;
        tm_error    err = { 0 };
        tm_config  *config = read_config(file, &err);
        const char *reason = json_string_value(json_object_get(entry, "refused"));
        seen += json_is_string(json_object_get(entry, "seen")) && !reason; /* none of these is refused */
        if (reason) {
            if (config || !strstr(err.text, reason)) fail_msg("%s: '%s'", name, err.text);
            if (json_object_del(file, "quantization_config") != 0) continue;
            err = (tm_error){ 0 };
            config = read_config(file, &err); /* the same model in a format that is loaded */
        }
        if (!config) fail_msg("%s: %s", name, err.text);
        tm_config_destroy(config);
        json_object_set_new(file, "attention_sharpening", json_real(0.5));
        if (read_config(file, &err) || !strstr(err.text, "'attention_sharpening' (0.5) is not known"))
            fail_msg("%s: '%s'", name, err.text);
        read++;
    }
    json_decref(all);
    assert_true(seen >= 116 && read > seen);
}
