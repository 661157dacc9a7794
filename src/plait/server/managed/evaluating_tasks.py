"""Tasks of reasoning-gym that a tenant may not name: they run what the policy answers as Python, or can wrap a task that does.

A tenant chooses the prompts and trains the policy, so it could have any code run in the server's name.
"""

EVALUATING_TASKS = frozenset(
    (
        "binary_matrix",
        "composite",
        "countdown",
        "intermediate_integration",
        "n_queens",
        "polynomial_multiplication",
        "puzzle24",
        "simple_integration",
        "spiral_matrix",
        "string_insertion",
    )
)
"""By `eval`, or by sympy's `parse_expr`, which is `eval`; of version 0.1.25."""
