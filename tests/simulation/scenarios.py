"""Small scenarios, as text."""

TASKS = """\
kind = "tasks"
title = "Small"
seed = 3

[cluster]
accelerator = "H100"
devices = 3
price_per_device_hour = 2.0

[model]
name = "Qwen3-0.6B"

[training]
devices = 1

[[tasks]]
name = "math"
count = 2
steps = 3
groups_per_step = 4
group_size = 4
lengths = { median_tokens = 200, max_tokens = 1000 }
delay_s = 0.5

[[systems]]
name = "plait"

[[systems]]
name = "one at a time"
sharing = "one_at_a_time"
layout = "shared"
"""

JOBS = """\
kind = "jobs"
title = "Few jobs"

[cluster]
accelerator = "H100"
devices = 32

[[jobs]]
name = "small"
count = 4
model = "Qwen3-8B"
steps = 12
arrival_every_s = 600
rollout = { devices = 8, seconds = 200, calls = 4 }
train = { devices = 8, seconds = 40, calls = 2 }
slo = 1.3

[[systems]]
name = "isolated"
policy = "isolated"

[[systems]]
name = "pack"
policy = "pack"
"""
