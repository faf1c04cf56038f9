#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# --ranks with a launcher that the test makes: what it is started with, and what is made of every end that ranks can leave.
# With the real ones: test_ranks.sh.
# shellcheck disable=SC1091,SC2016,SC2154,SC2086
. "$(dirname "$0")/lib.sh"
for name in $(env | sed -n 's/^\(OMPI_[A-Z_a-z0-9]*\|PMI[A-Z_]*\|SLURM[A-Z_]*\|NO_COLOR\)=.*/\1/p'); do unset "$name"; done

export OMP_WAIT_POLICY=passive

mkdir modules only both mpich bare
touch modules/trainmark-openmpi.so modules/trainmark-mpich.so bare/trainmark-openmpi.so
export TRAINMARK_MODULES="$work/modules"
for tool in sh sleep cat sed tr kill env sort grep rm cut mkdir timeout; do
    at=$(command -v $tool) && case $at in /*) for place in only both mpich; do ln -s "$at" $place/$tool; done ;; esac
done
# A launcher does what $work/script says; its own words come first.
cat >launcher <<'END'
#!/bin/sh
folder=$TRAINMARK_RANKS_FOLDER
sign() { echo "$3" >"$folder/$1.$2"; }
gone() { sh -c 'echo $$'; }
. ./script
END
chmod +x launcher
cp launcher only/mpirun
cp launcher both/mpirun.openmpi
cp launcher both/mpiexec.mpich
cp launcher mpich/mpiexec.hydra
printf '#!/bin/sh\necho wrong launcher\n' >wrong
chmod +x wrong
cp wrong both/mpirun
cp wrong both/mpiexec.hydra

# ends CODE MESSAGE NAME SCRIPT [WORD...]: two ranks whose launcher does this; the message is all that is complained of.
ends()
{
    ends_code=$1 ends_message=$2 ends_name=$3
    echo "$4" >script
    shift 4
    [ $# -gt 0 ] || set -- bench collectives --ranks 2
    PATH="$work/both:$PATH" trainmark "$@"
    ends_said=$(sed 's/^trainmark: //; s/^internal error: //; s/process [0-9][0-9]*/process N/g' "$err")
    if [ "$code" -eq "$ends_code" ] && [ "$ends_said" = "$ends_message" ]; then
        pass "$ends_name"
    else
        fail "$ends_name" "exit code $code, wanted $ends_code" "wanted: $ends_message"
    fi
}

# --- how it is started ----------------------------------------------------------------------------------------------------

show='echo "$0 $*" | sed "s,.*/both/,,; s,[^ ]*/trainmark ,TRAINMARK ,"
env | grep -E "^(OMPI|TRAINMARK_RANKS|NO_COLOR)" | sort | sed "s,$folder,FOLDER,"
echo "reads: $(cat)"
[ "$(cut -d" " -f5 /proc/$$/stat)" = $$ ] && echo "leads a group"
echo "$folder" >folder
sign done 0 0
sign done 1 0
sign done 2 0'
# started COMMAND NO_COLOR BTL COPY PML WORD...: with this command and these variables; it reads nothing and leads a group.
started()
{
    started_as="$1
NO_COLOR=$2
OMPI_ALLOW_RUN_AS_ROOT=1
OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
OMPI_MCA_btl=$3
OMPI_MCA_btl_vader_backing_directory=FOLDER
OMPI_MCA_btl_vader_single_copy_mechanism=$4
OMPI_MCA_orte_tmpdir_base=FOLDER
OMPI_MCA_osc_sm_backing_directory=FOLDER
OMPI_MCA_pml=$5
TRAINMARK_RANKS_FOLDER=FOLDER
reads: 
leads a group"
    shift 5
    ends 0 "" "$*: it ends well" "$show" "$@"
    check "$*: its command and variables" [ "$(cat "$out")" = "$started_as" ]
}
started "mpirun.openmpi -n 2 --oversubscribe --bind-to none --quiet TRAINMARK bench collectives --ranks 2" 1 vader,self none ob1 \
    bench collectives --ranks 2
check_not "its folder is removed" [ -e "$(cat folder)" ]
started "mpiexec.mpich -n 3 TRAINMARK run --mpi mpich --ranks 3 --training.steps 5 --model.dim=64" 1 vader,self none ob1 \
    run --mpi mpich --ranks 3 --training.steps 5 --model.dim=64
export OMPI_MCA_pml=ucx OMPI_MCA_btl=tcp OMPI_MCA_btl_vader_single_copy_mechanism=cma NO_COLOR=2 OMPI_ALLOW_RUN_AS_ROOT=0
started "mpirun.openmpi -n 2 --oversubscribe --bind-to none --quiet TRAINMARK check --all-ranks --ranks 2" 2 tcp cma ucx \
    check --all-ranks --ranks 2 # what the user says counts
unset OMPI_MCA_pml OMPI_MCA_btl OMPI_MCA_btl_vader_single_copy_mechanism NO_COLOR OMPI_ALLOW_RUN_AS_ROOT
echo 'echo "mpirun, $*" | cut -c 1-13; sign done 0 0; sign done 1 0' >script
PATH="$work/only" trainmark bench collectives --ranks 2
check "another name of Open MPI" [ "$code $(cat "$out")" = "0 mpirun, -n 2 " ]
PATH="$work/mpich" trainmark bench collectives --ranks 2
check "MPICH, if Open MPI is not there" [ "$code $(cat "$out")" = "0 mpirun, -n 2 " ]

# --- how it ends ----------------------------------------------------------------------------------------------------------

lost="2 of 2 ranks ended without a word (the launcher's exit code is"
one="1 of 2 ranks ended without a word (the launcher's exit code is 0)"
gone="(process N) ended without a word; the others were ended after it"
# A code of ranks is one of the program's own; else it is 1.
for row in 0:0 3:3 77:1 130:130; do
    ends "${row#*:}" "" "all have ended, the first with ${row%:*}" "sign done 0 ${row%:*}; sign done 1 0; exit 9"
done
for row in 0:0 4:4 77:1; do ends "${row#*:}" "" "the second failed with ${row%:*}" "sign done 0 0; sign failed 1 ${row%:*}; exit 9"; done
for code in 0 1 130; do ends 1 "$lost $code)" "no rank began, and the launcher has $code" "exit $code"; done
for code in 2 4; do ends $code "" "no rank began: it was refused with $code" "exit $code"; done
ends 1 "$one" "one ended, of the other nothing is known" "sign done 1 0; exit 0"
ends 4 "" "one began, the other was refused" 'sign pid 0 $$; sign done 0 0; exit 4'
ends 1 "$lost 137)" "the launcher is killed" 'kill -9 $$'
ends 1 "rank 1 $gone" "a rank is gone" 'sign pid 0 $$; sign pid 1 $(gone); sleep 0.25'
ends 1 "rank 1 (process N) was stopped while others waited, and was ended" "a rank is stopped behind the others" \
    'sleep 100 & sign pid 1 $!; kill -STOP $!; sign pid 0 $$; sign done 0 0; echo $! >stopped; sleep 0.25'
left() { case $(sed 's/.*) //; s/ .*//' "/proc/$1/stat" 2>/dev/null) in '' | Z | X) false ;; esac; }
check_not "it is not left" left "$(cat stopped)"

# --- again ----------------------------------------------------------------------------------------------------------------

again="run --ranks 2 --checkpoint.enable true --max-restarts"
count='n=$(($(cat times 2>/dev/null) + 1)); echo $n >times;'
rm -f times
ends 5 "rank 1 $gone; beginning again, 1 of 3 times
rank 1 $gone; beginning again, 2 of 3 times" "lost with a name" \
    "$count"' if [ $n -lt 3 ]; then sign pid 0 $$; sign pid 1 $(gone); sleep 0.25; exit 0; fi; sign done 0 5; sign done 1 0' $again 3
rm -f times
ends 1 "$lost 1); beginning again, 1 of 2 times
$lost 1); beginning again, 2 of 2 times
$lost 1)" "lost too often" "$count"' exit 1' $again 2
check "three times in all" [ "$(cat times)" -eq 3 ]

# --- signals --------------------------------------------------------------------------------------------------------------

# signals SCRIPT SIGNAL...: sends them, 0.1 s apart, once the launcher is up; sets $code.
signals()
{
    echo "$1" >script
    shift
    rm -f up
    PATH="$work/both:$PATH" "$TRAINMARK" bench collectives --ranks 2 >"$out" 2>"$err" </dev/null &
    main=$!
    until [ -e up ]; do kill -0 $main || break; sleep 0.05; done
    for signal; do
        kill -s "$signal" $main
        sleep 0.1
    done
    wait $main
    code=$?
}
saves='trap "sign done 0 130; sign done 1 130; exit 0" USR1; trap "echo told to end; exit 1" TERM INT HUP; touch up; while :; do sleep 0.05; done'
for signal in TERM USR2; do
    signals "$saves" $signal
    failed_with 130 "$signal: the ranks save" "^trainmark: asking the ranks to stop; once more ends them$"
    check_not "$signal: they are not told to end" has "$out" "told to end"
done

finish
