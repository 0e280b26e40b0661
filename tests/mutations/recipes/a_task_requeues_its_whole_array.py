"""The last task of an array that is to go on has Slurm start the whole array again."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="slurm/env.sh",
    old=(
        '    [ -z "${SLURM_ARRAY_JOB_ID:-}" ] || job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID\n'
    ),
    new="",
    tests=[
        "tests/distribution/test_slurm_env.py::test_a_job_whose_ranks_go_on_is_requeued",
    ],
)
