"""One HTML file with everything in it, from a template, scripts and styles of a package.

What is put in is text: escaped in the page, and in the data for the charts. The template lists `script_hashes` in its content
security policy, so that only its own scripts run.
"""

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import jinja2
import msgspec

from plait.observe.text import duration, percent

HERE = "plait.observe.report"
Resource = tuple[str, str, str]
"""(Package, folder, name)"""
ECHARTS: Resource = (HERE, "static", "echarts.min.js")
STYLE: Resource = (HERE, "static", "report.css")


def render(package: str, template: str, scripts: Sequence[Resource], styles: Sequence[Resource], **values: Any) -> str:
    """Of `templates/TEMPLATE` in the package. A value that the template names and nobody gives is an error."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: resource((package, "templates", name))),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"duration": duration, "percent": percent}
    texts = [resource(script) for script in scripts]
    style = "\n".join(resource(one) for one in styles)
    hashes = [script_hash(text) for text in texts]
    return environment.get_template(template).render(scripts=texts, script_hashes=hashes, style=style, **values)


def resource(place: Resource) -> str:
    package, folder, name = place
    return (files(package) / folder / name).read_text(encoding="utf-8")


def script_hash(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def json_in_html(data: Any) -> str:
    """JSON that cannot end the script element it stands in. Numbers that JSON does not have become null."""
    text = msgspec.json.encode(data).decode()
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
