"""From te tensors to scheduled functions: normal form, kernels, and one schedule rule for each
kernel.
"""
