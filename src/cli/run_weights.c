/* SPDX-License-Identifier: Apache-2.0 */
/* The weights that a run begins with. */
#include "base/clock.h"
#include "base/log.h"
#include "base/plain.h"
#include "cli/run_job.h"

#include <math.h>

/* The first weights are those of a folder. */
static tm_status load_weights(void *context, struct tm_trainer *trainer, tm_error *err)
{
    run_job     *j = context;
    tm_hf_memory memory = tm_hf_trainer_memory(trainer, j->cli->folder.form);
    tm_hf_report report;
    char         size[32];
    int64_t      begin = tm_now_ns();
    TM_TRY(tm_hf_load(&memory, j->weights, j->options.threads, &report, err));
    if (j->adapter.folder) {
        tm_hf_report own;
        TM_TRY(tm_hf_adapter_load(&memory, &j->adapter, &j->options.step.adapters, j->options.threads, &own, err));
        tm_note("loaded %zu tensors of the adapter '%s'", own.tensors, j->adapter.folder);
    }
    tm_note("loaded %zu tensors (%s, %s) of '%s' in %.1f s%s", report.tensors,
            tm_format_bytes(size, (double)report.bytes), report.formats, tm_cli_model_folder(j->config),
            (double)(tm_now_ns() - begin) * 1e-9, report.ignored ? "; unused tensors were skipped" : "");
    return TM_OK;
}

tm_status run_open_weights(run_job *j, tm_error *err)
{
    const char *folder = tm_cli_model_folder(j->config), *training = j->cli->folder.training;
    if (!folder) return TM_OK;
    if (training[0] && !tm_config_text(j->config, "model.dropout"))
        return tm_fail(
            err, TM_UNSUPPORTED,
            "'%s/config.json' trains with %s, which is not supported; give --model.dropout 0 to train without it",
            folder, training);
    TM_TRY(tm_hf_folder_weights(folder, &j->weights, err));
    if (!j->weights) {
        tm_note("'%s' holds no weights: the initial ones follow from debug.seed", folder);
        return TM_OK;
    }
    j->options.load_weights = load_weights;
    j->options.load_context = j;
    return TM_OK;
}

/* Have some modules other ranks or alphas than the rest? */
static bool vary(const tm_adapters *given)
{
    bool any = tm_adapters_vary(given);
    for (size_t i = 0; i < given->n_modules; i++)
        any = any || given->modules[i].rank != given->rank || fabs(given->modules[i].alpha - given->alpha) > 0;
    return any;
}

/* The adapters that a run begins with are those of the run: rank, factor and modules. */
tm_status run_open_adapter(run_job *j, tm_error *err)
{
    const char        *path = tm_config_text(j->config, "lora.adapter_path");
    const tm_adapters *own = &j->options.step.adapters, *given = &j->adapter.adapters;
    if (!path) return TM_OK;
    if (!j->weights)
        return tm_fail(err, TM_INVALID, "lora.adapter_path (%s) needs a model with weights: model.hf_assets_path",
                       tm_config_place(j->config, "lora.adapter_path"));
    TM_TRY(tm_hf_adapter_open(path, j->weights, j->cli->folder.form, &j->adapter, err));
    if (own->rank == 0)
        return tm_fail(err, TM_INVALID,
                       "lora.adapter_path (%s) needs lora.rank; '%.200s' has --lora.rank %lld --lora.alpha %g",
                       tm_config_place(j->config, "lora.adapter_path"), path, (long long)given->rank, given->alpha);
    double apart = tm_adapters_scale(own) - tm_adapters_scale(given);
    if (own->dora != given->dora)
        return tm_fail(err, TM_INVALID, "'%s' is %s adapter, and lora.dora is %s; set lora.dora to %s", path,
                       given->dora ? "a DoRA" : "no DoRA", own->dora ? "true" : "false",
                       given->dora ? "true" : "false");
    if (tm_adapters_vary(own) || vary(given)) return TM_OK; /* compared module by module when it is read */
    if (own->rank == given->rank && !(apart < 0) && !(apart > 0)) return TM_OK;
    return tm_fail(err, TM_INVALID,
                   "'%s' has rank %lld and alpha %g, lora.rank is %lld and lora.alpha %g; give the same", path,
                   (long long)given->rank, given->alpha, (long long)own->rank, own->alpha);
}
