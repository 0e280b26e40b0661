#include "emu/flows.h"

#include <algorithm>
#include <bit>

namespace gear::emu {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr double kNothing = 1e-9;  // what the clock can tell

Time later(Time time, double seconds) {
  return time + std::chrono::round<Time::duration>(Seconds(seconds));
}

}  // namespace

Flows::Pointer Flows::add(const std::shared_ptr<Line>& line, Links links, Time start,
                          double seconds) {
  auto flow = std::make_shared<Flow>(
      Flow{.links = links, .remaining_s = seconds, .start = start, .end = {}});
  if (line->flows_.empty()) {
    lines_.push_back(line);
  }
  line->flows_.push_back(flow);
  return flow;
}

// How many times as long it takes as alone.
double Flows::slowness(const Flow& flow) const {
  int most = 1;
  for (Links links = flow.links; links != 0; links &= links - 1) {
    const Links link = links & ~(links - 1);
    const auto uses = [link](const auto& line) {
      return line->flows_.front()->is_active && (line->flows_.front()->links & link) != 0;
    };
    most = std::max(most, static_cast<int>(std::ranges::count_if(lines_, uses)));
  }
  return most;
}

Time Flows::end_of(const Flow& flow) const {
  return later(now_, flow.remaining_s * slowness(flow));
}

Time Flows::next() const {
  Time next = Time::max();
  for (const auto& line : lines_) {
    const Flow& first = *line->flows_.front();
    next = std::min(next, first.is_active ? end_of(first) : std::max(first.start, line->free_));
  }
  return next;
}

// Those whose time has come.
void Flows::begin_at(Time now) {
  std::vector<std::pair<Flow*, Time>> begun;
  for (const auto& line : lines_) {
    Flow& first = *line->flows_.front();
    const Time start = std::max(first.start, line->free_);
    if (!first.is_active && start <= now) {
      first.is_active = true;
      begun.emplace_back(&first, start);
    }
  }
  for (const auto& [flow, start] : begun) {
    flow->start = start;
    flow->remaining_s -= Seconds(now - start).count() / slowness(*flow);
  }
}

void Flows::progress_to(Time now) {
  for (const auto& line : lines_) {
    Flow& first = *line->flows_.front();
    if (first.is_active) {
      first.remaining_s -= Seconds(now - now_).count() / slowness(first);
    }
  }
  now_ = now;
}

std::vector<Flows::Pointer> Flows::advance(Time now) {
  std::vector<Pointer> ended;
  now_ = std::max(now_, lines_.empty() ? now : now_);
  while (!lines_.empty()) {
    begin_at(now_);
    const auto rounds = ended.size();
    for (auto line = lines_.begin(); line != lines_.end();) {
      Flow& first = *(*line)->flows_.front();
      if (!first.is_active || first.remaining_s > kNothing) {
        ++line;
        continue;
      }
      // Below nothing where it was added late: then it ended before this moment.
      first.end =
          std::max(first.start, later(now_, std::min(0.0, first.remaining_s) * slowness(first)));
      first.has_ended = true;
      first.is_active = false;
      (*line)->free_ = first.end;
      ended.push_back((*line)->flows_.front());
      (*line)->flows_.pop_front();
      line = (*line)->flows_.empty() ? lines_.erase(line) : std::next(line);
    }
    if (ended.size() > rounds) {
      continue;  // behind them others begin
    }
    const Time then = next();
    if (then > now) {
      progress_to(now);
      break;
    }
    progress_to(std::max(then, now_));
  }
  return ended;
}

}  // namespace gear::emu
