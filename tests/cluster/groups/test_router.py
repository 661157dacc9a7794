"""Deployments and the groups that have them."""

import pytest

from plait.cluster.groups.router import Router
from plait.types.errors import ConfigError


def test_a_deployment_goes_to_its_group_and_any_other_to_the_default() -> None:
    router = Router({"a/train": "trainers"}, default="group")
    assert (router.group_of("a/train"), router.group_of("b/train")) == ("trainers", "group")


def test_routes_are_added_without_changing_who_has_the_router() -> None:
    router = Router({"a": "one"})
    moved = router.with_route("a", "two")
    assert (router.group_of("a"), moved.group_of("a")) == ("one", "two")


def test_a_deployment_without_a_group_is_an_error() -> None:
    with pytest.raises(ConfigError, match="deployment 'b' has no worker group"):
        Router({"a": "one"}).group_of("b")
