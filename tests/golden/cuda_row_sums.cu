extern "C" __global__ void __launch_bounds__(128) main_kernel(float* __restrict__ p0_ptr, float* __restrict__ p1_ptr);
extern "C" __global__ void __launch_bounds__(128) main_kernel(float* __restrict__ p0_ptr, float* __restrict__ p1_ptr) {
  alignas(64) float part_ptr[1];
  alignas(64) float other_ptr[1];
  __shared__ alignas(64) float shared_0_ptr[4];
  part_ptr[0] = 0x0p+0f/*0.000000e+00*/;
  for (int step = 0; step < 3; ++step) {
    if (((step * 32) + (((int)threadIdx.x) >> 2)) < 75) {
      part_ptr[0] = (part_ptr[0] + p0_ptr[(((((int)blockIdx.x) * 300) + (step * 128)) + ((int)threadIdx.x))]);
    }
  }
  other_ptr[0] = __shfl_down_sync((uint)4294967295, part_ptr[0], 16, 32);
  part_ptr[0] = (part_ptr[0] + other_ptr[0]);
  other_ptr[0] = __shfl_down_sync((uint)4294967295, part_ptr[0], 8, 32);
  part_ptr[0] = (part_ptr[0] + other_ptr[0]);
  other_ptr[0] = __shfl_down_sync((uint)4294967295, part_ptr[0], 4, 32);
  part_ptr[0] = (part_ptr[0] + other_ptr[0]);
  other_ptr[0] = __shfl_down_sync((uint)4294967295, part_ptr[0], 2, 32);
  part_ptr[0] = (part_ptr[0] + other_ptr[0]);
  other_ptr[0] = __shfl_down_sync((uint)4294967295, part_ptr[0], 1, 32);
  part_ptr[0] = (part_ptr[0] + other_ptr[0]);
  if ((((int)threadIdx.x) % 32) == 0) {
    shared_0_ptr[(((int)threadIdx.x) >> 5)] = part_ptr[0];
  }
  __syncthreads();
  if (((int)threadIdx.x) < 4) {
    part_ptr[0] = shared_0_ptr[((int)threadIdx.x)];
  }
  other_ptr[0] = __shfl_down_sync((uint)4294967295, part_ptr[0], 2, 32);
  part_ptr[0] = (part_ptr[0] + other_ptr[0]);
  other_ptr[0] = __shfl_down_sync((uint)4294967295, part_ptr[0], 1, 32);
  part_ptr[0] = (part_ptr[0] + other_ptr[0]);
  if (((int)threadIdx.x) == 0) {
    p1_ptr[((int)blockIdx.x)] = part_ptr[0];
  }
}
