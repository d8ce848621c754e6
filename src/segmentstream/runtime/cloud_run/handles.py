"""One run on its way in Cloud Run: what is known of its executions; fed by `launcher.py`."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from threading import Condition, Thread

from dagster import DagsterInstance, DagsterRunStatus
from dagster_postgres.utils import DagsterPostgresException
from sqlalchemy.exc import DBAPIError

from segmentstream.runtime.cloud_run.api import (
    AbsentError,
    CloudRunApi,
    Execution,
    UnansweredError,
)
from segmentstream.runtime.dagster_internals import events_of
from segmentstream.runtime.exits import RunRefusedError
from segmentstream.runtime.launching import Attempt, Outcome
from segmentstream.runtime.outcomes import outcome_of_events
from segmentstream.runtime.records import EXECUTION_TAG, INTERRUPTED_TAG
from segmentstream.runtime.telling import tell

_SECONDS_OF_OUTAGE = 0.5


class ExecutionHandle:
    """Is a run for which executions were asked.

    Attributes:
        attempt: What is run.
        names: The executions that are known to be for it.
        seen: What each was like when last seen.
        is_unwanted: Whether it was asked to end.
        is_settled: Whether it has been found at its end.
        may_have_launched: Whether there may be an execution whose name is not known.
    """

    def __init__(
        self,
        attempt: Attempt,
        *,
        api: CloudRunApi,
        instance: DagsterInstance,
        changed: Condition,
        is_launching: bool = False,
    ) -> None:
        self.attempt = attempt
        self.names = set[str]()
        self.seen = dict[str, Execution]()
        self.is_unwanted = self.is_settled = self.may_have_launched = False
        self._is_launching = is_launching
        self._is_calling = False
        self._cancelling = set[str]()
        self._reason = "it was not started"
        self._api = api
        self._instance = instance
        self._changed = changed
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        """As `RunHandle.seconds`; of an adopted run since it was adopted."""
        return time.monotonic() - self._started

    @property
    def open_names(self) -> set[str]:
        """The executions that may still do something."""
        return {each for each in self.names if each not in self.seen or not self.seen[each].is_over}

    @property
    def is_over(self) -> bool:
        """Says whether all known executions are over, and none will be asked for."""
        if self._is_launching:
            return self.is_unwanted and not self._is_calling
        return not self.open_names

    def is_alive(self) -> bool:
        """As `RunHandle.is_alive`."""
        if not self.is_over or self._is_carried_out_by_another():
            return True
        self.is_settled = True
        return False

    def interrupt(self) -> None:
        """As `RunHandle.interrupt`: cancels its executions, also one that is being started now."""
        with self._changed:
            self.is_unwanted = True
            names = self.open_names - self._cancelling
            self._cancelling |= names
            self._changed.notify_all()
        for name in names:
            Thread(target=self._cancel, args=[name], daemon=True).start()

    def kill(self) -> None:
        """As `RunHandle.kill`: what does not end although it is cancelled is out of reach."""

    def let_go(self) -> None:
        """As `RunHandle.let_go`: its executions go on."""

    def outcome(self) -> Outcome | None:
        """As `RunHandle.outcome`, from what the run has recorded."""
        run = self._instance.get_run_by_id(self.attempt.run_id)
        if run is None or not run.is_finished:
            return None
        events = events_of(self._instance, run.run_id)
        said = outcome_of_events(events, is_success=run.status is DagsterRunStatus.SUCCESS)
        return replace(said, is_interrupted=True) if run.tags.get(INTERRUPTED_TAG) else said

    def ending(self) -> str:
        """As `RunHandle.ending`."""
        ended = [each for each in self.seen.values() if each.is_over]
        told = [
            f"its execution {each.name} {each.ending}" + (f", see {each.log}" if each.log else "")
            for each in ended
        ]
        return "; ".join(told) or self._reason

    # What the threads of the launcher tell.
    def see(self, executions: Sequence[Execution]) -> bool:
        """Takes in what executions are like; says whether anything is new."""
        with self._changed:
            is_new = any(self.seen.get(each.name) != each for each in executions)
            self.names |= {each.name for each in executions}
            self.seen |= {each.name: each for each in executions}
            if is_new:
                self._changed.notify_all()
        return is_new

    def begin_call(self) -> bool:
        """Says whether an execution may be asked for: whoever is told so, asks at once."""
        with self._changed:
            self._is_calling = not self.is_unwanted
            return self._is_calling

    def end_call(self) -> None:
        """Says that the call is over, however it ended."""
        with self._changed:
            self._is_calling = False
            self._changed.notify_all()

    def launched(self, names: Sequence[str], reason: str = "") -> None:
        """Takes in the names of its executions, or why there are none."""
        with self._changed:
            self.names |= set(names)
            self._is_launching = False
            self._reason = reason or self._reason
            self._changed.notify_all()
        if self.is_unwanted:
            self.interrupt()

    def _cancel(self, name: str) -> None:
        try:
            self._api.cancel(name)
        except AbsentError:
            pass  # it is over, and will be seen to be
        except (UnansweredError, RunRefusedError) as error:
            tell(f"The execution {name} was not cancelled: {error}", level=logging.WARNING)
            with self._changed:
                self._cancelling.discard(name)

    def _is_carried_out_by_another(self) -> bool:
        """Says whether the run is recorded as that of an execution that was not known so far."""
        try:
            run = self._instance.get_run_by_id(self.attempt.run_id)
        except (DBAPIError, DagsterPostgresException):
            time.sleep(_SECONDS_OF_OUTAGE)  # whoever asks will ask again
            return True
        if run is None or run.is_finished:
            return False
        name = run.tags.get(EXECUTION_TAG, "").rpartition("/")[2]
        if not name or name in self.names:
            return False
        with self._changed:
            self.names.add(name)
            self._changed.notify_all()
        return True
