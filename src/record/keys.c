/* SPDX-License-Identifier: Apache-2.0 */
#include "record/keys.h"

#define PROFILER "the profiler"

/* clang-format off */
static const tm_key keys[] = {
    { .name = "metrics.log_freq", .kind = TM_KEY_I64, .fallback = "10", .lo = 1, .hi = 1 << 30, .quiet = true,
      .synonyms = "log_interval,metrics.log_interval", .help = "steps from one step line to the next" },
    { .name = "metrics.log_style", .kind = TM_KEY_CHOICE, .fallback = "titan", .choices = "titan=torchtitan|megatron",
      .quiet = true, .synonyms = "log_style", .help = "format of the step line" },
    { .name = "metrics.enable_tensorboard", .kind = TM_KEY_BOOL, .fallback = "false",
      .quiet = true, .help = "also write loss, gradient norm, learning rate and speed as an event file of TensorBoard" },
    { .name = "metrics.enable_wandb", .kind = TM_KEY_BOOL, .fallback = "false", .state = TM_KEY_IGNORED,
      .quiet = true, .help = "not used: nothing is sent anywhere" },
    { .name = "metrics.save_tb_folder", .kind = TM_KEY_TEXT, .fallback = "tb", .quiet = true,
      .when = "metrics.enable_tensorboard",
      .help = "directory of metrics.enable_tensorboard, relative to the run directory" },
    { .name = "metrics.disable_color_printing", .kind = TM_KEY_BOOL, .fallback = "false", .quiet = true,
      .help = "no colors on a terminal; elsewhere there are none" },
    { .name = "metrics.save_for_all_ranks", .kind = TM_KEY_BOOL, .fallback = "false", .state = TM_KEY_IGNORED,
      .quiet = true, .help = "metrics of every rank" },
    { .name = "log_avg_skip_iterations", .kind = TM_KEY_I64, .fallback = "2", .state = TM_KEY_IGNORED, .quiet = true,
      .help = "warm-up is detected" },
    { .name = "log_avg_reset_interval", .kind = TM_KEY_I64, .fallback = "10", .state = TM_KEY_IGNORED, .quiet = true,
      .help = "averages are over the whole run" },
    { .name = "log.level", .kind = TM_KEY_CHOICE, .fallback = "info",
      .choices = "debug|info|warn=warning|error=critical", .quiet = true,
      .help = "lowest level of the messages on stderr" },
    { .name = "log.color", .kind = TM_KEY_BOOL, .fallback = "true", .quiet = true,
      .help = "false: as metrics.disable_color_printing" },
    { .name = "log.panel", .kind = TM_KEY_BOOL, .fallback = "true", .quiet = true,
      .help = "show curve, speed and time left at the bottom of a terminal" },
    { .name = "log.file", .kind = TM_KEY_TEXT, .quiet = true,
      .help = "step lines and report are also appended to this file" },
    { .name = "log.folder", .kind = TM_KEY_TEXT, .quiet = true,
      .help = "directory for messages, relative to the run directory: DIR/rank-N/debug, info, warning, error of each rank; null: "
              "logs/MODULE of an experiment, else none" },
    { .name = "prediction.hardware", .kind = TM_KEY_TEXT, .quiet = true,
      .help = "hardware file of this machine, or a built-in name: the speed is predicted before the run and told beside what "
              "is measured (docs/plan.md)" },
    { .name = "store.path", .kind = TM_KEY_TEXT, .quiet = true,
      .help = "database file for the result; none: not stored; null: TRAINMARK_STORE, else "
              "trainmark/results.db in XDG_DATA_HOME or ~/.local/share (docs/results.md)" },
    { .name = "store.label", .kind = TM_KEY_TEXT, .quiet = true,
      .when = "store.path!=none",
      .help = "name of the result in the store" },
    { .name = "profiling.enable_profiling", .kind = TM_KEY_BOOL, .fallback = "false", .state = TM_KEY_UNBUILT,
      .feature = PROFILER, .quiet = true, .help = "write traces; the step ledger is always on" },
    { .name = "profiling.profile_freq", .kind = TM_KEY_I64, .fallback = "10", .state = TM_KEY_IGNORED, .quiet = true,
      .help = "steps from one trace to the next" },
    { .name = "profiling.save_traces_folder", .kind = TM_KEY_TEXT, .fallback = "profile_traces",
      .state = TM_KEY_IGNORED, .quiet = true, .help = "directory of the traces" },
    { .name = "profiling.enable_memory_snapshot", .kind = TM_KEY_BOOL, .fallback = "false", .state = TM_KEY_UNBUILT,
      .feature = "memory snapshots (see trainmark explain)", .quiet = true, .help = "memory by buffer" },
    { .name = "profiling.save_memory_snapshot_folder", .kind = TM_KEY_TEXT, .fallback = "memory_snapshot",
      .state = TM_KEY_IGNORED, .quiet = true, .help = "directory of the snapshots" },
};
/* clang-format on */

void tm_record_configure(tm_config *config)
{
    tm_config_add_keys(config, keys, sizeof keys / sizeof keys[0]);
}
