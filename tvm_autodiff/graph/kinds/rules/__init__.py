"""Rules of stages for walks without calculus, one file per kind; derivatives and batches are in
`tvm_autodiff.rules`.
"""
