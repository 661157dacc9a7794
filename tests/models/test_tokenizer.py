import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers

from plait.models.tiny import CHAT_TEMPLATE, make_tiny_model
from plait.models.tokenizer import Tokenizer
from plait.types.errors import ModelError
from plait.types.messages import Message
from tests.models.test_parity import smollm2_folder

TEXTS = (
    "Hello world 17+25=42",
    "  17  x\n\n 3\t4",
    "日本語 émoji 😀 \u00a0 １２ ½",
    "<|im_start|>user\n1<|im_end|>\n",
    "int x = 10;  // 100\n    return 5;\n",
    "",
)
CONVERSATIONS: tuple[tuple[Message, ...], ...] = (
    (Message("user", "What is 3 + 4?"),),
    (Message("system", "Be brief."), Message("user", "Hi")),
    (Message("user", "Hi"), Message("assistant", "Hello."), Message("user", "Bye <|im_end|> 😀")),
)
DROPS_THOUGHTS = (
    "{% set ns = namespace(last=-1) %}"
    "{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    "{% for m in messages %}{% set c = m.content %}"
    "{% if m.role == 'assistant' and loop.index0 < ns.last %}{% set c = c.split('</think>')[-1].lstrip('\n') %}{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ c }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""As Qwen3's: thoughts stay while tools are called and go when the user speaks again."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.load(folder)


def with_template(folder: Path, source: str | None) -> Tokenizer:
    backend = Backend.from_file(str(folder / "tokenizer.json"))
    return Tokenizer(backend, source, {"eos_token": "<|im_end|>", "bos_token": "<|endoftext|>"}, eos_token_ids=(2,))


def check_against_transformers(folder: Path) -> None:
    from transformers import AutoTokenizer

    ours, theirs = Tokenizer.load(folder), AutoTokenizer.from_pretrained(folder)
    for text in TEXTS:
        tokens = ours.encode(text)
        assert list(tokens) == theirs.encode(text, add_special_tokens=False)
        assert ours.decode(tokens) == theirs.decode(list(tokens), skip_special_tokens=False)
        assert ours.decode_text(tokens) == theirs.decode(list(tokens), skip_special_tokens=True)
    for conversation in CONVERSATIONS:
        as_dicts = [{"role": message.role, "content": message.content} for message in conversation]
        expected = theirs.apply_chat_template(as_dicts, add_generation_prompt=True, tokenize=True, return_dict=False)
        assert list(ours.render_prompt(conversation)) == expected


def test_ids_and_prompts_equal_those_of_transformers(folder: Path) -> None:
    check_against_transformers(folder)


@pytest.mark.smollm2
def test_smollm2_ids_and_prompts_equal_those_of_transformers() -> None:
    check_against_transformers(smollm2_folder())


@pytest.mark.smollm2
def test_smollm2_digits_are_single_tokens_and_its_system_prompt_is_added() -> None:
    tokenizer = Tokenizer.load(smollm2_folder())
    assert [tokenizer.decode((token,)) for token in tokenizer.encode("2025  17")] == ["2", "0", "2", "5", "  ", "1", "7"]
    assert tokenizer.stop_token_ids == (2,)
    assert tokenizer.decode(tokenizer.render_prompt([Message("user", "Hi")])) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    followup = tokenizer.decode(tokenizer.render_followup(Message("tool", "42"), previous_ended=True))
    assert followup == "\n<|im_start|>tool\n42<|im_end|>\n<|im_start|>assistant\n"


@given(text=st.text(max_size=40))
def test_decoding_undoes_encoding(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


@given(first=st.lists(st.integers(0, 400), max_size=20), second=st.lists(st.integers(0, 400), max_size=20))
def test_bytes_of_tokens_do_not_depend_on_their_neighbours(tokenizer: Tokenizer, first: list[int], second: list[int]) -> None:
    assert tokenizer.decode_bytes(first + second) == tokenizer.decode_bytes(first) + tokenizer.decode_bytes(second)


@given(tokens=st.lists(st.integers(0, 383), max_size=30))
def test_any_sampled_ids_decode_as_the_library_decodes_them(tokenizer: Tokenizer, folder: Path, tokens: list[int]) -> None:
    assert tokenizer.decode(tokens) == Backend.from_file(str(folder / "tokenizer.json")).decode(tokens, skip_special_tokens=False)


def test_a_character_split_over_tokens_appears_when_it_is_whole(tokenizer: Tokenizer) -> None:
    tokens = tokenizer.encode("ok 😀!")
    texts = [tokenizer.decode(tokens[:length]) for length in range(len(tokens) + 1)]
    assert texts[-1] == "ok 😀!"
    first_whole = next(index for index, text in enumerate(texts) if "😀" in text)
    assert texts[first_whole - 1].endswith("\ufffd")
    assert b"".join(tokenizer.decode_bytes((token,)) for token in tokens).decode() == "ok 😀!"


def test_ids_without_a_token_give_nothing_and_negative_ones_are_refused(tokenizer: Tokenizer) -> None:
    assert tokenizer.vocab_size == 384
    assert tokenizer.decode((384, 10**6)) == ""
    with pytest.raises(ModelError, match="Token -1"):
        tokenizer.decode((-1,))


def test_sentence_piece_tokens_with_byte_fallback() -> None:
    vocabulary = {"<unk>": 0, "<0xF0>": 1, "<0x9F>": 2, "<0x98>": 3, "<0x80>": 4, "▁hi": 5, "▁": 6, "é": 7}
    backend = Backend(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True))
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer = Tokenizer(backend, None, {})
    assert tokenizer.decode((5, 6, 7, 1, 2, 3, 4)) == " hi é😀"
    with pytest.raises(ModelError, match="no chat template"):
        tokenizer.render_prompt([Message("user", "hi")])


def test_other_kinds_of_tokenizer_are_refused() -> None:
    backend = Backend(models.WordPiece({"[UNK]": 0}))
    backend.decoder = decoders.WordPiece()
    with pytest.raises(ModelError, match="WordPiece"):
        Tokenizer(backend, None, {})


@given(answer=st.text(max_size=20), message=st.text(max_size=20), rounds=st.integers(1, 3))
@settings(max_examples=30)
def test_followups_add_up_to_the_whole_conversation(tokenizer: Tokenizer, answer: str, message: str, rounds: int) -> None:
    conversation = [Message("user", "Q")]
    tokens = tokenizer.render_prompt(conversation)
    for _ in range(rounds):
        tokens += tokenizer.encode(answer) + tokenizer.render_followup(Message("tool", message), previous_ended=False)
        conversation += [Message("assistant", answer), Message("tool", message)]
    assert tokenizer.decode(tokens) == tokenizer.decode(tokenizer.render_prompt(conversation))


def test_followup_of_an_ended_turn_lacks_only_the_end_token(tokenizer: Tokenizer) -> None:
    message = Message("user", "And 2?")
    whole = tokenizer.render_followup(message, previous_ended=False)
    assert whole[0] == tokenizer.stop_token_ids[0] == 2
    assert tokenizer.render_followup(message, previous_ended=True) == whole[1:]


def test_templates_that_drop_thoughts_are_refused_where_they_do(folder: Path) -> None:
    tokenizer = with_template(folder, DROPS_THOUGHTS)
    with pytest.raises(ModelError, match="rewrites earlier turns when a 'user' message follows"):
        tokenizer.render_followup(Message("user", "more"), previous_ended=True)
    followup = tokenizer.render_followup(Message("tool", "42"), previous_ended=False)
    assert tokenizer.decode(followup) == "<|im_end|>\n<|im_start|>tool\n42<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    "source",
    [
        CHAT_TEMPLATE.replace("message['content']", "message['content'] | upper"),
        "{{ messages | length }}" + CHAT_TEMPLATE,
        CHAT_TEMPLATE.replace("{% for message in messages %}", "{% for message in messages[-1:] %}"),
        CHAT_TEMPLATE + "<think>\n",
        "{% if messages | length > 4 %}x{% endif %}" + CHAT_TEMPLATE,
    ],
)
def test_templates_that_rewrite_history_are_refused(folder: Path, source: str) -> None:
    with pytest.raises(ModelError, match="rewrites earlier turns"):
        with_template(folder, source).render_followup(Message("user", "more"), previous_ended=True)


def test_templates_with_spaces_around_answers_are_served(folder: Path) -> None:
    source = (
        "{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
        "{% else %} {{ m.content }} {{ eos_token }}{% endif %}{% endfor %}"
    )
    tokenizer = with_template(folder, source)
    message = Message("user", "more")
    assert tokenizer.decode(tokenizer.render_followup(message, previous_ended=False)) == " <|im_end|>[INST] more [/INST]"
    assert tokenizer.decode(tokenizer.render_followup(message, previous_ended=True)) == "[INST] more [/INST]"


def test_a_template_without_an_end_token_appends_the_same_either_way(folder: Path) -> None:
    source = (
        "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
    )
    tokenizer = with_template(folder, source)
    message = Message("user", "more")
    expected = tokenizer.encode("\nuser: more\nassistant: ")
    assert tokenizer.render_followup(message, previous_ended=False) == expected
    assert tokenizer.render_followup(message, previous_ended=True) == expected


def test_stop_tokens_include_the_one_that_closes_a_turn(folder: Path) -> None:
    backend = Backend.from_file(str(folder / "tokenizer.json"))
    assert Tokenizer(backend, CHAT_TEMPLATE, {"eos_token": "<|endoftext|>"}, eos_token_ids=(0,)).stop_token_ids == (0, 2)
    assert Tokenizer(backend, None, {}, eos_token_ids=()).stop_token_ids == ()


def test_a_template_speaks_its_own_refusal_and_runs_in_a_sandbox(folder: Path) -> None:
    with pytest.raises(ModelError, match="only users here"):
        with_template(folder, "{{ raise_exception('only users here') }}").render_prompt([Message("system", "x")])
    with pytest.raises(ModelError, match="rejects"):
        with_template(folder, "{{ messages.__class__.__mro__ }}{{ messages.append(1) }}").render_prompt([Message("user", "x")])
    with pytest.raises(ModelError, match="does not parse"):
        with_template(folder, "{% for %}")


def test_template_helpers_of_transformers_are_there(folder: Path) -> None:
    source = (
        "{% generation %}{{ messages[0] | tojson }}{% endgeneration %}"
        "{% for i in [1, 2] %}{% break %}{% endfor %}{{ strftime_now('%Y') }}"
    )
    text = with_template(folder, source).chat_template.render([Message("user", "<é>")], generation_prompt=False)
    assert text.startswith('{"role": "user", "content": "<é>"}20')


def test_template_file_wins_over_the_settings(folder: Path, tmp_path: Path) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "chat_template.jinja").write_text("{{ bos_token }}{{ messages[0].content }}")
    loaded = Tokenizer.load(tmp_path)
    assert loaded.decode(loaded.render_prompt([Message("user", "x")])) == "<|im_start|>x"
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match=r"tokenizer\.json cannot be read"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"tokenizer\.json does not exist"):
        Tokenizer.load(tmp_path)


def test_sixty_four_threads_share_one_tokenizer(tokenizer: Tokenizer) -> None:
    text = "What is 12 + 30? 😀 "
    expected = (tokenizer.encode(text), tokenizer.render_followup(Message("tool", text), previous_ended=True))
    together, failures, num_rounds = threading.Barrier(64), list[BaseException](), list[int]()

    def work() -> None:
        try:
            together.wait(120)
            for _ in range(10):
                assert (tokenizer.encode(text), tokenizer.render_followup(Message("tool", text), previous_ended=True)) == expected
                assert tokenizer.decode(expected[0]) == text
            num_rounds.append(10)
        except BaseException as error:
            failures.append(error)

    run_threads([threading.Thread(target=work) for _ in range(64)])
    assert not failures
    assert len(num_rounds) == 64


def run_threads(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_torch_and_transformers_are_not_imported() -> None:
    modules = (
        "tokenizer, plait.models.catalogue, plait.models.tiny, plait.models.gguf_file, plait.lora.modules, plait.lora.peft_config"
    )
    code = f"import sys, plait.models.{modules}; print(sorted({{'torch', 'transformers', 'huggingface_hub'}} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
