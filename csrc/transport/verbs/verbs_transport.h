#pragma once

#include <memory>

#include "transport/verbs.h"
#include "transport/verbs/verbs_library.h"

namespace gear::transport::verbs {

/// As make_verbs, with the library that `find` returns or why there is none throws.
std::unique_ptr<Transport> open_verbs(std::shared_ptr<Transport> messages,
                                      const VerbsOptions& options, const VerbsLibrary& (*find)());

}  // namespace gear::transport::verbs
