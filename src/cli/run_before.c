/* SPDX-License-Identifier: Apache-2.0 */
/* What the run directory holds of an earlier process, and a variable that is not read. */
#include "base/file.h"
#include "base/log.h"
#include "cli/run_job.h"

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
