"""TIR: functions of stages, loop nests, host functions, checks of arguments."""
