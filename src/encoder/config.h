/* SPDX-License-Identifier: Apache-2.0 */
/* encoder/config.h - config.json of an encoder by rows: each member is needed, must have a value, or changes nothing.
 * A member that no row names is refused by name. Private to encoder/. */
#ifndef TM_ENCODER_CONFIG_H
#define TM_ENCODER_CONFIG_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef enum {
    TM_KEY_WHOLE,  /* a whole number in [1, most]: an int64_t at `offset` */
    TM_KEY_NUMBER, /* a double at `offset` */
    TM_KEY_FLAG,   /* true or false: an int64_t */
    TM_KEY_CHOICE, /* one of `values`, "quick_gelu|gelu": its number, an int64_t */
    TM_KEY_LIST,   /* a list of whole numbers in [1, most]: a tm_key_list */
    TM_KEY_EACH,   /* a list of names, each of which is `values` */
    TM_KEY_MUST,   /* one of `values` */
    TM_KEY_IDLE    /* changes nothing that is computed here */
} tm_frozen_key_kind;

enum { TM_KEY_ITEMS = 8 };
typedef struct {
    int64_t n, item[TM_KEY_ITEMS];
} tm_key_list;

/* Values are compared as text: a string as it is, numbers in their shortest form, true, false, null, "[]", "{}". */
typedef struct {
    const char        *key;
    tm_frozen_key_kind kind;
    size_t             offset;
    int64_t            most;
    const char        *values;
    const char        *absent; /* the value of a file without it, as the class has it; NULL: it is needed */
} tm_frozen_key;

/* Rows of keys: a whole number in [1, largest] at `member` of `type`; a key that changes nothing. */
#define TM_FROZEN_WHOLE(type, name, member, largest, otherwise)                                                        \
    {                                                                                                                  \
        .key = name, .kind = TM_KEY_WHOLE, .offset = offsetof(type, member), .most = largest, .absent = otherwise      \
    }
#define TM_FROZEN_IDLE(name)                                                                                           \
    {                                                                                                                  \
        .key = name, .kind = TM_KEY_IDLE                                                                               \
    }

/* Fills *config, which is zeroed, from a file. `class_name`: the first of "architectures", or "_class_name".
 * TM_INVALID: unreadable; TM_FORMAT: no such file, or a value of another kind; TM_UNSUPPORTED: a value or member that
 * would compute something else. */
TM_MUST_USE tm_status tm_frozen_config_read(const char *path, const char *class_name, const tm_frozen_key *keys,
                                            void *config, tm_error *err);

#endif
