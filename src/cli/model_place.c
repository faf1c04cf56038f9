/* SPDX-License-Identifier: Apache-2.0 */
/* cli/model_place.c - directories that commands are given: names of the hub in its cache, and the model of an adapter.
 */
#include "base/arena.h"
#include "base/log.h"
#include "cli/cli.h"
#include "hf/adapter.h"

tm_status tm_cli_find_hub(tm_cli_line *line, tm_hub_kind kind, const char **path, tm_error *err)
{
    tm_hub_place place;
    if (!*path) return TM_OK;
    tm_status st = tm_hub_find(kind, *path, &place, err);
    if (st == TM_OK && place.found.data) {
        tm_note("%s", place.found.data);
        *path = tm_arena_text(line->arena, place.path.data);
    }
    tm_hub_place_fini(&place);
    return st;
}

bool tm_cli_only_adapter(const char *folder)
{
    return tm_hf_is_adapter(folder) && !tm_hf_is_folder(folder);
}

tm_status tm_cli_base_of_adapter(const char *adapter, tm_arena *arena, const char **base, tm_error *err)
{
    tm_text      name = { 0 };
    tm_hub_place place = { 0 };
    tm_error     own = { 0 };
    tm_status    st = tm_hf_adapter_base(adapter, &name, err);
    if (st == TM_OK) {
        st = tm_hub_find(TM_HUB_MODEL, name.data, &place, &own);
        if (st != TM_OK)
            st = tm_fail(err, st, "the model of the adapter '%.300s': %s", adapter, own.text);
        else if (!tm_hf_is_folder(place.path.data))
            st = tm_fail(err, TM_INVALID,
                         "the adapter '%.300s' is for the model '%.300s' (base_model_name_or_path), and '%.300s' is no "
                         "directory with a config.json; give the directory of the model beside the adapter",
                         adapter, name.data, place.path.data);
    }
    if (st == TM_OK) {
        tm_note("the model of the adapter '%s' is %s%s%s", adapter, place.found.data ? "" : "'",
                place.found.data ? place.found.data : place.path.data, place.found.data ? "" : "'");
        *base = tm_arena_text(arena, place.path.data);
    }
    tm_hub_place_fini(&place);
    tm_text_fini(&name);
    return st;
}

tm_status tm_cli_find_model(tm_cli_line *line, const char **path, const char **adapter, tm_error *err)
{
    TM_TRY(tm_cli_find_hub(line, TM_HUB_MODEL, path, err));
    TM_TRY(tm_cli_find_hub(line, TM_HUB_MODEL, adapter, err));
    if (!tm_cli_only_adapter(*path)) return TM_OK;
    if (*adapter)
        return tm_fail(err, TM_INVALID,
                       "'%.300s' is an adapter and no model (it has no config.json); give the model in its place, or "
                       "the adapter alone",
                       *path);
    *adapter = *path;
    return tm_cli_base_of_adapter(*adapter, line->arena, path, err);
}
