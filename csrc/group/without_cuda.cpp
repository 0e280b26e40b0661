// What a build without CUDA answers in place of group/cuda/.
#include "base/errors.h"
#include "group/group_loader.h"
#include "group/mover.h"

namespace gear::group {

std::unique_ptr<GroupMover> make_device_mover(MoverParts, int,
                                              std::unique_ptr<transport::DeviceTransport>) {
  throw base::InvalidArgument(
      "[loader] device 'cuda' asked for, but this build was made without CUDA "
      "(GEAR_WITH_CUDA=OFF): rebuild with CUDA, or use device='cpu'");
}

std::unique_ptr<deliver::Source> make_device_group_source(LoaderParts&) { return nullptr; }

}  // namespace gear::group
