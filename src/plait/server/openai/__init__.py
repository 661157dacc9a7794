"""The OpenAI-compatible endpoint: chats and completions, answered by the same samplers as the Tinker API's samples."""
