"""Executors of a sweep's runs: processes of this machine, or the workers of Dask or Ray.

Each yields an outcome as soon as it exists. Dask and Ray repeat a run whose worker died on another worker. A run that
ends several of them, say by taking all their memory, has that error as its outcome, and the others continue. joblib's
backends for them are not used: Ray's yields nothing before all are done, and one dead worker ends the sweep.
"""

import functools
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from typing import Any, Literal

from foltr.core.errors import SettingsError, UnavailableError
from foltr.core.extras import install_command

Backend = Literal["loky", "dask", "ray"]
BACKENDS: tuple[str, ...] = ("loky", "dask", "ray")

Values = dict[str, Any]
"""A configuration and what it names from outside, as values that every backend can send."""
Outcome = tuple[str, dict[str, Any] | None, str | None]
"""The digest of a configuration; its result, or an error."""

# How often a run may lose its worker (Dask's default): the fourth time the run is to blame.
_RETRIES = 3
_CONNECT_S = 10
_PARENT_CHECK_S = 2.0
# For a wrong token Ray reports a missing cluster.
_MAY_BE_LOCKED = "If it asks for a token, set RAY_AUTH_MODE=token, with its ~/.ray/auth_token on this machine"
_GOES_ON = "What is finished is kept with --out, from Python with folder; the same call goes on"


@contextmanager
def executed(
    values: Sequence[Values],
    run: Callable[[Values], Outcome],
    failed: Callable[[Values, str], Outcome],
    *,
    jobs: int,
    backend: Backend,
    scheduler: str | None,
    started: Callable[[Values], None] = lambda _: None,
) -> Iterator[Iterable[Outcome]]:
    """Yield the outcomes of configurations as they finish, in any order.

    Args:
        run: a module-level function, which workers import by name.
        failed: makes the outcome of a configuration that could not be run, from the reason.
        jobs: concurrent runs; an existing cluster uses its workers.
        scheduler: address of a cluster of Dask or Ray; None: start one on this machine.
        started: called, from any thread, with each configuration that a worker begins; not by Ray, whose cluster has
            all of them at once.

    Raises:
        SettingsError: the backend is not installed.
        UnavailableError: the cluster cannot be reached, or is lost while outcomes come.
    """
    begun = _telling(values, started)
    match backend:
        case "loky" if jobs == 1:
            yield (run(one) for one in begun)
        case "loky":
            yield _in_processes(begun, run, jobs)
        case "dask":
            with _dask(jobs, scheduler) as client:
                yield _by_dask(client, begun, run, failed)
        case "ray":
            with _ray(jobs, scheduler) as ray:
                yield _by_ray(ray, values, run, failed)


def _telling(values: Iterable[Values], started: Callable[[Values], None]) -> Iterator[Values]:
    """Yield each configuration when a worker is free for it, after telling so."""
    for one in values:
        started(one)
        yield one


def _in_processes(values: Iterable[Values], run: Callable[[Values], Outcome], jobs: int) -> Iterator[Outcome]:
    from joblib import Parallel, delayed

    try:
        # Not dispatched before a process is free for it.
        parallel = Parallel(n_jobs=jobs, return_as="generator_unordered", pre_dispatch="n_jobs", batch_size=1)
        yield from parallel(delayed(_run_under)(os.getpid(), run, one) for one in values)
    except BrokenProcessPool as error:
        raise UnavailableError(
            f"jobs: a process of the sweep was ended, perhaps for want of memory: give fewer --jobs. {_GOES_ON}"
        ) from error


def _run_under(sweep: int, run: Callable[[Values], Outcome], one: Values) -> Outcome:
    _end_with(sweep)
    return run(one)


@functools.cache
def _end_with(sweep: int) -> None:
    """End this process when the sweep's is gone: after SIGKILL nobody would, and it would wait for runs for ever."""

    def watch() -> None:
        while os.getppid() == sweep:
            time.sleep(_PARENT_CHECK_S)
        os._exit(1)

    if os.getppid() == sweep:
        threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _dask(jobs: int, scheduler: str | None) -> Iterator[Any]:
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise SettingsError(f"backend: dask is not installed: {install_command('sweeps', 'foltr-research')}") from error
    if scheduler is not None:
        try:
            client = Client(scheduler, timeout=f"{_CONNECT_S}s", set_as_default=False)  # type: ignore[no-untyped-call]
        except (OSError, ValueError) as error:
            raise UnavailableError(f"scheduler: {scheduler} cannot be reached: {error}") from error
        with client:
            yield client
        return
    here = LocalCluster(  # type: ignore[no-untyped-call]
        n_workers=jobs,
        threads_per_worker=1,
        host="127.0.0.1",
        # Its health endpoint runs even without a dashboard. A fixed port would collide with a second sweep.
        scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
    )
    with here, Client(here, set_as_default=False) as client:  # type: ignore[no-untyped-call]
        yield client


def _by_dask(
    client: Any, left: Iterator[Values], run: Callable[[Values], Outcome], failed: Callable[[Values, str], Outcome]
) -> Iterator[Outcome]:
    from distributed import as_completed

    values_of: dict[Any, Values] = {}
    coming = as_completed([], loop=client.loop)  # type: ignore[no-untyped-call]

    def submit() -> None:
        """Keep as many runs at the cluster as it has threads: a run queued at a dying worker would be blamed."""
        n_more = max(1, sum(client.nthreads().values())) - len(values_of)
        for one in islice(left, max(0, n_more)):
            # Not pure: the cluster may remember an equal call of another version of the program.
            future = client.submit(run, one, pure=False)
            values_of[future] = one
            coming.add(future)  # type: ignore[no-untyped-call]

    submit()
    for future in coming:
        one = values_of.pop(future)
        submit()
        match future.status:
            case "finished":
                yield future.result()
            case "error":
                yield failed(one, _in_words(future.exception()))
            case status:
                raise UnavailableError(f"scheduler: it has lost a run ({status}), as when it ends. {_GOES_ON}")


@contextmanager
def _ray(jobs: int, address: str | None) -> Iterator[Any]:
    try:
        import ray
    except ImportError as error:
        raise SettingsError(f"backend: ray is not installed: {install_command('ray', 'foltr-research')}") from error
    try:
        if address is None:
            ray.init("local", num_cpus=jobs, include_dashboard=False, log_to_driver=False)
        else:
            _wait_for_port(address)
            ray.init(address, log_to_driver=False)
    except (OSError, ValueError, RuntimeError) as error:
        hint = "" if address is None else f". {_MAY_BE_LOCKED}"
        where = address or "Ray on this machine"
        raise UnavailableError(f"scheduler: {where} cannot be reached: {error}{hint}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _wait_for_port(address: str) -> None:
    """Raise OSError if nobody listens at HOST:PORT, since Ray would retry for minutes. Other forms are left to Ray."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S):
            pass


def _by_ray(
    ray: Any, values: Sequence[Values], run: Callable[[Values], Outcome], failed: Callable[[Values, str], Outcome]
) -> Iterator[Outcome]:
    task = ray.remote(num_cpus=1, max_retries=_RETRIES)(run)
    values_of = {task.remote(one): one for one in values}
    while values_of:
        (done,), _ = ray.wait(list(values_of), num_returns=1)
        one = values_of.pop(done)
        try:
            yield ray.get(done)
        except ray.exceptions.RayError as error:
            yield failed(one, _in_words(error))


def _in_words(error: BaseException) -> str:
    """Return the first line. The others are the traceback in the cluster."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
