/* SPDX-License-Identifier: Apache-2.0 */
/* results/chart_style.c - the colours of all charts, for light pages and for dark ones. */
#include "results/chart.h"

/* Plain, light, dark, pale: blue, vermilion, green, purple, orange, sky, olive, grey. tests/results/test_page.c says
 * how far apart they are. */
#define LIGHT                                                                                                          \
    "--c0:#0072b2;--c1:#7f9fd6;--c2:#14375e;--c3:#b4c3ea;--c4:#d55e00;--c5:#f4a27c;--c6:#7a2f00;--c7:#f4cfb3;"         \
    "--c8:#009e73;--c9:#7acdb6;--c10:#00543d;--c11:#bde6db;--c12:#cc79a7;--c13:#e4b9d1;--c14:#7d3a5d;--c15:#f2dce8;"   \
    "--c16:#e69f00;--c17:#f8cf6e;--c18:#8f6200;--c19:#fbe3a8;--c20:#56b4e9;--c21:#aee3ee;--c22:#2b8a9e;--c23:#cdf3f6;" \
    "--c24:#a5a100;--c25:#d0ce7a;--c26:#5c5a00;--c27:#e8e7bd;--c28:#6b7280;--c29:#b2b6bd;--c30:#34383f;--c31:#d9dade;"
#define DARK                                                                                                           \
    "--c0:#3f9ad6;--c1:#a3bce6;--c2:#2f5f94;--c3:#c3cff0;--c4:#e27a2c;--c5:#f6b797;--c6:#9c4f1c;--c7:#f7d5bd;"         \
    "--c8:#24b88c;--c9:#97dbc8;--c10:#1f7a60;--c11:#c6eae0;--c12:#d98fb9;--c13:#edcade;--c14:#97507a;--c15:#f4e1eb;"   \
    "--c16:#eeac1c;--c17:#fadb8c;--c18:#a8781c;--c19:#ffe9ad;--c20:#70c4f2;--c21:#c0ebf3;--c22:#3f9cb0;--c23:#d9f7f8;" \
    "--c24:#b8b420;--c25:#dcda92;--c26:#77751c;--c27:#ebeac6;--c28:#8b93a1;--c29:#bdc0c6;--c30:#565c66;--c31:#dfe0e4;"
#define COLOUR(n) ".c" #n "{fill:var(--c" #n ")}.s" #n "{stroke:var(--c" #n ")}"
#define HUE(a, b, c, d) COLOUR(a) COLOUR(b) COLOUR(c) COLOUR(d)

const char *chart_style(void)
{
    return ":root{--ink:#1b1f24;--soft:#59636e;--line:#d1d9e0;--page:#fff;--card:#f6f8fa;--shade:#0969da14;" LIGHT "}\n"
           "@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9198a1;--line:#3d444d;--page:#0d1117;"
           "--card:#151b23;--shade:#4493f826;" DARK "}}\n"
           "svg.chart{width:100%;height:auto;background:var(--page);font:12px system-ui,sans-serif}"
           "svg.chart text{fill:var(--ink)}svg.chart .soft{fill:var(--soft)}"
           "svg.chart .title{font-weight:600;font-size:14px}"
           "svg.chart .grid{stroke:var(--line);stroke-width:1}svg.chart .shade{fill:var(--shade)}"
           "svg.chart .axis{stroke:var(--ink);stroke-width:1.5;fill:none}svg.chart .leader{stroke:var(--soft)}"
           "svg.chart polyline{fill:none;stroke-width:1.8;stroke-linejoin:round}"
           "svg.chart .dashed{stroke-dasharray:6 4}svg.chart .mark{fill:var(--page);stroke-width:2}"
           "svg.chart .part{stroke:var(--page);stroke-width:.6}svg.chart .hit{fill:transparent}\n" HUE(0, 1, 2, 3)
               HUE(4, 5, 6, 7) HUE(8, 9, 10, 11) HUE(12, 13, 14, 15) HUE(16, 17, 18, 19) HUE(20, 21, 22, 23)
                   HUE(24, 25, 26, 27) HUE(28, 29, 30, 31) "\n";
}
