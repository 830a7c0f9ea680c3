#include <cstdio>
#include <stdexcept>
#include <string>

__global__ void twice(float *values) { values[threadIdx.x] *= 2; }

int main() {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  try {
    if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
    twice<<<1, 1>>>(nullptr);
    std::printf("a device\n");
  } catch (const std::runtime_error &thrown) {
    std::printf("no device: %s\n", thrown.what());
  }
}
