"""The service as a whole: its parts put together, started and stopped. Routes only translate between HTTP and this."""

import asyncio
import logging
import os
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack

from plait.cluster.groups.factory import PARKED_FOLDER, WorkerFactory
from plait.cluster.messages import Ready
from plait.config.server import ServerSettings
from plait.operations.futures import FutureLimits
from plait.operations.quotas import REMEDY, Quota, QuotaLimits, Quotas
from plait.server.administration import Administration
from plait.server.audit import Audit
from plait.server.background import Background
from plait.server.bases import Base, Bases
from plait.server.bulk_futures import BulkFutures
from plait.server.call import Call, CallFailure, CallResult
from plait.server.certificates import Certifier
from plait.server.checkpoint_actions import CheckpointActions
from plait.server.checkpoints import CheckpointStore
from plait.server.copying import WeightsCopier
from plait.server.database import tenants
from plait.server.database.calls import drop_results
from plait.server.database.database import Database
from plait.server.database.models import sessions_of_live_models
from plait.server.engine_gauges import EngineGauges
from plait.server.errors import ServiceError
from plait.server.external_files import ExternalFiles
from plait.server.folders import DataFolders
from plait.server.futures import Futures
from plait.server.gate import Gate
from plait.server.gauges import ServiceGauges
from plait.server.group_gauges import GroupGauges, log_placement
from plait.server.managed.runs import ManagedRuns
from plait.server.metrics import Metrics
from plait.server.model_registry import ModelRegistry
from plait.server.model_runner import ModelRunner
from plait.server.observed import ObservedHandler, ObservedSampling
from plait.server.openai.endpoint import OpenAIEndpoint
from plait.server.openai.models import ModelNames
from plait.server.principal import Authenticator
from plait.server.results import Results
from plait.server.sample_call import SampleCall, Sampled
from plait.server.sampler_clients import SamplerClients
from plait.server.samplers import Samplers
from plait.server.saving import Saving, StoredLimit
from plait.server.sessions import Sessions
from plait.server.storage import Storage
from plait.server.tracing import make_tracing
from plait.server.training_runs import TrainingRuns
from plait.server.url_signer import UrlSigner
from plait.server.usage import UsageMeter
from plait.server.wire.forward_backward import ForwardBackwardCall
from plait.types.policy import PolicyVersion

SWEEP_S = 5.0
"""How often what is over its time is let go."""
DROP_RESULTS_S = 60.0
"""How often old results are looked for, among all calls that the database has."""
MAX_TENANTS = 10_000

log = logging.getLogger("plait.server")


class Service:
    def __init__(self, settings: ServerSettings, database: Database) -> None:
        self.settings, self.database = settings, database
        self.started_s = time.time()
        self.failure: Exception | None = None
        self._failed = asyncio.Event()
        self.creating = asyncio.Lock()
        self._sweeper: asyncio.Task[None] | None = None

        self.quotas = Quotas(QuotaLimits(**settings.quotas.model_dump()))
        self.gate, self.metrics, self.tracing = Gate(), Metrics(), make_tracing(os.environ)
        own = [(name, settings.of_model(name)) for name, *_ in settings.model_names]
        self.workers = WorkerFactory(settings.workers, settings.model.device, settings.data_folder / PARKED_FOLDER)
        self._placing, make = AsyncExitStack(), self.workers.of
        self.bases = Bases(
            [Base(one, n, self.metrics, self.fail, make(name, one.model.max_slowdown)) for n, (name, one) in enumerate(own)]
        )
        self.futures = Futures(
            FutureLimits(grace_s=settings.samples.retrieve_grace_s, retention_s=settings.samples.result_retention_s)
        )
        self.background = Background()
        self.certifier = Certifier(database)
        self.folders = DataFolders(settings.data_folder)
        self.checkpoints = CheckpointStore(database)
        self.usage = UsageMeter(database)
        self.authenticator = Authenticator(database)
        stored_limit = StoredLimit(self.checkpoints, lambda t: self.quotas.limits(t).stored_bytes)
        for base in self.bases:
            saving = Saving(base.trainer, self.folders, self.checkpoints, stored_limit, self.bases.check_same)
            base.handler = ObservedHandler(base.trainer, saving, self.certifier, base.shape, self.metrics, self.tracing)
        self.models = ModelRegistry(
            database, self.bases.of_stored, self.futures, self.folders, self.certifier, settings.max_resident, self._ended
        )
        self.sessions = Sessions(database, settings.sessions.heartbeat_timeout_s, self._put_away)
        self.samplers = Samplers(database, self.sessions, self.bases.names)
        self.storage = Storage(database, self.checkpoints, self.samplers.last_used_s, self.samplers.forget)
        self.sampling = ObservedSampling(
            lambda name: self.bases.of_stored(name).backend, self.futures, self.quotas, self.certifier,
            settings.samples.max_waiting, self._sampled,
        )  # fmt: skip
        self.sampling.tracing = self.tracing
        self.results = Results(self.futures, self.samplers, self.models, settings.operations.poll_s)
        model_names = ModelNames(self.samplers, self.checkpoints, self.bases.names, self.started_s)
        self.openai = OpenAIEndpoint(self.bases.of_stored, self.sampling, model_names)

        self.managed = ManagedRuns(
            settings, self.bases, database, self.quotas, self.usage, self.folders, self.gate, self.num_live_adapters,
        )  # fmt: skip
        self.audit = Audit(database)
        self.administration = Administration(database, self.authenticator, self.quotas)
        self.runs = TrainingRuns(database)
        self.checkpoint_actions = CheckpointActions(database, self.checkpoints)
        self.copier = WeightsCopier(database, self.checkpoints, self.folders, stored_limit)
        self.external_files = ExternalFiles(self.checkpoints, UrlSigner.of_folder(settings.data_folder))
        self.sampler_clients = SamplerClients(self.started_s)
        self.bulk_futures = BulkFutures(self.futures, self.started_s)
        self.futures.on_end = self.bulk_futures.ended

        self.metrics.registry.register(ServiceGauges(self))
        self.metrics.registry.register(EngineGauges(self.bases.engine_samples))
        if self.workers.groups is not None:
            self.metrics.registry.register(GroupGauges(self.workers.groups))

    # ---- what must hold before a call is taken in

    async def check_live_adapters(self, tenant_id: str) -> None:
        """Raises ServiceError if the tenant may have no more models: to try again would not help."""
        limit = self.quotas.limits(tenant_id).live_adapters
        if limit is None:
            return
        num_live = await self.num_live_adapters(tenant_id)
        if num_live >= limit:
            raise ServiceError(
                f"live_adapters is {num_live}, and {limit} is the limit of this tenant.", REMEDY[Quota.LIVE_ADAPTERS]
            )

    async def num_live_adapters(self, tenant_id: str) -> int:
        """Of models that clients drive, and of managed tasks."""
        models = await self.database.run(lambda session: sessions_of_live_models(session, tenant_id))
        return self.sessions.count_live(models) + self.managed.num_tasks(tenant_id)

    async def check_strict(self, call: ForwardBackwardCall, tenant_id: str) -> None:
        """Raises ProvenanceError if the model is strict and the batch is not what its next version may train on."""
        runner = await self.models.runner(call.model_id, tenant_id)
        version = runner.version_at(call.seq_id)
        if call.seq_id >= runner.order.next_seq_id and version is not None and self.certifier.is_strict(call.model_id):
            self.certifier.certify(call, PolicyVersion(tenant_id, call.model_id, version), call.model_id)

    # ---- life

    async def start(self) -> Ready:
        """Load the workers and take up what a former server left unfinished."""
        for tenant in (await self.database.run(lambda session: tenants.list_tenants(session, MAX_TENANTS, 0)))[0]:
            self.apply_tenant(tenant.tenant_id, tenant.weight, tenant.quotas)
        ready = await self.bases.start()
        await self._placing.enter_async_context(self.workers.placing(log_placement))
        await self.sessions.resume()
        await self.certifier.resume()
        await self.checkpoints.remove_orphans(self.folders)
        await self.models.resume()
        await self.managed.start(ready)
        self._sweeper = asyncio.create_task(self._sweep())
        return ready[self.bases.default.name]

    async def stop(self) -> None:
        """Finish or hand back: calls go on after a restart, samples are lost and sent again by their clients."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        await self.managed.close()
        await self.sampling.close()
        await self.models.close()
        await self.sessions.sweep()
        await self.background.close()
        await self.usage.flush()
        await self._placing.aclose()
        await self.bases.close()
        await self.workers.aclose()
        await self.database.close()

    async def wait_until_failed(self) -> Exception:
        """What ended the service, should anything."""
        await self._failed.wait()
        assert self.failure is not None
        return self.failure

    @property
    def num_under_way(self) -> int:
        return self.models.num_waiting + self.sampling.num_samples

    def apply_tenant(self, tenant_id: str, weight: float, quotas: dict[str, int] | None) -> None:
        for base in self.bases:
            base.set_weight(tenant_id, weight)
        limits = self.quotas.default if quotas is None else QuotaLimits(**quotas)
        self.quotas.set_limits(tenant_id, limits, time.monotonic())

    def fail(self, error: Exception) -> None:
        log.critical("the service ends: %s", error)
        self.failure = error
        for base in self.bases:
            base.trainer.fail_all(error)
        self._failed.set()

    def _put_away(self, session_ids: Sequence[str], have_ended: bool) -> None:
        self.models.put_away(session_ids, have_ended)
        if have_ended:
            self.background.start(self.checkpoints.remove_snapshots(session_ids))

    def _ended(self, runner: ModelRunner, call: Call, result: CallResult | CallFailure) -> None:
        self.metrics.call_ended(runner.opening.tenant, call, result)
        if isinstance(result, CallResult):
            trained = {Quota.TOKENS_PER_MINUTE: result.num_trained_tokens}
            self.quotas.charge(runner.opening.tenant, trained, time.monotonic())
            self.usage.trained(runner.opening.tenant, runner.base_model, result.num_trained_tokens, result.device_s)
            self.audit.call_ended(runner.opening.tenant, call, result)
            for folder in result.replaced_folders:
                self.background.start(self.checkpoints.remove_folder(folder))

    def _sampled(self, call: SampleCall, sampled: Sampled) -> None:
        self.usage.sampled(call, sampled)
        self.metrics.sampled(call, sampled)

    async def _sweep(self) -> None:
        dropped_s = 0.0
        while True:
            await asyncio.sleep(SWEEP_S)
            for request_id in self.futures.sweep():
                self.sampling.cancel(request_id)
            self.certifier.expire()
            try:
                await self.sessions.sweep()
                await self.usage.flush()
                await self.checkpoints.remove_expired()
                if (now_s := time.time()) - dropped_s >= DROP_RESULTS_S:
                    await self.database.run(drop_results, now_s - self.settings.operations.result_retention_s)
                    await self.certifier.drop_old()
                    await self.storage.tidy()
                    dropped_s = now_s
            except Exception:
                log.exception("sweeping failed; it is tried again in %g s", SWEEP_S)
