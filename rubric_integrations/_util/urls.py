"""URLs without the parts that may hold secrets."""

from __future__ import annotations

from urllib.parse import urlsplit


def url_without_secrets(url: str) -> str:
    """Return a URL without its user, password, query and fragment.

    Example:
        >>> url_without_secrets("https://me:password@host/v1?key=secret")
        'https://host/v1'
    """
    try:
        parts = urlsplit(url)
    except ValueError:  # such as an unclosed bracket
        return "URL"
    if not parts.netloc:
        return parts.path.rpartition("@")[2]
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
