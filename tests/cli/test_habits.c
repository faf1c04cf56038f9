/* SPDX-License-Identifier: Apache-2.0 */
/* Words of report scripts and launchers: the settings that they become, names of the catalogue, refusals. */
#include "cli/habits.h"
#include "cli/cli.h"
#include "model/presets.h"

#include <ctype.h>
#include <signal.h>

#include "support/test.h"

static const char *shown(const char *text)
{
    return text ? text : "none";
}

static void is_name(const char *asked, const char *is, const char *wanted)
{
    if (strcmp(shown(is), shown(wanted)) != 0) fail_msg("'%s': %s, wanted %s", asked, shown(is), shown(wanted));
}

/* Case, '-' and '_' make no difference to a name, nor does the size behind it where that is clear; tags are names
 * behind the beginning of a catalogue, with what is measured behind them. */
TEST(names_are_found)
{
    static const char *const models[][2] = {
        { "Llama-3.1-8B", "llama3.1_8B" },
        { "llama-3.1-8", NULL },
        { "gpt2", "gpt2-124M" },
        { "FLUX", "flux.1_dev" },
        { "deepseek_v2_lite_16b", "deepseek_v2_lite" },
        { "Qwen3-30B-A3B", "qwen3_30B-A3B" },
        { "tiny_llama", "tiny-llama" },
    };
    static const char *const tags[][2] = {
        { "pyt_train_llama-3.1-8b", "llama3.1_8B" },
        { "primus_pyt_megatron_lm_train_llama-3.1-8b", "llama3.1_8B" },
        { "pyt_huggingface_gpt2", "gpt2-124M" },
        { "pyt_train_llama-3.1-8b_fp8_overlay", "llama3.1_8B" },
        { "pyt_train_llama-3.1-8b_overlay_fp8", NULL },
        { "pyt_train_", NULL },
        { "Pyt_train_llama-3.1-8b", NULL },
    };
    size_t           n;
    const tm_preset *presets = tm_model_presets(&n);
    tm_arena        *arena = tm_arena_create();
    tm_config       *config = tm_cli_config();
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        is_name(models[i][0], tm_habit_model(config, models[i][0]), models[i][1]);
    for (size_t i = 0; i < sizeof tags / sizeof tags[0]; i++)
        is_name(tags[i][0], tm_habit_preset(config, tags[i][0]), tags[i][1]);
    for (size_t i = 0; i < n; i++) {
        char        other[96];
        const char *tag = tm_habit_tag(arena, presets[i].name);
        is_name(tag, tm_habit_preset(config, tag), presets[i].name);
        snprintf(other, sizeof other, "%s", presets[i].name);
        for (char *c = other; *c; c++) *c = *c == '_' ? '-' : *c == '-' ? '_' : (char)toupper((unsigned char)*c);
        is_name(other, tm_habit_model(config, other), presets[i].name);
    }
    tm_config_destroy(config);
    tm_arena_destroy(arena);
}

/* The words of a line, translated; `as_it_was`: nothing was. */
static tm_status translate(tm_config *config, tm_arena *arena, const char *words, tm_text *out, bool *as_it_was,
                           tm_error *err)
{
    char copy[400], *list[60], **argv = list, *rest = copy;
    int  argc = 0;
    snprintf(copy, sizeof copy, "run %s", words);
    for (char *word; (word = strsep(&rest, " "));) argv[argc++] = word;
    argv[argc] = NULL;
    tm_status st = tm_habits_translate(config, arena, &argc, &argv, err);
    *as_it_was = argv == list;
    for (int i = 0; st == TM_OK && i < argc; i++) tm_text_printf(out, "%s%s", i ? " " : "", argv[i]);
    return st;
}

/* What a line asks for: words that are not --key value, and of each key the last value. */
static void effective(const char *line, tm_text *rest, tm_text *keys)
{
    char copy[1600], *at = copy, *words[120], *key[60], *value[60];
    int  n = 0, n_keys = 0;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *word; (word = strsep(&at, " ")) && n < 120;) words[n++] = word;
    tm_text_add(rest, ""), tm_text_add(keys, "");
    for (int i = 1; i < n; i++) {
        bool pair = strncmp(words[i], "--", 2) == 0 && !strchr(words[i], '=') && strcmp(words[i], "--dry-run") != 0 &&
                    i + 1 < n && strncmp(words[i + 1], "--", 2) != 0;
        if (!pair) {
            tm_text_printf(rest, "%s%s", rest->length ? " " : "", words[i]);
            continue;
        }
        for (int k = 0; k < n_keys; k++)
            if (strcmp(key[k], words[i] + 2) == 0) key[k] = (char *)"";
        key[n_keys] = words[i] + 2, value[n_keys++] = words[++i];
    }
    for (int k = 0; k < n_keys; k++)
        if (*key[k]) tm_text_printf(keys, "%s%s=%s", keys->length ? " " : "", key[k], value[k]);
}

/* Report scripts train on random tokens for 50 steps, and say every loss; a recipe may have other steps. */
static void is_translated(const char *words, const char *rest, const char *keys, bool report)
{
    tm_arena  *arena = tm_arena_create();
    tm_config *config = tm_cli_config();
    tm_text    line = { 0 }, is_rest = { 0 }, is_keys = { 0 }, wanted = { 0 };
    tm_error   err = { 0 };
    bool       as_it_was;
    if (translate(config, arena, words, &line, &as_it_was, &err) != TM_OK) fail_msg("%s: %s", words, err.text);
    effective(line.data, &is_rest, &is_keys);
    if (report) {
        bool steps = strstr(keys, "training.steps=") != NULL;
        tm_text_printf(&wanted, "%smetrics.log_freq=1 training.mock_data=true%s", steps ? "" : "training.steps=50 ",
                       *keys ? " " : "");
    }
    tm_text_add(&wanted, keys);
    if (as_it_was || strcmp(is_rest.data, rest) != 0 || strcmp(is_keys.data, wanted.data) != 0)
        fail_msg("%s:\n%s, %s\nwanted:\n%s, %s", words, is_rest.data, is_keys.data, rest, wanted.data);
    const char *notes = tm_config_notes(config);
    if (report && !strstr(notes, " of ")) fail_msg("%s: no note of its recipe", words);
    tm_text_fini(&line), tm_text_fini(&is_rest), tm_text_fini(&is_keys), tm_text_fini(&wanted);
    tm_config_destroy(config);
    tm_arena_destroy(arena);
}

/* Words that are kept as they are, or refused with a message that begins so. */
static void ends(const char *words, tm_text *line, tm_status wanted, const char *message)
{
    tm_arena  *arena = tm_arena_create();
    tm_config *config = tm_cli_config();
    tm_error   err = { 0 };
    bool       as_it_was = false;
    tm_status  st = translate(config, arena, words, line, &as_it_was, &err);
    if (st != wanted || strncmp(err.text, message, strlen(message)) != 0 || (st == TM_OK && !as_it_was))
        fail_msg("%s: %s: %s", words, tm_status_text(st), err.text);
    tm_config_destroy(config);
    tm_arena_destroy(arena);
}

TEST(words_of_others)
{
    static const struct {
        const char *words, *rest, *keys;
        bool        report;
    } lines[] = {
        { "--live-output tiny-llama -o x", "tiny-llama -o x", "", false },
        { "-m Llama-3.1-8B", "llama3.1_8B",
          "training.local_batch_size=18 training.seq_len=8192 lr_scheduler.warmup_steps=10 "
          "activation_checkpoint.mode=full optimizer.lr=3e-4 training.dtype=bfloat16",
          true },
        { "-m gpt2 -s 128 -n 2 -b 3 -l 4 --out x", "gpt2-124M",
          "training.seq_len=128 launch.gpus_per_node=2 training.local_batch_size=3 model.n_layers=4 "
          "training.dtype=bfloat16 out=x",
          true },
        { "-m gpt2 -p fp8", "gpt2-124M", "training.dtype=bfloat16 fp8=hybrid", true },
        { "-m gpt2 -p BF16 -t finetune_fw", "gpt2-124M",
          "training.dtype=bfloat16 optimizer.lr=2e-5 activation_checkpoint.mode=full training.regime=pure", true },
        { "-t finetune_qlora -m Llama-2-70B", "llama2_70B",
          "training.local_batch_size=8 training.steps=20 training.seq_len=4096 lora.rank=16 lora.alpha=32 "
          "lora.targets=q_proj,v_proj,o_proj,gate_proj,up_proj,down_proj lora.base_format=nf4 "
          "activation_checkpoint.mode=full training.dtype=bfloat16 training.regime=pure",
          true },
        { "-t HF_finetune_lora -m Llama-2-70B -p BF16", "llama2_70B",
          "training.local_batch_size=8 training.steps=5 training.seq_len=3072 training.grad_accumulation=4 "
          "optimizer.weight_decay=1e-4 lr_scheduler.warmup_steps=0 lora.rank=8 lora.alpha=16 lora.dropout=0.1 "
          "optimizer.lr=1e-4 activation_checkpoint.mode=full training.dtype=bfloat16 training.regime=pure",
          true },
        { "--tags pyt_train_gpt2 pyt_train_gpt2 --x y", "gpt2-124M", "training.dtype=bfloat16 x=y", true },
        { "--tags pyt_train_gpt2:batch_size=3:seq_len=5", "gpt2-124M", "batch_size=3 seq_len=5 training.dtype=bfloat16",
          true },
        { "--tags pyt_train_gpt2 --tags pyt_train_gpt2:a=2 -b 5", "gpt2-124M",
          "a=2 training.local_batch_size=5 training.dtype=bfloat16", true },
        { "-t pretrain -m Llama-3.1-8B -p FP8 -b 2 -n 8", "llama3.1_8B",
          "training.seq_len=8192 lr_scheduler.warmup_steps=10 activation_checkpoint.mode=none optimizer.lr=3e-4 "
          "training.dtype=bfloat16 fp8=hybrid training.local_batch_size=2 launch.gpus_per_node=8",
          true },
        { "--tags primus_pyt_train_deepseek-v2", "deepseek_v3_16B",
          "training.local_batch_size=8 training.seq_len=4096 optimizer.lr=2.2e-4 parallelism.expert_parallel_degree=8 "
          "debug.moe_force_load_balance=true training.dtype=bfloat16",
          true },
        { "--tags primus_pyt_train_llama-3.1-8b --platform 8xMI355X", "llama3.1_8B",
          "training.local_batch_size=6 training.seq_len=8192 lr_scheduler.warmup_steps=10 "
          "activation_checkpoint.mode=none training.dtype=bfloat16 platform=8xMI355X",
          true },
        { "--tags primus_pyt_train_llama-3.1-8b_fp8", "llama3.1_8B",
          "training.local_batch_size=5 training.seq_len=8192 lr_scheduler.warmup_steps=10 "
          "activation_checkpoint.mode=none training.dtype=bfloat16 fp8=hybrid",
          true },
        { "--tags primus_pyt_megatron_lm_train_llama-2-7b --platform 8xMI300X", "llama2_7B",
          "training.local_batch_size=4 training.grad_accumulation=8 training.seq_len=4096 "
          "activation_checkpoint.mode=none training.dtype=bfloat16 platform=8xMI300X",
          true },
        { "--tags pyt_megatron_lm_train_llama-3.1-70b-proxy", "llama3.1_70B",
          "training.local_batch_size=3 training.seq_len=8192 activation_checkpoint.mode=full training.dtype=bfloat16 "
          "fp8=hybrid model.n_layers=40",
          true },
        { "torchrun --nnodes=1 --node_rank=0 --nproc_per_node=8 --master_addr=0.0.0.0 --master_port=12234 "
          "./train_fsdp.py a.json llama --batch_size 3 --enable_fp8 True",
          "a.json llama",
          "launch.nnodes=1 launch.node_rank=0 launch.gpus_per_node=8 launch.master_addr=0.0.0.0 "
          "launch.master_port=12234 batch_size=3 enable_fp8=True",
          false },
        { "torchrun --nproc-per-node 4 --standalone -m torchtitan.train --job.config_file a.toml --training.steps 2",
          "a.toml", "launch.gpus_per_node=4 training.steps=2", false },
        { "python3 launcher.py --config-name=single_run train_args.train_batch_size=4 +train_args.learning_rate=1e-6",
          "fluxbenchmark:single_run.yaml train_args.model_path=null train_args.train_batch_size=4 "
          "+train_args.learning_rate=1e-6",
          "training.mock_data=true", false },
        { "python FluxBenchmark/launcher.py -cn flux_benchmark --config-path conf --output_dir x --dry_run",
          "--dry-run FluxBenchmark/conf/flux_benchmark.yaml", "out=x", false },
        { "./pytorch_benchmark_report.sh -t posttrain -m Flux -p BF16 -s 256 -n 8", "flux.1_dev",
          "training.local_batch_size=10 data.flow_protocol=fluxbenchmark training.regime=pure optimizer.beta2=0.999 "
          "optimizer.weight_decay=0 training.max_norm=0 training.dtype=bfloat16 launch.gpus_per_node=8",
          true },
        { "python3 tools/run_models.py --tags pyt_train_gpt2 --keep-model-dir", "gpt2-124M", "training.dtype=bfloat16",
          true },
        { "bash ./examples/run_pretrain.sh --training.local_batch_size 6", "", "training.local_batch_size=6", false },
        { "bash runner/primus-cli direct --log_file x.log --numa -- train pretrain --config=exp.yaml", "exp.yaml",
          "log.file=x.log", false },
        { "./primus-cli --debug --dry-run direct -- train posttrain --config exp.yaml", "--dry-run exp.yaml", "",
          false },
        { "primus-cli container --image a:b --volume /data:/data --memory 128G --gpus 4 -- train pretrain --config "
          "exp.yaml",
          "exp.yaml", "launch.gpus_per_node=4", false },
        { "primus-cli slurm srun -N 4 -p gpu --exclusive -- train pretrain --config exp.yaml", "exp.yaml",
          "launch.nnodes=4 launch.gpus_per_node=8", false },
        { "primus-cli slurm srun -N 4 -- train pretrain --config exp.yaml --platform 8xMI355X", "exp.yaml",
          "launch.nnodes=4 platform=8xMI355X", false },
        { "primus projection memory --config exp.yaml", "--dry-run exp.yaml", "", false },
        { "tune run --nproc_per_node 8 full_finetune_distributed --config a.yaml batch_size=4", "a.yaml batch_size=4",
          "launch.gpus_per_node=8", false },
    };
    static const char *const own[] = { "",    "tiny-llama --training.steps 3",   "-x 3", "-tm 3",
                                       "- 3", "tiny-llama --keep-model-folders", "bash", "madengine report" };
    static const char *const variables[] = { "CONFIG_FILE", "GPUS_PER_NODE", "EXP" };
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) unsetenv(variables[i]);
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        is_translated(lines[i].words, lines[i].rest, lines[i].keys, lines[i].report);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        tm_text line = { 0 };
        ends(own[i], &line, TM_OK, "");
        assert_string_equal(line.data + strlen("run "), own[i]);
        tm_text_fini(&line);
    }
    is_translated("primus-cli direct --env GPUS_PER_NODE=4 -- train pretrain --config exp.yaml", "exp.yaml", "", false);
    assert_string_equal(getenv("GPUS_PER_NODE"), "4");
    unsetenv("GPUS_PER_NODE");
    setenv("CONFIG_FILE", "job.toml", 1);
    is_translated("bash run_llama_train.sh --x 1", "job.toml", "x=1", false);
    is_translated("./run_train.sh", "job.toml", "", false);
    unsetenv("CONFIG_FILE");
}

TEST(what_cannot_be_done_is_refused)
{
    static const struct {
        const char *words;
        tm_status   status;
        const char *wanted;
    } lines[] = {
        { "tiny-llama --keep-model-dirs", TM_USAGE, "unknown option '--keep-model-dirs'; did you" },
        { "--tags pyt_train_llama-3.1-9b", TM_UNSUPPORTED, "--tags: no entry 'pyt_train_llama-3.1-9b'; the" },
        { "-t pretrain", TM_USAGE, "-t pretrain names no model; give -m NAME" },
        { "-t other -m gpt2", TM_UNSUPPORTED, "-t other: this task is not supported; wanted one of" },
        { "-m Llama-3.1-71B", TM_UNSUPPORTED, "-m Llama-3.1-71B: this model is not supported; the" },
        { "-f ddp -m gpt2", TM_UNSUPPORTED, "-f accepts fsdp or True, found ddp; for copies" },
        { "-t", TM_USAGE, "option '-t' needs a value: -t VALUE" },
        { "--tags pyt_train_gpt2,pyt_train_gpt2 tail", TM_UNSUPPORTED, "--tags: no entry 'tail'; `trainm" },
        { "--tags pyt_train_gpt2,pyt_train_flux", TM_UNSUPPORTED, "--tags: gpt2-124M and flux.1_dev are two" },
        { "--tags pyt_train_gpt2:", TM_USAGE, "--tags: '' is not a parameter; wanted NAME:key=value" },
        { "torchrun --max_restarts 3 train_fsdp.py", TM_UNSUPPORTED, "'--max_restarts' of torchrun: use --max-" },
        { "torchrun --unknown 3 train_fsdp.py", TM_USAGE, "'--unknown' of torchrun is not known here" },
        { "python launcher.py --config_file config/mini.yaml --no_resume", TM_UNSUPPORTED, "'--no_resume' of" },
        { "python launcher.py --multirun train_args.train_batch_size=1,2", TM_UNSUPPORTED, "'--multirun' of" },
        { "launcher.py --cfg job", TM_UNSUPPORTED, "'--cfg' of launcher.py: use --print-config" },
        { "make download_assets", TM_INVALID, "make download_assets: nothing is downloaded here" },
        { "accelerate launch train.py", TM_UNSUPPORTED, "accelerate launch: its scripts are not read" },
        { "bash examples/diffusion/run_flux_mlperf.sh", TM_UNSUPPORTED, "run_flux_mlperf.sh: the diff" },
        { "bash other.sh", TM_USAGE, "'other.sh' is no script that is known here, and none is executed" },
        { "primus-cli direct --patch a.sh -- train pretrain --config exp.yaml", TM_UNSUPPORTED, "'--patch' of" },
        { "primus-cli direct --env BAD -- train pretrain --config exp.yaml", TM_USAGE, "--env 'BAD': wanted" },
        { "primus-cli direct --nothing -- train pretrain --config exp.yaml", TM_USAGE, "'--nothing' of primus-cli is" },
        { "primus-cli direct -- benchmark gemm --M 4", TM_USAGE, "'benchmark' of Primus is no training; use" },
        { "primus-cli direct --", TM_USAGE, "Primus is asked for ''; wanted train pretrain or train posttrain" },
        { "primus projection performance --config exp.yaml", TM_UNSUPPORTED, "projection performance: only" },
        { "tune ls", TM_USAGE, "'tune ls' is no training; wanted tune run" },
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        ends(lines[i].words, &(tm_text){ 0 }, lines[i].status, lines[i].wanted);
}
