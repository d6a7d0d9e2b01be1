#!/bin/sh
# Submits a command of rabbit to Slurm in N parts, as the tasks of an array, and a job that merges them:
#
#     submit.sh N quantize FLOAT OUT [OPTION]...
#     submit.sh N verify QUANT --against FLOAT [OPTION]...           nothing is merged
#     submit.sh N compare FLOAT QUANT --text FILE [OPTION]...
#
# Prints the ids of the jobs. All nodes must share the directories. Outputs are files in the directory of the call:
# COMMAND-JOB_PART.out (of compare the lines of the part), COMMAND-JOB_PART.err, merge-JOB.out and merge-JOB.err.
#
# Memory and time are those of the plan, rabbit COMMAND --dry-run, the time for a slow file system. SBATCH_MEM_PER_NODE
# and SBATCH_TIMELIMIT replace them; the other variables of sbatch, as SBATCH_PARTITION, have their meaning. RABBIT is
# the path of the program (default: rabbit), and CPUS the number of processors of a task (default: 2).
set -eu
if [ $# -lt 3 ]; then
  echo "usage: $0 N quantize|verify|compare ARGUMENT..." >&2
  exit 2
fi
parts=$1 command=$2
shift
tasks=$(dirname "$0")/task.sh
cpus=${CPUS:-2}

plan=$("${RABBIT:-rabbit}" "$@" --threads "$cpus" --shard "1/$parts" --dry-run --json --quiet)

# A number of the plan, 0 if it is absent.
number() {
  found=$(printf '%s\n' "$plan" | sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p")
  echo "${found:-0}"
}

# Minutes for reading and writing megabytes at 16 MB/s, and for computing.
minutes() {
  echo $((5 + $1 / 1000 + $(number fed) * ($(number source_bytes) / 1000000) / 600000))
}

memory=$(($(number memory) / 1000000 + 1))
moved=$((($(number source_bytes) + $(number bytes)) / 1000000))

submit() {
  id=$(sbatch --parsable --cpus-per-task="$cpus" --mem="${SBATCH_MEM_PER_NODE:-${memory}M}" "$@")
  # With a federation, the name of the cluster follows.
  echo "${id%%;*}"
}

array=$(submit --array="1-$parts" --time="${SBATCH_TIMELIMIT:-$(minutes "$moved")}" --output="$command-%A_%a.out" \
  --error="$command-%A_%a.err" "$tasks" "$parts" "$@" --threads "$cpus")
echo "$array"
case $command in
quantize)
  model=$(printf '%s\n' "$plan" | sed -n 's/.*"model":"\([^"]*\)".*/\1/p')
  set -- "$(dirname "$model")"
  ;;
compare)
  set --
  for part in $(seq "$parts"); do set -- "$@" "compare-${array}_$part.out"; done
  ;;
*) exit 0 ;;
esac
submit --dependency="afterok:$array" --kill-on-invalid-dep=yes \
  --time="${SBATCH_TIMELIMIT:-$(minutes $((moved * parts)))}" --output=merge-%j.out --error=merge-%j.err "$tasks" 1 merge "$@"
