"""Running a program so that its figures can be compared: pinning, priority, memory.

On a shared machine a niced neighbor still takes half a core and much of the memory
bandwidth. What helps is the real-time class: the measured process runs as SCHED_FIFO,
pinned, and the CPUs it does not use are held by a lower-priority real-time spinner (the
"fence"), so that nothing else runs beside it. Where real-time scheduling is not permitted
the same runs happen pinned only, and the results say so. The kernel keeps 5 % of each
CPU for ordinary tasks, for every engine alike.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

MEASURED_PRIORITY = 10
FENCE_PRIORITY = 5
PR_SET_PDEATHSIG = 1
MEMORY_POLL_SECONDS = 0.005


class RunError(Exception):
    """A program that was to be measured failed; the message holds its last output."""


@dataclasses.dataclass(frozen=True)
class Machine:
    """What this process may do here."""

    cpus: tuple[int, ...]
    can_pin: bool
    can_realtime: bool

    @staticmethod
    def detect(want_realtime: bool = True) -> Machine:
        can_pin = hasattr(os, "sched_setaffinity")
        cpus = tuple(sorted(os.sched_getaffinity(0))) if can_pin else tuple(range(os.cpu_count() or 1))
        return Machine(cpus, can_pin, want_realtime and can_pin and _realtime_permitted())

    def chosen(self, threads: int) -> tuple[int, ...]:
        """The CPUs for a run of `threads`: the last ones, since interrupts favor the first."""
        return self.cpus[-threads:] if threads <= len(self.cpus) else self.cpus

    def describe(self) -> dict[str, object]:
        return {
            "cpu": _cpu_name(),
            "cpus": len(self.cpus),
            "kernel": f"{platform.system()} {platform.release()}",
            "memory_gb": round(_total_memory_bytes() / 2**30, 1),
            "transparent_huge_pages": _read("/sys/kernel/mm/transparent_hugepage/enabled").strip(),
            "pinned": self.can_pin,
            "realtime": self.can_realtime,
        }


def _realtime_permitted() -> bool:
    child = [sys.executable, "-c", "import os; os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))"]
    return subprocess.run(child, stderr=subprocess.DEVNULL, check=False).returncode == 0


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _cpu_name() -> str:
    for line in _read("/proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _total_memory_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return 0


def _setup(cpus: Sequence[int] | None, priority: int | None) -> Callable[[], None]:
    def in_child() -> None:
        if cpus is not None:
            os.sched_setaffinity(0, cpus)
        if priority is not None:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))

    return in_child


def _spinner_setup(cpu: int) -> Callable[[], None]:
    """Pinned, prioritized, and killed with this process however that ends: a spinner left behind would keep its CPU."""
    pin = _setup([cpu], FENCE_PRIORITY)
    libc = ctypes.CDLL(None, use_errno=True)

    def in_child() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        pin()

    return in_child


@contextlib.contextmanager
def fence(machine: Machine, used: Sequence[int]) -> Iterator[None]:
    """Holds every CPU that is not in `used` while the body runs."""
    spinners: list[subprocess.Popen[bytes]] = []
    try:
        if machine.can_realtime:
            for cpu in set(machine.cpus) - set(used):
                spinners.append(
                    subprocess.Popen(["sh", "-c", "while :; do :; done"], preexec_fn=_spinner_setup(cpu))
                )
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
        for spinner in spinners:
            spinner.wait()


def run(
    machine: Machine, command: Sequence[str], threads: int, env: dict[str, str] | None = None, timeout: float = 1800
) -> str:
    """Runs `command` pinned, prioritized and fenced; returns what it wrote to stdout."""
    cpus = machine.chosen(threads)
    setup = _setup(cpus if machine.can_pin else None, MEASURED_PRIORITY if machine.can_realtime else None)
    with fence(machine, cpus):
        try:
            done = subprocess.run(
                list(command),
                env={**os.environ, **(env or {})},
                preexec_fn=setup if machine.can_pin else None,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise RunError(f"{command[0]}: {error}") from error
    if done.returncode != 0:
        tail = (done.stderr or done.stdout).decode(errors="replace").strip()[-800:]
        raise RunError(f"{' '.join(command)}\nexit code {done.returncode}\n{tail}")
    return done.stdout.decode(errors="replace")


@dataclasses.dataclass(frozen=True)
class Usage:
    """Peaks over the life of one process. `anonymous` is RssAnon: heap, stacks and copies,
    without pages of mapped files, which the system can drop and read back."""

    peak_rss_bytes: int
    peak_anonymous_bytes: int
    wall_seconds: float


def usage(machine: Machine, command: Sequence[str], threads: int, env: dict[str, str] | None = None) -> Usage:
    """Runs `command` pinned but unfenced, watching its memory in /proc. Ask for fewer threads
    than there are CPUs, so that the watcher gets one."""
    cpus = machine.chosen(threads)
    priority = MEASURED_PRIORITY if machine.can_realtime else None
    start = time.monotonic()
    with subprocess.Popen(
        list(command),
        env={**os.environ, **(env or {})},
        preexec_fn=_setup(cpus, priority) if machine.can_pin else None,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        rss = anonymous = 0
        while process.poll() is None:
            fields = dict(
                line.split(":", 1) for line in _read(f"/proc/{process.pid}/status").splitlines() if ":" in line
            )
            rss = max(rss, _kilobytes(fields.get("VmHWM", "")))
            anonymous = max(anonymous, _kilobytes(fields.get("RssAnon", "")))
            time.sleep(MEMORY_POLL_SECONDS)
    if process.returncode != 0:
        raise RunError(f"{' '.join(command)}: exit code {process.returncode}")
    return Usage(rss * 1024, anonymous * 1024, time.monotonic() - start)


def _kilobytes(field: str) -> int:
    first = field.split()[:1]
    return int(first[0]) if first and first[0].isdigit() else 0


def build_bandwidth(source: Path, out: Path) -> Path | None:
    """Compiles bandwidth.c; None where there is no C compiler."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    if not out.exists() or out.stat().st_mtime < source.stat().st_mtime:
        flags = ["-O3", "-march=native", "-pthread", str(source), "-o", str(out)]
        if subprocess.run([compiler, *flags], stderr=subprocess.DEVNULL, check=False).returncode != 0:
            return None
    return out
