/* SPDX-License-Identifier: Apache-2.0 */
/* config/foreign.h - keys of other programs, a table for each of them (private to config/).
 *
 * Values of a foreign file are merged under their own names first (layer over layer, as for our own keys) and
 * translated when the configuration is finished: what a preset says and the experiment overrides is never judged. A row
 * says what becomes of a key:
 *
 *     MAPPED    it is one of our keys, or several, perhaps by way of a conversion
 *     HARMLESS  output, logging, profiling, launching, caching: no number of a run depends on it
 *     SPEED     kernels, fusions, tuning of communication: the same numbers by other means; counted in a note
 *     EQUAL     accepted with the values that say what trainmark does anyway
 *     UNBUILT   any other value asks for what is not supported; a plan may leave it out, a run may not
 *     MODEL     any other value makes another model: refused by plans, too
 *
 * None of them is an unknown key: --allow-unknown-keys lets no row pass.
 */
#ifndef TM_CONFIG_FOREIGN_H
#define TM_CONFIG_FOREIGN_H

#include "config/internal.h"

typedef enum {
    TM_FOREIGN_MAPPED,
    TM_FOREIGN_HARMLESS,
    TM_FOREIGN_SPEED,
    TM_FOREIGN_EQUAL,
    TM_FOREIGN_UNBUILT,
    TM_FOREIGN_MODEL,
    TM_FOREIGN_KINDS
} tm_foreign_kind;

/* A row. `name` may end in "*": every key that begins so.
 *
 * values, MAPPED: one of our keys ("training.steps"), which gets the value as it is; or cases "value:what|value:what",
 *     where value may be "*" (any other) and what is "key=value;key=value", "key=*" or "key" hands the value on,
 *     "key=*.1" its second item, nothing ignores it. A null that has no case means: not given. A value that has no case
 * is refused; what begins with # is what `convert` makes of others. values, EQUAL, UNBUILT, MODEL: those that are
 * accepted, "null|false|0". Numbers and booleans are compared as such. with: the row counts only while that key is on:
 * "key", "!key" or "key=value/value". A key is on if its value is neither null, false, 0 or none nor, in a row with
 * accepted values, one of those. fallback: MAPPED: what the other program takes where nothing is given; "a|b": one of
 * them, as tm_framework.second says. convert: MAPPED: the value is converted first; NULL: it cannot be, refused with
 * `words`. UNBUILT: NULL: not even a plan can leave it out. plans: a plan goes on without. The text lives in the arena.
 * own: what presets of the other program say of it does not count, only an experiment and what is above. shape: the
 * fallback does not count where a preset of ours stands for the file that describes the model: that one says it. */
typedef struct tm_foreign_key {
    tm_foreign_kind kind;
    const char     *name, *values, *words, *with, *fallback;
    bool            plans; /* MAPPED: a plan leaves out what is refused, and says so */
    bool            own, shape;
    const char *(*convert)(const tm_config *config, const char *value);
} tm_foreign_key;

struct tm_framework {
    const char           *name, *what; /* what: whose keys these are */
    const tm_foreign_key *keys;
    size_t                n;
    bool (*second)(const tm_config *config); /* of fallbacks "a|b" b counts; NULL: there are none */
    bool sweeps; /* a list is an axis of a sweep, also where values have cases or are converted */
};

#define MAPPED(key, ...)                                                                                               \
    {                                                                                                                  \
        .kind = TM_FOREIGN_MAPPED, .name = key, .values = __VA_ARGS__                                                  \
    }
#define HARMLESS(key, ...)                                                                                             \
    {                                                                                                                  \
        .kind = TM_FOREIGN_HARMLESS, .name = key, .words = __VA_ARGS__                                                 \
    }
#define SPEED(key, ...)                                                                                                \
    {                                                                                                                  \
        .kind = TM_FOREIGN_SPEED, .name = key, .words = __VA_ARGS__                                                    \
    }
#define EQUAL(key, accepted, ...)                                                                                      \
    {                                                                                                                  \
        .kind = TM_FOREIGN_EQUAL, .name = key, .values = accepted, .words = __VA_ARGS__                                \
    }
#define UNBUILT(key, accepted, ...)                                                                                    \
    {                                                                                                                  \
        .kind = TM_FOREIGN_UNBUILT, .name = key, .values = accepted, .words = __VA_ARGS__                              \
    }
#define MODEL(key, accepted, ...)                                                                                      \
    {                                                                                                                  \
        .kind = TM_FOREIGN_MODEL, .name = key, .values = accepted, .words = __VA_ARGS__                                \
    }

#define TM_FRAMEWORK(id, name, what) extern const tm_framework tm_framework_##id;
#include "config/frameworks.def"
#undef TM_FRAMEWORK

const tm_framework *tm_framework_find(const char *name);
const tm_framework *tm_framework_at(size_t i); /* NULL behind the last */

/* The row of `path`, or NULL. An exact name is before a longer pattern before a shorter one. */
const tm_foreign_key *tm_foreign_row(const tm_framework *framework, const char *path);
/* Keeps a value; the highest layer will count. */
void tm_foreign_give(tm_config *config, tm_layer layer, const tm_framework *framework, const tm_foreign_key *row,
                     const char *path, const tm_given *given);
/* Removes what a layer says of a key, or of all keys of a section; false: nothing was there. */
bool tm_foreign_remove(tm_config *config, tm_layer layer, const char *path);
void tm_foreign_clear_layer(tm_config *config, tm_layer layer);
/* The value that counts, or the row's fallback; NULL: neither, or null. For conversions. */
const char *tm_foreign_text(const tm_config *config, const char *name);
/* The value that was given, booleans as true and false, or NULL. */
const char *tm_foreign_given(const tm_config *config, const char *name);
/* Translates everything that was given; what is wrong is added to the configuration's problems. */
void tm_foreign_settle(tm_config *config);
/* What a model file of Primus for recipes of Megatron-Bridge says (flavor, hf_path), by its name without the end, or
 * NULL; and what its post_trainer.yaml gives recipes, key and value in turns, ends with NULL. */
const char *const       *tm_megatron_bridge_model(const char *stem);
extern const char *const tm_megatron_bridge_trainer[];
/* The weights that a file of FluxBenchmark starts from: train_args.model_path, or NULL. */
const char *tm_fluxbenchmark_weights(const tm_config *config);
/* Where submissions of llama2_70b_lora have their weights (config_*.sh): MODEL, of the file or the environment. */
const char *tm_mlperf_lora_weights(const tm_config *config);
/* The family of a model that is known by name, but not built ("Mixtral"), or NULL. */
const char *tm_foreign_family(const char *model);
/* Refuses a model of such a family; `shown` and `origin` are for the message. */
tm_status tm_foreign_check_family(const char *shown, const char *model, const char *origin, tm_error *err);

#endif
