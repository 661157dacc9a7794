import pytest

from plait.operations.claims import DatumClaim, ProvenanceError, Span
from plait.operations.provenance import Mode, Provenance, SampledSequence, pack_tokens
from plait.types.policy import PolicyVersion

LATEST = PolicyVersion("ada", "s:train:0", 7)
BOTH = pytest.mark.parametrize("mode", list(Mode))


def sequence(
    version: int = 7, task: str = "s:train:0", tenant: str = "ada", tokens: tuple[int, ...] = (1, 2, 3), time_s: float = 0
) -> SampledSequence:
    return SampledSequence(tenant, "s", PolicyVersion(tenant, task, version), 4, pack_tokens(tokens), time_s)


def provenance(**sequences: SampledSequence) -> Provenance:
    table = Provenance()
    for sequence_id, recorded in sequences.items():
        table.record(sequence_id, recorded)
    return table


def claim(sequence_id: str = "q", tokens: tuple[int, ...] = (1, 2, 3), prompt: int = 3, offset: int = 0) -> DatumClaim:
    """As the cookbook sends it: targets are the prompt from its second token on, then what was sampled."""
    spans = (Span(sequence_id, 1, prompt, False), Span(sequence_id, offset, len(tokens), True))
    return DatumClaim((50,) * prompt + tokens, (False,) * prompt + (True,) * len(tokens), spans)


@BOTH
def test_tokens_of_the_latest_version_pass(mode: Mode) -> None:
    certificate = provenance(q=sequence()).certify([claim(), claim(tokens=(2, 3), offset=1)], LATEST, mode)
    assert certificate.num_tokens_by_age == {0: 5}
    assert (certificate.num_foreign_tokens, certificate.num_unknown_tokens) == (0, 0)
    assert (certificate.mean_staleness, certificate.max_staleness) == (0.0, 0)


def test_two_turns_in_one_datum() -> None:
    table = provenance(q=sequence(), r=sequence(version=5, tokens=(8, 9)))
    spans = (Span("q", 1, 1, False), Span("q", 0, 3, True), Span("r", 3, 1, False), Span("r", 0, 2, True))
    datum = DatumClaim((50, 1, 2, 3, 51, 8, 9), (False, True, True, True, False, True, False), spans)
    certificate = table.certify([datum], LATEST, Mode.RECORDED)
    assert certificate.num_tokens_by_age == {0: 3, 2: 1}, "only positions that train count"
    assert certificate.mean_staleness == 0.5
    assert certificate.max_staleness == 2
    with pytest.raises(ProvenanceError, match=r"datum 0, loss_fn_input_spans\[3\], sequence 'r'.*its age is 2"):
        table.certify([datum], LATEST, Mode.STRICT)


@pytest.mark.parametrize("age", [1, 3])
def test_stale_tokens_are_measured_or_refused(age: int) -> None:
    table = provenance(q=sequence(), old=sequence(version=7 - age))
    data = [claim(), claim("old")]
    certificate = table.certify(data, LATEST, Mode.RECORDED)
    assert certificate.num_tokens_by_age == {0: 3, age: 3}
    assert certificate.mean_staleness == age / 2
    with pytest.raises(ProvenanceError, match=rf"datum 1, loss_fn_input_spans\[1\], sequence 'old'.*its age is {age}"):
        table.certify(data, LATEST, Mode.STRICT)


def test_tokens_of_another_policy_are_counted_or_refused() -> None:
    table = provenance(q=sequence(task="teacher"))
    assert table.certify([claim()], LATEST, Mode.RECORDED).num_foreign_tokens == 3
    with pytest.raises(ProvenanceError, match="ada/teacher@7 is in a batch of ada/s:train:0"):
        table.certify([claim()], LATEST, Mode.STRICT)


@pytest.mark.parametrize("sequence_id", ["forged", "bobs"])
def test_another_tenants_sequence_is_as_unknown_as_none(sequence_id: str) -> None:
    table = provenance(bobs=sequence(tenant="bob"))
    for tokens in ((1, 2, 3), (4, 5, 6)):
        assert table.certify([claim(sequence_id, tokens)], LATEST, Mode.RECORDED).num_unknown_tokens == 3
        with pytest.raises(ProvenanceError, match=rf"datum 0, .*spans\[0\]: there is no sequence '{sequence_id}', or no more"):
            table.certify([claim(sequence_id, tokens)], LATEST, Mode.STRICT)


@BOTH
def test_tokens_that_were_not_sampled_are_refused(mode: Mode) -> None:
    for tokens in ((1, 2, 4), (3, 2, 1), (1 << 40, 2, 3)):
        with pytest.raises(ProvenanceError, match=r"datum 0, loss_fn_input_spans\[1\]: the target_tokens are not those"):
            provenance(q=sequence()).certify([claim(tokens=tokens)], LATEST, mode)


@BOTH
@pytest.mark.parametrize(
    ("datum", "text"),
    [
        (claim(tokens=(1, 2, 3, 4)), r"spans\[1\]: offset 0 \+ length 4 is more than the 3 of the sampled tokens of sequence 'q'"),
        (claim(offset=1), r"offset 1 \+ length 3 is more than the 3"),
        (claim(prompt=4), r"spans\[0\]: offset 1 \+ length 4 is more than the 4 of the prompt"),
        (DatumClaim((1, 2, 3, 4), (True,) * 4, (Span("q", 0, 3, True),)), "cover 3 of 4 positions"),
        (DatumClaim((1, 2), (True,) * 2, (Span("q", 0, 3, True),)), r"spans\[0\] ends at position 3 of 2"),
        (DatumClaim((1, 2), (True,) * 2, (Span("q", -1, 2, True),)), "offset -1 or length 2 is negative"),
        (DatumClaim((1,), (True,), (Span("q", 0, 2, True), Span("q", 0, -1, True))), "ends at position 2|length -1 is negative"),
    ],
)
def test_spans_that_do_not_fit_are_refused(mode: Mode, datum: DatumClaim, text: str) -> None:
    with pytest.raises(ProvenanceError, match=text) as error:
        provenance(q=sequence()).certify([datum], LATEST, mode)
    assert "datum 0" in error.value.message
    assert error.value.remedy


@BOTH
def test_a_version_that_does_not_exist_is_refused(mode: Mode) -> None:
    with pytest.raises(ProvenanceError, match="@8 drew sequence 'q', and ada/s:train:0@7 is the newest"):
        provenance(q=sequence(version=8)).certify([claim()], LATEST, mode)


def test_what_trains_without_spans_is_counted_or_refused() -> None:
    bare = DatumClaim((1, 2, 3), (False, True, True))
    assert Provenance().certify([bare], LATEST, Mode.RECORDED).num_unknown_tokens == 2
    with pytest.raises(ProvenanceError, match="datum 1 trains 2 positions and has no loss_fn_input_spans"):
        Provenance().certify([DatumClaim((1,), (False,)), bare], LATEST, Mode.STRICT)


def test_a_prompt_that_trains_is_counted_or_refused() -> None:
    datum = DatumClaim((50, 50), (False, True), (Span("q", 0, 2, False),))
    table = provenance(q=sequence())
    assert table.certify([datum], LATEST, Mode.RECORDED).num_unknown_tokens == 1
    with pytest.raises(ProvenanceError, match=r"spans\[0\]: positions of a prompt train"):
        table.certify([datum], LATEST, Mode.STRICT)


def test_targets_of_rank_2_are_not_compared_and_never_strict() -> None:
    datum = DatumClaim(None, (True,) * 3, (Span("q", 0, 3, True),))
    table = provenance(q=sequence())
    assert table.certify([datum], LATEST, Mode.RECORDED).num_tokens_by_age == {0: 3}
    with pytest.raises(ProvenanceError, match="datum 0: target_tokens name several tokens"):
        table.certify([datum], LATEST, Mode.STRICT)


def test_sequences_are_kept_for_a_day() -> None:
    table = provenance(q=sequence(time_s=0), r=sequence(time_s=100))
    table.expire(86_399)
    table.certify([claim("q"), claim("r")], LATEST, Mode.STRICT)
    table.record("new", sequence(time_s=86_400))
    with pytest.raises(ProvenanceError, match=r"no sequence 'q', or no more.*last 24 hours"):
        table.certify([claim("q")], LATEST, Mode.STRICT)
    table.certify([claim("r"), claim("new")], LATEST, Mode.STRICT)
    table.expire(200_000)
    assert len(table) == 0


def test_what_is_kept_is_bounded() -> None:
    table = Provenance(max_bytes=10 * sequence().num_bytes)
    for number in range(100):
        table.record(f"q{number}", sequence())
        table.record(f"q{number}", sequence())
    assert len(table) == 10
    table.certify([claim("q90"), claim("q99")], LATEST, Mode.STRICT)
