"""LLVM functions written from arithmetic: the text of each instruction, and how it is called."""

from __future__ import annotations

import pytest
from tvm import s_tir, te

from tvm_autodiff.codegen.functions import vector_widths
from tvm_autodiff.schedule.elementary.code import DOUBLE, INT, Code, Value, function_text

#: what is written → the instructions of a scalar function
INSTRUCTIONS = {
    "sum": (lambda c, x: x + 1.0, ["fadd float %x0, 0x3FF0000000000000"]),
    "difference, literal first": (lambda c, x: 2.0 - x, ["fsub float 0x4000000000000000, %x0"]),
    "rounded literal": (lambda c, x: x * 0.1, ["fmul float %x0, 0x3FB99999A0000000"]),
    "quotient": (lambda c, x: 1.0 / x, ["fdiv float 0x3FF0000000000000, %x0"]),
    "bits": (
        lambda c, x: c.from_bits((c.bits(x) >> 1) & 7),
        [
            "bitcast float %x0 to i32",
            "ashr i32 %y0, 1",
            "and i32 %y1, 7",
            "bitcast i32 %y2 to float",
        ],
    ),
    "choice": (
        lambda c, x: c.where(x < 0.0, x, 0.0),
        ["fcmp olt float %x0, 0x0000000000000000", "select i1 %y0, float %x0, float 0x000"],
    ),
    "NaN differs": (
        lambda c, x: c.where(x.differs(x), 0.0, x),
        ["fcmp une float %x0, %x0", "select i1 %y0, float 0x000"],
    ),
    "wider": (
        lambda c, x: c.cast("float", c.cast(DOUBLE, x) * 3.0),
        ["fpext float %x0 to double", "fmul double %y0, 0x4008", "fptrunc double %y1 to float"],
    ),
    "integer": (
        lambda c, x: c.cast("float", c.cast(INT, x) + 1),
        ["fptosi float %x0 to i32", "add i32 %y0, 1", "sitofp i32 %y1 to float"],
    ),
    "fused": (
        lambda c, x: c.fma(x, x, 1.0),
        ["call float @llvm.fmuladd.f32(float %x0, float %x0, float 0x3FF0000000000000)"],
    ),
    "Horner": (
        lambda c, x: c.polynomial(x, (1.0, 2.0, 3.0)),
        ["@llvm.fmuladd.f32(float %x0, float 0x4008", "@llvm.fmuladd.f32(float %y0, float %x0,"],
    ),
}


@pytest.mark.parametrize("case", INSTRUCTIONS)
def test_instructions(case):
    rule, expected = INSTRUCTIONS[case]
    lines = [line for line in function_text("f", rule, 1, 1).splitlines() if " = " in line]
    assert len(lines) == len(expected)
    for line, part in zip(lines, expected, strict=True):
        assert part in line


def test_vectors_repeat_literals():
    text = function_text("f", lambda c, x, y: c.sqrt(x) + y * 2.0, 2, 2)
    assert "declare <2 x float> @llvm.sqrt.v2f32(<2 x float>)" in text
    assert "define <2 x float> @f(<2 x float> %x0, <2 x float> %x1)" in text
    assert "<float 0x4000000000000000, float 0x4000000000000000>" in text


def test_kinds_are_not_mixed():
    code = Code(1)
    with pytest.raises(TypeError, match="of kind i32 where float is wanted"):
        Value(code, "float", "%x") + Value(code, INT, "%n")


def test_widths_are_the_lengths_of_vectorised_loops():
    x = te.placeholder((64,), name="x")
    schedule = s_tir.Schedule(
        te.create_prim_func([x, te.compute((64,), lambda i: x[i] * 2.0, name="y")])
    )
    assert vector_widths(schedule.mod["main"]) == [1]
    [loop] = schedule.get_loops(schedule.get_sblock("y"))
    schedule.vectorize(schedule.split(loop, [None, 16])[1])
    assert vector_widths(schedule.mod["main"]) == [1, 16]
