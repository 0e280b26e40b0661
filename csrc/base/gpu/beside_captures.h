#pragma once

namespace gear::base {

/// Lets the calling thread do, for its own lifetime, what a capture into a CUDA graph by another
/// thread forbids all threads: to allocate, to wait, and to ask whether an event has passed.
/// torch.cuda.graph captures in the mode *global*, in which such a call is answered with
/// cudaErrorStreamCaptureUnsupported, whatever the work does, and ends the capture (measured on an
/// H200). GEAR's streams are never part of a capture of others, so nothing of it gets lost.
///
/// By CUDA's driver, which is found at run time; nothing happens where there is none. Costs two
/// calls of it.
class BesideCaptures {
 public:
  BesideCaptures() noexcept;
  ~BesideCaptures();

  BesideCaptures(const BesideCaptures&) = delete;
  BesideCaptures& operator=(const BesideCaptures&) = delete;

 private:
  int previous_;  // CUstreamCaptureMode of the thread
};

}  // namespace gear::base
