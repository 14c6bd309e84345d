"""Run-time support of compiled functions: threads, arrays of any framework, signatures, calls."""
