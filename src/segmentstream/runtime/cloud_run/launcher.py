"""Gives runs to a Cloud Run job, follows its executions, and finds those of an earlier process.

What is followed is a run, not an execution: where an answer of Cloud Run was lost, or a process
died after it had asked, there may be two executions for one run. The run's id lets one of them work
and refuses the other, so it is enough to know when all of them are over.

Two threads speak to Cloud Run, one that starts and one that looks; the thread that drives the runs
never waits for an answer when it is told to stop.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Condition, Thread

from dagster import DagsterInstance

from segmentstream.runtime.cloud_run.api import (
    AbsentError,
    CloudRunApi,
    Execution,
    UnansweredError,
    patiently,
)
from segmentstream.runtime.cloud_run.checks import check_job
from segmentstream.runtime.cloud_run.handles import ExecutionHandle
from segmentstream.runtime.cloud_run.settings import (
    CloudRunSettings,
    attempt_told,
    variables_of,
)
from segmentstream.runtime.exits import Exit, RunRefusedError
from segmentstream.runtime.launching import Attempt, PlannedRun, RunHandle, StoppedError
from segmentstream.runtime.plans import Request
from segmentstream.runtime.records import EXECUTION_TAG
from segmentstream.runtime.settings import RunSettings
from segmentstream.runtime.stopping import Stop
from segmentstream.runtime.telling import tell

_SECONDS_TO_LAUNCH = 3600.0
_SECONDS_TO_BEGIN = 120.0
_HURRIED_LOOK = 0.5
_FIRST_LOOK, _LONGEST_LOOK, _GROWTH = 1.0, 10.0, 1.6
_SECONDS_UNTIL_SEEN = 60.0


class CloudRunLauncher:
    """Carries runs out in executions of a Cloud Run job; they outlive this process."""

    def __init__(
        self,
        *,
        api: CloudRunApi,
        place: CloudRunSettings,
        request: Request,
        settings: RunSettings,
        instance: DagsterInstance,
        environ: Mapping[str, str],
        stop: Stop,
    ) -> None:
        self._api = api
        self._place = place
        self._request = request
        self._settings = settings
        self._instance = instance
        self._environ = environ
        self._stop = stop
        self._changed = Condition()
        self._handles: list[ExecutionHandle] = []
        self._waiting = SimpleQueue[ExecutionHandle]()
        self._failure: Exception | None = None
        self._is_started = False

    def adopt(self, unfinished: Mapping[str, Mapping[str, str]]) -> Sequence[RunHandle]:
        """As `Launcher.adopt`: executions that were told of this request and are not over."""
        for tags in unfinished.values():
            elsewhere = tags.get(EXECUTION_TAG, "")
            if elsewhere and not elsewhere.startswith(f"{self._place.job}/"):
                raise RunRefusedError(
                    f"The run id has a run that may still be on its way as {elsewhere}.",
                    "Start it again with the settings of Cloud Run that it was started with.",
                    exit_code=Exit.CONFIGURATION,
                )
        found = defaultdict[str, list[Execution]](list)
        attempts = dict[str, Attempt]()
        for execution in self._answer(self._api.executions):
            attempt = attempt_told(execution.variables, self._request, self._settings)
            if attempt is not None and not execution.is_over:
                attempts[attempt.run_id] = attempt
                found[attempt.run_id].append(execution)
        adopted = [self._handle(attempts[run_id]) for run_id in found]
        for handle in adopted:
            handle.see(found[handle.attempt.run_id])
        self._follow(adopted)
        return adopted

    def prepare(self, runs: Sequence[PlannedRun]) -> str:  # noqa: ARG002 - as `Launcher.prepare`
        """As `Launcher.prepare`: looks at the job, and tells how long a run may take."""
        if self._settings.run_config:
            raise RunRefusedError(
                "The schedule configures its run, and an execution of Cloud Run is not told how.",
                "Configure the job itself, or let runs be processes of this machine.",
                exit_code=Exit.CONFIGURATION,
            )
        shape = self._answer(self._api.job)
        check_job(self._place.job, shape, self._environ)
        return f" Each in {self._place.job}, in {shape.timeout_seconds} s at most."

    def launch(self, attempt: Attempt) -> RunHandle:
        """As `Launcher.launch`: asks for an execution as soon as Cloud Run takes another."""
        handle = self._handle(attempt, is_launching=True)
        self._follow([handle])
        self._waiting.put(handle)
        return handle

    def wait(self, handles: Sequence[RunHandle], timeout: float) -> None:
        """As `Launcher.wait`."""
        with self._changed:
            if not any(each.is_over for each in handles if isinstance(each, ExecutionHandle)):
                self._changed.wait(timeout)
            if self._failure is not None and not self._stop.is_asked():
                raise self._failure

    def _handle(self, attempt: Attempt, *, is_launching: bool = False) -> ExecutionHandle:
        return ExecutionHandle(
            attempt,
            api=self._api,
            instance=self._instance,
            changed=self._changed,
            is_launching=is_launching,
        )

    def _follow(self, handles: Sequence[ExecutionHandle]) -> None:
        with self._changed:
            self._handles += handles
            self._changed.notify_all()
        if handles and not self._is_started:
            self._is_started = True
            for work in (self._launch_each, self._look):
                Thread(target=self._until_it_fails, args=[work], daemon=True).start()

    def _answer[T](self, ask: Callable[[], T]) -> T:
        """Gives an answer; through a short outage, but not through a request to stop."""
        answer = _in_background(lambda: patiently(ask, _SECONDS_TO_BEGIN, "Cloud Run"))
        while not answer.done():
            if self._stop.is_asked():
                raise StoppedError
            with self._changed:
                self._changed.wait(0.05)
        try:
            return answer.result()
        except UnansweredError as error:
            raise RunRefusedError(
                f"Cloud Run does not answer: {error}.",
                "See that it can be reached from here, and start again.",
                exit_code=Exit.CONFIGURATION,
            ) from None

    def _until_it_fails(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - raised again where the runs are driven
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    # What the thread does that starts executions.
    def _launch_each(self) -> None:
        while True:  # one that is refused for good ends it: so would be the others
            self._launch_one(self._waiting.get())

    def _launch_one(self, handle: ExecutionHandle) -> None:
        label = handle.attempt.run.label
        try:
            names = patiently(lambda: self._ask_for(handle), _SECONDS_TO_LAUNCH, label)
        except UnansweredError as error:
            handle.launched((), f"Cloud Run took no execution for it: {error}")
        else:
            handle.launched(names)

    def _ask_for(self, handle: ExecutionHandle) -> Sequence[str]:
        """Starts an execution, unless an earlier try that had no answer has; gives their names."""
        if handle.may_have_launched:
            told = [each for each in self._api.executions() if self._is_of(each, handle)]
            if told:
                return [each.name for each in told]
        if not handle.begin_call():
            return ()
        try:
            return [self._api.run(variables_of(handle.attempt, self._settings, self._place))]
        except UnansweredError as error:
            handle.may_have_launched |= error.may_have_happened
            raise
        finally:
            handle.end_call()

    def _is_of(self, execution: Execution, handle: ExecutionHandle) -> bool:
        told = attempt_told(execution.variables, self._request, self._settings)
        return told is not None and told.run_id == handle.attempt.run_id

    # What the thread does that looks at executions.
    def _look(self) -> None:
        pause = _FIRST_LOOK
        while True:
            with self._changed:
                self._handles = [each for each in self._handles if not each.is_settled]
                self._changed.wait_for(lambda: any(each.names for each in self._handles))
                followed = [each for each in self._handles if each.names]
            try:
                has_changed = self._look_at(followed)
            except (UnansweredError, RunRefusedError) as error:
                tell(f"Cloud Run tells nothing of executions: {error}", level=logging.WARNING)
                has_changed = False
            pause = _FIRST_LOOK if has_changed else min(pause * _GROWTH, _LONGEST_LOOK)
            self._rest(followed, pause)

    def _rest(self, followed: Sequence[ExecutionHandle], seconds: float) -> None:
        with self._changed:
            is_hurried = self._changed.wait_for(
                lambda: any(each.is_unwanted for each in followed), seconds
            )
        if is_hurried:
            time.sleep(_HURRIED_LOOK)  # Cloud Run tells nobody when it has cancelled

    def _look_at(self, handles: Sequence[ExecutionHandle]) -> bool:
        wanted = {name for handle in handles for name in handle.open_names}
        if not wanted:
            return False
        listed = {each.name: each for each in self._api.executions(wanted)}
        has_changed = False
        for handle in handles:
            seen = [listed.get(name) or self._find(name, handle) for name in handle.open_names]
            has_changed |= handle.see([each for each in seen if each is not None])
        return has_changed

    def _find(self, name: str, handle: ExecutionHandle) -> Execution | None:
        """Asks for an execution that is not listed; None where it may only be too new for that."""
        try:
            return self._api.execution(name)
        except AbsentError:
            if name not in handle.seen and handle.seconds < _SECONDS_UNTIL_SEEN:
                return None
            return Execution(name=name, variables={}, is_over=True, ending="was deleted", log="")


def _in_background[T](ask: Callable[[], T]) -> Future[T]:
    future = Future[T]()

    def run() -> None:
        try:
            future.set_result(ask())
        except Exception as error:  # noqa: BLE001 - given to whoever waits
            future.set_exception(error)

    Thread(target=run, daemon=True).start()
    return future
