/* SPDX-License-Identifier: Apache-2.0 */
/* The softmax of a row of logits by a block, and its gradient: a part of the texts of losses. Z: format of the logits. The
 * row is read once for its largest logit and the sum of exponentials, and once more for the gradient. */
#include "vectors.cu"

enum { RUN = RUN_OF(Z, Z) };

/* A row that begins at element `first`, by the threads of a block: elements before the first multiple of a run one by one,
 * runs, and what is left. f.template at<N>(i): elements i, ..., i + N - 1 of the row. */
template <typename F>
DEVICE void each_of_row(i64 first, i64 columns, int wide, F &f)
{
    int n = (int)columns, head = wide ? (int)((0u - (u32)first) % RUN) : 0;
    if (head > n) head = n;
    int runs = wide ? (n - head) / RUN : 0, pieces = n - runs * (RUN - 1);
    ROLLED for (int p = thread_id(); p < pieces; p += BLOCK) {
        int single = p - runs;
        if (p < runs)
            f.template at<RUN>(head + p * RUN);
        else
            f.template at<1>(single < head ? single : single + runs * RUN);
    }
}

/* ln of the sum of exponentials is largest + ln sum. */
struct softmax {
    float largest, sum;
};

/* The same of what a thread has seen so far. The least number in the place of minus infinity: differences are numbers. */
struct running_softmax {
    const Z *z;
    float    largest, sum;
    template <int N>
    METHOD void at(int i)
    {
        run<Z, N> v = load<Z, N>(z, i);
        float     most = element(v, 0);
        UNROLL for (int e = 1; e < N; e++) most = larger(most, element(v, e));
        if (most > largest) {
            sum *= exponential(largest - most);
            largest = most;
        }
        UNROLL for (int e = 0; e < N; e++) sum += exponential(element(v, e) - largest);
    }
};

/* room: a float for each thread; sums: for each wave. */
DEVICE softmax softmax_of(const Z *z, i64 first, i64 columns, int wide, float *room, float *sums)
{
    running_softmax mine = { z + first, -3.402823466e38f, 0.0f };
    each_of_row(first, columns, wide, mine);
    float largest = block_largest(mine.largest, room);
    return softmax{ largest, block_sum(mine.sum * exponential(mine.largest - largest), sums) };
}

/* to = scale (softmax - onehot(target)); `to` may be z. */
struct softmax_gradient {
    Z       *to;
    const Z *z;
    float    largest, inverse, scale;
    int      target;
    template <int N>
    METHOD void at(int i)
    {
        run<Z, N> v = load<Z, N>(z, i);
        floats<N> result;
        UNROLL for (int e = 0; e < N; e++) {
            float p = exponential(element(v, e) - largest) * inverse;
            result.of[e] = scale * (i + e == target ? p - 1.0f : p);
        }
        store<Z, N>(to, i, result);
    }
};
DEVICE void put_gradient(Z *to, const Z *z, i64 first, i64 columns, int wide, softmax s, float scale, int target)
{
    softmax_gradient g = { to + first, z + first, s.largest, 1.0f / s.sum, scale, target };
    each_of_row(first, columns, wide, g);
}

struct zeros {
    Z *to;
    template <int N>
    METHOD void at(int i)
    {
        store<Z, N>(to, i, floats<N>{});
    }
};
DEVICE void put_zeros(Z *to, i64 first, i64 columns, int wide)
{
    zeros none = { to + first };
    each_of_row(first, columns, wide, none);
}
