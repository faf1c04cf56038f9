/* SPDX-License-Identifier: Apache-2.0 */
/* tests/check/check_settings.h - what is not a file, for the rows of check_limits.h. */
SET(last_moment, h->wall_ms = INT64_C(253402300799999))
SET(after_the_last, h->wall_ms = INT64_C(253402300800000))
SET(first_moment, h->wall_ms = 0)
SET(before_the_first, h->wall_ms = -1)
SET(want_no_gpu, o->expected_gpus = 0)
SET(want_no_nic, o->expected_nics = 0)
SET(half_a_gib, (o->memlock_min_gib = 0.5, o->shm_min_gib = 0.5, o->gpu_activity_warn_pct = 30.5,
                 o->hbm_busy_threshold_gib = 0.5, o->klog_minutes = 0.5, h->shm_bytes = 1 << 29))
ENVIRONMENT(exactly_eth0, "NCCL_SOCKET_IFNAME==eth0, eth5", "MASTER_ADDR=10.0.0.9")
ENVIRONMENT(all_but_eth1, "NCCL_SOCKET_IFNAME=^docker,eth1", "MASTER_ADDR=10.0.0.9")
ENVIRONMENT(over_many, "NCCL_SOCKET_IFNAME=lo,cni,br")
ENVIRONMENT(to_a_name, "MASTER_ADDR=node1")
ENVIRONMENT(to_itself, "MASTER_ADDR=127.3.2.1")
ENVIRONMENT(to_eleven, "MASTER_ADDR=11.0.0.1")
ENVIRONMENT(to_ten, "MASTER_ADDR=10.0.0.9", "NCCL_SOCKET_IFNAME=")
#define WORLD(rank, size) "MASTER_ADDR=a", "MASTER_PORT=1", "RANK=" rank, "WORLD_SIZE=" size
ENVIRONMENT(all_but_rank, "MASTER_ADDR=a", "MASTER_PORT=1", "WORLD_SIZE=1", "RANK=", "RANKS=1")
ENVIRONMENT(largest_world, WORLD("16777215", "16777216"), "LOCAL_RANK=65536", "NNODES=1048576", "NODE_RANK=1048575")
ENVIRONMENT(world_too_large, WORLD("0", "16777217"))
ENVIRONMENT(world_of_none, WORLD("0", "0"))
ENVIRONMENT(rank_below_0, WORLD("-1", "1"))
ENVIRONMENT(largest_node, WORLD("0", "65536"), "LOCAL_WORLD_SIZE=65536", "LOCAL_RANK=65535", "NODE_RANK=1048576")
ENVIRONMENT(node_too_large, WORLD("0", "65537"), "LOCAL_WORLD_SIZE=65537")
SET(nothing_refused, h->numa_calls = 1)
SET(numa_refused, h->numa_calls = 0)
ENVIRONMENT(first_two, "HIP_VISIBLE_DEVICES=0,1")
ENVIRONMENT(none_of_these, "HIP_VISIBLE_DEVICES=0,5")
ENVIRONMENT(rocr_then_hip, "ROCR_VISIBLE_DEVICES=GPU-4b2c1a9f,1,2", "HIP_VISIBLE_DEVICES=2,0", "CUDA_VISIBLE_DEVICES=0")
ENVIRONMENT(hip_beyond_rocr, "ROCR_VISIBLE_DEVICES=0,1", "HIP_VISIBLE_DEVICES=2")
ENVIRONMENT(by_cuda, "CUDA_VISIBLE_DEVICES=1")
ENVIRONMENT(by_ordinal, "GPU_DEVICE_ORDINAL=1", "HIP_VISIBLE_DEVICES=")
ENVIRONMENT(cuda_sees_none, "CUDA_VISIBLE_DEVICES=", "LOCAL_WORLD_SIZE=1")
ENVIRONMENT(eight_wanted, "GPUS_PER_NODE=8")
ENVIRONMENT(rocm_of_nowhere, "ROCM_PATH=/nowhere")
METRICS(no_word_of_falling, { "training.final_loss", 3 })
/* Nine figures of a family, where eight are shown; six gates of which five are not passed, where four are shown. */
static const tm_metric many_metrics[] = { { "stream.s1", 1 }, { "stream.s2", 2 }, { "stream.s3", 3 },
                                          { "stream.s4", 4 }, { "stream.s5", 5 }, { "stream.s6", 6 },
                                          { "stream.s7", 7 }, { "stream.s8", 8 }, { "stream.s9", 9 },
                                          { "gemm.g1", 1 },   { "gemma.g2", 2 },  { "gem.g3", 3 } };
static const tm_gate   many_gates_of[] = {
      { .metric = "gemm.g0", .kind = TM_GATE_INFO, .limit = 1, .measured = 0 },
      { .metric = "gemm.g1", .kind = TM_GATE_MAX, .limit = 1.5, .measured = 1, .passed = true },
      { .metric = "gemm.g2", .kind = TM_GATE_MAX, .limit = 1.5, .measured = 2 },
      { .metric = "gemm.g3", .kind = TM_GATE_MIN, .limit = 4.5, .measured = 3 },
      { .metric = "gemm.g4", .kind = TM_GATE_MAX, .limit = 1.5, .measured = 4 },
      { .metric = "gemm.g5", .kind = TM_GATE_MAX, .limit = 1.5, .measured = 5 },
      { .metric = "gemm.g6", .kind = TM_GATE_MAX, .limit = 1.5, .measured = 6 },
      { .metric = "stream.s1", .kind = TM_GATE_INFO, .limit = 9, .measured = 1 },
};
static const tm_check_perf many_perf = { .metrics = many_metrics, .n = 12, .gates = many_gates_of, .n_gates = 8 };
SET(many_gates, h->perf = &many_perf)
