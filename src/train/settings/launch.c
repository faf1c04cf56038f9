/* SPDX-License-Identifier: Apache-2.0 */
/* train/settings/launch.c - how many ranks the nodes and devices of a launch make. */
#include "train/settings/keys.h"

#include <stdio.h>
#include <string.h>

/* What only a launcher gives the ranks that it starts, and what it is without one. Values are at least that. */
static const struct {
    const char *key;
    int64_t     alone;
} of_launchers[] = {
    { "launch.nnodes", 1 }, { "launch.node_rank", 0 },  { "launch.world_size", 1 },
    { "launch.rank", 0 },   { "launch.local_rank", 0 }, { "launch.local_world_size", 1 },
};

/* Ranks of several nodes are started on each of them. */
static tm_status check_launcher(const tm_config *config, tm_error *err)
{
    for (size_t i = 0; i < sizeof of_launchers / sizeof of_launchers[0]; i++) {
        const char *key = of_launchers[i].key, *place = tm_config_place(config, key);
        if (tm_config_i64(config, key) == of_launchers[i].alone) continue;
        return tm_fail(err, TM_UNSUPPORTED,
                       "'%s' = '%s' (%s): ranks are started with --ranks, torchrun, srun or mpirun; set it to %lld%s",
                       key, tm_config_text(config, key), place, (long long)of_launchers[i].alone,
                       strncmp(place, "environment", 11) == 0 ? " or unset the variable" : "");
    }
    return TM_OK;
}

tm_status tm_train_settle_ranks(tm_config *config, tm_error *err)
{
    static const char devices[] = "launch.gpus_per_node", local[] = "launch.local_world_size";
    static const char world[] = "launch.world_size";
    char              text[24];
    if (tm_config_is_set(config, "parallelism.ranks")) return TM_OK;
    if (!tm_config_plans(config)) TM_TRY(check_launcher(config, err));
    const char *from = tm_config_text(config, devices) && tm_config_i64(config, devices) > 0 ? devices : local;
    int64_t     ranks = tm_config_i64(config, "launch.nnodes") * tm_config_i64(config, from);
    if (tm_config_i64(config, world) > 1) ranks = tm_config_i64(config, from = world);
    if (ranks <= 1) return TM_OK;
    if (ranks > 1 << 20)
        return tm_fail(err, TM_INVALID, "launch.nnodes %lld (%s) x %s %lld (%s) is more than %d ranks",
                       (long long)tm_config_i64(config, "launch.nnodes"), tm_config_place(config, "launch.nnodes"),
                       from, (long long)tm_config_i64(config, from), tm_config_place(config, from), 1 << 20);
    if (from == local) from = "launch.nnodes";
    snprintf(text, sizeof text, "%lld", (long long)ranks);
    tm_config_derive(config, "parallelism.ranks", text, from);
    return TM_OK;
}
