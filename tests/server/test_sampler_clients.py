from plait.server import sampler_clients
from plait.server.sampler_clients import SamplerClients


def test_numbers_count_from_zero_for_each_sampler() -> None:
    clients = SamplerClients(started_s=100.0)
    assert [clients.join(name, 150.0) for name in ("a", "b", "a", "a", "b")] == [0, 0, 1, 2, 1]


def test_of_samplers_from_before_the_start_numbers_are_drawn() -> None:
    clients = SamplerClients(started_s=100.0)
    first = clients.join("a", 50.0)
    assert 0 < first <= sampler_clients.MAX_NUMBER
    assert clients.join("a", 50.0) == first + 1
    assert SamplerClients(started_s=100.0).join("a", 50.0) != first
