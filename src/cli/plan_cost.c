/* SPDX-License-Identifier: Apache-2.0 */
/* What a training costs in `plan`: money, energy, days, and what failures add. */
#include "base/json.h"
#include "cli/plan_one.h"
#include "plan/goodput.h"
#include "results/convert.h"

typedef struct {
    double seconds, dollars, joules; /* of a token, all devices; failures counted */
    double tokens;                   /* that are asked for; 0: none */
    double between, interval;        /* seconds from failure to failure, and from checkpoint to checkpoint; 0: none */
    double goodput;                  /* 1: no failures */
} cost;

/* Of a job whose every node fails so often. */
static void add_failures(const plan_one *p, cost *c)
{
    if (p->cli.failures <= 0) return;
    tm_failures f = { .save = p->cli.save_s, .restart = p->cli.restart_s };
    f.between = c->between = 86400e3 / (p->cli.failures * p->cli.machine->nodes);
    c->interval = tm_checkpoint_interval(&f);
    c->goodput = tm_goodput(&f, c->interval);
}

static cost cost_of(const plan_one *p, double tokens_per_second)
{
    double devices = (double)p->cli.machine->nodes * p->cli.machine->devices;
    double watts = p->cli.watts > 0 ? p->cli.watts : p->cli.machine->device.number[TM_HARDWARE_POWER];
    cost   c = { .goodput = 1, .tokens = p->cli.tokens ? tm_token_count(p->cli.tokens) : 0 };
    add_failures(p, &c);
    c.seconds = 1 / (tokens_per_second * c.goodput);
    c.dollars = p->cli.price * devices / 3600 * c.seconds;
    c.joules = watts * devices * c.seconds;
    return c;
}

void plan_print_cost(const plan_one *p, double tokens_per_second, tm_text *out)
{
    cost c = cost_of(p, tokens_per_second);
    if (c.between > 0)
        tm_text_printf(out, "a failure every %.3g h: a checkpoint every %.3g min leaves %.1f %% of the time\n",
                       c.between / 3600, c.interval / 60, 100 * c.goodput);
    if (p->cli.price > 0) tm_text_printf(out, "cost: %.4g USD for a million tokens\n", 1e6 * c.dollars);
    if (c.joules > 0)
        tm_text_printf(out, "energy: %.4g kWh for a million tokens, of the devices\n", 1e6 * c.joules / 3.6e6);
    if (c.tokens <= 0) return;
    tm_text_printf(out, "%.4g tokens: %.4g days", c.tokens, c.tokens * c.seconds / 86400);
    if (c.dollars > 0) tm_text_printf(out, ", %.4g USD", c.tokens * c.dollars);
    if (c.joules > 0) tm_text_printf(out, ", %.4g MWh", c.tokens * c.joules / 3.6e9);
    tm_text_add(out, c.between > 0 ? ", failures counted\n" : ", without failures and pauses\n");
}

void plan_cost_json(const plan_one *p, double tokens_per_second, tm_json *json)
{
    cost c = cost_of(p, tokens_per_second);
    tm_json_open(json, "cost", '{');
    if (c.between > 0) tm_json_f64(json, "seconds_between_failures", c.between);
    if (c.between > 0) tm_json_f64(json, "checkpoint_interval_s", c.interval);
    if (c.between > 0) tm_json_f64(json, "goodput", c.goodput);
    if (c.dollars > 0) tm_json_f64(json, "usd_per_million_tokens", 1e6 * c.dollars);
    if (c.joules > 0) tm_json_f64(json, "kwh_per_million_tokens", 1e6 * c.joules / 3.6e6);
    if (c.tokens > 0) tm_json_f64(json, "tokens", c.tokens);
    if (c.tokens > 0) tm_json_f64(json, "days", c.tokens * c.seconds / 86400);
    if (c.tokens > 0 && c.dollars > 0) tm_json_f64(json, "usd", c.tokens * c.dollars);
    if (c.tokens > 0 && c.joules > 0) tm_json_f64(json, "mwh", c.tokens * c.joules / 3.6e9);
    tm_json_close(json, '}');
}
