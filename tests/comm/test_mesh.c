/* SPDX-License-Identifier: Apache-2.0 */
/* The mesh of ranks: numbers and places, groups, and a world without room for them. */
#include "support/test.h"
#include "comm/mesh/mesh.h"

#include <stdio.h>
#include <stdlib.h>

#include "world.h"

static tm_mesh mesh_of(int pp, int replicate, int shard, int cp, int tp, int ep)
{
    tm_mesh mesh = tm_mesh_one();
    mesh.degree[TM_AXIS_PP] = pp;
    mesh.degree[TM_AXIS_REPLICATE] = replicate;
    mesh.degree[TM_AXIS_SHARD] = shard;
    mesh.degree[TM_AXIS_CP] = cp;
    mesh.degree[TM_AXIS_TP] = tp;
    mesh.degree[TM_AXIS_EP] = ep;
    return mesh;
}

TEST(ranks_and_places_are_inverse)
{
    tm_error err = { 0 };
    tm_mesh  mesh = mesh_of(2, 3, 4, 2, 2, 8);
    assert_int_equal(tm_mesh_fill(&mesh, 96, &err), TM_OK);
    assert_int_equal(mesh.degree[TM_AXIS_EFSDP], 2);
    for (int rank = 0; rank < 96; rank++) {
        int at[TM_AXES];
        for (int a = 0; a < TM_AXES; a++) at[a] = tm_mesh_at(&mesh, rank, (tm_axis)a);
        assert_int_equal(tm_mesh_rank(&mesh, at), rank);
        /* the formula of the header, written out */
        assert_int_equal((((at[0] * 3 + at[1]) * 4 + at[2]) * 2 + at[3]) * 2 + at[4], rank);
        assert_int_equal(at[TM_AXIS_EP], rank % 16 % 8);
        assert_int_equal(at[TM_AXIS_EFSDP], rank % 16 / 8);
    }
}

/* A group is all ranks of one color, numbered without gaps in the order of the ranks. */
TEST(groups_divide_the_ranks)
{
    static const unsigned sets[] = { 1U << TM_AXIS_TP, TM_AXES_BATCH,      TM_AXES_FSDP, TM_AXES_LOSS, TM_AXES_WORLD, 0,
                                     1U << TM_AXIS_EP, 1U << TM_AXIS_EFSDP };
    tm_error              err = { 0 };
    tm_mesh               mesh = mesh_of(2, 2, -1, 1, 2, 2);
    assert_int_equal(tm_mesh_fill(&mesh, 24, &err), TM_OK);
    assert_int_equal(mesh.degree[TM_AXIS_SHARD], 3);
    for (size_t s = 0; s < sizeof sets / sizeof sets[0]; s++) {
        int size = tm_mesh_group_size(&mesh, sets[s]), groups = 24 / size;
        for (int color = 0; color < groups; color++) {
            int next = 0;
            for (int rank = 0; rank < 24; rank++) {
                if (tm_mesh_group_color(&mesh, rank, sets[s]) != color) continue;
                assert_int_equal(tm_mesh_group_rank(&mesh, rank, sets[s]), next++);
            }
            assert_int_equal(next, size);
        }
    }
}

/* There is room for one group more, and the mesh wants two: the one that was made is closed again. */
static void no_room_body(tm_comm *comm, void *context)
{
    tm_mesh_groups groups;
    tm_comm       *taken[TM_COMM_GROUPS - 2];
    tm_error       failure = { 0 };
    for (int i = 0; i < TM_COMM_GROUPS - 2; i++) CHECK_OK(tm_comm_split(comm, 0, 0, "taken", &taken[i], err));
    CHECK(comm->world->groups == TM_COMM_GROUPS - 1);
    CHECK(tm_mesh_split(context, comm, &groups, &failure) == TM_INVALID);
    CHECK(strcmp(failure.text, "'copies' would be group number 65 of a rank; there may be 64") == 0);
    CHECK(groups.n == 0 && !groups.world && comm->world->groups == TM_COMM_GROUPS - 1);
    for (int i = 0; i < TM_COMM_GROUPS - 2; i++) tm_comm_close(taken[i]);
}

TEST(a_world_without_room)
{
    tm_mesh mesh = mesh_of(1, 2, 2, 1, 1, 1);
    run_world(4, NULL, 60, false, no_room_body, &mesh);
}
