"""Limits of time count work, and not the compiling of kernels."""

import numba
from numba.core import event

from bidual._util import clock, jit


class Seconds:
    """A clock of which the test says how late it is."""

    now = 0.0

    def perf_counter(self):
        return self.now


def test_the_clock_stands_still_while_code_is_compiled(monkeypatch):
    seconds = Seconds()
    monkeypatch.setattr(clock, "time", seconds)
    ours = clock.Clock()
    seconds.now = 1.0
    assert ours.now() == 1.0
    ours.stop()
    seconds.now = 4.0
    assert ours.now() == 1.0
    ours.stop()  # one function compiles another
    seconds.now = 5.0
    ours.go_on()
    seconds.now = 6.0
    assert ours.now() == 1.0
    ours.go_on()
    assert ours.now() == 1.0
    seconds.now = 8.0
    assert ours.now() == 3.0


def test_compiling_stops_the_clock(monkeypatch):
    heard = []
    monkeypatch.setattr(clock.Clock, "stop", lambda self: heard.append("stop"))
    monkeypatch.setattr(clock.Clock, "go_on", lambda self: heard.append("go on"))
    double = numba.njit(lambda x: 2 * x)
    with event.install_listener(jit.COMPILING, jit.LISTENER):
        assert double(3) == 6
        compiled = list(heard)
        assert double(4) == 8
    assert compiled[:1] == ["stop"]
    assert compiled[-1:] == ["go on"]
    assert compiled.count("stop") == compiled.count("go on")
    assert heard == compiled
