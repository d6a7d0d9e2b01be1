#!/bin/sh
# The batch script of submit.sh. Runs a command of rabbit; in an array, part I of N, where I is the index of the task:
#
#     sbatch --array=1-N task.sh N COMMAND [ARGUMENT]...
#
# A task may be requeued at any time: a part that is finished is recognized, and one that is not is written again.
#SBATCH --job-name=rabbit
#SBATCH --requeue
#SBATCH --open-mode=truncate
parts=$1
shift
exec "${RABBIT:-rabbit}" "$@" --quiet ${SLURM_ARRAY_TASK_ID:+--shard "$SLURM_ARRAY_TASK_ID/$parts"}
