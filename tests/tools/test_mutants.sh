#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The tool that tests the tests: random changes, and verdicts on a tiny project.
# shellcheck disable=SC1091,SC2154
. "$(dirname "$0")/../cli/lib.sh"

# --- a project of one source and one test -------------------------------------------------------------------------------

mkdir -p src/base src/cli tests/base
cp -r "$root/tools" .
# As the variants of the real one, and their names.
cat >Makefile <<'END'
BUILD := build/$(VARIANT)
FLAGS_coverage := -O1 --coverage
FLAGS_mutants := -O2 -fPIC
OBJ := $(patsubst %.c,$(BUILD)/%.o,$(wildcard src/*/*.c))
LIBRARY_coverage := $(OBJ)
LIBRARY_mutants := $(BUILD)/libmutant.so $(BUILD)/libtrainmark.so
LINK := $(CC) $(FLAGS_$(VARIANT)) -Wl,--no-as-needed,--enable-new-dtags,-rpath,$(CURDIR)/$(BUILD)
$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(FLAGS_$(VARIANT)) -MMD -MP -c -o $@ $<
$(BUILD)/libtrainmark.so: $(OBJ)
	$(LINK) -shared -Wl,-soname,$(@F) -o $@ $^
$(BUILD)/libmutant.so:
	@mkdir -p $(@D)
	echo | $(CC) -shared -Wl,-soname,$(@F) -o $@ -x c -
$(BUILD)/trainmark: $(LIBRARY_$(VARIANT))
	$(LINK) -o $@ $^
$(BUILD)/tests/%: $(BUILD)/tests/%.o $(filter-out $(BUILD)/src/cli/main.o,$(LIBRARY_$(VARIANT)))
	$(LINK) -o $@ $^
END
cat >src/base/clamp.c <<'END'
int clamp(int x, int low, int high)
{
    if (x < low) return low; /* x < low stands in this comment, too */
    return x > high ? high : x;
}

int thrice(int x)
{
    return 3 * x;
}

int count_down(int n)
{
    while (n > 0) n = n - 1;
    return n;
}
END
cat >src/base/types.c <<'END'
static int sum(const int *a, const char *b)
{
    return *a + *b;
}

int both(const int *a, const char *b)
{
    return sum(a, b);
}
END
cat >src/base/keep.c <<'END'
#include <stdlib.h>

static int *volatile kept;

int keep(int n)
{
    kept = malloc(sizeof *kept);
    *kept = n;
    n = *kept;
    free(kept);
    kept = 0;
    return n;
}
END
cat >src/cli/main.c <<'END'
int main(void)
{
    return 0;
}
END
cat >tests/base/test_clamp.c <<'END'
#include <stdio.h>
int clamp(int x, int low, int high);
int count_down(int n);
int keep(int n);
int main(void)
{
    int good = keep(7) == 7 && clamp(0, 1, 5) == 1 && clamp(9, 1, 5) == 5 && clamp(3, 1, 5) == 3 && count_down(4) == 0;
    puts(good ? "1..1\nok 1 - clamp" : "1..1\nnot ok 1 - clamp");
    return !good;
}
END
# record NAME FILE LINE OLD NEW: as random.awk writes it.
record() { printf '%s\t%s\t%s\tconstant\t%s\t%s\n' "$1" "$2" "$3" "$4" "$5" >>records; }
judge_all()
{
    : >records.results
    seq "$(wc -l <records)" | GRACE=1 xargs -I '{}' tools/mutants/judge.sh records '{}' >"$out" 2>"$err"
    awk -f tools/mutants/report.awk records.results >>"$out"
}

unset MAP TOGETHER
GRACE=1 JOBS=2 SEED=7 tools/mutants.sh 6 >"$out" 2>"$err"
code=$?
check "a random run ends" test "$code" -le 1
check "lines that no test reaches are known" has build/coverage/by-source/src%base%clamp.c \
    '^tests/base/test_clamp [0-9.]+ [0-9]+ \+.* 3 4 .*- .*9'
check "all are judged" test "$(awk '$1 == "all" { print $2 + $6 + $7 }' "$out")" -eq 6
check "how many is asked for" [ "$(tools/mutants.sh 2>&1)" = "mutants: how many? make mutants RANDOM=N SEED=S" ]

clamp=src/base/clamp.c
record high $clamp 4 '    return x > high ? high : x;' '    return x < high ? high : x;'
record same $clamp 9 '    return 3 * x;' '    return x * 3;'
record thrice $clamp 9 '    return 3 * x;' '    return 4 * x;'
record endless $clamp 14 '    while (n > 0) n = n - 1;' '    while (n > 0) n = n + 0;'
record types src/base/types.c 8 '    return sum(a, b);' '    return sum(b, a);'
record leak src/base/keep.c 10 '    free(kept);' '    (void)kept;'
if judge_all; then fail "a survivor is exit 1"; else pass "a survivor is exit 1"; fi
check "a red test kills" has "$out" '^killed +high +base/test_clamp'
check "the same code is seen" has "$out" '^same +same +same code'
check "green tests are a survivor" has "$out" '^SURVIVED +thrice +1 tests, no test reaches the line \(constant: src/base/clamp.c:9\)'
check "killed by time is told apart" has "$out" '^time +endless'
check "pointers of other types do not compile" has "$out" '^uncompiled +types'
if [ -f "$(${CC:-cc} -print-file-name=liblsan.so)" ]; then
    check "memory that is not given back is noticed" has "$out" '^killed +leak +base/test_clamp'
    check "the table counts them" has "$out" '^all +4 +2 +1 +1 +1 +1 +75.0 %'
else
    skip "memory that is not given back is noticed" "the compiler has no leak sanitizer"
    skip "the table counts them" "the compiler has no leak sanitizer"
fi
check_not "nothing is left in src" grep -q 'x < high' src/base/clamp.c

# --- random changes -----------------------------------------------------------------------------------------------------

draw() { awk -v count="$1" -v seed="$2" -f "$root/tools/mutants/random.awk" src/base/clamp.c; }
draw 12 7 >first
draw 12 7 >again
draw 12 8 >other
check "the same seed draws the same" cmp -s first again
check_not "another seed draws others" cmp -s first other
check "twelve different ones" test "$(cut -f 2- first | sort -u | wc -l)" -eq 12
check_not "comments stay" grep -q 'x [<>=]* low stands.*in this.*too' <<END
$(cut -f 6 first | grep -v 'x < low stands in this comment, too' | grep stands)
END
awk -F '\t' 'NR == FNR { line[FNR] = $0; next } line[$3] != $5 || $5 == $6 { bad = 1 } END { exit bad }' \
    src/base/clamp.c first
check "each changes its line" test $? -eq 0
finish
