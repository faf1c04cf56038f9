/* SPDX-License-Identifier: Apache-2.0 */
#include "data/flow.h"

#include "base/random.h"
#include "data/packing.h"

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

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* Esser et al. 2024, eq. 23: what an image of other size would have had. */
static double shifted(const tm_flow_options *flow, double t)
{
    return flow->shift > 0 ? flow->shift * t / (1 + (flow->shift - 1) * t) : t;
}

double tm_flow_time(const tm_source_options *o, tm_split split, int64_t index)
{
    const tm_flow_options *flow = &o->flow;
    if (split == TM_SPLIT_VALIDATION)
        return tm_flow_evaluation_time(flow->protocol, (int)(index % TM_FLOW_EVALUATION_TIMES));
    uint64_t stream = stream_of("flow.time", "flow.time", split, index);
    if (flow->times == TM_TIMES_LOGIT_NORMAL)
        return shifted(flow, sigmoid(flow->logit_mean + flow->logit_std * tm_random_normal(o->seed, stream, 0)));
    if (flow->times == TM_TIMES_UNIFORM || !protocols[flow->protocol].logit_normal)
        return shifted(flow, tm_random_uniform(o->seed, stream, 0));
    double u = sigmoid(tm_random_normal(o->seed, stream, 0));
    return grid_time((int)fmin(999, floor(1000 * u)));
}

/* P(u < x) of u = sigmoid of a normal number. */
static double below(double x)
{
    return x <= 0 ? 0 : x >= 1 ? 1 : 0.5 * erfc(-log(x / (1 - x)) / sqrt(2));
}

/* The trapezoidal rule over the normal number, whose error falls exponentially with the number of parts. */
static double logit_normal_mean(const tm_flow_options *flow, double (*f)(double time, const void *context),
                                const void            *context)
{
    const double step = 1.0 / 64;
    double       sum = 0, weights = 0;
    for (int i = -9 * 64; i <= 9 * 64; i++) {
        double n = i * step, weight = exp(-n * n / 2);
        weights += weight;
        sum += weight * f(shifted(flow, sigmoid(flow->logit_mean + flow->logit_std * n)), context);
    }
    return sum / weights;
}

double tm_flow_mean(const tm_flow_options *flow, double (*f)(double time, const void *context), const void *context)
{
    enum { PARTS = 1000 };
    bool   grid = flow->times == TM_TIMES_OF_PROTOCOL && protocols[flow->protocol].logit_normal;
    double sum = 0;
    if (flow->times == TM_TIMES_LOGIT_NORMAL) return logit_normal_mean(flow, f, context);
    for (int i = 0; i < PARTS; i++) {
        double from = (double)i / PARTS, to = (double)(i + 1) / PARTS, middle = (from + to) / 2;
        if (grid)
            sum += (below(to) - below(from)) * f(grid_time(i), context);
        else /* Simpson's rule */
            sum += (f(shifted(flow, from), context) + 4 * f(shifted(flow, middle), context) +
                    f(shifted(flow, to), context)) /
                   (6 * PARTS);
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
    *pooled =
        split == TM_SPLIT_TRAIN && tm_random_uniform(o->seed, stream, protocols[o->flow.protocol].together ? 0 : 1) < p;
}

void tm_flow_mix(const tm_source_options *o, tm_split split, int64_t index, float *noisy, float *velocity, float *time)
{
    uint64_t stream = stream_of("flow.noise.train", "flow.noise.validation", split, index);
    double   t = tm_flow_time(o, split, index);
    *time = (float)t;
    t = (double)*time; /* what the model is told */
    tm_random_normals(o->seed, stream, 0, o->flow.tokens * o->flow.channels, noisy);
    for (int64_t i = 0; i < o->flow.tokens * o->flow.channels; i++) {
        double x0 = (double)velocity[i], noise = (double)noisy[i];
        noisy[i] = (float)((1 - t) * x0 + t * noise);
        velocity[i] = (float)(noise - x0);
    }
}

int64_t tm_flow_order(const tm_source_options *o, tm_split split, int64_t index, int64_t n)
{
    uint64_t epoch = (uint64_t)index / (uint64_t)n;
    if (split == TM_SPLIT_VALIDATION) return index;
    return (int64_t)tm_random_permute(o->seed, tm_random_stream("latents.order") + epoch, (uint64_t)index % (uint64_t)n,
                                      (uint64_t)n);
}

void tm_flow_draw(const tm_source_options *o, tm_split split, int64_t index, const float *mean, const float *logvar,
                  double scale, double shift, float *x0)
{
    int64_t  rows = o->flow.rows, columns = o->flow.tokens / rows, channels = o->flow.channels / 4;
    int64_t  size = 4 * rows * columns;
    uint64_t stream = stream_of("latents.train", "latents.validation", split, index);
    for (int64_t i = 0; i < channels * size; i++) {
        int64_t channel = i / size, y = i % size / (2 * columns), x = i % (2 * columns);
        double  drawn = (double)mean[i] + exp((double)logvar[i] / 2) * tm_random_normal(o->seed, stream, (uint64_t)i);
        x0[tm_packed_place(channel, y, x, columns, channels)] = (float)(scale * (drawn - shift));
    }
}
