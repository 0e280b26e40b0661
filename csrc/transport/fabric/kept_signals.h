#pragma once

#include <signal.h>

#include <array>

namespace gear::transport::fabric {

/// While it lives, a library may set handlers of signals; afterwards those signals have the handler
/// again that they had before. One thread of a process at a time may have one, and for a short
/// while: a handler that another thread sets meanwhile cannot be told from the library's.
///
/// libinfinipath, which Debian's libfabric brings along, takes SIGTERM and the signals of a crash
/// when it is loaded: its handler calls exit(), which waits for ever where the signal came amid an
/// allocation, and a program that saves itself on SIGTERM is never asked.
class KeptSignals {
 public:
  KeptSignals() noexcept {
    for (int signal = 1; signal < NSIG; ++signal) {
      known_[signal] = ::sigaction(signal, nullptr, &before_[signal]) == 0;
    }
  }
  ~KeptSignals() {
    for (int signal = 1; signal < NSIG; ++signal) {
      struct sigaction now{};
      if (known_[signal] && ::sigaction(signal, nullptr, &now) == 0 &&
          (now.sa_handler != before_[signal].sa_handler ||
           now.sa_flags != before_[signal].sa_flags)) {
        ::sigaction(signal, &before_[signal], nullptr);
      }
    }
  }
  KeptSignals(const KeptSignals&) = delete;
  KeptSignals& operator=(const KeptSignals&) = delete;

 private:
  std::array<struct sigaction, NSIG> before_{};
  std::array<bool, NSIG> known_{};
};

}  // namespace gear::transport::fabric
