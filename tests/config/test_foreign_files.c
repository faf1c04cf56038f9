/* SPDX-License-Identifier: Apache-2.0 */
/* Where the trees of other programs lie beside the repository (../shared/data, or TRAINMARK_FOREIGN_FILES): every key
 * of their presets has a row, their examples plan. */
#include "base/file.h"
#include "config/foreign.h"
#include "config/yaml.h"
#include "model/shape.h"
#include "support/foreign.h"

#include <dirent.h>

#include "support/test.h"

static const char *outside(const char *name)
{
    static char path[1024];
    const char *given = getenv("TRAINMARK_FOREIGN_FILES");
    snprintf(path, sizeof path, "%s/%s", given ? given : "../shared/data", name);
    if (access(path, R_OK) == 0) return path;
    print_message("# %s is not there; TRAINMARK_FOREIGN_FILES names the folder of such files\n", path);
    return NULL;
}

typedef struct {
    const tm_framework *framework;
    int                 files, keys, unknown;
} census;

static void count_keys(census *c, const tm_yaml *map, const char *above, const char *file)
{
    for (const tm_yaml_item *i = map->first; i; i = i->next) {
        char path[512];
        snprintf(path, sizeof path, "%s%s%s", above, *above ? "." : "", i->key);
        if (!*above && (strcmp(i->key, "extends") == 0 || strcmp(i->key, "bases") == 0)) continue;
        if (i->value->kind == TM_YAML_MAP) {
            count_keys(c, i->value, path, file);
            continue;
        }
        c->keys++;
        if (tm_foreign_row(c->framework, path)) continue;
        c->unknown++;
        print_message("%s has no row for '%s' (%s)\n", c->framework->name, path, file);
    }
}

static void count_file(census *c, const char *path)
{
    tm_text        bytes = { 0 };
    const tm_yaml *root = NULL;
    tm_error       err = { 0 };
    tm_arena      *arena = tm_arena_create();
    if (tm_file_read(path, 1 << 20, &bytes, &err) != TM_OK ||
        tm_yaml_parse(arena, bytes.data, bytes.length, path, &root, &err) != TM_OK)
        fail_msg("%s", err.text);
    if (root) count_keys(c, root, "", path);
    c->files++;
    tm_text_fini(&bytes);
    tm_arena_destroy(arena);
}

static void count_folder(census *c, const char *folder)
{
    DIR *dir = opendir(folder);
    for (struct dirent *d; dir && (d = readdir(dir));) {
        char        path[1400];
        struct stat info;
        snprintf(path, sizeof path, "%s/%s", folder, d->d_name);
        if (d->d_name[0] == '.' || stat(path, &info) != 0) continue;
        if (S_ISDIR(info.st_mode))
            count_folder(c, path);
        else if (strstr(d->d_name, ".yaml"))
            count_file(c, path);
    }
    if (dir) closedir(dir);
}

TEST(every_key_of_their_presets_has_a_row)
{
    int models = 0;
    if (!outside("primus/primus/configs")) skip();
    for (int k = 0; k < 2; k++) {
        census c = { .framework = k ? &tm_framework_torchtitan : &tm_framework_megatron };
        char   folder[1200];
        for (int m = 0; m < 2; m++) {
            snprintf(folder, sizeof folder, "%s/%s/%s", outside("primus/primus/configs"), m ? "models" : "modules",
                     c.framework->name);
            count_folder(&c, folder);
            if (m == 0)
                count_file(&c, strcat(strcpy(folder, outside("primus/primus/configs")), "/modules/module_base.yaml"));
        }
        print_message("%s: %d keys in %d files\n", c.framework->name, c.keys, c.files);
        models += c.files;
        assert_int_equal(c.unknown, 0);
        assert_true(c.keys > (k ? 200 : 1000));
    }
    assert_true(models >= 112);
}

/* What each example plans to: in its tree, where its arguments say all, and alone, where presets of ours do; or the
 * family that it is refused by. */
static const struct {
    const char *file, *family;
    int64_t     in_tree, alone;
} examples[] = {
    /* without latent attention; 256 norm weights a block by qk_layernorm, which the preset of the tree gives */
    { "megatron/configs/MI300X/deepseek_v2_lite-BF16-pretrain.yaml", NULL, 15787873024, 15787866112 },
    /* in its tree blocks of Llama, with shared experts and DeepSeek's vocabulary */
    { "megatron/configs/MI300X/gpt_oss_20B-BF16-pretrain.yaml", NULL, 20936684352, 20914757184 },
    { "megatron/configs/MI300X/llama3.1_70B-FP8-pretrain.yaml", NULL, 70553706496, 70553706496 },
    { "megatron/configs/MI300X/llama3.1_8B-BF16-pretrain.yaml", NULL, 8030261248, 8030261248 },
    { "megatron/configs/MI300X/mamba_370M-pretrain.yaml", "Mamba", 0, 0 },
    { "megatron/configs/MI300X/mixtral_8x7B_v0.1-BF16-pretrain.yaml", NULL, 46702792704, 46702792704 },
    /* in its tree without biases, and without norms of query and key; alone as published */
    { "megatron/configs/MI300X/qwen2.5_7B-BF16-pretrain.yaml", NULL, 7615487488, 7615616512 },
    { "megatron/configs/MI300X/qwen3_8B-BF16-pretrain.yaml", NULL, 8190726144, 8190735360 },
    { "megatron/configs/MI355X/diffusion/flux_535m_pretrain.yaml", NULL, 535318336, 535318336 },
    { "megatron/configs/MI355X/llama2_70B-FP8-pretrain.yaml", NULL, 68976648192, 68976648192 },
    { "torchtitan/configs/MI300X/deepseek_v3_16b-BF16-pretrain.yaml", NULL, 15706484224, 15706484224 },
    { "torchtitan/configs/MI300X/gpt_oss_20B-BF16-pretrain.yaml", NULL, 20914757184, 20914757184 },
    { "torchtitan/configs/MI300X/llama3.1_8B-BF16-pretrain.yaml", NULL, 8030261248, 8030261248 },
    { "torchtitan/configs/MI300X/llama3.1_8B-FP8-pretrain.yaml", NULL, 8030261248, 8030261248 },
    { "torchtitan/configs/MI300X/qwen3_0.6B-pretrain.yaml", NULL, 596049920, 596049920 },
    { "torchtitan/configs/MI355X/llama3.1_70B-FP8-pretrain.yaml", NULL, 70553706496, 70553706496 },
};

static void copy_file(const char *from, const char *to)
{
    tm_text  bytes = { 0 };
    tm_error err = { 0 };
    if (tm_file_read(from, 1 << 20, &bytes, &err) != TM_OK ||
        tm_file_write(to, bytes.data, bytes.length, &err) != TM_OK)
        fail_msg("%s", err.text);
    tm_text_fini(&bytes);
}

static void has_parameters(test_foreign *f, const char *file, int64_t wanted)
{
    tm_model_shape planned;
    if (tm_model_shape_read(f->config, &planned, &f->err) != TM_OK) fail_msg("%s: %s", file, f->err.text);
    if (tm_model_parameters(&planned) != wanted)
        fail_msg("%s: %lld parameters, wanted %lld", file, (long long)tm_model_parameters(&planned), (long long)wanted);
}

TEST(their_examples_plan_or_name_their_family)
{
    test_foreign *f = *test_state;
    if (!outside("primus/examples")) skip();
    for (size_t i = 0; i < sizeof examples / sizeof examples[0]; i++) {
        char in_tree[1400], alone[1400], family[80];
        snprintf(in_tree, sizeof in_tree, "%s/%s", outside("primus/examples"), examples[i].file);
        snprintf(alone, sizeof alone, "%s/%s", f->folder, strrchr(examples[i].file, '/') + 1);
        snprintf(family, sizeof family, "family %s", examples[i].family ? examples[i].family : "");
        copy_file(in_tree, alone);
        for (int single = 0; single < 2; single++) {
            tm_status st = test_foreign_load(f, single ? alone : in_tree, true, 0, NULL);
            if ((st == TM_OK) != !examples[i].family || (st != TM_OK && !strstr(f->err.text, family)))
                fail_msg("%s: %s", examples[i].file, f->err.text);
            if (st != TM_OK) continue;
            has_parameters(f, single ? alone : in_tree, single ? examples[i].alone : examples[i].in_tree);
            test_foreign_has(f, "training.dtype", "bfloat16");
        }
    }
}

TEST(their_job_files_recipes_and_models_load)
{
    static const char *const files[] = {
        "torchtitan/llama3_llama3_8b.toml",
        "torchtitan/llama3_debug_model.toml",
        "torchtitan/deepseek_v3_deepseek_v3_16b.toml",
        "torchtitan/flux_flux_schnell_model.toml",
        "torchtune/llama2_70B_lora.yaml",
        "torchtune/llama2_7B_qlora_single_device.yaml",
        "torchtune/llama3_1_70B_full.yaml",
        "torchtune/llama3_1_8B_lora_single_device.yaml",
        "pytorch-training-benchmark/llama-3.1-8b-4k.json",
        "pytorch-training-benchmark/mistral-7b-v0.1.json",
        "pytorch-training-benchmark/llama_3_1_70b_lora_finetune_recipe.yaml",
    };
    test_foreign *f = *test_state;
    if (!outside("torchtitan") || !outside("torchtune") || !outside("pytorch-training-benchmark")) skip();
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        if (test_foreign_load(f, outside(files[i]), true, 0, NULL) != TM_OK) fail_msg("%s: %s", files[i], f->err.text);
}

TEST_FIXTURE(test_foreign_set_up, test_foreign_tear_down)
