#include "base/gpu/beside_captures.h"

#include <dlfcn.h>

namespace gear::base {
namespace {

constexpr int kRelaxed = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED

using Exchange = int (*)(int*);

Exchange exchange_mode() {
  static const Exchange found = [] {
    void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return library == nullptr
               ? nullptr
               : reinterpret_cast<Exchange>(::dlsym(library, "cuThreadExchangeStreamCaptureMode"));
  }();
  return found;
}

}  // namespace

BesideCaptures::BesideCaptures() noexcept : previous_(kRelaxed) {
  if (const Exchange exchange = exchange_mode()) {
    static_cast<void>(exchange(&previous_));
  }
}

BesideCaptures::~BesideCaptures() {
  if (const Exchange exchange = exchange_mode()) {
    static_cast<void>(exchange(&previous_));
  }
}

}  // namespace gear::base
