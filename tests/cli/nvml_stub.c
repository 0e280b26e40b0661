/* Stands for libnvidia-ml.so.1: three GPUs as nvml.h of CUDA 13 would describe them, GPU 0 and 1
 * with NVLink to each other. NVML_STUB chooses what goes wrong. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
  SUCCESS = 0,
  INVALID_ARGUMENT = 2,
  NOT_SUPPORTED = 3,
  NOT_FOUND = 6,
  INSUFFICIENT_SIZE = 7,
  DRIVER_NOT_LOADED = 9,
  GPU_IS_LOST = 15,
  LIB_RM_VERSION_MISMATCH = 18,
  P2P_CAPS_NVLINK = 2,
  P2P_STATUS_OK = 0,
  P2P_NOT_SUPPORTED = 1
};

typedef struct {
  int index;
}* Device;
typedef struct {
  unsigned long long total, free, used;
} Memory;
typedef struct {
  char busIdLegacy[16];
  unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
  char busId[32];
} PciInfo;

static struct {
  int index;
} gpus[3] = {{0}, {1}, {2}};

static int wrong(const char* what) {
  const char* chosen = getenv("NVML_STUB");
  return chosen && strcmp(chosen, what) == 0;
}

int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  if (wrong("not loaded")) return DRIVER_NOT_LOADED;
  return wrong("mismatch") ? LIB_RM_VERSION_MISMATCH : SUCCESS;
}

int nvmlShutdown(void) { return SUCCESS; }

const char* nvmlErrorString(int result) {
  if (result == LIB_RM_VERSION_MISMATCH) return "Driver/library version mismatch";
  return result == GPU_IS_LOST ? "GPU is lost" : "Unknown Error";
}

int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = wrong("none") ? 0 : 3;
  return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* device) {
  if (index > 2) return INVALID_ARGUMENT;
  *device = (Device)&gpus[index];
  return SUCCESS;
}

int nvmlDeviceGetName(Device device, char* name, unsigned length) {
  snprintf(name, length, "%s", device->index < 2 ? "NVIDIA H200" : "NVIDIA A100-PCIE-40GB");
  return SUCCESS;
}

int nvmlDeviceGetUUID(Device device, char* uuid, unsigned length) {
  snprintf(uuid, length, "GPU-00000000-0000-0000-0000-00000000000%d", device->index);
  return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(Device device, int* major, int* minor) {
  *major = device->index < 2 ? 9 : 8;
  *minor = 0;
  return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(Device device, Memory* memory) {
  if (wrong("lost") && device->index == 1) return GPU_IS_LOST;
  memory->total = 140ull << 30;
  memory->free = 139ull << 30;
  memory->used = 1ull << 30;
  return SUCCESS;
}

typedef struct {
  unsigned pid;
  unsigned long long usedGpuMemory;
  unsigned gpuInstanceId, computeInstanceId;
} Process;

typedef struct {
  unsigned pid;
  unsigned long long timeStamp;
  unsigned smUtil, memUtil, encUtil, decUtil;
} Utilisation;

static int give(unsigned* room, unsigned count) {
  const unsigned had = *room;
  *room = count;
  return had < count ? INSUFFICIENT_SIZE : SUCCESS;
}

/* On GPU 0 whoever asks and a process that is not here, whose memory the driver does not tell; on
 * GPU 1 whoever asks. */
int nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned* room, Process* found) {
  const unsigned count = 2 - device->index;
  const int result = give(room, count);
  if (result == SUCCESS && count > 0) {
    found[0] = (Process){getpid(), 3ull << 30, ~0u, ~0u};
    if (count > 1) found[1] = (Process){4194999, ~0ull, ~0u, ~0u};
  }
  return result;
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(Device device, unsigned* room, Process* found) {
  (void)device, (void)found;
  return give(room, 0);
}

/* The newest sample is not the last. */
int nvmlDeviceGetProcessUtilization(Device device, Utilisation* found, unsigned* room,
                                    unsigned long long since) {
  (void)since;
  if (device->index > 0) return NOT_FOUND;
  const int result = give(room, 2);
  if (result == SUCCESS) {
    found[0] = (Utilisation){getpid(), 2000, 87, 0, 0, 0};
    found[1] = (Utilisation){getpid(), 1000, 5, 0, 0, 0};
  }
  return result;
}

int nvmlDeviceGetPciInfo_v3(Device device, PciInfo* pci) {
  memset(pci, 0xff, sizeof *pci);
  pci->domain = 0;
  pci->bus = 0x3b + device->index;
  pci->device = 0;
  return SUCCESS;
}

/* As on real GPUs: one link is down on GPU 1; the first that is not there is an invalid argument.
 */
int nvmlDeviceGetNvLinkState(Device device, unsigned link, int* active) {
  if (device->index == 2) return NOT_SUPPORTED;
  if (link >= 18) return INVALID_ARGUMENT;
  *active = !(device->index == 1 && link == 17);
  return SUCCESS;
}

int nvmlDeviceGetP2PStatus(Device one, Device other, int capability, int* status) {
  const int linked = one->index < 2 && other->index < 2 && capability == P2P_CAPS_NVLINK;
  *status = linked ? P2P_STATUS_OK : P2P_NOT_SUPPORTED;
  return SUCCESS;
}
