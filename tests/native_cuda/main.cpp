#define DOCTEST_CONFIG_IMPLEMENT
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <cstdio>

// Says which GPU the tests ran on; without one, exit code 2 in place of a failure in every test.
int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  cudaDeviceProp properties{};
  const cudaError_t status = cudaGetDeviceProperties(&properties, 0);
  if (status != cudaSuccess) {
    std::fprintf(stderr, "gear_cuda_tests: no GPU to run on: %s\n", cudaGetErrorString(status));
    return 2;
  }
  std::printf("on %s, compute capability %d.%d\n", properties.name, properties.major,
              properties.minor);
  const int failed = context.run();
  if (context.shouldExit()) {
    return failed;
  }
  // An error that a kernel left behind after the last check is a failure too.
  const cudaError_t left = cudaDeviceSynchronize();
  if (left != cudaSuccess) {
    std::fprintf(stderr, "gear_cuda_tests: an error was left behind: %s\n",
                 cudaGetErrorString(left));
    return 1;
  }
  return failed;
}
