# trainmark - two commands do everything: `make bench` and `make test`.
# One directory per variant (build/release, build/asan, ...): a change of flags never needs `make clean`.

.DEFAULT_GOAL := all
# make's own rules are searched for every file, for nothing.
MAKEFLAGS += --no-builtin-rules

CC      ?= cc
VARIANT ?= release
# Instruction sets of the kernels: native, the base and the best of this processor; all, as packages for other machines and
# tests of every set have; or one of SETS and those before it.
ISA     ?= $(if $(filter deb dist-bin,$(MAKECMDGOALS)),all,native)
# Kernels of GPUs inside the program: embedded, the code that the tests have judged, as packages have it; none: compiled where
# they run.
KERNELS ?= $(if $(filter deb dist-bin,$(MAKECMDGOALS)),embedded,none)
BUILD   := build/$(VARIANT)$(if $(filter-out native,$(ISA)),-$(ISA))
ifneq ($(origin CC),default)
BUILD   := $(BUILD)-$(notdir $(firstword $(CC)))
endif
CPU_FLAGS := $(shell sed -n '/^flags/{s/.*: //p;q}' /proc/cpuinfo)
# V=1 shows commands; otherwise a line per file.
Q       := $(if $(filter 1,$(V)),,@)
say      = $(if $(Q),$(info $(1)))

WARNINGS := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wundef -Wformat=2 \
            -Wdouble-promotion
ifdef WERROR
WARNINGS += -Werror
endif
# Debugging information (-g) doubles the time of a build: EXTRA_CFLAGS=-g adds it.
OPT_release := -O2
OPT_asan    := -g -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
OPT_tsan    := -g -O1 -fsanitize=thread -fno-omit-frame-pointer
# For tools/mutants.sh: which tests reach a line; and a library before which a changed object can be loaded.
OPT_coverage := -g -O1 --coverage
OPT_mutants  := -g -O2 -fPIC
OPT      := $(OPT_$(VARIANT))
ifeq ($(VARIANT),release)
# Nothing of these runs inside a step, or, of a GPU's, it starts a whole one: compiled sooner, not faster. comm/coll/sum.c adds
# up gradients, base/random.c makes initial values: with vectors.
$(foreach room,apps cli config device/gpu encoder gpu graph hf image model plan record results stats system train,$(BUILD)/src/$(room)/%.o): \
    OPT := -Og
$(BUILD)/tests/%.o: OPT := -Og
$(BUILD)/src/comm/coll/sum.o $(BUILD)/src/base/random.o: OPT := -O3
$(BUILD)/tests/device/%.o: OPT := -O2
# Interpreters of GPU machine code: what they compute does not depend on these flags.
$(BUILD)/tests/machine/%.o: OPT = -O3 $(if $(filter-out $(CPU_FLAGS),$(FLAGS_avx2)),,$(ISA_avx2))
$(BUILD)/tests/machine/test_%.o: OPT := -Og
# Nor of the portable kernels, where the processor has better ones.
ifeq ($(ISA)$(filter avx2,$(CPU_FLAGS)),nativeavx2)
$(BUILD)/%.base.o: OPT := -Og
endif
endif
# They are parts of shared objects, too: tests/standins.
$(BUILD)/tests/machine/%.o: OPT += -fPIC
# What a program does not call is left out of it; of tests, nearly nothing.
SECTIONS := -ffunction-sections
$(BUILD)/tests/%.o: SECTIONS :=
CFLAGS    = -std=c11 -D_GNU_SOURCE $(OPT) $(WARNINGS) -ffp-contract=off -fno-math-errno -fno-trapping-math \
            $(SECTIONS) -fopenmp -pthread -Isrc -Itests -I$(BUILD)/generated -MMD -MP $(EXTRA_CFLAGS)
LDLIBS   := -lyaml -ljansson -lhwloc -lxxhash -lz -lpcre2-8 -lutf8proc -lzstd -lsnappy -lsqlite3 -lsodium -lm -ldl
STRIP_release := -Wl,--gc-sections
LDFLAGS  := $(STRIP_$(VARIANT)) -fopenmp -pthread $(filter -fsanitize% --coverage,$(OPT)) $(EXTRA_LDFLAGS)

COMMIT   := $(shell git describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null)
# What decides about code and numbers; the kernels add the flags of their instruction set.
BUILD_FLAGS := $(filter-out -D% -I% -W% -MMD -MP,$(CFLAGS))
$(BUILD)/src/system/software.o: CFLAGS += -DTM_BUILD_FLAGS='"$(BUILD_FLAGS)"' -DTM_BUILD_COMMIT='"$(COMMIT)"'
$(BUILD)/src/system/software.o: $(BUILD)/commit

# Sources are found by folder; kernels under simd/ are compiled once per instruction set.
SIMD_SRC := $(sort $(wildcard src/device/cpu/simd/*.c))
# The only file that knows MPI is a module of its own, built with each MPI that there is (docs/ranks.md).
MODULE_SRC := src/comm/engine/mpi.c
SRC      := $(sort $(filter-out $(SIMD_SRC) $(MODULE_SRC),$(shell find src -name '*.c')))
ISA_base   :=
ISA_avx2   := -mavx2 -mfma -mf16c
ISA_avx512 := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mfma -mf16c -mprefer-vector-width=512
# Products of bfloat16: with vdpbf16ps, and in tile registers.
ISA_avx512_bf16 := $(ISA_avx512) -mavx512bf16
ISA_amx    := $(ISA_avx512_bf16) -mamx-tile -mamx-bf16
PRODUCT_SRC := $(addprefix src/device/cpu/simd/,attention.c attention_grad.c convolution.c gemm.c \
    grouped.c linear.c loss.c)
ARCH     := $(shell uname -m)
SETS     := base $(if $(filter x86_64,$(ARCH)),avx2 avx512 avx512_bf16 amx)
# The flags of /proc/cpuinfo that make each of them (base/cpu.c asks the processor the same).
FLAGS_avx2        := avx2 fma f16c
FLAGS_avx512      := $(FLAGS_avx2) avx512f avx512bw avx512vl avx512dq
FLAGS_avx512_bf16 := $(FLAGS_avx512) avx512_bf16
FLAGS_amx         := $(FLAGS_avx512_bf16) amx_tile amx_bf16
$(if $(filter $(ISA),native all $(SETS)),,$(error ISA=$(ISA): not one of native, all, $(SETS)))
BUILT_FOR := $(if $(filter native,$(ISA)),$(CPU_FLAGS),$(FLAGS_$(ISA:all=amx)))
ISAS     := $(foreach set,$(SETS),$(if $(filter-out $(BUILT_FOR),$(FLAGS_$(set))),,$(set)))
# A later set has all kernels of an earlier one.
shadowed  = $(if $(filter $(2),$(ISAS)),$(1))
ifeq ($(ISA),native)
ISAS     := $(filter-out $(call shadowed,avx2,avx512) $(call shadowed,avx512_bf16,amx),$(ISAS))
endif
SIMD_OBJ := $(foreach isa,$(filter base avx2 avx512,$(ISAS)),$(SIMD_SRC:%.c=$(BUILD)/%.$(isa).o)) \
    $(foreach isa,$(filter avx512_bf16 amx,$(ISAS)),$(PRODUCT_SRC:%.c=$(BUILD)/%.$(isa).o))
REFERENCE := $(sort $(wildcard configs/reference/*.csv))
PAGES    := $(sort $(wildcard configs/reference/*.yaml))
HARDWARE := $(sort $(wildcard configs/hardware/*.yaml))
GPU_TEXTS := $(sort $(filter-out %/chance.cu %/codes.cu %/expert_tiles.cu %/fragments.cu %/made.cu %/mx.cu %/runs.cu %/seen.cu %/softmax.cu %/units.cu %/vectors.cu \
    %/warpgroup.cu,$(wildcard src/device/gpu/source/*.cu)))
OBJ      := $(SRC:%.c=$(BUILD)/%.o) $(SIMD_OBJ) $(BUILD)/published_lines.o $(BUILD)/page_lines.o $(BUILD)/hardware_lines.o \
    $(BUILD)/gpu_texts.o $(BUILD)/gpu_embedded.o
MPICC_openmpi := $(firstword $(shell command -v mpicc.openmpi) $(if $(shell mpicc --showme:version 2>/dev/null),mpicc))
MPICC_mpich   := $(firstword $(shell command -v mpicc.mpich) $(if $(shell mpicc -v 2>/dev/null | grep -i mpich),mpicc))
MODULES  := $(foreach mpi,openmpi mpich,$(if $(MPICC_$(mpi)),$(BUILD)/trainmark-$(mpi).so))
LIB_OBJ  := $(filter-out $(BUILD)/src/cli/main.o $(SIMD_OBJ),$(OBJ))
# A program of tests per room; $(BUILD)/tests/op/test_add is a link to that of op and runs the tests of test_add.c. A file that
# takes the place of functions of the system or of trainmark (TESTS_ALONE) is a program of its own.
TEST_SRC := $(sort $(shell find tests -name 'test_*.c'))
ALONE    := $(patsubst %.c,$(BUILD)/%,$(shell grep -l '^TESTS_ALONE' $(TEST_SRC)))
TESTS    := $(TEST_SRC:%.c=$(BUILD)/%)
TOGETHER := $(filter-out $(ALONE),$(TESTS))
TEST_ROOMS := $(sort $(dir $(TOGETHER)))
TEST_OBJ := $(TEST_SRC:%.c=$(BUILD)/%.o)
# What a room's tests share, beside them.
ROOM_OBJ := $(patsubst %.c,$(BUILD)/%.o,$(filter-out $(TEST_SRC),$(wildcard $(TEST_ROOMS:$(BUILD)/%=%*.c))))
# Libraries that stand in for those of GPUs, of two makers, and old ones; and for those of matrix products.
BLAS     := $(patsubst %,$(BUILD)/tests/standins/%.so,$(foreach kind,dnnl openblas blis mkl,$(kind) $(kind)-bare) \
    openblas-plain mkl-capitals mkl-hollow layer)
STANDINS := $(addprefix $(BUILD)/tests/standins/,cuda.so hip.so nvrtc.so hiprtc.so cublaslt.so hipblaslt.so cudnn.so hip_answers.so nvml.so nvml-later.so nccl.so rccl.so nccl-old.so nccl-ancient.so trainmark-mpich.so) $(BLAS)
SUPPORT  := $(patsubst %.c,$(BUILD)/%.o,$(sort $(wildcard tests/support/*.c)))
TEST_SCRIPTS := $(sort $(shell find tests -name 'test_*.sh' ! -path 'tests/house/*' ! -path 'tests/long/*'))
LONG_SCRIPTS := $(sort $(wildcard tests/house/test_*.sh tests/long/test_*.sh))
# `make test` leaves out what takes long, measures, kills or tries everything: these, and tests that say so (full_test). Those
# that measure run one at a time, after the others.
MEASURING := $(addprefix tests/cli/test_,ab.sh bench.sh check_hosts.sh) \
    $(addprefix $(BUILD)/tests/bench/test_,tables_runs)
FULL_SCRIPTS := $(addprefix tests/gpu/test_,judged.sh text_commands.sh bench_commands.sh device_runs.sh adapter_commands.sh) \
    tests/tools/test_gpu_acceptance.sh $(addprefix tests/cli/test_,attacks.sh bench_jobs.sh build.sh check.sh coming_from.sh completion.sh \
    finetune_configs.sh foreign.sh gpu_ranks.sh install.sh key_effects.sh mlperf_configs.sh mlperf_run.sh reproduce.sh run_words.sh sweep.sh) tests/tools/test_mutants.sh
# DRAW=SEED adds a fifth of them, which depends on the seed.
FULL     := $(FULL_SCRIPTS) $(MEASURING)
drawn     = $(shell for t in $(1); do h=$$(echo "$(DRAW) $$t" | cksum | cut -d " " -f 1); \
    if [ $$((h % 5)) = 0 ]; then echo $$t; fi; done)
QUICK    := $(filter-out $(FULL),$(TEST_SCRIPTS) $(TESTS))

# Kernels are linked as objects: weak references, of instruction sets that may be left out, take nothing from an archive.
LIBRARY  := $(SIMD_OBJ) $(BUILD)/libtrainmark.a
PROGRAM  := $(OBJ)
ifeq ($(VARIANT),mutants)
LIBRARY  := $(BUILD)/libmutant.so $(BUILD)/libtrainmark.so
PROGRAM  := $(LIBRARY)
LDFLAGS  += -Wl,--no-as-needed,--enable-new-dtags,-rpath,$(CURDIR)/$(BUILD)
endif
ifeq ($(VARIANT),coverage)
# Counting would make the kernels many times slower.
$(SIMD_OBJ): OPT := -O2
LIBRARY  := $(BUILD)/tools/mutants/exit.o $(LIBRARY)
PROGRAM  := $(BUILD)/tools/mutants/exit.o $(PROGRAM)
endif
FUZZ_SRC := $(sort $(wildcard tests/fuzz/*.c))
FUZZ     := $(notdir $(sort $(wildcard tests/fuzz/corpus/*)))

# On all processors, unless -j is given; after the packages are there.
all: setup
	@$(MAKE) --no-print-directory $(if $(filter -j%,$(MAKEFLAGS)),,-j$$(nproc)) trainmark

# Phony: with .SECONDARY below, a link to another variant that is new enough would do instead of this one.
trainmark: $(BUILD)/trainmark $(MODULES)
	@ln -sf $< $@

$(BUILD)/trainmark: $(PROGRAM) $(BUILD)/isas
	$(call say,  LD  $@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $(filter-out %/isas,$^) $(LDLIBS)

# The same with judged kernels inside, for tests.
$(BUILD)/judged/trainmark: $(filter-out %/gpu_embedded.o,$(PROGRAM)) $(BUILD)/judged/gpu_embedded.o
	$(call say,  LD  $@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

# A library that the loader opens cannot be the first to bring a sanitizer: modules are built without. MPICH's headers give
# a false warning about MPI_STATUS_IGNORE.
MODULE_FLAGS = -std=c11 -D_GNU_SOURCE -O2 $(filter -W%,$(CFLAGS)) -Wno-stringop-overflow -fPIC -pthread -Isrc $(EXTRA_CFLAGS)
$(BUILD)/trainmark-%.so: $(MODULE_SRC) src/comm/engine.h
	@mkdir -p $(@D)
	$(call say,  CC  $< ($*))
	$(Q)$(MPICC_$*) $(MODULE_FLAGS) -g -shared -o $@ $< $(EXTRA_LDFLAGS)

$(BUILD)/libtrainmark.a: $(LIB_OBJ)
	@rm -f $@
	@ar rcs $@ $^

$(BUILD)/libtrainmark.so: $(OBJ)
	$(call say,  LD  $@)
	$(Q)$(CC) -shared -Wl,-soname,$(@F) $(LDFLAGS) -o $@ $^ $(LDLIBS)
$(BUILD)/libmutant.so:
	@mkdir -p $(@D)
	echo | $(CC) -shared -Wl,-soname,$(@F) -o $@ -x c -

# Each folder once, not for each file.
FOLDERS  := $(sort $(dir $(OBJ) $(TEST_OBJ) $(SUPPORT) $(ROOM_OBJ)) $(BUILD)/bench/ $(BUILD)/tests/fuzz/ $(BUILD)/tools/mutants/)
$(FOLDERS):
	@mkdir -p $@

SYSTEM_HEADERS := errno inttypes limits math stdarg stdbool stddef stdint stdio stdlib string
# Kernels: once per instruction set. <immintrin.h> takes a compiler 0.3 s; each set reads it once.
define KERNELS_OF
$(BUILD)/intrinsics/$(1).h.gch:
	@mkdir -p $$(@D)
	@printf '#include <%s.h>\n' $(SYSTEM_HEADERS) immintrin >$$(@:.gch=)
	$$(Q)$$(CC) $$(CFLAGS) $$(ISA_$(1)) -DTM_ISA=$(1) -x c-header -o $$@ $$(@:.gch=)
$(BUILD)/%.$(1).o: %.c $(if $(filter x86_64,$(ARCH)),$(BUILD)/intrinsics/$(1).h.gch) | $(FOLDERS)
	$$(call say,  CC  $$< ($(1)))
	$$(Q)$$(CC) $$(CFLAGS) $$(ISA_$(1)) -DTM_ISA=$(1) $$(patsubst %.gch,-include %,$$(filter %.gch,$$^)) -c -o $$@ $$<
endef
$(foreach set,$(SETS),$(eval $(call KERNELS_OF,$(set))))
# The headers of the C library are a fifth of what a compiler reads: a release reads them once for each of the usual levels of
# optimization (LEVELS). The other variants do without, and see what a file forgets to include.
$(BUILD)/system/%.h.gch:
	@mkdir -p $(@D)
	@printf '#include <%s.h>\n' $(SYSTEM_HEADERS) >$(@:.gch=)
	$(Q)$(CC) $(filter-out -O%,$(CFLAGS)) -$* -x c-header -o $@ $(@:.gch=)
ifeq ($(VARIANT),release)
LEVELS := -Og -O1 -O2
PRECOMPILED = $(patsubst -%,-include $(BUILD)/system/%.h,$(filter-out $(filter-out $(LEVELS),$(OPT)),$(firstword $(OPT))))
$(OBJ) $(SUPPORT) $(TEST_OBJ) $(ROOM_OBJ): | $(LEVELS:-%=$(BUILD)/system/%.h.gch)
endif
$(BUILD)/%.o: %.c | $(FOLDERS)
	$(call say,  CC  $<)
	$(Q)$(CC) $(CFLAGS) $(PRECOMPILED) -c -o $@ $<

define TEST_ROOM
$(1)all: $$(filter $(1)%,$$(TOGETHER:=.o)) $$(patsubst %.c,$$(BUILD)/%.o,$$(filter-out $$(TEST_SRC),$$(wildcard $(1:$(BUILD)/%=%)*.c)))
$$(filter $(1)%,$$(TOGETHER)): $(1)all
endef
$(foreach room,$(TEST_ROOMS),$(eval $(call TEST_ROOM,$(room))))
$(ALONE): %: %.o
# They are many and large: a faster linker, where there is one.
TEST_LINKER := $(if $(STRIP_$(VARIANT)),$(firstword $(foreach linker,lld gold,$(if $(shell command -v ld.$(linker)),-fuse-ld=$(linker)))))
$(ALONE) $(TEST_ROOMS:%=%all): $(SUPPORT) $(LIBRARY) $(BUILD)/isas
	$(call say,  LD  $@)
	$(Q)$(CC) $(LDFLAGS) $(TEST_LINKER) -o $@ $(filter %.o,$^) $(filter %.so %.a,$^) -lcmocka $(LDLIBS)
# Planted faults: the program itself, and tests, with tests/faults/ in front of these functions. What waits inside comm and
# for processes keeps the machine's clock.
FAULT_WRAPS := tm_device_open tm_device_close tm_device_load tm_device_alloc tm_device_release tm_device_write tm_device_read \
    tm_device_copy tm_device_fill tm_comm_open tm_comm_run tm_trainer_begin tm_now_ns clock_gettime tm_comm_waited_ns \
    tm_thread_delayed_ns tm_memory_fill tm_memory_check tm_memory_read pthread_create pthread_join \
    tm_device_arithmetic
FAULT_TIMED := $(filter $(BUILD)/src/comm/% $(BUILD)/src/base/process.o,$(OBJ))
FAULT_OBJ   := $(patsubst %.c,$(BUILD)/%.o,$(filter-out tests/faults/test_%,$(wildcard tests/faults/*.c)))
$(BUILD)/tests/faults/timed/all.o: $(FAULT_TIMED)
	@mkdir -p $(@D)
	$(Q)ld -r -o $@.new $^ && objcopy --redefine-sym tm_now_ns=__real_tm_now_ns $@.new $@ && rm $@.new
$(BUILD)/tests/faults/trainmark: $(FAULT_OBJ) $(BUILD)/tests/faults/timed/all.o $(filter-out $(FAULT_TIMED),$(OBJ)) $(BUILD)/isas
	$(call say,  LD  $@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(LDLIBS)
$(BUILD)/tests/faults/all: TEST_LINKER :=
$(BUILD)/tests/faults/all $(BUILD)/tests/faults/trainmark: LDFLAGS += $(FAULT_WRAPS:%=-Wl,--wrap=%)
$(BUILD)/tests/faults/all: $(BUILD)/tests/faults/timed/all.o
$(BUILD)/tests/gpu/test_judged: $(addprefix $(BUILD)/tests/gpu/,emulated.o expert_shapes.o shapes.o trials.o)
$(TOGETHER):
	@ln -sf all $@
# Order only: they are loaded, not linked.
$(BUILD)/tests/comm/all $(filter $(BUILD)/tests/comm/%,$(ALONE)): | $(MODULES) $(STANDINS)
$(filter $(BUILD)/tests/bench/% $(BUILD)/tests/gpu/%,$(ALONE)) $(BUILD)/tests/bench/all $(BUILD)/tests/gpu/all: | $(STANDINS)
$(STANDINS): OPT := -Og
$(STANDINS):
	@mkdir -p $(@D)
	$(call say,  LD  $@)
	$(Q)$(CC) $(OPT) -std=c11 $(filter -W%,$(CFLAGS)) -fPIC -shared -fvisibility=hidden -Itests $(STANDIN) -o $@ $(filter %.c %.o,$^) -pthread -ldl -lm
MACHINE  := $(patsubst %.c,$(BUILD)/%.o,$(addprefix tests/machine/,audit.c clocks.c counts.c memory.c module.c races.c) $(wildcard tests/machine/gcn*.c tests/machine/ptx*.c))
$(addprefix $(BUILD)/tests/standins/,cuda.so hip.so): $(wildcard tests/standins/gpu*.c) $(MACHINE) tests/standins/gpu.h
$(addprefix $(BUILD)/tests/standins/,nvrtc.so hiprtc.so): tests/standins/compilers.c
$(addprefix $(BUILD)/tests/standins/,cublaslt.so hipblaslt.so): tests/standins/blaslt.c tests/standins/blaslt_codes.h tests/standins/blaslt_gemm_ex.h tests/standins/gpu.h
$(BUILD)/tests/standins/cudnn.so: $(wildcard tests/standins/cudnn*.c) tests/standins/cudnn.h tests/standins/gpu.h
$(filter %ccl.so %old.so %ancient.so,$(STANDINS)): tests/standins/nccl.c tests/standins/nccl_work.c tests/standins/nccl.h
$(BUILD)/tests/standins/nvml.so $(BUILD)/tests/standins/nvml-later.so: tests/standins/nvml.c
$(BUILD)/tests/standins/hip_answers.so: tests/standins/hip_answers.c
$(BUILD)/tests/standins/nvml-later.so: STANDIN := -DLATER
$(BLAS): tests/standins/blas.c
$(BUILD)/tests/standins/trainmark-mpich.so: tests/standins/mpi.c
$(BUILD)/tests/standins/trainmark-mpich.so: STANDIN := -Isrc
$(filter $(BUILD)/tests/cli/%,$(ALONE)): | $(BUILD)/tests/standins/trainmark-mpich.so
$(BUILD)/tests/standins/dnnl%: STANDIN = -DDNNL -Wl,-soname,libdnnl.so.3 $(SILENT)
$(BUILD)/tests/standins/openblas%: STANDIN = -DOPENBLAS -Wl,-soname,libopenblas.so.0 $(SILENT)
$(BUILD)/tests/standins/blis%: STANDIN = -DBLIS -Wl,-soname,libblis.so.4 $(SILENT)
$(BUILD)/tests/standins/mkl%: STANDIN = -DMKL -Wl,-soname,libmkl_rt.so.2 $(SILENT)
$(filter %-bare.so %/layer.so,$(BLAS)): SILENT := -DBARE
$(BUILD)/tests/standins/openblas-plain.so: SILENT := -DPLAIN
$(BUILD)/tests/standins/mkl-capitals.so: SILENT := -DCAPITALS
$(BUILD)/tests/standins/mkl-hollow.so: SILENT := -DHOLLOW
$(BUILD)/tests/standins/hip.so $(BUILD)/tests/standins/hiprtc.so $(BUILD)/tests/standins/hipblaslt.so: STANDIN := -DHIP
$(BUILD)/tests/standins/nccl-old.so: STANDIN := -DOLD -DCODE=2708
$(BUILD)/tests/standins/nccl-ancient.so: STANDIN := -DOLD -DANCIENT -DCODE=2402
$(BUILD)/bench/%: $(BUILD)/bench/%.o $(LIBRARY)
	$(call say,  LD  $@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
$(BUILD)/tests/fuzz/all: $(FUZZ_SRC:%.c=$(BUILD)/%.o) $(filter-out %/runner.o,$(SUPPORT)) $(LIBRARY)
	$(call say,  LD  $@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -lcmocka $(LDLIBS)

# Written anew only when it changes: a program knows its commit, also when nothing else had to be compiled for it.
$(BUILD)/commit: FORCE
	@mkdir -p $(@D)
	@echo '$(COMMIT)' | cmp -s - $@ || echo '$(COMMIT)' >$@

# The same of the instruction sets that are built: what has them inside is linked anew.
$(BUILD)/isas: FORCE
	@mkdir -p $(@D)
	@echo '$(ISAS)' | cmp -s - $@ || echo '$(ISAS)' >$@

# The published figures (configs/reference/) as lines of C; of a file that is added, however old it is (FORCE).
$(BUILD)/published_lines.c: $(REFERENCE) FORCE
	@mkdir -p $(@D)
	@{ echo 'extern const char *const tm_published_lines[];'; echo 'const char *const tm_published_lines[] = {'; \
	   sed 's/[\\"]/\\&/g; s/.*/    "&",/' $(REFERENCE); echo '    0,'; echo '};'; } >$@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@
# Files of YAML, each behind a line with its name: the published pages (trainmark reproduce), and hardware.
$(BUILD)/page_lines.c: FILES = $(PAGES)
$(BUILD)/hardware_lines.c: FILES = $(HARDWARE)
$(BUILD)/page_lines.c: $(PAGES)
$(BUILD)/hardware_lines.c: $(HARDWARE)
$(BUILD)/page_lines.c $(BUILD)/hardware_lines.c: $(BUILD)/%_lines.c: FORCE
	@mkdir -p $(@D)
	@{ echo 'extern const char *const tm_$*_lines[];'; echo 'const char *const tm_$*_lines[] = {'; \
	   for file in $(FILES); do echo "    \"== $$(basename $$file .yaml)\","; sed 's/[\\"]/\\&/g; s/.*/    "&",/' $$file; done; \
	   echo '    0,'; echo '};'; } >$@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@
# The kernels of GPUs, as lines of C; they are few and made anew (FORCE), whatever they include.
$(BUILD)/gpu_texts.c: $(GPU_TEXTS) FORCE
	@mkdir -p $(@D)
	@tools/gpu_texts.sh $(GPU_TEXTS) >$@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@
# Their judged code, as a block of bytes (docs/gpu.md). Whether it is up to date, tools/embed_kernels.py knows (FORCE).
KERNEL_SET := build/kernels/set.bin
$(KERNEL_SET): FORCE
	@tools/embed_kernels.py make
$(BUILD)/gpu_embedded.c: $(if $(filter embedded,$(KERNELS)),$(KERNEL_SET)) FORCE
	@mkdir -p $(@D)
	@tools/embedded_set.sh $(filter %.bin,$^) >$@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@
$(BUILD)/judged/gpu_embedded.c: $(KERNEL_SET)
	@mkdir -p $(@D)
	@tools/embedded_set.sh $< >$@
$(BUILD)/gpu_embedded.o $(BUILD)/judged/gpu_embedded.o $(BUILD)/gpu_texts.o $(BUILD)/published_lines.o $(BUILD)/page_lines.o $(BUILD)/hardware_lines.o: %.o: %.c
	$(Q)$(CC) $(CFLAGS) -c -o $@ $<

# The kernel tables of device/cpu/simd: a file there is all that a fast kernel takes, however old it is (FORCE).
TABLES := $(addprefix $(BUILD)/generated/device/cpu/,kernel_tables.def product_tables.def)
$(BUILD)/generated/device/cpu/kernel_tables.def: $(SIMD_SRC) FORCE
$(BUILD)/generated/device/cpu/product_tables.def: $(PRODUCT_SRC) FORCE
$(TABLES):
	@mkdir -p $(@D)
	@sed -n 's/^const tm_kernel TM_K(tm_cpu_\([a-z0-9_]*\))\[\].*/TM_CPU_TABLE(\1)/p' $(filter %.c,$^) >$@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@
$(OBJ) $(SUPPORT) $(TEST_OBJ): | $(TABLES)

# --- what people call ---------------------------------------------------------------------------------------------------

setup:
	@CC='$(CC)' EXTRA_CFLAGS='$(EXTRA_CFLAGS)' EXTRA_LDFLAGS='$(EXTRA_LDFLAGS)' \
	    tools/setup.sh $(if $(filter test test-full,$(MAKECMDGOALS)),test,bench)

# The main job: trains the built-in model until it has learnt the built-in language, and prints the report.
bench: setup
	@$(MAKE) --no-print-directory -j$$(nproc) trainmark
	./trainmark run --out output/bench

# Each full test has this long.
FULL_SECONDS := TM_TEST_SECONDS=$${TM_TEST_SECONDS:-600}

test: setup
	@$(MAKE) --no-print-directory -j$$(nproc) trainmark build-tests
	@TRAINMARK=$(CURDIR)/$(BUILD)/trainmark $(if $(DRAW),TM_TEST_FULL=draw:$(DRAW) $(FULL_SECONDS)) tests/run.sh $(QUICK) \
	    $(if $(DRAW),$(call drawn,$(FULL_SCRIPTS)) -- $(call drawn,$(MEASURING)))

# All tests.
test-full: setup
	@$(MAKE) --no-print-directory -j$$(nproc) trainmark build-tests
	@TRAINMARK=$(CURDIR)/$(BUILD)/trainmark TM_TEST_FULL=1 $(FULL_SECONDS) \
	    tests/run.sh $(FULL_SCRIPTS) $(QUICK) -- $(MEASURING)

build-tests: $(TESTS) $(MODULES) $(STANDINS) $(BUILD)/tests/faults/trainmark

# What takes minutes: a copy of the sources gets one more of everything, is built and used.
test-long: setup
	@$(MAKE) --no-print-directory -j$$(nproc) trainmark
	@TRAINMARK=$(CURDIR)/$(BUILD)/trainmark TM_TEST_SECONDS=1200 tests/run.sh $(LONG_SCRIPTS)

# The same tests under AddressSanitizer and UndefinedBehaviorSanitizer; of the scripts, what they start.
asan:
	@$(MAKE) --no-print-directory -j$$(nproc) VARIANT=asan build-tests build/asan/trainmark
	@TRAINMARK=$(CURDIR)/build/asan/trainmark TM_TEST_SECONDS=900 TM_TEST_FINDINGS=1 \
	    tests/run.sh $(TEST_SRC:%.c=build/asan/%) $(filter tests/cli/%,$(TEST_SCRIPTS))

# Threads of our own (the loader, the committer of records, tokenizers) under ThreadSanitizer. It knows nothing of OpenMP's
# waits: devices have one thread.
TSAN_TESTS := $(addprefix tests/,record/test_committer data/test_loader train/test_measurement train/test_proof comm/test_groups comm/test_failures comm/test_messages)
TSAN_SCRIPTS := tests/cli/test_texts.sh
tsan:
	@$(MAKE) --no-print-directory -j$$(nproc) VARIANT=tsan $(TSAN_TESTS:%=build/tsan/%) build/tsan/trainmark
	@TSAN_OPTIONS=halt_on_error=1 OMP_NUM_THREADS=1 TRAINMARK=$(CURDIR)/build/tsan/trainmark TM_TEST_SECONDS=900 \
	    tests/run.sh $(TSAN_TESTS:%=build/tsan/%) $(TSAN_SCRIPTS)

# Every parser of outside files under the sanitizers, $(FUZZ_SECONDS) seconds each or SECONDS in all; a finding is a failure.
FUZZ_SECONDS ?= $(if $(SECONDS),$(shell expr $(SECONDS) / $(words $(FUZZ))),60)
fuzz:
	@$(MAKE) --no-print-directory -j$$(nproc) VARIANT=asan build/asan/tests/fuzz/all
	@for t in $(FUZZ); do echo "fuzz $$t"; build/asan/tests/fuzz/all $$t -t $(FUZZ_SECONDS) tests/fuzz/corpus/$$t || exit 1; done

# Breaks the code on purpose, RANDOM lines, one at a time: tests that stay green are too weak (docs/testing.md).
mutants:
	SEED='$(SEED)' tools/mutants.sh '$(RANDOM)'

# Leaves out every wait and barrier of the GPU kernels, one at a time: does anything notice?
machine-audit:
	@$(MAKE) --no-print-directory $(BUILD)/tests/gpu/all
	@failed=; for arch in gfx942 gfx950 sm_80 sm_90; do $(BUILD)/tests/gpu/all audit $$arch || failed=1; done; test -z "$$failed"

# Executes the GPU kernels that packages have inside, those very bytes, and notes that they are right (docs/gpu.md).
judge-kernels: $(KERNEL_SET)
	@$(MAKE) --no-print-directory $(BUILD)/tests/gpu/test_judged $(STANDINS)
	@tools/embed_kernels.py check
	@TM_TEST_FULL=1 TM_TEST_COMPILERS=required TM_TEST_SECONDS=3600 $(BUILD)/tests/gpu/test_judged

# Executes the kernels for gfx942 as another clang compiles them: users' hiprtc is of LLVM 17 to 19 (docs/emulators.md).
CLANG ?= clang-19
judge-clang:
	@$(MAKE) --no-print-directory $(BUILD)/tests/gpu/all $(STANDINS)
	@TM_HIP_CLANG='$(CLANG)' TM_TEST_FULL=1 TM_TEST_COMPILERS=required $(BUILD)/tests/gpu/all other-clang

# Asks a real cuDNN without a GPU which kernels it has for the graphs of attention (tests/gpu/deviceless.c). DRIVER: 13000, for a
# library of CUDA 12 12080; libcuda.so.1 has to be somewhere, its driver not.
CUDNN  ?= libcudnn.so.9
DRIVER ?= 13000
judge-cudnn:
	@$(MAKE) --no-print-directory $(BUILD)/tests/gpu/all
	@$(BUILD)/tests/gpu/all cudnn '$(CUDNN)' $(DRIVER)

# Asks a real hipBLASLt without a GPU which products it takes on STANDIN_GPU_ARCH (tests/gpu/products_named.c).
HIPBLASLT ?= libhipblaslt.so.1
judge-hipblaslt:
	@$(MAKE) --no-print-directory $(BUILD)/tests/gpu/all $(BUILD)/tests/standins/hip_answers.so
	@TRAINMARK_HIPBLASLT='$(HIPBLASLT)' LD_PRELOAD=$(BUILD)/tests/standins/hip_answers.so $(BUILD)/tests/gpu/all hipblaslt

# Compares the calls and numbers of GPU libraries with the makers' own headers, whose folders are given (docs/gpu.md).
judge-headers:
	@tools/judge_headers.sh

check-layers:
	@tools/check_layers.sh

# Every header compiles alone.
check-headers:
	@for h in $$(find src -name '*.h' ! -path '*/simd/*' ! -name version.h); do \
	    $(CC) -std=c11 -D_GNU_SOURCE $(WARNINGS) -fopenmp -Isrc -fsyntax-only -x c $$h || exit 1; done

# --- installing -------------------------------------------------------------------------------------------------------------

PREFIX  ?= /usr/local
DESTDIR ?=
VERSION := $(shell sed -n 's/.*TM_VERSION "\(.*\)"/\1/p' src/base/version.h)
DIST    := trainmark-$(VERSION)-linux-$(ARCH)

install: $(BUILD)/trainmark $(MODULES)
	@tools/install.sh install $< "$(DESTDIR)" "$(PREFIX)"

uninstall:
	@tools/install.sh uninstall "$(DESTDIR)" "$(PREFIX)"

# A package has the kernels inside that the tests have judged: this set, to the byte.
JUDGED := $(if $(filter embedded,$(KERNELS)),judged-set)
judged-set: $(KERNEL_SET)
	@tools/embed_kernels.py judged

# build/trainmark_VERSION_ARCH.deb, looked at by lintian if it is there.
deb: $(JUDGED) $(BUILD)/trainmark $(MODULES)
	@tools/make_deb.sh $< $(VERSION) build

# build/trainmark-VERSION-linux-ARCH.tar.xz, for every Linux with glibc 2.28 or newer; tools/check_dist.sh says whether it is.
STATIC := $(BUILD)/static
dist-bin: $(JUDGED) $(STATIC)/trainmark $(MODULES:$(BUILD)/%=$(STATIC)/%)
	@rm -rf build/dist && tools/install.sh install $< build/dist/$(DIST) ""
	@cp tools/install.sh build/dist/$(DIST)/install.sh
	@XZ_OPT=-9e tar -C build/dist --sort=name --owner=0 --group=0 --numeric-owner -cJf build/$(DIST).tar.xz $(DIST)
	@tools/check_dist.sh build/$(DIST).tar.xz

$(STATIC)/trainmark: $(OBJ) $(BUILD)/isas tools/link_static.sh tools/older_systems.c
	$(call say,  LD  $@)
	$(Q)tools/link_static.sh program $@ '$(CC)' '$(LDLIBS)' $(OBJ)
$(STATIC)/trainmark-%.so: $(MODULE_SRC) src/comm/engine.h tools/link_static.sh
	$(call say,  LD  $@)
	$(Q)tools/link_static.sh module $@ $(MPICC_$*) $< $(MODULE_FLAGS)

# Are all sources as `make format` leaves them?
check-format:
	@tools/check_format.sh

format:
	clang-format -i $$(git ls-files '*.c' '*.h')

tidy:
	clang-tidy --quiet $(filter-out $(SIMD_SRC),$(SRC)) -- -std=c11 -D_GNU_SOURCE -fopenmp -Isrc -I$(BUILD)/generated

clean:
	rm -rf build trainmark

.PHONY: FORCE all trainmark setup bench test test-full build-tests test-long asan tsan fuzz mutants machine-audit judge-clang judge-cudnn judge-headers judge-hipblaslt judge-kernels judged-set check-layers check-headers check-format format tidy \
    install uninstall deb dist-bin clean
.SECONDARY:
-include $(OBJ:.o=.d) $(TEST_OBJ:.o=.d) $(SUPPORT:.o=.d) $(ROOM_OBJ:.o=.d)
