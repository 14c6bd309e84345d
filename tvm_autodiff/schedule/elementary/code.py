"""Writes LLVM functions from arithmetic in Python.

A rule computes with `Value` objects as with numbers, and becomes the text of an LLVM function of
scalars or vectors. It has no branches, except past arguments that are rare (`Near`). Products and
sums are fused only by `Code.fma`, so that the rule controls every rounding except those, which
depend on the machine.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

FLOAT, DOUBLE, INT, LONG, BOOL = "float", "double", "i32", "i64", "i1"
#: float → integer of as many bits
_BITS = {FLOAT: INT, DOUBLE: LONG}
_FLOATS = {bits: kind for kind, bits in _BITS.items()}
_INTRINSIC_SUFFIX = {FLOAT: "f32", DOUBLE: "f64"}
_FLOAT_WORDS = {"+": "fadd", "-": "fsub", "*": "fmul", "/": "fdiv"}
_INT_WORDS = {
    **{"+": "add", "-": "sub", "*": "mul", "<<": "shl", ">>": "ashr"},
    **{"&": "and", "|": "or", "^": "xor"},
}
_FLOAT_TESTS = {"<": "olt", "<=": "ole", ">": "ogt", ">=": "oge", "==": "oeq", "!=": "une"}
_INT_TESTS = {"<": "slt", "<=": "sle", ">": "sgt", ">=": "sge", "==": "eq", "!=": "ne"}
_CASTS = {
    (FLOAT, DOUBLE): "fpext",
    (DOUBLE, FLOAT): "fptrunc",
    (FLOAT, INT): "fptosi",
    (INT, FLOAT): "sitofp",
    (INT, DOUBLE): "sitofp",
    (LONG, DOUBLE): "sitofp",
}


class Value:
    """A scalar or vector in a function that is being written. Operators emit instructions."""

    def __init__(self, code: Code, kind: str, name: str) -> None:
        self.code, self.kind, self.name = code, kind, name

    def _operation(self, sign: str, other: Value | float, swapped: bool = False) -> Value:
        left, right = self.code.operand(self, self.kind), self.code.operand(other, self.kind)
        if swapped:
            left, right = right, left
        words = _FLOAT_WORDS if self.kind in (FLOAT, DOUBLE) else _INT_WORDS
        return self.code.instruction(
            self.kind, f"{words[sign]} {self.code.type(self.kind)} {left}, {right}"
        )

    def _test(self, sign: str, other: Value | float) -> Value:
        floats = self.kind in (FLOAT, DOUBLE)
        word = f"fcmp {_FLOAT_TESTS[sign]}" if floats else f"icmp {_INT_TESTS[sign]}"
        right = self.code.operand(other, self.kind)
        return self.code.instruction(
            BOOL, f"{word} {self.code.type(self.kind)} {self.name}, {right}"
        )

    def __add__(self, other: Value | float) -> Value:
        return self._operation("+", other)

    def __radd__(self, other: float) -> Value:
        return self._operation("+", other, swapped=True)

    def __sub__(self, other: Value | float) -> Value:
        return self._operation("-", other)

    def __rsub__(self, other: float) -> Value:
        return self._operation("-", other, swapped=True)

    def __mul__(self, other: Value | float) -> Value:
        return self._operation("*", other)

    def __rmul__(self, other: float) -> Value:
        return self._operation("*", other, swapped=True)

    def __truediv__(self, other: Value | float) -> Value:
        return self._operation("/", other)

    def __rtruediv__(self, other: float) -> Value:
        return self._operation("/", other, swapped=True)

    def __lshift__(self, other: int) -> Value:
        return self._operation("<<", other)

    def __rshift__(self, other: int) -> Value:
        return self._operation(">>", other)

    def __and__(self, other: Value | int) -> Value:
        return self._operation("&", other)

    def __or__(self, other: Value | int) -> Value:
        return self._operation("|", other)

    def __xor__(self, other: Value | int) -> Value:
        return self._operation("^", other)

    def __lt__(self, other: Value | float) -> Value:
        return self._test("<", other)

    def __le__(self, other: Value | float) -> Value:
        return self._test("<=", other)

    def __gt__(self, other: Value | float) -> Value:
        return self._test(">", other)

    def __ge__(self, other: Value | float) -> Value:
        return self._test(">=", other)

    def equals(self, other: Value | float) -> Value:
        """Whether two values are equal; NaN equals nothing."""
        return self._test("==", other)

    def differs(self, other: Value | float) -> Value:
        """Whether two values are not equal; NaN differs from itself."""
        return self._test("!=", other)


class Code:
    """The instructions of one function.

    Parameters
    ----------
    lanes : int
        The width of all vectors; 1 for scalars.
    """

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes
        self._lines: list[str] = []
        self._declared: dict[str, None] = {}

    def type(self, kind: str) -> str:
        """The LLVM type of values of a kind."""
        return kind if self._lanes == 1 else f"<{self._lanes} x {kind}>"

    def instruction(self, kind: str, text: str) -> Value:
        """The result of an instruction."""
        name = f"%y{len(self._lines)}"
        self._lines.append(f"  {name} = {text}")
        return Value(self, kind, name)

    def operand(self, value: Value | float, kind: str) -> str:
        """A value or literal as an operand of instructions on a kind."""
        if isinstance(value, Value):
            if value.kind != kind:
                raise TypeError(f"a value of kind {value.kind} where {kind} is wanted")
            return value.name
        text = _float_literal(value, kind) if kind in _BITS else str(int(value))
        if self._lanes == 1:
            return text
        return "<" + ", ".join([f"{kind} {text}"] * self._lanes) + ">"

    def constant(self, kind: str, value: float) -> Value:
        """A literal in every lane, for operations in which no operand determines the type."""
        return Value(self, kind, self.operand(value, kind))

    def cast(self, kind: str, value: Value) -> Value:
        """The nearest value of another kind; float to integer truncates."""
        old, new = self.type(value.kind), self.type(kind)
        return self.instruction(kind, f"{_CASTS[value.kind, kind]} {old} {value.name} to {new}")

    def bits(self, value: Value) -> Value:
        """A float as the integer of the same bits."""
        return self._reinterpreted(value, _BITS[value.kind])

    def from_bits(self, value: Value) -> Value:
        """An integer as the float of the same bits."""
        return self._reinterpreted(value, _FLOATS[value.kind])

    def _reinterpreted(self, value: Value, kind: str) -> Value:
        old, new = self.type(value.kind), self.type(kind)
        return self.instruction(kind, f"bitcast {old} {value.name} to {new}")

    def fma(self, a: Value, b: Value | float, c: Value | float) -> Value:
        """``a*b + c``, with one rounding if the machine has such an instruction, else two."""
        return self._intrinsic("fmuladd", a.kind, (a, b, c))

    def product(self, a: Value, b: Value | float) -> tuple[Value, Value]:
        """``a*b`` as its rounded value and what that lacks; a call for each lane where the machine
        has no fused product.
        """
        high = a * b
        return high, self._intrinsic("fma", a.kind, (a, b, high * -1.0))

    def floor(self, value: Value) -> Value:
        """The largest whole number that is not greater."""
        return self._intrinsic("floor", value.kind, (value,))

    def sqrt(self, value: Value) -> Value:
        """The square root."""
        return self._intrinsic("sqrt", value.kind, (value,))

    def where(self, condition: Value, then: Value | float, otherwise: Value | float) -> Value:
        """A choice lane by lane; both sides are computed."""
        kinds = [side.kind for side in (then, otherwise) if isinstance(side, Value)]
        kind = kinds[0] if kinds else FLOAT
        sides = (f"{self.type(kind)} {self.operand(side, kind)}" for side in (then, otherwise))
        test = f"{self.type(BOOL)} {condition.name}"
        return self.instruction(kind, f"select {test}, {', '.join(sides)}")

    def clamp(self, x: Value, low: float, high: float) -> Value:
        """``x`` clamped to an interval; a NaN stays a NaN."""
        x = self.where(x < low, low, x)
        return self.where(x > high, high, x)

    def polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        """``c[0] + c[1]*x + c[2]*x**2 + ...`` by Horner's rule; at least two coefficients."""
        *rest, second, first = coefficients
        result = self.fma(x, first, second)
        for coefficient in reversed(rest):
            result = self.fma(result, x, coefficient)
        return result

    def _intrinsic(self, name: str, kind: str, args: Sequence[Value | float]) -> Value:
        width = "" if self._lanes == 1 else f"v{self._lanes}"
        full = f"@llvm.{name}.{width}{_INTRINSIC_SUFFIX[kind]}"
        ty = self.type(kind)
        self._declared[f"declare {ty} {full}({', '.join([ty] * len(args))})"] = None
        given = ", ".join(f"{ty} {self.operand(arg, kind)}" for arg in args)
        return self.instruction(kind, f"call {ty} {full}({given})")

    def leave_beyond(self, x: Value, limit: float, function: str) -> None:
        """Return ``function(x)`` where a lane is not below the limit, or NaN."""
        kind, ty = x.kind, self.type(x.kind)
        magnitude = self._intrinsic("fabs", kind, (x,))
        test = f"fcmp uge {ty} {magnitude.name}, {self.operand(limit, kind)}"
        found = self.instruction(BOOL, test)
        if self._lanes > 1:
            reduce = f"@llvm.vector.reduce.or.v{self._lanes}i1({self.type(BOOL)}"
            self._declared[f"declare i1 {reduce})"] = None
            found = self.instruction(BOOL, f"call i1 {reduce} {found.name})")
        self._lines += [
            f"  br i1 {found.name}, label %beyond, label %near",
            "beyond:",
            f"  %far = call {ty} @{function}({ty} %x0)",
            f"  ret {ty} %far",
            "near:",
        ]

    def of_c(self, name: str, x: Value) -> Value:
        """A function of the C library, lane by lane, that LLVM knows."""
        return self._intrinsic(name, x.kind, (x,))

    def text(self, name: str, arity: int, result: Value) -> str:
        """The function of operands of the result's kind, and the declarations of what it calls."""
        return "\n".join([*self._declared, self.definition(name, arity, result)])

    def definition(self, name: str, arity: int, result: Value, attributes: str = "") -> str:
        """The function alone."""
        ty = self.type(result.kind)
        params = ", ".join(f"{ty} %x{number}" for number in range(arity))
        head = f"define {ty} @{name}({params}) {attributes}{{"
        return "\n".join([head, *self._lines, f"  ret {ty} {result.name}", "}", ""])

    def beside(self) -> Code:
        """The instructions of another function, with the same declarations."""
        other = Code(self._lanes)
        other._declared = self._declared
        return other


def _float_literal(value: float, kind: str) -> str:
    """The bits of a float64; LLVM requires them to be exact in the literal's type."""
    if kind == FLOAT:
        value = struct.unpack("f", struct.pack("f", value))[0]
    return f"0x{struct.unpack('Q', struct.pack('d', value))[0]:016X}"


@dataclass(frozen=True)
class Near:
    """Arithmetic for arguments whose magnitude is below a limit.

    Attributes
    ----------
    rule : callable
    limit : float
    """

    rule: Callable[[Code, Value], Value]
    limit: float


def function_text(
    name: str,
    rule: Callable[..., Value],
    arity: int,
    lanes: int,
    kind: str = FLOAT,
    near: Near | None = None,
) -> str:
    """An LLVM function of float32, or of float64.

    Parameters
    ----------
    name
        The name of the function.
    rule
        Called with a `Code` and a `Value` for each operand; returns the result.
    arity
        The number of operands.
    lanes
        The width of the vectors; 1 for scalars.
    kind
        The type of the operands and the result: `FLOAT` or `DOUBLE`.
    near
        What is computed where no lane is beyond the limit.

    Examples
    --------
    >>> print(function_text("twice", lambda c, x: x + x, 1, 4))
    define <4 x float> @twice(<4 x float> %x0) {
      %y0 = fadd <4 x float> %x0, %x0
      ret <4 x float> %y0
    }
    <BLANKLINE>
    """
    if near is not None:
        return _in_two(name, rule, lanes, kind, near)
    code = Code(lanes)
    result = rule(code, *(Value(code, kind, f"%x{number}") for number in range(arity)))
    return code.text(name, arity, result)


def _in_two(name: str, rule: Callable[..., Value], lanes: int, kind: str, near: Near) -> str:
    """``if a lane is beyond: far(x) else: near(x)``, of which only the second is inlined."""
    far, code = f"{name}_far", Code(lanes)
    code.leave_beyond(Value(code, kind, "%x0"), near.limit, far)
    result, other = near.rule(code, Value(code, kind, "%x0")), code.beside()
    rest = rule(other, Value(other, kind, "%x0"))
    return code.text(name, 1, result) + other.definition(far, 1, rest, "noinline cold ")
