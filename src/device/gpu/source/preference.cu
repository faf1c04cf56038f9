/* SPDX-License-Identifier: Apache-2.0 */
/* The loss of two answers to a prompt, and its gradient (op/preference_loss.c, which names the kinds by these numbers): a
 * block for each sample, in double. L: format of the losses, R: of the reference's, D: of the gradient. */

enum { SIGMOID, HINGE, IPO, ROBUST, EXO, NCA, BCO, SPPO, APO_ZERO, APO_DOWN, SIGMOID_NORM };
enum { TARGETS, ABOVE, LOGP, SUMS }; /* of a sequence: its targets, D, minus its losses */
enum { LOSS, CHOSEN, REJECTED, RIGHT, LOGPS_CHOSEN, LOGPS_REJECTED, PAIRS, TOLD }; /* over pairs: the loss, tm_preferred */

/* exp(x), x <= 0: 2^k exp(r) with |r| <= ln 2 / 2; below -170: 0. ln 2 in two parts, of which the first times k is exact. */
DEVICE double power(double x)
{
    if (!(x > -170.0)) return x < 0.0 ? 0.0 : x;
    int    k = (int)((float)x * 1.44269504f - 0.5f);
    double r = x - (double)k * 0x1.62e42feep-1 - (double)k * 0x1.a39ef35793c76p-33, y = 1.0;
    UNROLL for (int n = 14; n > 0; n--) y = 1.0 + y * r * (1.0 / (double)n);
    return y * (double)float_of((u32)(127 + k / 2) << 23) * (double)float_of((u32)(127 + k - k / 2) << 23);
}

/* ln(1 + y), 0 <= y <= 1: 2 artanh s, s = y / (2 + y) <= 1/3. */
DEVICE double logarithm_1p(double y)
{
    double s = y / (2.0 + y), square = s * s, sum = 0.0;
    UNROLL for (int n = 39; n > 0; n -= 2) sum = sum * square + 1.0 / (double)n;
    return 2.0 * s * sum;
}

/* Of x: ln(1 + exp(-x)) and ln(1 + exp(x)), 1 / (1 + exp(-x)) and 1 / (1 + exp(x)). */
struct curves {
    double right, wrong, up, down;
};
DEVICE curves curves_of(double x)
{
    double e = power(x > 0.0 ? -x : x), l = logarithm_1p(e), larger = 1.0 / (1.0 + e), less = e / (1.0 + e);
    return x > 0.0 ? curves{ l, x + l, larger, less } : curves{ l - x, l, less, larger };
}

/* Attributes of the op; right, wrong: ln(1 - e) and ln e of the label smoothing e. */
struct kind {
    int    number;
    double beta, smoothing, right, wrong;
};

DEVICE bool means(kind k)
{
    return k.number == IPO || k.number == SIGMOID_NORM;
}

/* Of a pair: its loss, and the derivatives by what the chosen and the rejected sequence are above the reference. */
struct judged {
    double loss, chosen, rejected;
};

DEVICE judged judge(kind k, double c, double r)
{
    double b = k.beta, e = k.smoothing, half = 0.5 / b, z = c - r;
    curves m = curves_of(b * z), p = curves_of(b * c), q = curves_of(b * r);
    double loss = (1.0 - e) * m.right + e * m.wrong, slope = b * (e * m.up - (1.0 - e) * m.down);
    switch (k.number) {
    case HINGE:
        loss = b * z < 1.0 ? 1.0 - b * z : 0.0;
        slope = b * z < 1.0 ? -b : 0.0;
        break;
    case IPO:
        loss = (z - half) * (z - half);
        slope = 2.0 * (z - half);
        break;
    case ROBUST:
        loss = ((1.0 - e) * m.right - e * m.wrong) / (1.0 - 2.0 * e);
        slope = -b * ((1.0 - e) * m.down + e * m.up) / (1.0 - 2.0 * e);
        break;
    case EXO:
        loss = -m.up * (m.right + k.right) - m.down * (m.wrong + k.wrong);
        slope = b * m.up * m.down * (b * z + k.wrong - k.right);
        break;
    case NCA:
        return judged{ p.right + 0.5 * (p.wrong + q.wrong), b * (1.5 * p.up - 1.0), 0.5 * b * q.up };
    case BCO:
        return judged{ p.right + q.wrong, b * (p.up - 1.0), b * q.up };
    case SPPO:
        return judged{ (c - half) * (c - half) + (r + half) * (r + half), 2.0 * (c - half), 2.0 * (r + half) };
    case APO_ZERO:
        return judged{ 1.0 - p.up + q.up, -b * p.up * p.down, b * q.up * q.down };
    case APO_DOWN:
        return judged{ p.up + 1.0 - m.up, b * (p.up * p.down - m.up * m.down), b * m.up * m.down };
    }
    return judged{ loss, slope, -slope };
}

/* Rows of one sample, and where they lie (op/preference.h). reads: is there a reference? */
struct sample {
    const L   *losses;
    const R   *reference;
    const int *targets, *first_key;
    i64        of_rank; /* rows of each rank */
    int        samples, seq, ranks, chunk, reads, ignored;
    METHOD i64 row(int n)
    {
        i64 number = block_id(0);
        if (ranks <= 1) return number * seq + n;
        int  at = n / chunk;
        bool first = at < ranks;
        int  rank = first ? at : 2 * ranks - 1 - at;
        return rank * of_rank + ((first ? 0 : samples) + number) * chunk + n % chunk;
    }
    METHOD bool begins(int n)
    {
        return n == 0 || first_key[row(n)] != first_key[row(n - 1)];
    }
};

/* found (samples, seq + 2): how many sequences a sample has, where they begin, and behind them where the last one ends. */
KERNEL(preference_find)(int *RESTRICT found, const int *RESTRICT first_key, i64 of_rank, int samples, int seq, int ranks, int chunk)
{
    SHARED int count[BLOCK];
    sample     s = { 0, 0, 0, first_key, of_rank, samples, seq, ranks, chunk, 0, 0 };
    int       *starts = found + (i64)block_id(0) * (seq + 2) + 1;
    int        share = (seq + BLOCK - 1) / BLOCK, first = thread_id() * share, end = first + share, mine = 0;
    if (first > seq) first = seq;
    if (end > seq) end = seq;
    for (int n = first; n < end; n++) mine += s.begins(n) ? 1 : 0;
    count[thread_id()] = mine;
    barrier();
    int before = 0, all = 0;
    for (int t = 0; t < BLOCK; t++) {
        before += t < thread_id() ? count[t] : 0;
        all += count[t];
    }
    for (int n = first; n < end; n++)
        if (s.begins(n)) starts[before++] = n;
    if (thread_id() > 0) return;
    starts[-1] = all;
    starts[all] = seq;
}

/* Every thread gets the sums over rows begin .. end - 1. */
DEVICE void sum_of(sample s, int begin, int end, double (*room)[SUMS], double *sum)
{
    int thread = thread_id();
    UNROLL for (int k = 0; k < SUMS; k++) sum[k] = 0.0;
    for (int n = begin + thread; n < end; n += BLOCK) {
        i64 row = s.row(n);
        if (s.targets[row] == s.ignored) continue;
        double loss = (double)get(s.losses, row);
        sum[TARGETS] += 1.0;
        sum[ABOVE] += (s.reads ? (double)get(s.reference, row) : 0.0) - loss;
        sum[LOGP] -= loss;
    }
    barrier(); /* the sums before were read */
    UNROLL for (int k = 0; k < SUMS; k++) room[thread][k] = sum[k];
    barrier();
    ROLLED for (int m = BLOCK / 2; m > 0; m >>= 1) {
        if (thread < m) UNROLL
            for (int k = 0; k < SUMS; k++) room[thread][k] += room[thread + m][k];
        barrier();
    }
    UNROLL for (int k = 0; k < SUMS; k++) sum[k] = room[0][k];
}

/* What D is multiplied with in c and r. */
DEVICE double share_of(kind k, const double *sum)
{
    return means(k) && sum[TARGETS] > 0.0 ? 1.0 / sum[TARGETS] : 1.0;
}

/* told (samples, TOLD): of each sample the sums over its pairs. */
KERNEL(preference_loss)
(f64 *RESTRICT told, const int *RESTRICT found, const L *RESTRICT losses, const int *RESTRICT targets,
 const int *RESTRICT first_key, const R *RESTRICT reference, i64 of_rank, int samples, int seq, int ranks, int chunk,
 int reads, int ignored, int number, double beta, double smoothing, double right, double wrong)
{
    SHARED double room[BLOCK][SUMS];
    sample        s = { losses, reference, targets, first_key, of_rank, samples, seq, ranks, chunk, reads, ignored };
    kind          k = { number, beta, smoothing, right, wrong };
    double        sum[TOLD] = {}, chosen[SUMS], rejected[SUMS];
    const int    *starts = found + (i64)block_id(0) * (seq + 2) + 1;
    int           sequences = starts[-1];
    ROLLED for (int p = 0; p + 1 < sequences; p += 2) {
        sum_of(s, starts[p], starts[p + 1], room, chosen);
        sum_of(s, starts[p + 1], starts[p + 2], room, rejected);
        if (!(chosen[TARGETS] + rejected[TARGETS] > 0.0)) continue;
        sum[LOSS] += judge(k, chosen[ABOVE] * share_of(k, chosen), rejected[ABOVE] * share_of(k, rejected)).loss;
        sum[CHOSEN] += beta * chosen[ABOVE];
        sum[REJECTED] += beta * rejected[ABOVE];
        sum[RIGHT] += chosen[ABOVE] > rejected[ABOVE] ? 1.0 : 0.0;
        sum[LOGPS_CHOSEN] += chosen[LOGP];
        sum[LOGPS_REJECTED] += rejected[LOGP];
        sum[PAIRS] += 1.0;
    }
    if (thread_id() == 0) UNROLL
        for (int i = 0; i < TOLD; i++) told[(i64)block_id(0) * TOLD + i] = sum[i];
}

/* share: what this rank counts. adds: bit 0 to the loss, bit 1 to the record that are there. */
KERNEL(preference_sum)(f64 *loss, f64 *record, const f64 *RESTRICT told, int samples, int adds, double share)
{
    int    i = thread_id();
    double sum = 0.0;
    if (i >= TOLD) return;
    for (int k = 0; k < samples; k++) sum += told[(i64)k * TOLD + i];
    f64 *to = i == LOSS ? loss : record + i - 1;
    *to = ((adds >> (i == LOSS ? 0 : 1)) & 1 ? *to : 0.0) + share * sum;
}

/* Rows of a sequence without a partner have no gradient. */
KERNEL(preference_loss_grad)
(D *RESTRICT dlosses, const int *RESTRICT found, const L *RESTRICT losses, const int *RESTRICT targets,
 const int *RESTRICT first_key, const R *RESTRICT reference, i64 of_rank, int samples, int seq, int ranks, int chunk,
 int reads, int ignored, int number, double beta, double smoothing, double right, double wrong, const f64 *RESTRICT scale,
 double share)
{
    SHARED double room[BLOCK][SUMS];
    sample        s = { losses, reference, targets, first_key, of_rank, samples, seq, ranks, chunk, reads, ignored };
    kind          k = { number, beta, smoothing, right, wrong };
    double        chosen[SUMS], rejected[SUMS];
    const int    *starts = found + (i64)block_id(0) * (seq + 2) + 1;
    int           sequences = starts[-1];
    ROLLED for (int p = 0; p < sequences; p += 2) {
        bool   pair = p + 1 < sequences;
        int    begin = starts[p], middle = starts[p + 1], end = pair ? starts[p + 2] : middle;
        double of_chosen = 0.0, of_rejected = 0.0;
        if (pair) {
            sum_of(s, begin, middle, room, chosen);
            sum_of(s, middle, end, room, rejected);
            judged is = judge(k, chosen[ABOVE] * share_of(k, chosen), rejected[ABOVE] * share_of(k, rejected));
            of_chosen = -share * *scale * is.chosen * share_of(k, chosen);
            of_rejected = -share * *scale * is.rejected * share_of(k, rejected);
        }
        for (int n = begin + thread_id(); n < end; n += BLOCK) {
            i64 row = s.row(n);
            put(dlosses, row, s.targets[row] == ignored ? 0.0f : (float)(n < middle ? of_chosen : of_rejected));
        }
    }
}
