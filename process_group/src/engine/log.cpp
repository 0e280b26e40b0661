#include "engine/log.h"

#include <algorithm>
#include <atomic>
#include <cstdio>

#include "base/errors.h"

namespace gear::process_group {
namespace {

using std::chrono::duration_cast;
using std::chrono::nanoseconds;

constexpr size_t kLinesAtOnce = 4096;

std::atomic<Log*> the_log{nullptr};

int64_t epoch_of_steady_clock_ns() {
  const auto system = std::chrono::system_clock::now().time_since_epoch();
  const auto steady = std::chrono::steady_clock::now().time_since_epoch();
  return duration_cast<nanoseconds>(system).count() - duration_cast<nanoseconds>(steady).count();
}

// A name that is one value of a line.
std::string plain(std::string name) {
  std::ranges::replace_if(
      name, [](char c) { return c == ',' || c == '"' || c == '\n' || c == '\r'; }, '_');
  return name;
}

void append_us(std::string& text, int64_t ns) {
  text += std::to_string(ns / 1000);
  const auto rest = std::to_string(1000 + ns % 1000);
  text.append(1, '.').append(rest, 1, 3);
}

}  // namespace

Log* Log::current() noexcept { return the_log.load(std::memory_order_acquire); }

void Log::begin(int rank, const std::string& file, bool prints) {
  if (current() == nullptr) {
    the_log.store(new Log(rank, file, prints), std::memory_order_release);
  }
}

Log::Log(int rank, const std::string& file, bool prints)
    : rank_(rank), prints_(prints), epoch_ns_(epoch_of_steady_clock_ns()) {
  if (file.empty()) {
    return;
  }
  file_.open(file, std::ios::trunc);
  file_ << "start_us,duration_us,bytes,operation,dtype,ranks,route,group,call,failed\n";
  if (!file_.flush()) {
    throw base::TransportError("[mpi] the log " + file +
                               " cannot be written: give GEAR_MPI_LOG a folder that can");
  }
  lines_.reserve(kLinesAtOnce);
}

void Log::write(const Entry& entry) {
  if (prints_) {
    print(entry);
  }
  const std::lock_guard guard(mutex_);
  if (!file_.is_open()) {
    return;
  }
  lines_.push_back({entry, number_of(*entry.group)});
  lines_.back().entry.group = nullptr;
  // After a failure a process may not come to its end.
  if (lines_.size() == kLinesAtOnce || entry.failed) {
    write_out();
  }
}

void Log::flush() {
  const std::lock_guard guard(mutex_);
  write_out();
}

void Log::write_out() {
  if (!file_.is_open() || lines_.empty()) {
    return;
  }
  std::string text;
  for (const Line& line : lines_) {
    const Entry& entry = line.entry;
    append_us(text, since_epoch_ns(entry.begin));
    text += ',';
    append_us(text, duration_cast<nanoseconds>(entry.end - entry.begin).count());
    text.append(",").append(std::to_string(entry.bytes)).append(",").append(entry.operation);
    text.append(",").append(entry.dtype).append(",").append(std::to_string(entry.group_size));
    text.append(",").append(entry.route).append(",").append(plain(groups_[line.group]));
    text.append(",").append(entry.number < 0 ? "" : std::to_string(entry.number));
    text.append(entry.failed ? ",1\n" : ",0\n");
  }
  lines_.clear();
  if (!file_.write(text.data(), static_cast<std::streamsize>(text.size())).flush()) {
    file_.close();
    std::fputs("gear_mpi: the log cannot be written any more: is the disk full?\n", stderr);
  }
}

int64_t Log::since_epoch_ns(std::chrono::steady_clock::time_point time) const {
  return epoch_ns_ + duration_cast<nanoseconds>(time.time_since_epoch()).count();
}

size_t Log::number_of(const std::string& group) {
  const auto found = std::ranges::find(groups_, group);
  if (found == groups_.end()) {
    groups_.push_back(group);
    return groups_.size() - 1;
  }
  return static_cast<size_t>(found - groups_.begin());
}

void Log::print(const Entry& entry) const {
  const auto ns = duration_cast<nanoseconds>(entry.end - entry.begin).count();
  std::string text = base::cat("gear_mpi: rank ", rank_, ": ", entry.operation);
  if (entry.number >= 0) {
    text += base::cat(" (call ", entry.number, " of group ", *entry.group, ", ", entry.group_size,
                      " ranks)");
  }
  text += base::cat(", ", entry.bytes, " bytes");
  if (*entry.dtype != '\0') {
    text += base::cat(" of ", entry.dtype);
  }
  text += base::cat(", by ", entry.route, entry.failed ? ", failed after " : ", ");
  append_us(text, ns);
  text += " us\n";
  std::fputs(text.c_str(), stderr);
}

}  // namespace gear::process_group
