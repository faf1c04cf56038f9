# trainmark - two commands do everything: `make bench` and `make test`.
# One directory per variant (build/release, build/asan, ...): a change of flags never needs `make clean`.

CC      ?= cc
VARIANT ?= release
BUILD   := build/$(VARIANT)
ifneq ($(origin CC),default)
BUILD   := build/$(VARIANT)-$(notdir $(firstword $(CC)))
endif

WARNINGS := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wundef -Wformat=2 \
            -Wdouble-promotion
ifdef WERROR
WARNINGS += -Werror
endif
OPT_release := -O3
OPT_asan    := -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
OPT      := $(OPT_$(VARIANT))
CFLAGS   := -std=c11 -D_GNU_SOURCE -g $(OPT) $(WARNINGS) -ffp-contract=off -fno-math-errno -fno-trapping-math \
            -fopenmp -pthread -Isrc -MMD -MP $(EXTRA_CFLAGS)
LDLIBS   := -lyaml -ljansson -lhwloc -lxxhash -lm -ldl
LDFLAGS  := -fopenmp -pthread $(filter -fsanitize%,$(OPT)) $(EXTRA_LDFLAGS)

# Sources are found by folder; kernels under simd/ are compiled once per instruction set.
SIMD_SRC := $(sort $(wildcard src/device/cpu/simd/*.c))
SRC      := $(sort $(filter-out $(SIMD_SRC),$(shell find src -name '*.c')))
ISA_base   :=
ISA_avx2   := -mavx2 -mfma -mf16c
ISA_avx512 := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mfma -mf16c -mprefer-vector-width=512
ARCH     := $(shell uname -m)
ISAS     := base $(if $(filter x86_64,$(ARCH)),avx2 avx512)
SIMD_OBJ := $(foreach isa,$(ISAS),$(SIMD_SRC:%.c=$(BUILD)/%.$(isa).o))
OBJ      := $(SRC:%.c=$(BUILD)/%.o) $(SIMD_OBJ)
LIB_OBJ  := $(filter-out $(BUILD)/src/cli/main.o,$(OBJ))
TEST_SRC := $(sort $(shell find tests -name 'test_*.c'))
TESTS    := $(TEST_SRC:%.c=$(BUILD)/%)
SUPPORT  := $(patsubst %.c,$(BUILD)/%.o,$(sort $(wildcard tests/support/*.c)))
FUZZ_SRC := $(sort $(wildcard tests/fuzz/fuzz_*.c))

all: setup trainmark

trainmark: $(BUILD)/trainmark
	@ln -sf $< $@

$(BUILD)/trainmark: $(OBJ)
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(BUILD)/libtrainmark.a: $(LIB_OBJ)
	@rm -f $@
	@ar rcs $@ $^

$(BUILD)/%.base.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(ISA_base) -DTM_ISA=base -c -o $@ $<
$(BUILD)/%.avx2.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(ISA_avx2) -DTM_ISA=avx2 -c -o $@ $<
$(BUILD)/%.avx512.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(ISA_avx512) -DTM_ISA=avx512 -c -o $@ $<
$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -c -o $@ $<
$(BUILD)/tests/%: $(BUILD)/tests/%.o $(SUPPORT) $(BUILD)/libtrainmark.a
	$(CC) $(LDFLAGS) -o $@ $^ -lcmocka $(LDLIBS)
$(BUILD)/bench/%: $(BUILD)/bench/%.o $(BUILD)/libtrainmark.a
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

setup:

.PHONY: all setup
.SECONDARY:
-include $(OBJ:.o=.d) $(TESTS:=.d)
