/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/rates.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double US = 1e-6, GIGA = 1e9, TERA = 1e12;

static double number(const tm_hardware *hw, tm_hardware_number which)
{
    return hw->number[which];
}

/* --- within a device ------------------------------------------------------------------------------------------------
 */

double tm_rate_best(const tm_hardware *hw, tm_rate_format format)
{
    static const tm_hardware_number of[] = { TM_HARDWARE_PRODUCT_F32, TM_HARDWARE_PRODUCT_BF16, TM_HARDWARE_PRODUCT_FP8,
                                             TM_HARDWARE_PRODUCT_FP4 };
    return number(hw, of[format]);
}

double tm_rate_peak(const tm_hardware *hw, tm_rate_format format)
{
    static const tm_hardware_number of[] = { TM_HARDWARE_PEAK_F32, TM_HARDWARE_PEAK_BF16, TM_HARDWARE_PEAK_FP8,
                                             TM_HARDWARE_PEAK_FP4 };
    return number(hw, of[format]);
}

/* Of a last wave that is not full, splits of k get back about half of what is lost. */
double tm_product_share(const tm_hardware *hw, double m, double n, double k, double count)
{
    double rows = number(hw, TM_HARDWARE_TILE_ROWS), columns = number(hw, TM_HARDWARE_TILE_COLUMNS);
    double tiles = ceil(m / rows) * ceil(n / columns);
    double full = m * n / (tiles * rows * columns);
    double waves = tiles * count / number(hw, TM_HARDWARE_UNITS);
    return full * sqrt(waves / ceil(waves)) * k / (k + number(hw, TM_HARDWARE_HALF_DEPTH));
}

static double memory_rate(const tm_hardware *hw)
{
    return number(hw, TM_HARDWARE_MEMORY_RATE) * number(hw, TM_HARDWARE_MEMORY_SHARE) * GIGA;
}

double tm_time_product(const tm_hardware *hw, tm_rate_format format, double m, double n, double k, double count,
                       double bytes, double launches)
{
    double rate = tm_rate_best(hw, format) * TERA * tm_product_share(hw, m, n, k, count);
    return fmax(2 * m * n * k * count / rate, bytes / memory_rate(hw)) + launches * number(hw, TM_HARDWARE_LAUNCH) * US;
}

double tm_time_stream(const tm_hardware *hw, double bytes, double vector, double launches)
{
    double rate = number(hw, TM_HARDWARE_VECTOR_RATE) * TERA;
    return fmax(bytes / memory_rate(hw), rate > 0 ? vector / rate : 0) + launches * number(hw, TM_HARDWARE_LAUNCH) * US;
}

/* The rates in the file are those of heads of 128: the exponentials of a pair cost the same whatever the width. */
double tm_time_attention(const tm_hardware *hw, bool backward, double flops, double width, double launches)
{
    double rate = number(hw, backward ? TM_HARDWARE_ATTENTION_BACKWARD : TM_HARDWARE_ATTENTION_FORWARD) * TERA;
    double narrow = width < 128 ? 2 * width / (width + 128) : 1;
    return flops / (rate * narrow) + launches * number(hw, TM_HARDWARE_LAUNCH) * US;
}

/* --- ops ------------------------------------------------------------------------------------------------------------
 */

static bool is_number(const tm_view *view)
{
    return tm_view_present(view) && tm_dtype_floating(view->dtype);
}

void tm_hardware_op_name(const tm_call *call, char out[TM_OP_NAME_BYTES])
{
    int k = 0;
    while (k + 1 < call->op->n_in && !is_number(&call->in[k])) k++;
    bool usual = !is_number(&call->in[k]) || call->in[k].dtype == TM_F32;
    snprintf(out, TM_OP_NAME_BYTES, "%s%s%s", call->op->name, usual ? "" : ".",
             usual ? "" : tm_dtype_name(call->in[k].dtype));
}

double tm_time_op(const tm_hardware *hw, const tm_call *call, const tm_cost *cost)
{
    char name[TM_OP_NAME_BYTES];
    if (hw->n_ops == 0) return -1;
    tm_hardware_op_name(call, name);
    for (size_t i = 0; i < hw->n_ops; i++) {
        const tm_hardware_op *op = &hw->op[i];
        if (strcmp(op->name, name) != 0) continue;
        return op->call * US + (op->flops > 0 ? cost->flops / (op->flops * TERA) : 0) +
               (op->bytes > 0 ? cost->bytes / (op->bytes * GIGA) : 0);
    }
    return -1;
}

/* --- between devices ------------------------------------------------------------------------------------------------
 */

tm_group_plan tm_group_plan_of(const tm_machine_plan *machine, int ranks, int stride)
{
    int reach = (int)number(&machine->device, TM_HARDWARE_LINK_DEVICES);
    if (reach < machine->devices) reach = machine->devices;
    if (machine->nodes == 1 && machine->devices > reach) reach = machine->devices;
    int near = reach / stride;
    if (near < 1) near = 1;
    if (near > ranks) near = ranks;
    while (ranks % near) near--;
    return (tm_group_plan){ .ranks = ranks, .near = near };
}

/* Bytes a second that a device sends to near - 1 others: over a switch at the full rate, in a mesh over one link for
 * each of them. */
static double near_rate(const tm_hardware *hw, int near)
{
    double peers = number(hw, TM_HARDWARE_LINK_DEVICES) - 1;
    double part = hw->links == TM_LINKS_MESH && peers > 0 ? fmin(1, (near - 1) / peers) : 1;
    return number(hw, TM_HARDWARE_LINK_RATE) * number(hw, TM_HARDWARE_LINK_SHARE) * part * GIGA;
}

static double far_rate(const tm_hardware *hw)
{
    return number(hw, TM_HARDWARE_NIC_RATE) * number(hw, TM_HARDWARE_NIC_SHARE) * GIGA;
}

/* Shares of the tensor go round once in a gather or a scatter, twice in an all-reduce; within a node and between the
 * nodes at the same time, as chunks: the longer of both. Within a node in n - 1 steps at most, between k nodes in
 * log2(k): a tree. All-to-all: to each the same share. */
double tm_time_move(const tm_hardware *hw, tm_move move, double bytes, tm_group_plan group)
{
    if (group.ranks <= 1 || bytes <= 0) return 0;
    double n = group.ranks, g = group.near, k = n / g, rounds = move == TM_MOVE_ALL_REDUCE ? 2 : 1;
    double delay = 0, inside = 0, between = 0;
    if (g > 1) {
        double steps = hw->links == TM_LINKS_MESH ? 1 : log2(g);
        delay += rounds * steps * number(hw, TM_HARDWARE_LINK_DELAY) * US;
        inside = move == TM_MOVE_ALL_TO_ALL ? bytes * (g - 1) / n : rounds * bytes * (g - 1) / g;
        inside /= near_rate(hw, group.near);
    }
    if (k > 1) {
        delay += rounds * log2(k) * number(hw, TM_HARDWARE_NIC_DELAY) * US;
        between = move == TM_MOVE_ALL_TO_ALL ? bytes * (n - g) / n : rounds * bytes / g * (k - 1) / k;
        between /= far_rate(hw);
    }
    return delay + fmax(inside, between);
}

double tm_time_send(const tm_hardware *hw, double bytes, bool near)
{
    return near ? bytes / near_rate(hw, 2) + number(hw, TM_HARDWARE_LINK_DELAY) * US
                : bytes / far_rate(hw) + number(hw, TM_HARDWARE_NIC_DELAY) * US;
}
