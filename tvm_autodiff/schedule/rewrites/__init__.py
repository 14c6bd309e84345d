"""Steps from te to te before kernels are cut: normal form, fusion of passes, axes split."""
