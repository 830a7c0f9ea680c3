"""Known holes of 3.11.2 and 3.13.5, tried one by one: an unpatched build fails here."""

import email.utils
import io
import os
import tarfile
import webbrowser
from email.message import EmailMessage
from email.policy import default
from http import cookies
from urllib.parse import urlsplit


def raises(kind: type[Exception], call, *args) -> bool:
    try:
        call(*args)
    except kind:
        return True
    return False


# CVE-2023-24329: a blocklist on the scheme was passed by with a leading space.
assert urlsplit(" https://example.org/").scheme == "https"
# CVE-2024-11168, CVE-2025-0938: brackets in host names.
assert raises(ValueError, urlsplit, "http://[not-an-address]/")
assert raises(ValueError, urlsplit, "http://exa[mple.org/")
# CVE-2023-41105: a path cut at a zero byte.
assert os.path.normpath("a/b\x00/../c") != "a/b"
# CVE-2023-27043: an address that hides another.
assert email.utils.parseaddr("alice@example.org)bob@example.com") == ("", "")
# CVE-2024-6923: header injection on serialisation.
message = EmailMessage(policy=default.clone(verify_generated_headers=True))
message._headers.append(("Subject", "x\nBcc: y@example.org"))
assert raises(Exception, message.as_bytes)
# CVE-2026-0672: control characters in a cookie.
assert raises(cookies.CookieError, cookies.SimpleCookie().__setitem__, "k", "v\r\nSet-Cookie: x=y")
# CVE-2026-4519: an URL that is read as an option.
assert raises(ValueError, webbrowser.GenericBrowser("true").open, "--option")
# CVE-2025-8194: a member of negative size made tarfile loop for ever.
member = tarfile.TarInfo("member").tobuf()
forged = member[:124] + (-512).to_bytes(12, "big", signed=True) + member[136:148]
body = forged + b" " * 8 + member[156:]
forged = forged + b"%06o\0 " % sum(body) + member[156:]
assert raises(tarfile.ReadError, tarfile.open, None, "r:", io.BytesIO(forged + bytes(1024)))
print("all holes closed")
