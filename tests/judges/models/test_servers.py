"""Properties of the servers of models."""

from __future__ import annotations

import pytest

from rubric_integrations.judges.models.servers import ModelServer


@pytest.mark.parametrize(
    ("url", "is_local"),
    [
        ("http://localhost:8000/v1", True),
        ("http://127.0.0.1:8000/v1", True),
        ("http://[::1]:8000/v1", True),
        ("http://10.0.0.7/v1", True),
        ("http://192.168.1.20:11434", True),
        ("https://api.openai.com/v1", False),
        ("http://8.8.8.8/v1", False),
        ("http://localhost.example.com/v1", False),
        ("http://localhost\\@example.com/v1", False),
        ("", False),
    ],
)
def test_server_is_local_on_this_machine_and_in_a_private_network(url: str, is_local: bool) -> None:
    assert ModelServer(url, "`api_base`").is_local is is_local
