/* SPDX-License-Identifier: Apache-2.0 */
#include "data/flow.h"

#include "base/random.h"

#include <math.h>

/* What the protocols differ in: docs/flux.md. */
static const struct {
    double dropout;
    bool   together;     /* both texts are left out by one draw, else each by its own */
    bool   logit_normal; /* times: sigmoid of a normal number on a grid of 1000 shifted times; else uniform */
    double first;        /* evaluation times: (i + first) / 8 */
} protocols[] = {
    [TM_FLOW_TORCHTITAN] = { 0.447, false, false, 0.5 },
    [TM_FLOW_MLPERF] = { 0.1, true, false, 0 },
    [TM_FLOW_FLUXBENCHMARK] = { 0, false, true, 0.5 },
};

int tm_flow_fields(const tm_source_options *o, tm_field out[TM_MAX_FIELDS])
{
    tm_shape image = tm_shape_2(o->flow.tokens, o->flow.channels);
    out[0] = (tm_field){ .name = "noisy", .dtype = TM_F32, .shape = image };
    out[1] = (tm_field){ .name = "velocity", .dtype = TM_F32, .shape = image };
    out[2] = (tm_field){ .name = "time", .dtype = TM_F32, .shape = tm_shape_2(1, 1) };
    out[3] = (tm_field){ .name = "text", .dtype = TM_F32, .shape = tm_shape_2(o->flow.text_len, o->flow.text_dim) };
    out[4] = (tm_field){ .name = "pooled", .dtype = TM_F32, .shape = tm_shape_2(1, o->flow.vector_dim) };
    return 5;
}

tm_status tm_flow_check(const tm_source_options *o, tm_error *err)
{
    if (o->flow.tokens > 0) return TM_OK;
    return tm_fail(err, TM_INVALID,
                   "data.source %s gives images, which the model does not take; choose a model of images (flux), or "
                   "another source",
                   o->name);
}

static uint64_t stream_of(const char *train, const char *validation, tm_split split, int64_t index)
{
    return tm_random_stream(split == TM_SPLIT_TRAIN ? train : validation) + (uint64_t)index;
}

double tm_flow_evaluation_time(tm_flow_protocol protocol, int i)
{
    return (i + protocols[protocol].first) / TM_FLOW_EVALUATION_TIMES;
}

/* Entry i of the grid of 1000 times, shift 3: 1, ..., 0.75 in the middle, ..., 0.003. */
static double grid_time(int i)
{
    double s = (1000 - i) / 1000.0;
    return 3 * s / (1 + 2 * s);
}

double tm_flow_time(const tm_source_options *o, tm_split split, int64_t index)
{
    if (split == TM_SPLIT_VALIDATION)
        return tm_flow_evaluation_time(o->flow.protocol, (int)(index % TM_FLOW_EVALUATION_TIMES));
    uint64_t stream = stream_of("flow.time", "flow.time", split, index);
    if (!protocols[o->flow.protocol].logit_normal) return tm_random_uniform(o->seed, stream, 0);
    double u = 1 / (1 + exp(-tm_random_normal(o->seed, stream, 0)));
    return grid_time((int)fmin(999, floor(1000 * u)));
}

/* P(u < x) of u = sigmoid of a normal number. */
static double below(double x)
{
    return x <= 0 ? 0 : x >= 1 ? 1 : 0.5 * erfc(-log(x / (1 - x)) / sqrt(2));
}

double tm_flow_mean(tm_flow_protocol protocol, double (*f)(double time, const void *context), const void *context)
{
    enum { PARTS = 1000 };
    double sum = 0;
    for (int i = 0; i < PARTS; i++) {
        double from = (double)i / PARTS, to = (double)(i + 1) / PARTS, middle = (from + to) / 2;
        if (protocols[protocol].logit_normal)
            sum += (below(to) - below(from)) * f(grid_time(i), context);
        else /* Simpson's rule */
            sum += (f(from, context) + 4 * f(middle, context) + f(to, context)) / (6 * PARTS);
    }
    return sum;
}

double tm_flow_dropout(const tm_source_options *o)
{
    return isnan(o->flow.dropout) ? protocols[o->flow.protocol].dropout : o->flow.dropout;
}

void tm_flow_dropped(const tm_source_options *o, tm_split split, int64_t index, bool *text, bool *pooled)
{
    double   p = tm_flow_dropout(o);
    uint64_t stream = stream_of("flow.dropout", "flow.dropout", split, index);
    *text = split == TM_SPLIT_TRAIN && tm_random_uniform(o->seed, stream, 0) < p;
    *pooled = split == TM_SPLIT_TRAIN &&
              tm_random_uniform(o->seed, stream, protocols[o->flow.protocol].together ? 0 : 1) < p;
}

void tm_flow_mix(const tm_source_options *o, tm_split split, int64_t index, float *noisy, float *velocity, float *time)
{
    uint64_t stream = stream_of("flow.noise.train", "flow.noise.validation", split, index);
    double   t = tm_flow_time(o, split, index);
    float    normal[4] = { 0 };
    *time = (float)t;
    t = (double)*time; /* what the model is told */
    for (int64_t i = 0; i < o->flow.tokens * o->flow.channels; i++) {
        if (i % 4 == 0) tm_random_normal4(o->seed, stream, (uint64_t)i / 4, normal);
        double x0 = (double)velocity[i], noise = (double)normal[i % 4];
        noisy[i] = (float)((1 - t) * x0 + t * noise);
        velocity[i] = (float)(noise - x0);
    }
}
