"""One run: servers are asked for the conversations of a workload, in turns, until the counts or the time are up.

Turns clients, a workload and a plan into tallies. With several servers every client asks one of them at a time: a round
of all clients goes to one server, the next to another, in an order that changes, so that none is asked while another
works. In an open loop requests are sent when their time has come, and their times count from then: what a slow server
makes wait is in its figures. What was sent too late is, too.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice, repeat
from time import perf_counter, process_time

import anyio

from gateway.benchmark.answer import AnswerFault
from gateway.benchmark.client import Client
from gateway.benchmark.exchange import PATHS, Asking, Exchange
from gateway.benchmark.plan import Plan
from gateway.benchmark.processor import listeners, spent
from gateway.benchmark.sample import Place, Tally, sample_of
from gateway.benchmark.schedule import arrivals, clients_at, rotated
from gateway.benchmark.workload import Workload

_MOST_RUNNING = 2048
"""Requests of an open loop that run at a time: a server that answers nothing must not take this machine's memory."""


class Run:
    """One run. Start it with `play`, once."""

    def __init__(
        self,
        clients: Sequence[Client],
        models: Sequence[str],
        workload: Workload,
        asking: Asking,
        plan: Plan,
        times: Sequence[float] | None = None,
    ) -> None:
        """`times`: seconds after the start at which each conversation begins, instead of a rate or of clients."""
        self.tallies = [Tally() for _ in clients]
        self.warming = True
        self.stopped = False
        """Whether it was ended before its counts or its time were up."""
        self.load = 0.0
        """What part of a core this program used."""
        self._clients = clients
        self._models = models
        self._workload = workload
        self._asking = asking
        self._plan = plan
        self._times = times
        wanted = plan.conversations(workload.turns * asking.requests_a_turn)
        self._conversations = wanted if times is None else min(wanted, len(times))
        self._processes = [listeners(each.server.origin.port) if each.server.is_here else [] for each in clients]
        self._scope = anyio.CancelScope()
        self._began = self._ended = 0.0

    @property
    def planned(self) -> int:
        """Requests to each server, if all goes well."""
        return self._conversations * self._workload.turns * self._asking.requests_a_turn

    @property
    def seconds(self) -> float:
        """How long it has taken, without the warming up."""
        return (self._ended or perf_counter()) - self._began if self._began else 0.0

    def stop(self) -> None:
        """End it now; what has come stays."""
        self.stopped = True
        self._scope.cancel()

    async def play(self) -> None:
        """Ask, until it is over."""
        with self._scope:
            with anyio.move_on_after(self._plan.seconds):
                await self._warm_up()
            self.warming = False
            self._began, spent = perf_counter(), process_time()
            try:
                with anyio.move_on_after(self._plan.seconds), self._processor(0, alone=True):
                    await (self._closed() if self._plan.rate is None and self._times is None else self._open())
            finally:
                self._ended = perf_counter()
                self.load = (process_time() - spent) / max(self.seconds, 1e-9)

    @contextmanager
    def _processor(self, target: int, *, alone: bool) -> Generator[None]:
        """Around the time in which one server is asked: what CPU its processes take. `alone`: it is the only one."""
        pids = self._processes[target] if alone == (len(self._clients) == 1) else []
        before = spent(pids)
        try:
            yield
        finally:
            after = spent(pids)
            if before is not None and after is not None:
                self.tallies[target].work(after - before)

    async def _warm_up(self) -> None:
        for number in range(self._plan.warmup):
            for target in range(len(self._clients)):
                exchange = self._exchange(target, -1 - number)
                for step in range(exchange.steps):
                    if not await self._ask(target, exchange, Place(-1 - number, step), Tally()):
                        break

    async def _closed(self) -> None:
        plan, numbers = self._plan, iter(range(self._conversations))
        # One server: each client goes on by itself. Several: all clients go from one to the next together.
        alone = len(self._clients) == 1
        async with anyio.create_task_group() as group:
            for lane in range(plan.clients if alone else 1):
                group.start_soon(self._lane, lane, numbers, alone)

    async def _lane(self, lane: int, numbers: Iterator[int], alone: bool) -> None:
        plan, turn = self._plan, 0
        await anyio.sleep(plan.ramp * lane / plan.clients)
        while batch := list(islice(numbers, 1 if alone else clients_at(self.seconds, plan.clients, plan.ramp))):
            turn = await self._batch(batch, turn)

    async def _batch(self, numbers: Sequence[int], turn: int) -> int:
        """Hold these conversations with every server, request by request; gives the number of the next round."""
        targets = range(len(self._clients))
        talks = [[self._exchange(target, number) for number in numbers] for target in targets]
        broken: set[tuple[int, int]] = set()

        async def ask(target: int, place: int, step: int) -> None:
            at = Place(numbers[place], step)
            if not await self._ask(target, talks[target][place], at, self.tallies[target]):
                broken.add((target, place))

        for step in range(talks[0][0].steps):
            for target in rotated(len(self._clients), turn):
                with self._processor(target, alone=False):
                    async with anyio.create_task_group() as group:
                        for place in range(len(numbers)):
                            if (target, place) not in broken:
                                group.start_soon(ask, target, place, step)
            turn += 1
        return turn

    async def _open(self) -> None:
        dues = self._dues()
        async with anyio.create_task_group() as group:
            for number in range(self._conversations):
                for target in rotated(len(self._clients), number):
                    due = self._began + next(dues)
                    await anyio.sleep(max(0.0, due - perf_counter()))
                    tally = self.tallies[target]
                    if sum(each.running for each in self.tallies) < _MOST_RUNNING:
                        group.start_soon(self._talk, target, number, due)
                    else:
                        words = f"{_MOST_RUNNING} requests were running already, so it was not sent"
                        tally.fail(AnswerFault("not sent", words))

    def _dues(self) -> Iterator[float]:
        """When each conversation with each server begins. A rate is that of each server; they take turns."""
        count = len(self._clients)
        if self._times is not None:
            return (time for time in self._times for _ in repeat(None, count))
        return arrivals((self._plan.rate or 1.0) * count, self._plan.ramp, self._plan.seed)

    async def _talk(self, target: int, number: int, due: float) -> None:
        exchange = self._exchange(target, number)
        for step in range(exchange.steps):
            # Only the first request has a time; the next ones follow the answer before.
            if not await self._ask(target, exchange, Place(number, step), self.tallies[target], None if step else due):
                return

    async def _ask(self, target: int, exchange: Exchange, place: Place, tally: Tally, due: float | None = None) -> bool:
        """Send the next request of a conversation; whether it was answered."""
        with tally.request():
            try:
                timed, told, sent = await self._clients[target].ask(PATHS[self._asking.api], exchange.next_body())
                exchange.take(told)
            except AnswerFault as fault:
                tally.fail(fault)
                return False
            began = sent if due is None else due
            late = max(0.0, sent - began)
            tally.add(sample_of(place, began - self._began, late, timed, told), timed.gaps)
            return True

    def _exchange(self, target: int, number: int) -> Exchange:
        form = self._clients[target].server.form
        return Exchange(self._workload.conversation(number), self._asking, self._models[target], target, form)
