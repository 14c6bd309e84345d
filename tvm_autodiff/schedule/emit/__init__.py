"""From schedules to machine code: loop primitives, modules, memory, compilation."""
