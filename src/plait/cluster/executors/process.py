"""Workers in child processes of the controller, on its machine."""

from plait.cluster.executors.carrier import Carrier, WorkerProgram
from plait.transport import ChildProcess


class ProcessExecutor:
    async def start(self, program: WorkerProgram) -> Carrier:
        return await ChildProcess.start(program.module, environment=program.environment, name=program.name, python=program.python)

    async def close(self) -> None:
        """Each process ends with its own carrier."""
