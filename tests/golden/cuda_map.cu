extern "C" __global__ void __launch_bounds__(256) main_kernel(float* __restrict__ S_ptr, float* __restrict__ p_A_ptr, float* __restrict__ p_B_ptr, float* __restrict__ p_C_ptr);
extern "C" __global__ void __launch_bounds__(256) main_kernel(float* __restrict__ S_ptr, float* __restrict__ p_A_ptr, float* __restrict__ p_B_ptr, float* __restrict__ p_C_ptr) {
  int cse_v1 = (((int)threadIdx.x) * 4);
  float4 __1;
    float4 __2;
      float4 v_ = make_float4(p_A_ptr[((int)blockIdx.x)], p_A_ptr[((int)blockIdx.x)], p_A_ptr[((int)blockIdx.x)], p_A_ptr[((int)blockIdx.x)]);
      float4 v__1 = *(float4*)(p_B_ptr + (((int)threadIdx.x) * 4));
      __2.x = (v_.x*v__1.x);
      __2.y = (v_.y*v__1.y);
      __2.z = (v_.z*v__1.z);
      __2.w = (v_.w*v__1.w);
    float4 v__2 = make_float4(p_C_ptr[0], p_C_ptr[0], p_C_ptr[0], p_C_ptr[0]);
    __1.x = (__2.x+v__2.x);
    __1.y = (__2.y+v__2.y);
    __1.z = (__2.z+v__2.z);
    __1.w = (__2.w+v__2.w);
  *(float4*)(S_ptr + ((((int)blockIdx.x) * 1024) + (((int)threadIdx.x) * 4))) = __1;
}
