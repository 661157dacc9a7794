"""Log-probabilities in the two forms that OpenAI's clients know."""

from collections.abc import Callable, Sequence

from plait.server.openai.choice import TextToken
from plait.server.openai.responses import ChatLogprobs, CompletionLogprobs, TokenLogprob, TopLogprob

BytesOf = Callable[[int], bytes]


def token_text(token_bytes: bytes) -> str:
    """A token that is no whole text is written as OpenAI does, so that different tokens stay different."""
    try:
        return token_bytes.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token_bytes)


def chat_logprobs(tokens: Sequence[TextToken], bytes_of: BytesOf) -> ChatLogprobs:
    return ChatLogprobs(content=[_token_logprob(token, bytes_of) for token in tokens], refusal=None)


def _token_logprob(token: TextToken, bytes_of: BytesOf) -> TokenLogprob:
    own, logprob = bytes_of(token.token), token.logprob or 0.0
    top = [
        TopLogprob(token=token_text(bytes_of(other)), logprob=other_logprob, bytes=list(bytes_of(other)))
        for other, other_logprob in token.top
    ]
    return TokenLogprob(token=token_text(own), logprob=logprob, bytes=list(own), top_logprobs=top)


def completion_logprobs(tokens: Sequence[TextToken], bytes_of: BytesOf, with_top: bool) -> CompletionLogprobs:
    return CompletionLogprobs(
        tokens=[token_text(bytes_of(token.token)) for token in tokens],
        token_logprobs=[token.logprob for token in tokens],
        top_logprobs=[_top_logprobs(token, bytes_of) for token in tokens] if with_top else None,
        text_offset=[token.start for token in tokens],
    )


def _top_logprobs(token: TextToken, bytes_of: BytesOf) -> dict[str, float] | None:
    """The token itself is among them, though it be none of the likeliest."""
    if token.logprob is None:
        return None
    return {token_text(bytes_of(other)): logprob for other, logprob in (*token.top, (token.token, token.logprob))}
