#include "store/mirror/mirrors.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

namespace gear::store {

std::shared_ptr<Mirror> Mirrors::find(int device) const {
  const auto there = std::ranges::find_if(
      all_, [device](const auto& mirror) { return mirror->device() == device; });
  return there == all_.end() ? nullptr : *there;
}

std::shared_ptr<Mirror> Mirrors::add(std::shared_ptr<Mirror> mirror) {
  all_.push_back(std::move(mirror));
  return all_.back();
}

void Mirrors::forget_unused() {
  const auto unused = [](const auto& mirror) { return mirror.use_count() == 1; };
  if (std::ranges::any_of(all_, unused)) {
    settle();
    std::erase_if(all_, unused);
  }
}

std::vector<std::shared_ptr<Mirror>> Mirrors::holding_priorities() const {
  std::vector<std::shared_ptr<Mirror>> holding;
  std::ranges::copy_if(all_, std::back_inserter(holding), &Mirror::holds_priorities);
  return holding;
}

void Mirrors::give(std::span<const std::shared_ptr<Mirror>> mirrors,
                   const std::function<void(Mirror&)>& update) {
  std::vector<std::shared_ptr<Mirror>> failed;
  std::exception_ptr error;
  for (const auto& mirror : mirrors) {
    try {
      update(*mirror);
    } catch (...) {
      failed.push_back(mirror);
      error = std::current_exception();
    }
  }
  if (!failed.empty() && failed.size() == mirrors.size()) {
    std::rethrow_exception(error);
  }
  behind_.insert(behind_.end(), failed.begin(), failed.end());
}

void Mirrors::raise_failed_updates() { std::ranges::for_each(all_, &Mirror::raise_failed_update); }

std::vector<std::shared_ptr<Mirror>> Mirrors::mark() {
  std::vector<std::shared_ptr<Mirror>> marked;
  std::ranges::copy_if(all_, std::back_inserter(marked), &Mirror::unsettled);
  std::ranges::for_each(marked, &Mirror::mark);
  return marked;
}

void Mirrors::settle() {
  // Every mirror that is ahead took the same updates, but for those behind: one speaks for all.
  const auto is_behind = [this](const auto& mirror) {
    return std::ranges::find(behind_, mirror) != behind_.end();
  };
  bool settled = false;
  for (const auto& mirror : all_) {
    if (is_behind(mirror)) {
      continue;
    }
    const bool ahead = mirror->ahead();
    if (ahead && settled) {
      mirror->settled_elsewhere();
    } else {
      mirror->settle();
    }
    settled = settled || ahead;
  }
  for (const auto& mirror : behind_) {
    mirror->start_over();
  }
  behind_.clear();
}

bool Mirrors::settled() const { return std::ranges::none_of(all_, &Mirror::ahead); }

void Mirrors::catch_up() {
  if (!behind_.empty()) {
    settle();
  }
}

}  // namespace gear::store
