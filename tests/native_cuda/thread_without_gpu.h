#pragma once

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <exception>
#include <thread>

namespace gear::tests {

// A new thread has no GPU until it takes one, or a call of the runtime gives it GPU 0.
template <class Work>
void in_another_thread(Work work) {
  std::exception_ptr error;
  std::thread thread([&] {
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
  });
  thread.join();
  if (error) {
    std::rethrow_exception(error);
  }
}

// Null: the thread has no GPU.
inline void* current_context() {
  static const auto get = reinterpret_cast<int (*)(void**)>(
      ::dlsym(::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), "cuCtxGetCurrent"));
  void* context = nullptr;
  REQUIRE(get(&context) == 0);
  return context;
}

}  // namespace gear::tests
