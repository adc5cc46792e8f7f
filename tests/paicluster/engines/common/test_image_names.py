"""Names of images are read as docker reads them, and logins written as it keeps them."""

from __future__ import annotations

import base64
import json

import pytest

from paicluster.engines.common import image_names
from paicluster.engines.container.client import mount_options
from paicluster.engines.interface import Mount, RegistryLogin


@pytest.mark.parametrize(
    ("name", "whole"),
    [
        ("busybox", "docker.io/library/busybox:latest"),
        ("pytorch/pytorch:2.3", "docker.io/pytorch/pytorch:2.3"),
        ("docker.io/busybox", "docker.io/library/busybox:latest"),
        ("docker.io/library/busybox:1", "docker.io/library/busybox:1"),
        ("localhost/base", "localhost/base:latest"),
        ("localhost:5000/a/b", "localhost:5000/a/b:latest"),
        ("registry.example.com/a/b/c:v1", "registry.example.com/a/b/c:v1"),
        ("127.0.0.1:5000/x@sha256:abc", "127.0.0.1:5000/x@sha256:abc"),
        ("me/x@sha256:abc", "docker.io/me/x@sha256:abc"),
    ],
)
def test_defaults_of_image_names_are_those_of_docker(name: str, whole: str) -> None:
    assert image_names.full_name(name) == whole


@pytest.mark.parametrize(
    ("registry", "near"),
    [
        ("localhost", True),
        ("localhost:5000", True),
        ("127.0.0.1:5000", True),
        ("127.1.2.3", True),
        ("[::1]:5000", True),
        ("docker.io", False),
        ("10.0.0.1:5000", False),
        ("localhost.example.com", False),
    ],
)
def test_only_a_registry_of_this_machine_needs_no_tls(registry: str, near: bool) -> None:
    assert image_names.is_local_registry(registry) is near


@pytest.mark.parametrize(
    ("image", "name", "keys"),
    [
        ("reg.example.com/a", "", ["reg.example.com"]),
        ("reg.example.com/a", "https://reg.example.com/v2/", ["reg.example.com"]),
        ("reg.example.com:5000/a", "reg.example.com:5000", ["reg.example.com:5000"]),
        ("me/private", "", ["docker.io", "https://index.docker.io/v1/"]),
        ("me/private", "https://index.docker.io/v1/", ["docker.io", "https://index.docker.io/v1/"]),
    ],
)
def test_login_is_stored_under_its_registrys_key(image: str, name: str, keys: list[str]) -> None:
    login = RegistryLogin("me", "pass:word", name)
    kept = json.loads(image_names.login_file(image, login))["auths"]
    assert sorted(kept) == sorted(keys)
    assert {base64.b64decode(one["auth"]) for one in kept.values()} == {b"me:pass:word"}
    assert "word" not in repr(login)


def test_a_path_with_a_comma_can_be_mounted(tmp_path: object) -> None:
    arguments = mount_options(Mount(f"{tmp_path}/a,b", "/in", read_only=True))  # type: ignore[arg-type]
    assert arguments == ["--mount", f'type=bind,"source={tmp_path}/a,b",target=/in,readonly=true']
