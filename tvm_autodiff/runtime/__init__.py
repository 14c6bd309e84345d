"""What a compiled function needs at run time: threads, arrays of any framework, signatures,
calls.
"""
