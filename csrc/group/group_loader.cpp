#include "group/group_loader.h"

#include <array>
#include <chrono>
#include <exception>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "base/threads/spin.h"
#include "deliver/make_source.h"
#include "group/global_draw.h"
#include "group/group_source.h"
#include "transport/on_all.h"
#include "transport/typed.h"

namespace gear::group {
namespace {

bool allowed(store::Shard& shard, uint64_t batch_size, double within_s) {
  auto lock = shard.lock();
  return shard.wait_sample(lock, batch_size, nullptr, within_s);
}

// Of a batch whose windows are whole: a run is a column's rows of one page. Outputs of a window
// that show the same column share them.
uint64_t mean_run_bytes(const plan::BatchLayout& layout, const store::PageLayout& pages) {
  uint64_t runs = 0;
  uint64_t bytes = 0;
  for (const plan::BatchLayout::SharedWindow& shared : layout.windows) {
    const auto length = static_cast<uint64_t>(shared.window.length());
    std::set<size_t> columns;
    for (const size_t output : shared.outputs) {
      columns.insert(layout.outputs[output].column);
    }
    for (const size_t column : columns) {
      runs += (length + pages.page_steps - 1) / pages.page_steps;
      bytes += length * pages.step_bytes[column];
    }
  }
  return runs == 0 ? 0 : bytes / runs;
}

// What kernels unpack, or read out of the pages of several owners, comes in lists of rows that are
// not in the order of the items.
void refuse_folds(const std::vector<plan::Output>& outputs) {
  for (const plan::Output& output : outputs) {
    if (std::holds_alternative<plan::Fold>(output.source)) {
      throw base::InvalidArgument(base::cat(
          "[loader] output '", output.name,
          "': over several ranks a GPU makes no discounted sums: ask for the window and sum the "
          "batch, or let the host make them, by tier 'host' or path='staged'"));
    }
  }
}

[[noreturn]] void refuse_to_draw(const Peers& peers, const deliver::LoaderOptions& options) {
  throw base::InvalidArgument(base::cat(
      "[sampler] nothing to sample: none of the ", peers.size(), " ranks offers an anchor; ",
      options.sampler.unit == store::Unit::kStep
          ? "a step of an open episode is offered once its windows are complete: append more or "
            "end the episode"
          : "an episode is offered once it has ended: end one"));
}

}  // namespace

LoaderParts agree_on_loader(std::shared_ptr<Peers> peers, deliver::Request request,
                            const GroupOptions& group) {
  LoaderParts parts;
  parts.peers = std::move(peers);
  parts.group = group;
  store::Shard& shard = parts.peers->shard();
  parts.control = parts.peers->control().duplicate();
  transport::Transport& control = *parts.control;
  check_same_loader(request.options, group.locality, group.nccl, group.timeout_s, control);
  uint8_t by_kernels = 0;
  transport::on_all(
      control, [&] {  // by what each rank may have of its own: its shard's tier, device, path
        if (shard.options().tier == memory::Tier::kDevice && request.options.device < 0) {
          throw base::InvalidArgument(
              "[loader] device 'cpu' from tier 'device' over several ranks: give device='cuda'");
        }
        by_kernels = deliver::uses_kernels(shard, request) ? 1 : 0;
      });
  parts.options = std::move(request.options);
  parts.layout = std::move(request.layout);
  parts.number = parts.peers->next_loader();
  // One for all: path='auto' goes by what each rank has measured.
  for (const uint8_t one : transport::allgather(control, by_kernels)) {
    by_kernels &= one;
  }
  parts.by_kernels = by_kernels != 0;
  if (parts.by_kernels) {
    refuse_folds(parts.options.outputs);
  }
  parts.access =
      parts.peers->agree_on_access(parts.by_kernels ? parts.options.device : -1, control);
  if (parts.access.others == Way::kRead) {
    parts.pack_below = parts.peers->pack_below(control);
    if (mean_run_bytes(*parts.layout, shard.layout()) < parts.pack_below) {
      parts.access.pack();
    }
  }
  return parts;
}

std::unique_ptr<deliver::Pipeline> make_pipeline(std::shared_ptr<Peers> peers,
                                                 deliver::Request request,
                                                 const GroupOptions& group) {
  const uint64_t prefetch = request.options.prefetch;
  LoaderParts parts = agree_on_loader(std::move(peers), std::move(request), group);
  std::unique_ptr<deliver::Source> source;
  if (parts.by_kernels) {
    source = make_device_group_source(parts);
  }
  if (!source) {
    source = std::make_unique<GroupSource>(std::move(parts));
  }
  return std::make_unique<deliver::Pipeline>(std::move(source), prefetch);
}

bool draw_by_attempts(const Peers& peers, const deliver::LoaderOptions& options, bool ahead,
                      std::optional<double> timeout_s, const std::exception_ptr& error,
                      const std::function<Agreement::Round(const Agreement::Terms&)>& attempt) {
  using Round = Agreement::Round;
  store::Shard& shard = peers.shard();
  if (ahead) {
    const Round round = attempt({allowed(shard, options.batch_size, 0.0), true, error});
    return round == Round::kDrawn || round == Round::kEpochEnd;
  }
  constexpr double kMoment = 1e-3;
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    const bool is_allowed = allowed(shard, options.batch_size, kMoment);
    const bool out_of_time = timeout_s && base::seconds_since(start) >= *timeout_s;
    switch (attempt({is_allowed, out_of_time, error})) {
      case Round::kDrawn:
      case Round::kEpochEnd:  // delivered like a batch
        return true;
      case Round::kOutOfTime:
        return false;
      case Round::kNothing:
        refuse_to_draw(peers, options);
      case Round::kNotAllowed:
        std::this_thread::sleep_for(std::chrono::duration<double>(kMoment));
        break;
    }
  }
}

uint64_t batches_per_epoch(const Peers& peers, const deliver::LoaderOptions& options,
                           transport::Transport& control) {
  const select::SamplerOptions& sampler = options.sampler;
  uint64_t own = 0;
  {
    const auto lock = peers.shard().lock();
    own = select::counted(sampler, peers.shard().index()).total();
  }
  uint64_t all = 0;
  for (const uint64_t one : transport::allgather(control, own)) {
    all += one;
  }
  return select::batches_per_epoch(sampler, all, options.batch_size * peers.size());
}

}  // namespace gear::group
