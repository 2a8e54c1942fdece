"""Templates that users write: what they see, and the errors that they get."""

from __future__ import annotations

import pytest

from rocelab.base.errors import SpecError
from rocelab.base.sandbox import TemplateFolder


class Switch:
    """Something that a template is given."""

    name = "rtsw1"


VARIABLES = {"node": Switch(), "defaults": "datacenter", "daemon": "ospfd", "log_folder": "/logs"}


def rendered(**texts: str) -> str:
    """The template `main` of a folder with these templates."""
    names = {name.replace("__", "/"): text for name, text in texts.items()}
    return TemplateFolder(names, "frr", "mine").render("main", VARIABLES)


def refusal(**texts: str) -> str:
    with pytest.raises(SpecError) as caught:
        rendered(**texts)
    return str(caught.value)


def test_a_template_extends_one_of_its_folder_and_replaces_a_block() -> None:
    base = "a\n{% block middle %}b\n{% endblock %}c\n"
    main = '{% extends "base" %}{% block middle %}{{ super() }}{{ node.name }}\n{% endblock %}'

    assert rendered(base=base, main=main) == "a\nb\nrtsw1\nc\n"


def test_a_template_extends_the_kit_s() -> None:
    text = rendered(main='{% extends "frr/base.conf.j2" %}')

    assert text.startswith("frr defaults datacenter\nhostname rtsw1\n")


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("!\n{% block %}\n", "mine/main:2", "block"),
        ("!\n!\n{{ nothing }}\n", "mine/main:3", "'nothing' is undefined"),
        ("!\n{{ 1 // 0 }}\n", "mine/main:2", "ZeroDivisionError"),
        ('{% extends "../frr/base.conf.j2" %}', "mine/main", "there is no template"),
        ('{% include "/etc/passwd" %}', "mine/main", "there is no template"),
        ('{% extends "frr/../graph/fabric.svg.j2" %}', "mine/main", "there is no template"),
    ],
)
def test_a_mistake_is_shown_with_file_and_line(text: str, place: str, message: str) -> None:
    said = refusal(main=text)

    assert said.startswith(place)
    assert message in said


def test_a_mistake_in_a_template_that_is_extended_has_that_file() -> None:
    said = refusal(base="!\n{{ nothing }}\n", main='{% extends "base" %}')

    assert said.startswith("mine/base:2")


@pytest.mark.parametrize(
    "text",
    [
        "{{ node.__class__.__mro__ }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ node.__init__.__globals__ }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{% for a in range(1000000) %}{{ a }}{% endfor %}",
        "{% for a in range(9999) %}{{ 'x' * 9999 }}{% endfor %}",
    ],
)
def test_a_template_stays_in_its_sandbox(text: str) -> None:
    assert refusal(main=text).startswith("mine/main")
