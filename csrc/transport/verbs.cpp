#include "transport/verbs.h"

#include <utility>

#include "base/errors.h"
#if GEAR_VERBS
#include "transport/verbs/verbs_device.h"
#include "transport/verbs/verbs_library.h"
#include "transport/verbs/verbs_port.h"
#endif

namespace gear::transport {

#if GEAR_VERBS

bool verbs_built() { return true; }

std::unique_ptr<Transport> make_verbs(std::shared_ptr<Transport> messages,
                                      const VerbsOptions& options) {
  return verbs::open_verbs(std::move(messages), options, verbs::verbs_library);
}

std::string describe_verbs_port() {
  return verbs::VerbsPort(verbs::verbs_library(), verbs::port_choice()).text();
}

#else

bool verbs_built() { return false; }

namespace {

[[noreturn]] void refuse() {
  throw base::InvalidArgument(
      "[transport] this build of GEAR has no transport verbs: build it where infiniband/verbs.h is "
      "(libibverbs-dev, rdma-core-devel) with GEAR_WITH_VERBS=ON, or choose another transport");
}

}  // namespace

std::unique_ptr<Transport> make_verbs(std::shared_ptr<Transport>, const VerbsOptions&) { refuse(); }
std::string describe_verbs_port() { refuse(); }

#endif

}  // namespace gear::transport
