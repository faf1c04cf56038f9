/* SPDX-License-Identifier: Apache-2.0 */
/* tests/check/check_settings.h - what is not a file, for the rows of check_limits.h. */
SET(last_moment, h->wall_ms = INT64_C(253402300799999))
SET(half_a_gib, (o->memlock_min_gib = 0.5, o->shm_min_gib = 0.5, o->gpu_activity_warn_pct = 30.5,
                 o->hbm_busy_threshold_gib = 0.5, o->klog_minutes = 0.5, h->shm_bytes = 1 << 29))
SET(nothing_refused, h->numa_calls = 1)
SET(numa_refused, h->numa_calls = 0)
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
