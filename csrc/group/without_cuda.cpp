// What a build without CUDA answers in place of group/cuda/.
#include "base/gpu/devices.h"
#include "group/group_loader.h"
#include "group/mover.h"

namespace gear::group {

std::unique_ptr<GroupMover> make_device_mover(MoverParts, int,
                                              std::unique_ptr<transport::DeviceTransport>) {
  base::refuse_without_cuda("[loader] device 'cuda'");
}

std::unique_ptr<deliver::Source> make_device_group_source(LoaderParts&) { return nullptr; }

}  // namespace gear::group
