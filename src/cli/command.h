/* SPDX-License-Identifier: Apache-2.0 */
/* cli/command.h - what a command is: a row of what it takes. Parsing, `--help`, errors, man pages and completion come
 * from the same row:
 *
 *     typedef struct { const char *out; int64_t seq; bool json; } pack_options;
 *
 *     static const tm_option options[] = {
 *         { "out", 'o', TM_OPTION_TEXT, offsetof(pack_options, out), .value = "FILE", .required = true, .help = "..."
 * }, { "seq-len", 0, TM_OPTION_I64, offsetof(pack_options, seq), .value = "N", .fallback = "8192", .lo = 2, .hi = 1 <<
 * 24, .help = "tokens in a row" }, TM_OPTION_JSON(pack_options),
 *     };
 *     static tm_status pack(tm_cli_line *line, tm_error *err) { const pack_options *o = line->options; ... }
 *
 *     const tm_cli_command tm_data_command_pack = {
 *         .name = "pack", .summary = "make a token file of text", .words = "PATH", .least = 1, .most = 1,
 *         TM_CLI_OPTIONS(options, pack_options), .run = pack,
 *     };
 *
 * and a line in commands.def (or mlperf.def, data.def, tokenizer.def). */
#ifndef TM_CLI_COMMAND_H
#define TM_CLI_COMMAND_H

#include "base/arena.h"
#include "base/status.h"
#include "base/text.h"
#include "config/config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the option's member of the struct is. */
typedef enum {
    TM_OPTION_FLAG,   /* bool; takes no value */
    TM_OPTION_TEXT,   /* const char *, NULL: not given */
    TM_OPTION_CHOICE, /* const char *, one of `choices` as written there */
    TM_OPTION_LIST,   /* tm_cli_list; may be given several times */
    TM_OPTION_I64,    /* int64_t */
    TM_OPTION_F64,    /* double */
    TM_OPTION_BYTES,  /* int64_t: "192GiB", "2 TB", "1048576" */
} tm_option_kind;

/* An option: --name VALUE, --name=VALUE, or -letter VALUE. In names '-' and '_' are the same. */
typedef struct {
    const char    *name;
    char           letter; /* 0: none; not h, q or v, which every command takes */
    tm_option_kind kind;
    size_t         at;    /* offsetof(struct, member) */
    const char    *value; /* what help calls the value: "FILE", "N"; FILE, DIR, PATH, PREFIX, RUN complete as paths */
    const char    *fallback; /* the default as text; NULL: the member stays zero */
    double         lo, hi;   /* numbers: both included; lo == hi: any */
    const char    *choices;  /* TM_OPTION_CHOICE: "a|b|c" */
    bool           required, may_be_empty;
    const char    *help; /* a phrase in lower case, without the default and the range */
} tm_option;

typedef struct {
    const char *item[16];
    int         n;
} tm_cli_list;

typedef struct tm_cli_command tm_cli_command;

/* A command line that was read. Strings are those of argv. */
typedef struct {
    const tm_cli_command *command;
    const char           *name;    /* as typed behind `trainmark`: "data pack" */
    void                 *options; /* the command's struct, filled; zero if the command reads its line itself */
    uint64_t              given;   /* a bit for each option row that was on the line */
    char                **words;   /* (n_words) what is no option */
    int                   n_words;
    int                   argc; /* the line from the command's name on: argv[0] is "pack" */
    char                **argv;
    bool                  quiet, verbose; /* -q: errors and results only; -v: more than usual */
    tm_arena             *arena;          /* lives as long as the line */
} tm_cli_line;

struct tm_cli_command {
    const char *name, *summary; /* one word; one line in lower case */
    const char *words;          /* positional arguments as the usage line shows them: "PATH", "RUN...", "[SECTION]" */
    int         least, most;    /* how many; most < 0: any number */
    const char *about;          /* paragraphs for help and man page; lines are filled, those that begin with two spaces
                                 * stay as they are */
    const tm_option *options;
    size_t           n_options, size; /* size: of the struct */
    /* Takes options besides `options`: the rows of a configuration, which the caller destroys. */
    tm_config *(*keys)(const tm_cli_command *command);
    const char *first_keys; /* "a,b,c": the keys that --help shows; NULL: all. `keys_help` says how to see all */
    const char *keys_help;
    bool        passes; /* words and options that have no row are passed on to another program: line->words */
    bool        reads;  /* `run` reads the line itself, with tm_cli_take: line->options is zero, nothing is checked */
    /* Commands below this one ("data pack"). */
    const tm_cli_command *const *commands;                              /* NULL-terminated, or NULL */
    const tm_cli_command *(*nested)(size_t i, tm_cli_command *storage); /* or made on demand: NULL at the end */
    tm_status (*run)(tm_cli_line *line, tm_error *err); /* NULL: it only has commands; with them: where none is named */
};

#define TM_CLI_OPTIONS(rows, type) .options = (rows), .n_options = sizeof(rows) / sizeof(rows)[0], .size = sizeof(type)

/* Rows that several commands have. */
#define TM_OPTION_JSON(type)                                                                                           \
    {                                                                                                                  \
        "json", 0, TM_OPTION_FLAG, offsetof(type, json), .help = "print the result as JSON"                            \
    }

/* Of commands that compute a folder's model; members device, isa (text), threads (int64_t). */
#define TM_OPTION_DEVICE(type)                                                                                         \
    { "device",                                                                                                        \
      0,                                                                                                               \
      TM_OPTION_TEXT,                                                                                                  \
      offsetof(type, device),                                                                                          \
      .value = "NAME",                                                                                                 \
      .fallback = "cpu",                                                                                               \
      .help = "auto, cpu, cuda or hip (cuda:1: the second GPU), reference (float64, slow)" },                          \
        { "isa",           0,                                                                                          \
          TM_OPTION_TEXT,  offsetof(type, isa),                                                                        \
          .value = "NAME", .help = "instruction set of the kernels: avx2, avx512, ...; default: the best here" },      \
    {                                                                                                                  \
        "threads", 0, TM_OPTION_I64, offsetof(type, threads), .value = "N", .fallback = "0", .lo = 0, .hi = 4096,      \
                                                              .help = "threads; 0: all that this process may use"      \
    }

/* The i-th command below `parent` (NULL: of the program), or NULL. */
const tm_cli_command *tm_cli_nested(const tm_cli_command *parent, size_t i, tm_cli_command *storage);
/* The command `name` below `parent`; TM_USAGE names the nearest. `path` ("data", "") is for the message. */
TM_MUST_USE tm_status tm_cli_find(const tm_cli_command *parent, const char *path, const char *name,
                                  tm_cli_command *storage, const tm_cli_command **out, tm_error *err);

/* Finds the command that argv names (argv[0] is the program), reads the line, runs it. */
TM_MUST_USE tm_status tm_cli_dispatch(int argc, char **argv, tm_error *err);
/* Runs a command as if `argv` (argv[0]: its name) had been typed. */
TM_MUST_USE tm_status tm_cli_call(const tm_cli_command *command, const char *name, int argc, char **argv,
                                  tm_error *err);

/* "data" and "pack" -> "data pack"; "" and "run" -> "run". */
enum { TM_CLI_NAME = 64 };
void tm_cli_join(const char *above, const char *name, char out[TM_CLI_NAME]);

/* Was the option on the command line? Asking for one that the command does not have is a bug. */
bool tm_cli_given(const tm_cli_line *line, const char *option);

/* For commands that read their line themselves. Takes the option at argv[i] into line->options if the command has it:
 * *used is the number of words it covers, 0 if it is none. TM_USAGE. */
TM_MUST_USE tm_status tm_cli_take(tm_cli_line *line, int argc, char **argv, int i, int *used, tm_error *err);
/* Takes -q and -v in front of "--"; what is left are line->words. For commands whose options are all keys. */
TM_MUST_USE tm_status tm_cli_take_common(tm_cli_line *line, tm_error *err);
/* The defaults, before the first tm_cli_take; what is missing, after the last. */
void                  tm_cli_defaults(tm_cli_line *line);
TM_MUST_USE tm_status tm_cli_complete(const tm_cli_line *line, tm_error *err);
/* Is "--word" like an option of the command? */
bool tm_cli_resembles(const tm_cli_line *line, const char *word);
/* TM_USAGE for `word`, naming the option that is like it. */
TM_MUST_USE tm_status tm_cli_unknown_option(const tm_cli_line *line, const char *word, tm_error *err);
/* The level of the log, by -q and -v. */
void tm_cli_set_loudness(const tm_cli_line *line);

/* Characters of a line on standard output: `most`, or those of a narrower terminal. */
size_t tm_cli_width(size_t most);
enum { TM_CLI_HELP_WIDTH = 100 }; /* of a line, where the terminal is no narrower */
/* Appends "usage: ...", what the command does, its options; texts in lines of `width` characters at most. */
void tm_cli_help(const tm_cli_command *command, const char *name, size_t width, tm_text *out);
/* "PATH --out FILE [options]": what may stand behind the name. */
void tm_cli_synopsis(const tm_cli_command *command, tm_text *out);
/* "help (2 to 16777216; default 8192)" */
void tm_cli_describe(const tm_option *option, tm_text *out);
/* The rows that every command has: -h, -q, -v. */
const tm_option *tm_cli_common(size_t *n);

#endif
