extern "C" __global__ void __launch_bounds__(128) main_kernel(float* __restrict__ p0_ptr, float* __restrict__ p1_ptr, float* __restrict__ r0_ptr, float* __restrict__ r1_ptr);
extern "C" __global__ void __launch_bounds__(128) main_kernel(float* __restrict__ p0_ptr, float* __restrict__ p1_ptr, float* __restrict__ r0_ptr, float* __restrict__ r1_ptr) {
  alignas(64) float total_0_ptr[1];
  alignas(64) int total_1_ptr[1];
  alignas(64) float new_2_ptr[1];
  alignas(64) int new_3_ptr[1];
  alignas(64) float next_4_ptr[1];
  alignas(64) int next_5_ptr[1];
  __shared__ alignas(64) float part_0_ptr[128];
  __shared__ alignas(64) int part_2_ptr[128];
  alignas(64) float sum_0_ptr[1];
  alignas(64) int sum_1_ptr[1];
  alignas(64) float next_2_ptr[1];
  alignas(64) int next_3_ptr[1];
  __shared__ alignas(64) float few_1_ptr[8];
  __shared__ alignas(64) int few_3_ptr[8];
  alignas(64) float sum_0_ptr_1[1];
  alignas(64) int sum_1_ptr_1[1];
  alignas(64) float next_2_ptr_1[1];
  alignas(64) int next_3_ptr_1[1];
  __shared__ alignas(64) float row_4_ptr[1];
  __shared__ alignas(64) int row_8_ptr[1];
  alignas(64) float value_0_ptr[1];
  __shared__ alignas(64) float row_5_ptr[1];
  alignas(64) float total_0_ptr_1[1];
  alignas(64) float value_1_ptr[1];
  alignas(64) float sum_0_ptr_2[1];
  alignas(64) float sum_0_ptr_3[1];
  __shared__ alignas(64) float row_6_ptr[1];
  alignas(64) float total_0_ptr_2[1];
  alignas(64) float value_1_ptr_1[1];
  alignas(64) float sum_0_ptr_4[1];
  alignas(64) float sum_0_ptr_5[1];
  __shared__ alignas(64) float row_7_ptr[1];
  alignas(64) float total_0_ptr_3[1];
  alignas(64) float value_1_ptr_2[1];
  __shared__ alignas(64) float row_11_ptr[70];
  alignas(64) float sum_0_ptr_6[1];
  alignas(64) float sum_0_ptr_7[1];
  __shared__ alignas(64) float row_9_ptr[1];
  alignas(64) float value_0_ptr_1[1];
  total_0_ptr[0] = -CUDART_INF_F;
  total_1_ptr[0] = 2147483647;
  int again = 0;
  int cse_v2 = ((((int)blockIdx.x) * 70) + ((int)threadIdx.x));
  if (((int)threadIdx.x) < 70) {
    new_2_ptr[0] = p0_ptr[((((int)blockIdx.x) * 70) + ((int)threadIdx.x))];
    new_3_ptr[0] = ((int)threadIdx.x);
    float condval;
    if ((new_2_ptr[0] < total_0_ptr[0]) || ((total_0_ptr[0] == new_2_ptr[0]) && (total_1_ptr[0] <= new_3_ptr[0]))) {
      condval = total_0_ptr[0];
    } else {
      condval = new_2_ptr[0];
    }
    next_4_ptr[0] = condval;
    int condval_1;
    if ((new_2_ptr[0] < total_0_ptr[0]) || ((total_0_ptr[0] == new_2_ptr[0]) && (total_1_ptr[0] <= new_3_ptr[0]))) {
      condval_1 = total_1_ptr[0];
    } else {
      condval_1 = new_3_ptr[0];
    }
    next_5_ptr[0] = condval_1;
    total_0_ptr[0] = next_4_ptr[0];
    total_1_ptr[0] = next_5_ptr[0];
  }
  part_0_ptr[((int)threadIdx.x)] = total_0_ptr[0];
  part_2_ptr[((int)threadIdx.x)] = total_1_ptr[0];
  __syncthreads();
  if (((int)threadIdx.x) < 8) {
    sum_0_ptr[0] = part_0_ptr[((int)threadIdx.x)];
    sum_1_ptr[0] = part_2_ptr[((int)threadIdx.x)];
    for (int n = 0; n < 15; ++n) {
      int cse_v3 = (((n * 8) + ((int)threadIdx.x)) + 8);
      float condval_2;
      if ((part_0_ptr[(((n * 8) + ((int)threadIdx.x)) + 8)] < sum_0_ptr[0]) || ((sum_0_ptr[0] == part_0_ptr[(((n * 8) + ((int)threadIdx.x)) + 8)]) && (sum_1_ptr[0] <= part_2_ptr[(((n * 8) + ((int)threadIdx.x)) + 8)]))) {
        condval_2 = sum_0_ptr[0];
      } else {
        condval_2 = part_0_ptr[(((n * 8) + ((int)threadIdx.x)) + 8)];
      }
      next_2_ptr[0] = condval_2;
      int condval_3;
      if ((part_0_ptr[(((n * 8) + ((int)threadIdx.x)) + 8)] < sum_0_ptr[0]) || ((sum_0_ptr[0] == part_0_ptr[(((n * 8) + ((int)threadIdx.x)) + 8)]) && (sum_1_ptr[0] <= part_2_ptr[(((n * 8) + ((int)threadIdx.x)) + 8)]))) {
        condval_3 = sum_1_ptr[0];
      } else {
        condval_3 = part_2_ptr[(((n * 8) + ((int)threadIdx.x)) + 8)];
      }
      next_3_ptr[0] = condval_3;
      sum_0_ptr[0] = next_2_ptr[0];
      sum_1_ptr[0] = next_3_ptr[0];
    }
    few_1_ptr[((int)threadIdx.x)] = sum_0_ptr[0];
    few_3_ptr[((int)threadIdx.x)] = sum_1_ptr[0];
  }
  __syncthreads();
  if (((int)threadIdx.x) < 1) {
    sum_0_ptr_1[0] = few_1_ptr[0];
    sum_1_ptr_1[0] = few_3_ptr[0];
    for (int n_1 = 0; n_1 < 7; ++n_1) {
      int cse_v1 = (n_1 + 1);
      float condval_4;
      if ((few_1_ptr[(n_1 + 1)] < sum_0_ptr_1[0]) || ((sum_0_ptr_1[0] == few_1_ptr[(n_1 + 1)]) && (sum_1_ptr_1[0] <= few_3_ptr[(n_1 + 1)]))) {
        condval_4 = sum_0_ptr_1[0];
      } else {
        condval_4 = few_1_ptr[(n_1 + 1)];
      }
      next_2_ptr_1[0] = condval_4;
      int condval_5;
      if ((few_1_ptr[(n_1 + 1)] < sum_0_ptr_1[0]) || ((sum_0_ptr_1[0] == few_1_ptr[(n_1 + 1)]) && (sum_1_ptr_1[0] <= few_3_ptr[(n_1 + 1)]))) {
        condval_5 = sum_1_ptr_1[0];
      } else {
        condval_5 = few_3_ptr[(n_1 + 1)];
      }
      next_3_ptr_1[0] = condval_5;
      sum_0_ptr_1[0] = next_2_ptr_1[0];
      sum_1_ptr_1[0] = next_3_ptr_1[0];
    }
    row_4_ptr[0] = sum_0_ptr_1[0];
    row_8_ptr[0] = sum_1_ptr_1[0];
  }
  int again_1 = 0;
  __syncthreads();
  if (((int)threadIdx.x) < 1) {
    value_0_ptr[0] = max(-0x1.fffffep+127f/*-3.402823e+38*/, row_4_ptr[0]);
    row_5_ptr[0] = value_0_ptr[0];
  }
  total_0_ptr_1[0] = 0x0p+0f/*0.000000e+00*/;
  int again_2 = 0;
  __syncthreads();
  if (((int)threadIdx.x) < 70) {
    value_1_ptr[0] = expf((p0_ptr[((((int)blockIdx.x) * 70) + ((int)threadIdx.x))] - row_5_ptr[0]));
    ((float*)part_2_ptr)[((int)threadIdx.x)] = value_1_ptr[0];
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
    row_6_ptr[0] = sum_0_ptr_3[0];
  }
  total_0_ptr_2[0] = 0x0p+0f/*0.000000e+00*/;
  int again_3 = 0;
  __syncthreads();
  if (((int)threadIdx.x) < 70) {
    value_1_ptr_1[0] = (((float*)part_2_ptr)[((int)threadIdx.x)] / row_6_ptr[0]);
    r0_ptr[((((int)blockIdx.x) * 70) + ((int)threadIdx.x))] = value_1_ptr_1[0];
    total_0_ptr_2[0] = (total_0_ptr_2[0] + (((p1_ptr[((((int)blockIdx.x) * 70) + ((int)threadIdx.x))] * value_1_ptr_1[0]) / row_6_ptr[0]) * -0x1p+0f/*-1.000000e+00*/));
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
    row_7_ptr[0] = sum_0_ptr_5[0];
  }
  total_0_ptr_3[0] = 0x0p+0f/*0.000000e+00*/;
  int again_4 = 0;
  __syncthreads();
  if (((int)threadIdx.x) < 70) {
    value_1_ptr_2[0] = ((p1_ptr[((((int)blockIdx.x) * 70) + ((int)threadIdx.x))] / row_6_ptr[0]) + row_7_ptr[0]);
    row_11_ptr[((int)threadIdx.x)] = value_1_ptr_2[0];
    total_0_ptr_3[0] = (total_0_ptr_3[0] + ((value_1_ptr_2[0] * ((float*)part_2_ptr)[((int)threadIdx.x)]) * -0x1p+0f/*-1.000000e+00*/));
  }
  part_0_ptr[((int)threadIdx.x)] = total_0_ptr_3[0];
  __syncthreads();
  if (((int)threadIdx.x) < 8) {
    sum_0_ptr_6[0] = part_0_ptr[((int)threadIdx.x)];
    for (int n_6 = 0; n_6 < 15; ++n_6) {
      sum_0_ptr_6[0] = (sum_0_ptr_6[0] + part_0_ptr[(((n_6 * 8) + ((int)threadIdx.x)) + 8)]);
    }
    few_1_ptr[((int)threadIdx.x)] = sum_0_ptr_6[0];
  }
  __syncthreads();
  if (((int)threadIdx.x) < 1) {
    sum_0_ptr_7[0] = few_1_ptr[0];
    for (int n_7 = 0; n_7 < 7; ++n_7) {
      sum_0_ptr_7[0] = (sum_0_ptr_7[0] + few_1_ptr[(n_7 + 1)]);
    }
    row_9_ptr[0] = sum_0_ptr_7[0];
  }
  int again_5 = 0;
  __syncthreads();
  if (((int)threadIdx.x) < 70) {
    float condval_6;
    if (row_8_ptr[0] == ((int)threadIdx.x)) {
      condval_6 = row_9_ptr[0];
    } else {
      condval_6 = 0x0p+0f/*0.000000e+00*/;
    }
    value_0_ptr_1[0] = ((row_11_ptr[((int)threadIdx.x)] * ((float*)part_2_ptr)[((int)threadIdx.x)]) + condval_6);
    r1_ptr[((((int)blockIdx.x) * 70) + ((int)threadIdx.x))] = value_0_ptr_1[0];
  }
}
