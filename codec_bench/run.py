"""One run: holds the conversations of a workload with servers, which take turns, until the counts or the time are up.

Turns clients, a workload and a plan into tallies. With several servers every client asks one of them at a time: a round
of all clients goes to one server, the next to another, in an order that changes, so that none is asked while another
works. In an open loop requests are sent at set times, from which their times count: what has to wait for a slow server
shows in its figures, and so does what was sent late.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice, repeat
from time import perf_counter, process_time

import anyio

from codec_bench.answer import AnswerFault
from codec_bench.client import Client
from codec_bench.exchange import PATHS, Asking, Exchange
from codec_bench.plan import Plan
from codec_bench.processor import listeners, spent
from codec_bench.sample import Position, Tally, sample_of
from codec_bench.schedule import arrivals, clients_at, rotated
from codec_bench.workload import Workload

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
        """`times`: seconds after the start at which each conversation begins, instead of by a rate or by clients."""
        self.tallies = [Tally() for _ in clients]
        self.warming = True
        self.stopped = False
        """Whether it was ended before its counts or its time were up."""
        self.load = 0.0
        """The part of a core that this program used."""
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
        """How long it has taken, without the warm-up."""
        return (self._ended or perf_counter()) - self._began if self._began else 0.0

    def stop(self) -> None:
        """End it now; the results so far are kept."""
        self.stopped = True
        self._scope.cancel()

    async def play(self) -> None:
        """Run until it is over."""
        with self._scope:
            with anyio.move_on_after(self._plan.seconds):
                await self._warm_up()
            self.warming = False
            self._began, spent = perf_counter(), process_time()
            try:
                with anyio.move_on_after(self._plan.seconds), self._count_cpu(0, alone=True):
                    await (self._closed() if self._plan.rate is None and self._times is None else self._open())
            finally:
                self._ended = perf_counter()
                self.load = (process_time() - spent) / max(self.seconds, 1e-9)

    @contextmanager
    def _count_cpu(self, target: int, *, alone: bool) -> Generator[None]:
        """Add the CPU time that a server's processes take within the context.

        `alone`: do this only if there is one server; otherwise, do it only if there are several.
        """
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
                    if not await self._ask(target, exchange, Position(-1 - number, step), Tally()):
                        break

    async def _closed(self) -> None:
        plan, numbers = self._plan, iter(range(self._conversations))
        # One server: each client proceeds on its own. Several: all clients go from one to the next together.
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
        """Hold these conversations with every server, request by request; returns the number of the next round."""
        targets = range(len(self._clients))
        talks = [[self._exchange(target, number) for number in numbers] for target in targets]
        broken: set[tuple[int, int]] = set()

        async def ask(target: int, index: int, step: int) -> None:
            at = Position(numbers[index], step)
            if not await self._ask(target, talks[target][index], at, self.tallies[target]):
                broken.add((target, index))

        for step in range(talks[0][0].steps):
            for target in rotated(len(self._clients), turn):
                with self._count_cpu(target, alone=False):
                    async with anyio.create_task_group() as group:
                        for index in range(len(numbers)):
                            if (target, index) not in broken:
                                group.start_soon(ask, target, index, step)
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
                        words = f"it was not sent, because {_MOST_RUNNING} requests were already running"
                        tally.fail(AnswerFault("not sent", words))

    def _dues(self) -> Iterator[float]:
        """When each conversation with each server begins. The rate is per server; servers take turns."""
        count = len(self._clients)
        if self._times is not None:
            return (time for time in self._times for _ in repeat(None, count))
        return arrivals((self._plan.rate or 1.0) * count, self._plan.ramp, self._plan.seed)

    async def _talk(self, target: int, number: int, due: float) -> None:
        exchange = self._exchange(target, number)
        for step in range(exchange.steps):
            # Only the first request has a set time; each later one follows the answer before it.
            if not await self._ask(
                target, exchange, Position(number, step), self.tallies[target], None if step else due
            ):
                return

    async def _ask(
        self, target: int, exchange: Exchange, position: Position, tally: Tally, due: float | None = None
    ) -> bool:
        """Send the next request of a conversation; returns whether it was answered."""
        with tally.request():
            try:
                timed, content, sent = await self._clients[target].ask(PATHS[self._asking.api], exchange.next_body())
                exchange.take(content)
            except AnswerFault as fault:
                tally.fail(fault)
                return False
            began = sent if due is None else due
            late = max(0.0, sent - began)
            tally.add(sample_of(position, began - self._began, late, timed, content), timed.gaps)
            return True

    def _exchange(self, target: int, number: int) -> Exchange:
        form = self._clients[target].server.form
        return Exchange(self._workload.conversation(number), self._asking, self._models[target], target, form)
