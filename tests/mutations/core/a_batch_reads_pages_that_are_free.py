"""A batch gives up the pages that it reads before it has copied them."""

from mutations.mutation import Mutation

MUTATION = Mutation(
    file="csrc/deliver/host_source.cpp",
    old=(
        "  try {\n"
        "    gather::gather_cpu(shard_->data(), shard_->layout(), job.plan, job.batch, pool_);\n"
        "  } catch (...) {\n"
        "    error = std::current_exception();\n"
        "  }\n"
        "  // The pages are free before the batch is sent on, which may wait for a training step.\n"
        "  job.read.end();\n"
    ),
    new=(
        "  job.read.end();\n"
        "  try {\n"
        "    gather::gather_cpu(shard_->data(), shard_->layout(), job.plan, job.batch, pool_);\n"
        "  } catch (...) {\n"
        "    error = std::current_exception();\n"
        "  }\n"
    ),
    native=[
        "a page that a batch has spent is written again only when the batch is copied",
    ],
)
