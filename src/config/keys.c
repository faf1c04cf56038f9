/* SPDX-License-Identifier: Apache-2.0 */
/* config/keys.c - the rows of this room: who runs what where, and the launch. */
#include "config/internal.h"

/* clang-format off */
static const tm_key keys[] = {
    { .name = "work_group", .kind = TM_KEY_TEXT, .quiet = true,
      .when = "user_name,exp_name,workspace",
      .help = "first part of the output path of an experiment file" },
    { .name = "user_name", .kind = TM_KEY_TEXT, .quiet = true, .when = "work_group,exp_name,workspace",
      .help = "second part of the output path" },
    { .name = "exp_name", .kind = TM_KEY_TEXT, .quiet = true,
      .help = "third part of the output path; alone: output/NAME" },
    { .name = "workspace", .kind = TM_KEY_TEXT, .quiet = true, .when = "work_group,user_name,exp_name",
      .help = "root of the output path" },
    { .name = "platform.*", .kind = TM_KEY_TEXT, .quiet = true, .state = TM_KEY_IGNORED,
      .help = "description of a cluster" },
    { .name = "job.dump_folder", .kind = TM_KEY_TEXT, .quiet = true, .state = TM_KEY_IGNORED,
      .help = "use --out for the run directory" },
    { .name = "job.description", .kind = TM_KEY_TEXT, .quiet = true, .help = "a description that is kept with the results" },
    { .name = "launch.nnodes", .kind = TM_KEY_I64, .fallback = "1", .lo = 1, .hi = 1 << 20, .quiet = true, .state = TM_KEY_SAID,
      .synonyms = "nnodes", .help = "machines that train together" },
    { .name = "launch.node_rank", .kind = TM_KEY_I64, .fallback = "0", .lo = 0, .hi = 1 << 20,
      .quiet = true, .state = TM_KEY_SAID, .synonyms = "node_rank", .help = "number of this machine" },
    { .name = "launch.gpus_per_node", .kind = TM_KEY_I64, .lo = 0, .hi = 1024, .quiet = true, .state = TM_KEY_SAID,
      .synonyms = "gpus_per_node", .help = "devices of a machine that train, a rank each; null or 0: one" },
    { .name = "launch.world_size", .kind = TM_KEY_I64, .fallback = "1", .lo = 1, .hi = 1 << 24,
      .quiet = true, .state = TM_KEY_SAID, .synonyms = "world_size", .help = "processes that train together" },
    { .name = "launch.rank", .kind = TM_KEY_I64, .fallback = "0", .lo = 0, .hi = 1 << 24, .quiet = true, .state = TM_KEY_SAID,
      .help = "number of this process" },
    { .name = "launch.local_rank", .kind = TM_KEY_I64, .fallback = "0", .lo = 0, .hi = 1024, .quiet = true, .state = TM_KEY_SAID,
      .help = "number of this process on its machine" },
    { .name = "launch.local_world_size", .kind = TM_KEY_I64, .fallback = "1", .lo = 1, .hi = 1024,
      .quiet = true, .state = TM_KEY_SAID, .help = "processes of this machine" },
    { .name = "launch.master_addr", .kind = TM_KEY_TEXT, .fallback = "localhost", .quiet = true,
      .state = TM_KEY_IGNORED, .synonyms = "master_addr", .help = "address at which the ranks connect" },
    { .name = "launch.master_port", .kind = TM_KEY_I64, .fallback = "1234", .lo = 1, .hi = 65535, .quiet = true,
      .state = TM_KEY_IGNORED, .synonyms = "master_port", .help = "the port of launch.master_addr" },
    { .name = "comm.init_timeout_seconds", .kind = TM_KEY_F64, .fallback = "300", .lo = 0, .hi = 1e9, .quiet = true,
      .state = TM_KEY_IGNORED, .help = "deadline of the first collective; there are none in one process" },
    { .name = "comm.train_timeout_seconds", .kind = TM_KEY_F64, .fallback = "100", .lo = 0, .hi = 1e9, .quiet = true,
      .state = TM_KEY_IGNORED, .help = "deadline of later collectives" },
};
/* clang-format on */

const tm_key *tm_config_keys(size_t *n)
{
    *n = sizeof keys / sizeof keys[0];
    return keys;
}
