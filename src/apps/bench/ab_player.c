/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/bench/ab_player.h"

#include "base/arena.h"
#include "base/clock.h"
#include "train/run/interleave.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LONGEST_LINE = 1 << 20 };
static const double polite_seconds = 2; /* that a stranger's program has to end by itself */

/* --- start and end ------------------------------------------------------------------------------------------------ */

tm_status ab_player_start(ab_player *player, const char *folder, bool live, tm_error *err)
{
    const tm_ab_program *program = player->program;
    tm_arena            *arena = tm_arena_create();
    size_t               n = 0;
    while (program->argv[n]) n++;
    char **argv = tm_arena_take(arena, (n + 3) * sizeof *argv);
    memcpy(argv, program->argv, n * sizeof *argv);
    if (program->turns) {
        argv[n] = tm_arena_text(arena, "--out");
        argv[n + 1] = tm_arena_format(arena, "%s/%s", folder, player->name);
        for (char *s = strrchr(argv[n + 1], '/'); *s; s++)
            if (*s == ' ') *s = '-';
    }
    static const char *const endless[] = { TM_TURN_ENDLESS "=1", NULL };
    tm_process_options       options = { .argv = argv,
                                         .settings = program->turns && live ? endless : NULL,
                                         .output = !program->turns,
                                         .channel = program->turns ? TM_TURN_VARIABLE : NULL };
    player->steps = 0;
    player->greeted = false;
    player->cut = false;
    player->input.length = 0;
    tm_status st = tm_process_start(&options, &player->process, err);
    tm_arena_destroy(arena);
    return st;
}

void ab_player_end(ab_player *player)
{
    tm_process_close(player->process, player->program->turns ? 0 : polite_seconds);
    player->process = NULL;
}

static tm_status ended_badly(ab_player *p, const char *what, tm_error *err)
{
    int     status = 0;
    char    text[64];
    int64_t until = tm_now_ns() + 1000000000; /* its stream may close a moment before it ends */
    while (!tm_process_ended(p->process, &status) && tm_now_ns() < until)
        (void)tm_process_wait(&p->process, 1, -1, 1000000, NULL);
    const char *how =
        tm_process_ended(p->process, &status) ? tm_process_status_text(status, text) : "it is still alive";
    const char *words = tm_process_last_words(p->process);
    bool        obliged =
        strcmp(what, "exited") == 0 && !p->program->turns && tm_process_ended(p->process, &status) && status == 0;
    const char *who = strncmp(p->name, "A again", 7) == 0 ? "The control copy of A" : p->name;
    return tm_fail(err, TM_INVALID, "%s (%.160s) %s after %lld steps (%s)%s%s%s", who, p->program->text, what,
                   (long long)p->steps, how, obliged ? "; a command must keep printing steps until it is stopped" : "",
                   *words ? "; its last output:\n" : "", words);
}

/* --- lines -------------------------------------------------------------------------------------------------------- */

/* Reads what is there. Returns false at the end of the stream. */
static bool take_in(ab_player *p, int fd)
{
    char part[16384];
    for (;;) {
        ssize_t n = read(fd, part, sizeof part);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno == EAGAIN; /* ECONNRESET is an end */
        if (n == 0) return false;
        tm_text_add_n(&p->input, part, (size_t)n);
        if (p->input.length >= LONGEST_LINE) return true;
    }
}

/* Cuts the next whole line out of the input; *line lives until the next call. A line without end in LONGEST_LINE bytes
 * counts as one. */
static bool next_line(ab_player *p, size_t *cursor, char **line)
{
    char *begin = p->input.data + *cursor, *end;
    if (p->input.length == *cursor) return false;
    end = memchr(begin, '\n', p->input.length - *cursor);
    if (!end && p->input.length - *cursor < LONGEST_LINE) return false;
    if (!end) end = p->input.data + p->input.length - 1;
    *end = '\0';
    if (end > begin && end[-1] == '\r') end[-1] = '\0';
    *line = begin;
    *cursor = (size_t)(end + 1 - p->input.data);
    return true;
}

static void drop_read(ab_player *p, size_t cursor)
{
    p->input.length -= cursor;
    if (p->input.length && cursor) memmove(p->input.data, p->input.data + cursor, p->input.length);
}

static void add_step(tm_text *room, tm_ab_turn *turn, double seconds)
{
    tm_text_add_n(room, (const char *)&seconds, sizeof seconds);
    turn->n++;
}

/* Waits for input of the player; *alive is false when its stream has ended. */
static ab_turn_end wait_for(ab_player *p, int fd, const ab_table *table, bool *alive)
{
    int64_t left = table->until_ns - tm_now_ns();
    *alive = true;
    if (tm_process_wait(table->all, table->n_all, fd, left > 0 ? left : 0, table->stop)) {
        *alive = take_in(p, fd);
        return AB_TURN_DONE;
    }
    return table->stop && *table->stop ? AB_TURN_INTERRUPTED : AB_TURN_OUT_OF_TIME;
}

/* --- a program that knows turns ----------------------------------------------------------------------------------- */

/* "step NUMBER SECONDS TOKENS" */
static bool read_step(const char *line, int64_t *number, double *seconds, int64_t *tokens)
{
    char *end;
    if (strncmp(line, "step ", 5) != 0) return false;
    *number = strtoll(line + 5, &end, 10);
    if (*end != ' ') return false;
    *seconds = strtod(end, &end);
    if (*end != ' ') return false;
    *tokens = strtoll(end, &end, 10);
    return !*end && *number > 0 && *seconds > 0 && *tokens >= 0;
}

/* One line of train/run/interleave.h; *paused when the turn is over. */
static bool hear(ab_player *p, const char *line, tm_text *room, tm_ab_turn *turn, bool *paused)
{
    int64_t number, tokens;
    double  seconds;
    if (!p->greeted) return p->greeted = strcmp(line, TM_TURN_HELLO) == 0;
    *paused = strcmp(line, "pause") == 0;
    if (*paused) return true;
    if (!read_step(line, &number, &seconds, &tokens)) return false;
    if (turn->n == 0) turn->first_step = number;
    add_step(room, turn, seconds);
    turn->work += (double)tokens;
    p->steps++;
    return true;
}

static tm_status misheard(const ab_player *p, const char *line, tm_error *err)
{
    if (!p->greeted && strncmp(line, TM_TURN_HELLO, strlen(TM_TURN_HELLO) - 1) == 0)
        return tm_fail(err, TM_INVALID,
                       "%s (%.160s) uses another turn protocol: it sends '%.40s', this program knows '" TM_TURN_HELLO
                       "'; name it with --a-command or --b-command",
                       p->name, p->program->text, line);
    return tm_fail(err, TM_INVALID, "%s: not a line of the turn protocol: '%.100s'", p->name, line);
}

static tm_status told_turn(ab_player *p, double seconds, const ab_table *table, tm_text *room, tm_ab_turn *turn,
                           ab_turn_end *end, tm_error *err)
{
    char    order[64];
    int     fd = tm_process_channel(p->process);
    bool    alive = true, paused = false;
    int     n = snprintf(order, sizeof order, isinf(seconds) ? "turn inf\n" : "turn %.6f\n", seconds);
    ssize_t sent = write(fd, order, (size_t)n); /* a few bytes into an empty socket; a dead reader shows below */
    (void)sent;
    tm_process_continue(p->process);
    while (!paused && alive) {
        char  *line;
        size_t cursor = 0;
        *end = wait_for(p, fd, table, &alive);
        if (*end != AB_TURN_DONE) return tm_process_stop(p->process, err);
        while (!paused && next_line(p, &cursor, &line))
            if (!hear(p, line, room, turn, &paused)) return misheard(p, line, err);
        drop_read(p, cursor);
    }
    if (paused) return tm_process_stop(p->process, err);
    if (!p->greeted) {
        return ended_badly(p,
                           "does not know the turn protocol (" TM_TURN_VARIABLE
                           "; name an older version with --a-command or "
                           "--b-command) or exited",
                           err);
    }
    return isinf(seconds) ? TM_OK : ended_badly(p, "exited", err);
}

/* --- any other program -------------------------------------------------------------------------------------------- */

/* Lines that are steps among those read so far. */
static int64_t count_steps(ab_player *p)
{
    int64_t found = 0;
    size_t  cursor = 0;
    char   *line;
    while (next_line(p, &cursor, &line)) found += !p->pattern || regexec(p->pattern, line, 0, NULL, 0) == 0;
    drop_read(p, cursor);
    return found;
}

/* The steps whose lines came together share the time since the lines before. */
static void share(ab_player *p, int64_t steps, double seconds, tm_text *room, tm_ab_turn *turn)
{
    if (turn->n == 0) turn->first_step = p->steps + 1;
    for (int64_t i = 0; i < steps; i++) add_step(room, turn, seconds / (double)steps);
    p->steps += steps;
}

static tm_status watched_turn(ab_player *p, double seconds, const ab_table *table, tm_text *room, tm_ab_turn *turn,
                              ab_turn_end *end, tm_error *err)
{
    int     fd = tm_process_output(p->process);
    bool    alive = true;
    int64_t begin = tm_now_ns(), last = begin;
    tm_process_continue(p->process);
    while (alive && (turn->n == 0 || !((double)(last - begin) * 1e-9 >= seconds))) {
        *end = wait_for(p, fd, table, &alive);
        if (*end != AB_TURN_DONE) break;
        int64_t now = tm_now_ns(), steps = count_steps(p);
        if (steps == 0) continue;
        if (p->cut) { /* the rest of the step that the stop cut; the turn begins here */
            p->cut = false;
            turn->cut += steps;
            p->steps += steps;
            begin = now;
        } else {
            share(p, steps, (double)(now - last) * 1e-9, room, turn);
        }
        last = now;
    }
    if (!alive) return isinf(seconds) ? TM_OK : ended_badly(p, "exited", err);
    TM_TRY(tm_process_stop(p->process, err));
    p->cut = true;
    (void)take_in(p, fd);
    int64_t late = count_steps(p); /* done between the decision and the stop: nobody knows when */
    turn->cut += late;
    p->steps += late;
    return TM_OK;
}

/* A whole run has ended; did it end well? */
static tm_status check_end(ab_player *p, const ab_table *table, tm_error *err)
{
    int status = 0;
    while (!tm_process_ended(p->process, &status)) { /* its stream is closed: it is about to end */
        if (tm_now_ns() > table->until_ns || (table->stop && *table->stop))
            return ended_badly(p, "closed its output and does not end", err);
        (void)tm_process_wait(table->all, table->n_all, -1, 1000000, table->stop);
    }
    return status == 0 ? TM_OK : ended_badly(p, "failed", err);
}

tm_status ab_player_turn(ab_player *player, double seconds, const ab_table *table, tm_text *room, tm_ab_turn *turn,
                         ab_turn_end *end, tm_error *err)
{
    room->length = 0;
    *end = AB_TURN_DONE;
    TM_TRY((player->program->turns ? told_turn : watched_turn)(player, seconds, table, room, turn, end, err));
    turn->seconds = (double *)(void *)room->data;
    if (*end == AB_TURN_DONE && isinf(seconds)) TM_TRY(check_end(player, table, err));
    if (*end == AB_TURN_DONE && turn->n == 0) return ended_badly(player, "printed no line of a step", err);
    return TM_OK;
}
