"""Results of reductions in another order, in which vectors lie along memory."""
