"""What a worker does: check the programs of some seeds, or one given program."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.random_programs.cases import Case, random_case, with_program
from tests.random_programs.checking import compiled, evaluated, source_of
from tests.random_programs.features import FEATURES
from tests.random_programs.large import LargeCase, large_case
from tests.random_programs.programs import Program, shrink
from tests.random_programs.workers import LIMIT, Worker

#: what can be chosen: the features of small programs, and large ones
NAMES = (*FEATURES, "large")
#: those of which an evaluation, in te's own dtypes, tells something
EVALUATED = tuple(name for name in NAMES if name == "large" or not FEATURES[name].compiled)


@dataclass(frozen=True)
class Seeds:
    """Programs of some seeds, compiled as one function or evaluated.

    Attributes
    ----------
    always : str
        A feature that each of them has.
    """

    features: tuple[str, ...]
    seeds: tuple[int, ...]
    compile: bool
    always: str = ""

    def perform(self) -> list[str]:
        """What is wrong with the programs."""
        cases = [case_for(seed, self.features, self.always) for seed in self.seeds]
        if self.compile:
            return compiled(cases)
        return [complaint for case in cases for complaint in evaluated(case)]

    def __str__(self) -> str:
        kind = "compiled" if self.compile else "evaluated"
        ends = f"{self.seeds[0]}" + (f" to {self.seeds[-1]}" if len(self.seeds) > 1 else "")
        always = f", always {self.always}" if self.always else ""
        return f"seed {ends} of {', '.join(self.features)}{always}, {kind}"


@dataclass(frozen=True)
class Given:
    """A smaller program in place of that of a seed."""

    features: tuple[str, ...]
    seed: int
    program: Program
    compile: bool
    always: str = ""

    def perform(self) -> list[str]:
        """What is wrong with the program; nothing where it makes no sense."""
        small = tuple(n for n in self.features if n != "large")
        case = random_case(self.seed, small, self.always)
        smaller = with_program(case, self.program)
        if smaller is None:
            return []
        try:
            self.program.tensors()
        except Exception:  # whatever te refuses makes no sense
            return []
        return compiled([smaller]) if self.compile else evaluated(smaller)

    def __str__(self) -> str:
        return f"smaller than seed {self.seed}"


def case_for(seed: int, features: tuple[str, ...], always: str = "") -> Case | LargeCase:
    """The program of a seed; one in as many is large as that is one of the features."""
    small = tuple(name for name in features if name != "large")
    by_turns = not always and (not small or seed % len(features) == 0)
    if always == "large" or ("large" in features and by_turns):
        return large_case(seed)
    return random_case(seed, small, always)


def report(task: Seeds, complaints: list[str], limit: float = LIMIT, attempts: int = 120) -> str:
    """The seeds that fail alone, with te code, the first one in its smallest failing form."""
    parts: list[str] = []
    with Worker(limit) as worker:
        for seed in task.seeds:
            alone = replace(task, seeds=(seed,))
            wrong = complaints if len(task.seeds) == 1 else worker.run(alone).complaints
            if not wrong:
                continue
            case = case_for(seed, task.features, task.always)
            text = "\n".join([*wrong, source_of(case)])
            if not parts and isinstance(case, Case):

                def fails(program: Program, seed: int = seed) -> bool:
                    given = Given(task.features, seed, program, task.compile, task.always)
                    return bool(worker.run(given).complaints)

                smallest = shrink(case.program, fails, attempts)
                if smallest != case.program:
                    text += f"which shrinks to\n{smallest.source()}"
            parts.append(text)
    together = [*complaints, "only together, not one by one: an effect between programs"]
    return "\n".join(parts or together)
