/* SPDX-License-Identifier: Apache-2.0 */
/* The panel on a made-up terminal (screen.h): what stands on the screen after every frame, the places of the curve's
 * points read back from the characters, and what is left at the end. On real terminals: tests/cli/test_panel.sh. */
#include "base/log.h"
#include "base/random.h"
#include "record/panel.h"
#include "record/panel_frame.h"
#include "record/record.h"
#include "screen.h"
#include "support/fake_run.h"
#include "support/test.h"

/* What a panel has written since the last call goes to the screen. */
typedef struct {
    FILE  *file;
    char  *data;
    size_t bytes, shown;
    screen on;
} viewer;

static void open_viewer(viewer *v, int width, int height)
{
    *v = (viewer){ 0 };
    v->file = open_memstream(&v->data, &v->bytes);
    assert_non_null(v->file);
    screen_open(&v->on, width, height);
}

static void look(viewer *v)
{
    fflush(v->file);
    screen_write(&v->on, v->data + v->shown, v->bytes - v->shown);
    v->shown = v->bytes;
}

static void close_viewer(viewer *v)
{
    fclose(v->file);
    free(v->data);
    screen_close(&v->on);
}

/* Numbers of a seed, one after the other. */
typedef struct {
    uint64_t seed, index;
} dice;

static uint64_t below(dice *random, uint64_t n)
{
    return tm_random_below(random->seed, 1, random->index++, n);
}

static tm_event started(int64_t steps)
{
    return (tm_event){ .kind = TM_EVENT_RUN_STARTED,
                       .run_started = { .model = "tiny",
                                        .device = "cpu",
                                        .first_step = 1,
                                        .steps = steps,
                                        .loss_floor = (double)NAN,
                                        .devices = 1,
                                        .memory_limit_bytes = INT64_C(1) << 34 } };
}

static tm_event stepped(int64_t step, double loss)
{
    static const tm_named_f64 phases[] = { { "forward linear", 0.03 },
                                           { "forward attention", 0.01 },
                                           { "backward linear", 0.06 },
                                           { "backward attention", 0.02 },
                                           { "optimizer", 0.01 },
                                           { "data", 0.001 },
                                           { "a phase with a name that is longer than its place", 0.002 } };
    return (tm_event){ .kind = TM_EVENT_STEP_DONE,
                       .step_done = { .step = step,
                                      .loss = loss,
                                      .tokens = 4096,
                                      .seconds = 0.1 + 0.01 * (double)(step % 7),
                                      .phases = phases,
                                      .n_phases = 7,
                                      .used_bytes = 123456789,
                                      .gpu_clock_mhz = 1980,
                                      .gpu_temperature_c = 61 } };
}

static tm_event evaluated(int64_t step, double loss)
{
    return (tm_event){ .kind = TM_EVENT_EVALUATION, .evaluation = { .step = step, .loss = loss, .seconds = 0.3 } };
}

/* Above the panel there is what was said, below it nothing; the frame is that of the size the terminal has. */
static void check_screen(viewer *v, const tm_text *said, const panel_data *data, bool utf8)
{
    static canvas picture;
    tm_text       wanted = { 0 }, found = { 0 };
    panel_frame(data, v->on.width, v->on.height, utf8, &picture);
    tm_text_add_n(&wanted, said->data, said->length);
    for (int y = 0; y < picture.rows; y++) {
        assert_true(canvas_line(&picture, y, false, &wanted) < v->on.width);
        tm_text_add(&wanted, "\n");
    }
    screen_lines(&v->on, &found);
    assert_string_equal(found.data, wanted.data);
    assert_int_equal(v->on.x, 0);
    assert_int_equal(v->on.y, v->on.n - 1);
    assert_true(picture.rows <= v->on.height / 2);
    tm_text_fini(&wanted);
    tm_text_fini(&found);
}

static void one_run(uint64_t seed, bool colour, bool utf8)
{
    static panel_data data;
    dice              random = { seed, 0 };
    tm_terminal_size  size = { 30 + (int)below(&random, 170), 60 };
    tm_text           said = { 0 };
    viewer            v;
    open_viewer(&v, size.columns, size.rows);
    tm_panel *panel = tm_panel_create(&(tm_panel_options){ v.file, colour, utf8, &size });
    tm_event  event = started(below(&random, 2) ? 300 : 0);
    tm_text_add(&said, "");
    tm_panel_take(panel, &event);
    panel_data_take(&data, &event);
    for (int64_t step = 1; step <= 60; step++) {
        event = stepped(step, 3 + 4.0 / (double)step + (double)below(&random, 100) * 1e-3);
        if (below(&random, 20) == 0) event.step_done.loss = (double)NAN;
        tm_panel_take(panel, &event);
        panel_data_take(&data, &event);
        if (below(&random, 8) == 0) {
            event = evaluated(step, 3.5);
            tm_panel_take(panel, &event);
            panel_data_take(&data, &event);
        }
        for (uint64_t n = below(&random, 3); n > 0; n--) {
            char line[400];
            snprintf(line, sizeof line, "step: %d  %0*d\n", (int)step, (int)below(&random, 250), 7);
            tm_panel_above(panel, line);
            tm_text_add(&said, line);
        }
        tm_panel_draw(panel, true);
        look(&v);
        check_screen(&v, &said, &data, utf8);
        assert_true(v.on.widest <= v.on.width);
        if (below(&random, 6) > 0) continue;
        size.columns = 30 + (int)below(&random, 170);
        screen_resize(&v.on, size.columns, size.rows);
    }
    assert_int_equal(v.on.colours > 0, colour);
    tm_panel_destroy(panel);
    look(&v);
    tm_text left = { 0 };
    screen_lines(&v.on, &left);
    assert_string_equal(left.data, said.data); /* nothing of the panel stays */
    for (size_t i = 0; i < v.bytes; i++) assert_true(utf8 || (unsigned char)v.data[i] < 0x80);
    tm_text_fini(&left);
    tm_text_fini(&said);
    close_viewer(&v);
}

TEST(the_screen_after_every_frame)
{
    for (uint64_t seed = 1; seed <= 12; seed++) one_run(seed, seed % 2, seed % 3);
}

/* --- the curve, read back ----------------------------------------------------------------------------------------- */

/* The curve's dots of a row of text; the label in front of it is 9 cells. */
static void read_dots(const char *line, bool utf8, int y, int width, bool dots[64][640])
{
    static const unsigned char bits[4][2] = { { 0x01, 0x08 }, { 0x02, 0x10 }, { 0x04, 0x20 }, { 0x40, 0x80 } };
    for (int x = 0; *line && x < width + 9; x++) {
        const char *next = line;
        tm_terminal_next(&next);
        unsigned dot = (unsigned char)line[0] == 0xE2 && ((unsigned char)line[1] & 0xFC) == 0xA0
                           ? ((unsigned char)line[1] & 3U) << 6 | ((unsigned char)line[2] & 0x3FU)
                           : 0;
        for (int dy = 0; dy < 4 && x >= 9 && utf8; dy++)
            for (int dx = 0; dx < 2; dx++) dots[4 * y + dy][2 * (x - 9) + dx] = dot & bits[dy][dx];
        if (!utf8 && x >= 9) dots[y][x - 9] = *line == '*';
        line = next;
    }
}

/* Each loss has a dot in the column of its step whose height is the loss, within half a dot; and no dot is farther from
 * the curve than its neighbours are. */
static void check_curve(uint64_t seed, int columns, bool utf8)
{
    enum { STEPS = 50 };
    static panel_data data;
    static canvas     picture;
    static bool       dots[64][640];
    double            losses[STEPS + 1], labels[2];
    dice              random = { seed, 0 };
    tm_event          event = started(100);
    int               rows = 0, down = utf8 ? 4 : 1, across = utf8 ? 2 : 1;
    memset(dots, 0, sizeof dots);
    panel_data_take(&data, &event);
    for (int64_t step = 1; step <= STEPS; step++) {
        losses[step] = 2 + 6 / (double)step + (double)below(&random, 1000) * 1e-3;
        event = stepped(step, losses[step]);
        panel_data_take(&data, &event);
    }
    panel_frame(&data, columns, 48, utf8, &picture);
    int width = columns - 1 - 9 - (columns >= 120 ? 46 : 0);
    for (int y = 1; y < picture.rows; y++) {
        tm_text line = { 0 };
        canvas_line(&picture, y, false, &line);
        bool label = line.length > 8 && strspn(line.data, " 0123456789.") >= 8;
        bool curve = label || (line.length > 9 && strncmp(line.data, "         ", 9) == 0);
        if (label) labels[rows > 0] = strtod(line.data, NULL);
        if (curve) read_dots(line.data, utf8, rows++, width, dots);
        tm_text_fini(&line);
    }
    assert_true(rows >= 4);
    double cell = (labels[0] - labels[1]) / (rows * down - 1);
    int    found = 0, last_x = 0;
    for (int step = 1; step <= STEPS; step++) {
        int    x = (int)lround((step - 1) / (double)(STEPS - 1) * (width * across - 1));
        double nearest = INFINITY;
        for (int y = 0; y < rows * down; y++)
            if (dots[y][x]) nearest = fmin(nearest, fabs(labels[0] - y * cell - losses[step]));
        if (!(nearest <= 0.5001 * cell + 1e-4))
            fail_msg("step %d, column %d: %g away, a dot is %g", step, x, nearest, cell);
        double low = fmin(losses[step], losses[step > 1 ? step - 1 : 1]) - 0.51 * cell - 1e-4;
        double high = fmax(losses[step], losses[step > 1 ? step - 1 : 1]) + 0.51 * cell + 1e-4;
        for (int between = last_x + 1; between < x; between++)
            for (int y = 0; y < rows * down; y++)
                if (dots[y][between]) {
                    double value = labels[0] - y * cell;
                    if (value < low - cell || value > high + cell) fail_msg("column %d: a dot at %g", between, value);
                    found++;
                }
        last_x = x;
    }
    assert_true(found > 0 || width * across < 2 * STEPS);
}

TEST(the_curve_is_where_the_losses_are)
{
    static const int columns[] = { 80, 100, 119, 120, 160, 240 };
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        for (uint64_t seed = 1; seed <= 5; seed++) check_curve(seed, columns[i], seed % 2);
}

/* --- figures --- */

/* Bars: the shares that are printed are those of the phases. The time left: steps to do at the pace so far. */
TEST(shares_and_the_time_left)
{
    static panel_data data;
    static canvas     picture;
    tm_event          event = started(1000);
    tm_text           text = { 0 };
    panel_data_take(&data, &event);
    for (int64_t step = 1; step <= 100; step++) {
        event = stepped(step, 5 - 0.01 * (double)step);
        event.step_done.seconds = step == 1 ? 30 : 2; /* the first one is no measure of those to come */
        panel_data_take(&data, &event);
    }
    panel_frame(&data, 100, 40, true, &picture);
    for (int y = 0; y < picture.rows; y++) {
        canvas_line(&picture, y, false, &text);
        tm_text_add(&text, "\n");
    }
    assert_non_null(strstr(text.data, "3:48, ETA 30:00\n"));
    assert_non_null(strstr(text.data, "backward linear       45 % ")); /* 0.06 of 0.133 */
    assert_non_null(strstr(text.data, "forward linear        23 % "));
    assert_non_null(strstr(text.data, "loss 4.0000")); /* the last one */
    assert_non_null(strstr(text.data, "2,048 tokens/s "));
    assert_non_null(strstr(text.data, "memory 117.74 MiB of 16.00 GiB (0.7 %)  61 °C  1980 MHz\n"));
    tm_text_fini(&text);
}
