"""What OpenAI's clients ask: models, completions, chats. Under /v1 and, as in the Tinker service, under /oai/api/v1."""

from fastapi import APIRouter, Request, Response

from plait.server.errors import NotFound
from plait.server.openai.errors import OpenAIRoute
from plait.server.openai.requests import ChatRequest, CompletionRequest
from plait.server.openai.responses import ChatCompletion, Completion, ErrorBody, ModelList, ModelObject
from plait.server.openai.streaming import json_response, respond
from plait.server.routes.dependencies import PrincipalOf, ServiceOf

PREFIXES = ("/v1", "/oai/api/v1")
ERRORS = {status: {"model": ErrorBody} for status in (400, 401, 404, 429)}
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]

_routes = APIRouter(tags=["openai"], route_class=OpenAIRoute, responses=ERRORS)  # type: ignore[arg-type]


@_routes.get("/models", responses={200: {"model": ModelList}})
async def list_models(service: ServiceOf, principal: PrincipalOf) -> Response:
    return json_response(await service.openai.models.list(principal.tenant_id))


@_routes.get("/models/{model:path}", responses={200: {"model": ModelObject}})
async def get_model(model: str, service: ServiceOf, principal: PrincipalOf) -> Response:
    return json_response(await service.openai.models.get(model, principal.tenant_id))


@_routes.post("/completions", responses={200: {"model": Completion}})
async def complete(body: CompletionRequest, request: Request, service: ServiceOf, principal: PrincipalOf) -> Response:
    answer = await service.openai.complete(body, principal.tenant_id)
    return await respond(answer, bool(body.stream), request)


@_routes.post("/chat/completions", responses={200: {"model": ChatCompletion}})
async def chat(body: ChatRequest, request: Request, service: ServiceOf, principal: PrincipalOf) -> Response:
    answer = await service.openai.chat(body, principal.tenant_id)
    return await respond(answer, bool(body.stream), request)


@_routes.api_route("/{path:path}", methods=METHODS, include_in_schema=False)
async def unknown(path: str, request: Request) -> Response:
    raise NotFound("route", f"{request.method} {request.url.path}", "The page /docs has them.")


router = APIRouter()
for prefix in PREFIXES:
    router.include_router(_routes, prefix=prefix, include_in_schema=prefix == PREFIXES[0])
