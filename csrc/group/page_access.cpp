#include "group/page_access.h"

#include <algorithm>
#include <exception>

#include "base/errors.h"
#include "transport/typed.h"

namespace gear::group {

PageAccess agree_on_access(Peers& peers, int device, transport::Transport& control) {
  PageAccess access;
  std::exception_ptr error;
  try {
    access.pages = peers.pages(device);
  } catch (const base::Error&) {
    error = std::current_exception();
  }
  // Before this rank leaves with its error: the others would wait for it.
  const auto failed = transport::allgather(control, static_cast<uint8_t>(error ? 1 : 0));
  if (error) {
    std::rethrow_exception(error);
  }
  for (uint32_t r = 0; r < failed.size(); ++r) {
    if (failed[r] == 0) {
      continue;
    }
    throw base::InvalidArgument(base::cat("[group] rank ", r, " could not map the memory of the ",
                                          "ranks of its node: its own message says why"));
  }
  std::vector<uint8_t> own;
  for (uint32_t r = 0; r < peers.size(); ++r) {
    PeerPages& one = access.pages[r];
    (device >= 0 ? one.host : one.device) = nullptr;
    own.push_back(one.host != nullptr || one.device != nullptr ? 1 : 0);
    one.num_pages = own.back() != 0 ? peers.num_pages(r) : 0;
    access.mapped.push_back(one.num_pages);
  }
  access.by_pointer.resize(own.size() * own.size());
  control.allgather(std::as_bytes(std::span(own)),
                    std::as_writable_bytes(std::span(access.by_pointer)));
  access.messages =
      !std::ranges::all_of(access.by_pointer, [](uint8_t reads) { return reads != 0; });
  return access;
}

}  // namespace gear::group
