extern "C" __global__ void __launch_bounds__(128) main_kernel(float* __restrict__ p0_ptr, float* __restrict__ p1_ptr, float* __restrict__ r0_ptr, float* __restrict__ r1_ptr);
extern "C" __global__ void __launch_bounds__(128) main_kernel(float* __restrict__ p0_ptr, float* __restrict__ p1_ptr, float* __restrict__ r0_ptr, float* __restrict__ r1_ptr) {
  alignas(64) float total_0_ptr[1];
  __shared__ alignas(64) float part_0_ptr[128];
  alignas(64) float sum_0_ptr[1];
  __shared__ alignas(64) float few_1_ptr[8];
  alignas(64) float sum_0_ptr_1[1];
  __shared__ alignas(64) float row_2_ptr[1];
  alignas(64) float total_0_ptr_1[1];
  alignas(64) float value_1_ptr[1];
  __shared__ alignas(64) float row_5_ptr[70];
  alignas(64) float sum_0_ptr_2[1];
  alignas(64) float sum_0_ptr_3[1];
  __shared__ alignas(64) float row_3_ptr[1];
  alignas(64) float total_0_ptr_2[1];
  alignas(64) float value_1_ptr_1[1];
  alignas(64) float sum_0_ptr_4[1];
  alignas(64) float sum_0_ptr_5[1];
  __shared__ alignas(64) float row_4_ptr[1];
  alignas(64) float value_0_ptr[1];
  total_0_ptr[0] = -0x1.fffffep+127f/*-3.402823e+38*/;
  int again = 0;
  int cse_v1 = ((((int)blockIdx.x) * 70) + ((int)threadIdx.x));
  if (((int)threadIdx.x) < 70) {
    total_0_ptr[0] = max(total_0_ptr[0], p0_ptr[((((int)blockIdx.x) * 70) + ((int)threadIdx.x))]);
  }
  part_0_ptr[((int)threadIdx.x)] = total_0_ptr[0];
  __syncthreads();
  if (((int)threadIdx.x) < 8) {
    sum_0_ptr[0] = part_0_ptr[((int)threadIdx.x)];
    for (int n = 0; n < 15; ++n) {
      sum_0_ptr[0] = max(sum_0_ptr[0], part_0_ptr[(((n * 8) + ((int)threadIdx.x)) + 8)]);
    }
    few_1_ptr[((int)threadIdx.x)] = sum_0_ptr[0];
  }
  __syncthreads();
  if (((int)threadIdx.x) < 1) {
    sum_0_ptr_1[0] = few_1_ptr[0];
    for (int n_1 = 0; n_1 < 7; ++n_1) {
      sum_0_ptr_1[0] = max(sum_0_ptr_1[0], few_1_ptr[(n_1 + 1)]);
    }
    row_2_ptr[0] = sum_0_ptr_1[0];
  }
  __syncthreads();
  total_0_ptr_1[0] = 0x0p+0f/*0.000000e+00*/;
  int again_1 = 0;
  if (((int)threadIdx.x) < 70) {
    value_1_ptr[0] = expf((p0_ptr[((((int)blockIdx.x) * 70) + ((int)threadIdx.x))] - row_2_ptr[0]));
    row_5_ptr[((int)threadIdx.x)] = value_1_ptr[0];
    total_0_ptr_1[0] = (total_0_ptr_1[0] + value_1_ptr[0]);
  }
  part_0_ptr[((int)threadIdx.x)] = total_0_ptr_1[0];
  __syncthreads();
  if (((int)threadIdx.x) < 8) {
    sum_0_ptr_2[0] = part_0_ptr[((int)threadIdx.x)];
    for (int n_2 = 0; n_2 < 15; ++n_2) {
      sum_0_ptr_2[0] = (sum_0_ptr_2[0] + part_0_ptr[(((n_2 * 8) + ((int)threadIdx.x)) + 8)]);
    }
    few_1_ptr[((int)threadIdx.x)] = sum_0_ptr_2[0];
  }
  __syncthreads();
  if (((int)threadIdx.x) < 1) {
    sum_0_ptr_3[0] = few_1_ptr[0];
    for (int n_3 = 0; n_3 < 7; ++n_3) {
      sum_0_ptr_3[0] = (sum_0_ptr_3[0] + few_1_ptr[(n_3 + 1)]);
    }
    row_3_ptr[0] = sum_0_ptr_3[0];
  }
  __syncthreads();
  total_0_ptr_2[0] = 0x0p+0f/*0.000000e+00*/;
  int again_2 = 0;
  if (((int)threadIdx.x) < 70) {
    value_1_ptr_1[0] = (row_5_ptr[((int)threadIdx.x)] / row_3_ptr[0]);
    r0_ptr[((((int)blockIdx.x) * 70) + ((int)threadIdx.x))] = value_1_ptr_1[0];
    total_0_ptr_2[0] = (total_0_ptr_2[0] + (((p1_ptr[((((int)blockIdx.x) * 70) + ((int)threadIdx.x))] * value_1_ptr_1[0]) / row_3_ptr[0]) * -0x1p+0f/*-1.000000e+00*/));
  }
  part_0_ptr[((int)threadIdx.x)] = total_0_ptr_2[0];
  __syncthreads();
  if (((int)threadIdx.x) < 8) {
    sum_0_ptr_4[0] = part_0_ptr[((int)threadIdx.x)];
    for (int n_4 = 0; n_4 < 15; ++n_4) {
      sum_0_ptr_4[0] = (sum_0_ptr_4[0] + part_0_ptr[(((n_4 * 8) + ((int)threadIdx.x)) + 8)]);
    }
    few_1_ptr[((int)threadIdx.x)] = sum_0_ptr_4[0];
  }
  __syncthreads();
  if (((int)threadIdx.x) < 1) {
    sum_0_ptr_5[0] = few_1_ptr[0];
    for (int n_5 = 0; n_5 < 7; ++n_5) {
      sum_0_ptr_5[0] = (sum_0_ptr_5[0] + few_1_ptr[(n_5 + 1)]);
    }
    row_4_ptr[0] = sum_0_ptr_5[0];
  }
  __syncthreads();
  int again_3 = 0;
  if (((int)threadIdx.x) < 70) {
    value_0_ptr[0] = (((p1_ptr[((((int)blockIdx.x) * 70) + ((int)threadIdx.x))] / row_3_ptr[0]) + row_4_ptr[0]) * row_5_ptr[((int)threadIdx.x)]);
    r1_ptr[((((int)blockIdx.x) * 70) + ((int)threadIdx.x))] = value_0_ptr[0];
  }
}
