/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the stand-in for cuDNN share: cudnn.c has the library's functions, cudnn_work.c executes graphs. */
#ifndef TESTS_STANDINS_CUDNN_H
#define TESTS_STANDINS_CUDNN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* cudnn_graph.h, cudnnBackendDescriptorType_t. */
enum {
    POINTWISE = 0,
    ENGINE = 2,
    CONFIG = 3,
    HEURISTICS = 4,
    PLAN = 5,
    GRAPH = 15,
    PACK = 16,
    TENSOR = 17,
    MATMUL = 18
};
enum { REDUCTION = 21, OF_POINTWISE = 13, OF_MATMUL = 19, OF_REDUCTION = 22, OF_RESHAPE = 31 };

/* cudnnDataType_t, cudnnPointwiseMode_t, cudnnReduceTensorOp_t: of these the ones that stand in. */
enum { F32 = 0, I32 = 4, BF16 = 9, BOOLEAN = 11 };
enum {
#define FUNCTION(name, number, ...) name = number,
#include "cudnn.def"
};
enum { SUM_OF = 0, MAX_OF = 3 };

enum { DESCRIPTOR = 0xd5c, GONE = 0xdead };
enum { DIMS = 4, MOST_ATTRIBUTES = 8, MOST_TENSORS = 96, MOST_OPERATIONS = 64 };

/* cudnnBackendAttributeType_t. */
enum { T_HANDLE = 0, T_FORMAT = 1, T_BOOL = 2, T_I64 = 3, T_ADDRESS = 6, T_HEURISTIC = 8, T_NOTE = 11 };
enum { T_FUNCTION = 14, T_DESCRIPTOR = 15, T_REDUCTION = 18, T_CHAR = 24 };

/* cudnnBackendAttributeName_t. */
enum {
#define ATTRIBUTE(name, number, ...) name = number,
#define TOLD(name, number, ...) name = number,
#include "cudnn.def"
};

enum { AN_OPERATION = -1, MOST_TEXT = 64 };

/* `of`: kind of descriptor. */
typedef struct {
    int  kind, name, type, most;
    bool needed;
    int  of;
} attribute;

typedef struct descriptor descriptor;
struct descriptor {
    int  magic, kind;
    bool finished;
    /* What was set, by the row of the attribute among those of the kind. */
    struct {
        int64_t n;
        void   *values;
    } given[MOST_ATTRIBUTES];
    /* Of a tensor. */
    int64_t n[DIMS], stride[DIMS], uid, align;
    int     format;
    bool    inner, by_value; /* inner: virtual */
    /* Of an operation, and of what it applies. */
    int               function, computed;
    int64_t           axis; /* -1: none */
    const descriptor *x, *b, *t, *y;
    int               turn[DIMS]; /* of a reshape: the dimension of y that each one of x is; -1: of one element */
    /* Of a graph: tensors in the order in which operations name them. */
    const descriptor *operations[MOST_OPERATIONS], *tensors[MOST_TENSORS];
    int               n_operations, n_tensors, n_outputs;
    bool              made[MOST_TENSORS]; /* by an operation */
    /* Of heuristics, a configuration, its engine, and a plan. */
    const descriptor *graph;
    bool              differs; /* from run to run: it says so */
    void             *handle;
    size_t            workspace;
};

size_t  dnn_bytes_of_format(int format);
int64_t dnn_count(const descriptor *tensor);
size_t  dnn_bytes(const descriptor *tensor);              /* from its first element to its last one */
int     dnn_number(const descriptor *graph, int64_t uid); /* of a tensor; -1: none */

/* The attribute of a kind of descriptors, and its row among those of the kind. NULL: it has no such attribute. */
const attribute *dnn_attribute(int kind, int name, int *row);
bool             dnn_has_attributes(int kind);
size_t           dnn_bytes_of_type(int type);
/* A descriptor of that kind, which is not gone. */
bool dnn_is(const void *object, int kind);
/* What was set, and how much of it; NULL: nothing. */
const void *dnn_values(const descriptor *d, int name, int64_t *n);
/* What is wrong with the descriptor, all of whose attributes are set; NULL: nothing. */
const char *dnn_finish(descriptor *d);
/* A plan as a text, and its length; and the graph of such a text, NULL: of another process. */
int               dnn_text_of(const descriptor *plan, char text[MOST_TEXT + 1]);
const descriptor *dnn_graph_of_text(const descriptor *plan);
/* Is there a kernel for it? */
bool dnn_has_kernel(const descriptor *graph);

/* A graph in a queue. Tensors are found when its turn comes; numbers of the host were read by the call. */
typedef struct {
    const descriptor *graph;
    char             *at[MOST_TENSORS], *workspace;
    float             value[MOST_TENSORS];
    size_t            workspace_bytes;
    void *(*real)(const void *, size_t);
    void (*broken)(int);
} dnn_task;

void dnn_run(void *task);

#endif
