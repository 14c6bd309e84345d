"""What walks over stages ask, answered in one file a kind; derivatives and batches are rules of
`tvm_autodiff.rules`.
"""
