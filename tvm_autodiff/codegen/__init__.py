"""Generation of TIR: functions of stages, loop nests, host functions and argument checks."""
