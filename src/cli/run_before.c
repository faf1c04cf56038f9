/* SPDX-License-Identifier: Apache-2.0 */
/* What the run directory holds of an earlier process, variables of the environment, and a prediction. */
#include "base/file.h"
#include "base/log.h"
#include "cli/run_job.h"
#include "plan/simulate.h"
#include "train/run/interleave.h"

#include <stdio.h>
#include <stdlib.h>

void run_note_changes(run_job *j)
{
    tm_text  path = { 0 };
    tm_error unread = { 0 }; /* by another version, maybe: then the keys are not named */
    tm_text_printf(&path, "%s/config.yaml", j->folder.data);
    if (tm_file_exists(path.data)) {
        tm_config *before = tm_cli_config();
        if (tm_config_load_file(before, path.data, &unread) == TM_OK) {
            tm_config_changes(before, j->config, &j->changes);
            j->options.config_before = tm_config_hash(before);
            j->options.config_changes = j->changes.data ? j->changes.data : "";
        }
        tm_config_destroy(before);
    }
    tm_text_fini(&path);
}

void run_note_threads(const run_job *j)
{
    const char           *variable = getenv("OMP_NUM_THREADS");
    const tm_device_info *info = tm_device_describe(j->device);
    long                  n = variable ? strtol(variable, NULL, 10) : 0;
    if (n < 1 || n == info->threads || j->world || j->options.threads > 0 || info->kind != TM_DEVICE_CPU) return;
    tm_note("OMP_NUM_THREADS is %ld and is not read: %d threads compute; training.threads sets their number", n,
            info->threads);
}

tm_status run_join_turns(run_job *j, tm_error *err)
{
    static const char *const endless[][2] = { { "training.steps", "1000000" },
                                              { "training.stop_at_target", "false" },
                                              { "validation.enable", "false" },
                                              { "checkpoint.enable", "false" } };
    const char              *text = getenv(TM_TURN_VARIABLE);
    char                    *end;
    if (!text || !*text) return TM_OK;
    long fd = strtol(text, &end, 10);
    if (*end || fd < 3 || fd > 1 << 20)
        return tm_fail(err, TM_INVALID,
                       TM_TURN_VARIABLE " must be the number of an open socket, found '%.100s'; unset it", text);
    j->turn_fd = (int)fd;
    for (size_t i = 0; getenv(TM_TURN_ENDLESS) && i < sizeof endless / sizeof endless[0]; i++)
        tm_config_set(j->config, endless[i][0], endless[i][1], TM_TURN_ENDLESS);
    return TM_OK;
}

static tm_status predict(run_job *j, tm_arena *arena, const char *name, tm_error *err)
{
    tm_machine_plan        here;
    tm_simulation          time;
    tm_step               *step;
    const tm_step_options *o = &j->options.step;
    tm_chooser             chooser = tm_device_chooser(j->device);
    TM_TRY(tm_machine_plan_read(arena, name, &here, err));
    TM_TRY(tm_step_create(o, &chooser, &step, err));
    tm_status st = tm_simulate(step, &chooser, &here, false, arena, &time, err);
    if (st == TM_OK) {
        double tokens = (double)(o->micro_batch * o->seq * o->accumulation) * tm_layout_data_ranks(&o->layout);
        int    ranks = o->layout.mesh.degree[0] > 0 ? tm_mesh_ranks(&o->layout.mesh) : 1;
        j->options.predicted = tokens / time.step / ranks;
        j->options.predicted_by = name;
    }
    tm_step_destroy(step);
    return st;
}

tm_status run_predict(run_job *j, tm_error *err)
{
    const char *name = tm_config_text(j->config, "prediction.hardware");
    if (!name) return TM_OK;
    tm_arena *arena = tm_arena_create();
    tm_status st = predict(j, arena, name, err);
    tm_arena_destroy(arena);
    return st;
}
