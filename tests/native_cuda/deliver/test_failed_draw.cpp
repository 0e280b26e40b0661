// A draw whose launches fail was not made: not on the host, which counts it, and not on the GPU.
#include <doctest/doctest.h>

#include <vector>

#include "base/cuda/cuda.h"
#include "base/errors.h"
#include "deliver/make_source.h"
#include "described_rows.h"

using namespace gear;
using namespace gear::testing;
using deliver::LoaderOptions;
using deliver::Pipeline;
using plan::Batch;
using select::Policy;

namespace {

std::shared_ptr<store::Shard> make_shard() {
  store::ShardOptions options = options_of(400);
  options.tier = memory::Tier::kDevice;
  options.device = 0;
  auto shard = std::make_shared<store::Shard>(schema(), options);
  store::Writer writer(shard);
  for (uint64_t episode = 0; episode < 30; ++episode) {
    add_episode(writer, episode, 3 + episode % 17);
  }
  return shard;
}

// Equal ones draw the same.
struct Loader {
  explicit Loader(const LoaderOptions& options)
      : shard(make_shard()), pipeline(deliver::make_pipeline(shard, {*shard, options})) {}

  Batch next() const {
    Batch batch;
    REQUIRE(pipeline->next(1.0, batch) == Pipeline::Next::kBatch);
    return batch;
  }
  uint64_t sampled() const {
    const auto lock = shard->lock();
    return shard->index().state().counters.steps_sampled;
  }

  std::shared_ptr<store::Shard> shard;
  std::unique_ptr<Pipeline> pipeline;
};

template <class T>
std::vector<T> column(const Batch& batch, uint64_t offset) {
  return {batch.at<T>(offset), batch.at<T>(offset) + batch.items};
}

void check_same(const Batch& ours, const Batch& theirs) {
  const plan::BatchLayout& layout = *ours.layout;
  CHECK(column<int64_t>(ours, layout.ids) == column<int64_t>(theirs, layout.ids));
  CHECK(column<float>(ours, layout.probabilities) == column<float>(theirs, layout.probabilities));
  CHECK(column<float>(ours, layout.weights) == column<float>(theirs, layout.weights));
  CHECK(wrong_rows(ours) == 0);
}

// An error of this thread, which the next check of a launch finds. A launch into a graph that is
// being captured then comes to nothing.
void leave_error() { CHECK(cudaSetDevice(1 << 20) == cudaErrorInvalidDevice); }

// Whether the next batch failed.
bool fails(Loader& loader) {
  leave_error();
  bool failed = false;
  try {
    Batch batch;
    loader.pipeline->next(1.0, batch);
  } catch (const base::CudaError&) {
    failed = true;
  }
  static_cast<void>(cudaGetLastError());  // a graph that is replayed looks for none
  return failed;
}

}  // namespace

TEST_CASE("a draw whose launch fails was not made, on the host or on the GPU") {
  struct Kind {
    Policy policy;
    uint64_t batch_size;  // above 1024, weights are a second launch
    bool packed;          // never captured
  };
  for (const Kind& kind :
       {Kind{Policy::kUniform, 64, false}, Kind{Policy::kUniform, 64, true},
        Kind{Policy::kWeighted, 64, false}, Kind{Policy::kWeighted, 64, true},
        Kind{Policy::kWeighted, 2000, false}, Kind{Policy::kWeighted, 2000, true}}) {
    CAPTURE(static_cast<int>(kind.policy));
    CAPTURE(kind.batch_size);
    CAPTURE(kind.packed);
    LoaderOptions options;
    options.outputs = windows();
    options.batch_size = kind.batch_size;
    options.packed = kind.packed;
    options.prefetch = 0;
    options.sampler.policy = kind.policy;
    options.sampler.seed = 7;
    int failed = 0;
    // A block is filled by launches, then by a capture, then by replays, which look for no error.
    for (int before = 1; before < 6; ++before) {
      CAPTURE(before);
      Loader ours(options);
      const Loader theirs(options);
      for (int i = 0; i < before; ++i) {
        check_same(ours.next(), theirs.next());
      }
      if (!fails(ours)) {
        continue;
      }
      ++failed;
      CHECK(ours.pipeline->state().position.numbers.at(0) ==
            theirs.pipeline->state().position.numbers.at(0));
      for (int i = 0; i < 4; ++i) {
        CAPTURE(i);
        check_same(ours.next(), theirs.next());
        CHECK(ours.sampled() == theirs.sampled());
      }
      // Who goes on from the state draws what this one does.
      const std::unique_ptr<Pipeline> resumed =
          deliver::make_pipeline(ours.shard, {*ours.shard, options});
      resumed->restore(ours.pipeline->state());
      Batch batch;
      REQUIRE(resumed->next(1.0, batch) == Pipeline::Next::kBatch);
      check_same(batch, ours.next());
    }
    CHECK(failed >= (kind.packed ? 5 : 2));
  }
}
