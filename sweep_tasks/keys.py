"""Derive a key for each purpose from one secret.

A signature that was made for one purpose must not be valid for another. A derived key reveals neither the secret nor
the keys of other purposes.
"""

from __future__ import annotations

import hashlib
import hmac


def derived_key(secret: str, purpose: str) -> str:
    """Return 64 hexadecimal digits, always the same for the same arguments."""
    return hmac.new(secret.encode(), purpose.encode(), hashlib.sha256).hexdigest()
