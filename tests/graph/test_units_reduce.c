/* SPDX-License-Identifier: Apache-2.0 */
/* Where the gradients of a unit are summed over ranks: behind the last node that writes one of them, whichever of its
 * members that is. */
#include "graph/passes/units.h"
#include "support/training.h"

#include "support/test.h"

enum { MEMBERS = 3, NODES = 6 };

/* Where the sum lies; -1: nowhere. written: by each node the gradient of a member, -1: something else. */
static int place_of_sum(const int written[NODES], int lookup, int ranks)
{
    static const unsigned data = 1U << TM_AXIS_REPLICATE;
    tm_error              err = { 0 };
    tm_graph             *graph = tm_graph_create(&tm_precision_f32);
    const tm_shape        shape = tm_shape_2(2, 3);
    tm_unit_member        members[MEMBERS];
    tm_unit               unit = { .name = "layer 3", .members = members, .n_members = MEMBERS };
    tm_units              units = { .mesh = tm_mesh_one(), .units = &unit, .n_units = 1 };
    tm_tensor_id          other = tm_graph_tensor(graph, "other", TM_ROLE_GRADIENT, shape);
    unit.group.data = data;
    units.mesh.degree[TM_AXIS_REPLICATE] = ranks;
    assert_int_equal(tm_mesh_fill(&units.mesh, ranks, &err), TM_OK);
    unit.gradients = tm_graph_tensor(graph, "all", TM_ROLE_GRADIENT, tm_shape_1(18));
    for (int m = 0; m < MEMBERS; m++) {
        members[m] = (tm_unit_member){ .parameter = tm_graph_tensor(graph, "w", TM_ROLE_PARAMETER, shape),
                                       .gradient = tm_graph_tensor(graph, "dw", TM_ROLE_GRADIENT, shape) };
        if (m == lookup) tm_graph_at(graph, members[m].parameter)->lookup_gradient = other;
    }
    tm_graph_segment(graph, "training");
    for (int x = 0; x < NODES; x++) {
        tm_tensor_id in[TM_MAX_IN], out[TM_MAX_OUT];
        for (int k = 0; k < TM_MAX_IN; k++) in[k] = k < 2 ? other : TM_NONE;
        for (int k = 0; k < TM_MAX_OUT; k++) out[k] = TM_NONE;
        out[0] = written[x] < 0 ? other : members[written[x]].gradient;
        tm_graph_add(graph, TM_OP_add, NULL, 0, in, out, 0);
    }
    tm_units_reduce(graph, &units);
    int place = -1, sums = 0;
    for (size_t x = 0; x < graph->segment->n_nodes; x++)
        if (graph->segment->nodes[x].op == TM_OP_all_reduce) place = (int)x, sums++;
    assert_int_equal(graph->segment->n_nodes, NODES + sums);
    assert_int_equal(sums, unit.reduced);
    if (sums) {
        const tm_node *sum = &graph->segment->nodes[place];
        assert_true(sum->in[0] == unit.gradients && sum->out[0] == unit.gradients);
        assert_string_equal(sum->module, "gradients of layer 3");
    }
    tm_graph_destroy(graph);
    return place;
}

TEST(behind_the_last_gradient)
{
    for (int a = 0; a < MEMBERS; a++)
        for (int b = 0; b < MEMBERS; b++)
            for (int at = 1; at < NODES; at++) {
                int written[NODES] = { a, -1, -1, -1, -1, -1 };
                written[at] = b;
                assert_int_equal(place_of_sum(written, -1, 2), at + 1);
                assert_int_equal(place_of_sum(written, at % MEMBERS, 2), -1);
                assert_int_equal(place_of_sum(written, -1, 1), -1);
            }
    assert_int_equal(place_of_sum((int[]){ -1, -1, -1, -1, -1, -1 }, -1, 2), -1);
    assert_int_equal(place_of_sum((int[]){ 2, -1, -1, -1, -1, -1 }, -1, 4), 1);
}
