#pragma once

namespace gear::process_group {

/// A rank among others.
struct Place {
  int rank;
  int size;
};

}  // namespace gear::process_group
