#include "link/host_cost.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "plan/plan.h"
#include "select/sampler.h"

namespace gear::link {
namespace {

constexpr uint64_t kPages = 1 << 20;  // 32 MB of them
constexpr uint64_t kPageSteps = store::PageLayout::kDefaultPageSteps;
constexpr uint64_t kEpisodePages = 64;
constexpr uint64_t kItems = 1 << 16;
constexpr size_t kRepeats = 3;

store::IndexOptions index_options() {
  store::IndexOptions options;
  options.num_pages = kPages;
  options.page_steps = kPageSteps;
  return options;
}

void fill(store::Index& index) {
  const std::vector<float> priorities(kPageSteps, -1.0F);
  for (uint64_t page = 0; page < kPages; page += kEpisodePages) {
    const uint32_t episode = index.open_episode();
    for (uint64_t i = 0; i < kEpisodePages; ++i) {
      index.attach_page(episode);
      index.append(episode, priorities);
    }
    index.end_episode(episode, store::EpisodeState::kTerminated, -1.0, 0);
  }
}

template <class Work>
double median_seconds(Work work) {
  std::array<double, kRepeats> seconds{};
  for (double& taken : seconds) {
    const auto start = std::chrono::steady_clock::now();
    work();
    taken = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  std::ranges::nth_element(seconds, seconds.begin() + kRepeats / 2);
  return seconds[kRepeats / 2];
}

}  // namespace

LinkModel::HostCost measure_host_cost() {
  store::Index index(index_options());
  fill(index);
  const store::Schema schema({{"x", {}, base::DType::kU8}});
  const store::PageLayout pages(schema, kPageSteps);
  plan::Batch batch;
  batch.layout = std::make_shared<plan::BatchLayout>(
      schema, std::vector<plan::Output>{{"x", 0, 0, 1}}, kItems, false);
  const auto block = std::make_shared<std::vector<std::byte>>(batch.layout->bytes);
  batch.block = {block, block->data()};
  const auto sampler = select::make_sampler({}, index);
  select::Selection selection;
  plan::Plan plan;
  const double select_s = median_seconds([&] {
    selection.clear();
    sampler->select(index, kItems, selection);
  });
  const double plan_s =
      median_seconds([&] { plan::make_plan(index, pages, selection, batch, plan); });
  return {select_s / kItems, plan_s / kItems};
}

}  // namespace gear::link
