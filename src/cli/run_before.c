/* SPDX-License-Identifier: Apache-2.0 */
/* What the run directory holds of an earlier process. */
#include "base/file.h"
#include "cli/run_job.h"

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
