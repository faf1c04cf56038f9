/* SPDX-License-Identifier: Apache-2.0 */
/* What src/cli/main.c has, which no program of tests is linked with. */
#include "cli/cli.h"

volatile sig_atomic_t tm_cli_stop;

void tm_cli_heed_stop(void)
{
}
