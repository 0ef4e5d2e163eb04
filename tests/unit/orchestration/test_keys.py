from __future__ import annotations

from sweep_tasks.keys import derived_key


def test_each_purpose_and_each_secret_has_a_key_of_its_own() -> None:
    keys = {derived_key(secret, purpose) for secret in ("one", "two") for purpose in ("form", "message", "")}
    assert len(keys) == 6
    assert {len(key) for key in keys} == {64}
    assert not any(word in key for key in keys for word in ("one", "two"))


def test_it_is_the_same_each_time_and_everywhere() -> None:
    """As `printf form | openssl dgst -sha256 -hmac one` has it."""
    assert derived_key("one", "form") == "f8540f8d9d6d167bb53065ece1c5d7bedef79538c58b96c4964971d3c955cf55"
