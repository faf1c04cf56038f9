/* SPDX-License-Identifier: Apache-2.0 */
#include "support/whole_steps.h"

#include "base/hash.h"
#include "device/device.h"
#include "support/full_config.h"
#include "support/training.h"
#include "support/whole.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void add_sum(tm_text *out, const char *name, const tm_text *text)
{
    tm_text_printf(out, "    %s: %016llx\n", name, (unsigned long long)tm_hash(text->data, text->length));
}

/* What tm_plan_print says nothing of. */
static void add_nodes(tm_text *out, const tm_segment *segment)
{
    for (size_t i = 0; i < segment->n_nodes; i++) {
        const tm_node *n = &segment->nodes[i];
        tm_text_printf(out, "    %s %s %d phase %d keep %d%s:", tm_op_get(n->op)->name, n->module ? n->module : "-",
                       n->layer, n->phase, n->keep, n->recomputed ? " again" : "");
        for (int k = 0; k < TM_MAX_IN; k++) tm_text_printf(out, " %d", n->in[k]);
        tm_text_add(out, " to");
        for (int k = 0; k < TM_MAX_OUT; k++) tm_text_printf(out, " %d", n->out[k]);
        tm_text_printf(out, "; %zu, %x %x\n", n->attr_bytes, n->accumulate, n->rounded);
    }
}

static void add_tensors(tm_text *out, const tm_step *step)
{
    for (size_t i = 0; i < step->graph->n_tensors; i++) {
        const tm_tensor *t = &step->graph->tensors[i];
        const tm_place   place = tm_plan_place(step->plan, (tm_tensor_id)i);
        char             shape[96];
        tm_text_printf(out, "    %s %s %s role %d layer %d %d%d%d; %d %d %d %lld %lld %d twin %d sums %x; ", t->name,
                       tm_dtype_name(t->dtype), tm_shape_text(shape, t->shape), t->role, t->layer, t->trained,
                       t->as_stored, t->head, t->gradient, t->lookup_gradient, t->base, (long long)t->offset,
                       (long long)t->ld, t->space, t->twin, t->sums);
        tm_text_printf(out, "at %zu, %zu, %d %d-%d %d %x\n", place.offset, place.bytes, place.program, place.first,
                       place.last, place.shares, place.streams);
    }
}

static void add_schedule(tm_text *out, const char *name, const tm_step_schedule *s)
{
    tm_text_printf(out, "  %s:", name);
    for (size_t i = 0; i < s->n; i++)
        tm_text_printf(out, " %s %lld %lld %d,", s->work[i].program->name, (long long)s->work[i].micro_batch,
                       (long long)s->work[i].count, s->work[i].slot);
    tm_text_add(out, "\n");
}

void whole_step_add(tm_text *out, const tm_step *step, const tm_chooser *chooser, bool whole)
{
    tm_text programs = { 0 }, tensors = { 0 };
    tm_plan_print(step->plan, chooser, &programs);
    add_tensors(&tensors, step);
    if (whole)
        tm_text_printf(out, "%s%s", programs.data, tensors.data);
    else
        add_sum(out, "programs", &programs), add_sum(out, "tensors", &tensors);
    for (size_t s = 0; s < step->graph->n_segments; s++) {
        tm_text nodes = { 0 };
        add_nodes(&nodes, step->graph->segments[s]);
        if (whole && nodes.data)
            tm_text_printf(out, "  %s:\n%s", step->graph->segments[s]->name, nodes.data);
        else if (nodes.data)
            add_sum(out, step->graph->segments[s]->name, &nodes);
        tm_text_fini(&nodes);
    }
    add_schedule(out, "training", &step->training);
    add_schedule(out, "evaluation", &step->evaluation);
    add_schedule(out, "validation", &step->validation);
    tm_text_fini(&programs);
    tm_text_fini(&tensors);
}

static void add_all_ranks(tm_text *out, const char *words, const tm_chooser *chooser)
{
    tm_config     *config = test_full_config();
    tm_run_options options;
    tm_error       err = { 0 };
    tm_status      st = test_read_run(config, words, &options, &err);
    int ranks = st == TM_OK && options.step.layout.mesh.degree[0] > 0 ? tm_mesh_ranks(&options.step.layout.mesh) : 1;
    tm_text_printf(out, "\n%s\n", words);
    for (int rank = 0; st == TM_OK && rank<ranks; rank += ranks> 1 ? ranks - 1 : 1) {
        tm_step *step;
        options.step.layout.rank = rank;
        st = tm_step_create(&options.step, chooser, &step, &err);
        if (st != TM_OK) break;
        tm_text_printf(out, "  rank %d of %d, %zu bytes\n", rank, ranks, step->plan->arena_bytes);
        whole_step_add(out, step, chooser, false);
        tm_step_destroy(step);
    }
    if (st != TM_OK) tm_text_printf(out, "  exit %d: %s\n", tm_status_exit_code(st), err.text);
    tm_config_destroy(config);
}

void whole_layouts_are(const char *path, const char *const *words, size_t n)
{
    tm_text    out = { 0 };
    tm_device *device = test_device_open("cpu", 1);
    tm_chooser chooser = tm_device_chooser(device);
    tm_error   err = { 0 };
    assert_int_equal(tm_device_limit_isa(device, "base", &err), TM_OK);
    for (size_t i = 0; i < n; i++) add_all_ranks(&out, words[i], &chooser);
    tm_device_close(device);
    whole_is(path, &out);
}
