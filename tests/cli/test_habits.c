/* SPDX-License-Identifier: Apache-2.0 */
/* Words of report scripts and names of the catalogue, and what becomes of them, to the letter:
 * tests/golden/whole-habits.txt. */
#include "cli/habits.h"
#include "cli/cli.h"
#include "model/presets.h"
#include "support/whole.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

static const char *shown(const char *text)
{
    return text ? text : "-";
}

static void names(const tm_config *config, tm_arena *arena, tm_text *out)
{
    static const char *const models[] = { "Llama-3.1-8B",
                                          "llama3.1_8B",
                                          "LLAMA 3.1 8b",
                                          "llama-3.1-8",
                                          "gpt2",
                                          "GPT-2",
                                          "gpt2-124M",
                                          "FLUX",
                                          "flux.1_dev",
                                          "flux.1",
                                          "",
                                          "-",
                                          "DeepSeek-V2-Lite",
                                          "deepseek_v2_lite_16b",
                                          "Qwen3-30B-A3B",
                                          "tiny_llama",
                                          "tinyllama",
                                          "tiny.llama" };
    static const char *const tags[] = { "pyt_train_llama-3.1-8b",
                                        "primus_pyt_train_llama-3.1-8b",
                                        "pyt_megatron_lm_train_llama-3.1-8b",
                                        "primus_pyt_megatron_lm_train_llama-3.1-8b",
                                        "jax_maxtext_train_llama-3.1-8b",
                                        "pyt_huggingface_gpt2",
                                        "pyt_train_llama-3.1-8b_overlay",
                                        "pyt_train_llama-3.1-8b_fp8",
                                        "pyt_train_llama-3.1-8b_fp8_overlay",
                                        "pyt_train_llama-3.1-8b_overlay_fp8",
                                        "pyt_train_overlay",
                                        "pyt_train__overlay",
                                        "pyt_train_",
                                        "train_llama-3.1-8b",
                                        "Pyt_train_llama-3.1-8b",
                                        "llama-3.1-8b" };
    static const char *const selecting[] = {
        "pyt", "jax", "primus", "training", "pretrain", "pretrai",        "llama3.1",      "LLAMA-3.1",
        "gpt", "",    "-",      "qwen3",    "8b",       "pyt_train_gpt2", "pyt_train_none"
    };
    size_t           n;
    const tm_preset *presets = tm_model_presets(&n);
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        tm_text_printf(out, "model '%s': %s\n", models[i], shown(tm_habit_model(config, models[i])));
    for (size_t i = 0; i < sizeof tags / sizeof tags[0]; i++)
        tm_text_printf(out, "tag '%s': %s\n", tags[i], shown(tm_habit_preset(config, tags[i])));
    for (size_t i = 0; i < n; i++) {
        const char *tag = tm_habit_tag(arena, presets[i].name);
        assert_string_equal(shown(tm_habit_preset(config, tag)), presets[i].name);
        if (i % 3 == 0 || strlen(presets[i].name) < 12) tm_text_printf(out, "%s: %s\n", presets[i].name, tag);
    }
    static const char *const made[] = { "a1b2", "Abc_12", "x-1", "1a", "a.1", "ab12c3", "a_b1", "" };
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++)
        tm_text_printf(out, "made '%s': %s\n", made[i], tm_habit_tag(arena, made[i]));
    for (size_t i = 0; i < sizeof selecting / sizeof selecting[0]; i++) {
        int count = 0;
        for (size_t k = 0; k < n; k++) count += tm_habit_selects(config, selecting[i], presets[k].name);
        tm_text_printf(out, "'%s' selects %s", selecting[i], count == (int)n ? "all" : count ? "some:" : "none");
        for (size_t k = 0; k < n && count < (int)n; k++)
            if (tm_habit_selects(config, selecting[i], presets[k].name)) tm_text_printf(out, " %s", presets[k].name);
        tm_text_add(out, "\n");
    }
}

static void translate(tm_config *config, tm_arena *arena, const char *words, tm_text *out)
{
    char     copy[400], *list[60], **argv = list, *rest = copy;
    int      argc = 0;
    tm_error err = { 0 };
    snprintf(copy, sizeof copy, "run %s", words);
    for (char *word; (word = strsep(&rest, " "));) argv[argc++] = word;
    argv[argc] = NULL;
    tm_text_printf(out, "> %s\n", words);
    tm_status st = tm_habits_translate(config, arena, &argc, &argv, &err);
    if (st != TM_OK) {
        tm_text_printf(out, "  %s: %s\n", tm_status_text(st), err.text);
        return;
    }
    tm_text_printf(out, " %s", argv == list ? " as it was:" : "");
    for (int i = 0; i < argc; i++) tm_text_printf(out, " %s", argv[i]);
    tm_text_add(out, "\n");
}

static void words_of_others(void **state)
{
    (void)state;
    tm_text    out = { 0 };
    tm_arena  *arena = tm_arena_create();
    tm_config *config = tm_cli_config();
    names(config, arena, &out);
    static const char *const lines[] = {
        "",
        "tiny-llama --training.steps 3",
        "-x 3",
        "-tm 3",
        "- 3",
        "--live-output",
        "--live-output tiny-llama -o x",
        "tiny-llama --keep-model-dirs",
        "tiny-llama --keep-model-folders",
        "--tags pyt_train_llama-3.1-9b",
        "--tags primus_pyt_trian_mixtral-8x7b",
        "-m Llama-3.1-8B",
        "-m gpt2 -s 128 -n 2 -b 3 -l 4 --out x",
        "-m gpt2 -p BF16",
        "-m gpt2 -p bf16 -t pretrain",
        "-m gpt2 -p FP32 -t finetune_fw",
        "-m gpt2 -p fp8",
        "-m gpt2 -p BF16 -t finetune_fw",
        "-t finetune_lora -m Llama-2-70B -p BF16",
        "-t finetune_qlora -m Llama-2-70B",
        "-t HF_finetune_lora -m Llama-2-70B -p BF16",
        "-t HF_pretrain -m gpt2 -p BF16",
        "-t pretrain",
        "-t other -m gpt2",
        "-m none",
        "-m Llama-3.1-71B",
        "-m Llama-3.1-8BB",
        "-p FP16 -m gpt2",
        "-f FSDP -m gpt2",
        "-f ddp -m gpt2",
        "-t",
        "-t -m gpt2",
        "-s --x",
        "--tags",
        "--tags --x",
        "--tags pyt_train_gpt2",
        "--tags pyt_train_gpt2 pyt_train_gpt2 --x y",
        "--tags pyt_train_gpt2,pyt_train_gpt2 tail",
        "--tags pyt_train_gpt2,pyt_train_flux",
        "--tags pyt_train_gpt2 pyt_train_flux",
        "--tags pyt_train_gpt2_fp8",
        "--tags pyt_train_gpt2_fp8_overlay",
        "--tags pyt_train_gpt2:batch_size=3:seq_len=5",
        "--tags pyt_train_gpt2:batch_size=3=4",
        "--tags pyt_train_gpt2:",
        "--tags pyt_train_gpt2:a",
        "--tags pyt_train_gpt2:a=1:b",
        "--tags nobody:x=1",
        "--tags pyt_train_gpt2 --tags pyt_train_gpt2:a=2 -b 5",
        "-m gpt2 --tags pyt_train_flux",
        "--tags pyt_train_flux -m gpt2",
        "-p BF16 --tags pyt_train_gpt2 -t finetune_fw",
        /* how the catalogue trains */
        "-t pretrain -m Llama-3.1-8B",
        "-t pretrain -m Llama-3.1-8B -p FP8 -b 2 -n 8",
        "-m Llama-3.1-70B -p FP32",
        "-t pretrain -m Llama-3.3-70B",
        "-t finetune_fw -m Llama-3.3-70B -p BF16 -s 4096",
        "-t HF_finetune_lora -m Llama-3.1-70B -p BF16",
        "-t HF_finetune_lora -m Llama-3.3-70B -p BF16 -s 3072",
        "--tags pyt_train_llama-2-70b --keep-model-dir --live-output --timeout 28800",
        "--tags pyt_train_llama-3.1-8b -t finetune_lora",
        "--tags primus_pyt_train_deepseek-v2",
        "--tags pyt_train_deepseek-v2",
        "--tags primus_pyt_train_llama-3.1-8b --platform 8xMI355X",
        "--tags primus_pyt_train_llama-3.1-8b --platform=8xMI325X",
        "--tags primus_pyt_train_llama-3.1-8b --platform H100",
        "--tags primus_pyt_train_llama-3.1-8b_fp8",
        "--tags primus_pyt_train_llama-3.1-70b -p FP8 --platform 8xMI355X",
        "--tags pyt_megatron_lm_train_llama-3.1-8b",
        "--tags pyt_megatron_lm_train_llama-3.1-8b -p FP8 --platform 8xMI355X",
        "--tags primus_pyt_megatron_lm_train_llama-2-7b --platform 8xMI300X",
        "--tags primus_pyt_megatron_lm_train_llama-2-70b",
        "--tags pyt_megatron_lm_train_llama-3.1-70b",
        "--tags pyt_megatron_lm_train_llama-3.3-70b",
        "--tags pyt_megatron_lm_train_llama-3.1-70b-proxy",
        "--tags primus_pyt_megatron_lm_train_llama-3.1-70b-proxy -b 2",
        "--tags pyt_megatron_lm_train_llama-3.1-8b-proxy",
        "--tags pyt_megatron_lm_train_mixtral-8x7b",
        "--tags pyt_megatron_lm_train_deepseek-v2-lite-16b",
        "-f True -m gpt2",
        /* what starts them */
        "torchrun --nnodes=1 --node_rank=0 --nproc_per_node=8 --master_addr=0.0.0.0 --master_port=12234 "
        "./train_fsdp.py "
        "a.json llama --batch_size 3 --enable_fp8 True",
        "torchrun --nproc-per-node 4 --standalone -m torchtitan.train --job.config_file a.toml --training.steps 2",
        "torchrun --nproc_per_node gpu --nnodes 2 train_fsdp.py a.json",
        "torchrun --max_restarts 3 train_fsdp.py",
        "torchrun --nproc_per_node",
        "torchrun --unknown 3 train_fsdp.py",
        "torchrun --standalone other",
        "bash run_llama_train.sh --x 1",
        "./run_llama_train.sh",
        "python3 launcher.py",
        "python3 launcher.py --config-name=single_run train_args.train_batch_size=4 +train_args.learning_rate=1e-6",
        "python FluxBenchmark/launcher.py -cn flux_benchmark --config-path conf --output_dir x --dry_run",
        "python launcher.py --config_file config/mini.yaml --no_resume",
        "python launcher.py --param_config_file=config/mini.yaml --accelerate_config_template x",
        "python launcher.py --multirun train_args.train_batch_size=1,2",
        "launcher.py --cfg job",
        "make download_assets",
        "make launch_docker",
        "make",
        "accelerate launch train.py",
        "bash examples/diffusion/run_flux_mlperf.sh",
        "./pytorch_benchmark_report.sh -t posttrain -m Flux -p BF16 -s 256 -n 8",
        "-t posttrain -m Flux --platform 8xMI355X",
        "-t posttrain -m Llama-3.1-8B",
        "--tags pyt_train_flux",
        "bash other.sh",
        "python3 other.py --x",
        "bash",
        "./pytorch_benchmark_report.sh -t pretrain -m Llama-3.1-70B -p BF16 -s 8192 -n 8",
        "python3 tools/run_models.py --tags pyt_train_gpt2 --keep-model-dir",
        "madengine run --tags pyt_train_gpt2 --keep-model-dir --live-output",
        "madengine report",
        "bash ./examples/run_pretrain.sh --training.local_batch_size 6",
        "bash examples/run_slurm_pretrain.sh --training.local_batch_size 6",
        "primus-cli direct -- train pretrain --config exp.yaml --lr 1",
        "bash runner/primus-cli direct --log_file x.log --numa -- train pretrain --config=exp.yaml",
        "./primus-cli --debug --dry-run direct -- train posttrain --config exp.yaml",
        "./primus-cli direct train posttrain --config exp.yaml",
        "primus-cli direct --single -- train pretrain --config exp.yaml",
        "primus-cli container --image a:b --volume /data:/data --memory 128G --gpus 4 -- train pretrain --config "
        "exp.yaml",
        "primus-cli slurm srun -N 4 -p gpu --exclusive -- train pretrain --config exp.yaml",
        "primus-cli slurm srun -N 4 -- train pretrain --config exp.yaml --platform 8xMI355X",
        "primus-cli slurm -N 2 --gpus-per-node=4 -- container -- train pretrain --config exp.yaml",
        "primus-cli slurm sbatch -N 1 -t 8:00:00 -o train.log -- train pretrain --config exp.yaml",
        "primus-cli direct --patch a.sh -- train pretrain --config exp.yaml",
        "primus-cli direct --env BAD -- train pretrain --config exp.yaml",
        "primus-cli direct --nothing -- train pretrain --config exp.yaml",
        "primus-cli direct -- benchmark gemm --M 4",
        "primus-cli direct -- preflight --host",
        "primus-cli direct -- train pretrain --config",
        "primus-cli direct --",
        "primus-cli",
        "primus train pretrain --config exp.yaml --training.steps 20",
        "primus projection memory --config exp.yaml",
        "primus projection performance --config exp.yaml",
        "tune run --nproc_per_node 8 full_finetune_distributed --config a.yaml batch_size=4",
        "tune run lora_finetune_single_device --config llama a=b --config c",
        "tune ls",
    };
    static const char *const variables[] = { "CONFIG_FILE", "GPUS_PER_NODE", "EXP" };
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) unsetenv(variables[i]);
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) translate(config, arena, lines[i], &out);
    translate(config, arena, "primus-cli direct --env GPUS_PER_NODE=4 -- train pretrain --config exp.yaml", &out);
    assert_string_equal(getenv("GPUS_PER_NODE"), "4");
    unsetenv("GPUS_PER_NODE");
    setenv("CONFIG_FILE", "job.toml", 1);
    translate(config, arena, "bash run_llama_train.sh --x 1", &out);
    translate(config, arena, "./run_train.sh", &out);
    unsetenv("CONFIG_FILE");
    tm_text_printf(&out, "notes:\n%s", tm_config_notes(config));
    tm_config_destroy(config);
    tm_arena_destroy(arena);
    whole_is("tests/golden/whole-habits.txt", &out);
}

/* Whatever the script is asked for, one note says which recipe a run takes, or that there is none. */
static void each_run_says_its_recipe(void **state)
{
    static const char *const tasks[] = { "pretrain",      "HF_pretrain",    "finetune_fw",
                                         "finetune_lora", "finetune_qlora", "HF_finetune_lora" };
    static const char *const models[] = { "Llama-3.1-8B", "Llama-3.1-70B", "Llama-3.3-70B", "Llama-2-70B",
                                          "Qwen3-8B",     "Mixtral-8x7B",  "Flux" };
    static const char *const precisions[] = { "", " -p BF16", " -p FP8", " -p FP32" };
    int                      built_in = 0, none = 0;
    (void)state;
    for (size_t t = 0; t < sizeof tasks / sizeof tasks[0]; t++)
        for (size_t m = 0; m < sizeof models / sizeof models[0]; m++)
            for (size_t p = 0; p < sizeof precisions / sizeof precisions[0]; p++) {
                char       words[160], wanted[160];
                tm_text    out = { 0 };
                tm_arena  *arena = tm_arena_create();
                tm_config *config = tm_cli_config();
                snprintf(words, sizeof words, "-t %s -m %s -s 512%s", tasks[t], models[m], precisions[p]);
                translate(config, arena, words, &out);
                const char *notes = tm_config_notes(config);
                snprintf(wanted, sizeof wanted, "%s of %s", tasks[t], tm_habit_model(config, models[m]));
                bool has = strstr(notes, ". Using the published script's settings: "),
                     lacks = strstr(notes, ": no recipe found; using ");
                if (!strstr(notes, wanted) || has == lacks) fail_msg("%s: '%s'", words, notes);
                built_in += has;
                none += lacks;
                tm_config_destroy(config);
                tm_arena_destroy(arena);
                tm_text_fini(&out);
            }
    assert_true(built_in > 30 && none > 30);
}

static const struct CMUnitTest tests[] = { cmocka_unit_test(words_of_others),
                                           cmocka_unit_test(each_run_says_its_recipe) };

TM_TESTS(tests, NULL, NULL)
