#pragma once

#include <optional>

#include "link/link_model.h"

// The measured speeds of this machine's links, kept between runs in
// links-<GPU>-<host>.txt in base::cache_folder(): one line, which also names the GPU, its slot, the
// host and the driver. Thread safe. In a build without CUDA there are none: link_to and
// measure_link_again throw InvalidArgument.

namespace gear::link {

/// The link to GPU `device`: what the process had before, else from the cache, else measured in
/// less than 3 s, logged at info and kept there. A file that is torn, of an older form or of
/// another link is measured anew, and a cache that cannot be written is done without, each with a
/// warning; where there is no memory to measure it is LinkModel::typical(), with a warning.
LinkModel link_to(int device);

/// Only what the cache holds of it.
std::optional<LinkModel> cached_link_to(int device);

/// Measures whatever is known, and keeps that. Throws OutOfMemory.
LinkModel measure_link_again(int device);

}  // namespace gear::link
