"""The table of evals: module of the suite → how it is computed here."""

from __future__ import annotations

from ..evaluation import Eval
from . import ba, gmm, ht, kmeans, llsq, lse, lstm, ode

#: module → eval
EVALS: dict[str, Eval] = {
    "gmm": gmm.EVAL,
    "kmeans": kmeans.EVAL,
    "llsq": llsq.EVAL,
    "lse": lse.EVAL,
    "ba": ba.EVAL,
    "ht": ht.EVAL,
    "ode": ode.EVAL,
    "lstm": lstm.EVAL,
}
