/* SPDX-License-Identifier: Apache-2.0 */
/* The check `collectives` between GPUs, over libraries that stand in for CUDA's driver and NCCL: clean ones pass. */
#include "support/test.h"

#include "comm/world.h"
#include "apps/node/among.h"
#include "support/folder.h"

enum { RANKS = 3 };

static void certify(tm_comm *comm, void *context)
{
    tm_node_outcome *out = context;
    const int        rank = tm_comm_rank(comm);
    tm_node_options  options = { .seed = 3, .world = comm, .sysroot = "" };
    tm_node_task     task = { .options = &options, .rank = rank, .ranks = RANKS };
    CHECK_OK(tm_node_collectives(&task, NULL, &out[rank], err));
}

TEST(between_gpus)
{
    tm_node_outcome out[RANKS] = { { 0 } };
    setenv("TRAINMARK_NCCL", test_built("standins/nccl.so"), 1);
    setenv("TRAINMARK_GPU_RUNTIME", test_built("standins/cuda.so"), 1);
    run_world(RANKS, NULL, 60, false, certify, out);
    for (int r = 0; r < RANKS; r++) {
        for (size_t i = 0; i < out[r].n_findings; i++)
            print_message("%s: %s\n", out[r].findings[i].place, out[r].findings[i].text);
        for (size_t i = 0; i < out[r].n_told; i++) print_message("%s: %s\n", out[r].told[i].place, out[r].told[i].text);
        assert_int_equal(out[r].verdict, TM_NODE_PASS);
        assert_int_equal(out[r].n_told, 0);
        assert_non_null(strstr(out[r].reach, "calls between GPUs"));
        assert_int_equal(out[r].n_facts, 1);
        assert_non_null(strstr(out[r].facts[0].text, "nccl "));
        tm_node_outcome_fini(&out[r]);
    }
    /* No library: told once, and no finding. */
    setenv("TRAINMARK_NCCL", "/nowhere/libnccl.so.2", 1);
    memset(out, 0, sizeof out);
    run_world(RANKS, NULL, 60, false, certify, out);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(out[r].verdict, TM_NODE_PASS);
        assert_int_equal(out[r].n_told, r == 0);
        if (r == 0) assert_non_null(strstr(out[r].told[0].text, "/nowhere/libnccl.so.2"));
        tm_node_outcome_fini(&out[r]);
    }
}
