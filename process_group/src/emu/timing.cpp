#include "emu/timing.h"

#include <algorithm>
#include <iterator>

#include "emu/history.h"

namespace gear::emu {
namespace {

// Of this process, whatever group: the job is as old as its first call.
std::atomic<uint64_t> next_call{0};
std::atomic<int> next_group{0};
std::atomic<Time> job_began{Time::min()};
Computing computing;
constexpr int64_t kLinkStopped = int64_t{1} << 40;  // and the link; below: a dead rank and 1

std::mutex tallies_mutex;
std::map<std::string, Tally> tallies_of_all;

double seconds_between(Time from, Time to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

std::map<std::string, Tally> tallies() {
  const std::lock_guard guard(tallies_mutex);
  return tallies_of_all;
}

Timing::Timing(Plan plan) : number_(next_group++), plan_(std::move(plan)) {}

// Asked without the lock: the model is Python's.
const base::Curve& Timing::curve(const std::string& operation, size_t changes) {
  const auto key = std::pair(operation, changes);
  {
    const std::lock_guard guard(mutex_);
    if (const auto found = curves_.find(key); found != curves_.end()) {
      return found->second;
    }
  }
  base::Curve asked = plan_.ask(operation, changes);
  const std::lock_guard guard(mutex_);
  return curves_.try_emplace(key, std::move(asked)).first->second;
}

Timing::Arrival Timing::arrive(const char* operation, uint64_t bytes) {
  return begin(operation, bytes, plan_.dead);
}

Timing::Arrival Timing::arrive(const char* operation, uint64_t bytes, int peer_world_rank) {
  std::vector<Dead> dead;
  std::ranges::copy_if(plan_.dead, std::back_inserter(dead),
                       [&](const Dead& one) { return one.world_rank == peer_world_rank; });
  return begin(operation, bytes, dead);
}

Timing::Arrival Timing::begin(const char* operation, uint64_t bytes,
                              const std::vector<Dead>& dead) {
  const uint64_t call = next_call++;
  const Time now = Holds::instance().now();
  Arrival arrival{.began = now, .time = now, .operation = operation, .bytes = bytes};
  Time began = Time::min();
  if (job_began.compare_exchange_strong(began, now)) {
    began = now;
  }
  const double age_s = seconds_between(began, now);
  const Computing::Spent spent = computing.arrive(now);
  if (!plan_.copies.empty()) {
    const std::lock_guard guard(mutex_);
    const double factor = 1 + lateness(plan_.copies, age_s, plan_.seed, call);
    arrival.time += std::chrono::duration_cast<Time::duration>(
        std::chrono::duration<double>(lag_.at(spent, factor)));
  }
  size_t changes = 0;
  while (changes < plan_.changes.size() && plan_.changes[changes].from_s <= age_s) {
    ++changes;
  }
  if (changes > 0 && plan_.changes[changes - 1].stopped != 0) {
    arrival.never = kLinkStopped + plan_.changes[changes - 1].stopped;
  }
  for (const Dead& one : dead) {
    if (call >= one.call) {
      arrival.never = one.world_rank + 1;
    }
  }
  const base::Curve::Reading reading = curve(operation, changes).at(bytes);
  arrival.seconds = reading.seconds;
  arrival.call = calls_++;
  const std::lock_guard guard(tallies_mutex);
  Tally& tally = tallies_of_all[operation];
  ++tally.calls;
  tally.bytes += bytes;
  const auto basis =
      reading.basis < 0 ? tally.seconds.size() - 1 : static_cast<size_t>(reading.basis);
  tally.seconds[basis] += reading.seconds;
  return arrival;
}

Flows::Pointer Timing::noted(const Arrival& own, Flows::Pointer flow) const {
  History::instance().add(History::Operation{.name = own.operation,
                                             .group = number_,
                                             .ranks = plan_.ranks,
                                             .call = own.call,
                                             .bytes = own.bytes,
                                             .valued = Holds::instance().now(),
                                             .flow = flow});
  return flow;
}

Flows::Pointer Timing::hold(const Arrival& own, Time start, double seconds) {
  return noted(own, Holds::instance().begin(line_, plan_.links, start, seconds));
}

Flows::Pointer Timing::hold_message(const Arrival& own, Time start) {
  return noted(own, Holds::instance().begin(std::make_shared<Flows::Line>(), plan_.links, start,
                                            own.seconds));
}

Flows::Pointer Timing::pause(double seconds) {
  Holds& holds = Holds::instance();
  return holds.begin(std::make_shared<Flows::Line>(), 0, holds.now(), seconds);
}

std::string Timing::never_words(int64_t never) {
  if (never > kLinkStopped) {
    return std::string("link ") + (never == kLinkStopped + 1 ? "nvlink" : "nic") + " has stopped";
  }
  return "rank " + std::to_string(never - 1) + " is dead";
}

void Timing::waited(const char* operation, Time begin, Time end, double late_s) {
  computing.wait(begin, end);
  note(operation, begin, end, late_s);
}

void Timing::followed(const char* operation, Time arrival, Time end, double late_s) {
  note(operation, computing.end_followed(arrival, end), end, late_s);
}

void Timing::unseen(const char* operation) {
  const std::lock_guard guard(tallies_mutex);
  ++tallies_of_all[operation].unseen_calls;
}

void Timing::note(const char* operation, Time begin, Time end, double late_s) {
  if (end > begin) {
    History::instance().add(History::Wait{.name = operation, .began = begin, .ended = end});
  }
  const std::lock_guard guard(tallies_mutex);
  Tally& tally = tallies_of_all[operation];
  tally.waited_s += seconds_between(begin, end);
  if (late_s > 0) {
    ++tally.late_calls;
    tally.late_s += late_s;
  }
}

}  // namespace gear::emu
