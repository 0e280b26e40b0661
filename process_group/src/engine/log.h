#pragma once

#include <chrono>
#include <cstdint>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

namespace gear::process_group {

/// One operation of torch.distributed on this rank, from its call to its end.
struct Entry {
  std::chrono::steady_clock::time_point begin;
  std::chrono::steady_clock::time_point end;
  uint64_t bytes;         ///< of the tensors that it is about
  const char* operation;  ///< this and the next two live for ever
  const char* dtype;
  const char* route;
  const std::string* group;  ///< its name; copied by Log::write
  int group_size;
  int64_t number;  ///< of the collective call in its group; -1 of a message
  bool failed;
};

/// What this process's operations took: a file of comma separated values, and lines on stderr.
/// Entries are collected and written some thousand at a time. write() and flush() may be called by
/// any thread.
class Log {
 public:
  /// The one of this process; null while there is none.
  static Log* current() noexcept;
  /// Begins it, once a process. `file`: is written anew; empty for none. `prints`: one line an
  /// operation on stderr. Throws TransportError if the file cannot be written.
  static void begin(int rank, const std::string& file, bool prints);

  void write(const Entry& entry);
  /// A failed write ends the log of this process, with one line on stderr.
  void flush();

 private:
  struct Line {
    Entry entry;
    size_t group;  // in groups_
  };

  Log(int rank, const std::string& file, bool prints);
  void write_out();  // under mutex_
  int64_t since_epoch_ns(std::chrono::steady_clock::time_point time) const;
  size_t number_of(const std::string& group);
  void print(const Entry& entry) const;

  const int rank_;
  const bool prints_;
  const int64_t epoch_ns_;  // of the system's clock where the steady one is zero

  std::mutex mutex_;  // of all that follows
  std::ofstream file_;
  std::vector<Line> lines_;
  std::vector<std::string> groups_;
};

}  // namespace gear::process_group
